//! Counts of a trial.

use super::input::Phase;
use runtime::PollTimes;
use std::time::Duration;
use traffic::{pacer, receiver};

/// Counts of a trial, read after the generator has stopped and the path has drained.
///
/// `sent + unsent = intended` and `received + lost = sent`.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Trial {
    /// Offered rate in packets per second and direction.
    pub load_pps: f64,
    /// Number of directions; 0 counts as 1. Counts are sums over all directions, rates are per direction.
    pub directions: u8,
    /// Intended duration, seconds.
    pub duration_s: f64,
    /// Phases, if there are several; `load_pps` is the load of the first.
    pub phases: Vec<Phase>,
    /// Packets of the schedule.
    pub intended: u64,
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets that were not sent because they would have been too late; they count as lost.
    pub unsent: u64,
    /// Those of them that were late because the packet pool was empty: the DUT holds its packets.
    pub unsent_no_buffer: u64,
    /// Packets received intact, without duplicates.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Duplicates of received packets.
    pub duplicate: u64,
    /// Received packets with a sequence number below an earlier one.
    pub reordered: u64,
    /// Packets with a corrupt probe or payload; they count as lost.
    pub corrupt: u64,
    /// Packets too late to tell from duplicates; they count as lost.
    pub late: u64,
    /// Poll gaps and preemption of the generator.
    pub generator: PollTimes,
    /// Those of the DUT's threads, the longest of any; zero if unknown.
    pub dut: PollTimes,
    /// Packets that NFs of the DUT dropped; part of `lost`, and never caused by the host.
    pub dropped_by_nfs: u64,
    /// Packets that did not fit into the queue of the port to the DUT, which has not taken earlier ones from it; part of
    /// `lost`, or with TCP connections frames that were lost with theirs.
    pub tx_full: u64,
    /// Histogram of latencies, encoded by [`report::hdr::encode`].
    pub latency_hdr: Option<String>,
    /// Histogram of the lateness of departures, in the same encoding.
    pub lateness_hdr: Option<String>,
    /// True if packets were lost that no NF dropped, and generator or DUT was preempted for longer than buffers last.
    /// Such a trial is kept, and counts if it meets the goal or if those that the DUT lost in any case fail it; otherwise
    /// a load never fails because of it.
    pub host_interference: bool,
    /// TCP connections, if the traffic consists of them. The packet counts are then those of whole connections: all
    /// frames that the client of a connection sends if nothing is lost are lost with a connection that fails.
    pub connections: Option<report::Connections>,
}

/// Inconsistent counts of a trial.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("trial of {load_pps} packets/s for {duration_s} s: {problem}")]
pub struct InconsistentCounts {
    /// Load of the trial.
    pub load_pps: f64,
    /// Duration of the trial.
    pub duration_s: f64,
    /// Inconsistency.
    pub problem: String,
}

impl Trial {
    /// Creates a trial from the counts of the schedule and the receiver; the other fields are empty.
    pub fn new(load_pps: f64, duration_s: f64, schedule: pacer::Totals, received: receiver::Totals) -> Self {
        Self {
            load_pps,
            duration_s,
            intended: schedule.intended,
            sent: schedule.sent,
            unsent: schedule.unsent,
            received: received.received,
            lost: received.lost,
            duplicate: received.duplicate,
            reordered: received.reordered,
            corrupt: received.corrupt,
            late: received.late,
            ..Self::default()
        }
    }

    /// Returns the share of the intended packets that was not received, including unsent ones (RFC 9971, Trial Loss
    /// Ratio).
    pub fn loss_ratio(&self) -> f64 {
        ratio(self.unsent + self.lost, self.intended)
    }

    /// Returns the share of the packets sent, or not sent for lack of a buffer, that was not received: the loss of the DUT
    /// alone.
    pub fn device_loss_ratio(&self) -> f64 {
        ratio(self.lost + self.unsent_no_buffer, self.sent + self.unsent_no_buffer)
    }

