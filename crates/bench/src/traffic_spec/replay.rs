//! Replay of captures.

use super::capture_file::CaptureFile;
use super::capture_spec::CaptureSpec;
use crate::generator::capture_timing::{CaptureTiming, Timeline};
use crate::generator::packet_source::PacketSource;
use config::ChainFile;
use diagnostics::Diagnostic;
use report::Frames;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use traffic::capture::PROBE_EVERY;
use traffic::probe;

/// Seed of the numbering of frames.
pub(crate) const SEED: u64 = 0;
/// Maximum length of a parameter in a result; a longer one is replaced by its hash.
const MAX_PARAMETER_LEN: usize = report::limit::NAME;
/// Maximum length of a rewriting in a deviation.
const MAX_REWRITE_LEN: usize = 2000;

/// One capture, or one per direction.
pub(crate) struct Replay {
    /// At least one.
    captures: Vec<CaptureFile>,
    spec: CaptureSpec,
    line: Option<Timeline>,
}

impl Replay {
    /// Reads captures. Setting `stop` ends the reading.
    ///
    /// # Errors
    /// As [`Trace::open`]; captures without gaps that were to keep them.
    pub(crate) fn open(spec: &CaptureSpec, file: &ChainFile, stop: &AtomicBool) -> Result<Replay, Diagnostic> {
        let spec = spec.clone().checked().map_err(|(_, d)| d)?;
        let open = |(n, path): (usize, &PathBuf)| CaptureFile::open(path, file, &spec.rewrite, n == 1, stop);
        let traces = spec.files.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let times = |trace: &CaptureFile| (trace.capture().first_ns(), trace.capture().last_ns(), trace.frames());
        let line = match spec.speed {
            None => None,
            Some(_) => Some(Timeline::of(&traces.iter().map(times).collect::<Vec<_>>()).ok_or_else(|| {
                let problem = "capture: has no gaps: all frames were captured at the same time";
                Diagnostic::new(problem)
                    .value(spec.files[0].display())
                    .remedy("leave out --gaps, or gaps in a scenario")
            })?),
        };
        Ok(Replay { captures: traces, spec, line })
    }

    pub(crate) fn traces(&self) -> &[CaptureFile] {
        &self.captures
    }

    fn first(&self) -> &CaptureFile {
        &self.captures[0]
    }

    /// Returns the names of the captures, together within the limit of a result.
    pub(crate) fn name(&self) -> String {
        let most = report::limit::NAME / self.captures.len() - 1;
        let name = |trace: &CaptureFile| trace.name().chars().take(most).collect::<String>();
        self.captures.iter().map(name).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn directions(&self) -> u8 {
        self.captures.len() as u8
    }

    /// Returns the rate of the first capture if captures are sent with their gaps, packets per second.
    pub(crate) fn captured_pps(&self) -> Option<f64> {
        Some(self.line?.mean_pps() * self.spec.speed?)
    }

    pub(crate) fn packet_source(&self) -> PacketSource<'_> {
        let of = |(direction, trace)| {
            let gaps = self.line.map(|line| CaptureTiming::new(trace, line, direction, SEED));
            PacketSource::replay(trace, SEED, gaps)
        };
        let mut sources = self.captures.iter().enumerate().map(of);
        let forward = sources.next().unwrap_or_else(|| PacketSource::replay(self.first(), SEED, None));
        sources.fold(forward, PacketSource::with_streams_of)
    }

    /// Adds frames, mean size, flows and file hashes to the description in a result.
    pub(crate) fn document(&self, traffic: report::Traffic) -> report::Traffic {
        let frames: u64 = self.captures.iter().map(CaptureFile::frames).sum();
        let sizes = self.captures.iter().map(|trace| trace.capture().mean_size());
        // at the pace of the load both directions have equally many frames, with their gaps as many as captured
        let mean_frame_bytes = match self.line {
            None => sizes.sum::<f64>() / self.captures.len() as f64,
            Some(_) => {
                self.captures.iter().zip(sizes).map(|(trace, size)| trace.frames() as f64 * size).sum::<f64>()
                    / frames as f64
            }
        };
        report::Traffic {
            frames: Frames::Trace(report::Trace { name: self.name(), frames, mean_frame_bytes }),
            flows: self.captures.iter().map(|trace| trace.capture().flows()).max().unwrap_or(0) as u64,
            trace_sha256: Some(self.first().sha256().to_owned()),
            reverse_trace_sha256: self.captures.get(1).map(|trace| trace.sha256().to_owned()),
            ..traffic
        }
    }

