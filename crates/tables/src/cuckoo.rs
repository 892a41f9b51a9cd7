//! Exact match: a value for each of up to billions of keys, found in one cache line nearly always.
//!
//! A FIB for routes to hosts (a VRF and an IPv4 or IPv6 address) or MAC addresses (in a VLAN or not). One writer
//! changes it while any number of readers look up, without locks on either side.
//!
//! | key | bits | values | entries | bytes for each as made |
//! |---|---|---|---|---|
//! | [`Key48`] | 48 | 0 to 65,534 | 8 to a line of 64 B | 9.2 |
//! | [`Key64`] | 64 | 0 to 4,294,967,294 | 5 to a line | 14.6 |
//! | [`Key144`] | 144 | 0 to 4,294,967,294 | 5 to two lines | 29.3 |
//!
//! # How it works
//!
//! **Buckets.** A key has two buckets, by two hashes under a secret seed (cuckoo hashing, Pagh and Rodler 2001, in buckets
//! as Dietzfelbinger and Weidling 2007). It goes to the first while there is room, then to the second; when both are full, a
//! breadth-first search over at most 512 buckets finds the shortest way to move others so that one slot is free. If it finds
//! none, the table is full, which is an error: more than 95 % of slots are taken then. A table is made so that its entries
//! take seven slots of eight; 88 % of them are in their first bucket.
//!
//! **Look-ups** come many at a time ([`Reader::get_batch`]): the first lines of 64 keys are fetched before the first is
//! compared, then block by block those of 32 more before 32 are compared; the second line is fetched for those that were not
//! found, and compared after the next block.
//!
//! **Readers and the writer.** An entry of 48 bits is one atomic word; wider ones are written while their slot reads as
//! free, and a version in the bucket tells readers that a slot has been used again. An entry that moves is copied before it
//! is removed, the last of a path first. A reader looks in the first bucket, then in the second; only an entry that went the
//! other way meanwhile can pass it, so each arrival by a move is counted, in one of 1,024 counters, before the old place is
//! freed. A reader that found nothing compares the count, and looks again if it has changed ([`Reader::restarts`]). So an
//! entry that is there during all of a look-up is found, and every answer was right at some time during its look-up. A
//! stalled reader blocks neither writer nor readers, nor does a stalled writer. The model test `cuckoo_loom` tries all this under every
//! reordering that the memory model allows.
//!
//! **Growth** ([`Settings::most`]) adds one bucket at a time and shares the entries of one other with it (linear hashing,
//! Litwin 1980), copied, made known, then removed: a reader that found nothing also looks whether a bucket has come. The
//! memory's address space is reserved from the start, so nothing else moves, and no insertion takes longer than another.
//!
//! ```
//! use tables::cuckoo::{CuckooTable, Key48, Settings};
//!
//! let mut fib: CuckooTable<Key48> = CuckooTable::new(&Settings { most: 1_000_000, ..Settings::new(1000) })?;
//! let host = |vrf, address| Key48::vrf_ipv4(vrf, address);
//! fib.insert(host(1, 0x0a00_0001), 7)?;
//! fib.insert(host(2, 0x0a00_0001), 8)?;
//!
//! let mut reader = fib.reader();
//! std::thread::scope(|threads| {
//!     threads.spawn(move || {
//!         let mut next_hops = [None; 3];
//!         reader.get_batch(&[host(1, 0x0a00_0001), host(2, 0x0a00_0001), host(3, 0x0a00_0001)], &mut next_hops);
//!         assert_eq!(next_hops, [Some(7), Some(8), None]);
//!     });
//!     // and meanwhile
//!     fib.insert(host(1, 0x0a00_0002), 9).expect("room");
//! });
//! assert_eq!(fib.remove(host(1, 0x0a00_0001)), Some(7));
//! # Ok::<(), tables::cuckoo::Error>(())
//! ```
#![allow(unexpected_cfgs, reason = "`cfg(loom)` is set by hand, for the model test alone")]

mod file;
mod key;
mod keys;
mod layout;
mod path;
mod reader;
mod settings;
mod store;
mod sync;

pub use crate::flow::Seed;
pub use key::Key;
pub use keys::{Key48, Key64, Key144};
pub use reader::Reader;
pub use settings::{ENTRIES_MOST, Error, LoadError, Settings};

use crate::Backing;
use core::fmt;
use path::Path;
use store::{Geometry, Store};
use sync::Arc;

/// Slots of eight that are taken when a table holds what it was made for, and at most when it can grow.
const TAKEN: u64 = 7;

/// Keys whose buckets are fetched together when many are inserted.
const GROUP: usize = 32;

/// Entries after which progress is told.
const PROGRESS: u64 = 1 << 20;