    /// Returns the packets that the DUT lost whatever the host did: dropped by its NFs, damaged, or not sent because it
    /// held all buffers.
    pub fn lost_by_dut(&self) -> u64 {
        (self.dropped_by_nfs + self.corrupt).min(self.lost) + self.unsent_no_buffer
    }

    /// Returns the load multiplied by the share that was received (RFC 9971, Trial Forwarding Rate), per direction.
    pub fn forwarding_pps(&self) -> f64 {
        self.load_pps * (1.0 - self.loss_ratio())
    }

    /// Returns the rate sent in packets per second and direction.
    pub fn sent_pps(&self) -> f64 {
        self.sent as f64 / self.duration_s / f64::from(self.directions.max(1))
    }

    /// Checks that the counts add up.
    ///
    /// # Errors
    /// [`InconsistentCounts`].
    pub fn check(&self) -> Result<(), InconsistentCounts> {
        let Self { load_pps, duration_s, intended, sent, unsent, received, lost, .. } = *self;
        let error = |problem: String| Err(InconsistentCounts { load_pps, duration_s, problem });
        if !(load_pps > 0.0 && load_pps.is_finite() && duration_s > 0.0 && duration_s.is_finite()) {
            return error("load and duration must be above zero".to_owned());
        }
        if intended == 0 {
            return error("no packet is intended; use a longer duration".to_owned());
        }
        if sent.checked_add(unsent) != Some(intended) {
            return error(format!("{sent} sent and {unsent} unsent are not {intended} intended"));
        }
        if received.checked_add(lost) != Some(sent) {
            return error(format!("{received} received and {lost} lost are not {sent} sent"));
        }
        Ok(())
    }
}

impl From<&Trial> for report::Trial {
    fn from(trial: &Trial) -> report::Trial {
        report::Trial {
            load_pps: trial.load_pps,
            duration_s: trial.duration_s,
            intended: trial.intended,
            sent: trial.sent,
            unsent: trial.unsent,
            unsent_no_buffer: trial.unsent_no_buffer,
            received: trial.received,
            lost: trial.lost,
            duplicate: trial.duplicate,
            reordered: trial.reordered,
            corrupt: trial.corrupt,
            late: trial.late,
            phases: trial
                .phases
                .iter()
                .map(|p| report::Phase { load_pps: p.load_pps, duration_s: p.duration_s })
                .collect(),
            dropped_by_nfs: trial.dropped_by_nfs,
            tx_full: trial.tx_full,
            poll_gap_max_ns: nanoseconds(trial.generator.gap_max.max(trial.dut.gap_max)),
            generator: poll_times(trial.generator),
            dut: poll_times(trial.dut),
            host_interference: trial.host_interference,
            latency_hdr: trial.latency_hdr.clone(),
            lateness_hdr: trial.lateness_hdr.clone(),
            connections: trial.connections.clone(),
        }
    }
}

/// Returns none if nothing is known.
fn poll_times(times: PollTimes) -> Option<report::PollTimes> {
    (times != PollTimes::default()).then(|| report::PollTimes {
        gap_max_ns: nanoseconds(times.gap_max),
        gap_sum_ns: nanoseconds(times.gap_sum),
        off_cpu_ns: nanoseconds(times.off_cpu),
        off_cpu_max_ns: nanoseconds(times.off_cpu_max),
    })
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
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
    fn rejects_inconsistent_counts() {
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
        let error = Trial { unsent: 1, ..good }.check().unwrap_err().to_string();
        assert!(error.contains("10 sent and 1 unsent"), "{error}");
    }

    #[test]
    fn is_created_from_counts() {
        let schedule = pacer::Totals { intended: 10, sent: 9, unsent: 1 };
        let received = receiver::Totals { sent: 9, received: 7, lost: 2, duplicate: 3, ..receiver::Totals::default() };
        let trial = Trial::new(5.0, 2.0, schedule, received);
        assert_eq!(trial.check(), Ok(()));
        assert_eq!((trial.duplicate, trial.loss_ratio()), (3, 0.3));
    }
}
