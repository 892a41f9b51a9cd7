//! Flow table: a small value for each flow, for one core.
//!
//! A flow has two buckets of 32 slots, and goes to the second if the first is full. A tag of sixteen bits of its hash stands
//! for it in the bucket's cache line, so that one comparison finds its slot, and the flow has a cache line of its own: two
//! lines for a hit. A look-up has three steps, each for a burst, so that the misses overlap:
//! [`prepare`](FlowTable::prepare) hashes a key and fetches its tags, [`locate`](FlowTable::locate) compares them and
//! fetches the flow, [`look_up_or_insert`](FlowTable::look_up_or_insert) compares the key.
//!
//! Median cycles for a packet whose flow is drawn at random (Sapphire Rapids, 2.7 GHz counter, huge pages, bursts of 32,
//! three cycles of it for making the key), by the example `flow`. A million flows wait for memory: on the same machine two
//! random lines in as much of it take 24 to 32 with nothing else, and `rte_hash_lookup_bulk_data` with 4-byte keys 60.
//!
//! | flows | looked up | and counted | counted a burst later |
//! |---|---|---|---|
//! | 1,000 | 14 | 17 | 15 |
//! | 100,000 | 18 | 22 | 18 |
//! | 1,000,000 | 37 | 41 | 32 |
//! | 1,000,000 of IPv6 | 56 | 57 | 49 |
//!
//! Time is a `u32` in any unit the caller likes, milliseconds say. It may wrap; what seems to have been seen later than now
//! counts as seen now.
//!
//! ```
//! use tables::flow::{FlowTable, Settings, Slot, Tuple4};
//!
//! let mut table: FlowTable<Tuple4, u64> = FlowTable::new(&Settings::new(1000))?;
//! let keys = [53, 53, 443].map(|port| Tuple4::new(0x0a00_0001, 0xc000_0207, 40_000, port, 17));
//! let mut packets = keys.map(|key| table.prepare(key));
//! table.locate(&mut packets);
//! let mut slots = [Slot::NONE; 3];
//! table.look_up_or_insert(&packets, 0, &mut slots, |_, _| {});
//! for slot in slots {
//!     if let Some(packets) = table.value_mut(slot) {
//!         *packets += 1;
//!     }
//! }
//! assert_eq!((table.get(&keys[0]), table.get(&keys[2])), (Some(&2), Some(&1)));
//!
//! // a packet of the second flow after 29 s, and ageing after 30
//! table.look_up(&packets[2..], 29_000, &mut slots[2..]);
//! table.age(30_000, table.buckets(), |_, _, idle| idle >= 5_000);
//! assert_eq!((table.get(&keys[0]), table.len()), (None, 1));
//! # Ok::<(), tables::flow::Error>(())
//! ```

mod key;
mod settings;
mod slot;
mod store;

pub use key::{FlowKey, Seed, Tuple4, Tuple6};
pub use settings::{CAPACITY_MOST, Error, Full, Settings};
pub use slot::Slot;

use crate::Backing;
use core::fmt;
use core::ops::Range;
use store::{Line, Store, WAYS, first_matching, matching};

/// Keys looked up together.
const BURST: usize = 32;
const _: () = assert!(WAYS == 32 && BURST == 32, "sets of ways and of keys are u32");
/// Slots for a hundred flows: few are then in their second bucket, and moving one other makes room for the last.
const SLOTS_PERCENT: usize = 133;

/// What a table has counted since it was made: `len = inserted - evicted - expired - removed`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Flows inserted.
    pub inserted: u64,
    /// New flows that found no room.
    pub refused: u64,
    /// Flows that gave way to new ones.
    pub evicted: u64,
    /// Flows that ageing removed.
    pub expired: u64,
    /// Flows removed by key.
    pub removed: u64,
    /// Flows moved to their other bucket to make room.
    pub moved: u64,
}

/// A key that [`FlowTable::prepare`] made ready.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<K> {
    key: K,
    hash: u64,
    /// Where [`FlowTable::locate`] saw its tag.
    likely: u32,
}

/// At most a fixed number of flows, each with a value.
pub struct FlowTable<K, V> {
    store: Store<K, V>,
    seed: Seed,
    full: Full,
    capacity: usize,
    len: usize,
    /// The bucket that ageing comes to next.
    sweep: usize,
    counters: Counters,
}

