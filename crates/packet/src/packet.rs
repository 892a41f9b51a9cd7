//! One packet, one owner.

use crate::mbuf::{self, Mbuf, TIMESTAMPED};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

const RSS_HASH: u64 = 1 << 1;

/// Sole owner of one message buffer: one segment, one reference. Dropping it sends the buffer home.
#[repr(transparent)]
pub struct Packet(NonNull<Mbuf>);

// SAFETY: the packet is its buffer's only owner, and pools take buffers back from any thread.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` gives only shared access to plain memory.
unsafe impl Sync for Packet {}

/// What is known of a packet besides its bytes: a handle on the header, which nobody can move out of its place.
#[derive(Clone, Copy)]
pub struct Meta<'p> {
    header: NonNull<Mbuf>,
    packet: PhantomData<&'p Packet>,
}

/// As [`Meta`], to change it.
pub struct MetaMut<'p> {
    header: NonNull<Mbuf>,
    packet: PhantomData<&'p mut Packet>,
}

/// When and how a frame was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since the Unix epoch.
    pub ns: u64,
    /// Bytes at the end of the frame that the capture left out.
    pub cut: u32,
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the packet owns its buffer and is gone after this.
        unsafe { mbuf::free(&raw mut self.0, 1) }
    }
}

impl Packet {
    /// Takes ownership of a buffer.
    ///
    /// # Safety
    /// `mbuf` is live, has one segment and one reference, owns its buffer (neither indirect nor external),
    /// `data_off + data_len <= buf_len`, `pkt_len == data_len`, all `buf_len` bytes at `buf_addr` are initialised, and
    /// nobody else uses it. Its pool outlives it; a null pool means that [`crate::HeapPool`] made it.
    #[inline(always)]
    pub const unsafe fn from_raw(mbuf: NonNull<Mbuf>) -> Self {
        Packet(mbuf)
    }

    /// Gives up ownership: the caller now has to free the buffer.
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<Mbuf> {
        ManuallyDrop::new(self).0
    }

    #[inline(always)]
    const fn header(&self) -> &Mbuf {
        // SAFETY: a packet's header is live and only reached through it.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    const fn header_mut(&mut self) -> &mut Mbuf {
        // SAFETY: as in `header`, and `&mut self` makes it exclusive.
        unsafe { self.0.as_mut() }
    }

    /// Length in bytes, without FCS.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "no packet is empty for long")]
    pub const fn len(&self) -> usize {
        self.header().data_len as usize
    }

    /// The packet's bytes.
    #[inline(always)]
    pub const fn data(&self) -> &[u8] {
        let m = self.header();
        // SAFETY: data_off + data_len <= buf_len, and the buffer lives and is initialised while the packet does.
        unsafe { core::slice::from_raw_parts(m.buf_addr.add(m.data_off as usize), m.data_len as usize) }
    }

    /// The packet's bytes, to change them.
    #[inline(always)]
    pub const fn data_mut(&mut self) -> &mut [u8] {
        let m = self.header_mut();
        // SAFETY: as in `data`, and `&mut self` makes it exclusive.
        unsafe { core::slice::from_raw_parts_mut(m.buf_addr.add(m.data_off as usize), m.data_len as usize) }
    }

    /// The packet's bytes and what is known besides, both to change.
    #[inline(always)]
    pub const fn split_mut(&mut self) -> (MetaMut<'_>, &mut [u8]) {
        let header = self.0;
        (MetaMut { header, packet: PhantomData }, self.data_mut())
    }

    /// What is known of the packet besides its bytes.
    #[inline(always)]
    pub const fn meta(&self) -> Meta<'_> {
        Meta { header: self.0, packet: PhantomData }
    }

    /// What is known of the packet besides its bytes, to change it.
    #[inline(always)]
    pub const fn meta_mut(&mut self) -> MetaMut<'_> {
        MetaMut { header: self.0, packet: PhantomData }
    }

    /// Whether it came from a heap pool.
    pub const fn is_heap(&self) -> bool {
        self.header().pool.is_null()
    }

    /// Bytes free before the data.
    #[inline]
    pub const fn headroom(&self) -> usize {
        self.header().data_off as usize
    }

    /// Bytes free behind the data.
    #[inline]
    pub const fn tailroom(&self) -> usize {
        let m = self.header();
        m.buf_len as usize - m.data_off as usize - m.data_len as usize
    }

    /// Grows the packet by `n` bytes at its front and returns them, with whatever they held; `None` without room.
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

    /// Grows the packet by `n` bytes at its end and returns them, with whatever they held; `None` without room.
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

    /// Takes `n` bytes off the front; false, and no change, when there are fewer.
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

    /// Cuts the packet to its first `n` bytes; false, and no change, when there are fewer.
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
        // SAFETY: the packet is borrowed and so is alive; no `&mut` to its header exists outside a call of these methods.
        unsafe { self.header.as_ref() }
    }

    /// Number of the port that the packet came in by.
    #[inline(always)]
    pub const fn port(&self) -> u16 {
        self.header().port
    }

    /// The receive-side-scaling hash, where the device computed one.
    #[inline(always)]
    pub const fn rss_hash(&self) -> Option<u32> {
        let header = self.header();
        if header.ol_flags & RSS_HASH != 0 { Some(header.rss) } else { None }
    }

    /// When and how the frame was captured, where that is known.
    pub const fn stamp(&self) -> Option<Stamp> {
        let header = self.header();
        if header.ol_flags & TIMESTAMPED != 0 { Some(Stamp { ns: header.timestamp, cut: header.cut }) } else { None }
    }
}

impl MetaMut<'_> {
    #[inline(always)]
    pub(crate) const fn header(&mut self) -> &mut Mbuf {
        // SAFETY: the packet is borrowed for change by this handle alone, and its bytes lie elsewhere.
        unsafe { self.header.as_mut() }
    }

    /// The same, to read.
    #[inline(always)]
    pub const fn get(&self) -> Meta<'_> {
        Meta { header: self.header, packet: PhantomData }
    }

    /// Says by which port the packet came in.
    #[inline(always)]
    pub const fn set_port(&mut self, port: u16) {
        self.header().port = port;
    }

    /// Says when and how the frame was captured.
    pub const fn set_stamp(&mut self, stamp: Stamp) {
        let header = self.header();
        header.timestamp = stamp.ns;
        header.cut = stamp.cut;
        header.ol_flags |= TIMESTAMPED;
    }
}

#[cfg(test)]
mod tests {
    use crate::{HEADROOM, HeapPool, Packet, Pool, Stamp};
    use proptest::prelude::*;

    #[test]
    fn metadata_does_not_touch_bytes() {
        let mut p = HeapPool::new(1).alloc_from(&[7; 60]).unwrap();
        assert_eq!((p.meta().stamp(), p.meta().rss_hash()), (None, None));
        let (mut meta, bytes) = p.split_mut();
        meta.set_port(3);
        meta.set_stamp(Stamp { ns: 5, cut: 1 });
        bytes[0] = 8;
        assert_eq!((p.meta().port(), p.meta().stamp()), (3, Some(Stamp { ns: 5, cut: 1 })));
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

    /// A slow, obvious model: the bytes, and how many are free on either side.
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
