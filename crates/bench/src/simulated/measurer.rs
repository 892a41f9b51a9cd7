//! Trials of simulated DUTs with all outputs of a measurer.

use super::fluid::{Outage, Piece};
use super::{Simulated, draw};
use crate::trial::{
    DelayVariationOutput, Disturbance, DisturbanceReport, LossTimes, Measurer, MeasurerError, TrialInput, TrialOutput,
};
use report::hdr;
use traffic::{Delays, PaceError};

/// Maximum number of latencies in a histogram.
const SAMPLES: f64 = 1e6;
/// Number of quantiles that represent an exponential distribution.
const PARTS: u32 = 256;

impl Measurer for Simulated {
    /// Computes a trial. Queueing delays of consecutive packets are treated as independent.
    fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
        let duration_s = check(input)?;
        let capacity = self.draw_capacity();
        let (outages, report) = self.outages(input, duration_s)?;
        let phases: Vec<_> = input.phases.iter().map(|phase| self.sent_phase(*phase)).collect();
        let mut accumulator = Accumulator::new(self, capacity, duration_s, input.loss_bins);
        let sent: f64 = phases.iter().map(|phase| phase.load_pps * phase.duration_s).sum();
        accumulator.sampled_share = (SAMPLES / sent.max(1.0)).min(1.0);
        self.fluid(capacity).run(&phases, outages, |piece| accumulator.add(piece));
        accumulator.due(&phases);
        let Accumulator { mut delays, bins, due, first_s, last_s, overload, .. } = accumulator;
        let (mut trial, stray) = self.count(&input.phases, overload);
        if delays.count() == 0 && trial.received > 0 {
            delays.record(self.latency_ns as u64);
        }
        trial.latency_hdr = hdr::encode(delays.histogram()).ok();
        let losses = (input.loss_bins != 0).then(|| {
            let mut losses = LossTimes { bins: round_to_sum(&bins, &due, trial.lost - stray), first_s, last_s };
            self.scatter(&mut losses, stray, duration_s);
            losses
        });
        let mean_wait = self.mean_wait_ns(phases.iter().map(|phase| phase.load_pps).fold(0.0, f64::max), capacity);
        let variation = input.delay_variation.then(|| {
            let mut ipdv = Delays::new();
            let pairs = (trial.received.saturating_sub(1)).min(SAMPLES as u64);
            // the absolute difference of two exponential times has the same exponential distribution
            exponential(0.0, mean_wait, pairs, |ns, count| ipdv.record_n(ns, count));
            DelayVariationOutput { ipdv, rising: pairs / 2, rfc3550_ns: mean_wait, rfc3550_max_ns: mean_wait * 1.5 }
        });
        let tag_ns =
            input.tagged_at_s.and_then(|tag_s| self.tag(tag_s, capacity, &phases, input, duration_s, mean_wait));
        let delays = (delays.count() != 0).then_some(delays);
        Ok(TrialOutput {
            trial,
            delays,
            losses,
            delay_variation: variation,
            tagged_latency_ns: tag_ns,
            disturbance: report,
            ..TrialOutput::default()
        })
    }
}

/// Checks the input of a trial, and returns its duration.
pub(super) fn check(input: &TrialInput) -> Result<f64, MeasurerError> {
    let seconds = input.duration_s();
    if input.profile {
        return Err(MeasurerError::Unsupported {
            dut: "a simulated device".to_owned(),
            what: "sent a profile",
            remedy: "measure a chain or another program, or use a load (--rate)",
        });
    }
    let first = input.phases.first().ok_or(PaceError::Duration { seconds, rate_pps: 0.0 })?;
    for phase in &input.phases {
        if !(1.0..=traffic::pace::MAX_PPS).contains(&phase.load_pps) {
            return Err(PaceError::Rate(phase.load_pps).into());
        }
        if !(phase.duration_s > 0.0 && phase.load_pps * phase.duration_s + 1e-6 >= 1.0) {
            return Err(PaceError::Duration { seconds: phase.duration_s, rate_pps: phase.load_pps }.into());
        }
    }
    if seconds > traffic::pace::MAX_DURATION_S {
        return Err(PaceError::Duration { seconds, rate_pps: first.load_pps }.into());
    }
    Ok(seconds)
}

