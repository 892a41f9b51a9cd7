//! State shared by readers and the writer: buckets, their number, and counters of moves.

use super::key::Key;
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::flow::Seed;
use crate::memory::{Backing, Pages, ask_for, prefetch};
use core::marker::PhantomData;
use core::ops::Range;
use rustix::io::Errno;

/// Counters of moves, each for the buckets whose number is the same modulo this: 4 KiB, which stay near.
const COUNTERS: usize = if cfg!(loom) { 2 } else { 1024 };

/// The words of all buckets: all zero, and without memory until they are backed.
#[cfg(not(loom))]
struct Words(crate::memory::Memory<AtomicU64>);
#[cfg(loom)]
struct Words(Box<[AtomicU64]>);

#[cfg(not(loom))]
impl Words {
    fn reserve(words: usize, pages: Pages) -> Result<Self, Errno> {
        crate::memory::Memory::reserve(words, pages).map(Self)
    }

    #[inline(always)]
    fn all(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        self.0.back(words)
    }

    fn backing(&self) -> Backing {
        self.0.backing()
    }
}

#[cfg(loom)]
impl Words {
    fn reserve(words: usize, _: Pages) -> Result<Self, Errno> {
        Ok(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn all(&self) -> &[AtomicU64] {
        &self.0
    }

    fn back(&self, _: Range<usize>) -> Result<(), Errno> {
        Ok(())
    }

    fn backing(&self) -> Backing {
        Backing::default()
    }
}

/// How many buckets there are, and so where keys are: linear hashing over a first number of buckets that need be no power
/// of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    /// Buckets at first.
    base: u64,
    /// Number of doublings in the upper byte, the last one perhaps partial; buckets in the lower bytes.
    word: u64,
}

impl Geometry {
    const LEVEL: u32 = 56;

    fn new(base: u64, buckets: u64) -> Self {
        let level = u64::from(buckets.div_ceil(base).next_power_of_two().trailing_zeros());
        Self { base, word: level << Self::LEVEL | buckets }
    }

    #[inline(always)]
    pub(super) fn buckets(self) -> usize {
        (self.word & ((1 << Self::LEVEL) - 1)) as usize
    }

    /// Returns the bucket of a hash.
    #[inline(always)]
    pub(super) fn first(self, hash: u64) -> usize {
        let inside = ((u128::from(hash) * u128::from(self.base)) >> 64) as u64;
        let mask = (1 << (self.word >> Self::LEVEL)) - 1;
        if mask == 0 {
            return inside as usize;
        }
        let bucket = inside + self.base * (hash & mask);
        if bucket < self.buckets() as u64 {
            bucket as usize
        } else {
            (inside + self.base * (hash & mask >> 1)) as usize
        }
    }

    /// Returns the secondary bucket; rarely the same.
    #[inline(always)]
    pub(super) fn second(self, hash: u64) -> usize {
        self.first((hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the size with one more bucket, and the bucket whose entries it shares.
    pub(super) fn split(self) -> (Self, usize) {
        let more = Self::new(self.base, self.buckets() as u64 + 1);
        let half = self.base << ((more.word >> Self::LEVEL) - 1);
        (more, self.buckets() - half as usize)
    }
}

/// Values of a store that a lookup needs, copied to registers.
pub(super) struct View<'a, K: Key> {
    pub(super) buckets: &'a [K::Bucket],
    pub(super) geometry: Geometry,
    seed: Seed,
}

impl<K: Key> Clone for View<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key> Copy for View<'_, K> {}

impl<K: Key> View<'_, K> {
    #[inline(always)]
    pub(super) fn hash(self, key: K) -> u64 {
        key.hash(&self.seed)
    }

    /// Has the lines of a bucket come near.
    #[inline(always)]
    pub(super) fn prefetch(self, bucket: usize) {
        Store::<K>::prefetch(&self.buckets[bucket]);
    }
}

pub(super) struct Store<K> {
    words: Words,
    /// Greatest number of buckets.
    most: usize,
    base: u64,
    /// The word of [`Geometry`].
    size: AtomicU64,
    /// Counts the entries that came to a bucket from another.
    moves: Box<[AtomicU32]>,
    seed: Seed,
    keys: PhantomData<fn() -> K>,
}

impl<K: Key> Store<K> {
    /// Words of a bucket.
    const WORDS: usize = size_of::<K::Bucket>() / size_of::<AtomicU64>();

    /// Returns the bytes of so many buckets.
    pub(super) fn bytes(buckets: usize) -> usize {
        buckets.saturating_mul(size_of::<K::Bucket>())
    }

    /// Allocates free slots, with the memory of the first `base` buckets committed.
    pub(super) fn new(base: usize, most: usize, seed: Seed, pages: Pages) -> Result<Self, Errno> {
        if !cfg!(loom) {
            ask_for(Self::bytes(base))?;
        }
        let words = Words::reserve(most.checked_mul(Self::WORDS).ok_or(Errno::NOMEM)?, pages)?;
        words.back(0..base * Self::WORDS)?;
        let moves = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        let size = AtomicU64::new(Geometry::new(base as u64, base as u64).word);
        Ok(Self { words, most, base: base as u64, size, moves, seed, keys: PhantomData })
    }

