//! Allocation of groups: used, free, and waiting for readers.

use super::words::first;
use super::{Error, GROUP, Shared};
use std::collections::VecDeque;

/// The writer's state of the groups, by number.
pub(super) struct Groups {
    limit: usize,
    /// Groups ever used: the first so many of the reservation.
    used: usize,
    free: Vec<u32>,
    /// With the generation that readers must have seen, oldest first.
    retired: VecDeque<(u64, u32)>,
    /// For each group: the routes that end in it and the groups below it. At most 510 + 256.
    needed_by: Vec<u16>,
}

impl Groups {
    pub(super) fn new(limit: usize) -> Self {
        Groups { limit, used: 0, free: Vec::new(), retired: VecDeque::new(), needed_by: Vec::new() }
    }

    /// Sees to it that `count` groups can be taken. Groups never used before come last, so that the table stays small.
    pub(super) fn ensure(&mut self, count: usize, shared: &Shared, prefix: impl Fn() -> String) -> Result<(), Error> {
        if self.free.len() < count && !self.retired.is_empty() {
            let passed = shared.grace.quiescent_generation();
            while let Some((generation, group)) = self.retired.front().copied()
                && generation <= passed
            {
                self.free.push(group);
                self.retired.pop_front();
            }
        }
        while self.free.len() < count {
            if self.used == self.limit {
                return Err(Error::Groups { prefix: prefix(), limit: self.limit, waiting: self.retired.len() });
            }
            let group = self.used as u32;
            let words = first(group)..first(group) + GROUP;
            let there = shared.words.hold(group).and_then(|()| shared.words.back(words));
            there.map_err(|e| Error::Memory { what: prefix(), source: e.into() })?;
            self.needed_by.push(0);
            self.free.push(group);
            self.used += 1;
        }
        Ok(())
    }

    /// Returns a free group, after [`ensure`](Self::ensure).
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().expect("ensured")
    }

    /// Increments the reference count of `group`.
    pub(super) fn need(&mut self, group: u32) {
        self.needed_by[group as usize] += 1;
    }

    /// Decrements the reference count; returns true if it is zero.
    pub(super) fn spare(&mut self, group: u32) -> bool {
        let count = &mut self.needed_by[group as usize];
        *count -= 1;
        *count == 0
    }

    /// Gives a group back that was just unlinked.
    pub(super) fn retire(&mut self, group: u32, shared: &Shared) {
        self.retired.push_back((shared.grace.retire(), group));
    }

    /// Groups that the table uses.
    pub(super) fn in_use(&self) -> usize {
        self.used - self.free.len() - self.retired.len()
    }

    /// Groups that may still be looked at, as far as was last checked.
    pub(super) fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Groups ever used at the same time.
    pub(super) fn ever_used(&self) -> usize {
        self.used
    }

    /// Returns the bytes of the writer's own memory.
    pub(super) fn bytes(&self) -> usize {
        self.free.capacity() * 4 + self.retired.capacity() * 16 + self.needed_by.capacity() * 2
    }
}
