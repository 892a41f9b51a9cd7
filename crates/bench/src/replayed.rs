//! Captures, read and ready to be sent.

use crate::captured::Captured;
use crate::gaps::{Gaps, Timeline};
use crate::source::Load;
use crate::trace::Trace;
use config::ChainFile;
use diagnostics::Diagnostic;
use report::Frames;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use traffic::capture::PROBE_EVERY;
use traffic::probe;

/// Of what is random in the frames of a capture.
pub(crate) const SEED: u64 = 0;
/// Characters of a value of a result's cell; a longer one stands there by its hash.
const LONGEST: usize = report::limit::NAME;
/// Characters of a rewriting in a remark.
const SHOWN: usize = 2000;

/// One capture, or one for each direction.
pub(crate) struct Replayed {
    /// At least one.
    traces: Vec<Trace>,
    asked: Captured,
    line: Option<Timeline>,
}

impl Replayed {
    /// Reads them, until `stop` is set.
    ///
    /// # Errors
    /// As [`Trace::open`]; captures without gaps that were to keep them.
    pub(crate) fn open(asked: &Captured, file: &ChainFile, stop: &AtomicBool) -> Result<Replayed, Diagnostic> {
        let asked = asked.clone().checked().map_err(|(_, d)| d)?;
        let open = |(n, path): (usize, &PathBuf)| Trace::open(path, file, &asked.rewrite, n == 1, stop);
        let traces = asked.files.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let times = |trace: &Trace| (trace.capture().first_ns(), trace.capture().last_ns(), trace.frames());
        let line = match asked.speed {
            None => None,
            Some(_) => Some(Timeline::of(&traces.iter().map(times).collect::<Vec<_>>()).ok_or_else(|| {
                let problem = "capture: has no gaps: all its frames were captured at the same time";
                Diagnostic::new(problem)
                    .value(asked.files[0].display())
                    .remedy("leave out --gaps, and gaps of a scenario")
            })?),
        };
        Ok(Replayed { traces, asked, line })
    }

    pub(crate) fn traces(&self) -> &[Trace] {
        &self.traces
    }

    fn first(&self) -> &Trace {
        &self.traces[0]
    }

    /// Their names, short enough together for a result.
    pub(crate) fn name(&self) -> String {
        let most = report::limit::NAME / self.traces.len() - 1;
        let name = |trace: &Trace| trace.name().chars().take(most).collect::<String>();
        self.traces.iter().map(name).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn directions(&self) -> u8 {
        self.traces.len() as u8
    }

    /// Packets a second of the first one where they keep their own gaps and no load is asked for.
    pub(crate) fn own_pps(&self) -> Option<f64> {
        Some(self.line?.mean_pps() * self.asked.speed?)
    }

    pub(crate) fn load(&self) -> Load<'_> {
        let of = |(direction, trace)| {
            let gaps = self.line.map(|line| Gaps::new(trace, line, direction, SEED));
            Load::replay(trace, SEED, gaps)
        };
        let mut all = self.traces.iter().enumerate().map(of);
        let there = all.next().unwrap_or_else(|| Load::replay(self.first(), SEED, None));
        all.fold(there, Load::and)
    }

    /// Frames, mean size, flows of a direction, and the hashes of the files.
    pub(crate) fn document(&self, traffic: report::Traffic) -> report::Traffic {
        let frames: u64 = self.traces.iter().map(Trace::frames).sum();
        let sizes = self.traces.iter().map(|trace| trace.capture().mean_size());
        // at the load's pace as many of one as of the other, with their own gaps as many as there are
        let mean_frame_bytes = match self.line {
            None => sizes.sum::<f64>() / self.traces.len() as f64,
            Some(_) => {
                self.traces.iter().zip(sizes).map(|(trace, size)| trace.frames() as f64 * size).sum::<f64>()
                    / frames as f64
            }
        };
        report::Traffic {
            frames: Frames::Trace(report::Trace { name: self.name(), frames, mean_frame_bytes }),
            flows: self.traces.iter().map(|trace| trace.capture().flows()).max().unwrap_or(0) as u64,
            trace_sha256: Some(self.first().sha256().to_owned()),
            back_sha256: self.traces.get(1).map(|trace| trace.sha256().to_owned()),
            ..traffic
        }
    }

