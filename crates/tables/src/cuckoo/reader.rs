//! Look-ups.

use super::key::Key;
use super::store::{Store, View};
use super::sync::{Arc, Ordering, fence};

/// Keys that are fetched before the first of them is compared. Of 16, 32 and 64 measured best for calls of 256; a burst of 32 is
/// fetched as a whole.
const AHEAD: usize = 64;
/// Keys that are compared before those of them are looked up again that were not in their first bucket.
const BLOCK: usize = 32;

/// Keys whose hashes are kept: those ahead and the block that is compared.
const RING: usize = (AHEAD + BLOCK).next_power_of_two();

/// One thread's way to look keys up. Its clone is a further reader.
pub struct Reader<K: Key> {
    store: Arc<Store<K>>,
    fetched: Fetched,
    /// Of a block, and of the one before it.
    missed: [Missed; 2],
    restarts: u64,
}

impl<K: Key> Clone for Reader<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.store))
    }
}

/// Keys whose first buckets are on their way, each at its number.
struct Fetched {
    hashes: [u64; RING],
    first: [u32; RING],
}

impl Fetched {
    /// Begins with the first keys, each fetched as soon as it is hashed.
    #[inline(always)]
    fn begin<K: Key>(&mut self, view: View<'_, K>, keys: &[K]) {
        for (at, &key) in keys.iter().enumerate().take(AHEAD) {
            self.hash(view, at, key);
            view.prefetch(self.first[at] as usize);
        }
    }

    /// Goes on with a block of keys, or what is left of it.
    #[inline(always)]
    fn go_on<K: Key>(&mut self, view: View<'_, K>, keys: &[K], from: usize) {
        let from = from.min(keys.len());
        let block = from..keys.len().min(from + BLOCK);
        for at in block.clone() {
            self.hash(view, at, keys[at]);
        }
        // together: the fewer instructions between two of them, the more pages the processor looks for at a time
        for at in block {
            view.prefetch(self.first[at % RING] as usize);
        }
    }

    #[inline(always)]
    fn hash<K: Key>(&mut self, view: View<'_, K>, at: usize, key: K) {
        let hash = view.hash(key);
        (self.hashes[at % RING], self.first[at % RING]) = (hash, view.geometry.first(hash) as u32);
    }
}

/// Keys of a block that were not in their first buckets.
#[derive(Default)]
struct Missed {
    all: [Miss; BLOCK],
    len: usize,
}

#[derive(Clone, Copy, Default)]
struct Miss {
    /// Its number among the keys.
    key: u32,
    first: u32,
    second: u32,
    /// The counter of moves of its first bucket before it was looked at for good.
    moves: u32,
}

/// Converts a stored value.
#[inline(always)]
fn value<K: Key>(stored: u32) -> Option<K::Value> {
    if stored == 0 { None } else { Some(K::value(stored - 1)) }
}

impl<K: Key> Reader<K> {
    pub(super) fn new(store: Arc<Store<K>>) -> Self {
        Self {
            store,
            fetched: Fetched { hashes: [0; RING], first: [0; RING] },
            missed: Default::default(),
            restarts: 0,
        }
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&mut self, key: K) -> Option<K::Value> {
        let hash = self.store.hash(key);
        let mut stored = key.find(self.store.bucket(self.store.geometry().first(hash)));
        if stored == 0 {
            stored = look_in_both(&self.store, key, hash, &mut self.restarts);
        }
        // A reader that finds an entry sees the writes before its insertion.
        fence(Ordering::Acquire);
        value::<K>(stored)
    }

    /// Looks keys up, and puts the value of `keys[i]` at `values[i]`. Any number of keys; bursts of 32 are fast, several
    /// bursts in one call faster: while some keys are compared the next ones are fetched.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn get_batch(&mut self, keys: &[K], values: &mut [Option<K::Value>]) {
        assert_eq!(keys.len(), values.len(), "one value for each key");
        let Self { store, fetched, missed, restarts } = self;
        let view = store.view();
        fetched.begin(view, keys);
        let [this, last] = missed;
        let (mut this, mut last) = (this, last);
        last.len = 0;
        for from in (0..keys.len()).step_by(BLOCK) {
            this.len = 0;
            fetched.go_on(view, keys, from + AHEAD);
            for at in from..keys.len().min(from + BLOCK) {
                let (hash, bucket) = (fetched.hashes[at % RING], fetched.first[at % RING]);
                let stored = keys[at].find(&view.buckets[bucket as usize]);
                values[at] = value::<K>(stored);
                // of those that were found it is written over: an unpredictable branch costs more
                let miss = &mut this.all[this.len % BLOCK];
                let second = view.geometry.second(hash) as u32;
                (miss.key, miss.first, miss.second) = (at as u32, bucket, second);
                this.len += usize::from(stored == 0);
                // the first bucket is near already
                view.prefetch(if stored == 0 { second } else { bucket } as usize);
            }
            this.again(store, view, keys, values);
            last.rest(store, view, keys, values, restarts);
            core::mem::swap(&mut this, &mut last);
        }
        last.rest(store, view, keys, values, restarts);
        // A reader that finds an entry sees the writes before its insertion.
        fence(Ordering::Acquire);
    }

    /// Look-ups that this reader began again, because an entry may have passed it.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

impl Missed {
    /// Looks in their first buckets once more, now that what comes is counted.
    #[inline(always)]
    fn again<K: Key>(&mut self, store: &Store<K>, view: View<'_, K>, keys: &[K], values: &mut [Option<K::Value>]) {
        let len = core::mem::take(&mut self.len);
        for n in 0..len.min(BLOCK) {
            let mut miss = self.all[n];
            let key = keys[miss.key as usize];
            // Acquire: an entry whose coming was counted is seen.
            miss.moves = store.moves(miss.first as usize).load(Ordering::Acquire);
            let stored = key.find(&view.buckets[miss.first as usize]);
            values[miss.key as usize] = value::<K>(stored);
            self.all[self.len % BLOCK] = miss;
            self.len += usize::from(stored == 0);
        }
        // entries that left the first buckets are seen in the second
        fence(Ordering::Acquire);
    }

    /// Looks in their second buckets.
    #[inline(always)]
    fn rest<K: Key>(
        &mut self,
        store: &Store<K>,
        view: View<'_, K>,
        keys: &[K],
        values: &mut [Option<K::Value>],
        restarts: &mut u64,
    ) {
        for miss in &self.all[..core::mem::take(&mut self.len).min(BLOCK)] {
            let at = miss.key as usize;
            let mut stored = keys[at].find(&view.buckets[miss.second as usize]);
            if stored == 0 && store.moved(view.geometry, miss.first as usize, miss.moves) {
                *restarts += 1;
                stored = look_in_both(store, keys[at], view.hash(keys[at]), restarts);
            }
            values[at] = value::<K>(stored);
        }
    }
}

/// Returns the stored value of a key, or 0 when it was in neither bucket at some time.
#[inline(never)]
fn look_in_both<K: Key>(store: &Store<K>, key: K, hash: u64, restarts: &mut u64) -> u32 {
    loop {
        let geometry = store.geometry();
        let [first, second] = [geometry.first(hash), geometry.second(hash)];
        // Acquire: an entry whose coming was counted is seen.
        let moves = store.moves(first).load(Ordering::Acquire);
        let mut stored = key.find(store.bucket(first));
        if stored == 0 {
            // entries that left the first bucket are seen in the second
            fence(Ordering::Acquire);
            stored = key.find(store.bucket(second));
        }
        if stored != 0 || !store.moved(geometry, first, moves) {
            return stored;
        }
        *restarts += 1;
    }
}
