//! Up to a burst of packets, owned together.

use crate::mbuf::{self, Mbuf};
use crate::{HEADROOM, Packet};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Packets that a batch holds at most, and that a port is asked for at a time.
pub const BURST: usize = 32;

/// Packets ahead of the current one whose bytes are fetched.
const AHEAD: usize = 8;

/// Up to [`BURST`] owned packets, in order. Dropping it sends them home together.
#[repr(C, align(64))]
pub struct Batch {
    slots: [MaybeUninit<Packet>; BURST],
    len: u32,
    /// Whether nobody has looked at the packets since a driver put them in.
    fresh: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

impl Batch {
    /// An empty batch.
    #[inline(always)]
    pub const fn new() -> Self {
        Batch { slots: [const { MaybeUninit::uninit() }; BURST], len: 0, fresh: false }
    }

    /// Packets in it.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for another.
    #[inline(always)]
    pub const fn is_full(&self) -> bool {
        self.len as usize == BURST
    }

    /// Adds a packet at the end, or gives it back when the batch is full.
    #[inline(always)]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        match self.slots.get_mut(self.len as usize) {
            Some(slot) => {
                slot.write(packet);
                self.len += 1;
                Ok(())
            }
            None => Err(packet),
        }
    }

    /// Takes as many packets from the front of `from` as there is room for.
    #[inline]
    pub fn fill_from(&mut self, from: &mut Vec<Packet>) {
        let at = self.len();
        let (n, left) = (from.len().min(BURST - at), from.len().saturating_sub(BURST - at));
        // SAFETY: n packets are there, as many slots are free, and `from` forgets the n, whose places the others take.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.slots[at..].as_mut_ptr().cast(), n);
            from.set_len(left);
            core::ptr::copy(from.as_ptr().add(n), from.as_mut_ptr(), left);
        }
        self.len += n as u32;
    }

    /// Takes the last packet.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Packet> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: slots below the old length hold packets, and this one is now above it.
        Some(unsafe { self.slots[self.len as usize].assume_init_read() })
    }

    /// Sends all packets home.
    #[inline]
    pub fn clear(&mut self) {
        let n = core::mem::take(&mut self.len);
        if n != 0 {
            // SAFETY: the first n slots hold packets, which the batch has just forgotten.
            unsafe { mbuf::free(self.buffers(), n) }
        }
    }

    /// The packets, in order.
    #[inline(always)]
    pub const fn as_slice(&self) -> &[Packet] {
        // SAFETY: slots below the length hold packets.
        unsafe { core::slice::from_raw_parts(self.slots.as_ptr().cast(), self.len as usize) }
    }

    /// The packets, in order, to change them.
    #[inline(always)]
    pub const fn as_mut_slice(&mut self) -> &mut [Packet] {
        // SAFETY: slots below the length hold packets.
        unsafe { core::slice::from_raw_parts_mut(self.slots.as_mut_ptr().cast(), self.len as usize) }
    }

    /// The packets, in order.
    #[inline(always)]
    pub fn iter(&self) -> core::slice::Iter<'_, Packet> {
        self.as_slice().iter()
    }

    /// Takes every packet out, in order. What the iterator has not yielded when it is dropped goes home.
    #[inline]
    pub fn drain(&mut self) -> Drain {
        Drain { batch: core::mem::take(self), at: 0 }
    }

    /// Begins to fetch the bytes of the first packets, for a visit that follows soon.
    #[inline(always)]
    pub fn prefetch(&self) {
        match self.as_slice().first_chunk::<AHEAD>() {
            Some(first) => first.iter().for_each(prefetch),
            None => self.iter().for_each(prefetch),
        }
    }

    /// Visits every packet; fetches their bytes together before, when nobody has yet.
    #[inline(always)]
    pub fn for_each(&mut self, mut f: impl FnMut(&mut Packet)) {
        self.extract_if(
            #[inline(always)]
            |p| {
                f(p);
                None::<()>
            },
            #[inline(always)]
            |(), _| (),
        );
    }

    /// Visits every packet, as [`for_each`](Self::for_each) does; one for which `f` returns a way out leaves the batch, in
    /// order, through `out`. The others keep their order. Should `f` panic, every packet is still in the batch.
    #[inline(always)]
    pub fn extract_if<W: Copy>(&mut self, mut f: impl FnMut(&mut Packet) -> Option<W>, mut out: impl FnMut(W, Packet)) {
        let mut gone = 0u32;
        let mut ways = [const { MaybeUninit::<W>::uninit() }; BURST];
        let fresh = core::mem::take(&mut self.fresh);
        let packets = self.as_mut_slice();
        let mut next = 0;
        if fresh {
            while let Some(ahead) = packets.get(next + AHEAD) {
                prefetch(ahead);
                if let Some(way) = f(&mut packets[next]) {
                    ways[next].write(way);
                    gone |= 1 << next;
                }
                next += 1;
            }
        }
        // the end of a short loop is easier to foresee than that of a long one: some 10 cycles less for a batch of 32
        while let Some(eight) = packets.get_mut(next..next + 8) {
            for packet in eight {
                if let Some(way) = f(packet) {
                    ways[next].write(way);
                    gone |= 1 << next;
                }
                next += 1;
            }
        }
        while next < packets.len() {
            if let Some(way) = f(&mut packets[next]) {
                ways[next].write(way);
                gone |= 1 << next;
            }
            next += 1;
        }
        if gone != 0 {
            self.extract_mask(
                gone,
                #[inline(always)]
                // SAFETY: a bit in `gone` says that its way was written.
                |i, packet| out(unsafe { ways[i].assume_init() }, packet),
            );
        }
    }

    /// Takes out the packets whose bit is set in `which`, in order, closes the gaps, and hands them to `out` with the places
    /// at which they stood. Should that panic, those that are left are in the batch, at its end.
    #[inline]
    pub fn extract_mask(&mut self, which: u32, mut out: impl FnMut(usize, Packet)) {
        let n = core::mem::take(&mut self.len) as usize;
        let mut leaving = Leaving { batch: self, slots: [const { MaybeUninit::uninit() }; BURST], next: 0, n: 0 };
        let mut places = [0u8; BURST];
        let Leaving { batch, slots, n: gone, .. } = &mut leaving;
        let mut kept = 0;
        // who leaves is hard to foresee: each is written to both, and counts in one
        for i in 0..n {
            // SAFETY: i < n; the packet is in one of the two places below, and the other is written over or never read.
            let packet = unsafe { core::ptr::read(&raw const batch.slots[i]) };
            let leaves = which >> i & 1;
            // SAFETY: as many as have been seen are in both together at most, so that there is a slot in each.
            unsafe {
                *slots.get_unchecked_mut(*gone) = core::ptr::read(&raw const packet);
                *places.get_unchecked_mut(*gone) = i as u8;
                *batch.slots.get_unchecked_mut(kept) = packet;
            }
            *gone += leaves as usize;
            kept += 1 - leaves as usize;
        }
        batch.len = kept as u32;
        while leaving.next < leaving.n {
            let at = leaving.next;
            leaving.next += 1;
            // SAFETY: at < n, and each slot is read once.
            let packet = unsafe { leaving.slots[at].assume_init_read() };
            out(usize::from(places[at]), packet);
        }
    }

    /// Where the buffer pointers stand: `BURST` slots, of which the first [`len`](Self::len) hold packets.
    /// For drivers, which fill and empty bursts of pointers.
    #[inline(always)]
    pub const fn buffers(&mut self) -> *mut NonNull<Mbuf> {
        self.slots.as_mut_ptr().cast()
    }

    /// Says how many slots hold packets now, of which some may be new.
    ///
    /// # Safety
    /// The first `n` slots hold packets under the terms of [`Packet::from_raw`], `n <= BURST`; whatever else the
    /// slots held is somebody else's now.
    #[inline(always)]
    pub const unsafe fn set_len(&mut self, n: usize) {
        self.len = n as u32;
        self.fresh = true;
    }

    /// Forgets the first `n` packets, which a driver has taken, and moves the others to the front.
    ///
    /// # Safety
    /// `n <= len`, and the first `n` buffers are somebody else's now.
    #[inline(always)]
    pub unsafe fn forget_front(&mut self, n: usize) {
        let left = self.len as usize - n;
        if left != 0 {
            let at = self.buffers();
            // SAFETY: both ranges lie within the slots.
            unsafe { core::ptr::copy(at.add(n), at, left) }
        }
        self.len = left as u32;
    }
}

