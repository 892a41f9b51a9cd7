//! Destinations that packets get as they are received.

use crate::fixture::{CPort, Memory, Packets, packet_to, packet6_to};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, Ipv6Addr};
use packet::{BURST, Batch};
use runtime::Receive;
use wire::checksum;

/// Destinations that go round.
pub(crate) const LIST: usize = 1 << 22;

/// `struct fresh` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh {
    ttl_protocol_checksum: u32,
    dst: u32,
}

/// `struct fresh6` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh6 {
    dst: [u8; 16],
}

/// What is written into a frame that is received.
pub(crate) trait Refresh: Copy + Send + 'static {
    /// The frame before the first destination.
    fn frame() -> Vec<u8>;

    /// Writes what is fresh of this frame.
    ///
    /// # Safety
    /// [`frame`](Self::frame) was there, and `port` can be read.
    unsafe fn write(&self, frame: *mut u8, port: *const CPort);
}

impl Refresh for Fresh {
    fn frame() -> Vec<u8> {
        packet_to([0; 4])
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        let Fresh { ttl_protocol_checksum, dst } = *self;
        // SAFETY: the frame has 60 bytes; the port is read for each, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).front);
            frame.add(22).cast::<u32>().write_unaligned(ttl_protocol_checksum);
            frame.add(30).cast::<u32>().write_unaligned(dst);
        }
    }
}

impl Refresh for Fresh6 {
    fn frame() -> Vec<u8> {
        packet6_to(Ipv6Addr::UNSPECIFIED)
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: the frame has 62 bytes; the port is read for each, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).front);
            frame.add(14).cast::<u64>().write_unaligned((*port).ip);
            frame.add(38).cast::<[u8; 16]>().write_unaligned(self.dst);
        }
    }
}

/// `struct fresh_flow` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshFlow([u8; 16]);

impl FreshFlow {
    /// What a frame over IPv4 without options has of it.
    pub(crate) fn of(frame: &[u8]) -> FreshFlow {
        FreshFlow(*frame[22..].first_chunk().expect("an IPv4 packet with ports"))
    }
}

impl Refresh for FreshFlow {
    /// 60 bytes: an acknowledgement of TCP, whose checksum, which no firewall looks at here, belongs to no other connection.
    fn frame() -> Vec<u8> {
        let tcp = wire::build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).flags(wire::TcpFlags::ACK);
        tcp.seq(1000).ack(1000).ttl(255).pad_to(60).to_vec()
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: the frame has 60 bytes; the port is read for each, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).front);
            frame.add(22).cast::<[u8; 16]>().write_unaligned(self.0);
        }
    }
}

/// `struct fresh_macs` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshMacs([u8; 16]);

impl FreshMacs {
    /// From one address to another, six bytes each, the first byte the highest.
    pub(crate) fn of(src: u64, dst: u64) -> FreshMacs {
        let frame = Self::frame();
        let six = |address: u64| *address.to_be_bytes().last_chunk::<6>().expect("of eight");
        let mut bytes = *frame.first_chunk::<16>().expect("a frame");
        bytes[..6].copy_from_slice(&six(dst));
        bytes[6..12].copy_from_slice(&six(src));
        FreshMacs(bytes)
    }
}

impl Refresh for FreshMacs {
    fn frame() -> Vec<u8> {
        packet_to([10, 0, 0, 2])
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, _: *const CPort) {
        // SAFETY: the frame has 60 bytes.
        unsafe { frame.cast::<[u8; 16]>().write_unaligned(self.0) }
    }
}

/// As [`FreshFlow`], of UDP with a checksum.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshUdp(FreshFlow);

impl FreshUdp {
    /// As [`FreshFlow::of`].
    pub(crate) fn of(frame: &[u8]) -> FreshUdp {
        FreshUdp(FreshFlow::of(frame))
    }
}

impl Refresh for FreshUdp {
    /// 60 bytes, whose checksum belongs to no other session.
    fn frame() -> Vec<u8> {
        let udp = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).ttl(255);
        udp.payload(b"a question").pad_to(60).to_vec()
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: as the caller promises.
        unsafe { self.0.write(frame, port) }
    }
}

