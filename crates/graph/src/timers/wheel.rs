//! A hierarchical timing wheel of timer indices.

/// Index that means no timer or no chunk.
pub(super) const NONE: u32 = u32::MAX;
/// Binary logarithm of the number of slots in a level.
const LEVEL_BITS: u32 = 6;
const LEVEL_SLOTS: usize = 1 << LEVEL_BITS;
/// Number of levels, enough for all ticks of a `u64`.
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;

/// Number of timers in a chunk, which fills a cache line.
const CHUNK_TIMERS: usize = 14;

/// Position of a timer: slot, chunk and index in the chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Index of the chunk; free for other use while the timer is in no slot.
    pub(super) chunk: u32,
    index: u16,
    slot: u16,
}

impl Position {
    /// The position of a timer that is in no slot.
    pub(super) const UNLINKED: Position = Position { chunk: NONE, index: 0, slot: u16::MAX };

    pub(super) fn is_unlinked(&self) -> bool {
        self.slot == u16::MAX
    }
}

/// Storage for the positions of timers.
pub(super) trait Positions {
    /// Returns the position of a timer.
    fn position(&mut self, timer: u32) -> &mut Position;

    /// Loads these timers into the cache with overlapping misses.
    fn prefetch(&self, timers: &[u32]);
}

/// A part of the timers of a slot. All chunks of a slot except the first are full.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk {
    timers: [u32; CHUNK_TIMERS],
    len: u32,
    /// Next chunk of the slot or of the free list.
    next: u32,
}

/// A hierarchical timing wheel (Varghese and Lauck, SOSP'87, scheme 7) of 11 levels of 64 slots, which cover all ticks
/// of a `u64`. Level 0 has one slot for each of the current 64 ticks, level 1 one for each 64 ticks of the current
/// 4096, and so on. A timer is on the level of the highest 6-bit digit in which its tick differs from the current one.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Current tick: no timer has an earlier one.
    now: u64,
    /// Bit set of the slots that are not empty, by level.
    occupied: [u64; LEVELS],
    /// First chunk, by level and slot.
    first_chunks: Box<[u32; LEVELS * LEVEL_SLOTS]>,
    chunks: Vec<Chunk>,
    /// Head of the list of free chunks.
    free: u32,
    /// Slot that is being emptied.
    draining: Option<u16>,
}

/// Returns the digit of a tick for a level.
fn digit(tick: u64, level: usize) -> usize {
    (tick >> (level as u32 * LEVEL_BITS)) as usize % LEVEL_SLOTS
}

impl Wheel {
    /// Creates a wheel for `capacity` timers, at tick 0.
    pub(super) fn new(capacity: usize) -> Self {
        // each slot may have one chunk that is not full
        let chunks = Vec::with_capacity(capacity / CHUNK_TIMERS + capacity.min(LEVELS * LEVEL_SLOTS));
        let first_chunks = Box::new([NONE; LEVELS * LEVEL_SLOTS]);
        Wheel { now: 0, occupied: [0; LEVELS], first_chunks, chunks, free: NONE, draining: None }
    }

    /// Returns the slot for a tick.
    #[inline]
    fn slot(&self, tick: u64) -> usize {
        let differs = tick ^ self.now;
        let level = if differs == 0 { 0 } else { (differs.ilog2() / LEVEL_BITS) as usize };
        level * LEVEL_SLOTS + digit(tick, level)
    }

    /// Inserts a timer that is in no slot at a tick, or at the current one if that is later.
    #[inline]
    pub(super) fn insert(&mut self, timer: u32, tick: u64, positions: &mut impl Positions) {
        let slot = self.slot(tick.max(self.now));
        let mut first = self.first_chunks[slot];
        if first == NONE || self.chunks[first as usize].len == CHUNK_TIMERS as u32 {
            first = self.add_chunk(first);
            self.first_chunks[slot] = first;
            self.occupied[slot / LEVEL_SLOTS] |= 1 << (slot % LEVEL_SLOTS);
        }
        let chunk = &mut self.chunks[first as usize];
        let index = chunk.len as usize;
        chunk.timers[index] = timer;
        chunk.len += 1;
        *positions.position(timer) = Position { chunk: first, index: index as u16, slot: slot as u16 };
    }

    /// Returns an empty chunk with the given next one.
    #[inline(never)]
    fn add_chunk(&mut self, next: u32) -> u32 {
        let chunk = Chunk { timers: [NONE; CHUNK_TIMERS], len: 0, next };
        match self.free {
            NONE => {
                self.chunks.push(chunk);
                self.chunks.len() as u32 - 1
            }
            free => {
                self.free = core::mem::replace(&mut self.chunks[free as usize], chunk).next;
                free
            }
        }
    }

    /// Removes a timer from its slot, if it is in one.
    #[inline]
    pub(super) fn remove(&mut self, timer: u32, positions: &mut impl Positions) {
        let position = core::mem::replace(positions.position(timer), Position::UNLINKED);
        if position.is_unlinked() {
            return;
        }
        let last = self.pop(position.slot as usize);
        if last != timer {
            // the last timer of the first chunk fills the gap, so that the other chunks stay full
            self.chunks[position.chunk as usize].timers[position.index as usize] = last;
            *positions.position(last) = position;
        }
    }

