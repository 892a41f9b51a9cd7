//! Comparison of the counts that a sandbox reports with the packets that crossed its boundary.

use runtime::{MAX_POOL_PACKETS, NfSummary};

/// More packets than a CPU can process per second, which takes several nanoseconds for each.
const MAX_PACKETS_PER_SECOND: f64 = 1e9;

/// Packets that entered and left a sandbox, and those that its processes reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) entered: u64,
    pub(super) left: u64,
    pub(super) created: u64,
    pub(super) dropped: u64,
    pub(super) held: u64,
}

/// The run that counts belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// Number of CPUs of the sandbox.
    pub(super) cpus: usize,
    /// Number of processes so far.
    pub(super) starts: u64,
    /// Number of hops, each of which a packet visits at most once.
    pub(super) hops: usize,
    /// True if the counts are final; otherwise reports and the host side's counts differ in age.
    pub(super) ended: bool,
    /// True if every packet that left the sandbox is in the reports: the only process has sent its final report.
    pub(super) complete: bool,
}

impl Counts {
    /// Returns the number of packets in the sandbox; negative if reports lag or are forged.
    pub(super) fn in_flight(&self) -> i64 {
        let [entered, left, created, dropped, held] =
            [self.entered, self.left, self.created, self.dropped, self.held].map(i128::from);
        (entered + created - left - dropped - held).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Returns the reason why the reported counts cannot be true, if so.
    pub(super) fn problem<'a>(&self, nfs: impl Iterator<Item = &'a NfSummary>, run: Run) -> Option<String> {
        let Counts { entered, left, created, dropped, held } = *self;
        let possible = (run.seconds.max(1.0) * run.cpus.max(1) as f64 * MAX_PACKETS_PER_SECOND) as u64;
        for (what, count) in [("created", created), ("dropped", dropped), ("held", held)] {
            if count > possible {
                return Some(format!("{what} {count} packets in {:.0} s", run.seconds));
            }
        }
        let available = entered.saturating_add(created);
        let max_visits = available.saturating_mul(run.hops as u64);
        for nf in nfs {
            if nf.packets > possible.saturating_mul(run.hops as u64) || run.ended && nf.packets > max_visits {
                return Some(format!("nf {:?} processed {} of {available} packets", nf.name, nf.packets));
            }
        }
        if !run.ended {
            return None;
        }
        let finished = dropped.saturating_add(held);
        if finished > available || run.complete && finished.saturating_add(left) > available {
            return Some(format!(
                "{entered} packets entered and {left} left, but it created {created}, dropped {dropped} and held {held}"
            ));
        }
        // packets are lost with a process; more than entered and than its pool has were not there
        let lost = self.in_flight().max(0) as u64;
        let buffers = run.starts.saturating_mul(MAX_POOL_PACKETS as u64);
        (lost > entered.saturating_add(buffers))
            .then(|| format!("created {created} packets, of which {lost} neither left, nor were dropped or held"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { seconds: 10.0, cpus: 1, starts: 1, hops: 2, ended: true, complete: true };

    fn problem(counts: Counts, packets: u64, run: Run) -> Option<String> {
        let nf = NfSummary { name: "bad".into(), packets, ..Default::default() };
        counts.problem([nf].iter(), run)
    }

    #[test]
    fn possible_counts_are_accepted() {
        let counts = Counts { entered: 100, left: 150, created: 80, dropped: 20, held: 10 };
        assert_eq!(problem(counts, 180, RUN), None);
        // the process ended and lost packets, and had returned packets that it did not report
        let failed = Run { complete: false, starts: 2, ..RUN };
        assert_eq!(problem(Counts { dropped: 0, ..counts }, 180, failed), None);
        assert_eq!(problem(Counts { entered: 0, created: 0, left: 5, ..Counts::default() }, 0, failed), None);
        // reports are older than the counts of the host side, or newer
        let running = Run { ended: false, complete: false, ..RUN };
        assert_eq!(problem(Counts { entered: 10, dropped: 12, ..Counts::default() }, 50, running), None);
    }

    #[test]
    fn impossible_counts_are_rejected() {
        let counts = Counts { entered: 100, left: 100, ..Counts::default() };
        for (counts, packets, run) in [
            // a packet more left than was there
            (Counts { left: 101, ..counts }, 100, RUN),
            (Counts { dropped: 1, ..counts }, 100, RUN),
            (Counts { held: 1, ..counts }, 100, RUN),
            // dropped more than there was, even if processes ended
            (Counts { dropped: 101, ..counts }, 100, Run { complete: false, ..RUN }),
            // created more than left or can have been lost
            (Counts { created: 1_000_000, ..counts }, 100, RUN),
            (Counts { created: 1_000_000, ..counts }, 100, Run { complete: false, starts: 2, ..RUN }),
            // processed more than was there
            (counts, 201, RUN),
            // more than a CPU can process, though it adds up
            (Counts { created: 1 << 40, dropped: 1 << 40, ..counts }, 100, RUN),
            (Counts { created: u64::MAX, dropped: u64::MAX, ..counts }, 100, Run { ended: false, ..RUN }),
            (counts, 1 << 40, Run { ended: false, ..RUN }),
        ] {
            assert!(problem(counts, packets, run).is_some(), "{counts:?} {packets} {run:?}");
        }
    }
}
