//! Packets: owned buffers.

use crate::buffer;
use crate::mbuf::{Mbuf, TIMESTAMP_FLAG};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// DPDK's `RTE_MBUF_F_RX_RSS_HASH`.
const RSS_HASH: u64 = 1 << 1;

/// A packet: the only owner of a buffer with one segment. Dropping it frees the buffer to its pool.
///
/// ```
/// use packet::{HeapPool, Pool};
///
/// let mut packet = HeapPool::new(1).alloc_from(b"payload").unwrap();
/// packet.prepend(2).unwrap().copy_from_slice(b"> ");
/// assert_eq!(packet.data(), b"> payload");
/// packet.meta_mut().set_port(3);
/// assert_eq!(packet.meta().port(), 3);
/// ```
#[repr(transparent)]
pub struct Packet(NonNull<Mbuf>);

// SAFETY: the packet is the only owner of its buffer, and pools accept buffers from any thread.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` gives only shared access to plain memory.
unsafe impl Sync for Packet {}

/// Read access to the buffer header of a packet, beside its bytes.
#[derive(Clone, Copy)]
pub struct Meta<'p> {
    header: NonNull<Mbuf>,
    packet: PhantomData<&'p Packet>,
}

/// Write access to the buffer header of a packet, beside its bytes. A handle rather than a reference, so that the
/// header cannot be moved or swapped.
pub struct MetaMut<'p> {
    header: NonNull<Mbuf>,
    packet: PhantomData<&'p mut Packet>,
}

/// Time stamp and truncation of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Nanoseconds since the Unix epoch.
    pub ns: u64,
    /// Number of bytes that the capture cut off at the end of the frame.
    pub truncated: u32,
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the packet owns its buffer and is not used after this.
        unsafe { buffer::free(&raw mut self.0, 1) }
    }
}

impl Packet {
    /// Takes ownership of a buffer.
    ///
    /// # Safety
    /// `mbuf` is live, has one segment and one reference, and contains its buffer (neither indirect nor external);
    /// `data_off + data_len <= buf_len`, `pkt_len == data_len`, and all `buf_len` bytes at `buf_addr` are initialised.
    /// It is not used by other code. Its pool outlives it; a null pool means that [`HeapPool`](crate::HeapPool)
    /// allocated it.
    #[inline(always)]
    pub const unsafe fn from_raw(mbuf: NonNull<Mbuf>) -> Self {
        Packet(mbuf)
    }

    /// Returns the buffer, which the caller then has to free.
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<Mbuf> {
        ManuallyDrop::new(self).0
    }

    #[inline(always)]
    const fn header(&self) -> &Mbuf {
        // SAFETY: the header of a packet is live and only accessed through it.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    const fn header_mut(&mut self) -> &mut Mbuf {
        // SAFETY: as in `header`, and `&mut self` makes it exclusive.
        unsafe { self.0.as_mut() }
    }

    /// Returns the address of the buffer, by which a packet is recognized while it is not freed.
    #[inline(always)]
    pub fn address(&self) -> usize {
        self.0.addr().get()
    }

    /// Returns the length in bytes, without FCS.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "a packet is only empty between allocation and filling")]
    pub const fn len(&self) -> usize {
        self.header().data_len as usize
    }

    /// Returns the bytes of the packet.
    #[inline(always)]
    pub const fn data(&self) -> &[u8] {
        let m = self.header();
        // SAFETY: data_off + data_len <= buf_len, and the buffer lives and is initialised while the packet does.
        unsafe { core::slice::from_raw_parts(m.buf_addr.add(m.data_off as usize), m.data_len as usize) }
    }

    /// Returns the bytes of the packet, mutably.
    #[inline(always)]
    pub const fn data_mut(&mut self) -> &mut [u8] {
        let m = self.header_mut();
        // SAFETY: as in `data`, and `&mut self` makes it exclusive.
        unsafe { core::slice::from_raw_parts_mut(m.buf_addr.add(m.data_off as usize), m.data_len as usize) }
    }

    /// Returns the header and the bytes of the packet, both mutably.
    #[inline(always)]
    pub const fn split_mut(&mut self) -> (MetaMut<'_>, &mut [u8]) {
        let header = self.0;
        (MetaMut { header, packet: PhantomData }, self.data_mut())
    }

