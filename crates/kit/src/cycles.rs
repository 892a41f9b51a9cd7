//! What a packet costs.

use crate::{Bench, Frames};
use core::fmt;
use graph::{Hop, Node, Sink, Target};
use packet::{BURST, Batch, Packet, clock};
use std::time::{Duration, Instant};

/// Counts cycles per packet of one or more NFs on the same frames, in turn, so that what disturbs one disturbs all.
///
/// A sample is about 0.3 ms of work: frames go through in bursts of 32, and what an NF has changed is put back between
/// the runs, when the clock does not count. Time goes by for the NFs as on the wall. Beside them runs one that does
/// nothing, and shows what the bench itself costs. The lower of the samples ([`Cost::p05`]) say what the code costs,
/// the median what this machine makes of it.
///
/// Packets come from the heap, which takes a dropped one back more slowly than DPDK's pool: measure with frames that
/// pass. Build with optimisation (`cargo bench`).
///
/// ```
/// # struct Quiet;
/// # impl graph::Nf for Quiet {
/// #     type Settings = Settings;
/// #     const KIND: &'static str = "quiet";
/// #     const ABOUT: &'static str = "Lets everything pass.";
/// #     fn build(_: &Settings, _: &graph::BuildCx) -> Result<impl graph::Node + 'static, graph::Diagnostic> {
/// #         Ok(graph::Operator::compose(graph::frame()))
/// #     }
/// # }
/// # #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// # #[serde(default, deny_unknown_fields)]
/// # struct Settings {}
/// use kit::{Bench, Cycles, wire::build};
///
/// let frame = |n| build::udp4([10, 0, 0, n], [10, 1, 0, 1], 1000, 53).pad_to(60).to_vec();
/// let frames: Vec<_> = (0..64).map(frame).collect();
/// let costs = Cycles::on(&frames).samples(5).nf("quiet", Bench::of::<Quiet>("")).measure();
/// println!("{costs}");
/// assert_eq!(costs.all().len(), 2); // nothing, and quiet
/// ```
#[must_use = "call `measure`"]
pub struct Cycles {
    frames: Frames,
    samples: usize,
    nfs: Vec<(String, Bench)>,
}

/// What a packet costs in one NF, in cycles of the time-stamp counter, the bench's own included.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// Name given to the NF.
    pub name: String,
    /// Cycles per packet: 5 % of the samples are below.
    pub p05: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// Share of the packets that did not leave, 0 to 1.
    pub lost: f64,
}

/// Costs of several NFs, that of doing nothing first. Shown as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs(Vec<Cost>);

/// Name of the NF that does nothing.
const NOTHING: &str = "nothing";
/// What a sample takes at least.
const SAMPLE: Duration = Duration::from_micros(300);
/// Bursts in a run: what is cached by a core, as what a NIC has just delivered.
const RUN: usize = 8;

/// Does nothing.
struct Idle;

impl Node for Idle {
    fn process(&mut self, _: &mut graph::Cx<'_>, _: u8, _: &mut Batch) {}
}

/// Keeps what leaves; there is room.
struct Keep(Vec<Packet>);

impl Sink for Keep {
    #[inline]
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

impl Cycles {
    /// On these frames, over and over, in their order.
    pub fn on(frames: &[impl AsRef<[u8]>]) -> Self {
        let frames = frames.iter().map(|frame| frame.as_ref().to_vec()).collect();
        let nothing = Bench::new(NOTHING, Box::new(Idle), (1, 1), vec!["out".to_owned()], 4096);
        Cycles { frames, samples: 300, nfs: vec![(NOTHING.to_owned(), nothing)] }
    }

    /// Sets the samples taken of each NF; 300 otherwise, which take about 0.3 s with what lies between them.
    pub fn samples(self, samples: usize) -> Self {
        Cycles { samples: samples.max(1), ..self }
    }

    /// Adds an NF.
    pub fn nf(mut self, name: &str, bench: Bench) -> Self {
        self.nfs.push((name.to_owned(), bench));
        self
    }

