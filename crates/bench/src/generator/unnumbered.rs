//! Accounting of packets without a sequence number.

use traffic::receiver::Totals;

/// Counts of a trial's packets without a sequence number.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct UnnumberedCounts {
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets that the device created between the start of the warm-up and the end of the trial.
    pub(crate) created: u64,
    /// Warm-up packets sent.
    pub(crate) warm_up: u64,
    /// Packets received before the trial.
    pub(crate) before: Totals,
}

impl UnnumberedCounts {
    /// Adds them to the totals of packets with a sequence number.
    ///
    /// Packets without a number cannot be distinguished, so duplicates compensate for loss; only packets beyond those
    /// sent count as duplicates. Packets that the device created are subtracted; if some of those were lost, the
    /// reported loss is too large, never too small.
    pub(crate) fn add_to(&self, numbered: Totals) -> Totals {
        let (received_before, duplicates_before) = match self.warm_up {
            0 => (self.before.foreign, 0),
            sent => (0, self.before.foreign.saturating_sub(sent)),
        };
        // created packets that are duplicates of numbered ones are already counted
        let duplicates = numbered.duplicate + self.before.duplicate + duplicates_before;
        let created = self.created.saturating_sub(duplicates);
        let unnumbered = (numbered.foreign + received_before).saturating_sub(created);
        let received = unnumbered.min(self.sent);
        Totals {
            sent: numbered.sent + self.sent,
            received: numbered.received + received,
            lost: numbered.lost + (self.sent - received),
            duplicate: numbered.duplicate + (unnumbered - received),
            ..numbered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns received, lost and duplicate packets of 30 sent, one of them numbered, if `foreign` packets without a
    /// number are received.
    fn totals(foreign: u64, counts: UnnumberedCounts) -> (u64, u64, u64) {
        let numbered = Totals { sent: 1, received: 1, foreign, frames: foreign + 1, ..Totals::default() };
        let all = UnnumberedCounts { sent: 29, ..counts }.add_to(numbered);
        assert_eq!((all.sent, all.received + all.lost), (30, 30));
        (all.received, all.lost, all.duplicate)
    }

    #[test]
    fn counts_received_packets() {
        assert_eq!(totals(29, UnnumberedCounts::default()), (30, 0, 0));
        assert_eq!(totals(20, UnnumberedCounts::default()), (21, 9, 0));
        assert_eq!(totals(0, UnnumberedCounts::default()), (1, 29, 0));
        assert_eq!(totals(31, UnnumberedCounts::default()), (30, 0, 2));
    }

    #[test]
    fn created_packets_do_not_hide_loss() {
        // the device sends ICMP errors for three dropped packets
        assert_eq!(totals(29, UnnumberedCounts { created: 3, ..UnnumberedCounts::default() }), (27, 3, 0));
        // two of them were received before the trial
        let before = Totals { foreign: 2, ..Totals::default() };
        assert_eq!(totals(29, UnnumberedCounts { created: 5, before, ..UnnumberedCounts::default() }), (27, 3, 0));
        assert_eq!(totals(2, UnnumberedCounts { created: 5, ..UnnumberedCounts::default() }), (1, 29, 0));
    }

    #[test]
    fn duplicates_do_not_count_as_loss() {
        // the device duplicates everything: one numbered packet, 29 others, and 10 numbered warm-up packets
        let numbered = Totals { sent: 1, received: 1, duplicate: 1, foreign: 58, ..Totals::default() };
        let before = Totals { received: 10, duplicate: 10, ..Totals::default() };
        let all = UnnumberedCounts { sent: 29, created: 40, before, warm_up: 0 }.add_to(numbered);
        assert_eq!((all.received, all.lost, all.duplicate), (30, 0, 1));
        // and 10 warm-up packets without a number
        let before = Totals { foreign: 20, ..Totals::default() };
        let all = UnnumberedCounts { sent: 29, created: 40, before, warm_up: 10 }.add_to(numbered);
        assert_eq!((all.received, all.lost, all.duplicate), (30, 0, 1));
    }
}
