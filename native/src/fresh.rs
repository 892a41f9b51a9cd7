//! Destinations that are written into packets as they are received.

use crate::fixture::{CPort, Memory, Packets, packet_to, packet6_to};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, Ipv6Addr};
use packet::{BURST, Batch};
use runtime::Receive;
use wire::checksum;

/// Length of the cyclic list of destinations.
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

/// Fields that are written into a received frame.
pub(crate) trait FreshFields: Copy + Send + 'static {
    /// Returns the frame that the fields are written into.
    fn frame() -> Vec<u8>;

    /// Writes the fields.
    ///
    /// # Safety
    /// The buffer contains a frame of [`frame`](Self::frame), and `port` is valid.
    unsafe fn write(&self, frame: *mut u8, port: *const CPort);
}

impl FreshFields for Fresh {
    fn frame() -> Vec<u8> {
        packet_to([0; 4])
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        let Fresh { ttl_protocol_checksum, dst } = *self;
        // SAFETY: the frame has 60 bytes; the port is read for each packet, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).frame_start);
            frame.add(22).cast::<u32>().write_unaligned(ttl_protocol_checksum);
            frame.add(30).cast::<u32>().write_unaligned(dst);
        }
    }
}

impl FreshFields for Fresh6 {
    fn frame() -> Vec<u8> {
        packet6_to(Ipv6Addr::UNSPECIFIED)
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: the frame has 62 bytes; the port is read for each packet, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).frame_start);
            frame.add(14).cast::<u64>().write_unaligned((*port).ip_start);
            frame.add(38).cast::<[u8; 16]>().write_unaligned(self.dst);
        }
    }
}

/// `struct fresh_flow` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshFlow([u8; 16]);

impl FreshFlow {
    /// Returns the fields of an IPv4 frame without options.
    pub(crate) fn of(frame: &[u8]) -> FreshFlow {
        FreshFlow(*frame[22..].first_chunk().expect("an IPv4 packet with ports"))
    }
}

impl FreshFields for FreshFlow {
    /// Returns a TCP acknowledgement of 60 bytes. Its checksum is wrong for other connections, but firewalls do not
    /// verify it.
    fn frame() -> Vec<u8> {
        let tcp = wire::build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).flags(wire::TcpFlags::ACK);
        tcp.seq(1000).ack(1000).ttl(255).pad_to(60).to_vec()
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: the frame has 60 bytes; the port is read for each packet, as in C.
        unsafe {
            frame.cast::<u64>().write_unaligned((*port).frame_start);
            frame.add(22).cast::<[u8; 16]>().write_unaligned(self.0);
        }
    }
}

/// `struct fresh_macs` of forward.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshMacs([u8; 16]);

impl FreshMacs {
    /// Returns the fields for a source and a destination, the first byte of each being the highest.
    pub(crate) fn of(src: u64, dst: u64) -> FreshMacs {
        let frame = Self::frame();
        let six = |address: u64| *address.to_be_bytes().last_chunk::<6>().expect("six of eight bytes");
        let mut bytes = *frame.first_chunk::<16>().expect("a frame");
        bytes[..6].copy_from_slice(&six(dst));
        bytes[6..12].copy_from_slice(&six(src));
        FreshMacs(bytes)
    }
}

impl FreshFields for FreshMacs {
    fn frame() -> Vec<u8> {
        packet_to([10, 0, 0, 2])
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, _: *const CPort) {
        // SAFETY: the frame has 60 bytes.
        unsafe { frame.cast::<[u8; 16]>().write_unaligned(self.0) }
    }
}

/// As [`FreshFlow`], for UDP with a checksum.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreshUdp(FreshFlow);

impl FreshUdp {
    /// As [`FreshFlow::of`].
    pub(crate) fn of(frame: &[u8]) -> FreshUdp {
        FreshUdp(FreshFlow::of(frame))
    }
}

impl FreshFields for FreshUdp {
    /// Returns a frame of 60 bytes, whose checksum is wrong for other sessions.
    fn frame() -> Vec<u8> {
        let udp = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).ttl(255);
        udp.payload(b"a question").pad_to(60).to_vec()
    }

    #[inline(always)]
    unsafe fn write(&self, frame: *mut u8, port: *const CPort) {
        // SAFETY: as required of the caller.
        unsafe { self.0.write(frame, port) }
    }
}

/// Returns a function that computes the fields for an IPv4 destination.
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

/// As [`fresh`], for IPv6, which has no header checksum.
pub(crate) fn fresh6() -> impl FnMut(Ipv6Addr) -> Fresh6 {
    |dst| Fresh6 { dst: dst.octets() }
}

/// Cyclic list of destinations.
pub(crate) trait Destinations {
    /// Returns the frame that destinations are written into.
    fn frame(&self) -> Vec<u8>;

    /// Configures `memory` so that C writes the next destination into each received packet, and returns a receiver that
    /// does the same.
    fn source(&self, memory: &Memory) -> Box<dyn Receive>;

    /// Prepares both sides; `run` processes a number of bursts on each.
    fn prepare(&self, _memory: &Memory, _packets: &Packets, _run: &mut dyn FnMut(usize)) {}
}

/// Guard that replaces the list of a port while it lives.
pub(crate) struct ListGuard<'a> {
    port: *mut CPort,
    previous: (*const c_void, u32),
    of: PhantomData<&'a [FreshFlow]>,
}

impl<'a> ListGuard<'a> {
    /// Replaces the list of a port by one whose length is a power of two.
    pub(crate) fn new(port: *mut CPort, list: &'a [FreshFlow]) -> Self {
        assert!(list.len().is_power_of_two() && list.len() >= BURST, "power of two, and whole bursts");
        // SAFETY: one thread; the list outlives the guard.
        unsafe {
            let previous = ((*port).fresh, (*port).fresh_mask);
            ((*port).fresh, (*port).fresh_mask) = (list.as_ptr().cast(), list.len() as u32 - 1);
            ListGuard { port, previous, of: PhantomData }
        }
    }
}

impl Drop for ListGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { ((*self.port).fresh, (*self.port).fresh_mask) = self.previous }
    }
}

/// Returns a list of destinations that lives as long as the process.
pub(crate) fn list<F: FreshFields>(next: impl FnMut() -> F) -> Box<dyn Destinations> {
    let list: Vec<F> = core::iter::repeat_with(next).take(LIST).collect();
    Box::new(List(list.leak()))
}

struct List<F: FreshFields>(&'static [F]);

impl<F: FreshFields> Destinations for List<F> {
    fn frame(&self) -> Vec<u8> {
        F::frame()
    }

    fn source(&self, memory: &Memory) -> Box<dyn Receive> {
        const { assert!(LIST.is_power_of_two(), "indexed by a mask") };
        let frame = F::frame();
        let word = |at: usize| u64::from_ne_bytes(*frame[at..].first_chunk().expect("a frame"));
        // SAFETY: one thread.
        let port = unsafe { &mut *memory.port.as_ptr() };
        port.fresh_mask = self.0.len() as u32 - 1;
        port.fresh = self.0.as_ptr().cast();
        port.at = 0;
        (port.frame_start, port.ip_start) = (word(0), word(14));
        Box::new(FreshSource::<F>(memory.handle(), PhantomData))
    }
}

/// Receiver that writes the next destination into each packet.
struct FreshSource<F>(Memory, PhantomData<F>);

impl<F: FreshFields> Receive for FreshSource<F> {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let n = self.0.receive(batch);
        // SAFETY: the list has the length of the mask and is never freed; packets contain its frame.
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