    /// Measures.
    ///
    /// # Panics
    /// When there are no frames, or an NF loses a packet ([`Bench`] says how).
    #[track_caller]
    pub fn measure(self) -> Costs {
        assert!(!self.frames.is_empty(), "there are no frames to measure with");
        // whole runs, of all frames
        let runs = self.frames.len().div_ceil(BURST * RUN).max(1);
        let frames: Vec<&[u8]> = self.frames.iter().map(Vec::as_slice).cycle().take(runs * BURST * RUN).collect();
        let hz = clock::hz();
        let enough = (SAMPLE.as_nanos() * u128::from(hz) / 1_000_000_000) as u64;
        let start = Instant::now();
        let mut taken: Vec<_> = self.nfs.into_iter().map(|(name, bench)| Course::new(name, bench)).collect();
        // the first samples find cold caches
        for sample in 0..self.samples + 3 {
            for course in &mut taken {
                let cycles = course.sample(&frames, enough, start);
                if sample >= 3 {
                    course.samples.push(cycles);
                }
            }
        }
        Costs(taken.into_iter().map(Course::cost).collect())
    }
}

/// One NF under way.
struct Course {
    name: String,
    bench: Bench,
    samples: Vec<f64>,
    fed: u64,
    left: u64,
    run: usize,
}

impl Course {
    fn new(name: String, bench: Bench) -> Self {
        Course { name, bench, samples: vec![], fed: 0, left: 0, run: 0 }
    }

    /// Cycles per packet.
    #[track_caller]
    fn sample(&mut self, frames: &[&[u8]], enough: u64, start: Instant) -> f64 {
        let (mut cycles, mut packets) = (0, 0);
        let mut out = Keep(Vec::with_capacity(4 * BURST * RUN));
        let now = self.bench.now().max(start.elapsed());
        let from = clock::cycles();
        self.bench.graph().wake(now, &mut out);
        cycles += clock::cycles() - from;
        while cycles < enough {
            self.settle(&mut out);
            let run = self.run % (frames.len() / (BURST * RUN));
            self.run += 1;
            let mut batches = [const { Batch::new() }; RUN];
            for (batch, burst) in batches.iter_mut().zip(frames[run * BURST * RUN..].chunks(BURST)) {
                burst.iter().for_each(|frame| batch.push(self.bench.packet(frame)).expect("a chunk is a burst"));
            }
            let graph = self.bench.graph();
            let from = clock::cycles();
            for batch in &mut batches {
                graph.run::<false>(Target::Hop(Hop(0)), batch, &mut out);
            }
            cycles += clock::cycles() - from;
            packets += (RUN * BURST) as u64;
        }
        self.settle(&mut out);
        self.fed += packets;
        cycles as f64 / packets as f64
    }

    /// Sees that nothing is missing, and lets go of what came out.
    #[track_caller]
    fn settle(&mut self, out: &mut Keep) {
        self.left += out.0.len() as u64;
        self.bench.account(out.0.len(), out.0.len());
        out.0.clear();
    }

    fn cost(mut self) -> Cost {
        self.samples.sort_by(f64::total_cmp);
        let at = |share: f64| self.samples[((self.samples.len() - 1) as f64 * share) as usize];
        let lost = 1.0 - (self.left as f64 / self.fed as f64).min(1.0);
        Cost { p05: at(0.05), median: at(0.5), lost, name: self.name }
    }
}

impl Costs {
    /// All of them, that of doing nothing first.
    pub fn all(&self) -> &[Cost] {
        &self.0
    }

    /// That of an NF.
    pub fn of(&self, name: &str) -> Option<&Cost> {
        self.0.iter().find(|cost| cost.name == name)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|cost| cost.name.len()).max().unwrap_or(0).max("cycles per packet".len());
        let heading = "cycles per packet";
        writeln!(f, "  {heading:<width$}  {:>7}  {:>7}  {:>13}", "p05", "median", "above nothing")?;
        let nothing = self.0.first().map_or(0.0, |cost| cost.p05);
        for (n, cost) in self.0.iter().enumerate() {
            let mut line = format!("  {:<width$}  {:>7.1}  {:>7.1}", cost.name, cost.p05, cost.median);
            if n != 0 {
                line += &format!("  {:>13.1}", cost.p05 - nothing);
            }
            if cost.lost != 0.0 {
                line += &format!("  {:.1} % did not leave", cost.lost * 100.0);
            }
            writeln!(f, "{line}")?;
        }
        if cfg!(debug_assertions) {
            writeln!(f, "  built without optimisation: cargo bench builds with it")?;
        }
        Ok(())
    }
}
