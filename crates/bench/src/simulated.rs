//! Devices that exist only in tests.

use traffic::random::Random;

use crate::search::{Next, Search, Summary};
use crate::trial::{PollGaps, Trial};

/// A device with a limit, on a machine with faults.
#[derive(Clone)]
pub(crate) struct Device {
    /// Packets a second that it forwards without loss. At more it loses the rest, and at least one.
    pub(crate) capacity_pps: f64,
    /// The capacity of a trial differs by up to this share, either way.
    pub(crate) noise: f64,
    /// Share of all packets lost at any load.
    pub(crate) loss_ratio: f64,
    /// Share of the trials that lose a packet for no reason.
    pub(crate) flaw_share: f64,
    /// Share of the trials in which the device is away for 2 ms and its ring of 1024 overflows.
    pub(crate) gap_share: f64,
    /// Whether such trials are known to be the machine's.
    pub(crate) gaps_seen: bool,
    /// What the generator manages, packets a second.
    pub(crate) generator_pps: f64,
    pub(crate) random: Random,
}

impl Device {
    /// Nothing but a limit.
    pub(crate) fn hard(capacity_pps: f64) -> Self {
        Self {
            capacity_pps,
            noise: 0.0,
            loss_ratio: 0.0,
            flaw_share: 0.0,
            gap_share: 0.0,
            gaps_seen: true,
            generator_pps: f64::INFINITY,
            random: Random::new(5),
        }
    }

    pub(crate) fn trial(&mut self, load_pps: f64, duration_s: f64) -> Trial {
        let intended = (load_pps * duration_s).floor().max(1.0) as u64;
        let sent = intended.min((self.generator_pps * duration_s) as u64);
        let capacity = self.capacity_pps * (1.0 + self.noise * (2.0 * self.random.unit() - 1.0));
        let mut lost = 0.0;
        if load_pps.min(self.generator_pps) > capacity {
            lost += (sent as f64 - capacity * duration_s).ceil().max(1.0);
        }
        lost += (sent as f64 * self.loss_ratio + self.random.unit()).floor() * f64::from(self.loss_ratio > 0.0);
        lost += f64::from(self.random.unit() < self.flaw_share);
        let gap = self.random.unit() < self.gap_share;
        if gap {
            lost += (load_pps * 0.002 - 1024.0).max(0.0).floor();
        }
        let lost = (lost as u64).min(sent);
        let gap_ns = if gap { 2_000_000 } else { 900 };
        Trial {
            load_pps,
            duration_s,
            intended,
            sent,
            unsent: intended - sent,
            received: sent - lost,
            lost,
            poll_gap_max_ns: PollGaps { generator: 1_000, worker: gap_ns },
            machine: gap && lost > 0 && self.gaps_seen,
            ..Trial::default()
        }
    }
}

/// Runs a search to its end.
pub(crate) fn run(search: &mut impl Search, device: &mut Device) -> Summary {
    for _ in 0..100_000 {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                assert_eq!(search.next(), Next::Measure { load_pps, duration_s }, "asks for the same until told");
                assert!(load_pps >= 1.0 && load_pps.fract() == 0.0 && duration_s > 0.0);
                search.tell(device.trial(load_pps, duration_s)).unwrap();
            }
            Next::Done(summary) => {
                assert_eq!(search.next(), Next::Done(summary.clone()), "stays done");
                assert_eq!(summary.trials, search.trials().len());
                return summary;
            }
        }
    }
    panic!("no end after 100,000 trials");
}
