//! The wheel: which timers stand at which tick.

/// No timer.
pub(super) const NONE: u32 = u32::MAX;
/// Slots of a level, as a power of two.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels that it takes for all ticks there are.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// Timers in a chunk: with what else it has, a cache line.
const CHUNK: usize = 14;

/// A timer's place: in a chunk of those of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Which chunk. For who is in none, to be used otherwise.
    pub(super) chunk: u32,
    at: u16,
    slot: u16,
}

impl Place {
    /// In no slot.
    pub(super) const NOWHERE: Place = Place { chunk: NONE, at: 0, slot: u16::MAX };

    pub(super) fn is_nowhere(&self) -> bool {
        self.slot == u16::MAX
    }
}

/// Who keeps the places.
pub(super) trait Places {
    fn place(&mut self, timer: u32) -> &mut Place;

    /// Looks at these timers, so that they come from memory together: one after the other they take as many times as long.
    fn look_at(&self, timers: &[u32]);
}

/// Some of the timers of a slot. All chunks of a slot but the first are full.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk {
    timers: [u32; CHUNK],
    len: u32,
    /// The next of the slot, or of those that are free.
    next: u32,
}

/// A hierarchical timing wheel (Varghese and Lauck, SOSP'87, scheme 7) of 11 levels of 64 slots, so that no tick is too
/// far away. Level 0 has the ticks of the current 64, level 1 the later sixty-fours of the current 4096, and so on. A
/// timer is at the level of the highest digit (of 6 bits) in which its tick differs from the present.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The present: no timer is at an earlier tick.
    now: u64,
    /// By level, the slots that are not empty.
    taken: [u64; LEVELS],
    /// By level and slot, the first of its chunks.
    first: Box<[u32; LEVELS * SLOTS]>,
    chunks: Vec<Chunk>,
    /// The first chunk that no slot has.
    free: u32,
    /// The slot being emptied, if that is not done.
    open: Option<u16>,
}

/// The digit of a tick that belongs to a level.
fn digit(tick: u64, level: usize) -> usize {
    (tick >> (level as u32 * BITS)) as usize % SLOTS
}

impl Wheel {
    /// A wheel for so many timers, at tick 0.
    pub(super) fn new(capacity: usize) -> Self {
        // each slot may have one that is not full
        let chunks = Vec::with_capacity(capacity / CHUNK + capacity.min(LEVELS * SLOTS));
        let first = Box::new([NONE; LEVELS * SLOTS]);
        Wheel { now: 0, taken: [0; LEVELS], first, chunks, free: NONE, open: None }
    }

    #[inline]
    fn slot(&self, tick: u64) -> usize {
        let differs = tick ^ self.now;
        let level = if differs == 0 { 0 } else { (differs.ilog2() / BITS) as usize };
        level * SLOTS + digit(tick, level)
    }

    /// Puts a timer that is in no slot at a tick; at the present, if that has passed.
    #[inline]
    pub(super) fn put(&mut self, timer: u32, tick: u64, places: &mut impl Places) {
        let slot = self.slot(tick.max(self.now));
        let mut first = self.first[slot];
        if first == NONE || self.chunks[first as usize].len == CHUNK as u32 {
            first = self.another(first);
            self.first[slot] = first;
            self.taken[slot / SLOTS] |= 1 << (slot % SLOTS);
        }
        let chunk = &mut self.chunks[first as usize];
        let at = chunk.len as usize;
        chunk.timers[at] = timer;
        chunk.len += 1;
        *places.place(timer) = Place { chunk: first, at: at as u16, slot: slot as u16 };
    }