impl Simulated {
    /// Returns the outages of a trial: stalls, and those of the disturbance.
    fn outages(
        &mut self,
        input: &TrialInput,
        duration_s: f64,
    ) -> Result<(Vec<Outage>, Option<DisturbanceReport>), MeasurerError> {
        let mut outages = self.draw_stalls(duration_s);
        let unsupported =
            |what, remedy| MeasurerError::Unsupported { dut: "the simulated device".to_owned(), what, remedy };
        let report = match input.disturbance {
            None => None,
            Some(Disturbance::Reset { at_s }) => {
                let takes = self.reset_s.ok_or_else(|| unsupported("reset", "set `reset=`, the seconds of a reset"))?;
                let to_s = at_s + takes;
                outages.push(Outage { from_s: at_s, to_s, flush: true });
                Some(DisturbanceReport { done: 1, failed: 0, from_s: at_s, to_s })
            }
            Some(Disturbance::Changes { per_second }) => {
                let remedy = "set `change=`, the seconds of a change";
                let takes = self.change_s.ok_or_else(|| unsupported("changed while it forwards", remedy))?;
                let (mut done, mut free) = (0, 0.0_f64);
                let last_s = if per_second > 0.0 { duration_s - takes } else { -1.0 };
                loop {
                    let from_s = free.max(done as f64 / per_second);
                    if from_s.is_nan() || from_s > last_s {
                        break;
                    }
                    outages.push(Outage { from_s, to_s: from_s + takes, flush: false });
                    (done, free) = (done + 1, from_s + takes.max(1e-7));
                }
                Some(DisturbanceReport { done, failed: 0, from_s: 0.0, to_s: duration_s })
            }
        };
        outages.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
        // overlapping outages follow each other
        let mut ended = 0.0_f64;
        for outage in &mut outages {
            outage.from_s = outage.from_s.max(ended);
            ended = ended.max(outage.to_s);
            outage.to_s = ended;
        }
        outages.retain(|outage| outage.to_s > outage.from_s);
        Ok((outages, report))
    }

    /// Returns the mean delay below the capacity: jitter, and the queue of an M/D/1 server up to the length of the
    /// buffer.
    fn mean_wait_ns(&self, load_pps: f64, capacity: f64) -> f64 {
        let busy = (load_pps / capacity.max(1.0)).min(0.999);
        let queued = (busy / (2.0 * (1.0 - busy))).min(self.buffer as f64);
        self.jitter_ns + queued / capacity.max(1.0) * 1e9
    }

    /// Distributes `stray` lost packets randomly over the bins.
    fn scatter(&mut self, losses: &mut LossTimes, stray: u64, duration_s: f64) {
        let mut left = stray;
        let count = losses.bins.len();
        for (i, (lost, due)) in losses.bins.iter_mut().enumerate() {
            let count_here = draw::binomial(&mut self.random, left, 1.0 / (count - i) as f64).min(*due - *lost);
            *lost += count_here;
            left -= count_here;
        }
        // the rest goes into bins that are not full
        for (lost, due) in &mut losses.bins {
            let count_here = left.min(*due - *lost);
            *lost += count_here;
            left -= count_here;
        }
        // the minimum and the maximum of uniformly distributed times
        let power = 1.0 / stray as f64;
        for _ in 0..u64::from(stray > 0) {
            let one = duration_s * (1.0 - (1.0 - self.random.unit()).powf(power));
            let other = if stray == 1 { one } else { duration_s * (1.0 - self.random.unit()).powf(power) };
            losses.first_s = Some(losses.first_s.map_or(one.min(other), |first| first.min(one)));
            losses.last_s = Some(losses.last_s.map_or(one.max(other), |last| last.max(other)));
        }
    }

    /// Returns the latency of the packet due at `tag_s`, or `None` if it is lost.
    fn tag(
        &mut self,
        tag_s: f64,
        capacity: f64,
        phases: &[super::Phase],
        input: &TrialInput,
        duration_s: f64,
        mean_wait: f64,
    ) -> Option<f64> {
        // stalls are drawn again: they are not correlated with this packet
        let (outages, _) = self.outages(input, duration_s).ok()?;
        let (mut delay_s, mut lost) = (0.0, 0.0);
        self.fluid(capacity).run(phases, outages, |piece| {
            if piece.from_s <= tag_s && tag_s < piece.to_s {
                let into = (tag_s - piece.from_s) / (piece.to_s - piece.from_s);
                let queue = piece.queue.0 + into * (piece.queue.1 - piece.queue.0);
                delay_s = queue / capacity.max(1.0) + (piece.outage_s - (tag_s - piece.from_s)).max(0.0);
                lost = piece.lost_pps / piece.load_pps;
            }
        });
        if self.random.unit() < lost || self.random.unit() < self.loss_ratio {
            return None;
        }
        let wait = -mean_wait * (1.0 - self.random.unit()).ln();
        Some(self.latency_ns + delay_s * 1e9 + wait)
    }
}

/// Records an exponential distribution above `from_ns` as equally likely quantiles.
fn exponential(from_ns: f64, mean_ns: f64, count: u64, mut record: impl FnMut(u64, u64)) {
    if mean_ns < 0.5 {
        return record(from_ns as u64, count);
    }
    let parts = u64::from(PARTS).min(count);
    for part in 0..parts {
        let share = (part as f64 + 0.5) / parts as f64;
        let count_here = count * (part + 1) / parts - count * part / parts;
        record((from_ns - mean_ns * (1.0 - share).ln()) as u64, count_here);
    }
}

