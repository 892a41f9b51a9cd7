//! A capture as traffic.

use crate::offer::macs;
use config::ChainFile;
use diagnostics::Diagnostic;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use traffic::capture::{End, MAX_BYTES};
use traffic::{Capture, CaptureError, CaptureSettings, Rewrite, Stream, StreamSettings};

/// Longest frame that a packet buffer holds, bytes without FCS.
pub(crate) const LONGEST: usize = 2048;
/// CPUs that a machine may have.
pub(crate) const MOST_CPUS: usize = 1024;
/// Memory in which a look at a capture finds a frame or none.
const GLANCE: usize = 64 << 10;

/// The frames of a capture file, with what a result says of it.
#[derive(Debug)]
pub struct Trace {
    name: String,
    sha256: String,
    capture: Capture,
    path: PathBuf,
    settings: CaptureSettings,
}

impl Trace {
    /// Reads a capture and holds its first frames, those that fit into 64 MiB; what is behind them is counted, and read again as
    /// it is sent. Frames get the MAC addresses of the chain file's `[traffic]`, where it has some, swapped for those that go `back`,
    /// and what `rewrite` says. Reading ends when `stop` is set.
    ///
    /// # Errors
    /// When it cannot be read, or has no frame that can be sent; a MAC address that is none; when it was stopped.
    pub fn open(
        path: &Path,
        file: &ChainFile,
        rewrite: &Rewrite,
        back: bool,
        stop: &AtomicBool,
    ) -> Result<Trace, Diagnostic> {
        let (src_mac, dst_mac) = match (macs(file)?, back) {
            (macs, false) => macs,
            ((src, dst), true) => (dst, src),
        };
        let settings = CaptureSettings {
            max_bytes: MAX_BYTES,
            max_frame: LONGEST,
            src_mac,
            dst_mac,
            rewrite: rewrite.clone(),
            count_all: true,
        };
        let opened = File::open(path).map_err(|e| wrong(path, format!("cannot be read: {e}")))?;
        let mut hashed = Hashed { file: opened, hash: Sha256::new(), stop };
        let read = |e: CaptureError| wrong(path, e.to_string());
        let reader = pcap::Reader::new(&mut hashed).map_err(|e| read(e.into()))?;
        let capture = Capture::read(reader, settings.clone()).map_err(read)?;
        // what is behind the frames that are held is part of the file as well
        io::copy(&mut hashed, &mut io::sink()).map_err(|e| wrong(path, format!("cannot be read: {e}")))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.chars().take(report::limit::NAME).collect();
        let sha256 = hashed.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Trace { name, sha256, capture, path: path.to_owned(), settings })
    }

    /// Whether a file is a capture with a frame that can be sent, without reading more of it than that takes.
    ///
    /// # Errors
    /// When not, and why.
    pub fn look(path: &Path) -> Result<(), Diagnostic> {
        let settings = CaptureSettings { max_bytes: GLANCE, max_frame: LONGEST, ..CaptureSettings::default() };
        Capture::open(path, settings).map(drop).map_err(|e| wrong(path, e.to_string()))
    }

    /// The file's name, without its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the file as it lies there, gzipped or not, hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Its frames.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Whether the file is more than is held.
    pub fn is_streamed(&self) -> bool {
        self.capture.end() == End::Full
    }

    /// The whole file, to be read as it is sent, if it is more than is held; with its own gaps, when its first frame is due, and
    /// after how many nanoseconds it begins again.
    pub(crate) fn stream(&self, seed: u64, start_ns: u64, period_ns: Option<u64>) -> Option<Stream> {
        let capture = self.settings.clone();
        let settings = StreamSettings { capture, seed, start_ns, period_ns, ..StreamSettings::default() };
        // on whichever CPU is free, not behind the generator that starts it; where that is refused, it stays there
        let anywhere = || drop(runtime::confine(&(0..MOST_CPUS).collect::<Vec<_>>()));
        self.is_streamed().then(|| Stream::start_with(&self.path, settings, anywhere))
    }

    /// Frames that are sent: those held and those behind them.
    pub fn frames(&self) -> u64 {
        self.capture.len() as u64 + self.capture.beyond()
    }

    /// What of the file is not sent or not held, and why; none where all is.
    pub fn left_out(&self) -> Option<String> {
        let (capture, skipped) = (&self.capture, self.capture.skipped());
        let mut said = vec![];
        let why = match capture.end() {
            End::Whole => None,
            End::Full => Some(format!(
                "{} MiB hold the first {} frames of {}: the other {} are read again as they are sent, and what is not there in \
                 time stays unsent",
                MAX_BYTES >> 20,
                capture.len(),
                self.name,
                capture.beyond()
            )),
            End::BreaksOff => Some(format!(
                "only the first {} frames of {} are sent: the file breaks off there",
                capture.len(),
                self.name
            )),
        };
        said.extend(why);
        if skipped.sum() != 0 {
            said.push(format!("{} of the first {} frames are left out{skipped}", skipped.sum(), skipped.records));
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

fn wrong(path: &Path, problem: String) -> Diagnostic {
    let file = path.display().to_string();
    // the reader names the file itself where it knows it
    let told = problem.strip_prefix(&file).and_then(|rest| rest.strip_prefix(": "));
    let told = told.or(problem.strip_prefix("capture: ")).unwrap_or(&problem);
    Diagnostic::new(format!("capture: {told}"))
        .value(file)
        .remedy("give a pcap or pcapng file of an Ethernet interface, plain or gzipped")
}

/// A file that is hashed as it is read.
struct Hashed<'a> {
    file: File,
    hash: Sha256,
    stop: &'a AtomicBool,
}

impl Read for Hashed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let n = self.file.read(into)?;
        self.hash.update(&into[..n]);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Registry;
    use pcap::{LinkType, Writer};
    use std::io::Write;
    use std::path::PathBuf;
    use wire::{MacAddr, build};

    const CHAIN: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                         chain = [{ path = [\"in\", \"out\"] }]\ntraffic.dst_mac = \"02:00:00:00:00:07\"\n";

    fn chain(text: &str) -> ChainFile {
        ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap()
    }

    /// A file that goes when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, content: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("bondstone-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
        for frame in frames {
            writer.write(0, frame.len() as u32, frame).unwrap();
        }
        writer.finish().unwrap()
    }

    fn open(file: &Scratch) -> Result<Trace, Diagnostic> {
        Trace::open(&file.0, &chain(CHAIN), &Rewrite::default(), false, &AtomicBool::new(false))
    }

    #[test]
    fn the_hash_is_that_of_the_whole_file() {
        let long = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[7; 2007]).to_vec();
        let plain = capture(&[build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec(), long]);
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        zip.write_all(&plain).unwrap();
        // what comes behind what is read counts as well
        let more = [&plain[..], &plain[24..27]].concat();
        for (name, content) in [("plain", plain.clone()), ("gz", zip.finish().unwrap()), ("more", more)] {
            let file = Scratch::new(name, &content);
            let trace = open(&file).unwrap();
            assert_eq!(trace.sha256(), report::sha256(&content), "{name}");
            assert_eq!(trace.name(), file.0.file_name().unwrap().to_str().unwrap());
            // a frame of 2049 bytes fits into no buffer
            assert_eq!((trace.capture().len(), trace.capture().flows()), (1, 0));
            assert_eq!(trace.capture().frame(0)[..6], MacAddr([2, 0, 0, 0, 0, 7]).0);
            let left_out = trace.left_out().unwrap();
            assert!(left_out.contains("1 of the first 2 frames are left out: 1 too long"), "{left_out}");
            let breaks_off = "only the first 1 frames of";
            assert_eq!(left_out.contains(breaks_off), name == "more", "{left_out}");
            assert!(Trace::look(&file.0).is_ok());
        }
    }

    #[test]
    fn what_is_no_capture_is_refused_by_name() {
        for (name, content, problem) in [
            ("text", &b"no capture at all"[..], "not a capture"),
            ("empty", b"", "empty"),
            ("none", &capture(&[]), "no frame of 0"),
            ("short", &capture(&[vec![1; 9]]), "1 without an Ethernet header"),
        ] {
            let file = Scratch::new(name, content);
            for d in [open(&file).unwrap_err(), Trace::look(&file.0).unwrap_err()] {
                let said = d.to_string();
                assert!(said.contains(problem) && d.remedy.is_some(), "{said}");
                assert!(!d.problem.contains(file.0.to_str().unwrap()), "named once: {said}");
                assert_eq!(d.value.as_deref(), file.0.to_str());
            }
        }
        let absent = Path::new("/nowhere/at-all.pcap");
        let gone = Trace::open(absent, &chain(CHAIN), &Rewrite::default(), false, &AtomicBool::new(false));
        assert!(gone.unwrap_err().problem.contains("read"));
    }

    #[test]
    fn a_stop_ends_the_reading_and_a_wrong_mac_address_comes_first() {
        let file = Scratch::new("stop", &capture(&[vec![1; 60]]));
        let as_is = Rewrite::default();
        let stopped = Trace::open(&file.0, &chain(CHAIN), &as_is, false, &AtomicBool::new(true)).unwrap_err();
        assert!(stopped.problem.contains("stopped"), "{stopped}");
        let wrong = chain(&CHAIN.replace("02:00:00:00:00:07", "02:00"));
        let said = Trace::open(&file.0, &wrong, &as_is, false, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(said.contains("02:00") && said.contains("MAC"), "{said}");
    }
}