    /// Returns read access to the buffer header.
    #[inline(always)]
    pub const fn meta(&self) -> Meta<'_> {
        Meta { header: self.0, packet: PhantomData }
    }

    /// Returns write access to the buffer header.
    #[inline(always)]
    pub const fn meta_mut(&mut self) -> MetaMut<'_> {
        MetaMut { header: self.0, packet: PhantomData }
    }

    /// Returns true if the packet was allocated by a [`HeapPool`](crate::HeapPool).
    pub const fn is_heap(&self) -> bool {
        self.header().pool.is_null()
    }

    /// Returns the number of free bytes before the data.
    #[inline]
    pub const fn headroom(&self) -> usize {
        self.header().data_off as usize
    }

    /// Returns the number of free bytes after the data.
    #[inline]
    pub const fn tailroom(&self) -> usize {
        let m = self.header();
        m.buf_len as usize - m.data_off as usize - m.data_len as usize
    }

    /// Extends the packet by `n` bytes at the front and returns them with unspecified contents; returns `None` and
    /// changes nothing if the headroom is too small.
    #[inline]
    pub const fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.headroom() {
            return None;
        }
        let m = self.header_mut();
        m.data_off -= n as u16;
        m.data_len += n as u16;
        m.pkt_len = m.data_len as u32;
        Some(self.data_mut().split_at_mut(n).0)
    }

    /// Extends the packet by `n` bytes at the end and returns them with unspecified contents; returns `None` and
    /// changes nothing if the tailroom is too small.
    #[inline]
    pub const fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let old = self.len();
        let m = self.header_mut();
        m.data_len += n as u16;
        m.pkt_len = m.data_len as u32;
        Some(self.data_mut().split_at_mut(old).1)
    }

    /// Removes `n` bytes from the front; returns false and changes nothing if the packet is shorter.
    #[inline]
    pub const fn trim_front(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        let m = self.header_mut();
        m.data_off += n as u16;
        m.data_len -= n as u16;
        m.pkt_len = m.data_len as u32;
        true
    }

    /// Shortens the packet to its first `n` bytes; returns false and changes nothing if it is shorter.
    #[inline]
    pub const fn truncate(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        let m = self.header_mut();
        m.data_len = n as u16;
        m.pkt_len = n as u32;
        true
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("port", &self.meta().port()).field("data", &self.data()).finish()
    }
}

impl Meta<'_> {
    #[inline(always)]
    pub(crate) const fn header(&self) -> &Mbuf {
        // SAFETY: the packet is borrowed and so live; no `&mut` to its header exists outside a call of these methods.
        unsafe { self.header.as_ref() }
    }

    /// Returns the number of the port that received the packet.
    #[inline(always)]
    pub const fn port(&self) -> u16 {
        self.header().port
    }

    /// Returns the receive-side-scaling hash, if the device computed one.
    #[inline(always)]
    pub const fn rss_hash(&self) -> Option<u32> {
        let header = self.header();
        if header.ol_flags & RSS_HASH != 0 { Some(header.rss) } else { None }
    }

    /// Returns the time stamp and truncation of a captured frame, if known.
    pub const fn capture_info(&self) -> Option<CaptureInfo> {
        let header = self.header();
        if header.ol_flags & TIMESTAMP_FLAG != 0 {
            Some(CaptureInfo { ns: header.timestamp, truncated: header.truncated })
        } else {
            None
        }
    }
}

impl MetaMut<'_> {
    #[inline(always)]
    pub(crate) const fn header(&mut self) -> &mut Mbuf {
        // SAFETY: only this handle borrows the packet mutably, and the bytes are outside the header.
        unsafe { self.header.as_mut() }
    }

    /// Returns read access.
    #[inline(always)]
    pub const fn as_meta(&self) -> Meta<'_> {
        Meta { header: self.header, packet: PhantomData }
    }

    /// Returns write access for a shorter time.
    #[inline(always)]
    pub const fn reborrow(&mut self) -> MetaMut<'_> {
        MetaMut { header: self.header, packet: PhantomData }
    }

    /// Sets the number of the port that received the packet.
    #[inline(always)]
    pub const fn set_port(&mut self, port: u16) {
        self.header().port = port;
    }

    /// Sets the time stamp and truncation of a captured frame.
    pub const fn set_capture_info(&mut self, info: CaptureInfo) {
        let header = self.header();
        header.timestamp = info.ns;
        header.truncated = info.truncated;
        header.ol_flags |= TIMESTAMP_FLAG;
    }
}

#[cfg(test)]
mod tests {
    use crate::{CaptureInfo, HEADROOM, HeapPool, Packet, Pool};
    use proptest::prelude::*;

