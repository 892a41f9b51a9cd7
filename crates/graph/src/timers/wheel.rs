//! The wheel: which timers stand at which tick.

/// No timer.
pub(super) const NONE: u32 = u32::MAX;
/// Slots of a level, as a power of two.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels that it takes for all ticks there are.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// A timer's place in the list of its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) next: u32,
    prev: u32,
    slot: u16,
}

impl Place {
    /// In no list.
    pub(super) const NOWHERE: Place = Place { next: NONE, prev: NONE, slot: u16::MAX };

    pub(super) fn is_nowhere(&self) -> bool {
        self.slot == u16::MAX
    }
}

/// Who keeps the places.
pub(super) trait Places {
    fn place(&mut self, timer: u32) -> &mut Place;
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
    /// By level and slot, the first of its list.
    first: Box<[u32; LEVELS * SLOTS]>,
    /// The slot being emptied, if that is not done.
    open: Option<u16>,
}

/// The digit of a tick that belongs to a level.
fn digit(tick: u64, level: usize) -> usize {
    (tick >> (level as u32 * BITS)) as usize % SLOTS
}

impl Wheel {
    pub(super) fn new() -> Self {
        Wheel { now: 0, taken: [0; LEVELS], first: Box::new([NONE; LEVELS * SLOTS]), open: None }
    }

    #[inline]
    fn slot(&self, tick: u64) -> usize {
        let differs = tick ^ self.now;
        let level = if differs == 0 { 0 } else { (differs.ilog2() / BITS) as usize };
        level * SLOTS + digit(tick, level)
    }

    /// Puts a timer that is in no list at a tick; at the present, if that has passed.
    #[inline]
    pub(super) fn put(&mut self, timer: u32, tick: u64, places: &mut impl Places) {
        let slot = self.slot(tick.max(self.now));
        let next = core::mem::replace(&mut self.first[slot], timer);
        self.taken[slot / SLOTS] |= 1 << (slot % SLOTS);
        *places.place(timer) = Place { next, prev: NONE, slot: slot as u16 };
        if next != NONE {
            places.place(next).prev = timer;
        }
    }

    /// Takes a timer out of its list, if it is in one.
    #[inline]
    pub(super) fn take(&mut self, timer: u32, places: &mut impl Places) {
        let place = core::mem::replace(places.place(timer), Place::NOWHERE);
        if place.is_nowhere() {
            return;
        }
        if place.next != NONE {
            places.place(place.next).prev = place.prev;
        }
        if place.prev != NONE {
            places.place(place.prev).next = place.next;
            return;
        }
        self.first[place.slot as usize] = place.next;
        if place.next == NONE {
            self.taken[place.slot as usize / SLOTS] &= !(1 << (place.slot as usize % SLOTS));
        }
    }

    /// Takes out the next timer that is due at tick `until` or earlier, in the order of the ticks, or one that has to
    /// be [put](Wheel::put) again at its tick, nearer. `None` if there is none any more; the present is `until` then.
    #[inline]
    pub(super) fn next(&mut self, until: u64, places: &mut impl Places) -> Option<Next> {
        loop {
            let slot = match self.open {
                Some(slot) => slot as usize,
                None => self.open(until)?,
            };
            let timer = self.first[slot];
            if timer == NONE {
                self.open = None;
                continue;
            }
            self.take(timer, places);
            return Some(if slot < SLOTS { Next::Due(timer) } else { Next::Nearer(timer) });
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