    /// Buckets with memory, as far as readers know. Acquire: what their entries came from may be looked at after it.
    #[inline(always)]
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { base: self.base, word: self.size.load(Ordering::Acquire) }
    }

    /// Returns the current value.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_, K> {
        View { buckets: K::buckets(self.words.all()), geometry: self.geometry(), seed: self.seed }
    }

    /// Has readers look in one bucket more.
    pub(super) fn publish(&self, geometry: Geometry) {
        // Release: entries that the new bucket got are seen in it.
        self.size.store(geometry.word, Ordering::Release);
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: K) -> u64 {
        key.hash(&self.seed)
    }

    #[inline(always)]
    pub(super) fn bucket(&self, bucket: usize) -> &K::Bucket {
        &K::buckets(self.words.all())[bucket]
    }

    /// Returns the memory for a bucket.
    pub(super) fn back(&self, bucket: usize) -> Result<(), Errno> {
        self.words.back(bucket * Self::WORDS..(bucket + 1) * Self::WORDS)
    }

    /// Returns the counter of entries moved to a bucket.
    #[inline(always)]
    pub(super) fn moves(&self, bucket: usize) -> &AtomicU32 {
        &self.moves[bucket % COUNTERS]
    }

    /// Returns true if an entry that was found in neither bucket may have passed: it
    /// came to the first, where `moves` had been counted, or both were looked up in what has been split since.
    #[inline(always)]
    pub(super) fn moved(&self, geometry: Geometry, first: usize, moves: u32) -> bool {
        // entries that moved from the second bucket to the first were counted before; before entries that moved to a new one, that one
        // was made known.
        fence(Ordering::Acquire);
        self.moves(first).load(Ordering::Relaxed) != moves || self.geometry() != geometry
    }

    /// Moves an entry to a free slot of another bucket: readers find it in one of them all the time.
    pub(super) fn move_entry(&self, from: (usize, usize), to: (usize, usize)) {
        if let Some((key, stored)) = K::entry(self.bucket(from.0), from.1) {
            key.fill(self.bucket(to.0), to.1, stored);
            let moves = self.moves(to.0);
            // Release, and before the old place is freed, which is a release too: who has seen the count sees the new place,
            // who does not find the old place sees the count.
            moves.store(moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
            K::free(self.bucket(from.0), from.1);
        }
    }

    /// Has the lines of a bucket come near.
    #[inline(always)]
    pub(super) fn prefetch(bucket: &K::Bucket) {
        for line in 0..size_of::<K::Bucket>() / 64 {
            prefetch(core::ptr::from_ref(bucket).cast::<i8>().wrapping_add(line * 64));
        }
    }

    pub(super) fn backing(&self) -> Backing {
        self.words.backing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates well-mixed numbers.
    fn hashes() -> impl Iterator<Item = u64> {
        let seed = Seed::fixed(7);
        (0..20_000).map(move |n| seed.mix(seed.mix(0, n, 0), 0, 0))
    }

    #[test]
    fn a_split_moves_only_to_the_new_bucket() {
        for base in [1, 3, 4, 100] {
            let mut geometry = Geometry::new(base, base);
            for _ in 0..4 * base + 1 {
                let (more, shared) = geometry.split();
                assert_eq!(more.buckets(), geometry.buckets() + 1);
                for hash in hashes().take(500) {
                    for (before, after) in
                        [(geometry.first(hash), more.first(hash)), (geometry.second(hash), more.second(hash))]
                    {
                        assert!(before < geometry.buckets());
                        assert!(after == before || before == shared && after == geometry.buckets());
                    }
                }
                geometry = more;
            }
        }
    }

    #[test]
    fn buckets_are_drawn_alike() {
        for (base, buckets) in [(100, 100), (25, 100), (1, 64), (7, 7)] {
            let geometry = Geometry::new(base, buckets);
            let mut drawn = vec![[0f64; 2]; buckets as usize];
            let mut same = 0;
            for hash in hashes() {
                drawn[geometry.first(hash)][0] += 1.0;
                drawn[geometry.second(hash)][1] += 1.0;
                same += u64::from(geometry.first(hash) == geometry.second(hash));
            }
            let mean = 20_000.0 / buckets as f64;
            for which in 0..2 {
                // chi-square: its mean is its degrees of freedom, its variance twice that
                let sum: f64 = drawn.iter().map(|n| (n[which] - mean).powi(2) / mean).sum();
                let freedom = (buckets - 1) as f64;
                assert!((sum - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{base} {buckets}: {sum}");
            }
            assert!((same as f64) < 3.0 * mean, "{base} {buckets}: {same} have one bucket only");
        }
    }
}
