//! Times at which traced probes leave and reach the generator.

use packet::clock;
use std::collections::HashMap;
use std::ops::Range;
use traffic::Probe;
use traffic::probe::Sample;
use traffic::receiver::MAX_TRACED;

/// Times of a traced probe in the generator, in cycles of the time-stamp counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProbeTimes {
    /// The probe: [`Probe::identity`].
    pub(crate) probe: u64,
    /// Time at which the schedule had its burst depart.
    pub(crate) due: u64,
    /// Time at which it was offered to the port.
    pub(crate) sent: u64,
    /// Stamp in the probe, and time at which it was received; none if it was lost.
    pub(crate) arrival: Option<(u64, u64)>,
}

/// Records the departures of the probes of a sample.
pub(super) struct ProbeLog {
    sample: Sample,
    /// Time at which the packets that are sent now were due.
    pub(super) due: u64,
    departures: Vec<ProbeTimes>,
}

impl ProbeLog {
    pub(super) fn new(sample: Sample) -> ProbeLog {
        ProbeLog { sample, due: 0, departures: Vec::with_capacity(MAX_TRACED) }
    }

    /// Records the departure of a burst with these numbers of a stream.
    pub(super) fn departs(&mut self, stream: u8, numbers: Range<u64>) {
        let sent = clock::cycles();
        for sequence in numbers {
            let probe = Probe { stream, sequence, stamp: 0 };
            if self.sample.contains(probe) && self.departures.len() < MAX_TRACED {
                self.departures.push(ProbeTimes { probe: probe.identity(), due: self.due, sent, arrival: None });
            }
        }
    }

    /// Returns the times of all probes that departed, with their arrivals.
    pub(super) fn times(mut self, arrivals: &[(Probe, u64)]) -> Vec<ProbeTimes> {
        let arrivals: HashMap<u64, (u64, u64)> =
            arrivals.iter().map(|(probe, at)| (probe.identity(), (probe.stamp, *at))).collect();
        for times in &mut self.departures {
            times.arrival = arrivals.get(&times.probe).copied();
        }
        self.departures
    }
}
