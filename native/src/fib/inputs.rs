//! Keys to look up, and memory of which random cache lines are loaded.

use crate::sample::Work;
use rustix::mm::{Advice, madvise};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tables::Pages;
use tables::cuckoo::{Key, Key48, Key64, Key144};

/// Random numbers by xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// Returns a generator with another stream each time.
    pub(crate) fn new() -> Self {
        static STREAMS: AtomicU64 = AtomicU64::new(1);
        Self(STREAMS.fetch_add(2, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline(always)]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(n)) >> 64) as u64
    }
}

/// Keys and values that are computed from a number, so that only the table is loaded from memory.
pub(crate) trait Numbered: Key {
    fn number(n: u64) -> Self;
    fn value_of(n: u64) -> Self::Value {
        Self::value((n % 1000) as u32)
    }

    /// Returns the key in eight bytes, if it fits.
    fn word(self) -> Option<u64>;
}

/// A million addresses in each VRF.
impl Numbered for Key48 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key48::vrf_ipv4((n >> 20) as u16, 0x0a00_0000 | n as u32 & 0xf_ffff)
    }

    fn word(self) -> Option<u64> {
        Some(self.bits())
    }
}

impl Numbered for Key64 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key64::new((0x5254 << 32 | n >> 4) << 16 | n & 15)
    }

    fn word(self) -> Option<u64> {
        Some(self.bits())
    }
}

impl Numbered for Key144 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key144::vrf_ipv6((n >> 20) as u16, 0x2001_0db8 << 96 | u128::from(n as u32 & 0xf_ffff) << 64 | 1)
    }

    fn word(self) -> Option<u64> {
        None
    }
}

/// Number of keys drawn in advance for each kind of look-up, so many that their buckets do not fit in a cache.
pub(crate) const STREAM: usize = 1 << 22;

/// Memory of the size of a table, in pages of the same kind, and keys to look up.
pub(crate) struct Inputs<K> {
    lines: Vec<[u64; 8]>,
    /// Keys of hits, misses and Zipf.
    keys: [Vec<K>; 3],
    /// The same keys in eight bytes each, if they fit.
    words: [Vec<u64>; 3],
}

/// Returns the available memory without a reserve of 5 GiB.
fn spare_memory() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available =
        info.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok());
    (available.unwrap_or(0usize) << 10).saturating_sub(5 << 30)
}

/// Prefetches a cache line.
#[inline(always)]
fn prefetch(line: &[u64; 8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address affects only the cache.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    black_box(line);
}

impl<K: Numbered> Inputs<K> {
    /// Returns lines in `bytes` of memory, or less if not available, and keys of `entries` entries.
    pub(crate) fn new(bytes: usize, entries: u64, pages: Pages) -> Self {
        let bytes = bytes.min(spare_memory().max(64 << 20));
        // an unaligned line would be two cache lines
        let mut lines: Vec<[u64; 8]> = Vec::with_capacity(bytes / 64 + (4 << 20) / 64);
        let (at, room) = (lines.as_mut_ptr(), lines.capacity() * 64);
        let front = at.addr().next_multiple_of(2 << 20) - at.addr();
        if pages > Pages::Ordinary && front < room {
            let whole = (room - front) / (2 << 20) * (2 << 20);
            // SAFETY: within the memory of the vector, which is empty; the advice does not change its contents.
            let _ = unsafe { madvise(at.cast::<u8>().add(front).cast(), whole, Advice::LinuxHugepage) };
        }
        lines.resize(lines.capacity(), [1; 8]);
        let mut random = Random::new();
        let mut draw =
            |number: &dyn Fn(&mut Random) -> u64| (0..STREAM).map(|_| K::number(number(&mut random))).collect();
        let zipf = |random: &mut Random| {
            let uniform = random.below(1 << 53) as f64 / (1u64 << 53) as f64;
            ((entries as f64).powf(uniform) as u64).min(entries) - 1
        };
        // misses are beyond the keys that updates insert
        let keys: [Vec<K>; 3] =
            [draw(&|random| random.below(entries)), draw(&|random| 2 * entries + random.below(entries)), draw(&zipf)];
        let words = keys.each_ref().map(|keys| keys.iter().filter_map(|key| key.word()).collect());
        Self { lines, keys, words }
    }

    /// Returns the size of the lines in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    /// Returns the keys for a kind of look-up.
    pub(crate) fn keys(&self, work: Work) -> &[K] {
        &self.keys[key_index(work)]
    }

    /// Returns the same keys in eight bytes each; none if keys are longer.
    pub(crate) fn words(&self, work: Work) -> &[u64] {
        &self.words[key_index(work)]
    }

    /// Loads `count` random lines: all of them are prefetched before the first is loaded, or 64 ahead if there are
    /// more.
    #[inline(always)]
    pub(crate) fn load(&self, random: &mut Random, count: usize) {
        // the vector starts in the middle of a cache line after the allocator's header
        let skip = (64 - self.lines.as_ptr().addr() % 64) % 64 / 8;
        let words = &self.lines.as_flattened()[skip..];
        let lines = words.as_chunks::<8>().0;
        let mut ahead = [0; 64];
        let depth = count.min(64);
        let mut sum = 0;
        let mut draw = |slot: &mut usize| {
            *slot = random.below(lines.len() as u64) as usize;
            prefetch(&lines[*slot]);
        };
        ahead[..depth].iter_mut().for_each(&mut draw);
        for n in depth..count {
            sum += lines[ahead[n % 64]][0];
            draw(&mut ahead[n % 64]);
        }
        ahead[..depth].iter().for_each(|&line| sum += lines[line][0]);
        black_box(sum);
    }
}

/// Returns the index of the keys for a kind of look-up.
fn key_index(work: Work) -> usize {
    match work {
        Work::Lines | Work::Hits => 0,
        Work::Misses => 1,
        Work::Zipf => 2,
    }
}
