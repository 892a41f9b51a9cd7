//! Maps that every copy reads and writes, with strict consistency.

use super::table::Table;
use super::{Full, Hasher};
use core::array;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of shards, each with a lock: many more than cores, so that contention is rare.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());
/// Multiplier that maps a hash to a shard; the table inside needs only some good bits of the hash (Fibonacci hashing:
/// Knuth, The Art of Computer Programming, volume 3, §6.4).
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map that every copy of an NF reads and writes, with serialisable operations: concurrent operations have the effect
/// of some sequential order, in which each lies between its call and its return.
///
/// The map consists of 64 shards by key, each with a lock on its own cache lines that is held for one operation. An
/// operation on one key takes one lock; [`atomically`](Strict::atomically) takes those of several keys, always in the
/// same order, so that there is no deadlock. **Closures run under the lock**: keep them short, and do not use the same
/// map in them, which would deadlock. If a closure panics, the map keeps the changes that it has made.
///
/// The map has at most `capacity` entries, exactly. A full map refuses new keys ([`Full`]) and counts them
/// ([`refused`](Strict::refused)). Keys are hashed with a random seed for each map. Each shard reserves so much more
/// than its share that no shard is full before the map is; a full shard would refuse keys likewise. Memory is reserved
/// at creation, and as much again once entries are removed.
///
/// Tokens that all copies of an NF take from one bucket for each customer:
/// ```
/// use graph::{BuildContext, Strict};
///
/// let cx = BuildContext { name: "limit".into(), ..Default::default() };
/// let tokens = cx.shared(|| Ok(Strict::<u32, u64>::new(1000)))?;
/// tokens.insert(7, 100)?;
/// std::thread::scope(|cores| {
///     for _copy in 0..2 {
///         cores.spawn(|| {
///             (0..80).for_each(|_| {
///                 let taken = tokens.update(&7, |tokens| match tokens {
///                     Some(0) | None => false,
///                     Some(tokens) => {
///                         *tokens -= 1;
///                         true
///                     }
///                 });
///                 if !taken { /* drop the packet */ }
///             })
///         });
///     }
/// });
/// assert_eq!(tokens.get(&7), Some(0));
///
/// // moves all tokens of a customer to another in one atomic operation
/// tokens.insert(7, 25)?;
/// tokens.atomically([&7, &8], |both| {
///     let moved = both.remove(0).unwrap_or(0);
///     let own = both.get(1).copied().unwrap_or(0);
///     both.insert(1, own + moved)
/// })?;
/// assert_eq!((tokens.get(&7), tokens.get(&8)), (None, Some(25)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Strict<K, V> {
    shards: Box<[Shard<K, V>]>,
    hasher: Hasher,
    capacity: usize,
    /// Maximum number of entries of a shard.
    shard_capacity: usize,
    count: Count,
}

#[repr(align(128))]
struct Shard<K, V>(Mutex<Table<K, V>>);

/// Counts, on their own cache lines because they change while the rest of the map does not.
#[repr(align(128))]
#[derive(Default)]
struct Count {
    /// Number of entries, including those that an operation under the lock of their shard is about to insert.
    entries: AtomicUsize,
    refused: AtomicU64,
}

type Guard<'a, K, V> = MutexGuard<'a, Table<K, V>>;

