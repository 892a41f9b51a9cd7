//! The load balancer and its C baseline.

use crate::fixture::{self, CPort, Memory, Random};
use crate::fresh::Destinations;
use crate::pair::{Pair, node};
use core::ffi::c_void;
use core::net::Ipv4Addr;
use packet::{BURST, Batch};
use runtime::Receive;
use std::fmt::Write;
use tables::maglev::{Member, Ring};
use wire::{build, checksum};

/// Maximum number of connections of either side.
const CAPACITY: u32 = 1 << 20;
/// Idle timeout in seconds, longer than the benchmark.
const IDLE: u32 = 600;
const SLOTS: usize = 65_537;
const BACKENDS: usize = 100;
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const PORT: u16 = 80;
/// Port of the backends with NAT.
const BACKEND_PORT: u16 = 8080;
/// Length of the cyclic list of flows.
const LIST: usize = 1 << 22;

unsafe extern "C" {
    fn native_maglev_new(
        capacity: u32,
        idle_s: u32,
        cycles_per_second: u64,
        ring: *const u16,
        slots: u32,
        backends: u32,
        ring_seed: *const u64,
        tunnel: i32,
    ) -> *mut c_void;
    fn native_maglev_free(maglev: *mut c_void);
    fn native_maglev_vip(maglev: *mut c_void, dst: u32, port: u16, protocol: u8);
    fn native_maglev_backend(maglev: *mut c_void, n: u32, src: u32, vip: u32, vip_port: u16, dst: u32, port: u16);
}

/// Forwarding of packets to backends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forward {
    Nat,
    Ipip,
}

/// All kinds of forwarding.
pub(crate) const FORWARD: [Forward; 2] = [Forward::Nat, Forward::Ipip];

/// The load balancer in C with its ring.
pub(crate) struct Native {
    raw: *mut c_void,
    _ring: Ring,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by `native_maglev_new` and freed once.
        unsafe { native_maglev_free(self.raw) }
    }
}

impl Native {
    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }
}

fn names() -> Vec<String> {
    (0..BACKENDS).map(|n| format!("b{n:03}")).collect()
}

fn backend(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + n as u32)
}

/// Returns the seed of ring look-ups, `Seed::fixed(0)`.
fn seed() -> [u64; 2] {
    [1u64, 2].map(|i| {
        let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

impl Forward {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Forward::Nat => "maglev nat",
            Forward::Ipip => "maglev ipip",
        }
    }

    /// Returns the settings of Bondstone for a number of connections.
    pub(crate) fn settings(self, connections: u32) -> String {
        let (forward, port) = match self {
            Forward::Nat => ("nat", format!(", port = {BACKEND_PORT}")),
            Forward::Ipip => ("ipip", String::new()),
        };
        let mut text = format!(
            "source = [\"{SOURCE}\"]\ntable = {SLOTS}\nconnections = {connections}\nidle = {IDLE}\n\
             [service.web]\nvip = [\"tcp {VIP}:{PORT}\"]\nforward = \"{forward}\"\n"
        );
        for (n, name) in names().iter().enumerate() {
            writeln!(text, "backend.{name} = {{ address = \"{}\"{port} }}", backend(n)).expect("writing to a string");
        }
        text
    }

    /// Returns both sides.
    pub(crate) fn pair(self) -> Pair {
        let settings = self.settings(CAPACITY);
        Pair::new(self.name(), Box::new(move || vec![node("maglev", &settings)]), fixture::native_maglev)
    }

    /// Returns the C baseline without connections.
    pub(crate) fn native(self) -> anyhow::Result<Native> {
        let names = names();
        let members: Vec<_> = names.iter().map(|name| Member { name, weight: 1 }).collect();
        let ring = Ring::build(SLOTS, &members)?;
        let (hz, tunnel) = (packet::clock::hz(), i32::from(self == Forward::Ipip));
        let port = if self == Forward::Nat { BACKEND_PORT } else { PORT }.to_be();
        let be = |address: Ipv4Addr| address.to_bits().to_be();
        // SAFETY: the slots of the ring outlive the load balancer; all numbers are in bounds.
        let raw = unsafe {
            let slots = ring.slots();
            let raw = native_maglev_new(
                CAPACITY,
                IDLE,
                hz,
                slots.as_ptr(),
                SLOTS as u32,
                BACKENDS as u32,
                seed().as_ptr(),
                tunnel,
            );
            native_maglev_vip(raw, be(VIP), PORT.to_be(), 6);
            for n in 0..BACKENDS {
                native_maglev_backend(raw, n as u32, be(SOURCE), be(VIP), PORT.to_be(), be(backend(n)), port);
            }
            raw
        };
        Ok(Native { raw, _ring: ring })
    }
}

/// Returns frames with valid checksums, to the virtual address and others.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let frame = |n: u16| {
        let src = Ipv4Addr::new(10, 1, (n >> 4) as u8, n as u8);
        let payload = vec![n as u8; usize::from(n) * 5];
        match n % 8 {
            0 => build::udp4(src, VIP, 1000 + n, PORT).payload(&payload).to_vec(),
            1 => build::tcp4(src, Ipv4Addr::new(192, 0, 2, 11), 1000 + n, PORT).payload(&payload).to_vec(),
            2 => build::tcp4(src, VIP, 1000 + n, PORT + 1).payload(&payload).pad_to(60).to_vec(),
            3 => build::tcp4(src, VIP, 1000 + n, PORT).dont_fragment().dscp(12).ecn(1).pad_to(60).to_vec(),
            _ => build::tcp4(src, VIP, 1000 + n % 16, PORT).payload(&payload).to_vec(),
        }
    };
    (0..256).map(frame).collect()
}