/// Rounds the lost packets per bin to whole numbers that add up to `lost`, at most those due.
fn round_to_sum(bins: &[f64], due: &[u64], lost: u64) -> Vec<(u64, u64)> {
    let all: f64 = bins.iter().sum();
    let (mut sum, mut assigned) = (0.0, 0);
    let count = bins.len();
    bins.iter()
        .zip(due)
        .enumerate()
        .map(|(i, (bin, due))| {
            sum += bin;
            let upto = if i + 1 == count {
                lost
            } else if all > 0.0 {
                (lost as f64 * sum / all).round() as u64
            } else {
                0
            };
            let count_here = upto.saturating_sub(assigned).min(*due);
            assigned += count_here;
            (count_here, *due)
        })
        .collect()
}

/// Sum over the pieces of a trial.
struct Accumulator {
    capacity: f64,
    latency_ns: f64,
    /// Load and mean delay in nanoseconds.
    waits: Vec<(f64, f64)>,
    device: Simulated,
    /// Share of the packets whose latency is recorded.
    sampled_share: f64,
    delays: Delays,
    bin_s: f64,
    bins: Vec<f64>,
    due: Vec<u64>,
    first_s: Option<f64>,
    last_s: Option<f64>,
    overload: f64,
}

impl Accumulator {
    fn new(device: &Simulated, capacity: f64, duration_s: f64, bins: usize) -> Accumulator {
        Accumulator {
            capacity: capacity.max(1.0),
            latency_ns: device.latency_ns,
            waits: vec![],
            device: device.clone(),
            sampled_share: 1.0,
            delays: Delays::new(),
            bin_s: duration_s / bins.max(1) as f64,
            bins: vec![0.0; bins],
            due: vec![0; bins],
            first_s: None,
            last_s: None,
            overload: 0.0,
        }
    }

    fn add(&mut self, piece: &Piece) {
        let lost = piece.lost();
        self.overload += lost;
        if lost > 0.0 {
            self.first_s = self.first_s.or(Some(piece.from_s));
            let gap = if piece.load_pps > 0.0 { 1.0 / piece.load_pps } else { 0.0 };
            self.last_s = Some((piece.to_s - gap).max(piece.from_s));
            self.spread(piece);
        }
        self.wait(piece);
    }

    /// Adds losses to bins.
    fn spread(&mut self, piece: &Piece) {
        if self.bins.is_empty() {
            return;
        }
        let last = self.bins.len() - 1;
        let (from, to) = ((piece.from_s / self.bin_s) as usize, (piece.to_s / self.bin_s) as usize);
        self.bins[from.min(last)] += piece.flushed;
        for bin in from.min(last)..=to.min(last) {
            let (start, end) = (bin as f64 * self.bin_s, (bin + 1) as f64 * self.bin_s);
            let seconds = piece.to_s.min(end) - piece.from_s.max(start);
            self.bins[bin] += piece.lost_pps * seconds.max(0.0);
        }
    }

    fn wait(&mut self, piece: &Piece) {
        let seconds = piece.to_s - piece.from_s;
        let count = ((piece.load_pps - piece.lost_pps) * seconds * self.sampled_share).round().max(0.0) as u64;
        if count == 0 {
            return;
        }
        if piece.queue == (0.0, 0.0) && piece.outage_s == 0.0 {
            let known = self.waits.iter().find(|(load, _)| *load == piece.load_pps).map(|(_, mean)| *mean);
            let mean = known.unwrap_or_else(|| {
                let mean = self.device.mean_wait_ns(piece.load_pps, self.capacity);
                self.waits.push((piece.load_pps, mean));
                mean
            });
            let delays = &mut self.delays;
            return exponential(self.latency_ns, mean, count, |ns, n| delays.record_n(ns, n));
        }
        let begin = piece.queue.0 / self.capacity + piece.outage_s;
        let end = piece.queue.1 / self.capacity + (piece.outage_s - seconds).max(0.0);
        let parts = count.min(64);
        for part in 0..parts {
            let share = (part as f64 + 0.5) / parts as f64;
            let delay_s = begin + share * (end - begin);
            let count_here = count * (part + 1) / parts - count * part / parts;
            self.delays.record_n((self.latency_ns + delay_s * 1e9 + self.device.jitter_ns) as u64, count_here);
        }
    }

    /// Computes the packets due in each bin.
    fn due(&mut self, phases: &[super::Phase]) {
        let by = |at_s: f64| {
            let (mut sum, mut from) = (0.0, 0.0);
            for phase in phases {
                sum += phase.load_pps * (at_s - from).clamp(0.0, phase.duration_s);
                from += phase.duration_s;
            }
            (sum + 1e-6).floor() as u64
        };
        for (bin, due) in self.due.iter_mut().enumerate() {
            *due = by((bin + 1) as f64 * self.bin_s) - by(bin as f64 * self.bin_s);
        }
    }
}
