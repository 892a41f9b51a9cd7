//! Capture files.

use super::flows::mac_addresses;
use config::ChainFile;
use diagnostics::Diagnostic;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use traffic::capture::{End, MAX_BYTES};
use traffic::{Capture, CaptureError, CaptureSettings, Rewrite, Stream, StreamSettings};

/// Bytes of a capture that a check reads.
const CHECK_BYTES: usize = 64 << 10;

/// Frames of a capture file, and its description in results.
#[derive(Debug)]
pub struct CaptureFile {
    name: String,
    sha256: String,
    capture: Capture,
    path: PathBuf,
    settings: CaptureSettings,
}

impl CaptureFile {
    /// Reads a capture and keeps the first 64 MiB of frames in memory; the others are counted, and read again when they
    /// are sent. Frames get the MAC addresses of `[traffic]` in the chain file, swapped if `back`, and the changes of
    /// `rewrite`. Setting `stop` ends the reading.
    ///
    /// # Errors
    /// A file that cannot be read or has no frame that can be sent, an invalid MAC address, or an end by `stop`.
    pub fn open(
        path: &Path,
        file: &ChainFile,
        rewrite: &Rewrite,
        back: bool,
        stop: &AtomicBool,
    ) -> Result<CaptureFile, Diagnostic> {
        let (src_mac, dst_mac) = match (mac_addresses(file)?, back) {
            (macs, false) => macs,
            ((src, dst), true) => (dst, src),
        };
        let settings = CaptureSettings {
            src_mac,
            dst_mac,
            rewrite: rewrite.clone(),
            count_all: true,
            ..CaptureSettings::default()
        };
        let opened = File::open(path).map_err(|e| capture_error(path, format!("cannot be read: {e}")))?;
        let mut hashed = HashingReader { file: opened, hash: Sha256::new(), stop };
        let read = |e: CaptureError| capture_error(path, e.to_string());
        let reader = pcap::Reader::new(&mut hashed).map_err(|e| read(e.into()))?;
        let capture = Capture::read(reader, settings.clone()).map_err(read)?;
        // the hash covers the whole file
        io::copy(&mut hashed, &mut io::sink()).map_err(|e| capture_error(path, format!("cannot be read: {e}")))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.chars().take(report::limit::NAME).collect();
        let sha256 = hashed.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(CaptureFile { name, sha256, capture, path: path.to_owned(), settings })
    }

    /// Checks that a file is a capture with a frame that can be sent, without reading all of it.
    ///
    /// # Errors
    /// A file that is not.
    pub fn check(path: &Path) -> Result<(), Diagnostic> {
        let settings = CaptureSettings { max_bytes: CHECK_BYTES, ..CaptureSettings::default() };
        Capture::open(path, settings).map(drop).map_err(|e| capture_error(path, e.to_string()))
    }

    /// Returns the file name without its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the SHA-256 of the file as stored, gzipped or not, hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns the frames in memory.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Returns true if memory does not hold the whole file.
    pub fn is_streamed(&self) -> bool {
        self.capture.end() == End::Full
    }

    /// Returns a reader of the whole file, if memory does not hold it. With its gaps, the first frame is due after
    /// `start_ns`, and the file repeats after `period_ns`.
    pub(crate) fn stream(&self, seed: u64, start_ns: u64, period_ns: Option<u64>) -> Option<Stream> {
        let capture = self.settings.clone();
        let settings = StreamSettings { capture, seed, start_ns, period_ns, ..StreamSettings::default() };
        // on any CPU but that of the generator, if the kernel permits
        let anywhere = || drop(runtime::avoid_cpus(&[]));
        self.is_streamed().then(|| Stream::start_with(&self.path, settings, anywhere))
    }

    /// Returns the number of frames to send.
    pub fn frames(&self) -> u64 {
        self.capture.len() as u64 + self.capture.beyond()
    }

