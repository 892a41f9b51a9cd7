//! Devices that exist only as numbers, on which methods are proved and tried out.
//!
//! [`Simulated`] is a [`Bed`](crate::Bed) in virtual time whose trials are worked out and not run: a minute at 10 Mpps
//! costs microseconds. It is a queue of [`buffer`](Simulated::buffer) packets before a server of
//! [`capacity_pps`](Simulated::capacity_pps), as a fluid, with faults; what it ought to be found to do is known from
//! [`Simulated::chance_of_loss`]. [`Virtual`] runs packet by packet through the real schedule, frames and receiver.
//!
//! ```
//! use bench::simulated::Simulated;
//!
//! let mut device: Simulated = "capacity=3.3e6,buffer=512,loss=1e-7,seed=4".parse()?;
//! let trial = device.offer(4e6, 1.0);
//! assert_eq!(trial.intended, 4_000_000);
//! assert_eq!(trial.lost / 100_000, 6, "0.7 million less what the buffer holds at the end");
//! # Ok::<(), bench::simulated::NotSimulated>(())
//! ```

mod bed;
mod draw;
mod fluid;
mod law;
mod text;
mod virtual_bed;

pub use text::NotSimulated;
pub use virtual_bed::{Fault, Virtual};

use crate::trial::{PollGaps, Trial};
use fluid::{Fluid, Phase};
use traffic::random::Random;

/// How the capacity differs from trial to trial.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Noise {
    /// Not at all.
    #[default]
    None,
    /// By up to this share, either way, all as likely.
    Uniform(f64),
    /// Normally, with this share as standard deviation.
    Normal(f64),
    /// In half of the trials it is less by this share.
    Modes(f64),
}

/// Times in which nothing is forwarded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// How long, seconds.
    pub for_s: f64,
    /// From the beginning of one to that of the next, seconds; the first begins at any point of the first such time.
    pub every_s: f64,
}

/// A device with a limit, on a machine with faults.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Packets a second that it forwards.
    pub capacity_pps: f64,
    /// Packets that wait while more come.
    pub buffer: u64,
    /// Latency without waiting, nanoseconds.
    pub latency_ns: f64,
    /// Mean of what is added at random, distributed exponentially, nanoseconds.
    pub jitter_ns: f64,
    /// How the capacity differs from trial to trial.
    pub noise: Noise,
    /// Share of all packets lost at any load, each by itself.
    pub loss_ratio: f64,
    /// Share of the trials that lose a packet for no reason.
    pub flaw_share: f64,
    /// Share of the trials in which the machine is away for 2 ms and a ring of 1024 overflows.
    pub gap_share: f64,
    /// Whether such trials are known to be the machine's.
    pub gaps_seen: bool,
    /// When it forwards nothing.
    pub stall: Option<Stall>,
    /// How long after an overload all is lost, seconds.
    pub recovery_s: f64,
    /// How long a reset takes, seconds; without it, it cannot be reset.
    pub reset_s: Option<f64>,
    /// How long a change of its rules blocks it, seconds; without it, it cannot be changed.
    pub change_s: Option<f64>,
    /// What the generator manages, packets a second.
    pub generator_pps: f64,
    pub(crate) seed: u64,
    pub(crate) random: Random,
}

/// How long the machine is away, and what is held meanwhile.
const GAP_S: f64 = 0.002;
const GAP_RING: f64 = 1024.0;

impl Simulated {
    /// Nothing but a limit: latency of 10 µs, no buffer, a generator without limit.
    pub fn hard(capacity_pps: f64) -> Self {
        Self {
            capacity_pps,
            buffer: 0,
            latency_ns: 10_000.0,
            jitter_ns: 0.0,
            noise: Noise::None,
            loss_ratio: 0.0,
            flaw_share: 0.0,
            gap_share: 0.0,
            gaps_seen: true,
            stall: None,
            recovery_s: 0.0,
            reset_s: None,
            change_s: None,
            generator_pps: f64::INFINITY,
            seed: 5,
            random: Random::new(5),
        }
    }

    /// With other random numbers.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, random: Random::new(seed), ..self }
    }

    /// A trial of one load, without latencies.
    pub fn offer(&mut self, load_pps: f64, duration_s: f64) -> Trial {
        let load = Phase { load_pps, duration_s };
        let mut lost = 0.0;
        let capacity = self.drawn_capacity();
        let stalls = self.drawn_stalls(duration_s);
        self.fluid(capacity).run(&[self.sent_of(load)], stalls, |piece| lost += piece.lost());
        self.count(&[load], lost).0
    }

    fn fluid(&self, capacity: f64) -> Fluid {
        Fluid { capacity, buffer: self.buffer as f64, recovery_s: self.recovery_s }
    }

    /// What the generator makes of a load.
    fn sent_of(&self, load: Phase) -> Phase {
        Phase { load_pps: load.load_pps.min(self.generator_pps), ..load }
    }

    /// The capacity of one trial.
    fn drawn_capacity(&mut self) -> f64 {
        let share = match self.noise {
            Noise::None => 0.0,
            Noise::Uniform(share) => share * (2.0 * self.random.unit() - 1.0),
            Noise::Normal(sigma) => sigma * draw::normal(&mut self.random),
            Noise::Modes(share) => -share * f64::from(self.random.unit() < 0.5),
        };
        (self.capacity_pps * (1.0 + share)).max(0.0)
    }

    /// Where it stalls in a trial.
    fn drawn_stalls(&mut self, duration_s: f64) -> Vec<fluid::Outage> {
        let Some(Stall { for_s, every_s }) = self.stall else { return vec![] };
        let every_s = every_s.max(for_s).max(1e-6);
        let first = self.random.unit() * every_s;
        let count = ((duration_s - first) / every_s).ceil().clamp(0.0, 1e7) as u64;
        let at = |n: u64| first + n as f64 * every_s;
        (0..count).map(|n| fluid::Outage { from_s: at(n), to_s: at(n) + for_s, flush: false }).collect()
    }

    /// The counts of a trial that lost `overload` packets for want of capacity, and how many it lost at random.
    fn count(&mut self, phases: &[Phase], overload: f64) -> (Trial, u64) {
        let packets = |phase: &Phase| (phase.load_pps * phase.duration_s + 1e-6).floor();
        let intended = phases.iter().map(packets).sum::<f64>().max(1.0) as u64;
        let sent = phases.iter().map(|phase| packets(&self.sent_of(*phase))).sum::<f64>() as u64;
        let sent = sent.min(intended);
        let duration_s = phases.iter().map(|phase| phase.duration_s).sum();
        let load_pps = phases.first().map_or(0.0, |phase| phase.load_pps);
        let mut lost = if overload > 1e-6 { (overload - 1e-6).ceil().max(1.0) as u64 } else { 0 };
        let mut stray = draw::binomial(&mut self.random, sent.saturating_sub(lost), self.loss_ratio);
        stray += u64::from(self.random.unit() < self.flaw_share);
        lost += stray;
        let gap = self.random.unit() < self.gap_share;
        if gap {
            lost += (load_pps.min(self.generator_pps) * GAP_S - GAP_RING).max(0.0) as u64;
        }
        let lost = lost.min(sent);
        let trial = Trial {
            load_pps,
            duration_s,
            intended,
            sent,
            unsent: intended - sent,
            received: sent - lost,
            lost,
            poll_gap_max_ns: PollGaps { generator: 1_000, worker: if gap { (GAP_S * 1e9) as u64 } else { 900 } },
            machine: gap && lost > 0 && self.gaps_seen,
            ..Trial::default()
        };
        (trial, stray.min(lost))
    }
}

#[cfg(test)]
mod tests;