/// Counters of a table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Entries inserted: `len = inserted - removed`.
    pub inserted: u64,
    /// Values replaced.
    pub replaced: u64,
    /// Entries removed, also by [`clear`](CuckooTable::clear).
    pub removed: u64,
    /// Entries that moved to their other bucket to make room.
    pub moved: u64,
    /// Buckets added.
    pub split: u64,
    /// Keys for which there was no room.
    pub refused: u64,
}

/// The table, as its one writer has it: it can be sent, not cloned.
pub struct CuckooTable<K: Key> {
    store: Arc<Store<K>>,
    geometry: Geometry,
    path: Path,
    len: u64,
    counters: Counters,
}

/// Buckets for so many entries.
fn buckets<K: Key>(entries: u64) -> usize {
    (entries * 8).div_ceil(TAKEN * K::WAYS as u64) as usize
}

impl<K: Key> CuckooTable<K> {
    /// An empty table, the memory for `settings.entries` there: for each 8 B and a seventh with keys of 48 bits, 14.6 B
    /// with 64, 29.3 B with 144; 32 KiB besides.
    ///
    /// # Errors
    /// [`Error::Entries`], or [`Error::Memory`] if the system has none.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let Settings { entries, most, seed, pages } = *settings;
        for entries in [entries, most.max(entries)] {
            if !(1..=ENTRIES_MOST).contains(&entries) {
                return Err(Error::Entries { entries });
            }
        }
        let (base, most) = (buckets::<K>(entries), buckets::<K>(most.max(entries)));
        let memory =
            |source: rustix::io::Errno| Error::Memory { bytes: Store::<K>::bytes(base), source: source.into() };
        let store = Arc::new(Store::new(base, most, seed, pages).map_err(memory)?);
        let geometry = store.geometry();
        Ok(Self { store, geometry, path: Path::default(), len: 0, counters: Counters::default() })
    }

    /// Returns a reader for one thread.
    #[must_use]
    pub fn reader(&self) -> Reader<K> {
        Reader::new(Arc::clone(&self.store))
    }

    fn both(&self, hash: u64) -> [usize; 2] {
        [self.geometry.first(hash), self.geometry.second(hash)]
    }

    /// Bucket, way and stored value of a key.
    fn find(&self, key: K, hash: u64) -> Option<(usize, usize, u32)> {
        self.both(hash).into_iter().find_map(|at| {
            let bucket = self.store.bucket(at);
            if key.find(bucket) == 0 {
                return None;
            }
            (0..K::WAYS).find_map(|way| {
                let (_, stored) = K::entry(bucket, way).filter(|(other, _)| *other == key)?;
                Some((at, way, stored))
            })
        })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<K::Value> {
        self.find(key, self.store.hash(key)).map(|(_, _, stored)| K::value(stored - 1))
    }

    /// Inserts a key, or replaces its value and gives the one it had.
    ///
    /// # Errors
    /// [`Error::Value`] above [`Key::MAX_VALUE`]; [`Error::Full`] when there is no room and the table cannot grow;
    /// [`Error::Memory`] when there is none left to grow with and no room without. The table is then as it was.
    pub fn insert(&mut self, key: K, value: K::Value) -> Result<Option<K::Value>, Error> {
        self.insert_hashed(key, value, self.store.hash(key))
    }

    fn insert_hashed(&mut self, key: K, value: K::Value, hash: u64) -> Result<Option<K::Value>, Error> {
        let value: u32 = value.into();
        if value > K::MAX_VALUE {
            return Err(Error::Value { value, most: K::MAX_VALUE, bits: K::BITS });
        }
        if let Some((bucket, way, old)) = self.find(key, hash) {
            key.replace(self.store.bucket(bucket), way, value + 1);
            self.counters.replaced += 1;
            return Ok(Some(K::value(old - 1)));
        }
        if self.len * 8 >= self.slots() * TAKEN {
            // without memory for another bucket it goes on in those there are
            let _ = self.split();
        }
        let (bucket, way) = loop {
            if let Some(room) = self.room(hash) {
                break room;
            }
            match self.split() {
                Ok(true) => {}
                Ok(false) => {
                    self.counters.refused += 1;
                    return Err(Error::Full { len: self.len, slots: self.slots() });
                }
                Err(error) => {
                    self.counters.refused += 1;
                    return Err(error);
                }
            }
        };
        key.fill(self.store.bucket(bucket), way, value + 1);
        self.len += 1;
        self.counters.inserted += 1;
        Ok(None)
    }

    /// A free slot for a key that is not there: in its first bucket if possible, where it costs readers one line.
    fn room(&mut self, hash: u64) -> Option<(usize, usize)> {
        let both = self.both(hash);
        for at in both {
            let bucket = self.store.bucket(at);
            if let Some(way) = (0..K::WAYS).find(|&way| K::entry(bucket, way).is_none()) {
                return Some((at, way));
            }
        }
        let (bucket, way, moved) = self.path.make_room(&self.store, self.geometry, both)?;
        self.counters.moved += moved;
        Some((bucket, way))
    }

    /// Adds a bucket, and moves to it what is looked for there from now on. False if there are as many as there may be.
    fn split(&mut self) -> Result<bool, Error> {
        let new = self.geometry.buckets();
        if new == self.store.most() {
            return Ok(false);
        }
        self.store
            .back(new)
            .map_err(|source| Error::Memory { bytes: Store::<K>::bytes(new + 1), source: source.into() })?;
        let (geometry, old) = self.geometry.split();
        let (from, to) = (self.store.bucket(old), self.store.bucket(new));
        let mut goes = 0u32;
        for way in 0..K::WAYS {
            let Some((key, stored)) = K::entry(from, way) else { continue };
            let hash = self.store.hash(key);
            let now = [geometry.first(hash), geometry.second(hash)];
            if !now.contains(&old) {
                key.fill(to, way, stored);
                goes |= 1 << way;
            }
        }
        // Copied, then made known, then removed: a reader finds an entry in the old bucket, or that there is a new one.
        self.store.publish(geometry);
        self.geometry = geometry;
        (0..K::WAYS).filter(|way| goes >> way & 1 != 0).for_each(|way| K::free(from, way));
        self.counters.split += 1;
        Ok(true)
    }

    /// Inserts many, faster than one by one, as their buckets are fetched together; `progress` is told how many are done
    /// each 1,048,576 and at the end.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); what came before stays.
    pub fn extend(
        &mut self,
        entries: impl IntoIterator<Item = (K, K::Value)>,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, Error> {
        let mut entries = entries.into_iter();
        let (mut group, mut next) = (Vec::with_capacity(GROUP), Vec::with_capacity(GROUP));
        let mut done = 0;
        self.fetch(&mut entries, &mut group);
        while !group.is_empty() {
            self.fetch(&mut entries, &mut next);
            for &(key, value, hash) in &group {
                self.insert_hashed(key, value, hash)?;
                done += 1;
                if done % PROGRESS == 0 {
                    progress(done);
                }
            }
            (group, next) = (next, group);
        }
        progress(done);
        Ok(done)
    }

    /// Hashes a group of entries and fetches their buckets.
    fn fetch(&self, entries: &mut impl Iterator<Item = (K, K::Value)>, group: &mut Vec<(K, K::Value, u64)>) {
        group.clear();
        for (key, value) in entries.take(GROUP) {
            let hash = self.store.hash(key);
            self.both(hash).into_iter().for_each(|bucket| Store::<K>::prefetch(self.store.bucket(bucket)));
            group.push((key, value, hash));
        }
    }

    /// Removes a key, and gives the value it had.
    pub fn remove(&mut self, key: K) -> Option<K::Value> {
        let (bucket, way, stored) = self.find(key, self.store.hash(key))?;
        K::free(self.store.bucket(bucket), way);
        self.len -= 1;
        self.counters.removed += 1;
        Some(K::value(stored - 1))
    }

    /// Removes all entries. The memory stays.
    pub fn clear(&mut self) {
        for bucket in 0..self.geometry.buckets() {
            let bucket = self.store.bucket(bucket);
            (0..K::WAYS).filter(|&way| K::entry(bucket, way).is_some()).for_each(|way| K::free(bucket, way));
        }
        self.counters.removed += self.len;
        self.len = 0;
    }

    /// Returns all entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, K::Value)> {
        let buckets = (0..self.geometry.buckets()).map(|bucket| self.store.bucket(bucket));
        let entries = buckets.flat_map(|bucket| (0..K::WAYS).filter_map(|way| K::entry(bucket, way)));
        entries.map(|(key, stored)| (key, K::value(stored - 1)))
    }

    /// Entries there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots there are now.
    #[must_use]
    pub fn slots(&self) -> u64 {
        (self.geometry.buckets() * K::WAYS) as u64
    }

    /// Entries that are in their first bucket, and cost a reader one line: visits all.
    #[must_use]
    pub fn in_primary(&self) -> u64 {
        let buckets = (0..self.geometry.buckets()).map(|at| (at, self.store.bucket(at)));
        let entries =
            buckets.flat_map(|(at, bucket)| (0..K::WAYS).filter_map(move |way| Some((at, K::entry(bucket, way)?.0))));
        entries.filter(|&(at, key)| self.geometry.first(self.store.hash(key)) == at).count() as u64
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the kinds of pages that back the table. Reads a file of the kernel: not for the packet path.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.store.backing()
    }
}

impl<K: Key> fmt::Debug for CuckooTable<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("CuckooTable");
        f.field("len", &self.len).field("slots", &self.slots()).field("counters", &self.counters).finish()
    }
}
