//! Trials with all that a bed can tell.

use super::fluid::{Outage, Piece};
use super::{Simulated, draw};
use crate::bed::{Act, Acted, Ask, Bed, BedError, Losses, Seen, Variation};
use report::hdr;
use traffic::{Delays, PaceError, pace};

/// Most latencies that a histogram gets, as of a sampling receiver.
const SAMPLES: f64 = 1e6;
/// Parts of an exponential law in a histogram.
const PARTS: u32 = 256;

impl Bed for Simulated {
    /// Works a trial out. Waiting times of packets in a row count as independent of each other.
    fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError> {
        let duration_s = check(ask)?;
        let capacity = self.drawn_capacity();
        let (outages, acted) = self.outages(ask, duration_s)?;
        let phases: Vec<_> = ask.phases.iter().map(|phase| self.sent_of(*phase)).collect();
        let mut view = View::new(self, capacity, duration_s, ask.loss_bins);
        let sent: f64 = phases.iter().map(|phase| phase.load_pps * phase.duration_s).sum();
        view.thinned = (SAMPLES / sent.max(1.0)).min(1.0);
        self.fluid(capacity).run(&phases, outages, |piece| view.take(piece));
        view.due(&phases);
        let View { mut delays, bins, due, first_s, last_s, overload, .. } = view;
        let (mut trial, stray) = self.count(&ask.phases, overload);
        if delays.count() == 0 && trial.received > 0 {
            delays.record(self.latency_ns as u64);
        }
        trial.latency_hdr = hdr::encode(delays.histogram()).ok();
        let losses = (ask.loss_bins != 0).then(|| {
            let mut losses = Losses { bins: whole(&bins, &due, trial.lost - stray), first_s, last_s };
            self.scatter(&mut losses, stray, duration_s);
            losses
        });
        let mean_wait = self.mean_wait_ns(phases.iter().map(|phase| phase.load_pps).fold(0.0, f64::max), capacity);
        let variation = ask.variation.then(|| {
            let mut ipdv = Delays::new();
            let pairs = (trial.received.saturating_sub(1)).min(SAMPLES as u64);
            // The difference of two exponential times of one mean is such a time, of the same mean.
            exponential(0.0, mean_wait, pairs, |ns, count| ipdv.record_n(ns, count));
            Variation { ipdv, rising: pairs / 2, rfc3550_ns: mean_wait, rfc3550_max_ns: mean_wait * 1.5 }
        });
        let tag_ns = ask.tag_s.and_then(|tag_s| self.tag(tag_s, capacity, &phases, ask, duration_s, mean_wait));
        let delays = (delays.count() != 0).then_some(delays);
        Ok(Seen { trial, delays, losses, variation, tag_ns, acted, ..Seen::default() })
    }
}

/// The length of a trial that can be.
pub(super) fn check(ask: &Ask) -> Result<f64, BedError> {
    let seconds = ask.duration_s();
    if ask.profile {
        return Err(BedError::Cannot {
            dut: "a simulated device".to_owned(),
            what: "sent a profile",
            remedy: "measure a chain or another program, or give the simulated one a load (--rate)",
        });
    }
    let first = ask.phases.first().ok_or(PaceError::Duration { seconds, rate_pps: 0.0 })?;
    for phase in &ask.phases {
        if !(1.0..=pace::MAX_PPS).contains(&phase.load_pps) {
            return Err(PaceError::Rate(phase.load_pps).into());
        }
        if !(phase.duration_s > 0.0 && phase.load_pps * phase.duration_s + 1e-6 >= 1.0) {
            return Err(PaceError::Duration { seconds: phase.duration_s, rate_pps: phase.load_pps }.into());
        }
    }
    if seconds > pace::MAX_DURATION_S {
        return Err(PaceError::Duration { seconds, rate_pps: first.load_pps }.into());
    }
    Ok(seconds)
}

