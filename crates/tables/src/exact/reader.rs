//! Look-ups.

use super::key::Key;
use super::store::{Geometry, Store};
use super::sync::{Arc, Ordering, fence};

/// Keys of which the buckets are fetched together.
const GROUP: usize = 32;

/// One thread's way to look keys up. Its clone is a further reader.
pub struct Reader<K: Key> {
    store: Arc<Store<K>>,
    /// One being fetched, one compared, one of which the rest is compared.
    groups: [Group; 3],
    restarts: u64,
}

impl<K: Key> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.store))
    }
}

/// Keys on their way.
#[derive(Default)]
struct Group {
    hashes: [u64; GROUP],
    first: [u32; GROUP],
    /// Which were not in their first bucket, and the counter of moves of that bucket before it was looked at for good.
    missed: [(u32, u32); GROUP],
    missing: usize,
}

/// A stored value as what it is.
#[inline(always)]
fn value<K: Key>(stored: u32) -> Option<K::Value> {
    if stored == 0 { None } else { Some(K::value(stored - 1)) }
}

impl<K: Key> Reader<K> {
    pub(super) fn new(store: Arc<Store<K>>) -> Self {
        Self { store, groups: Default::default(), restarts: 0 }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&mut self, key: K) -> Option<K::Value> {
        let hash = self.store.hash(key);
        let mut stored = key.find(self.store.bucket(self.store.geometry().first(hash)));
        if stored == 0 {
            stored = look_in_both(&self.store, key, hash, &mut self.restarts);
        }
        // Whoever finds an entry sees what was written before it was inserted.
        fence(Ordering::Acquire);
        value::<K>(stored)
    }

    /// Looks keys up, and puts the value of `keys[i]` at `values[i]`. Any number of keys, in groups of 32: while one is
    /// compared the next one is fetched, so that several bursts in one call are faster than one by one.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn get_batch(&mut self, keys: &[K], values: &mut [Option<K::Value>]) {
        assert_eq!(keys.len(), values.len(), "one value for each key");
        let (store, geometry) = (&*self.store, self.store.geometry());
        let of = |n: usize| n * GROUP..keys.len().min((n + 1) * GROUP);
        let count = keys.len().div_ceil(GROUP);
        for n in 0..count + 2 {
            if n < count {
                self.groups[n % 3].fetch(store, geometry, &keys[of(n)]);
            }
            if (1..=count).contains(&n) {
                self.groups[(n - 1) % 3].compare(store, geometry, &keys[of(n - 1)], &mut values[of(n - 1)]);
            }
            if n >= 2 && n - 2 < count {
                let (keys, values) = (&keys[of(n - 2)], &mut values[of(n - 2)]);
                self.groups[(n - 2) % 3].rest(store, geometry, keys, values, &mut self.restarts);
            }
        }
        fence(Ordering::Acquire);
    }

    /// Look-ups that this reader began again, because an entry may have passed it.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

impl Group {
    /// Fetches the first buckets.
    #[inline(always)]
    fn fetch<K: Key>(&mut self, store: &Store<K>, geometry: Geometry, keys: &[K]) {
        for ((key, hash), first) in keys.iter().zip(&mut self.hashes).zip(&mut self.first) {
            *hash = store.hash(*key);
            let bucket = geometry.first(*hash);
            *first = bucket as u32;
            Store::<K>::prefetch(store.bucket(bucket));
        }
    }

    /// Looks in the first buckets, and fetches the second of those keys that are not there.
    #[inline(always)]
    fn compare<K: Key>(&mut self, store: &Store<K>, geometry: Geometry, keys: &[K], values: &mut [Option<K::Value>]) {
        self.missing = 0;
        let ahead = self.hashes.iter().zip(&self.first);
        for (i, ((key, to), (&hash, &first))) in keys.iter().zip(values).zip(ahead).enumerate() {
            let stored = key.find(store.bucket(first as usize));
            *to = value::<K>(stored);
            if stored == 0 {
                Store::<K>::prefetch(store.bucket(geometry.second(hash)));
                // Once more, now that what comes is counted. Acquire: an entry whose coming was counted is seen.
                let moves = store.moves(first as usize).load(Ordering::Acquire);
                *to = value::<K>(key.find(store.bucket(first as usize)));
                self.missed[self.missing] = (i as u32, moves);
                self.missing += usize::from(to.is_none());
            }
        }
        // What has left the first buckets is seen where it went.
        fence(Ordering::Acquire);
    }

    /// Looks in the second buckets of those keys.
    #[inline(always)]
    fn rest<K: Key>(
        &self,
        store: &Store<K>,
        geometry: Geometry,
        keys: &[K],
        values: &mut [Option<K::Value>],
        restarts: &mut u64,
    ) {
        for &(i, moves) in &self.missed[..self.missing] {
            let i = i as usize;
            let (key, hash) = (keys[i], self.hashes[i]);
            let mut stored = key.find(store.bucket(geometry.second(hash)));
            if stored == 0 && store.moved(geometry, self.first[i] as usize, moves) {
                *restarts += 1;
                stored = look_in_both(store, key, hash, restarts);
            }
            values[i] = value::<K>(stored);
        }
    }
}

/// The stored value of a key, or 0 when it was in neither bucket at some time.
#[inline(never)]
fn look_in_both<K: Key>(store: &Store<K>, key: K, hash: u64, restarts: &mut u64) -> u32 {
    loop {
        let geometry = store.geometry();
        let [first, second] = [geometry.first(hash), geometry.second(hash)];
        // Acquire: an entry whose coming was counted is seen.
        let moves = store.moves(first).load(Ordering::Acquire);
        let mut stored = key.find(store.bucket(first));
        if stored == 0 {
            // What has left the first bucket is seen where it went.
            fence(Ordering::Acquire);
            stored = key.find(store.bucket(second));
        }
        if stored != 0 || !store.moved(geometry, first, moves) {
            return stored;
        }
        *restarts += 1;
    }
}
