//! Simulated DUTs, for tests of methods and searches.
//!
//! [`Simulated`] is a [`Measurer`](crate::Measurer) in virtual time that computes its trials: a minute at 10 Mpps takes
//! microseconds. It models a queue of [`buffer`](Simulated::buffer) packets before a server of
//! [`capacity_pps`](Simulated::capacity_pps) as a fluid, with faults; the expected result follows from
//! [`Simulated::loss_probability`]. [`PacketLevelDut`] simulates single packets with the real schedule, frames and
//! receiver.
//!
//! ```
//! use bench::simulated::Simulated;
//!
//! let mut device: Simulated = "capacity=3.3e6,buffer=512,loss=1e-7,seed=4".parse()?;
//! let trial = device.offer(4e6, 1.0);
//! assert_eq!(trial.intended, 4_000_000);
//! assert_eq!(trial.lost / 100_000, 6, "0.7 million less the packets in the buffer at the end");
//! # Ok::<(), bench::simulated::ParseSimulatedError>(())
//! ```

mod draw;
mod fluid;
mod law;
mod measurer;
mod packet_level;
mod text;

pub use packet_level::{Fault, PacketLevelDut};
pub use text::ParseSimulatedError;

use crate::trial::Trial;
use fluid::{Fluid, Phase};
use runtime::PollTimes;
use std::time::Duration;
use traffic::random::Random;

/// Variation of the capacity between trials.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Noise {
    /// None.
    #[default]
    None,
    /// Uniform within plus or minus this share.
    Uniform(f64),
    /// Normal with this share as standard deviation.
    Normal(f64),
    /// Lower by this share in half of the trials.
    Modes(f64),
}

/// Periodic interruption of forwarding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stall {
    /// Duration, seconds.
    pub for_s: f64,
    /// Period, seconds; the first starts at a random time in the first period.
    pub every_s: f64,
}

/// A simulated DUT on a simulated host.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Capacity, packets per second.
    pub capacity_pps: f64,
    /// Queue length, packets.
    pub buffer: u64,
    /// Latency without queueing, nanoseconds.
    pub latency_ns: f64,
    /// Mean of the exponentially distributed jitter, nanoseconds.
    pub jitter_ns: f64,
    /// Variation of the capacity.
    pub noise: Noise,
    /// Probability of loss of each packet at any load.
    pub loss_ratio: f64,
    /// Share of the trials that lose one packet at random.
    pub flaw_share: f64,
    /// Share of the trials in which a CPU is preempted for 2 ms and a ring of 1024 packets overflows.
    pub gap_share: f64,
    /// True if the host interference of these trials is detected.
    pub gaps_detected: bool,
    /// Stalls.
    pub stall: Option<Stall>,
    /// Time after an overload in which all packets are lost, seconds.
    pub recovery_s: f64,
    /// Duration of a reset, seconds; without it, resets are not supported.
    pub reset_s: Option<f64>,
    /// Time for which a change blocks forwarding, seconds; without it, changes are not supported.
    pub change_s: Option<f64>,
    /// Highest rate of the generator, packets per second.
    pub generator_pps: f64,
    pub(crate) seed: u64,
    pub(crate) random: Random,
}

/// Duration of a preemption, seconds, and packets that the ring holds meanwhile.
const GAP_S: f64 = 0.002;
const GAP_RING: f64 = 1024.0;

impl Simulated {
    /// Creates a device with this capacity, a latency of 10 µs, no buffer and no faults, and a generator without limit.
    pub fn with_capacity(capacity_pps: f64) -> Self {
        Self {
            capacity_pps,
            buffer: 0,
            latency_ns: 10_000.0,
            jitter_ns: 0.0,
            noise: Noise::None,
            loss_ratio: 0.0,
            flaw_share: 0.0,
            gap_share: 0.0,
            gaps_detected: true,
            stall: None,
            recovery_s: 0.0,
            reset_s: None,
            change_s: None,
            generator_pps: f64::INFINITY,
            seed: 5,
            random: Random::new(5),
        }
    }

    /// Sets the seed of the random numbers.
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, random: Random::new(seed), ..self }
    }

    /// Executes a trial with one load, without latencies.
    pub fn offer(&mut self, load_pps: f64, duration_s: f64) -> Trial {
        let load = Phase { load_pps, duration_s };
        let mut lost = 0.0;
        let capacity = self.draw_capacity();
        let stalls = self.draw_stalls(duration_s);
        self.fluid(capacity).run(&[self.sent_phase(load)], stalls, |piece| lost += piece.lost());
        self.count(&[load], lost).0
    }

    fn fluid(&self, capacity: f64) -> Fluid {
        Fluid { capacity, buffer: self.buffer as f64, recovery_s: self.recovery_s }
    }

    /// Limits a load to the rate of the generator.
    fn sent_phase(&self, load: Phase) -> Phase {
        Phase { load_pps: load.load_pps.min(self.generator_pps), ..load }
    }

    /// Draws the capacity of a trial.
    fn draw_capacity(&mut self) -> f64 {
        let share = match self.noise {
            Noise::None => 0.0,
            Noise::Uniform(share) => share * (2.0 * self.random.unit() - 1.0),
            Noise::Normal(sigma) => sigma * draw::normal(&mut self.random),
            Noise::Modes(share) => -share * f64::from(self.random.unit() < 0.5),
        };
        (self.capacity_pps * (1.0 + share)).max(0.0)
    }

    /// Draws the stalls of a trial.
    fn draw_stalls(&mut self, duration_s: f64) -> Vec<fluid::Outage> {
        let Some(Stall { for_s, every_s }) = self.stall else { return vec![] };
        let every_s = every_s.max(for_s).max(1e-6);
        let first = self.random.unit() * every_s;
        let count = ((duration_s - first) / every_s).ceil().clamp(0.0, 1e7) as u64;
        let at = |n: u64| first + n as f64 * every_s;
        (0..count).map(|n| fluid::Outage { from_s: at(n), to_s: at(n) + for_s, flush: false }).collect()
    }

    /// Returns the counts of a trial that lost `overload` packets because of its capacity, and the number of packets
    /// lost at random.
    fn count(&mut self, phases: &[Phase], overload: f64) -> (Trial, u64) {
        let packets = |phase: &Phase| (phase.load_pps * phase.duration_s + 1e-6).floor();
        let intended = phases.iter().map(packets).sum::<f64>().max(1.0) as u64;
        let sent = phases.iter().map(|phase| packets(&self.sent_phase(*phase))).sum::<f64>() as u64;
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
            generator: PollTimes { gap_max: Duration::from_micros(1), ..PollTimes::default() },
            dut: if gap {
                let off_cpu = Duration::from_secs_f64(GAP_S);
                PollTimes { gap_max: off_cpu, gap_sum: off_cpu, off_cpu, off_cpu_max: off_cpu }
            } else {
                PollTimes { gap_max: Duration::from_nanos(900), ..PollTimes::default() }
            },
            host_interference: gap && lost > 0 && self.gaps_detected,
            ..Trial::default()
        };
        (trial, stray.min(lost))
    }
}

#[cfg(test)]
mod tests;