    #[test]
    fn metadata_does_not_touch_bytes() {
        let mut p = HeapPool::new(1).alloc_from(&[7; 60]).unwrap();
        assert_eq!((p.meta().capture_info(), p.meta().rss_hash()), (None, None));
        let (mut meta, bytes) = p.split_mut();
        meta.set_port(3);
        meta.set_capture_info(CaptureInfo { ns: 5, truncated: 1 });
        bytes[0] = 8;
        assert_eq!((p.meta().port(), p.meta().capture_info()), (3, Some(CaptureInfo { ns: 5, truncated: 1 })));
        assert_eq!((p.len(), p.data()[0], p.data()[1]), (60, 8, 7));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Prepend(usize),
        Append(usize),
        TrimFront(usize),
        Truncate(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let n = 0..2300usize;
        prop_oneof![
            n.clone().prop_map(Step::Prepend),
            n.clone().prop_map(Step::Append),
            n.clone().prop_map(Step::TrimFront),
            n.prop_map(Step::Truncate),
        ]
    }

    /// A simple model: the bytes and the free space on both sides.
    struct Model {
        bytes: Vec<u8>,
        head: usize,
        tail: usize,
    }

    fn apply(p: &mut Packet, m: &mut Model, step: &Step, fill: u8) {
        match *step {
            Step::Prepend(n) => {
                let got = p.prepend(n).map(|b| b.fill(fill));
                assert_eq!(got.is_some(), n <= m.head);
                if got.is_some() {
                    m.bytes.splice(0..0, std::iter::repeat_n(fill, n));
                    m.head -= n;
                }
            }
            Step::Append(n) => {
                let got = p.append(n).map(|b| b.fill(fill));
                assert_eq!(got.is_some(), n <= m.tail);
                if got.is_some() {
                    m.bytes.extend(std::iter::repeat_n(fill, n));
                    m.tail -= n;
                }
            }
            Step::TrimFront(n) => {
                assert_eq!(p.trim_front(n), n <= m.bytes.len());
                if n <= m.bytes.len() {
                    m.bytes.drain(..n);
                    m.head += n;
                }
            }
            Step::Truncate(n) => {
                assert_eq!(p.truncate(n), n <= m.bytes.len());
                if n <= m.bytes.len() {
                    m.tail += m.bytes.len() - n;
                    m.bytes.truncate(n);
                }
            }
        }
    }

    /// All offsets and lengths of the data, with the numbers of bytes next to each limit: in all states that a packet can
    /// have, and so after any sequence of operations.
    #[test]
    fn data_stays_within_the_buffer_in_every_state() {
        /// Operations with the offset and length that they lead to, or `None` if they fail.
        type Operation = (fn(&mut Packet, usize) -> bool, fn(usize, usize, usize, usize) -> Option<(usize, usize)>);
        const OPERATIONS: [Operation; 4] = [
            (
                |p, n| p.prepend(n).is_some_and(|b| b.len() == n),
                |off, len, _, n| (n <= off).then(|| (off - n, len + n)),
            ),
            (
                |p, n| p.append(n).is_some_and(|b| b.len() == n),
                |off, len, size, n| (n <= size - off - len).then(|| (off, len + n)),
            ),
            (Packet::trim_front, |off, len, _, n| (n <= len).then(|| (off + n, len - n))),
            (Packet::truncate, |off, len, _, n| (n <= len).then_some((off, n))),
        ];
        // miri is slow
        let step = if cfg!(miri) { 509 } else { 1 };
        let mut p = HeapPool::new(1).alloc().unwrap();
        let size = usize::from(p.header().buf_len);
        let state = |p: &Packet| (usize::from(p.header().data_off), p.len());
        for off in (0..=size).step_by(step) {
            for len in (0..=size - off).step_by(step) {
                let limits = [0, off, len, size - off - len, size, 1 << 16, usize::MAX - 1];
                for n in limits.into_iter().flat_map(|n: usize| [n.saturating_sub(1), n, n + 1]) {
                    for (operation, model) in OPERATIONS {
                        let header = p.header_mut();
                        (header.data_off, header.data_len, header.pkt_len) = (off as u16, len as u16, len as u32);
                        let expected = model(off, len, size, n);
                        assert_eq!(operation(&mut p, n), expected.is_some(), "{off} {len} {n}");
                        assert_eq!(state(&p), expected.unwrap_or((off, len)), "{off} {len} {n}");
                        assert_eq!(p.header().pkt_len as usize, p.len());
                        assert!(state(&p).0 + state(&p).1 <= size);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn grows_and_shrinks_like_a_vector(steps in prop::collection::vec(step(), 0..30)) {
            let mut p = HeapPool::new(1).alloc().unwrap();
            let mut m = Model { bytes: vec![], head: HEADROOM, tail: p.tailroom() };
            for (i, s) in steps.iter().enumerate() {
                apply(&mut p, &mut m, s, i as u8);
                prop_assert_eq!(p.data(), &m.bytes[..]);
                prop_assert_eq!((p.headroom(), p.tailroom(), p.len()), (m.head, m.tail, m.bytes.len()));
            }
        }
    }
}
