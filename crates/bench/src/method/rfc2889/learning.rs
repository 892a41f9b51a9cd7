//! Trials that show which addresses a switch has learned.

use crate::trial::{Macs, TrialInput, TrialOutput};

/// Attempts of a step, while the generator leaves frames unsent.
const ATTEMPTS: u32 = 4;
/// Rate of frames to addresses, packets per second, which every DUT should forward.
const LOOKUP_PPS: f64 = 20_000.0;

/// Addresses that are sent from a port, preceded and followed by frames to them that enter by the same port. A switch that
/// knows an address at that port filters the frame to it (IEEE 802.1D-2004 §7.7), and floods that to an unknown one. So two
/// ports are enough where RFC 2889 §5.7 has a third one for flooded frames.
#[derive(Default)]
pub(super) struct Learning {
    step: Step,
    /// Number of the first address; each round has new ones.
    first: u64,
    lost_before: u64,
    sent: u64,
    interfered: bool,
    /// Attempts of the step.
    attempts: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    /// Frames to the addresses, which are unknown yet.
    #[default]
    Before,
    /// Frames from the addresses.
    Learn,
    /// Frames to the addresses again.
    After,
}

/// Counts of the addresses of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Learned {
    /// Addresses of the round.
    pub(super) offered: u64,
    /// Those that frames were sent from.
    pub(super) sent: u64,
    /// Frames to them that did not arrive before, when they were unknown.
    pub(super) lost_before: u64,
    /// Addresses to which frames are filtered.
    pub(super) learned: u64,
    /// Frames to them that the generator did not send afterwards.
    pub(super) not_looked_up: u64,
    /// True if the host may have caused loss of frames from addresses.
    pub(super) interfered: bool,
}

impl Learning {
    /// Returns the next trial of a round that learns `addresses` at `rate_pps`.
    pub(super) fn next(&self, addresses: u64, rate_pps: f64) -> TrialInput {
        let (pps, is_source) = match self.step {
            Step::Before | Step::After => (LOOKUP_PPS.min(rate_pps), false),
            Step::Learn => (rate_pps, true),
        };
        // rounded down in a schedule
        let input = TrialInput::constant(pps, (addresses as f64 + 0.5) / pps);
        let macs = Macs { first: self.first, count: addresses as u32, is_source };
        TrialInput { macs: Some(macs), ..input }
    }

    /// Records the output of the trial; returns the outcome at the end of a round. With `repeats_learning` addresses that
    /// the generator did not send are sent again.
    pub(super) fn record(&mut self, output: &TrialOutput, repeats_learning: bool) -> Option<Learned> {
        let trial = &output.trial;
        // frames to addresses teach nothing, and can be sent again
        let is_incomplete =
            trial.unsent != 0 || self.step == Step::Before && trial.lost != 0 && trial.host_interference;
        let may_repeat = self.step != Step::Learn || repeats_learning;
        self.attempts += 1;
        if is_incomplete && may_repeat && self.attempts < ATTEMPTS {
            return None;
        }
        self.attempts = 0;
        match self.step {
            Step::Before => {
                self.lost_before = trial.lost;
                self.step = Step::Learn;
                None
            }
            Step::Learn => {
                self.sent = trial.sent;
                self.interfered = trial.host_interference;
                self.step = Step::After;
                None
            }
            Step::After => {
                self.step = Step::Before;
                self.first += trial.intended;
                Some(Learned {
                    offered: trial.intended,
                    sent: self.sent,
                    lost_before: self.lost_before,
                    learned: trial.lost.saturating_sub(self.lost_before),
                    not_looked_up: trial.unsent,
                    interfered: self.interfered,
                })
            }
        }
    }
}

impl Learned {
    /// Returns true if all addresses were learned of which that is known.
    pub(super) fn is_all(&self) -> bool {
        self.learned != 0 && self.learned + self.lost_before + self.not_looked_up >= self.sent
    }

    /// Returns true if the generator did not send many of the frames.
    pub(super) fn is_starved(&self) -> bool {
        (self.sent as f64) < 0.99 * self.offered as f64
    }

    /// Returns a deviation if frames to unknown addresses did not arrive.
    pub(super) fn deviation(&self) -> Option<String> {
        let Learned { offered, lost_before, .. } = *self;
        (lost_before != 0).then(|| {
            format!(
                "frames to {lost_before} of {offered} unknown addresses did not arrive at another port: the DUT does not flood \
                 them, or loses frames"
            )
        })
    }
}

/// A switch for tests: room for addresses, and a rate up to which it learns.
#[cfg(test)]
pub(super) mod tests {
    use crate::trial::{Measurer, MeasurerError, Trial, TrialInput, TrialOutput};
    use std::collections::HashSet;

    pub(in crate::method::rfc2889) struct Switch {
        pub(in crate::method::rfc2889) capacity: usize,
        pub(in crate::method::rfc2889) learned_pps: f64,
        known: HashSet<u64>,
    }

    impl Switch {
        pub(in crate::method::rfc2889) fn new(capacity: usize, learned_pps: f64) -> Self {
            Switch { capacity, learned_pps, known: HashSet::new() }
        }
    }

    impl Measurer for Switch {
        fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
            let (load_pps, duration_s) = (input.phases[0].load_pps, input.duration_s());
            let intended = (load_pps * duration_s) as u64;
            let macs = input.macs.unwrap();
            assert_eq!(intended, u64::from(macs.count));
            let mut received = 0;
            for address in macs.first..macs.first + intended {
                if macs.is_source {
                    received += 1;
                    let is_late = load_pps > self.learned_pps && address % 100 == 0;
                    if !is_late && self.known.len() < self.capacity {
                        self.known.insert(address);
                    }
                } else {
                    received += u64::from(!self.known.contains(&address));
                }
            }
            let trial = Trial {
                load_pps,
                duration_s,
                intended,
                sent: intended,
                received,
                lost: intended - received,
                ..Trial::default()
            };
            Ok(TrialOutput { trial, ..TrialOutput::default() })
        }
    }
}
