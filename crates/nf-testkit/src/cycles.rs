//! Measuring cycles per packet.

use crate::{Frames, Harness};
use core::fmt;
use graph::{Hop, Node, Sink, Target};
use packet::{BURST, Batch, HEADROOM, Packet, clock};
use std::time::{Duration, Instant};

/// Measures the cycles per packet of NFs on the same frames, interleaved, so that interference affects all of them.
///
/// Each NF first processes every frame once, so that its tables are filled. Then samples are taken in turn. A sample is
/// 0.3 ms of work, or the work done within 1 ms of wall-clock time, and continues with the next frames. Frames enter in
/// bursts of 64, four bursts a run; between runs the frames are restored, which is not counted but takes longer than
/// the work of a cheap NF.
///
/// Time passes for the NFs in real time. An empty NF runs beside them as the baseline. The 5th percentile
/// ([`Cost::p05`]) is the cost of the code, the median includes the interference of this machine.
///
/// Packets come from the heap, and sent packets are reused. Freeing a dropped packet to the heap is slower than to a
/// DPDK pool: measure with frames that are forwarded, and with optimisation (`cargo bench`).
///
/// ```
/// # struct Pass;
/// # impl graph::Nf for Pass {
/// #     type Settings = graph::NoSettings;
/// #     const KIND: &'static str = "pass";
/// #     const ABOUT: &'static str = "Forwards every packet unchanged.";
/// #     fn build(
/// #         _: &graph::NoSettings,
/// #         _: &graph::BuildContext,
/// #     ) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
/// #         Ok(graph::Operator::compose(graph::frame()))
/// #     }
/// # }
/// use testkit::{CycleMeter, Harness, wire::build};
///
/// let frame = |n| build::udp4([10, 0, 0, n], [10, 1, 0, 1], 1000, 53).pad_to(60).to_vec();
/// let frames: Vec<_> = (0..64).map(frame).collect();
/// let costs = CycleMeter::new(&frames).samples(5).add("pass", Harness::new::<Pass>("")).measure();
/// println!("{costs}");
/// assert_eq!(costs.all().len(), 2); // baseline and pass
/// ```
#[must_use = "call `measure`"]
pub struct CycleMeter {
    frames: Frames,
    samples: usize,
    nfs: Vec<(String, Harness)>,
}

/// The cycles per packet of one NF, in cycles of the time-stamp counter, including those of the harness.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// Name of the measurement.
    pub name: String,
    /// 5th percentile of the samples.
    pub p05: f64,
    /// Median of the samples.
    pub median: f64,
    /// Share of the packets that were not forwarded, 0 to 1.
    pub loss: f64,
}

/// The costs of several NFs, the baseline first. Displayed as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs(Vec<Cost>);

/// Name of the empty NF.
const BASELINE: &str = "baseline";
/// Work of a sample.
const SAMPLE_WORK: Duration = Duration::from_micros(300);
/// Maximum duration of a sample, including the time between runs; the last run may exceed it.
const SAMPLE_TIMEOUT: Duration = Duration::from_millis(1);
/// Number of bursts in a run: few enough to stay in the cache, like frames that a NIC has just delivered.
const RUN_BURSTS: usize = 4;

/// The empty NF of the baseline.
struct NoOp;

impl Node for NoOp {
    fn process(&mut self, _: &mut graph::Context<'_>, _: u8, _: &mut Batch) {}
}

/// Collects sent packets in a vector with sufficient capacity.
struct Collect(Vec<Packet>);

impl Sink for Collect {
    #[inline]
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

impl CycleMeter {
    /// Creates a meter that feeds these frames repeatedly, in order.
    pub fn new(frames: &[impl AsRef<[u8]>]) -> Self {
        let frames = frames.iter().map(|frame| frame.as_ref().to_vec()).collect();
        let baseline = Harness::assemble(BASELINE, Box::new(NoOp), (1, 1), vec!["out".to_owned()], 4096);
        CycleMeter { frames, samples: 300, nfs: vec![(BASELINE.to_owned(), baseline)] }
    }