    /// Returns the parameters that distinguish this replay from one of the unchanged files.
    pub(crate) fn cell(&self) -> impl Iterator<Item = (String, String)> {
        let short = |value: String| match value.chars().count() {
            0..=MAX_PARAMETER_LEN => value,
            _ => format!("SHA-256 {}", report::sha256(value.as_bytes())),
        };
        self.spec.parameters().map(move |(name, value)| (name.to_owned(), short(value)))
    }

    /// Returns deviations of a result.
    pub(crate) fn deviations(&self) -> Vec<String> {
        let names = self.captures.iter().map(CaptureFile::name).collect::<Vec<_>>().join(" and ");
        let numbers = match self.captures.iter().any(|trace| trace.capture().first_with_room().is_some()) {
            true => format!(
                "about one frame in {PROBE_EVERY} has a sequence number in the first {} bytes of its UDP or TCP \
                 payload; latency, reordering and duplicates are measured on these",
                probe::LEN
            ),
            false => {
                "no frame has room for a sequence number: latency, reordering and duplicates are unknown".to_owned()
            }
        };
        let as_what = if self.spec.rewrite.is_nothing() { "unchanged" } else { "rewritten" };
        let pace = match self.line {
            None => "at the pace of the load".to_owned(),
            Some(line) => format!(
                "with their gaps, scaled so that the mean rate of the whole capture equals the load ({:.1} packets/s \
                 as captured, \
                 over {:.6} s); every trial starts with the first frame, and a short one sends the beginning at its \
                 own rate",
                line.mean_pps(),
                line.period_ns as f64 / 1e9
            ),
        };
        let mut deviations = vec![format!(
            "the frames of {names} are sent repeatedly, {as_what}, {pace}; {numbers}; the loss of the others is counted"
        )];
        if let [forward, reverse] = &self.captures[..] {
            let time = match self.line {
                None => "at the same rate",
                Some(line) if line.overlaps => "with the captured time offset; the load is the rate of the first",
                Some(_) => {
                    "both from the start, because they were captured at different times; the load is the rate of the \
                     first"
                }
            };
            deviations.push(format!(
                "{} is sent into the first port and {} into the second, {time}; counts and latencies are those of both",
                forward.name(),
                reverse.name()
            ));
        }
        deviations.extend(self.rewrite_summary());
        deviations.extend(self.captures.iter().filter_map(CaptureFile::omissions));
        deviations
    }

    /// Describes what is rewritten, and how many frames that changes.
    pub(crate) fn rewrite_summary(&self) -> Option<String> {
        let what = |(name, value): (&str, String)| match name {
            "rewrite" => Some(format!("addresses {}", value.chars().take(MAX_REWRITE_LEN).collect::<String>())),
            "vlan" => Some(format!("VLAN tags {value}")),
            _ => None,
        };
        let what: Vec<_> = self.spec.parameters().filter_map(what).collect();
        let of = |trace: &CaptureFile| {
            let (changed, held) = (trace.capture().rewritten(), trace.capture().len());
            format!("{changed} of the first {held} frames of {}", trace.name())
        };
        let which: Vec<_> = self.captures.iter().map(of).collect();
        (!what.is_empty()).then(|| format!("rewritten: {}; changes {}", what.join(", "), which.join(" and ")))
    }