    /// Describes the frames that are not sent or not in memory, if there are any.
    pub fn omissions(&self) -> Option<String> {
        let (capture, skipped) = (&self.capture, self.capture.skipped());
        let mut notes = vec![];
        let cause = match capture.end() {
            End::Whole => None,
            End::Full => Some(format!(
                "{} MiB of memory hold the first {} frames of {}: the other {} are read again while sending, and \
                 frames that are not read in time are not sent",
                MAX_BYTES >> 20,
                capture.len(),
                self.name,
                capture.beyond()
            )),
            End::BreaksOff => Some(format!(
                "only the first {} frames of {} are sent: the file is truncated after them",
                capture.len(),
                self.name
            )),
        };
        notes.extend(cause);
        if skipped.sum() != 0 {
            notes.push(format!("{} of the first {} frames are omitted{skipped}", skipped.sum(), skipped.records));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

fn capture_error(path: &Path, problem: String) -> Diagnostic {
    let file = path.display().to_string();
    // the reader may have named the file already
    let text = problem.strip_prefix(&file).and_then(|rest| rest.strip_prefix(": "));
    let text = text.or(problem.strip_prefix("capture: ")).unwrap_or(&problem);
    Diagnostic::new(format!("capture: {text}"))
        .value(file)
        .remedy("use a pcap or pcapng file of an Ethernet interface, plain or gzipped")
}

/// Hashes a file while it is read.
struct HashingReader<'a> {
    file: File,
    hash: Sha256,
    stop: &'a AtomicBool,
}

impl Read for HashingReader<'_> {
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

    /// A file that is removed at the end of the test.
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

    fn open(file: &Scratch) -> Result<CaptureFile, Diagnostic> {
        CaptureFile::open(&file.0, &chain(CHAIN), &Rewrite::default(), false, &AtomicBool::new(false))
    }

    #[test]
    fn hashes_the_whole_file() {
        let long = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[7; 15_955]).to_vec();
        let plain = capture(&[build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec(), long]);
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        zip.write_all(&plain).unwrap();
        // with bytes after the last frame
        let more = [&plain[..], &plain[24..27]].concat();
        for (name, content) in [("plain", plain.clone()), ("gz", zip.finish().unwrap()), ("more", more)] {
            let file = Scratch::new(name, &content);
            let trace = open(&file).unwrap();
            assert_eq!(trace.sha256(), report::sha256(&content), "{name}");
            assert_eq!(trace.name(), file.0.file_name().unwrap().to_str().unwrap());
            // a frame of 15,997 bytes does not fit into a buffer
            assert_eq!((trace.capture().len(), trace.capture().flows()), (1, 0));
            assert_eq!(trace.capture().frame(0)[..6], MacAddr([2, 0, 0, 0, 0, 7]).0);
            let omissions = trace.omissions().unwrap();
            assert!(omissions.contains("1 of the first 2 frames are omitted: 1 too long"), "{omissions}");
            let truncated = "only the first 1 frames of";
            assert_eq!(omissions.contains(truncated), name == "more", "{omissions}");
            assert!(CaptureFile::check(&file.0).is_ok());
        }
    }

    #[test]
    fn rejects_other_files() {
        for (name, content, problem) in [
            ("text", &b"no capture at all"[..], "not a capture"),
            ("empty", b"", "empty"),
            ("none", &capture(&[]), "no frame of 0"),
            ("short", &capture(&[vec![1; 9]]), "1 without an Ethernet header"),
        ] {
            let file = Scratch::new(name, content);
            for d in [open(&file).unwrap_err(), CaptureFile::check(&file.0).unwrap_err()] {
                let message = d.to_string();
                assert!(message.contains(problem) && d.remedy.is_some(), "{message}");
                assert!(!d.problem.contains(file.0.to_str().unwrap()), "named once: {message}");
                assert_eq!(d.value.as_deref(), file.0.to_str());
            }
        }
        let absent = Path::new("/nowhere/at-all.pcap");
        let gone = CaptureFile::open(absent, &chain(CHAIN), &Rewrite::default(), false, &AtomicBool::new(false));
        assert!(gone.unwrap_err().problem.contains("read"));
    }

    #[test]
    fn stops_reading_and_checks_mac_addresses_first() {
        let file = Scratch::new("stop", &capture(&[vec![1; 60]]));
        let as_is = Rewrite::default();
        let stopped = CaptureFile::open(&file.0, &chain(CHAIN), &as_is, false, &AtomicBool::new(true)).unwrap_err();
        assert!(stopped.problem.contains("stopped"), "{stopped}");
        let chain_file = chain(&CHAIN.replace("02:00:00:00:00:07", "02:00"));
        let message =
            CaptureFile::open(&file.0, &chain_file, &as_is, false, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(message.contains("02:00") && message.contains("MAC"), "{message}");
    }
}
