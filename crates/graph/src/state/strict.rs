//! State that every copy reads and writes, one after another.

use super::table::Table;
use super::{Full, Hasher};
use core::array;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts with a lock each: many more than cores, so that two seldom want the same.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());
/// Spreads a hash once more, over parts: the table inside is content with a hash whose bits are not all good (Fibonacci
/// hashing: Knuth, The Art of Computer Programming, volume 3, §6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map that every copy of an NF reads and writes, serialisably: whatever the copies do at the same time has the
/// effect that it would have had one after another, in an order in which each operation is between its call and its
/// return.
///
/// It is divided into 64 parts by key, each with a lock on cache lines of its own, held for as long as one operation
/// takes. What is done to one key takes one lock; [`atomically`](Strict::atomically) takes those of several keys,
/// always in the same order, so that none waits for another in a circle. **The closures run under the lock**: they
/// should be short, and must not use the same map, which would wait for itself. A panic in one leaves the map as the
/// closure left it.
///
/// There are at most `capacity` entries, exactly; a full map refuses new keys ([`Full`]) and counts them
/// ([`refused`](Strict::refused)). The keys' hash has a random seed for each map, and each part has room for so much
/// more than its share that none is full before the map is; if ever one were, it would refuse likewise. Memory is
/// reserved at the beginning, and as much again where entries come and go.
///
/// Tokens that all copies of an NF spend from one bucket for each customer:
/// ```
/// use graph::{BuildContext, Strict};
///
/// let cx = BuildContext { name: "limit".into(), ..Default::default() };
/// let tokens = cx.common(|| Ok(Strict::<u32, u64>::new(1000)))?;
/// tokens.insert(7, 100)?;
/// std::thread::scope(|cores| {
///     for _copy in 0..2 {
///         cores.spawn(|| {
///             (0..80).for_each(|_| {
///                 let spent = tokens.update(&7, |tokens| match tokens {
///                     Some(0) | None => false,
///                     Some(tokens) => {
///                         *tokens -= 1;
///                         true
///                     }
///                 });
///                 if !spent { /* drop the packet */ }
///             })
///         });
///     }
/// });
/// assert_eq!(tokens.get(&7), Some(0));
///
/// // all of one customer's tokens to another: nobody sees them at both, or at neither
/// tokens.insert(7, 25)?;
/// tokens.atomically([&7, &8], |both| {
///     let moved = both.remove(0).unwrap_or(0);
///     let there = both.get(1).copied().unwrap_or(0);
///     both.insert(1, there + moved)
/// })?;
/// assert_eq!((tokens.get(&7), tokens.get(&8)), (None, Some(25)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Strict<K, V> {
    shards: Box<[Shard<K, V>]>,
    hasher: Hasher,
    capacity: usize,
    /// Entries that a part can have.
    most: usize,
    count: Count,
}

#[repr(align(128))]
struct Shard<K, V>(Mutex<Table<K, V>>);

/// On cache lines of their own: they change with the entries, the rest of the map never.
#[repr(align(128))]
#[derive(Default)]
struct Count {
    /// Entries there are, and such as an operation that holds the lock of their part is about to make.
    entries: AtomicUsize,
    refused: AtomicU64,
}

type Guard<'a, K, V> = MutexGuard<'a, Table<K, V>>;

impl<K, V> Shard<K, V> {
    #[inline(always)]
    fn lock(&self) -> Guard<'_, K, V> {
        // A part is whole whenever its lock is free: only closures of callers panic, between two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> Strict<K, V> {
    /// An empty map of at most `capacity` entries. Memory for them is reserved.
    pub fn new(capacity: usize) -> Self {
        // What falls to a part differs from one to the next by about the root of it, and never by ten times that.
        let each = capacity.div_ceil(SHARDS);
        let each = (each + 10 * each.isqrt() + 10).min(capacity);
        let hasher = Hasher::default();
        let shard = |_| Shard(Mutex::new(Table::new(each, hasher.clone())));
        Strict { shards: (0..SHARDS).map(shard).collect(), capacity, most: each, count: Count::default(), hasher }
    }

    #[inline(always)]
    fn shard_of(hash: u64) -> usize {
        (hash.wrapping_mul(SPREAD) >> (u64::BITS - SHARDS.ilog2())) as usize
    }

    #[inline(always)]
    fn part(&self, key: &K) -> (u64, Guard<'_, K, V>) {
        let hash = self.hasher.hash_one(key);
        (hash, self.shards[Self::shard_of(hash)].lock())
    }

    /// Room for one more entry in a part, or a refusal.
    fn claim(&self, part: &Table<K, V>) -> Result<(), Full> {
        let more = |entries| (entries < self.capacity).then_some(entries + 1);
        let claim = || self.count.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if part.len() < self.most && claim().is_ok() {
            return Ok(());
        }
        self.count.refused.fetch_add(1, Ordering::Relaxed);
        Err(Full { capacity: self.capacity })
    }

    fn put(&self, part: &mut Table<K, V>, hash: u64, key: K, value: V) -> Result<Option<V>, Full> {
        if let Some(there) = part.find_mut(hash, &key) {
            return Ok(Some(core::mem::replace(there, value)));
        }
        self.claim(part)?;
        part.insert(hash, key, value);
        Ok(None)
    }

    fn take(&self, part: &mut Table<K, V>, hash: u64, key: &K) -> Option<V> {
        let (_, value) = part.remove(hash, key)?;
        self.count.entries.fetch_sub(1, Ordering::Relaxed);
        Some(value)
    }

