//! The flow monitor and its C baseline.

use crate::fixture::{self, CPort, Counts, Memory, Packets, Random};
use crate::fresh::{self, Destinations};
use crate::pair::{Pair, Ports, node, worker};
use core::ffi::c_void;
use core::net::Ipv4Addr;
use dpdk::Mempool;
use runtime::{RxPort, TxPort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of flows of either side.
const CAPACITY: u32 = 1 << 20;
/// Idle timeout in seconds, longer than the benchmark.
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
        // SAFETY: created by `native_monitor_new` and freed once.
        unsafe { native_monitor_free(self.raw) }
    }
}

impl Native {
    pub(crate) fn new() -> Native {
        // SAFETY: no pointers are passed.
        Native { raw: unsafe { native_monitor_new(CAPACITY, IDLE, packet::clock::hz()) } }
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }

    /// Returns packets and bytes of each flow by destination and source port.
    fn flows(&self) -> BTreeMap<(Ipv4Addr, u16), (u64, u64)> {
        let mut flows = vec![CFlow::default(); CAPACITY as usize];
        // SAFETY: the buffer has room for the maximum number of flows.
        let n = unsafe { native_monitor_flows(self.raw, flows.as_mut_ptr(), CAPACITY) };
        let flow = |f: &CFlow| {
            let [a, b, _, _] = f.ports.to_ne_bytes();
            ((Ipv4Addr::from_bits(u32::from_be(f.dst)), u16::from_be_bytes([a, b])), (f.packets, f.bytes))
        };
        flows[..n as usize].iter().map(flow).collect()
    }
}

/// Returns the monitor with `top` flows in its table.
fn monitor(top: u32) -> Vec<Box<dyn graph::Node>> {
    vec![node("monitor", &format!("flows = {CAPACITY}\nidle = {IDLE}\ntop = {top}"))]
}

/// Returns both sides.
pub(crate) fn pair() -> Pair {
    Pair::new("monitor", Box::new(|| monitor(10)), fixture::native_monitor)
}

/// Returns a list of `flows` different destinations, each of which is a flow.
pub(crate) fn destinations(flows: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x6d6f_6e69);
    let mut fresh = fresh::fresh();
    fresh::list(move || fresh(Ipv4Addr::from_bits(0x0b00_0000 + random.next() % flows as u32 * 7)))
}

/// Counts the same packets on both sides, and fails if the packets or bytes of a flow differ.
pub(crate) fn verify_counts(pool: &Arc<Mempool>, flows: usize) -> anyhow::Result<()> {
    /// Bursts that both sides count.
    const BURSTS: u32 = 20_000;
    let memory = Memory::new(1024);
    // with one source port, each destination is a flow
    let packets = Packets::new(pool, vec![fixture::packet_to([0; 4]); 1024], |_, p| memory.push(p));
    let receive = RxPort::Other(destinations(flows).source(&memory));
    let mut worker = worker(
        (monitor(CAPACITY), &[]),
        Ports::One,
        vec![receive],
        vec![TxPort::Other(Box::new(memory.handle()))],
        pool,
    );
    (0..BURSTS).for_each(|_| assert_eq!(worker.poll(), packet::BURST, "no packet is dropped"));
    worker.finish();
    let stats_table = worker.graph().stats().find_map(|(_, stats)| stats.table()).expect("the monitor has one");
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let ours: BTreeMap<(Ipv4Addr, u16), (u64, u64)> = stats_table
        .rows()
        .iter()
        .map(|(_, w)| ((w[5].parse().expect("an address"), number(&w[4]) as u16), (number(&w[2]), number(&w[0]))))
        .collect();

    packets.reset();
    memory.rewind();
    let native = Native::new();
    let port: *mut CPort = memory.port.as_ptr();
    // SAFETY: one thread; port, counts and state outlive the call.
    unsafe { fixture::native_monitor(port, port, BURSTS, &mut Counts::default(), native.state()) };
    let baseline = native.flows();
    drop(memory.take());
    let total: u64 = baseline.values().map(|(packets, _)| packets).sum();
    let all = u64::from(BURSTS) * packet::BURST as u64;
    anyhow::ensure!(total == all, "C counted {total} packets of {all}");
    anyhow::ensure!(ours == baseline, "counts differ: {} flows in Bondstone, {} in C", ours.len(), baseline.len());
    Ok(())
}
