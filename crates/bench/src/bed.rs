//! What runs trials: a generator with a device under test between its ports, real or simulated.

use crate::trial::Trial;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use traffic::{Delays, Displacements, PaceError};

/// A part of a trial with a load of its own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// Packets a second, one direction.
    pub load_pps: f64,
    /// Seconds.
    pub duration_s: f64,
}

/// A trial asked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ask {
    /// Loads one after the other without a pause; at least one.
    pub phases: Vec<Phase>,
    /// Into how many equal parts of the trial loss is to be told apart; 0 when only its sum matters.
    pub loss_bins: usize,
    /// Whether the variation of delay is wanted.
    pub variation: bool,
    /// Whether it is wanted how far packets were displaced.
    pub order: bool,
    /// Whether payloads are to be compared with those sent, where all packets have the generator's own; what differs is damaged,
    /// and lost.
    pub payload: bool,
    /// The latency of the packet of the first direction that is due so many seconds after the start is wanted (RFC 2544 §26.2).
    pub tag_s: Option<f64>,
    /// What is to be done to the device meanwhile.
    pub act: Option<Act>,
    /// Whether the streams of the load's profile are to be sent, each at its rate in every second; the only phase has the
    /// length and the mean rate of all.
    pub profile: bool,
}

/// Something done to the device during a trial.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Act {
    /// It is reset (RFC 2544 §26.6, RFC 6201) so many seconds after the start.
    Reset {
        /// Seconds.
        at_s: f64,
    },
    /// Its tables or rules are changed all the time.
    Changes {
        /// Changes a second.
        per_second: f64,
    },
}

/// What came of a trial.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// Its counts.
    pub trial: Trial,
    /// Latencies, of all directions; none where no packet was stamped.
    pub delays: Option<Delays>,
    /// When packets were lost, if that was asked for; of all directions together.
    pub losses: Option<Losses>,
    /// How delays varied, if that was asked for.
    pub variation: Option<Variation>,
    /// How far packets were displaced, for each direction, if that was asked for.
    pub order: Vec<Displacements>,
    /// Whether payloads were compared.
    pub payload: bool,
    /// Latency of the packet asked for, nanoseconds; none if it was lost.
    pub tag_ns: Option<f64>,
    /// What was done to the device, if anything was asked for.
    pub acted: Option<Acted>,
    /// What each part of the device did, where it can be looked into.
    pub nodes: Vec<report::Node>,
    /// Packets that the device says it dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What became of each direction's packets, where there are several.
    pub ways: Vec<Way>,
    /// What became of each stream of a profile, if that was asked for.
    pub streams: Vec<StreamSeen>,
}

/// What became of a stream of a profile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamSeen {
    /// In each second.
    pub seconds: Vec<Second>,
    /// Latencies; none where no packet came.
    pub delays: Option<Delays>,
}

/// A stream's packets of one second. `intended = sent + unsent`, and `sent = received + lost`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Second {
    /// On schedule.
    pub intended: u64,
    /// Handed to the port.
    pub sent: u64,
    /// Given up because they would have been too late.
    pub unsent: u64,
    /// Different ones that came back intact, whenever they did.
    pub received: u64,
}

impl Second {
    /// Sent and not received.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// This and that one.
    #[must_use]
    pub fn plus(self, other: Second) -> Second {
        Second {
            intended: self.intended + other.intended,
            sent: self.sent + other.sent,
            unsent: self.unsent + other.unsent,
            received: self.received + other.received,
        }
    }
}

impl StreamSeen {
    /// All seconds together.
    pub fn sum(&self) -> Second {
        self.seconds.iter().copied().fold(Second::default(), Second::plus)
    }
}

/// Packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// Handed to the port.
    pub sent: u64,
    /// Different ones that came back intact.
    pub received: u64,
}

/// When packets were lost, by the times at which they were due.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Losses {
    /// Packets due in each part of the trial that did not come back, and packets due in it.
    pub bins: Vec<(u64, u64)>,
    /// When the first that was lost was due, seconds after the start.
    pub first_s: Option<f64>,
    /// When the last that was lost was due.
    pub last_s: Option<f64>,
}

impl Losses {
    /// These and those of another stream in the same trial, told apart into as many parts.
    #[must_use]
    pub(crate) fn plus(mut self, other: Losses) -> Losses {
        for ((lost, due), (more_lost, more_due)) in self.bins.iter_mut().zip(other.bins) {
            (*lost, *due) = (*lost + more_lost, *due + more_due);
        }
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(of(a, b)),
            (a, b) => a.or(b),
        };
        self.first_s = both(self.first_s, other.first_s, f64::min);
        self.last_s = both(self.last_s, other.last_s, f64::max);
        self
    }
}

/// How delays of packets in a row of one direction varied.
#[derive(Clone, PartialEq, Debug)]
pub struct Variation {
    /// Amounts of `IPDV(i) = D(i) − D(i−1)` of consecutive packets that both came (RFC 3393, RFC 5481 §4.1).
    pub ipdv: Delays,
    /// Of these, how many were above 0: longer than the one before.
    pub rising: u64,
    /// Interarrival jitter at the end, nanoseconds (RFC 3550 §6.4.1); the first packet gives no difference. Of several
    /// directions it is that of the first.
    pub rfc3550_ns: f64,
    /// Its highest value, of all directions.
    pub rfc3550_max_ns: f64,
}

/// What was done to the device.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Acted {
    /// Changes that were made, or resets.
    pub done: u64,
    /// Changes that the device refused.
    pub failed: u64,
    /// When it began, seconds after the start of the trial.
    pub from_s: f64,
    /// When it was over.
    pub to_s: f64,
}

/// Why there was no trial.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BedError {
    /// A load or a length that cannot be.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// This device cannot do what was asked for.
    #[error("{dut} cannot be {what}; {remedy}")]
    Cannot {
        /// The device.
        dut: String,
        /// Such as `reset`, or `changed while it forwards`.
        what: &'static str,
        /// What helps.
        remedy: &'static str,
    },
    /// The device is gone.
    #[error("{0}")]
    Gone(String),
    /// The user wants an end.
    #[error("interrupted")]
    Interrupted,
}

/// A generator, a device under test, and what is sent.
pub trait Bed {
    /// Runs a trial and waits until all is through.
    ///
    /// # Errors
    /// [`BedError`]. Loss is none.
    fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError>;
}

impl Ask {
    /// One load.
    pub fn load(load_pps: f64, duration_s: f64) -> Ask {
        Ask { phases: vec![Phase { load_pps, duration_s }], ..Ask::default() }
    }

    /// Seconds, all phases.
    pub fn duration_s(&self) -> f64 {
        self.phases.iter().map(|p| p.duration_s).sum()
    }
}
