//! Counting frames that carry no number.

use traffic::receive::Totals;

/// What is known of a trial's frames without a number.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Plain {
    /// Frames sent without one.
    pub(crate) sent: u64,
    /// Packets that the chain made itself from before the prelude to after the trial.
    pub(crate) created: u64,
    /// Frames of the prelude that carried none.
    pub(crate) prelude: u64,
    /// What came back before the trial.
    pub(crate) before: Totals,
}

impl Plain {
    /// Adds them to what the receiver says of those with a number.
    ///
    /// They are not told from each other, so copies make up for loss; only what is more than was sent shows as copies.
    /// They are told from what the chain makes by its count of that: where some of it does not come out, loss is said to
    /// be larger than it is, never smaller.
    pub(crate) fn add_to(&self, numbered: Totals) -> Totals {
        let (back_before, copies_before) = match self.prelude {
            0 => (self.before.foreign, 0),
            sent => (0, self.before.foreign.saturating_sub(sent)),
        };
        // of what it made, copies of numbered packets are known as such
        let copies = numbered.duplicate + self.before.duplicate + copies_before;
        let back = (numbered.foreign + back_before).saturating_sub(self.created.saturating_sub(copies));
        let received = back.min(self.sent);
        Totals {
            sent: numbered.sent + self.sent,
            received: numbered.received + received,
            lost: numbered.lost + (self.sent - received),
            duplicate: numbered.duplicate + (back - received),
            ..numbered
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 frames of which one has a number, and that many that came back without one.
    fn told(foreign: u64, plain: Plain) -> (u64, u64, u64) {
        let numbered = Totals { sent: 1, received: 1, foreign, frames: foreign + 1, ..Totals::default() };
        let all = Plain { sent: 29, ..plain }.add_to(numbered);
        assert_eq!((all.sent, all.received + all.lost), (30, 30));
        (all.received, all.lost, all.duplicate)
    }

    #[test]
    fn frames_are_counted() {
        assert_eq!(told(29, Plain::default()), (30, 0, 0));
        assert_eq!(told(20, Plain::default()), (21, 9, 0));
        assert_eq!(told(0, Plain::default()), (1, 29, 0));
        assert_eq!(told(31, Plain::default()), (30, 0, 2));
    }

    #[test]
    fn what_the_chain_makes_does_not_stand_in_for_what_it_lost() {
        // for three packets it tells their senders why they are dropped
        assert_eq!(told(29, Plain { created: 3, ..Plain::default() }), (27, 3, 0));
        // two of these came before the trial
        let before = Totals { foreign: 2, ..Totals::default() };
        assert_eq!(told(29, Plain { created: 5, before, ..Plain::default() }), (27, 3, 0));
        assert_eq!(told(2, Plain { created: 5, ..Plain::default() }), (1, 29, 0));
    }

    #[test]
    fn copies_are_no_loss() {
        // a chain that sends everything twice: the numbered one, 29 others, and a prelude of 10 with numbers
        let numbered = Totals { sent: 1, received: 1, duplicate: 1, foreign: 58, ..Totals::default() };
        let before = Totals { received: 10, duplicate: 10, ..Totals::default() };
        let all = Plain { sent: 29, created: 40, before, prelude: 0 }.add_to(numbered);
        assert_eq!((all.received, all.lost, all.duplicate), (30, 0, 1));
        // and one without
        let before = Totals { foreign: 20, ..Totals::default() };
        let all = Plain { sent: 29, created: 40, before, prelude: 10 }.add_to(numbered);
        assert_eq!((all.received, all.lost, all.duplicate), (30, 0, 1));
    }
}
