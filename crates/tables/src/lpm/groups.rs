//! Allocation of groups: used, free, and waiting for readers; and the writer's state of each.

use super::depths::BlockDepths;
use super::limits::SPACE;
use super::words::first;
use super::{Error, GROUP, Shared};
use std::collections::VecDeque;
use std::iter;
use std::ops::Range;

/// Groups whose states are allocated together.
const CHUNK: usize = 64;

/// The writer's state of the groups, by number.
pub(super) struct Groups {
    limit: usize,
    /// Groups ever used at the same time in each pool.
    used: usize,
    /// One for each space of group numbers; a single one when words are wide.
    pools: Vec<Pool>,
    wide: bool,
    /// With the generation that readers must have seen, oldest first.
    retired: VecDeque<(u64, u32)>,
    states: Vec<Option<Box<[GroupState; CHUNK]>>>,
}

/// Groups that can be taken.
#[derive(Default)]
struct Pool {
    free: Vec<u32>,
    /// Numbers that were never used.
    unused: Vec<Range<u32>>,
}

/// The writer's state of a group.
#[derive(Clone, Copy, Default)]
pub(super) struct GroupState {
    /// The routes that end in it and the groups below it. At most 510 + 256.
    needed_by: u16,
    pub(super) depths: BlockDepths,
}

impl Pool {
    fn unused(&mut self) -> Option<u32> {
        self.unused.iter_mut().find_map(Range::next)
    }
}

impl Groups {
    pub(super) fn new(limit: usize, spaces: usize) -> Self {
        let pool = |space: usize| {
            let size = if space + 1 == spaces { limit.min(SPACE) } else { SPACE };
            let first = (space * SPACE) as u32;
            Pool { free: Vec::new(), unused: iter::once(first..first + size as u32).collect() }
        };
        let pools = (0..spaces).map(pool).collect();
        Groups { limit, used: 0, pools, wide: false, retired: VecDeque::new(), states: Vec::new() }
    }

    /// Returns the pool of the groups of a level, from 1.
    fn pool(&self, level: usize) -> usize {
        (level - 1) % self.pools.len()
    }

    /// Sees to it that a group can be taken for each of the levels. Groups never used before come last, so that the table
    /// stays small.
    pub(super) fn ensure(
        &mut self,
        levels: Range<usize>,
        shared: &Shared,
        prefix: impl Fn() -> String,
    ) -> Result<(), Error> {
        self.follow_width(shared);
        let lacks = |this: &Self| levels.clone().any(|level| this.missing(&levels, this.pool(level)) > 0);
        let is_full = |this: &Self| this.in_use() + this.retired.len() + levels.len() > this.limit;
        if !self.retired.is_empty() && (lacks(self) || is_full(self)) {
            self.reclaim(shared);
        }
        if is_full(self) {
            return Err(Error::Groups { prefix: prefix(), limit: self.limit, waiting: self.retired.len() });
        }
        let no_memory = |e: rustix::io::Errno| Error::Memory { what: prefix(), source: e.into() };
        for level in levels.clone() {
            while self.missing(&levels, self.pool(level)) > 0 {
                let pool = self.pool(level);
                match self.pools[pool].unused() {
                    Some(group) => self.add(pool, group, shared).map_err(no_memory)?,
                    None => {
                        shared.words.widen().map_err(no_memory)?;
                        self.follow_width(shared);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if so many groups for any levels can be taken, as far as the width of words limits them.
    pub(super) fn has_room(&self, shared: &Shared, count: usize) -> bool {
        let left = |pool: &Pool| pool.free.len() + pool.unused.iter().map(ExactSizeIterator::len).sum::<usize>();
        // Within the limit no pool runs out of numbers.
        shared.words.is_wide() || self.limit <= SPACE || self.pools.iter().all(|pool| left(pool) >= count)
    }

    /// Returns how many groups a pool lacks for the levels.
    fn missing(&self, levels: &Range<usize>, pool: usize) -> usize {
        let needed = levels.clone().filter(|level| self.pool(*level) == pool).count();
        needed.saturating_sub(self.pools[pool].free.len())
    }

    /// Makes groups free that no reader looks at any more.
    fn reclaim(&mut self, shared: &Shared) {
        let passed = shared.grace.quiescent_generation();
        while let Some((_, group)) = self.retired.pop_front_if(|(generation, _)| *generation <= passed) {
            let pool = if self.wide { 0 } else { group as usize / SPACE };
            self.pools[pool].free.push(group);
        }
    }

    /// Adds a group that was never used to a pool.
    fn add(&mut self, pool: usize, group: u32, shared: &Shared) -> Result<(), rustix::io::Errno> {
        let added = shared.words.back(first(group)..first(group) + GROUP);
        if added.is_err() {
            self.pools[pool].unused.push(group..group + 1);
            return added;
        }
        let chunk = group as usize / CHUNK;
        if self.states.len() <= chunk {
            self.states.resize_with(chunk + 1, || None);
        }
        self.states[chunk].get_or_insert_with(|| Box::new([GroupState::default(); CHUNK]));
        self.pools[pool].free.push(group);
        self.used += 1;
        Ok(())
    }

    /// Merges the pools when words have become wide: a link then names a group of any space, and more of them.
    fn follow_width(&mut self, shared: &Shared) {
        if self.wide || !shared.words.is_wide() {
            return;
        }
        self.wide = true;
        let mut all = Pool::default();
        let last = (self.pools.len() - 1) * SPACE;
        for pool in self.pools.drain(..) {
            all.free.extend(pool.free);
            all.unused.extend(pool.unused.into_iter().filter(|unused| !unused.is_empty()));
        }
        if self.limit > SPACE {
            all.unused.push((last + SPACE) as u32..(last + self.limit) as u32);
        }
        self.pools.push(all);
    }

    /// Returns a free group for a level, after [`ensure`](Self::ensure).
    pub(super) fn take(&mut self, level: usize) -> u32 {
        let pool = self.pool(level);
        self.pools[pool].free.pop().expect("ensured")
    }

    pub(super) fn state(&self, group: u32) -> &GroupState {
        let chunk = self.states[group as usize / CHUNK].as_ref().expect("taken");
        &chunk[group as usize % CHUNK]
    }

    pub(super) fn state_mut(&mut self, group: u32) -> &mut GroupState {
        let chunk = self.states[group as usize / CHUNK].as_mut().expect("taken");
        &mut chunk[group as usize % CHUNK]
    }

    /// Increments the reference count of `group`.
    pub(super) fn need(&mut self, group: u32) {
        self.state_mut(group).needed_by += 1;
    }

    /// Decrements the reference count; returns true if it is zero.
    pub(super) fn spare(&mut self, group: u32) -> bool {
        let count = &mut self.state_mut(group).needed_by;
        *count -= 1;
        *count == 0
    }

    /// Gives a group back that was just unlinked.
    pub(super) fn retire(&mut self, group: u32, shared: &Shared) {
        self.retired.push_back((shared.grace.retire(), group));
    }

    /// Groups that the table uses.
    pub(super) fn in_use(&self) -> usize {
        self.used - self.pools.iter().map(|pool| pool.free.len()).sum::<usize>() - self.retired.len()
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
        let free: usize = self.pools.iter().map(|pool| pool.free.capacity() * 4).sum();
        let states = self.states.iter().flatten().count() * size_of::<[GroupState; CHUNK]>();
        free + self.retired.capacity() * 16 + states + self.states.capacity() * size_of::<usize>()
    }
}