    /// Sets the number of samples for each NF. The default is 300, which take at most 0.3 s.
    pub fn samples(self, samples: usize) -> Self {
        CycleMeter { samples: samples.max(1), ..self }
    }

    /// Adds an NF to measure.
    pub fn add(mut self, name: &str, harness: Harness) -> Self {
        self.nfs.push((name.to_owned(), harness));
        self
    }

    /// Runs the measurement.
    ///
    /// # Panics
    /// If there are no frames, or a check of the [`Harness`] fails.
    #[track_caller]
    pub fn measure(self) -> Costs {
        assert!(!self.frames.is_empty(), "no frames to measure with");
        // whole runs that include every frame
        let runs = self.frames.len().div_ceil(BURST * RUN_BURSTS).max(1);
        let frames: Vec<&[u8]> =
            self.frames.iter().map(Vec::as_slice).cycle().take(runs * BURST * RUN_BURSTS).collect();
        let hz = clock::hz();
        let cycles_in = |time: Duration| (time.as_nanos() * u128::from(hz) / 1_000_000_000) as u64;
        let (work, timeout) = (cycles_in(SAMPLE_WORK), cycles_in(SAMPLE_TIMEOUT));
        let start = Instant::now();
        let mut measurements: Vec<_> =
            self.nfs.into_iter().map(|(name, harness)| Measurement::new(name, harness)).collect();
        for measurement in &mut measurements {
            for _ in 0..runs {
                measurement.run_timers(start);
                measurement.run(&frames);
            }
            measurement.check();
            (measurement.fed, measurement.forwarded) = (0, 0);
        }
        // discard the first samples, with cold caches
        for sample in 0..self.samples + 3 {
            for measurement in &mut measurements {
                let cycles = measurement.sample(&frames, work, timeout, start);
                if sample >= 3 {
                    measurement.samples.push(cycles);
                }
            }
        }
        Costs(measurements.into_iter().map(Measurement::cost).collect())
    }
}

/// The measurement of one NF.
struct Measurement {
    name: String,
    harness: Harness,
    samples: Vec<f64>,
    fed: u64,
    forwarded: u64,
    runs: usize,
    out: Collect,
    /// Forwarded packets for reuse: allocating new ones would call into the kernel for memory in each run.
    free_packets: Vec<Packet>,
}

impl Measurement {
    fn new(name: String, harness: Harness) -> Self {
        let out = Collect(Vec::with_capacity(4 * BURST * RUN_BURSTS));
        Measurement {
            name,
            harness,
            samples: vec![],
            fed: 0,
            forwarded: 0,
            runs: 0,
            out,
            free_packets: Vec::with_capacity(BURST * RUN_BURSTS),
        }
    }

    /// Takes a sample and returns its cycles per packet.
    #[track_caller]
    fn sample(&mut self, frames: &[&[u8]], work: u64, timeout: u64, start: Instant) -> f64 {
        let (started, before) = (clock::cycles(), self.fed);
        let mut cycles = self.run_timers(start);
        loop {
            cycles += self.run(frames);
            if cycles >= work || clock::cycles() - started >= timeout {
                break;
            }
        }
        self.check();
        cycles as f64 / (self.fed - before) as f64
    }

    /// Sets the time of the NF to real time and returns the cycles that its timer took.
    fn run_timers(&mut self, start: Instant) -> u64 {
        let now = self.harness.now().max(start.elapsed());
        let from = clock::cycles();
        self.harness.graph().run_timers(now, &mut self.out);
        clock::cycles() - from
    }

    /// Feeds the frames of the next run and returns the cycles that they took.
    #[track_caller]
    fn run(&mut self, frames: &[&[u8]]) -> u64 {
        self.check();
        let run = self.runs % (frames.len() / (BURST * RUN_BURSTS));
        self.runs += 1;
        let mut batches = [const { Batch::new() }; RUN_BURSTS];
        for (batch, burst) in batches.iter_mut().zip(frames[run * BURST * RUN_BURSTS..].chunks(BURST)) {
            for frame in burst {
                let packet = self.free_packets.pop().and_then(|packet| reuse(packet, frame));
                batch.push(packet.unwrap_or_else(|| self.harness.packet(frame))).expect("a chunk is a burst");
            }
        }
        let graph = self.harness.graph();
        let from = clock::cycles();
        for batch in &mut batches {
            graph.run::<false>(Target::Hop(Hop(0)), batch, &mut self.out);
        }
        let cycles = clock::cycles() - from;
        self.fed += (RUN_BURSTS * BURST) as u64;
        cycles
    }