#[inline(always)]
fn tag(hash: u64) -> u16 {
    (hash as u16).max(1)
}

#[inline(always)]
fn first_bucket(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// Two buckets, if there are two.
#[inline(always)]
fn both_buckets(hash: u64, buckets: usize) -> [usize; 2] {
    let first = first_bucket(hash, buckets);
    let second = first_bucket(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), buckets);
    [first, if second == first { (first + 1) % buckets } else { second }]
}

/// Time since a flow was last seen; none if that is yet to come.
#[inline(always)]
fn idle(now: u32, seen: u32) -> u32 {
    let idle = now.wrapping_sub(seen);
    if idle as i32 >= 0 { idle } else { 0 }
}

/// The ways in a set of bits.
fn ways(mut set: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let way = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        way
    })
}

impl<K: FlowKey, V: Copy + Default> FlowTable<K, V> {
    /// An empty table, with all the memory it will ever take: for each flow 1.33 times 2 bytes and the cache lines of a
    /// key, a value and four bytes, so 88 bytes for a [`Tuple4`] or [`Tuple6`] and two `u64`.
    ///
    /// # Errors
    /// [`Error::Capacity`], or [`Error::Memory`] if the system has none.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let Settings { capacity, full, seed, pages } = *settings;
        if !(1..=CAPACITY_MOST).contains(&capacity) {
            return Err(Error::Capacity { capacity });
        }
        let buckets = (capacity * SLOTS_PERCENT).div_ceil(100 * WAYS);
        let store = Store::new(buckets, pages).map_err(|source| Error::Memory { capacity, source })?;
        Ok(Self { store, seed, full, capacity, len: 0, sweep: 0, counters: Counters::default() })
    }

    /// A key for look-up, hashed, and its tags on their way from memory: for each packet, while parsing it say.
    #[inline(always)]
    pub fn prepare(&self, key: K) -> Prepared<K> {
        let hash = key.flow_hash(&self.seed);
        self.store.prefetch_tags(first_bucket(hash, self.store.buckets()));
        Prepared { key, hash, likely: u32::MAX }
    }

    /// Compares the tags of keys, and has the lines of their flows come near: for a burst, when all of it is prepared.
    ///
    /// A look-up right behind it waits for the lines. Who can do something else before, or put the look-up off until after
    /// `locate` for the next burst, does not. Whatever happens to the table meanwhile, look-ups are right, with or without.
    #[inline]
    pub fn locate(&self, keys: &mut [Prepared<K>]) {
        let buckets = self.store.buckets();
        for key in keys {
            let bucket = first_bucket(key.hash, buckets);
            let way = first_matching(&self.store.tags()[bucket], tag(key.hash));
            self.store.prefetch_line(bucket * WAYS + way);
            key.likely = if way < WAYS { (bucket * WAYS + way) as u32 } else { u32::MAX };
        }
    }

    /// Finds each key's flow, inserting those that are not there with a default value, and marks them seen `now`.
    ///
    /// A flow that gives way is handed to `lost` (see [`Full`]); one seen `now` never is. A refused one has [`Slot::NONE`].
    /// The same key may come more than once. Keys must have been prepared by this table.
    ///
    /// # Panics
    /// If `slots` has not the length of `keys`.
    #[inline]
    pub fn look_up_or_insert(
        &mut self,
        keys: &[Prepared<K>],
        now: u32,
        slots: &mut [Slot],
        mut lost: impl FnMut(&K, &V),
    ) {
        assert_eq!(keys.len(), slots.len(), "one slot for each key");
        for (from, burst) in (0..).step_by(BURST).zip(keys.chunks(BURST)) {
            let to = from + burst.len();
            let mut missed = self.touch_likely(burst, now, &mut slots[from..to]);
            while missed != 0 {
                let at = from + missed.trailing_zeros() as usize;
                missed &= missed - 1;
                // all slots so far, for they must follow flows that move
                slots[at] = match self.touch(&keys[at], now) {
                    Some(slot) => Slot::known(slot),
                    None => self.insert(&keys[at], now, &mut slots[..to], &mut lost),
                };
            }
        }
    }

    /// Finds each key's flow, [`Slot::NONE`] where there is none, and marks it seen `now`.
    ///
    /// # Panics
    /// If `slots` has not the length of `keys`.
    #[inline]
    pub fn look_up(&mut self, keys: &[Prepared<K>], now: u32, slots: &mut [Slot]) {
        assert_eq!(keys.len(), slots.len(), "one slot for each key");
        for (keys, slots) in keys.chunks(BURST).zip(slots.chunks_mut(BURST)) {
            let mut missed = self.touch_likely(keys, now, slots);
            while missed != 0 {
                let at = missed.trailing_zeros() as usize;
                missed &= missed - 1;
                slots[at] = self.touch(&keys[at], now).map_or(Slot::NONE, Slot::known);
            }
        }
    }

    /// Marks flows that are where [`locate`](Self::locate) thought: nearly all there are. The others, of at most [`BURST`],
    /// get [`Slot::NONE`] and a bit in the result.
    #[inline(always)]
    fn touch_likely(&mut self, keys: &[Prepared<K>], now: u32, slots: &mut [Slot]) -> u32 {
        let mut missed = 0;
        let lines = self.store.lines_mut();
        for (i, (key, slot)) in keys.iter().zip(slots).enumerate() {
            match lines.get_mut(key.likely as usize) {
                Some(line) if line.key == key.key && line.taken => {
                    line.seen = now;
                    *slot = Slot::known(key.likely as usize);
                }
                _ => {
                    missed |= 1 << i;
                    *slot = Slot::NONE;
                }
            }
        }
        missed
    }

    /// Finds a flow wherever it is, and marks it seen.
    #[inline(never)]
    fn touch(&mut self, key: &Prepared<K>, now: u32) -> Option<usize> {
        let slot = self.find(&key.key, key.hash)?;
        self.store.lines_mut()[slot].seen = now;
        Some(slot)
    }

    fn find(&self, key: &K, hash: u64) -> Option<usize> {
        both_buckets(hash, self.store.buckets()).into_iter().find_map(|bucket| {
            let slot = |way: usize| bucket * WAYS + way;
            ways(matching(&self.store.tags()[bucket], tag(hash))).map(slot).find(|&s| self.store.lines()[s].key == *key)
        })
    }

    /// Inserts a key that is not there; `done` are slots that must follow their flows.
    #[inline(never)]
    fn insert(&mut self, key: &Prepared<K>, now: u32, done: &mut [Slot], lost: &mut impl FnMut(&K, &V)) -> Slot {
        let Prepared { key, hash, .. } = *key;
        let homes = both_buckets(hash, self.store.buckets());
        let room =
            if self.len < self.capacity { self.free(homes).or_else(|| self.make_room(homes, done)) } else { None };
        let Some(slot) = room.or_else(|| self.evict(homes, now, lost)) else {
            self.counters.refused += 1;
            return Slot::NONE;
        };
        self.store.tags_mut()[slot / WAYS][slot % WAYS] = tag(hash);
        self.store.lines_mut()[slot] = Line { key, value: V::default(), seen: now, taken: true };
        self.len += 1;
        self.counters.inserted += 1;
        Slot::new(slot)
    }

    /// A free slot in one of the buckets.
    fn free(&self, buckets: [usize; 2]) -> Option<usize> {
        buckets.into_iter().find_map(|b| ways(matching(&self.store.tags()[b], 0)).next().map(|way| b * WAYS + way))
    }

    /// Moves one flow of the buckets to its other bucket, and gives the slot it had.
    fn make_room(&mut self, homes: [usize; 2], done: &mut [Slot]) -> Option<usize> {
        let slots = homes.into_iter().flat_map(|bucket| bucket * WAYS..(bucket + 1) * WAYS);
        let (from, to) = slots.into_iter().find_map(|slot| {
            let hash = self.store.lines()[slot].key.flow_hash(&self.seed);
            self.free(both_buckets(hash, self.store.buckets())).map(|to| (slot, to))
        })?;
        self.store.lines_mut()[to] = self.store.lines()[from];
        let tags = self.store.tags_mut();
        tags[to / WAYS][to % WAYS] = tags[from / WAYS][from % WAYS];
        tags[from / WAYS][from % WAYS] = 0;
        self.store.lines_mut()[from].taken = false;
        done.iter_mut().for_each(|slot| slot.moved(from, to));
        self.counters.moved += 1;
        Some(from)
    }

    /// Frees the slot of the flow that has been idle longest in the first bucket, or else in the second.
    fn evict(&mut self, homes: [usize; 2], now: u32, lost: &mut impl FnMut(&K, &V)) -> Option<usize> {
        if self.full == Full::Refuse {
            return None;
        }
        let idle_at = |slot: usize| idle(now, self.store.lines()[slot].seen);
        let oldest = homes.into_iter().find_map(|bucket| {
            let taken = !matching(&self.store.tags()[bucket], 0);
            let slots = ways(taken).map(|way| bucket * WAYS + way);
            slots.map(|slot| (idle_at(slot), slot)).filter(|&(idle, _)| idle > 0).max()
        });
        let (_, slot) = oldest?;
        let line = &self.store.lines()[slot];
        lost(&line.key, &line.value);
        self.vacate(slot);
        self.counters.evicted += 1;
        Some(slot)
    }

    fn vacate(&mut self, slot: usize) {
        self.store.lines_mut()[slot].taken = false;
        self.store.tags_mut()[slot / WAYS][slot % WAYS] = 0;
        self.len -= 1;
    }

    /// The value of a flow that was looked up; `None` for [`Slot::NONE`]. A slot that is out of date gives none or another's.
    #[inline(always)]
    pub fn value_mut(&mut self, slot: Slot) -> Option<&mut V> {
        self.store.lines_mut().get_mut(slot.index()).filter(|line| line.taken).map(|line| &mut line.value)
    }

    /// The value of a flow, which does not count as seen.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key, key.flow_hash(&self.seed)).map(|slot| &self.store.lines()[slot].value)
    }

    /// Removes a flow.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.find(key, key.flow_hash(&self.seed))?;
        self.vacate(slot);
        self.counters.removed += 1;
        Some(self.store.lines()[slot].value)
    }

    /// Visits the flows of the next `buckets` buckets, at most all of them, going round, and removes those for which
    /// `expired` says so, given how long they have been idle. Says how many it removed.
    pub fn age(&mut self, now: u32, buckets: usize, mut expired: impl FnMut(&K, &mut V, u32) -> bool) -> usize {
        let before = self.len;
        for _ in 0..buckets.min(self.store.buckets()) {
            let taken = !matching(&self.store.tags()[self.sweep], 0);
            for way in ways(taken) {
                let slot = self.sweep * WAYS + way;
                let line = &mut self.store.lines_mut()[slot];
                if expired(&line.key, &mut line.value, idle(now, line.seen)) {
                    self.vacate(slot);
                }
            }
            self.sweep = if self.sweep + 1 == self.store.buckets() { 0 } else { self.sweep + 1 };
        }
        self.counters.expired += (before - self.len) as u64;
        before - self.len
    }

    /// All flows of some buckets, with the time each was last seen, in no order: for the greatest of them, say.
    ///
    /// # Panics
    /// If `buckets` goes beyond [`buckets`](Self::buckets).
    pub fn iter(&self, buckets: Range<usize>) -> impl Iterator<Item = (&K, &V, u32)> {
        let from = buckets.start;
        let slots = self.store.tags()[buckets].iter().enumerate().flat_map(move |(bucket, tags)| {
            (0..WAYS).filter(|&way| tags[way] != 0).map(move |way| (from + bucket) * WAYS + way)
        });
        slots.map(|slot| &self.store.lines()[slot]).map(|line| (&line.key, &line.value, line.seen))
    }

    /// Flows there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Flows there can be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Buckets of 32 slots: the unit of [`age`](Self::age) and [`iter`](Self::iter).
    #[inline(always)]
    pub fn buckets(&self) -> usize {
        self.store.buckets()
    }

    /// What has been counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What memory it has, by kind of page.
    pub fn backing(&self) -> Backing {
        self.store.backing()
    }
}

impl<K, V> fmt::Debug for FlowTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("FlowTable");
        f.field("len", &self.len).field("capacity", &self.capacity).field("full", &self.full);
        f.field("counters", &self.counters).finish()
    }
}
