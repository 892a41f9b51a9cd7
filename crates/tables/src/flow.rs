//! Flow table: a small value for each flow, for one core.
//!
//! A flow has two buckets of eight slots and is stored in the second if the first is full. In a bucket it has a preferred
//! cache line, which is used while it has room; half of all slots stay free, so that nine flows in ten are in their preferred line and
//! cost one cache miss. A lookup has two steps, each for a burst, so that misses overlap: [`prepare`](FlowTable::prepare)
//! hashes a key and prefetches its line, [`look_up_or_insert`](FlowTable::look_up_or_insert) compares the key. If the second
//! step is delayed by a burst, it does not wait for memory.
//!
//! Median cycles for a packet whose flow is drawn at random, in a table that is full (Sapphire Rapids, 2.7 GHz counter, huge
//! pages, bursts of 32, three cycles of it for making the key), by the example `flow`. A million flows wait for memory: on
//! the same machine one random line in as much of it takes 21 with nothing else, and `rte_hash_lookup_bulk_data` with 4-byte
//! keys 60.
//!
//! | flows | looked up | and counted | counted a burst later |
//! |---|---|---|---|
//! | 1,000 | 20 | 23 | 21 |
//! | 100,000 | 24 | 26 | 25 |
//! | 1,000,000 | 34 | 34 | 33 |
//! | 1,000,000 of IPv6 | 62 | 72 | 67 |
//!
//! Time is a `u32` in any unit the caller likes, milliseconds say, of which 23 bits are kept: it may wrap, but no flow may
//! be idle for 4,194,304 units, and what seems to have been seen later than now counts as seen now.
//!
//! ```
//! use tables::flow::{FlowTable, Lookup, Settings, Tuple4};
//!
//! let mut table: FlowTable<Tuple4, u64> = FlowTable::new(&Settings::new(1000))?;
//! let keys = [53, 53, 443].map(|port| Tuple4::new(0x0a00_0001, 0xc000_0207, 40_000, port, 17));
//! let packets = keys.map(|key| table.prepare(key));
//! table.look_up_or_insert(&packets, 0, |_, _| {}, |_, found| {
//!     if let Lookup::Known(packets) | Lookup::New(packets) = found {
//!         *packets += 1;
//!     }
//! });
//! assert_eq!((table.get(&keys[0]), table.get(&keys[2])), (Some(&2), Some(&1)));
//!
//! // a packet of the second flow after 29 s, and ageing after 30
//! table.look_up(&packets[2..], 29_000, |_, packets| *packets += 1);
//! table.age(30_000, table.buckets(), |_, _, idle| idle >= 5_000);
//! assert_eq!((table.get(&keys[0]), table.get(&keys[2])), (None, Some(&2)));
//! # Ok::<(), tables::flow::Error>(())
//! ```

mod key;
mod settings;
mod store;

pub use key::{FlowKey, Seed, Tuple4, Tuple6};
pub use settings::{CAPACITY_MOST, Error, Full, Settings};
pub use store::later;

use crate::Backing;
use core::fmt;
use core::ops::Range;
use store::{Entry, LastSeen, Store, WAYS};

/// Keys looked up together.
const BURST: usize = 64;
const _: () = assert!(BURST == 64, "a set of keys is a u64");
/// Slots for each flow: nearly all are then in their home.
const SLOTS: usize = 2;

/// More flows away from a home than are counted.
const MANY: u8 = u8::MAX;

/// Counters of a table: `len = inserted - evicted - expired - removed`.
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

/// Result of a lookup that inserts.
#[derive(PartialEq, Eq, Debug)]
pub enum Lookup<'a, V> {
    /// The value of a flow that was there.
    Known(&'a mut V),
    /// The value of a flow that is there from now on.
    New(&'a mut V),
    /// Nothing, and no room for the flow.
    Refused,
}

/// A key that [`FlowTable::prepare`] made ready.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<K> {
    key: K,
    /// The first slot of its home.
    home: u32,
}

impl<K: Copy> Prepared<K> {
    /// Returns the key itself.
    #[inline(always)]
    pub fn key(&self) -> K {
        self.key
    }
}

