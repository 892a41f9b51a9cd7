//! The memory of a flow table: slots, a few to a cache line.

use super::key::FlowKey;
use crate::memory::{Memory, ask_for, prefetch};
use crate::{Backing, Pages};
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::io::Errno;
use std::sync::atomic::AtomicU32;

/// Slots of a bucket.
pub(super) const WAYS: usize = 8;
const LINE: usize = 64;
/// Bits of a time.
const TIME_BITS: u32 = 23;

/// Returns the later of two times of which 23 bits are kept, as [`iter_seen`](super::FlowTable::iter_seen) returns
/// them.
#[must_use]
pub fn later(a: u32, b: u32) -> u32 {
    if (a.wrapping_sub(b) << (u32::BITS - TIME_BITS)) as i32 >= 0 { a } else { b }
}

/// Time of the last packet and occupancy of a slot, in 24 bits.
#[derive(Clone, Copy)]
pub(super) struct LastSeen([u8; 3]);

impl LastSeen {
    /// Free.
    const NEVER: Self = Self([0; 3]);

    #[inline(always)]
    pub(super) fn at(now: u32) -> Self {
        let [a, b, c, _] = (now | 1 << TIME_BITS).to_le_bytes();
        Self([a, b, c])
    }

    #[inline(always)]
    fn bits(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from(u16::from_le_bytes([a, b])) | u32::from(c) << 16
    }

    /// Sets the time if it differs and the slot is occupied; returns true if it was equal. Nothing is
    /// written if nothing changes: the next reader would wait for the store.
    #[inline(always)]
    pub(super) fn touch(&mut self, now: Self) -> bool {
        if self.bits() == now.bits() {
            return true;
        }
        let taken = self.is_taken();
        if taken {
            *self = now;
        }
        taken
    }

    #[inline(always)]
    pub(super) fn is_taken(self) -> bool {
        self.0[2] >> 7 != 0
    }

    /// Returns the time, of which [`TIME_BITS`] are kept.
    #[inline(always)]
    pub(super) fn time(self) -> u32 {
        self.bits() & ((1 << TIME_BITS) - 1)
    }

    /// Returns the time since then; `None` if it is in the future.
    #[inline(always)]
    pub(super) fn idle(self, now: u32) -> u32 {
        let idle = now.wrapping_sub(self.bits()) & ((1 << TIME_BITS) - 1);
        if idle >> (TIME_BITS - 1) == 0 { idle } else { 0 }
    }
}

/// A slot: for a [`Tuple4`](super::Tuple4) and a value of 16 bytes, half a cache line.
#[repr(C)]
pub(super) struct Entry<K: FlowKey, V> {
    pub(super) key: K::Packed,
    pub(super) seen: LastSeen,
    pub(super) value: V,
}

impl<K: FlowKey, V: Copy> Clone for Entry<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: FlowKey, V: Copy> Copy for Entry<K, V> {}

impl<K: FlowKey, V> Entry<K, V> {
    /// From one slot to the next, in bytes: so that none lies across more lines than it must.
    const STRIDE: usize = {
        let size = size_of::<Self>();
        if size <= LINE { size.next_power_of_two() } else { size.next_multiple_of(LINE) }
    };
    /// Slots of a line, or of as many lines as one slot takes.
    pub(super) const PER_LINE: usize = {
        let fit = LINE / Self::STRIDE;
        if fit > WAYS {
            WAYS
        } else if fit == 0 {
            1
        } else {
            fit
        }
    };
}

pub(super) struct Store<K: FlowKey, V> {
    memory: Memory<AtomicU32>,
    base: NonNull<u8>,
    buckets: usize,
    slots: usize,
    owns: PhantomData<Entry<K, V>>,
}

// SAFETY: the store owns what it points to, as a Vec would.
unsafe impl<K: FlowKey<Packed: Send>, V: Send> Send for Store<K, V> {}
// SAFETY: as above; &Store gives only & of entries.
unsafe impl<K: FlowKey<Packed: Sync>, V: Sync> Sync for Store<K, V> {}

impl<K: FlowKey, V: Copy + Default> Store<K, V> {
    /// Allocates free slots, with all memory committed.
    pub(super) fn new(buckets: usize, pages: Pages) -> Result<Self, Errno> {
        let stride = Entry::<K, V>::STRIDE;
        assert!(align_of::<Entry<K, V>>() <= LINE, "the key or the value is aligned to more than a cache line");
        let bytes = buckets.checked_mul(WAYS).and_then(|n| n.checked_mul(stride)).ok_or(Errno::NOMEM)?;
        ask_for(bytes)?;
        let words = bytes.div_ceil(4);
        let memory = Memory::reserve(words, pages)?;
        memory.back(0..words)?;
        let base: NonNull<u8> = NonNull::from(memory.words()).cast();
        let free = Entry { key: K::default().pack(), seen: LastSeen::NEVER, value: V::default() };
        for slot in 0..buckets * WAYS {
            // SAFETY: within the reservation, which begins at a boundary of 2 MiB and is backed; words are atomics, so that
            // the pointer may write, and there is no other reference. The stride keeps the alignment.
            unsafe { base.add(slot * stride).cast::<Entry<K, V>>().write(free) };
        }
        Ok(Self { memory, base, buckets, slots: buckets * WAYS, owns: PhantomData })
    }

