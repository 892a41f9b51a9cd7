//! Share of the adjacency numbers that the next hops of a VRF may use.

use super::REUSE_DELAY;
use std::collections::VecDeque;
use std::time::Duration;

/// Numbers that next hops and groups of a VRF use, and those that are not reused yet.
pub(super) struct Share {
    max: usize,
    used: usize,
    /// Times from which numbers that are not used any more are reused.
    retired: VecDeque<Duration>,
}

impl Share {
    pub(super) fn new(max: usize) -> Self {
        Share { max, used: 0, retired: VecDeque::new() }
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Returns the number of used and retired numbers.
    pub(super) fn len(&self, now: Duration) -> usize {
        self.used + self.retired.iter().rev().take_while(|reused_from| **reused_from > now).count()
    }

    /// Counts a further number; returns false if all are used or retired.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        while self.retired.pop_front_if(|reused_from| *reused_from <= now).is_some() {}
        let has_room = self.used + self.retired.len() < self.max;
        self.used += usize::from(has_room);
        has_room
    }

    /// Counts a number less, which is that of something else now.
    pub(super) fn give(&mut self) {
        self.used = self.used.saturating_sub(1);
    }

    /// Counts a number less, which is reused after [`REUSE_DELAY`].
    pub(super) fn retire(&mut self, now: Duration) {
        self.give();
        self.retired.push_back(now + REUSE_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_numbers_count_until_they_are_reused() {
        let (mut share, start) = (Share::new(2), Duration::from_secs(1));
        assert!(share.take(start) && share.take(start) && !share.take(start));
        share.retire(start);
        assert!(!share.take(start) && share.len(start) == 2);
        let later = start + REUSE_DELAY;
        assert!(share.len(later) == 1 && share.take(later) && !share.take(later));
        // one that goes on as a neighbour is free at once
        share.give();
        assert!(share.take(later) && !share.take(later));
        assert_eq!(share.len(later), 2);
    }
}