/// What the source writes into a packet for an IPv4 destination.
pub(crate) fn fresh() -> impl FnMut(Ipv4Addr) -> Fresh {
    let frame = Fresh::frame();
    let mut head: [u8; 20] = *frame[14..].first_chunk().expect("an IPv4 header");
    move |dst| {
        head[10..12].fill(0);
        head[16..20].copy_from_slice(&dst.octets());
        let sum = checksum::of(&head).to_be_bytes();
        Fresh {
            ttl_protocol_checksum: u32::from_le_bytes([head[8], head[9], sum[0], sum[1]]),
            dst: dst.to_bits().to_be(),
        }
    }
}

/// As [`fresh`], for IPv6, which has no checksum of the header.
pub(crate) fn fresh6() -> impl FnMut(Ipv6Addr) -> Fresh6 {
    |dst| Fresh6 { dst: dst.octets() }
}

/// A list that goes round.
pub(crate) trait Destinations {
    /// A frame before its first destination.
    fn frame(&self) -> Vec<u8>;

    /// Has each packet that is received from `memory` get the next of them, by C and by what this returns.
    fn freshen(&self, memory: &Memory) -> Box<dyn Receive>;

    /// What both sides have to see first; `run` has them see so many bursts each.
    fn prepare(&self, _memory: &Memory, _packets: &Packets, _run: &mut dyn FnMut(usize)) {}
}

/// A port's list is another one as long as this lives.
pub(crate) struct Handshakes<'a> {
    port: *mut CPort,
    before: (*const c_void, u32),
    of: PhantomData<&'a [FreshFlow]>,
}

impl<'a> Handshakes<'a> {
    /// Puts a list, whose length is a power of two, in the place of the port's.
    pub(crate) fn put(port: *mut CPort, list: &'a [FreshFlow]) -> Self {
        assert!(list.len().is_power_of_two() && list.len() >= BURST, "a mask, and whole bursts");
        // SAFETY: one thread; the list outlives the guard.
        unsafe {
            let before = ((*port).fresh, (*port).fresh_mask);
            ((*port).fresh, (*port).fresh_mask) = (list.as_ptr().cast(), list.len() as u32 - 1);
            Handshakes { port, before, of: PhantomData }
        }
    }
}

impl Drop for Handshakes<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `put`.
        unsafe { ((*self.port).fresh, (*self.port).fresh_mask) = self.before }
    }
}

/// A list of destinations to go round, for as long as the process lives.
pub(crate) fn list<F: Refresh>(next: impl FnMut() -> F) -> Box<dyn Destinations> {
    let list: Vec<F> = core::iter::repeat_with(next).take(LIST).collect();
    Box::new(List(list.leak()))
}

struct List<F: Refresh>(&'static [F]);

impl<F: Refresh> Destinations for List<F> {
    fn frame(&self) -> Vec<u8> {
        F::frame()
    }

    fn freshen(&self, memory: &Memory) -> Box<dyn Receive> {
        const { assert!(LIST.is_power_of_two(), "a mask takes the place of a division") };
        let frame = F::frame();
        let word = |at: usize| u64::from_ne_bytes(*frame[at..].first_chunk().expect("a frame"));
        // SAFETY: one thread.
        let port = unsafe { &mut *memory.port.as_ptr() };
        port.fresh_mask = self.0.len() as u32 - 1;
        port.fresh = self.0.as_ptr().cast();
        port.at = 0;
        (port.front, port.ip) = (word(0), word(14));
        Box::new(Freshened::<F>(memory.handle(), PhantomData))
    }
}

/// As [`Memory`], with fresh destinations.
struct Freshened<F>(Memory, PhantomData<F>);

impl<F: Refresh> Receive for Freshened<F> {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let n = self.0.receive(batch);
        // SAFETY: the list is as long as the mask says and lives for ever; the packets were made of its frame.
        unsafe {
            let port = self.0.port.as_ptr();
            let list = (*port).fresh.cast::<F>().add(((*port).at & (*port).fresh_mask) as usize);
            (*port).at = (*port).at.wrapping_add(BURST as u32);
            for i in 0..BURST {
                let m = batch.buffers().add(i).read().as_ref();
                (*list.add(i)).write(m.buf_addr.add(m.data_off as usize), port);
            }
        }
        n
    }
}
