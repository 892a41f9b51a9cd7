//! The rows of the address translation, and the same for C.

use crate::fixture::{self, CPort, Memory, Packets, Random};
use crate::fresh::{self, Destinations, FreshFlow, FreshUdp, Handshakes};
use crate::rows::{Pair, node};
use crate::verify;
use core::ffi::c_void;
use dpdk::Mempool;
use packet::BURST;
use runtime::Receive;
use std::sync::Arc;
use wire::{TcpFlags, build};

pub(crate) const NAME: &str = "nat44";
/// Sessions that either side holds at most.
const CAPACITY: u32 = 1 << 20;
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
/// Ports that a subscriber has in these rows.
const PORTS: u32 = 16;

unsafe extern "C" {
    fn native_nat_new(capacity: u32, external: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_nat_free(nat: *mut c_void);
    fn native_nat_len(nat: *const c_void) -> u32;
}

/// The translation in C.
pub(crate) struct Native(*mut c_void);

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made by `native_nat_new`, and nobody has it any more.
        unsafe { native_nat_free(self.0) }
    }
}

impl Native {
    pub(crate) fn new() -> Native {
        // SAFETY: plain numbers.
        Native(unsafe { native_nat_new(CAPACITY, u32::from_ne_bytes(EXTERNAL), packet::clock::hz()) })
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.0
    }
}

fn nat() -> Vec<Box<dyn graph::Node>> {
    let subscribers = CAPACITY / PORTS;
    vec![node(
        "nat44",
        &format!(
            "external = [\"203.0.113.1\"]\nmapping = \"endpoint-dependent\"\nsessions = {CAPACITY}\nsubscribers = {subscribers}"
        ),
    )]
}

/// Both sides, without sessions yet.
pub(crate) fn pair() -> Pair {
    Pair::new(NAME, Box::new(nat), fixture::native_nat)
}

/// The same source and sink without anything between.
pub(crate) fn nothing() -> Pair {
    Pair::new("nat44's source", Box::new(Vec::new), fixture::native_io_flow)
}

/// A packet of session number `flow`: no two share a port and a destination, so that each keeps its port.
pub(crate) fn packet(flow: u32) -> Vec<u8> {
    let (subscriber, port) = (flow / PORTS, 2048 + flow % 60_000);
    let dst = 0xc612_0000 + flow / 60_000;
    let frame = build::udp4((0x0a00_0000 + subscriber).to_be_bytes(), dst.to_be_bytes(), port as u16, 53);
    frame.ttl(255).payload(b"a question").pad_to(60).to_vec()
}

/// Packets that go round, each of one of so many sessions.
pub(crate) fn destinations(flows: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x0a_1144);
    let list = fresh::list(move || FreshUdp::of(&packet(random.next() % flows as u32)));
    Box::new(Sessions { list, flows })
}

struct Sessions {
    list: Box<dyn Destinations>,
    flows: usize,
}

impl Destinations for Sessions {
    fn frame(&self) -> Vec<u8> {
        self.list.frame()
    }

    fn freshen(&self, memory: &Memory) -> Box<dyn Receive> {
        self.list.freshen(memory)
    }

    /// Begins all sessions on both sides.
    fn prepare(&self, memory: &Memory, packets: &Packets, run: &mut dyn FnMut(usize)) {
        let port: *mut CPort = memory.port.as_ptr();
        let room = self.flows.max(BURST).next_power_of_two();
        let list: Vec<_> = (0..room).map(|flow| FreshFlow::of(&packet((flow % self.flows) as u32))).collect();
        packets.reset();
        let _list = Handshakes::put(port, &list);
        run(self.flows.div_ceil(BURST));
        packets.reset();
    }
}

/// TCP and UDP, good and bad, through both: the same must come out.
pub(crate) fn same(pool: &Arc<Mempool>) -> anyhow::Result<()> {
    let mut random = Random(0x0007_a744);
    let flags = [2, 16, 16, 24, 17, 4, 18, 0].map(TcpFlags);
    let mut frames = vec![];
    for n in 0..8192u32 {
        let host = [10, 0, (random.next() % 3) as u8, (random.next() % 9) as u8];
        let port = 2000 + (u16::from(host[2]) * 9 + u16::from(host[3])) * 100 + (random.next() % 7) as u16;
        let remote = [198, 18, 0, (random.next() % 5) as u8];
        let frame = match n % 3 {
            0 => build::udp4(host, remote, port, 53).payload(&[7; 20]).to_vec(),
            1 => {
                let mut frame = build::udp4(host, remote, port, 54).pad_to(60).to_vec();
                frame[40..42].fill(0);
                frame
            }
            _ => {
                let flags = if n < 2000 { TcpFlags::SYN } else { flags[random.next() as usize % flags.len()] };
                build::tcp4(host, remote, port, 80).flags(flags).pad_to(60).to_vec()
            }
        };
        frames.push(frame);
    }
    let native = Native::new();
    verify::same(pool, NAME, &frames, nat(), fixture::native_nat, native.state())?;
    // SAFETY: it lives.
    let known = unsafe { native_nat_len(native.state()) };
    anyhow::ensure!(known > 500, "C knows {known} sessions, which says little");
    Ok(())
}
