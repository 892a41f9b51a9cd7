//! What a packet costs.

use crate::{Bench, Frames};
use core::fmt;
use graph::{Hop, Node, Sink, Target};
use packet::{BURST, Batch, HEADROOM, Packet, clock};
use std::time::{Duration, Instant};

/// Counts cycles per packet of one or more NFs on the same frames, in turn, so that what disturbs one disturbs all.
///
/// Each NF first gets every frame once, so that its tables are full. Then samples are taken: a sample is 0.3 ms of work, or
/// what is done of it within 1 ms by the clock on the wall. Frames go through in bursts of 32, eight bursts a run, and what an
/// NF has changed is put back between the runs, when cycles do not count; for a cheap NF that takes longer than its work.
/// The next sample goes on where the last one ended. So it takes, for each NF, as long as its frames take once and a
/// millisecond a sample, however many frames there are; a cheap NF has seen a million in less than 0.1 s.
///
/// Time goes by for the NFs as on the wall. Beside them runs one that does nothing, and shows what the bench itself costs.
/// The lower of the samples ([`Cost::p05`]) say what the code costs, the median what this machine makes of it.
///
/// Packets come from the heap, and those that leave are used again. The heap takes a dropped one back more slowly than DPDK's
/// pool: measure with frames that pass. Build with optimisation (`cargo bench`).
///
/// ```
/// # struct Quiet;
/// # impl graph::Nf for Quiet {
/// #     type Settings = Settings;
/// #     const KIND: &'static str = "quiet";
/// #     const ABOUT: &'static str = "Lets everything pass.";
/// #     fn build(_: &Settings, _: &graph::BuildContext) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
/// #         Ok(graph::Operator::compose(graph::frame()))
/// #     }
/// # }
/// # #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// # #[serde(default, deny_unknown_fields)]
/// # struct Settings {}
/// use testkit::{Bench, Cycles, wire::build};
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
/// Work in a sample.
const SAMPLE: Duration = Duration::from_micros(300);
/// What a sample takes at most, with all that lies between the runs; the last run may be longer.
const LONGEST: Duration = Duration::from_millis(1);
/// Bursts in a run: what is cached by a core, as what a NIC has just delivered.
const RUN: usize = 8;

/// Does nothing.
struct Idle;