/// Packets that leave a batch. Whatever happens meanwhile, the rest are in it afterwards.
struct Leaving<'b> {
    batch: &'b mut Batch,
    slots: [MaybeUninit<Packet>; BURST],
    /// The one that leaves next, of `n`.
    next: usize,
    n: usize,
}

impl Drop for Leaving<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        while self.next < self.n {
            // SAFETY: slots next .. n hold packets that nobody has read.
            let packet = unsafe { self.slots[self.next].assume_init_read() };
            self.next += 1;
            // there is room for all that were in it
            if let Err(packet) = self.batch.push(packet) {
                drop(packet);
            }
        }
    }
}

/// Fetches the first line of a packet's bytes, assuming the standard headroom so as not to wait for the header.
#[inline(always)]
fn prefetch(packet: &Packet) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let header = core::ptr::from_ref(packet).cast::<*const i8>();
        // SAFETY: a Packet is a pointer; a prefetch of any address has no effect but on the cache.
        unsafe {
            let header = *header;
            _mm_prefetch::<_MM_HINT_T0>(header);
            _mm_prefetch::<_MM_HINT_T0>(header.wrapping_add(size_of::<Mbuf>() + HEADROOM));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = packet;
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Packets on their way out of a batch.
pub struct Drain {
    batch: Batch,
    at: usize,
}

impl Iterator for Drain {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        if self.at == self.batch.len() {
            return None;
        }
        self.at += 1;
        // SAFETY: at < len, and each slot is read once.
        Some(unsafe { self.batch.slots[self.at - 1].assume_init_read() })
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // SAFETY: the first `at` packets were yielded.
        unsafe { self.batch.forget_front(self.at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HeapPool, Pool};
    use proptest::prelude::*;

    fn batch(pool: &HeapPool, n: usize) -> Batch {
        let mut b = Batch::new();
        for i in 0..n {
            b.push(pool.alloc_from(&[i as u8; 60]).unwrap()).unwrap();
        }
        b
    }
    fn tags(b: &Batch) -> Vec<u8> {
        b.iter().map(|p| p.data()[0]).collect()
    }

    #[test]
    fn a_full_batch_gives_the_packet_back() {
        let pool = HeapPool::new(BURST + 1);
        let mut b = batch(&pool, BURST);
        assert!(b.is_full());
        let back = b.push(pool.alloc_from(b"late").unwrap()).unwrap_err();
        assert_eq!(back.data(), b"late");
        assert_eq!(b.pop().unwrap().data()[0], BURST as u8 - 1);
    }

    #[test]
    fn what_a_drain_leaves_goes_home() {
        let pool = HeapPool::new(BURST);
        let mut b = batch(&pool, 10);
        let first: Vec<_> = b.drain().take(3).collect();
        assert_eq!((first.len(), b.len(), pool.in_use()), (3, 0, 3));
    }

    #[test]
    fn a_panic_while_sifting_loses_no_packet() {
        let pool = HeapPool::new(BURST);
        let mut b = batch(&pool, 10);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            b.extract_if(|p| if p.data()[0] == 5 { panic!("on purpose") } else { Some(()) }, |(), _| ());
        }));
        assert!(caught.is_err());
        assert_eq!((b.len(), pool.in_use()), (10, 10));
        b.clear();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_panic_while_packets_are_taken_out_loses_none_that_stay() {
        let pool = HeapPool::new(BURST);
        let mut b = batch(&pool, 10);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            b.extract_if(
                |p| (p.data()[0] % 2 == 1).then_some(p.data()[0]),
                |tag, packet| {
                    drop(packet);
                    assert_ne!(tag, 5, "on purpose");
                },
            );
        }));
        assert!(caught.is_err());
        assert_eq!((tags(&b), pool.in_use()), (vec![0, 2, 4, 6, 8, 7, 9], 7));
    }

    proptest! {
        #[test]
        fn sifts_like_partition(n in 0..=BURST, mask: u32) {
            let pool = HeapPool::new(BURST);
            let mut b = batch(&pool, n);
            let mut out = vec![];
            b.extract_if(
                |p| (mask >> p.data()[0] & 1 == 1).then_some(p.data()[0]),
                |way, p| { assert_eq!(way, p.data()[0]); out.push(p) },
            );
            let (gone, kept): (Vec<u8>, Vec<u8>) = (0..n as u8).partition(|i| mask >> i & 1 == 1);
            prop_assert_eq!(tags(&b), kept);
            prop_assert_eq!(out.iter().map(|p| p.data()[0]).collect::<Vec<_>>(), gone);
            prop_assert_eq!(pool.in_use(), n);
            drop((b, out));
            prop_assert_eq!(pool.in_use(), 0);
        }

        #[test]
        fn pulls_as_many_as_there_is_room_for(n in 0..=BURST, waiting in 0..=2 * BURST) {
            let pool = HeapPool::new(3 * BURST);
            let mut b = batch(&pool, n);
            let mut from: Vec<_> = (n..n + waiting).map(|i| pool.alloc_from(&[i as u8]).unwrap()).collect();
            b.fill_from(&mut from);
            let all: Vec<_> = b.iter().chain(&from).map(|p| p.data()[0]).collect();
            prop_assert_eq!(all, (0..(n + waiting) as u8).collect::<Vec<_>>());
            prop_assert_eq!(b.len(), (n + waiting).min(BURST));
            drop((b, from));
            prop_assert_eq!(pool.in_use(), 0);
        }

        #[test]
        fn forgets_the_front(n in 0..=BURST, sent in 0..=BURST) {
            let sent = sent.min(n);
            let pool = HeapPool::new(BURST);
            let mut b = batch(&pool, n);
            // SAFETY: the first `sent` slots hold packets.
            let taken: Vec<_> = (0..sent).map(|i| unsafe { *b.buffers().add(i) }).collect();
            // SAFETY: `taken` has them now.
            unsafe { b.forget_front(sent) };
            prop_assert_eq!(tags(&b), (sent as u8..n as u8).collect::<Vec<_>>());
            for m in taken {
                // SAFETY: each was forgotten above.
                drop(unsafe { Packet::from_raw(m) });
            }
            prop_assert_eq!(pool.in_use(), n - sent);
        }
    }
}