impl<K, V> Shard<K, V> {
    #[inline(always)]
    fn lock(&self) -> Guard<'_, K, V> {
        // a poisoned shard is consistent: only closures of callers panic, between two changes
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> Strict<K, V> {
    /// Creates an empty map of at most `capacity` entries and reserves memory for them.
    pub fn new(capacity: usize) -> Self {
        // the share of a shard deviates by about its square root, and never by ten times that
        let each = capacity.div_ceil(SHARDS);
        let each = (each + 10 * each.isqrt() + 10).min(capacity);
        let hasher = Hasher::default();
        let shard = |_| Shard(Mutex::new(Table::new(each, hasher.clone())));
        Strict {
            shards: (0..SHARDS).map(shard).collect(),
            capacity,
            shard_capacity: each,
            count: Count::default(),
            hasher,
        }
    }

    #[inline(always)]
    fn shard_of(hash: u64) -> usize {
        (hash.wrapping_mul(HASH_MULTIPLIER) >> (u64::BITS - SHARDS.ilog2())) as usize
    }

    #[inline(always)]
    fn lock_shard(&self, key: &K) -> (u64, Guard<'_, K, V>) {
        let hash = self.hasher.hash_one(key);
        (hash, self.shards[Self::shard_of(hash)].lock())
    }

    /// Reserves one entry in a shard, or counts a refusal.
    fn reserve(&self, shard: &Table<K, V>) -> Result<(), Full> {
        let more = |entries| (entries < self.capacity).then_some(entries + 1);
        let increment = || self.count.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if shard.len() < self.shard_capacity && increment().is_ok() {
            return Ok(());
        }
        self.count.refused.fetch_add(1, Ordering::Relaxed);
        Err(Full { capacity: self.capacity })
    }

    fn insert_locked(&self, shard: &mut Table<K, V>, hash: u64, key: K, value: V) -> Result<Option<V>, Full> {
        if let Some(current) = shard.find_mut(hash, &key) {
            return Ok(Some(core::mem::replace(current, value)));
        }
        self.reserve(shard)?;
        shard.insert(hash, key, value);
        Ok(None)
    }

    fn remove_locked(&self, shard: &mut Table<K, V>, hash: u64, key: &K) -> Option<V> {
        let (_, value) = shard.remove(hash, key)?;
        self.count.entries.fetch_sub(1, Ordering::Relaxed);
        Some(value)
    }

    /// Returns a copy of the value of a key.
    #[inline]
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        let (hash, shard) = self.lock_shard(key);
        shard.find(hash, key).cloned()
    }

    /// Calls `f` with the value of a key, if it has one, and returns the result.
    #[inline]
    pub fn update<R>(&self, key: &K, f: impl FnOnce(Option<&mut V>) -> R) -> R {
        let (hash, mut shard) = self.lock_shard(key);
        f(shard.find_mut(hash, key))
    }

    /// Inserts or changes an entry and returns the previous value.
    ///
    /// # Errors
    /// [`Full`] if the key is new and the map is full.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Full> {
        let (hash, mut shard) = self.lock_shard(&key);
        self.insert_locked(&mut shard, hash, key, value)
    }

    /// Inserts the result of `init` if the key has no value, then calls `f` with its value and returns the result.
    ///
    /// # Errors
    /// [`Full`] if the key is new and the map is full; neither closure is called then.
    #[inline]
    pub fn insert_with<R>(&self, key: K, init: impl FnOnce() -> V, f: impl FnOnce(&mut V) -> R) -> Result<R, Full> {
        let (hash, mut shard) = self.lock_shard(&key);
        if let Some(current) = shard.find_mut(hash, &key) {
            return Ok(f(current));
        }
        self.reserve(&shard)?;
        // undone if `init` panics
        let reservation = Reservation(&self.count.entries);
        let value = init();
        core::mem::forget(reservation);
        Ok(f(shard.insert(hash, key, value)))
    }

    /// Removes an entry and returns its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        let (hash, mut shard) = self.lock_shard(key);
        self.remove_locked(&mut shard, hash, key)
    }

    /// Calls `f` with several keys locked: no other operation sees the map between the changes that `f` makes. Keys are
    /// addressed by their index in `keys`, which may contain a key more than once.
    #[inline]
    pub fn atomically<const M: usize, R>(&self, keys: [&K; M], f: impl FnOnce(&mut LockedKeys<'_, M, K, V>) -> R) -> R {
        let hashes = keys.map(|key| self.hasher.hash_one(key));
        let mut shards = hashes.map(Self::shard_of);
        shards.sort_unstable();
        // lock each shard once, in ascending order
        let mut guards = array::from_fn(|_| None);
        for (n, guard) in guards.iter_mut().enumerate() {
            if n == 0 || shards[n - 1] != shards[n] {
                *guard = Some(self.shards[shards[n]].lock());
            }
        }
        f(&mut LockedKeys { map: self, keys, hashes, shards, guards })
    }

    /// Removes the entries for which `keep` returns false. Locks shard by shard: the map may change in between.
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.len();
            // also counts if `keep` panics
            let removed = RemovalCount { entries: &self.count.entries, before, shard: &mut shard };
            removed.shard.retain(&mut keep);
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count.entries.load(Ordering::Relaxed)
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of keys refused because the map was full.
    pub fn refused(&self) -> u64 {
        self.count.refused.load(Ordering::Relaxed)
    }
}

