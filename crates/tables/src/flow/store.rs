//! The memory of a flow table: tags, and a line for each.

use super::key::FlowKey;
use crate::memory::Memory;
use crate::{Backing, Pages};
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::io::Errno;

/// Slots of a bucket.
pub(super) const WAYS: usize = 32;
/// Sixteen bits of a hash, for each slot of a bucket; 0: the slot is free.
pub(super) type Tags = [u16; WAYS];

/// A flow, in a cache line of its own (or several, if the value is large).
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Line<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    /// When a packet last came.
    pub(super) seen: u32,
    /// Whether it is a flow's: what the tag says as well, but with the key at hand.
    pub(super) taken: bool,
}

pub(super) struct Store<K, V> {
    /// Tags, then lines.
    memory: Memory,
    tags: NonNull<Tags>,
    lines: NonNull<Line<K, V>>,
    buckets: usize,
    owns: PhantomData<Line<K, V>>,
}

// SAFETY: the store owns what it points to, as a Vec would.
unsafe impl<K: Send, V: Send> Send for Store<K, V> {}
// SAFETY: as above; &Store gives only & of tags and lines.
unsafe impl<K: Sync, V: Sync> Sync for Store<K, V> {}

impl<K: FlowKey, V: Copy + Default> Store<K, V> {
    /// Free slots, all of their memory there.
    pub(super) fn new(buckets: usize, pages: Pages) -> Result<Self, Errno> {
        let align = align_of::<Line<K, V>>();
        assert!(align <= 4096, "the key or the value is aligned to more than a page");
        let bytes = |buckets: usize| {
            let tags = buckets.checked_mul(size_of::<Tags>())?.checked_next_multiple_of(align)?;
            let lines = buckets.checked_mul(WAYS * size_of::<Line<K, V>>())?;
            Some((tags, tags.checked_add(lines)?))
        };
        let (at, bytes) = bytes(buckets).ok_or(Errno::NOMEM)?;
        // Memory is mapped in slices, of which the kernel refuses none before it has to kill: ask for all at once first.
        let mut all = Vec::<u8>::new();
        all.try_reserve_exact(bytes).map_err(|_| Errno::NOMEM)?;
        drop(core::hint::black_box(all));
        let words = bytes.div_ceil(4);
        let memory = Memory::reserve(words, pages)?;
        memory.back(0..words)?;
        let base: NonNull<u8> = NonNull::from(memory.words()).cast();
        // SAFETY: `at` is within the reservation, which begins at a boundary of 2 MiB; words are atomics, so that the
        // pointer may write, and nobody else has them.
        let lines: NonNull<Line<K, V>> = unsafe { base.add(at) }.cast();
        for slot in 0..buckets * WAYS {
            // SAFETY: within the reservation, backed, aligned.
            unsafe { lines.add(slot).write(Line::default()) };
        }
        Ok(Self { memory, tags: base.cast(), lines, buckets, owns: PhantomData })
    }

    #[inline(always)]
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    #[inline(always)]
    pub(super) fn tags(&self) -> &[Tags] {
        // SAFETY: that many, zero or written; they live as long as self, and only &mut self gives them for writing.
        unsafe { core::slice::from_raw_parts(self.tags.as_ptr(), self.buckets) }
    }

    #[inline(always)]
    pub(super) fn tags_mut(&mut self) -> &mut [Tags] {
        // SAFETY: as for `tags`, and &mut self is the only way to them now.
        unsafe { core::slice::from_raw_parts_mut(self.tags.as_ptr(), self.buckets) }
    }

    #[inline(always)]
    pub(super) fn lines(&self) -> &[Line<K, V>] {
        // SAFETY: that many, all written in `new`; they live as long as self, and only &mut self gives them for writing.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr(), self.buckets * WAYS) }
    }

    #[inline(always)]
    pub(super) fn lines_mut(&mut self) -> &mut [Line<K, V>] {
        // SAFETY: as for `lines`, and &mut self is the only way to them now.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_ptr(), self.buckets * WAYS) }
    }

    /// Has the tags of a bucket come near.
    #[inline(always)]
    pub(super) fn prefetch_tags(&self, bucket: usize) {
        prefetch(self.tags.as_ptr().wrapping_add(bucket));
    }

    /// Has a line come near.
    #[inline(always)]
    pub(super) fn prefetch_line(&self, slot: usize) {
        prefetch(self.lines.as_ptr().wrapping_add(slot));
    }

    pub(super) fn backing(&self) -> Backing {
        self.memory.backing()
    }
}

#[inline(always)]
fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The ways of a bucket that have a tag: a bit each.
#[inline(always)]
pub(super) fn matching(tags: &Tags, tag: u16) -> u32 {
    (0..WAYS).fold(0, |set, way| set | u32::from(tags[way] == tag) << way)
}

/// The first way of a bucket that has a tag, or [`WAYS`].
#[inline(always)]
pub(super) fn first_matching(tags: &Tags, tag: u16) -> usize {
    #[cfg(target_feature = "avx2")]
    {
        use core::arch::x86_64::*;
        // SAFETY: built for a machine that has the instructions; the loads are of 32 bytes each, unaligned.
        let set = unsafe {
            let wanted = _mm256_set1_epi16(tag as i16);
            let [low, high] =
                [0, 16].map(|at| _mm256_cmpeq_epi16(_mm256_loadu_si256(tags.as_ptr().add(at).cast()), wanted));
            // packed within halves: ways 0-7, 16-23, 8-15, 24-31
            _mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high)))
        };
        set.trailing_zeros() as usize
    }
    #[cfg(not(target_feature = "avx2"))]
    (matching(tags, tag).trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_way_is_the_first_that_matches() {
        let mut tags = [7; WAYS];
        assert_eq!((first_matching(&tags, 8), matching(&tags, 8)), (WAYS, 0));
        for last in (0..WAYS).rev() {
            tags[last] = 8;
            assert_eq!(first_matching(&tags, 8), last);
            assert_eq!(matching(&tags, 8), u32::MAX << last);
            assert_eq!(first_matching(&tags, 7), if last == 0 { WAYS } else { 0 });
        }
    }

    #[test]
    fn lines_take_a_cache_line_each() {
        assert_eq!(size_of::<Line<super::super::Tuple4, [u64; 2]>>(), 64);
        assert_eq!(size_of::<Line<super::super::Tuple6, [u64; 2]>>(), 64);
        let store: Store<super::super::Tuple6, u64> = Store::new(3, Pages::Ordinary).unwrap();
        assert_eq!((store.tags().len(), store.lines().len()), (3, 3 * WAYS));
        assert!(store.lines().as_ptr().addr().is_multiple_of(64) && store.tags().as_ptr().addr().is_multiple_of(64));
        assert!(store.lines().as_ptr().addr() >= store.tags().as_ptr().addr() + size_of_val(store.tags()));
    }
}