    /// An empty chunk before another.
    #[inline(never)]
    fn another(&mut self, next: u32) -> u32 {
        let chunk = Chunk { timers: [NONE; CHUNK], len: 0, next };
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

    /// Takes a timer out of its slot, if it is in one.
    #[inline]
    pub(super) fn take(&mut self, timer: u32, places: &mut impl Places) {
        let place = core::mem::replace(places.place(timer), Place::NOWHERE);
        if place.is_nowhere() {
            return;
        }
        let last = self.last(place.slot as usize);
        if last != timer {
            // the last of the first chunk takes its place, so that no other chunk has a gap
            self.chunks[place.chunk as usize].timers[place.at as usize] = last;
            *places.place(last) = place;
        }
    }

    /// Takes the last timer out of the first chunk of a slot that has one.
    #[inline]
    fn last(&mut self, slot: usize) -> u32 {
        let first = self.first[slot];
        let chunk = &mut self.chunks[first as usize];
        chunk.len -= 1;
        let timer = chunk.timers[chunk.len as usize];
        if chunk.len == 0 {
            let next = core::mem::replace(&mut chunk.next, self.free);
            self.free = first;
            self.first[slot] = next;
            if next == NONE {
                self.taken[slot / SLOTS] &= !(1 << (slot % SLOTS));
            }
        }
        timer
    }

    /// Takes out the next timer that is due at tick `until` or earlier, in the order of the ticks, or one that has to
    /// be [put](Wheel::put) again at its tick, nearer. `None` if there is none any more; the present is `until` then.
    #[inline]
    pub(super) fn next(&mut self, until: u64, places: &mut impl Places) -> Option<Next> {
        loop {
            let slot = match self.open {
                Some(slot) => slot as usize,
                None => {
                    let slot = self.open(until)?;
                    self.look_at(slot, places);
                    slot
                }
            };
            let first = self.first[slot];
            if first == NONE {
                self.open = None;
                continue;
            }
            let timer = self.last(slot);
            *places.place(timer) = Place::NOWHERE;
            if self.first[slot] != first {
                self.look_at(slot, places);
            }
            return Some(if slot < SLOTS { Next::Due(timer) } else { Next::Nearer(timer) });
        }
    }

    /// Looks at the timers of a slot's first chunk, which are taken out next.
    #[inline]
    fn look_at(&self, slot: usize, places: &impl Places) {
        if let Some(chunk) = self.chunks.get(self.first[slot] as usize) {
            places.look_at(&chunk.timers[..chunk.len as usize]);
        }
    }

    /// Goes on to the next slot that has something, as far as `until`.
    fn open(&mut self, until: u64) -> Option<usize> {
        for level in 0..LEVELS {
            // those before the present's are empty: they are over
            let Some(slot) = (self.taken[level] != 0).then(|| self.taken[level].trailing_zeros() as usize) else {
                continue;
            };
            debug_assert!(slot >= digit(self.now, level));
            let shift = level as u32 * BITS;
            // digits below the level's are 0, those above the present's own
            let above = self.now.checked_shr(shift + BITS).unwrap_or(0).checked_shl(shift + BITS).unwrap_or(0);
            let begins = above | (slot as u64) << shift;
            if begins > until {
                break;
            }
            self.now = self.now.max(begins);
            self.open = Some((level * SLOTS + slot) as u16);
            return Some(level * SLOTS + slot);
        }
        self.now = self.now.max(until);
        None
    }
}

/// What [`Wheel::next`] takes out.
pub(super) enum Next {
    /// A timer that is due.
    Due(u32),
    /// A timer that has come nearer, and is to be put again.
    Nearer(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Timers that a wheel may have.
    const TIMERS: u32 = 300;

    struct Kept(Vec<Place>);

    impl Places for Kept {
        fn place(&mut self, timer: u32) -> &mut Place {
            &mut self.0[timer as usize]
        }
        fn look_at(&self, timers: &[u32]) {
            assert!(timers.iter().all(|timer| *timer < TIMERS), "{timers:?}");
        }
    }

    proptest! {
        #[test]
        fn crowded_slots_keep_every_timer_once(
            // few ticks, so that slots have many chunks; those above 64 come nearer first
            steps in prop::collection::vec((0..TIMERS, prop::option::weighted(0.7, 0..150u64)), 0..1500),
            until in 0..200u64,
        ) {
            let (mut wheel, mut places) = (Wheel::new(TIMERS as usize), Kept(vec![Place::NOWHERE; TIMERS as usize]));
            let room = wheel.chunks.capacity();
            let mut model = BTreeMap::new();
            for (timer, tick) in steps {
                wheel.take(timer, &mut places);
                model.remove(&timer);
                if let Some(tick) = tick {
                    wheel.put(timer, tick, &mut places);
                    model.insert(timer, tick);
                }
            }
            let mut due = vec![];
            while let Some(next) = wheel.next(until, &mut places) {
                match next {
                    Next::Due(timer) => due.push(timer),
                    Next::Nearer(timer) => wheel.put(timer, model[&timer], &mut places),
                }
            }
            let ticks: Vec<u64> = due.iter().map(|timer| model[timer]).collect();
            prop_assert!(ticks.is_sorted(), "{:?}", ticks);
            due.sort_unstable();
            let expected: Vec<u32> = model.iter().filter(|(_, tick)| **tick <= until).map(|(timer, _)| *timer).collect();
            prop_assert_eq!(due, expected);
            let still = model.values().filter(|tick| **tick > until).count();
            prop_assert_eq!(places.0.iter().filter(|place| !place.is_nowhere()).count(), still);
            prop_assert_eq!(wheel.chunks.capacity(), room, "what was reserved is enough");
        }
    }
}