    /// Checks that no packet is missing, and keeps sent packets for reuse.
    #[track_caller]
    fn check(&mut self) {
        let out = self.out.0.len();
        self.forwarded += out as u64;
        self.harness.check_accounting(out, out + self.free_packets.len());
        self.free_packets.append(&mut self.out.0);
        self.free_packets.truncate(BURST * RUN_BURSTS);
    }

    fn cost(mut self) -> Cost {
        self.samples.sort_by(f64::total_cmp);
        let at = |share: f64| self.samples[((self.samples.len() - 1) as f64 * share) as usize];
        let lost = 1.0 - (self.forwarded as f64 / self.fed as f64).min(1.0);
        Cost { p05: at(0.05), median: at(0.5), loss: lost, name: self.name }
    }
}

/// Resets a packet to the state of a new one with this frame; returns `None` if that is impossible.
fn reuse(mut packet: Packet, frame: &[u8]) -> Option<Packet> {
    if packet.meta().capture_info().is_some() {
        return None;
    }
    packet.meta_mut().set_port(0);
    packet.meta_mut().clear_metadata();
    packet.truncate(0);
    match packet.headroom() {
        room if room > HEADROOM => {
            packet.prepend(room - HEADROOM)?;
            packet.truncate(0);
        }
        room if room < HEADROOM => {
            packet.append(HEADROOM - room)?;
            packet.trim_front(HEADROOM - room);
        }
        _ => {}
    }
    packet.append(frame.len())?.copy_from_slice(frame);
    Some(packet)
}

impl Costs {
    /// Returns all costs, the baseline first.
    pub fn all(&self) -> &[Cost] {
        &self.0
    }

    /// Returns the cost of the NF with this name.
    pub fn get(&self, name: &str) -> Option<&Cost> {
        self.0.iter().find(|cost| cost.name == name)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|cost| cost.name.len()).max().unwrap_or(0).max("cycles per packet".len());
        let heading = "cycles per packet";
        writeln!(f, "  {heading:<width$}  {:>7}  {:>7}  {:>14}", "p05", "median", "above baseline")?;
        let baseline = self.0.first().map_or(0.0, |cost| cost.p05);
        for (n, cost) in self.0.iter().enumerate() {
            let mut line = format!("  {:<width$}  {:>7.1}  {:>7.1}", cost.name, cost.p05, cost.median);
            if n != 0 {
                line += &format!("  {:>14.1}", cost.p05 - baseline);
            }
            if cost.loss != 0.0 {
                line += &format!("  {:.1} % not forwarded", cost.loss * 100.0);
            }
            writeln!(f, "{line}")?;
        }
        if cfg!(debug_assertions) {
            writeln!(f, "  built without optimisation: use cargo bench")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{HeapPool, Pool};

    /// No change that an NF can make to a packet is visible after its reuse.
    #[test]
    fn a_reused_packet_equals_a_new_one() {
        let pool = HeapPool::new(2);
        let state =
            |p: &Packet| (p.data().to_vec(), p.headroom(), p.tailroom(), p.meta().port(), p.meta().capture_info());
        let changes: [fn(&mut Packet); 6] = [
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
            for change in changes {
                packet = reuse(packet, &[9; 64]).unwrap();
                change(&mut packet);
                packet.meta_mut().set_port(3);
                packet = reuse(packet, frame).unwrap();
                assert_eq!(state(&packet), state(&new));
            }
        }
        assert!(reuse(packet, &[0; 4000]).is_none());
        assert_eq!(pool.in_use(), 0);
    }
}
