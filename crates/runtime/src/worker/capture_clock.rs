//! Time from captures: packets in the order of their timestamps, and the timers of the milliseconds between them.

use std::time::Duration;

/// The step of time; timers run at each. A batch has packets of one step.
const STEP_NS: u64 = 1_000_000;
/// Longest time between two packets in which timers run at every step; the rest is skipped in one.
const MAX_STEPPED: Duration = Duration::from_secs(600);

/// The clock of a worker whose packets come from captures.
#[derive(Debug, Default)]
pub(super) struct CaptureClock {
    /// Time of the first packet in ns.
    pub(super) origin: Option<u64>,
    /// Time since the first packet, in whole steps.
    pub(super) now: Duration,
    /// Buffer for the argument of [`next`](CaptureClock::next).
    pub(super) times: Vec<(usize, u64)>,
}

/// The next packets to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextPackets {
    /// Index of the input.
    pub(super) input: usize,
    /// Time on the clock.
    pub(super) now: Duration,
    /// Time in ns of the last packets to receive.
    pub(super) until: u64,
}

impl CaptureClock {
    /// Returns the packets that come before those of all other inputs and are of one step. `next` has the index of each
    /// input with packets and the time of its next one in ns, in the order in which packets of equal times are
    /// received.
    pub(super) fn next(&mut self, next: &[(usize, u64)]) -> Option<NextPackets> {
        let &(input, ns) = next.iter().min_by_key(|(_, ns)| *ns)?;
        let since = ns.saturating_sub(*self.origin.get_or_insert(ns));
        let end_of_step = ns.saturating_add(STEP_NS - 1 - since % STEP_NS);
        // packets of another input at the same time are received before those of later inputs
        let before = |&(other, at): &(usize, u64)| if other < input { at.saturating_sub(1) } else { at };
        let others = next.iter().filter(|(other, _)| *other != input).map(before).min();
        let now = self.now.max(Duration::from_nanos(since - since % STEP_NS));
        Some(NextPackets { input, now, until: others.map_or(end_of_step, |at| at.min(end_of_step)) })
    }

    /// Advances by a step towards `to`, and returns false if that is reached.
    pub(super) fn step(&mut self, to: Duration) -> bool {
        if self.now >= to {
            return false;
        }
        self.now = to.min(self.now + Duration::from_nanos(STEP_NS));
        true
    }

    /// Returns the time at which to leave out steps on the way to `to`.
    pub(super) fn skip_after(&self, to: Duration) -> Duration {
        to.min(self.now + MAX_STEPPED)
    }

    /// Advances to `to` in one step.
    pub(super) fn skip(&mut self, to: Duration) {
        self.now = self.now.max(to);
    }

    /// Returns the time of the next step.
    pub(super) fn next_step(&self) -> Duration {
        self.now + Duration::from_nanos(STEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merges_inputs_by_time_and_splits_them_at_steps(
            gaps in prop::collection::vec(prop::collection::vec(0..3_000_000u64, 0..40), 1..4),
            start in 0..5_000_000_000u64,
        ) {
            let inputs: Vec<Vec<u64>> = gaps.iter().map(|gaps| {
                gaps.iter().scan(start, |at, gap| { *at += gap; Some(*at) }).collect()
            }).collect();
            let mut expected: Vec<(u64, usize)> =
                inputs.iter().enumerate().flat_map(|(n, all)| all.iter().map(move |ns| (*ns, n))).collect();
            expected.sort(); // by time, then by input; packets of one input stay in order
            let (mut clock, mut at, mut received) = (CaptureClock::default(), vec![0; inputs.len()], vec![]);
            loop {
                let next = inputs.iter().zip(&at).enumerate();
                let next: Vec<_> = next.filter_map(|(n, (all, at))| Some((n, *all.get(*at)?))).collect();
                let Some(packets) = clock.next(&next) else { break };
                clock.skip(packets.now);
                let from = received.len();
                while let Some(ns) = inputs[packets.input].get(at[packets.input]).filter(|ns| **ns <= packets.until) {
                    received.push((*ns, packets.input));
                    at[packets.input] += 1;
                }
                prop_assert!(received.len() > from, "nothing received");
                for (ns, _) in &received[from..] {
                    let since = Duration::from_nanos(ns - expected[0].0);
                    prop_assert!(clock.now <= since && since < clock.next_step(), "{since:?} at {:?}", clock.now);
                }
            }
            prop_assert_eq!(received, expected);
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range_are_received() {
        let mut clock = CaptureClock::default();
        assert_eq!(clock.next(&[(0, 0)]).map(|next| next.until), Some(STEP_NS - 1));
        let last = clock.next(&[(1, u64::MAX)]).unwrap();
        assert_eq!((last.input, last.until), (1, u64::MAX));
        assert!(clock.step(last.now) && clock.now == Duration::from_millis(1));
        assert_eq!(clock.skip_after(last.now), Duration::from_millis(600_001));
    }
}