impl Node for Idle {
    fn process(&mut self, _: &mut graph::Context<'_>, _: u8, _: &mut Batch) {}
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

    /// Sets the samples taken of each NF; 300 otherwise, which take 0.3 s at most.
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
        let cycles_in = |time: Duration| (time.as_nanos() * u128::from(hz) / 1_000_000_000) as u64;
        let (enough, longest) = (cycles_in(SAMPLE), cycles_in(LONGEST));
        let start = Instant::now();
        let mut taken: Vec<_> = self.nfs.into_iter().map(|(name, bench)| Course::new(name, bench)).collect();
        for course in &mut taken {
            for _ in 0..runs {
                course.wake(start);
                course.run(&frames);
            }
            course.settle();
            (course.fed, course.left) = (0, 0);
        }
        // the first samples find cold caches
        for sample in 0..self.samples + 3 {
            for course in &mut taken {
                let cycles = course.sample(&frames, enough, longest, start);
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
    out: Keep,
    /// Packets that left, to be used again: freed and taken anew, each run would ask the kernel for memory.
    spare: Vec<Packet>,
}

impl Course {
    fn new(name: String, bench: Bench) -> Self {
        let out = Keep(Vec::with_capacity(4 * BURST * RUN));
        Course { name, bench, samples: vec![], fed: 0, left: 0, run: 0, out, spare: Vec::with_capacity(BURST * RUN) }
    }

    /// Cycles per packet.
    #[track_caller]
    fn sample(&mut self, frames: &[&[u8]], enough: u64, longest: u64, start: Instant) -> f64 {
        let (began, before) = (clock::cycles(), self.fed);
        let mut cycles = self.wake(start);
        loop {
            cycles += self.run(frames);
            if cycles >= enough || clock::cycles() - began >= longest {
                break;
            }
        }
        self.settle();
        cycles as f64 / (self.fed - before) as f64
    }

    /// Lets the bench's clock show what that on the wall does; cycles that it took.
    fn wake(&mut self, start: Instant) -> u64 {
        let now = self.bench.now().max(start.elapsed());
        let from = clock::cycles();
        self.bench.graph().wake(now, &mut self.out);
        clock::cycles() - from
    }

    /// Feeds the next frames; cycles that it took.
    #[track_caller]
    fn run(&mut self, frames: &[&[u8]]) -> u64 {
        self.settle();
        let run = self.run % (frames.len() / (BURST * RUN));
        self.run += 1;
        let mut batches = [const { Batch::new() }; RUN];
        for (batch, burst) in batches.iter_mut().zip(frames[run * BURST * RUN..].chunks(BURST)) {
            for frame in burst {
                let packet = self.spare.pop().and_then(|packet| renewed(packet, frame));
                batch.push(packet.unwrap_or_else(|| self.bench.packet(frame))).expect("a chunk is a burst");
            }
        }
        let graph = self.bench.graph();
        let from = clock::cycles();
        for batch in &mut batches {
            graph.run::<false>(Target::Hop(Hop(0)), batch, &mut self.out);
        }
        let cycles = clock::cycles() - from;
        self.fed += (RUN * BURST) as u64;
        cycles
    }

    /// Sees that nothing is missing, and keeps of what came out what can be used again.
    #[track_caller]
    fn settle(&mut self) {
        let out = self.out.0.len();
        self.left += out as u64;
        self.bench.account(out, out + self.spare.len());
        self.spare.append(&mut self.out.0);
        self.spare.truncate(BURST * RUN);
    }

    fn cost(mut self) -> Cost {
        self.samples.sort_by(f64::total_cmp);
        let at = |share: f64| self.samples[((self.samples.len() - 1) as f64 * share) as usize];
        let lost = 1.0 - (self.left as f64 / self.fed as f64).min(1.0);
        Cost { p05: at(0.05), median: at(0.5), lost, name: self.name }
    }
}

/// A packet as it comes from the pool, with this frame; none if that cannot be had of it.
fn renewed(mut packet: Packet, frame: &[u8]) -> Option<Packet> {
    if packet.meta().stamp().is_some() {
        return None;
    }
    packet.meta_mut().set_port(0);
    packet.meta_mut().clear_note();
    packet.truncate(0);
    match packet.headroom() {
        much if much > HEADROOM => {
            packet.prepend(much - HEADROOM)?;
            packet.truncate(0);
        }
        little if little < HEADROOM => {
            packet.append(HEADROOM - little)?;
            packet.trim_front(HEADROOM - little);
        }
        _ => {}
    }
    packet.append(frame.len())?.copy_from_slice(frame);
    Some(packet)
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

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{HeapPool, Pool};

    /// What an NF may have done to a packet is not seen by the next that gets it.
    #[test]
    fn a_packet_that_is_used_again_is_as_a_new_one() {
        let pool = HeapPool::new(2);
        let all = |p: &Packet| (p.data().to_vec(), p.headroom(), p.tailroom(), p.meta().port(), p.meta().stamp());
        let spoil: [fn(&mut Packet); 6] = [
            |_| {},
            |p| p.data_mut().fill(0xff),
            |p| assert!(p.trim_front(14)),
            |p| p.prepend(HEADROOM).unwrap().fill(1),
            |p| p.append(p.tailroom()).unwrap().fill(2),
            |p| assert!(p.truncate(1)),
        ];
        let mut packet = pool.alloc_from(&[7; 60]).unwrap();
        for frame in [&[1; 60][..], &[2; 1500], &[3; 1], &[]] {
            let new = pool.alloc_from(frame).unwrap();
            for spoil in spoil {
                packet = renewed(packet, &[9; 64]).unwrap();
                spoil(&mut packet);
                packet.meta_mut().set_port(3);
                packet = renewed(packet, frame).unwrap();
                assert_eq!(all(&packet), all(&new));
            }
        }
        assert!(renewed(packet, &[0; 4000]).is_none());
        assert_eq!(pool.in_use(), 0);
    }
}