    /// Removes the last timer from the first chunk of a slot that is not empty.
    #[inline]
    fn pop(&mut self, slot: usize) -> u32 {
        let first = self.first_chunks[slot];
        let chunk = &mut self.chunks[first as usize];
        chunk.len -= 1;
        let timer = chunk.timers[chunk.len as usize];
        if chunk.len == 0 {
            let next = core::mem::replace(&mut chunk.next, self.free);
            self.free = first;
            self.first_chunks[slot] = next;
            if next == NONE {
                self.occupied[slot / LEVEL_SLOTS] &= !(1 << (slot % LEVEL_SLOTS));
            }
        }
        timer
    }

    /// Removes the next timer that is due at tick `until` or earlier, in the order of ticks, or one that the caller has
    /// to [insert](Wheel::insert) again at a lower level. Returns `None` and sets the current tick to `until` if there
    /// is none.
    #[inline]
    pub(super) fn pop_due(&mut self, until: u64, positions: &mut impl Positions) -> Option<Popped> {
        loop {
            let slot = match self.draining {
                Some(slot) => slot as usize,
                None => {
                    let slot = self.advance_to_slot(until)?;
                    self.prefetch(slot, positions);
                    slot
                }
            };
            let first = self.first_chunks[slot];
            if first == NONE {
                self.draining = None;
                continue;
            }
            let timer = self.pop(slot);
            *positions.position(timer) = Position::UNLINKED;
            if self.first_chunks[slot] != first {
                self.prefetch(slot, positions);
            }
            return Some(if slot < LEVEL_SLOTS { Popped::Due(timer) } else { Popped::Cascade(timer) });
        }
    }

    /// Prefetches the timers of the first chunk of a slot, which are removed next.
    #[inline]
    fn prefetch(&self, slot: usize, positions: &impl Positions) {
        if let Some(chunk) = self.chunks.get(self.first_chunks[slot] as usize) {
            positions.prefetch(&chunk.timers[..chunk.len as usize]);
        }
    }

    /// Advances to the next slot that is not empty, up to `until`.
    fn advance_to_slot(&mut self, until: u64) -> Option<usize> {
        for level in 0..LEVELS {
            // slots before the current one are empty
            let Some(slot) = (self.occupied[level] != 0).then(|| self.occupied[level].trailing_zeros() as usize) else {
                continue;
            };
            debug_assert!(slot >= digit(self.now, level));
            let shift = level as u32 * LEVEL_BITS;
            // lower digits are 0, higher ones those of the current tick
            let above =
                self.now.checked_shr(shift + LEVEL_BITS).unwrap_or(0).checked_shl(shift + LEVEL_BITS).unwrap_or(0);
            let start = above | (slot as u64) << shift;
            if start > until {
                break;
            }
            self.now = self.now.max(start);
            self.draining = Some((level * LEVEL_SLOTS + slot) as u16);
            return Some(level * LEVEL_SLOTS + slot);
        }
        self.now = self.now.max(until);
        None
    }
}

/// A timer removed by [`Wheel::pop_due`].
pub(super) enum Popped {
    /// The timer is due.
    Due(u32),
    /// The timer is not due and has to be inserted again, at a lower level.
    Cascade(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Number of timers.
    const TIMERS: u32 = 300;

    struct PositionVec(Vec<Position>);

    impl Positions for PositionVec {
        fn position(&mut self, timer: u32) -> &mut Position {
            &mut self.0[timer as usize]
        }
        fn prefetch(&self, timers: &[u32]) {
            assert!(timers.iter().all(|timer| *timer < TIMERS), "{timers:?}");
        }
    }

    proptest! {
        #[test]
        fn fires_every_timer_of_crowded_slots_once(
            // few ticks, so that slots have many chunks; ticks above 64 cascade
            steps in prop::collection::vec((0..TIMERS, prop::option::weighted(0.7, 0..150u64)), 0..1500),
            until in 0..200u64,
        ) {
            let mut wheel = Wheel::new(TIMERS as usize);
            let mut positions = PositionVec(vec![Position::UNLINKED; TIMERS as usize]);
            let reserved = wheel.chunks.capacity();
            let mut model = BTreeMap::new();
            for (timer, tick) in steps {
                wheel.remove(timer, &mut positions);
                model.remove(&timer);
                if let Some(tick) = tick {
                    wheel.insert(timer, tick, &mut positions);
                    model.insert(timer, tick);
                }
            }
            let mut due = vec![];
            while let Some(popped) = wheel.pop_due(until, &mut positions) {
                match popped {
                    Popped::Due(timer) => due.push(timer),
                    Popped::Cascade(timer) => wheel.insert(timer, model[&timer], &mut positions),
                }
            }
            let ticks: Vec<u64> = due.iter().map(|timer| model[timer]).collect();
            prop_assert!(ticks.is_sorted(), "{:?}", ticks);
            due.sort_unstable();
            let is_due = |(timer, tick): (&u32, &u64)| (*tick <= until).then_some(*timer);
            let expected: Vec<u32> = model.iter().filter_map(is_due).collect();
            prop_assert_eq!(due, expected);
            let pending = model.values().filter(|tick| **tick > until).count();
            prop_assert_eq!(positions.0.iter().filter(|position| !position.is_unlinked()).count(), pending);
            prop_assert_eq!(wheel.chunks.capacity(), reserved, "no reallocation");
        }
    }
}