    #[inline(always)]
    pub(super) fn buckets(&self) -> usize {
        self.buckets
    }

    #[inline(always)]
    fn at(&self, slot: usize) -> NonNull<Entry<K, V>> {
        assert!(slot < self.slots, "a slot of the table");
        // SAFETY: within the reservation.
        unsafe { self.base.add(slot * Entry::<K, V>::STRIDE) }.cast()
    }

    #[inline(always)]
    pub(super) fn get(&self, slot: usize) -> &Entry<K, V> {
        // SAFETY: written in `new`; it lives as long as self, and only &mut self gives it for writing.
        unsafe { self.at(slot).as_ref() }
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, slot: usize) -> &mut Entry<K, V> {
        // SAFETY: as for `get`, and &mut self is the only way to it now.
        unsafe { self.at(slot).as_mut() }
    }

    /// Returns the slot with the key in the line that begins with slot `home`, whether or not a flow has it.
    #[inline(always)]
    fn slot_in_line(&self, home: usize, key: &K) -> Option<NonNull<Entry<K, V>>> {
        let per = Entry::<K, V>::PER_LINE;
        assert!(home < self.slots && home.is_multiple_of(per), "a line of the table");
        // SAFETY: buckets are whole lines, so that all of this one is within the reservation.
        let at = |way: usize| unsafe { self.base.add((home + way) * Entry::<K, V>::STRIDE) }.cast::<Entry<K, V>>();
        // no branch on the slot within the cache line, which is unpredictable
        // SAFETY: as for `get`.
        let hits = (0..per).fold(0, |hits: u32, way| hits | u32::from(key.is(unsafe { &at(way).as_ref().key })) << way);
        (hits != 0).then(|| at(hits.trailing_zeros() as usize))
    }

    /// As [`slot_in_line`](Self::slot_in_line), to read.
    #[inline(always)]
    pub(super) fn in_line(&self, home: usize, key: &K) -> Option<&Entry<K, V>> {
        // SAFETY: as for `get`.
        self.slot_in_line(home, key).map(|slot| unsafe { slot.as_ref() })
    }

    /// As [`slot_in_line`](Self::slot_in_line), to write.
    #[inline(always)]
    pub(super) fn in_line_mut(&mut self, home: usize, key: &K) -> Option<&mut Entry<K, V>> {
        // SAFETY: as for `get_mut`.
        self.slot_in_line(home, key).map(|mut slot| unsafe { slot.as_mut() })
    }

    pub(super) fn free(&mut self, slot: usize) {
        self.get_mut(slot).seen = LastSeen::NEVER;
    }

    /// Has the line of a slot come near.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: usize) {
        prefetch(self.base.as_ptr().wrapping_add(slot * Entry::<K, V>::STRIDE).cast_const().cast());
    }

    pub(super) fn backing(&self) -> Backing {
        self.memory.backing()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Tuple4, Tuple6};
    use super::*;

    #[test]
    fn two_flows_of_ipv4_share_a_line() {
        type Four = Entry<Tuple4, [u64; 2]>;
        type Six = Entry<Tuple6, [u64; 2]>;
        assert_eq!((size_of::<Four>(), Four::STRIDE, Four::PER_LINE), (32, 32, 2));
        assert_eq!((Six::STRIDE, Six::PER_LINE), (64, 1));
        assert_eq!((Entry::<Tuple4, [u64; 7]>::STRIDE, Entry::<Tuple4, [u64; 7]>::PER_LINE), (128, 1));
        assert_eq!((Entry::<Tuple4, u8>::STRIDE, Entry::<Tuple4, u8>::PER_LINE), (32, 2));
        let store: Store<Tuple6, u64> = Store::new(3, Pages::Ordinary).unwrap();
        assert_eq!(store.buckets(), 3);
        assert!(std::ptr::from_ref(store.get(0)).addr().is_multiple_of(64) && !store.get(23).seen.is_taken());
    }

    #[test]
    fn times_wrap() {
        assert!(!LastSeen::NEVER.is_taken() && LastSeen::at(0).is_taken());
        assert_eq!((LastSeen::at(7).idle(7), LastSeen::at(7).idle(19), LastSeen::at(7).idle(6)), (0, 12, 0));
        assert_eq!(LastSeen::at(u32::MAX).idle(4), 5);
        assert_eq!(LastSeen::at((1 << TIME_BITS) - 1).idle(1), 2);
    }
}