/// At most a fixed number of flows, each with a value. The [module documentation](self) has an example.
pub struct FlowTable<K: FlowKey, V> {
    store: Store<K, V>,
    /// For each home, how many of its flows are elsewhere; [`MANY`] stays. Most misses need to look no further.
    away: Box<[u8]>,
    seed: Seed,
    full: Full,
    capacity: usize,
    len: usize,
    /// The bucket that ageing comes to next.
    sweep: usize,
    counters: Counters,
}

#[inline(always)]
fn first_bucket(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// Returns the two buckets, if there are two.
#[inline(always)]
fn both_buckets(hash: u64, buckets: usize) -> [usize; 2] {
    let first = first_bucket(hash, buckets);
    let second = first_bucket(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), buckets);
    [first, if second == first { (first + 1) % buckets } else { second }]
}

impl<K: FlowKey, V: Copy + Default> FlowTable<K, V> {
    /// Creates an empty table and allocates all its memory: for each flow two slots of a key, a value and three bytes,
    /// rounded up to a power of two or to cache lines, so 64 bytes for a [`Tuple4`] and two `u64`, 128 for a [`Tuple6`]; and
    /// one byte for each preferred line.
    ///
    /// ```
    /// use tables::Pages;
    /// use tables::flow::{Error, FlowTable, Full, Lookup, Seed, Settings};
    ///
    /// let settings = Settings { capacity: 1, full: Full::EvictOldest, seed: Seed::random(), pages: Pages::Ordinary };
    /// let mut table: FlowTable<u64, u32> = FlowTable::new(&settings)?;
    /// let (first, second) = (table.prepare(1), table.prepare(2));
    /// let mut evicted = vec![];
    /// for (key, now) in [(first, 10), (second, 10), (second, 11)] {
    ///     table.look_up_or_insert(&[key], now, |key, value| evicted.push((*key, *value)), |_, found| match found {
    ///         Lookup::New(value) | Lookup::Known(value) => *value = now,
    ///         Lookup::Refused => assert_eq!(now, 10), // the flow in the table was seen at this time
    ///     });
    /// }
    /// assert_eq!((evicted, table.get(&2), table.counters().refused), (vec![(1, 10)], Some(&11), 1));
    /// assert_eq!(FlowTable::<u64, u32>::new(&Settings::new(0)).err(), Some(Error::Capacity { capacity: 0 }));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Capacity`], or [`Error::Memory`] if the system has not enough.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let Settings { capacity, full, seed, pages } = *settings;
        if !(1..=CAPACITY_MOST).contains(&capacity) {
            return Err(Error::Capacity { capacity });
        }
        let buckets = (capacity * SLOTS).div_ceil(WAYS);
        let store = Store::new(buckets, pages).map_err(|source| Error::Memory { capacity, source })?;
        let away = vec![0; buckets * WAYS / Entry::<K, V>::PER_LINE].into_boxed_slice();
        Ok(Self { store, away, seed, full, capacity, len: 0, sweep: 0, counters: Counters::default() })
    }

    /// Hashes a key and prefetches its primary bucket, for example while a packet is parsed.
    ///
    /// Whatever happens to the table until the look-up, it is right.
    #[inline(always)]
    pub fn prepare(&self, key: K) -> Prepared<K> {
        let hash = key.flow_hash(&self.seed);
        let home = self.home_of(hash);
        self.store.prefetch(home);
        Prepared { key, home: home as u32 }
    }

    /// Returns the slot of a bucket at which the search for a hash starts.
    #[inline(always)]
    fn home(hash: u64) -> usize {
        hash as usize % WAYS / Entry::<K, V>::PER_LINE * Entry::<K, V>::PER_LINE
    }

    /// The slots of both buckets, from the home on: lines come in pairs, and the other one of the pair is the next.
    #[inline(always)]
    fn slots(&self, hash: u64) -> impl Iterator<Item = usize> {
        let home = Self::home(hash);
        both_buckets(hash, self.store.buckets())
            .into_iter()
            .flat_map(move |bucket| (0..WAYS).map(move |way| bucket * WAYS + (home ^ way)))
    }

    /// Looks up the flow of each key, inserts missing flows with a default value, marks all as seen at `now`, and passes
    /// each value with the index of its key: in each burst of 64, flows in their preferred line first.
    ///
    /// An evicted flow is passed to `lost` (see [`Full`]); a flow seen at `now` is never evicted. The same key may come more than
    /// once. Keys must have been prepared by this table.
    #[inline(always)]
    pub fn look_up_or_insert(
        &mut self,
        keys: &[Prepared<K>],
        now: u32,
        mut lost: impl FnMut(&K, &V),
        mut found: impl FnMut(usize, Lookup<'_, V>),
    ) {
        for (from, burst) in (0..).step_by(BURST).zip(keys.chunks(BURST)) {
            let missed = self.refresh_preferred(burst, now, |i, value| found(from + i, Lookup::Known(value)));
            self.further(burst, missed, |table, i, key| match table.touch(key, now) {
                Some(value) => found(from + i, Lookup::Known(value)),
                None => found(from + i, table.insert(key, now, &mut lost)),
            });
        }
    }

    /// Looks up the flows of at most 64 keys, marks those in the table as seen at `now` and passes their values to `found`, as
    /// [`look_up_or_insert`](Self::look_up_or_insert) does. Returns a mask of the keys whose flow is not in the table.
    ///
    /// # Panics
    /// If there are more than 64 keys.
    #[inline(always)]
    pub fn look_up(&mut self, keys: &[Prepared<K>], now: u32, mut found: impl FnMut(usize, &mut V)) -> u64 {
        assert!(keys.len() <= BURST, "at most a burst of keys");
        let missed = self.refresh_preferred(keys, now, &mut found);
        let mut absent = missed;
        self.further(keys, missed, |table, i, key| {
            if let Some(value) = table.touch(key, now) {
                found(i, value);
                absent &= !(1 << i);
            }
        });
        absent
    }

    /// Refreshes flows in their preferred line, which are nearly all. Returns a bit for each of the others, of at most
    /// [`BURST`], and prefetches their sibling line.
    #[inline(always)]
    fn refresh_preferred(&mut self, keys: &[Prepared<K>], now: u32, mut found: impl FnMut(usize, &mut V)) -> u64 {
        let (seen, mut missed) = (LastSeen::at(now), 0u64);
        for (i, key) in keys.iter().enumerate() {
            let home = key.home as usize;
            if let Some(entry) = self.store.in_line_mut(home, &key.key)
                && entry.seen.touch(seen)
            {
                found(i, &mut entry.value);
            } else {
                missed |= 1 << i;
                self.store.prefetch(Self::sibling_line(home));
            }
        }
        missed
    }

    /// Does something for those of a burst that were missed.
    #[inline(always)]
    fn further(&mut self, keys: &[Prepared<K>], missed: u64, mut each: impl FnMut(&mut Self, usize, &Prepared<K>)) {
        let mut rest = missed;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            each(self, i, &keys[i]);
        }
    }

    /// Finds a flow wherever it is, and marks it seen.
    #[inline(never)]
    fn touch(&mut self, key: &Prepared<K>, now: u32) -> Option<&mut V> {
        let slot = self.find_from(key.home as usize, &key.key)?;
        let entry = self.store.get_mut(slot);
        entry.seen = LastSeen::at(now);
        Some(&mut entry.value)
    }

    fn find(&self, key: &K) -> Option<usize> {
        self.find_from(self.home_of(key.flow_hash(&self.seed)), key)
    }

    /// Returns the slot of a key with this first preferred slot.
    #[inline(always)]
    fn find_from(&self, home: usize, key: &K) -> Option<usize> {
        let in_line = |first: usize| (first..first + Entry::<K, V>::PER_LINE).find(|&slot| self.holds(slot, key));
        in_line(home).or_else(|| match self.away[home / Entry::<K, V>::PER_LINE] {
            0 => None,
            _ => in_line(Self::sibling_line(home)).or_else(|| self.find_away(key)),
        })
    }

    #[inline(always)]
    fn holds(&self, slot: usize, key: &K) -> bool {
        let entry = self.store.get(slot);
        key.is(&entry.key) && entry.seen.is_taken()
    }

    #[inline(never)]
    fn find_away(&self, key: &K) -> Option<usize> {
        self.slots(key.flow_hash(&self.seed)).skip(Entry::<K, V>::PER_LINE).find(|&slot| self.holds(slot, key))
    }

    /// Returns the first preferred slot of a hash.
    #[inline(always)]
    fn home_of(&self, hash: u64) -> usize {
        first_bucket(hash, self.store.buckets()) * WAYS + Self::home(hash)
    }

    /// Counts a flow that goes into a slot, or leaves it, where that is not of its home.
    fn count_away(&mut self, slot: usize, hash: u64, goes: bool) {
        let (home, per) = (self.home_of(hash), Entry::<K, V>::PER_LINE);
        let away = &mut self.away[home / per];
        if !(home..home + per).contains(&slot) && *away != MANY {
            *away = if goes { *away + 1 } else { away.saturating_sub(1) };
        }
    }

    /// Inserts a key that is not there.
    #[inline(never)]
    fn insert(&mut self, key: &Prepared<K>, now: u32, lost: &mut impl FnMut(&K, &V)) -> Lookup<'_, V> {
        let key = key.key;
        let hash = key.flow_hash(&self.seed);
        let room = if self.len < self.capacity { self.vacant(hash).or_else(|| self.make_room(hash)) } else { None };
        let Some(slot) = room.or_else(|| self.evict(hash, now, lost)) else {
            self.counters.refused += 1;
            return Lookup::Refused;
        };
        self.count_away(slot, hash, true);
        self.len += 1;
        self.counters.inserted += 1;
        let entry = self.store.get_mut(slot);
        *entry = Entry { key: key.pack(), seen: LastSeen::at(now), value: V::default() };
        Lookup::New(&mut entry.value)
    }

    /// Returns a free slot in one of the buckets.
    fn vacant(&self, hash: u64) -> Option<usize> {
        self.slots(hash).find(|&slot| !self.store.get(slot).seen.is_taken())
    }

    /// Moves one flow of the buckets to its other bucket, and gives the slot it had.
    fn make_room(&mut self, hash: u64) -> Option<usize> {
        let (from, to, hash) = self.slots(hash).find_map(|slot| {
            let hash = K::unpack(&self.store.get(slot).key).flow_hash(&self.seed);
            self.vacant(hash).map(|to| (slot, to, hash))
        })?;
        self.count_away(from, hash, false);
        self.count_away(to, hash, true);
        *self.store.get_mut(to) = *self.store.get(from);
        self.store.free(from);
        self.counters.moved += 1;
        Some(from)
    }

    /// Frees the slot of the flow that has been idle longest.
    fn evict(&mut self, hash: u64, now: u32, lost: &mut impl FnMut(&K, &V)) -> Option<usize> {
        if self.full == Full::Refuse {
            return None;
        }
        let taken = self.slots(hash).filter(|&slot| self.store.get(slot).seen.is_taken());
        let idle = taken.map(|slot| (self.store.get(slot).seen.idle(now), slot));
        let (_, slot) = idle.filter(|&(idle, _)| idle > 0).max()?;
        let entry = self.store.get(slot);
        lost(&K::unpack(&entry.key), &entry.value);
        self.vacate(slot);
        self.counters.evicted += 1;
        Some(slot)
    }

    fn vacate(&mut self, slot: usize) {
        let hash = K::unpack(&self.store.get(slot).key).flow_hash(&self.seed);
        self.count_away(slot, hash, false);
        self.store.free(slot);
        self.len -= 1;
    }

    /// Returns the value of a flow without refreshing its time.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|slot| &self.store.get(slot).value)
    }

    /// As [`get`](Self::get), of a key that was prepared.
    #[inline(always)]
    pub fn read(&self, key: &Prepared<K>) -> Option<&V> {
        match self.store.in_line(key.home as usize, &key.key) {
            Some(entry) if entry.seen.is_taken() => Some(&entry.value),
            _ => self.read_further(key),
        }
    }

    #[inline(never)]
    fn read_further(&self, key: &Prepared<K>) -> Option<&V> {
        match self.store.in_line(Self::sibling_line(key.home as usize), &key.key) {
            Some(entry) if entry.seen.is_taken() => Some(&entry.value),
            _ => self.get(&key.key),
        }
    }

    /// Returns the other line of a bucket, which holds most of the other flows; the line itself if a bucket has one line, or
    /// if a slot takes several.
    #[inline(always)]
    fn sibling_line(home: usize) -> usize {
        home ^ (Entry::<K, V>::PER_LINE % WAYS)
    }

    /// As [`get`](Self::get), with how long it has been idle.
    pub fn peek(&self, key: &K, now: u32) -> Option<(&V, u32)> {
        let entry = self.store.get(self.find(key)?);
        Some((&entry.value, entry.seen.idle(now)))
    }

    /// Removes a flow.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.find(key)?;
        self.vacate(slot);
        self.counters.removed += 1;
        Some(self.store.get(slot).value)
    }

    /// Visits the flows of the next `buckets` buckets, at most all of them, going round, and removes those for which
    /// `expired` says so, given how long they have been idle. Says how many it removed.
    pub fn age(&mut self, now: u32, buckets: usize, mut expired: impl FnMut(&K, &mut V, u32) -> bool) -> usize {
        let before = self.len;
        for _ in 0..buckets.min(self.store.buckets()) {
            for slot in self.sweep * WAYS..(self.sweep + 1) * WAYS {
                let entry = self.store.get_mut(slot);
                if entry.seen.is_taken() && expired(&K::unpack(&entry.key), &mut entry.value, entry.seen.idle(now)) {
                    self.vacate(slot);
                }
            }
            self.sweep = if self.sweep + 1 == self.store.buckets() { 0 } else { self.sweep + 1 };
        }
        self.counters.expired += (before - self.len) as u64;
        before - self.len
    }

    /// Returns all flows of some buckets, in no order: for the greatest of them, say.
    ///
    /// # Panics
    /// If `buckets` goes beyond [`buckets`](Self::buckets).
    pub fn iter(&self, buckets: Range<usize>) -> impl Iterator<Item = (K, &V)> {
        let entries = (buckets.start * WAYS..buckets.end * WAYS).map(|slot| self.store.get(slot));
        entries.filter(|entry| entry.seen.is_taken()).map(|entry| (K::unpack(&entry.key), &entry.value))
    }

    /// As [`iter`](Self::iter), with the time of the last packet of each flow, of which 23 bits are kept: for a table that
    /// continues with these flows at the same clock.
    ///
    /// # Panics
    /// If `buckets` goes beyond [`buckets`](Self::buckets).
    pub fn iter_seen(&self, buckets: Range<usize>) -> impl Iterator<Item = (K, &V, u32)> {
        let entries = (buckets.start * WAYS..buckets.end * WAYS).map(|slot| self.store.get(slot));
        let taken = entries.filter(|entry| entry.seen.is_taken());
        taken.map(|entry| (K::unpack(&entry.key), &entry.value, entry.seen.time()))
    }

    /// As [`read`](Self::read), with the time of the last packet as [`iter_seen`](Self::iter_seen) returns it.
    pub fn read_seen(&self, key: &Prepared<K>) -> Option<(&V, u32)> {
        let entry = self.store.get(self.find_from(key.home as usize, &key.key)?);
        Some((&entry.value, entry.seen.time()))
    }

    /// Flows there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Flows there can be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Buckets of eight slots: the unit of [`age`](Self::age) and [`iter`](Self::iter).
    #[inline(always)]
    pub fn buckets(&self) -> usize {
        self.store.buckets()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the memory by kind of page.
    pub fn backing(&self) -> Backing {
        self.store.backing()
    }
}

impl<K: FlowKey, V> fmt::Debug for FlowTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("FlowTable");
        f.field("len", &self.len).field("capacity", &self.capacity).field("full", &self.full);
        f.field("counters", &self.counters).finish()
    }
}