    /// What tells a measurement with them from one with the same files as they are.
    pub(crate) fn cell(&self) -> impl Iterator<Item = (String, String)> {
        let short = |value: String| match value.chars().count() {
            0..=LONGEST => value,
            _ => format!("SHA-256 {}", report::sha256(value.as_bytes())),
        };
        self.asked.asked().map(move |(name, value)| (name.to_owned(), short(value)))
    }

    /// What a reader of a result has to know of them.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let names = self.traces.iter().map(Trace::name).collect::<Vec<_>>().join(" and ");
        let numbers = match self.traces.iter().any(|trace| trace.capture().first_with_room().is_some()) {
            true => format!(
                "about one in {PROBE_EVERY} carries a number in the first {} bytes of its UDP or TCP payload, and latency, \
                 order and copies are those of these",
                probe::LEN
            ),
            false => "none has room for a number: latency, order and copies are not known".to_owned(),
        };
        let as_what = if self.asked.rewrite.is_nothing() { "as they are" } else { "rewritten" };
        let pace = match self.line {
            None => "at the load's pace and not at their own".to_owned(),
            Some(line) => format!(
                "with their own gaps, so much longer or shorter that the mean rate over all of the capture is the load: {:.1} \
                 packets/s as captured, over {:.6} s; every trial begins with the first frame, and one that is shorter sends the \
                 beginning, at the rate that it has",
                line.mean_pps(),
                line.period_ns as f64 / 1e9
            ),
        };
        let mut said = vec![format!(
            "the frames of {names} are sent over and over {as_what}, {pace}; {numbers}; the loss of the others is known from counts"
        )];
        if let [there, back] = &self.traces[..] {
            let time = match self.line {
                None => "at the same rate",
                Some(line) if line.together => {
                    "with the time between them as captured; the load is the first one's rate"
                }
                Some(_) => {
                    "from its beginning, as they were captured at different times; the load is the first one's rate"
                }
            };
            said.push(format!(
                "{} goes into the first port and {} into the second, {time}: counts and latencies are those of both",
                there.name(),
                back.name()
            ));
        }
        said.extend(self.rewritten());
        said.extend(self.traces.iter().filter_map(Trace::left_out));
        said
    }

    /// What is rewritten, and how many frames that changes.
    pub(crate) fn rewritten(&self) -> Option<String> {
        let what = |(name, value): (&str, String)| match name {
            "rewrite" => Some(format!("addresses {}", value.chars().take(SHOWN).collect::<String>())),
            "vlan" => Some(format!("VLAN tags {value}")),
            _ => None,
        };
        let what: Vec<_> = self.asked.asked().filter_map(what).collect();
        let of = |trace: &Trace| {
            let (changed, held) = (trace.capture().rewritten(), trace.capture().len());
            format!("{changed} of the first {held} frames of {}", trace.name())
        };
        let which: Vec<_> = self.traces.iter().map(of).collect();
        (!what.is_empty()).then(|| format!("rewritten: {}, which changes {}", what.join(", "), which.join(" and ")))
    }

    /// Whether something was to be rewritten, and no frame has it.
    pub(crate) fn rewrites_nothing(&self) -> bool {
        !self.asked.rewrite.is_nothing() && self.traces.iter().all(|trace| trace.capture().rewritten() == 0)
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

    /// Files that go when the test ends.
    struct Scratch(Vec<PathBuf>);

    impl Scratch {
        /// Each of frames with these payloads, captured at these microseconds.
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

    fn open(asked: &Captured) -> Result<Replayed, Diagnostic> {
        let text = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\ntraffic.dst_mac = \"02:00:00:00:00:07\"\n";
        let file = ChainFile::parse(text, Path::new("chain.toml"), &Registry::default()).unwrap();
        Replayed::open(asked, &file, &AtomicBool::new(false))
    }

    fn document(replayed: &Replayed) -> report::Traffic {
        replayed.document(report::Traffic {
            frames: Frames::FrameBytes(0),
            flows: 0,
            protocol: "as captured".to_owned(),
            burst: 8,
            directions: replayed.directions(),
            trace_sha256: None,
            back_sha256: None,
            profile: None,
            seed: None,
        })
    }

    #[test]
    fn two_captures_are_two_directions() {
        let scratch = Scratch::new("pair", &[&[(0, 100), (10, 100), (20, 100)], &[(5, 400)]]);
        let asked = Captured { files: scratch.0.clone(), ..Captured::default() };
        let pair = open(&asked).unwrap();
        let said = document(&pair);
        let hash = |n: usize| Some(report::sha256(&std::fs::read(&scratch.0[n]).unwrap()));
        assert_eq!((said.directions, said.trace_sha256, said.back_sha256), (2, hash(0), hash(1)));
        let Frames::Trace(trace) = said.frames else { panic!("{:?}", said.frames) };
        // as many of one as of the other at the load's pace; as captured there are three times as many
        assert_eq!((trace.frames, trace.mean_frame_bytes), (4, (146.0 + 446.0) / 2.0));
        assert!(trace.name.contains(','), "{}", trace.name);
        let own = open(&Captured { speed: Some(2.0), ..asked }).unwrap();
        let Frames::Trace(trace) = document(&own).frames else { panic!() };
        assert_eq!(trace.mean_frame_bytes, (3.0 * 146.0 + 446.0) / 4.0);
        // 20 us, and the mean gap of the four
        let pps = own.own_pps().unwrap();
        assert!((pps - 2.0 * 3.0 / (20e-6 + 6.666e-6)).abs() < 1.0, "{pps}");
        assert_eq!((pair.load().streams.len(), pair.own_pps()), (2, None));
        let remarks = own.remarks().join("; ");
        assert!(remarks.contains("own gaps") && remarks.contains("the time between them"), "{remarks}");
        // the addresses of [traffic] are the other way round on the way back
        let mac = |n: usize| own.traces()[n].capture().frame(0)[..12].to_vec();
        assert_eq!((mac(0)[5], mac(1)[11]), (7, 7));
    }

    #[test]
    fn what_is_rewritten_is_said() {
        let scratch = Scratch::new("rewrite", &[&[(0, 100), (10, 100)]]);
        let with = |map: &str, tagging| {
            let rewrite = Rewrite { prefixes: vec![map.parse().unwrap()], tagging };
            open(&Captured { files: scratch.0.clone(), rewrite, speed: None }).unwrap()
        };
        let changed = with("10.0.0.0/8=11.0.0.0/8", Tagging::One(7));
        assert_eq!(changed.traces()[0].capture().frame(0)[12..18], [0x81, 0, 0, 7, 8, 0]);
        let cell: std::collections::BTreeMap<_, _> = changed.cell().collect();
        assert_eq!((cell["rewrite"].as_str(), cell["vlan"].as_str()), ("10.0.0.0/8=11.0.0.0/8", "7"));
        assert!(changed.remarks().iter().any(|r| r.contains("2 of the first 2 frames")), "{:?}", changed.remarks());
        assert!(!changed.rewrites_nothing() && changed.rewritten().is_some());
        assert!(with("12.0.0.0/8=11.0.0.0/8", Tagging::Keep).rewrites_nothing());
        let many = Rewrite { prefixes: vec!["10.0.0.0/8=11.0.0.0/8".parse().unwrap(); 100], tagging: Tagging::Keep };
        let many = open(&Captured { files: scratch.0.clone(), rewrite: many, speed: None }).unwrap();
        assert!(many.cell().all(|(_, value)| value.starts_with("SHA-256 ") && value.len() <= LONGEST));
    }

    #[test]
    fn captures_without_gaps_cannot_keep_them() {
        let scratch = Scratch::new("gapless", &[&[(3, 100), (3, 100)]]);
        let d = open(&Captured { files: scratch.0.clone(), speed: Some(1.0), ..Captured::default() }).err().unwrap();
        assert!(d.problem.contains("no gaps") && d.remedy.is_some() && d.value.is_some(), "{d}");
        assert!(open(&Captured::of(scratch.0[0].clone())).is_ok());
    }
}