    /// Returns true if a rewriting is set and changes no frame.
    pub(crate) fn rewrites_nothing(&self) -> bool {
        !self.spec.rewrite.is_nothing() && self.captures.iter().all(|trace| trace.capture().rewritten() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Registry;
    use pcap::{LinkType, Writer};
    use std::path::Path;
    use traffic::{Rewrite, Tagging};
    use wire::build;

    /// Files that are removed at the end of the test.
    struct Scratch(Vec<PathBuf>);

    impl Scratch {
        /// Writes a file per list, with frames at these microseconds and of these payload lengths.
        fn new(name: &str, files: &[&[(u64, usize)]]) -> Self {
            let path = |n| std::env::temp_dir().join(format!("bondstone-{}-{name}-{n}", std::process::id()));
            let made = files.iter().enumerate().map(|(n, frames)| {
                let mut writer = Writer::create(path(n), LinkType::ETHERNET).unwrap();
                for (at, payload) in *frames {
                    let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&vec![7; *payload]).to_vec();
                    writer.write(1_000_000 + at * 1000, frame.len() as u32, &frame).unwrap();
                }
                writer.finish().unwrap();
                path(n)
            });
            Scratch(made.collect())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
    }

    fn open(spec: &CaptureSpec) -> Result<Replay, Diagnostic> {
        let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\ntraffic.dst_mac = \"02:00:00:00:00:07\"\n";
        let file = ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap();
        Replay::open(spec, &file, &AtomicBool::new(false))
    }

    fn document(replay: &Replay) -> report::Traffic {
        replay.document(report::Traffic {
            frames: Frames::FrameBytes(0),
            flows: 0,
            protocol: "as captured".to_owned(),
            burst: 8,
            directions: replay.directions(),
            trace_sha256: None,
            reverse_trace_sha256: None,
            vary: vec![],
            tcp: None,
            profile: None,
            seed: None,
        })
    }

    #[test]
    fn two_captures_are_two_directions() {
        let scratch = Scratch::new("pair", &[&[(0, 100), (10, 100), (20, 100)], &[(5, 400)]]);
        let spec = CaptureSpec { files: scratch.0.clone(), ..CaptureSpec::default() };
        let pair = open(&spec).unwrap();
        let traffic = document(&pair);
        let hash = |n: usize| Some(report::sha256(&std::fs::read(&scratch.0[n]).unwrap()));
        assert_eq!((traffic.directions, traffic.trace_sha256, traffic.reverse_trace_sha256), (2, hash(0), hash(1)));
        let Frames::Trace(trace) = traffic.frames else { panic!("{:?}", traffic.frames) };
        // equally many at the pace of the load, three times as many as captured
        assert_eq!((trace.frames, trace.mean_frame_bytes), (4, (146.0 + 446.0) / 2.0));
        assert!(trace.name.contains(','), "{}", trace.name);
        let own = open(&CaptureSpec { speed: Some(2.0), ..spec }).unwrap();
        let Frames::Trace(trace) = document(&own).frames else { panic!() };
        assert_eq!(trace.mean_frame_bytes, (3.0 * 146.0 + 446.0) / 4.0);
        // 20 us and the mean gap of the four frames
        let pps = own.captured_pps().unwrap();
        assert!((pps - 2.0 * 3.0 / (20e-6 + 6.666e-6)).abs() < 1.0, "{pps}");
        assert_eq!((pair.packet_source().streams.len(), pair.captured_pps()), (2, None));
        let deviations = own.deviations().join("; ");
        assert!(deviations.contains("their gaps") && deviations.contains("captured time offset"), "{deviations}");
        // the MAC addresses of [traffic] are swapped in the reverse direction
        let mac = |n: usize| own.traces()[n].capture().frame(0)[..12].to_vec();
        assert_eq!((mac(0)[5], mac(1)[11]), (7, 7));
    }

    #[test]
    fn describes_rewritings() {
        let scratch = Scratch::new("rewrite", &[&[(0, 100), (10, 100)]]);
        let with = |map: &str, tagging| {
            let rewrite = Rewrite { prefixes: vec![map.parse().unwrap()], tagging };
            open(&CaptureSpec { files: scratch.0.clone(), rewrite, speed: None }).unwrap()
        };
        let changed = with("10.0.0.0/8=11.0.0.0/8", Tagging::One(7));
        assert_eq!(changed.traces()[0].capture().frame(0)[12..18], [0x81, 0, 0, 7, 8, 0]);
        let cell: std::collections::BTreeMap<_, _> = changed.cell().collect();
        assert_eq!((cell["rewrite"].as_str(), cell["vlan"].as_str()), ("10.0.0.0/8=11.0.0.0/8", "7"));
        assert!(
            changed.deviations().iter().any(|r| r.contains("2 of the first 2 frames")),
            "{:?}",
            changed.deviations()
        );
        assert!(!changed.rewrites_nothing() && changed.rewrite_summary().is_some());
        assert!(with("12.0.0.0/8=11.0.0.0/8", Tagging::Keep).rewrites_nothing());
        let many = Rewrite { prefixes: vec!["10.0.0.0/8=11.0.0.0/8".parse().unwrap(); 100], tagging: Tagging::Keep };
        let many = open(&CaptureSpec { files: scratch.0.clone(), rewrite: many, speed: None }).unwrap();
        assert!(many.cell().all(|(_, value)| value.starts_with("SHA-256 ") && value.len() <= MAX_PARAMETER_LEN));
    }

    #[test]
    fn rejects_captures_without_gaps() {
        let scratch = Scratch::new("gapless", &[&[(3, 100), (3, 100)]]);
        let d =
            open(&CaptureSpec { files: scratch.0.clone(), speed: Some(1.0), ..CaptureSpec::default() }).err().unwrap();
        assert!(d.problem.contains("no gaps") && d.remedy.is_some() && d.value.is_some(), "{d}");
        assert!(open(&CaptureSpec::file(scratch.0[0].clone())).is_ok());
    }
}