/// `struct fresh_flow` of forward.h: bytes 22 to 37 of a frame.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flow([u8; 16]);

/// Returns a packet of flow number `n`, from an address and port of its own.
pub(crate) fn packet(n: u32) -> Vec<u8> {
    let src = Ipv4Addr::from_bits(0x0b00_0000 + (n >> 4) * 7);
    build::tcp4(src, VIP, 1024 + (n & 15) as u16, PORT).pad_to(60).to_vec()
}

/// Returns a list of `flows` different flows.
pub(crate) fn flows(flows: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x6d61_676c);
    let flow = || {
        let frame = packet(random.next() % flows as u32);
        let mut bytes: [u8; 16] = *frame[22..].first_chunk().expect("a frame");
        bytes[0] = 64;
        bytes
    };
    let list: Vec<Flow> = core::iter::repeat_with(flow).take(LIST).map(Flow).collect();
    Box::new(List(list.leak()))
}

struct List(&'static [Flow]);

impl Destinations for List {
    fn frame(&self) -> Vec<u8> {
        build::tcp4([11, 0, 0, 0], VIP, 1024, PORT).pad_to(60).to_vec()
    }

    fn source(&self, memory: &Memory) -> Box<dyn Receive> {
        let frame = self.frame();
        debug_assert!(checksum::verify(&frame[14..34]));
        let word = |at: usize| u64::from_ne_bytes(*frame[at..].first_chunk().expect("a frame"));
        // SAFETY: one thread.
        let port = unsafe { &mut *memory.port.as_ptr() };
        port.fresh_mask = LIST as u32 - 1;
        port.fresh = self.0.as_ptr().cast();
        port.at = 0;
        (port.frame_start, port.ip_start) = (word(0), word(8));
        Box::new(FlowSource(memory.handle()))
    }
}

/// Receiver that writes the next flow into each packet.
struct FlowSource(Memory);

impl Receive for FlowSource {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let n = self.0.receive(batch);
        // SAFETY: the list has the length of the mask and is never freed; packets have 60 bytes after the usual
        // headroom.
        unsafe {
            let port: *mut CPort = self.0.port.as_ptr();
            let list = (*port).fresh.cast::<Flow>().add(((*port).at & (*port).fresh_mask) as usize);
            (*port).at = (*port).at.wrapping_add(BURST as u32);
            for i in 0..BURST {
                let m = batch.buffers().add(i).read().as_ptr();
                ((*m).data_off, (*m).data_len, (*m).pkt_len) = (packet::HEADROOM as u16, 60, 60);
                let frame = (*m).buf_addr.add(packet::HEADROOM);
                frame.cast::<u64>().write_unaligned((*port).frame_start);
                frame.add(8).cast::<u64>().write_unaligned((*port).ip_start);
                frame.add(22).cast::<[u8; 16]>().write_unaligned((*list.add(i)).0);
            }
        }
        n
    }
}