    /// A copy of a key's value.
    #[inline]
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        let (hash, part) = self.part(key);
        part.find(hash, key).cloned()
    }

    /// Gives a key's value, if it has one, to `f`, to read and to change.
    #[inline]
    pub fn update<R>(&self, key: &K, f: impl FnOnce(Option<&mut V>) -> R) -> R {
        let (hash, mut part) = self.part(key);
        f(part.find_mut(hash, key))
    }

    /// Inserts or changes an entry, and gives the value that it had.
    ///
    /// # Errors
    /// [`Full`], when the key is new and there is no room for it.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, Full> {
        let (hash, mut part) = self.part(&key);
        self.put(&mut part, hash, key, value)
    }

    /// Gives a key's value to `f`, after inserting what `make` makes if it has none.
    ///
    /// # Errors
    /// [`Full`], when the key is new and there is no room for it; neither closure has run then.
    #[inline]
    pub fn insert_with<R>(&self, key: K, make: impl FnOnce() -> V, f: impl FnOnce(&mut V) -> R) -> Result<R, Full> {
        let (hash, mut part) = self.part(&key);
        if let Some(there) = part.find_mut(hash, &key) {
            return Ok(f(there));
        }
        self.claim(&part)?;
        // should `make` panic, the room is given back
        let claimed = Claimed(&self.count.entries);
        let value = make();
        core::mem::forget(claimed);
        Ok(f(part.insert(hash, key, value)))
    }

    /// Removes an entry, and gives its value.
    pub fn remove(&self, key: &K) -> Option<V> {
        let (hash, mut part) = self.part(key);
        self.take(&mut part, hash, key)
    }

    /// Gives several keys to `f` at once: nobody sees the map between two of the things it does to them. Keys are named
    /// by their place in `keys`; a key may stand there more than once.
    #[inline]
    pub fn atomically<const M: usize, R>(&self, keys: [&K; M], f: impl FnOnce(&mut Locked<'_, M, K, V>) -> R) -> R {
        let hashes = keys.map(|key| self.hasher.hash_one(key));
        let mut wanted = hashes.map(Self::shard_of);
        wanted.sort_unstable();
        // each part once, in ascending order
        let mut guards = array::from_fn(|_| None);
        for (n, guard) in guards.iter_mut().enumerate() {
            if n == 0 || wanted[n - 1] != wanted[n] {
                *guard = Some(self.shards[wanted[n]].lock());
            }
        }
        f(&mut Locked { map: self, keys, hashes, wanted, guards })
    }

    /// Removes the entries for which `keep` says no, part by part: it is not a moment's state that is seen.
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for shard in &self.shards {
            let mut part = shard.lock();
            let before = part.len();
            // counted also when `keep` panics
            let removed = Removed { entries: &self.count.entries, before, part: &mut part };
            removed.part.retain(&mut keep);
        }
    }

    /// Entries there are.
    pub fn len(&self) -> usize {
        self.count.entries.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there can be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// New keys refused because the map was full.
    pub fn refused(&self) -> u64 {
        self.count.refused.load(Ordering::Relaxed)
    }
}

/// Gives back room that was claimed.
struct Claimed<'a>(&'a AtomicUsize);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts what has been removed from a part.
struct Removed<'a, K, V> {
    entries: &'a AtomicUsize,
    before: usize,
    part: &'a mut Table<K, V>,
}

impl<K, V> Drop for Removed<'_, K, V> {
    fn drop(&mut self) {
        self.entries.fetch_sub(self.before - self.part.len(), Ordering::Relaxed);
    }
}

/// Several keys of a [`Strict`] map that nobody else can reach meanwhile. Keys are named by their place.
///
/// # Panics
/// All methods, if there is no key of this place.
pub struct Locked<'a, const M: usize, K, V> {
    map: &'a Strict<K, V>,
    keys: [&'a K; M],
    hashes: [u64; M],
    /// The numbers of their parts, ascending.
    wanted: [usize; M],
    /// The lock of `wanted[n]`, at the first `n` of those with the same number.
    guards: [Option<Guard<'a, K, V>>; M],
}

impl<K: Hash + Eq, V, const M: usize> Locked<'_, M, K, V> {
    #[inline]
    fn part(&mut self, n: usize) -> &mut Table<K, V> {
        let shard = Strict::<K, V>::shard_of(self.hashes[n]);
        let at = self.wanted.partition_point(|&wanted| wanted < shard);
        self.guards[at].as_mut().expect("the first of its number has the lock")
    }

    /// A key's value.
    pub fn get(&mut self, n: usize) -> Option<&V> {
        self.get_mut(n).map(|value| &*value)
    }

    /// A key's value, to change it.
    #[inline]
    pub fn get_mut(&mut self, n: usize) -> Option<&mut V> {
        let (key, hash) = (self.keys[n], self.hashes[n]);
        self.part(n).find_mut(hash, key)
    }

    /// Inserts or changes a key's value, and gives the one it had.
    ///
    /// # Errors
    /// [`Full`], when the key has no value and there is no room for one.
    pub fn insert(&mut self, n: usize, value: V) -> Result<Option<V>, Full>
    where
        K: Clone,
    {
        let (map, key, hash) = (self.map, self.keys[n].clone(), self.hashes[n]);
        map.put(self.part(n), hash, key, value)
    }

    /// Removes a key's value.
    pub fn remove(&mut self, n: usize) -> Option<V> {
        let (map, key, hash) = (self.map, self.keys[n], self.hashes[n]);
        map.take(self.part(n), hash, key)
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Strict<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Strict");
        f.field("len", &self.len()).field("capacity", &self.capacity).field("refused", &self.refused()).finish()
    }
}

impl<const M: usize, K, V> fmt::Debug for Locked<'_, M, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No part is full before the map is, also when keys have the patterns that addresses and ports have.
    #[test]
    fn all_of_the_capacity_can_be_used() {
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