impl Simulated {
    /// When nothing is forwarded in a trial, for stalls and for what is done to it.
    fn outages(&mut self, ask: &Ask, duration_s: f64) -> Result<(Vec<Outage>, Option<Acted>), BedError> {
        let mut outages = self.drawn_stalls(duration_s);
        let cannot = |what, remedy| BedError::Cannot { dut: "the simulated device".to_owned(), what, remedy };
        let acted = match ask.act {
            None => None,
            Some(Act::Reset { at_s }) => {
                let takes = self.reset_s.ok_or_else(|| cannot("reset", "give it `reset=`, the seconds that takes"))?;
                let to_s = at_s + takes;
                outages.push(Outage { from_s: at_s, to_s, flush: true });
                Some(Acted { done: 1, failed: 0, from_s: at_s, to_s })
            }
            Some(Act::Changes { per_second }) => {
                let remedy = "give it `change=`, the seconds that one takes";
                let takes = self.change_s.ok_or_else(|| cannot("changed while it forwards", remedy))?;
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
                Some(Acted { done, failed: 0, from_s: 0.0, to_s: duration_s })
            }
        };
        outages.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
        // Those that overlap become one after the other.
        let mut ended = 0.0_f64;
        for outage in &mut outages {
            outage.from_s = outage.from_s.max(ended);
            ended = ended.max(outage.to_s);
            outage.to_s = ended;
        }
        outages.retain(|outage| outage.to_s > outage.from_s);
        Ok((outages, acted))
    }

    /// Mean of what waiting adds below the limit: jitter, and the queue of a server that takes equally long for all
    /// (M/D/1), as far as there is one.
    fn mean_wait_ns(&self, load_pps: f64, capacity: f64) -> f64 {
        let busy = (load_pps / capacity.max(1.0)).min(0.999);
        let queued = (busy / (2.0 * (1.0 - busy))).min(self.buffer as f64);
        self.jitter_ns + queued / capacity.max(1.0) * 1e9
    }

    /// Puts `stray` lost packets anywhere.
    fn scatter(&mut self, losses: &mut Losses, stray: u64, duration_s: f64) {
        let mut left = stray;
        let count = losses.bins.len();
        for (i, (lost, due)) in losses.bins.iter_mut().enumerate() {
            let here = draw::binomial(&mut self.random, left, 1.0 / (count - i) as f64).min(*due - *lost);
            *lost += here;
            left -= here;
        }
        // What found its bin full goes where there is room.
        for (lost, due) in &mut losses.bins {
            let here = left.min(*due - *lost);
            *lost += here;
            left -= here;
        }
        // The smallest and the largest of so many even numbers.
        let power = 1.0 / stray as f64;
        for _ in 0..u64::from(stray > 0) {
            let one = duration_s * (1.0 - (1.0 - self.random.unit()).powf(power));
            let other = if stray == 1 { one } else { duration_s * (1.0 - self.random.unit()).powf(power) };
            losses.first_s = Some(losses.first_s.map_or(one.min(other), |first| first.min(one)));
            losses.last_s = Some(losses.last_s.map_or(one.max(other), |last| last.max(other)));
        }
    }

