//! One trial: a load offered for a time, and what came of it.

use crate::bed::Phase;
use traffic::{pace, receive};

/// Longest times that polling loops were away during a trial, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PollGaps {
    /// The generator's, sending or receiving.
    pub generator: u64,
    /// The worst of the device's workers, where they can be asked; 0 where not.
    pub worker: u64,
}

/// What a trial measured. Counts are read after the generator has stopped and the path is drained.
///
/// `sent + unsent = intended` and `received + lost = sent`.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Trial {
    /// Intended packets a second, one direction.
    pub load_pps: f64,
    /// Directions at once; 0 counts as 1. All counts are their sums, rates those of one.
    pub directions: u8,
    /// Intended length, seconds.
    pub duration_s: f64,
    /// Its phases, where there are several; `load_pps` is that of the first.
    pub phases: Vec<Phase>,
    /// Packets on schedule.
    pub intended: u64,
    /// Packets handed to the port.
    pub sent: u64,
    /// Packets given up because they would have been too late; they count as lost.
    pub unsent: u64,
    /// Different packets received intact.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Further copies of received packets.
    pub duplicate: u64,
    /// Received packets with a number below one seen before.
    pub reordered: u64,
    /// Damaged probes; their packets are among those lost.
    pub corrupt: u64,
    /// Packets so late that it is not known whether they are copies; they are among those lost.
    pub late: u64,
    /// Longest times that loops were away.
    pub poll_gap_max_ns: PollGaps,
    /// Latencies, a histogram as [`report::hdr::encode`] writes it.
    pub latency_hdr: Option<String>,
    /// How late packets left, in the same form.
    pub late_hdr: Option<String>,
    /// Whether the machine was in the way: there is loss and a loop was away longer than buffers last. Such a trial
    /// stays on record and counts where it has no loss; a load is never refused because of it alone.
    pub machine: bool,
}

/// A trial that contradicts itself.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("trial of {load_pps} packets/s for {duration_s} s: {problem}")]
pub struct BadTrial {
    /// Its load.
    pub load_pps: f64,
    /// Its length.
    pub duration_s: f64,
    /// What is wrong.
    pub problem: String,
}

impl Trial {
    /// A trial from what the schedule and the receiver counted; the rest is for the caller to fill in.
    pub fn new(load_pps: f64, duration_s: f64, pace: pace::Totals, received: receive::Totals) -> Self {
        Self {
            load_pps,
            duration_s,
            intended: pace.intended,
            sent: pace.sent,
            unsent: pace.unsent,
            received: received.received,
            lost: received.lost,
            duplicate: received.duplicate,
            reordered: received.reordered,
            corrupt: received.corrupt,
            late: received.late,
            ..Self::default()
        }
    }

    /// Share of the intended packets that was not received, unsent ones included (RFC 9971, Trial Loss Ratio).
    pub fn loss_ratio(&self) -> f64 {
        ratio(self.unsent + self.lost, self.intended)
    }

    /// Share of the packets sent that was not received: what the device alone did.
    pub fn device_loss_ratio(&self) -> f64 {
        ratio(self.lost, self.sent)
    }

    /// The load times the share that was received (RFC 9971, Trial Forwarding Rate); one direction, the mean of all.
    pub fn forwarding_pps(&self) -> f64 {
        self.load_pps * (1.0 - self.loss_ratio())
    }

    /// Packets a second that were sent, one direction.
    pub fn sent_pps(&self) -> f64 {
        self.sent as f64 / self.duration_s / f64::from(self.directions.max(1))
    }

    /// # Errors
    /// [`BadTrial`] if counts do not add up.
    pub fn check(&self) -> Result<(), BadTrial> {
        let Self { load_pps, duration_s, intended, sent, unsent, received, lost, .. } = *self;
        let bad = |problem: String| Err(BadTrial { load_pps, duration_s, problem });
        if !(load_pps > 0.0 && load_pps.is_finite() && duration_s > 0.0 && duration_s.is_finite()) {
            return bad("load and duration must be above zero".to_owned());
        }
        if intended == 0 {
            return bad("no packet was intended; make it longer".to_owned());
        }
        if sent.checked_add(unsent) != Some(intended) {
            return bad(format!("{sent} sent and {unsent} unsent are not {intended} intended"));
        }
        if received.checked_add(lost) != Some(sent) {
            return bad(format!("{received} received and {lost} lost are not {sent} sent"));
        }
        Ok(())
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        let trial = Trial {
            load_pps: 1000.0,
            duration_s: 1.0,
            intended: 1000,
            sent: 900,
            unsent: 100,
            received: 855,
            lost: 45,
            ..Trial::default()
        };
        assert_eq!(trial.check(), Ok(()));
        assert_eq!(trial.loss_ratio(), 0.145);
        assert_eq!(trial.device_loss_ratio(), 0.05);
        assert_eq!(trial.forwarding_pps(), 855.0);
        assert_eq!((trial.sent_pps(), Trial { directions: 2, ..trial }.sent_pps()), (900.0, 450.0));
        assert_eq!(Trial::default().loss_ratio(), 0.0);
    }

    #[test]
    fn contradictions() {
        let good =
            Trial { load_pps: 10.0, duration_s: 1.0, intended: 10, sent: 10, received: 9, lost: 1, ..Trial::default() };
        assert!(good.check().is_ok());
        for bad in [
            Trial { load_pps: f64::NAN, ..good.clone() },
            Trial { duration_s: 0.0, ..good.clone() },
            Trial { intended: 0, ..good.clone() },
            Trial { unsent: 1, ..good.clone() },
            Trial { received: 11, lost: 0, ..good.clone() },
            Trial { sent: u64::MAX, unsent: 11, ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let why = Trial { unsent: 1, ..good }.check().unwrap_err().to_string();
        assert!(why.contains("10 sent and 1 unsent"), "{why}");
    }

    #[test]
    fn from_what_was_counted() {
        let pace = pace::Totals { intended: 10, sent: 9, unsent: 1 };
        let received = receive::Totals { sent: 9, received: 7, lost: 2, duplicate: 3, ..receive::Totals::default() };
        let trial = Trial::new(5.0, 2.0, pace, received);
        assert_eq!(trial.check(), Ok(()));
        assert_eq!((trial.duplicate, trial.loss_ratio()), (3, 0.3));
    }
}