/// Returns a reserved entry when dropped.
struct Reservation<'a>(&'a AtomicUsize);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Subtracts the entries removed from a shard when dropped.
struct RemovalCount<'a, K, V> {
    entries: &'a AtomicUsize,
    before: usize,
    shard: &'a mut Table<K, V>,
}

impl<K, V> Drop for RemovalCount<'_, K, V> {
    fn drop(&mut self) {
        self.entries.fetch_sub(self.before - self.shard.len(), Ordering::Relaxed);
    }
}

/// Several locked keys of a [`Strict`] map, addressed by their index in the call of [`Strict::atomically`].
///
/// # Panics
/// All methods, if the index is out of range.
pub struct LockedKeys<'a, const M: usize, K, V> {
    map: &'a Strict<K, V>,
    keys: [&'a K; M],
    hashes: [u64; M],
    /// Shards of the keys, ascending.
    shards: [usize; M],
    /// Lock of `shards[n]`, at the first of equal elements.
    guards: [Option<Guard<'a, K, V>>; M],
}

impl<K: Hash + Eq, V, const M: usize> LockedKeys<'_, M, K, V> {
    #[inline]
    fn shard(&mut self, n: usize) -> &mut Table<K, V> {
        let shard = Strict::<K, V>::shard_of(self.hashes[n]);
        let at = self.shards.partition_point(|&other| other < shard);
        self.guards[at].as_mut().expect("the first of equal elements has the lock")
    }

    /// Returns the value of key `n`.
    pub fn get(&mut self, n: usize) -> Option<&V> {
        self.get_mut(n).map(|value| &*value)
    }

    /// Returns the value of key `n`, mutably.
    #[inline]
    pub fn get_mut(&mut self, n: usize) -> Option<&mut V> {
        let (key, hash) = (self.keys[n], self.hashes[n]);
        self.shard(n).find_mut(hash, key)
    }

    /// Inserts or changes the value of key `n` and returns the previous value.
    ///
    /// # Errors
    /// [`Full`] if the key has no value and the map is full.
    pub fn insert(&mut self, n: usize, value: V) -> Result<Option<V>, Full>
    where
        K: Clone,
    {
        let (map, key, hash) = (self.map, self.keys[n].clone(), self.hashes[n]);
        map.insert_locked(self.shard(n), hash, key, value)
    }

    /// Removes the value of key `n` and returns it.
    pub fn remove(&mut self, n: usize) -> Option<V> {
        let (map, key, hash) = (self.map, self.keys[n], self.hashes[n]);
        map.remove_locked(self.shard(n), hash, key)
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Strict<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Strict");
        f.field("len", &self.len()).field("capacity", &self.capacity).field("refused", &self.refused()).finish()
    }
}

impl<const M: usize, K, V> fmt::Debug for LockedKeys<'_, M, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedKeys").field("shards", &self.shards).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No shard is full before the map is, also for keys with the patterns of addresses and ports.
    #[test]
    fn whole_capacity_is_usable() {
        let fill = |capacity: u64, name: u32, key: &dyn Fn(u64) -> u64| {
            let map = Strict::<u64, u64>::new(capacity as usize);
            for n in 0..capacity {
                assert_eq!(map.insert(key(n), n), Ok(None), "{n} of {capacity}, pattern {name}");
            }
            assert_eq!(map.insert(u64::MAX, 0), Err(Full { capacity: capacity as usize }));
        };
        for capacity in [1, 2, 10, 64, 100, 1000, 10_000].into_iter().flat_map(|capacity| [capacity; 5]) {
            (0..50).for_each(|shift| fill(capacity, shift, &|n| n << shift));
            fill(capacity, 100, &|n| 0x0a00_0000_c000_0000 | (n & 0xff) << 32 | n >> 8);
            fill(capacity, 101, &|n| n * 0x0001_0001_0001);
            fill(capacity, 102, &|n| n.reverse_bits());
        }
    }
}