    /// The latency of the packet due at `tag_s`; none if it is lost.
    fn tag(
        &mut self,
        tag_s: f64,
        capacity: f64,
        phases: &[super::Phase],
        ask: &Ask,
        duration_s: f64,
        mean_wait: f64,
    ) -> Option<f64> {
        // Where it stalls is drawn anew: no more is known of one packet.
        let (outages, _) = self.outages(ask, duration_s).ok()?;
        let (mut delay_s, mut lost) = (0.0, 0.0);
        self.fluid(capacity).run(phases, outages, |piece| {
            if piece.from_s <= tag_s && tag_s < piece.to_s {
                let into = (tag_s - piece.from_s) / (piece.to_s - piece.from_s);
                let queue = piece.queue.0 + into * (piece.queue.1 - piece.queue.0);
                delay_s = queue / capacity.max(1.0) + (piece.away_s - (tag_s - piece.from_s)).max(0.0);
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

/// An exponential law above `from_ns` in parts that are all as likely.
fn exponential(from_ns: f64, mean_ns: f64, count: u64, mut record: impl FnMut(u64, u64)) {
    if mean_ns < 0.5 {
        return record(from_ns as u64, count);
    }
    let parts = u64::from(PARTS).min(count);
    for part in 0..parts {
        let share = (part as f64 + 0.5) / parts as f64;
        let here = count * (part + 1) / parts - count * part / parts;
        record((from_ns - mean_ns * (1.0 - share).ln()) as u64, here);
    }
}

/// Lost packets a bin as whole numbers that add up to `lost`, none more than are due.
fn whole(bins: &[f64], due: &[u64], lost: u64) -> Vec<(u64, u64)> {
    let all: f64 = bins.iter().sum();
    let (mut sum, mut told) = (0.0, 0);
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
            let here = upto.saturating_sub(told).min(*due);
            told += here;
            (here, *due)
        })
        .collect()
}

/// What the pieces of a trial come to.
struct View {
    capacity: f64,
    latency_ns: f64,
    /// Mean wait by load, nanoseconds: (load, mean).
    waits: Vec<(f64, f64)>,
    device: Simulated,
    /// Share of the packets whose latency is taken.
    thinned: f64,
    delays: Delays,
    bin_s: f64,
    bins: Vec<f64>,
    due: Vec<u64>,
    first_s: Option<f64>,
    last_s: Option<f64>,
    overload: f64,
}

impl View {
    fn new(device: &Simulated, capacity: f64, duration_s: f64, bins: usize) -> View {
        View {
            capacity: capacity.max(1.0),
            latency_ns: device.latency_ns,
            waits: vec![],
            device: device.clone(),
            thinned: 1.0,
            delays: Delays::new(),
            bin_s: duration_s / bins.max(1) as f64,
            bins: vec![0.0; bins],
            due: vec![0; bins],
            first_s: None,
            last_s: None,
            overload: 0.0,
        }
    }

    fn take(&mut self, piece: &Piece) {
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

    /// Losses into bins.
    fn spread(&mut self, piece: &Piece) {
        if self.bins.is_empty() {
            return;
        }
        let last = self.bins.len() - 1;
        let (from, to) = ((piece.from_s / self.bin_s) as usize, (piece.to_s / self.bin_s) as usize);
        self.bins[from.min(last)] += piece.flushed;
        for bin in from.min(last)..=to.min(last) {
            let (start, end) = (bin as f64 * self.bin_s, (bin + 1) as f64 * self.bin_s);
            let here = piece.to_s.min(end) - piece.from_s.max(start);
            self.bins[bin] += piece.lost_pps * here.max(0.0);
        }
    }

    fn wait(&mut self, piece: &Piece) {
        let seconds = piece.to_s - piece.from_s;
        let count = ((piece.load_pps - piece.lost_pps) * seconds * self.thinned).round().max(0.0) as u64;
        if count == 0 {
            return;
        }
        if piece.queue == (0.0, 0.0) && piece.away_s == 0.0 {
            let known = self.waits.iter().find(|(load, _)| *load == piece.load_pps).map(|(_, mean)| *mean);
            let mean = known.unwrap_or_else(|| {
                let mean = self.device.mean_wait_ns(piece.load_pps, self.capacity);
                self.waits.push((piece.load_pps, mean));
                mean
            });
            let delays = &mut self.delays;
            return exponential(self.latency_ns, mean, count, |ns, n| delays.record_n(ns, n));
        }
        let begin = piece.queue.0 / self.capacity + piece.away_s;
        let end = piece.queue.1 / self.capacity + (piece.away_s - seconds).max(0.0);
        let parts = count.min(64);
        for part in 0..parts {
            let share = (part as f64 + 0.5) / parts as f64;
            let delay_s = begin + share * (end - begin);
            let here = count * (part + 1) / parts - count * part / parts;
            self.delays.record_n((self.latency_ns + delay_s * 1e9 + self.device.jitter_ns) as u64, here);
        }
    }

    /// Packets due in each bin.
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
