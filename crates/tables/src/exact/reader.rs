//! Look-ups.

use super::key::Key;
use super::store::{Store, View};
use super::sync::{Arc, Ordering, fence};

/// Keys that are fetched before the first of them is compared: about as many lines as a core waits for at a time. Of 8, 12,
/// 16, 24 and 32 measured best, for bursts of 32 and of 256.
const GROUP: usize = 24;
/// A power of two, so that an index below it is cheap to be sure of.
const ROOM: usize = 32;

/// One thread's way to look keys up. Its clone is a further reader.
pub struct Reader<K: Key> {
    store: Arc<Store<K>>,
    /// One fetched, one compared, and one of which the rest is compared.
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
    hashes: [u64; ROOM],
    first: [u32; ROOM],
    /// Which were not in their first bucket, and the counter of moves of that bucket before it was looked at for good.
    missed: [(u32, u32); ROOM],
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

    /// Looks keys up, and puts the value of `keys[i]` at `values[i]`. Any number of keys; bursts of 32 are fast, several
    /// bursts in one call faster: while some keys are compared the next ones are fetched.
    ///
    /// # Panics
    /// When the slices differ in length.
    #[inline]
    pub fn get_batch(&mut self, keys: &[K], values: &mut [Option<K::Value>]) {
        assert_eq!(keys.len(), values.len(), "one value for each key");
        let (store, view) = (&*self.store, self.store.view());
        let [mut next, mut this, mut last] = self.groups.each_mut();
        for from in (0..keys.len() + 2 * GROUP).step_by(GROUP) {
            let at = |back: usize| from.saturating_sub(back).min(keys.len());
            let (fetched, compared) = (&keys[at(0)..(from + GROUP).min(keys.len())], &keys[at(GROUP)..at(0)]);
            let to = &mut values[at(GROUP)..at(0)];
            this.missing = 0;
            let both = fetched.len().min(compared.len());
            for i in 0..both {
                next.fetch(view, i, fetched[i]);
                to[i] = this.compare(store, view, i, compared[i]);
            }
            (both..fetched.len()).for_each(|i| next.fetch(view, i, fetched[i]));
            (both..compared.len()).for_each(|i| to[i] = this.compare(store, view, i, compared[i]));
            // What has left the first buckets is seen where it went.
            fence(Ordering::Acquire);
            let rest = at(2 * GROUP)..at(GROUP);
            if !rest.is_empty() {
                last.rest(store, view, &keys[rest.clone()], &mut values[rest], &mut self.restarts);
            }
            (next, this, last) = (last, next, this);
        }
        // Whoever finds an entry sees what was written before it was inserted.
        fence(Ordering::Acquire);
    }

    /// Look-ups that this reader began again, because an entry may have passed it.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

impl Group {
    /// Fetches the first bucket of a key.
    #[inline(always)]
    fn fetch<K: Key>(&mut self, view: View<'_, K>, i: usize, key: K) {
        let hash = view.hash(key);
        let bucket = view.geometry.first(hash);
        (self.hashes[i % ROOM], self.first[i % ROOM]) = (hash, bucket as u32);
        view.prefetch(bucket);
    }

    /// Looks in the first bucket of a key, and fetches the second if it is not there.
    #[inline(always)]
    fn compare<K: Key>(&mut self, store: &Store<K>, view: View<'_, K>, i: usize, key: K) -> Option<K::Value> {
        let bucket = &view.buckets[self.first[i % ROOM] as usize];
        let stored = key.find(bucket);
        if stored != 0 {
            return value::<K>(stored);
        }
        view.prefetch(view.geometry.second(self.hashes[i % ROOM]));
        // Once more, now that what comes is counted. Acquire: an entry whose coming was counted is seen.
        let moves = store.moves(self.first[i % ROOM] as usize).load(Ordering::Acquire);
        let found = value::<K>(key.find(bucket));
        self.missed[self.missing % ROOM] = (i as u32, moves);
        self.missing += usize::from(found.is_none());
        found
    }

    /// Looks in the second buckets of those keys.
    #[inline(always)]
    fn rest<K: Key>(
        &self,
        store: &Store<K>,
        view: View<'_, K>,
        keys: &[K],
        values: &mut [Option<K::Value>],
        restarts: &mut u64,
    ) {
        for &(i, moves) in self.missed.iter().take(self.missing) {
            let i = i as usize % ROOM;
            let (key, hash) = (keys[i], self.hashes[i]);
            let mut stored = key.find(&view.buckets[view.geometry.second(hash)]);
            if stored == 0 && store.moved(view.geometry, self.first[i] as usize, moves) {
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
