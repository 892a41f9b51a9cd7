//! The monitor's rows: flows, and the same for C.

use crate::fixture::{self, CPort, Counts, Memory, Packets, Random};
use crate::fresh::{self, Destinations};
use crate::rows::{Pair, Ports, node, worker};
use core::ffi::c_void;
use core::net::Ipv4Addr;
use dpdk::Mempool;
use runtime::{Drain, Source};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Flows that either side holds at most.
const CAPACITY: u32 = 1 << 20;
/// Seconds after which a flow is forgotten: never, in a benchmark.
const IDLE: u32 = 600;

/// `struct flow` of monitor.c.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CFlow {
    src: u32,
    dst: u32,
    ports: u32,
    protocol_seen: u32,
    packets: u64,
    bytes: u64,
}

unsafe extern "C" {
    fn native_monitor_new(capacity: u32, idle_s: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_monitor_free(monitor: *mut c_void);
    fn native_monitor_flows(monitor: *mut c_void, out: *mut CFlow, most: u32) -> u32;
}

/// The monitor in C.
pub(crate) struct Native {
    raw: *mut c_void,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made by `native_monitor_new`, and nobody has it any more.
        unsafe { native_monitor_free(self.raw) }
    }
}

impl Native {
    pub(crate) fn new() -> Native {
        // SAFETY: plain numbers.
        Native { raw: unsafe { native_monitor_new(CAPACITY, IDLE, packet::clock::hz()) } }
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }

    /// Packets and bytes of each flow, by destination and ports.
    fn flows(&self) -> BTreeMap<(Ipv4Addr, u16), (u64, u64)> {
        let mut flows = vec![CFlow::default(); CAPACITY as usize];
        // SAFETY: room for as many as it may have.
        let n = unsafe { native_monitor_flows(self.raw, flows.as_mut_ptr(), CAPACITY) };
        let flow = |f: &CFlow| {
            let [a, b, _, _] = f.ports.to_ne_bytes();
            ((Ipv4Addr::from_bits(u32::from_be(f.dst)), u16::from_be_bytes([a, b])), (f.packets, f.bytes))
        };
        flows[..n as usize].iter().map(flow).collect()
    }
}

/// The monitor, which shows `top` flows at the end.
fn monitor(top: u32) -> Vec<Box<dyn graph::Node>> {
    vec![node("monitor", &format!("flows = {CAPACITY}\nidle = {IDLE}\ntop = {top}"))]
}

/// Both sides.
pub(crate) fn pair() -> Pair {
    Pair::new("monitor", Box::new(|| monitor(10)), fixture::native_monitor)
}

/// Destinations: a list that goes round, of so many different ones. What one source sends to one of them is a flow.
pub(crate) fn destinations(flows: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x6d6f_6e69);
    let mut fresh = fresh::fresh();
    fresh::list(move || fresh(Ipv4Addr::from_bits(0x0b00_0000 + random.next() % flows as u32 * 7)))
}

/// Has both count the same packets from nothing; fails when any flow's packets or bytes differ.
pub(crate) fn same(pool: &Arc<Mempool>, flows: usize) -> anyhow::Result<()> {
    /// Bursts that both count.
    const BURSTS: u32 = 20_000;
    let memory = Memory::new(1024);
    // one source port, so that a flow is what a destination is
    let packets = Packets::new(pool, vec![fixture::packet_to([0; 4]); 1024], |_, p| memory.give(p));
    let receive = Source::Other(destinations(flows).freshen(&memory));
    let mut worker =
        worker(monitor(CAPACITY), Ports::One, vec![receive], vec![Drain::Other(Box::new(memory.handle()))], pool);
    (0..BURSTS).for_each(|_| assert_eq!(worker.poll(), packet::BURST, "packets go round"));
    worker.finish();
    let board = worker.graph().stats().find_map(|(_, stats)| stats.board()).expect("the monitor has one");
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let ours: BTreeMap<(Ipv4Addr, u16), (u64, u64)> = board
        .rows()
        .iter()
        .map(|(_, w)| ((w[4].parse().expect("an address"), number(&w[3]) as u16), (number(&w[1]), number(&w[0]))))
        .collect();

    packets.reset();
    memory.rewind();
    let native = Native::new();
    let port: *mut CPort = memory.port.as_ptr();
    // SAFETY: one thread, and all of it lives through the call.
    unsafe { fixture::native_monitor(port, port, BURSTS, &mut Counts::default(), native.state()) };
    let theirs = native.flows();
    drop(memory.take());
    let total: u64 = theirs.values().map(|(packets, _)| packets).sum();
    anyhow::ensure!(total == u64::from(BURSTS) * 32, "C counted {total} packets of {}", BURSTS * 32);
    anyhow::ensure!(ours == theirs, "the counts differ: {} flows from Bondstone, {} from C", ours.len(), theirs.len());
    Ok(())
}
