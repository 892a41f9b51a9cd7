//! NAT44 and its C baseline.

use crate::fixture::{self, CPort, Memory, Packets, Random};
use crate::fresh::{self, Destinations, FreshFlow, FreshUdp, ListGuard};
use crate::pair::{Pair, node};
use crate::verify;
use core::ffi::c_void;
use dpdk::Mempool;
use packet::BURST;
use runtime::Receive;
use std::sync::Arc;
use wire::{TcpFlags, build};

pub(crate) const NAME: &str = "nat44";
/// Maximum number of sessions of either side.
const CAPACITY: u32 = 1 << 20;
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
/// Ports of a subscriber.
const PORTS: u32 = 16;

unsafe extern "C" {
    fn native_nat_new(capacity: u32, external: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_nat_free(nat: *mut c_void);
    fn native_nat_len(nat: *const c_void) -> u32;
}

/// The NAT in C.
pub(crate) struct Native(*mut c_void);

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by `native_nat_new` and freed once.
        unsafe { native_nat_free(self.0) }
    }
}

impl Native {
    pub(crate) fn new() -> Native {
        // SAFETY: no pointers are passed.
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

/// Returns both sides without sessions.
pub(crate) fn pair() -> Pair {
    Pair::new(NAME, Box::new(nat), fixture::native_nat)
}

/// Returns the source and sink of the packets without an NF.
pub(crate) fn source_only() -> Pair {
    Pair::new("nat44 source only", Box::new(Vec::new), fixture::native_io_flow)
}

/// Returns a packet of session number `flow`. No two sessions have the same port and destination, so that ports are
/// preserved.
pub(crate) fn packet(flow: u32) -> Vec<u8> {
    let (subscriber, port) = (flow / PORTS, 2048 + flow % 60_000);
    let dst = 0xc612_0000 + flow / 60_000;
    let frame = build::udp4((0x0a00_0000 + subscriber).to_be_bytes(), dst.to_be_bytes(), port as u16, 53);
    frame.ttl(255).payload(b"a question").pad_to(60).to_vec()
}

/// Returns a list of packets of `flows` sessions.
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

    fn source(&self, memory: &Memory) -> Box<dyn Receive> {
        self.list.source(memory)
    }

    /// Opens all sessions on both sides.
    fn prepare(&self, memory: &Memory, packets: &Packets, run: &mut dyn FnMut(usize)) {
        let port: *mut CPort = memory.port.as_ptr();
        let room = self.flows.max(BURST).next_power_of_two();
        let list: Vec<_> = (0..room).map(|flow| FreshFlow::of(&packet((flow % self.flows) as u32))).collect();
        packets.reset();
        let _list = ListGuard::new(port, &list);
        run(self.flows.div_ceil(BURST));
        packets.reset();
    }
}

/// Verifies that both sides send the same TCP and UDP packets, valid and invalid ones.
pub(crate) fn verify_output(pool: &Arc<Mempool>) -> anyhow::Result<()> {
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
    verify::same_output(pool, &pair(), &frames, native.state())?;
    // SAFETY: it has not been freed.
    let sessions = unsafe { native_nat_len(native.state()) };
    anyhow::ensure!(sessions > 500, "too few sessions in C: {sessions}");
    Ok(())
}
