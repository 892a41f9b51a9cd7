//! The stateful firewall and its C baseline.

use crate::fixture::{self, CPort, Memory, Packets, Random};
use crate::fresh::{self, Destinations, FreshFlow, ListGuard};
use crate::pair::{Pair, node};
use crate::verify;
use core::ffi::c_void;
use dpdk::Mempool;
use packet::BURST;
use runtime::Receive;
use std::rc::Rc;
use std::sync::Arc;
use wire::{TcpFlags, build};

pub(crate) const NAME: &str = "firewall stateful";
/// Maximum number of connections of either side.
const CAPACITY: u32 = 1 << 20;
/// Address of the server.
const SERVER: [u8; 4] = [192, 0, 2, 7];
/// Initial sequence number of both ends.
const ISN: u32 = 999;

/// `struct track_rule` of conntrack.c.
#[repr(C)]
struct CRule {
    src: u32,
    src_mask: u32,
    dst: u32,
    dst_mask: u32,
    drop: u32,
}

unsafe extern "C" {
    fn native_conntrack_new(capacity: u32, rules: *const CRule, n: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_conntrack_free(conntrack: *mut c_void);
    fn native_conntrack_len(conntrack: *const c_void) -> u32;
}

/// The firewall in C with its rules.
pub(crate) struct Native {
    raw: *mut c_void,
    _rules: Vec<CRule>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by `native_conntrack_new` and freed once.
        unsafe { native_conntrack_free(self.raw) }
    }
}

/// Rules that drop packets to 10.66.0.0/16 and accept connections from 10.0.0.0/8.
pub(crate) const RULES: &str = "rules = [\"drop dst 10.66.0.0/16\", \"accept src 10.0.0.0/8\"]";

impl Native {
    fn new() -> Native {
        let net = |address: u32, len| (address.to_be(), fixture::mask(len).to_be());
        let ((dst, dst_mask), (src, src_mask)) = (net(0x0a42_0000, 16), net(0x0a00_0000, 8));
        let rules = vec![
            CRule { src: 0, src_mask: 0, dst, dst_mask, drop: 1 },
            CRule { src, src_mask, dst: 0, dst_mask: 0, drop: 0 },
        ];
        // SAFETY: an array of that length, which lives as long as the firewall.
        let raw = unsafe { native_conntrack_new(CAPACITY, rules.as_ptr(), rules.len() as u32, packet::clock::hz()) };
        Native { raw, _rules: rules }
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }
}

fn firewall() -> Vec<Box<dyn graph::Node>> {
    vec![node("firewall", &format!("{RULES}\ntrack = {{ connections = {CAPACITY} }}"))]
}

/// Returns both sides without connections.
pub(crate) fn pair(pool: &Arc<Mempool>) -> anyhow::Result<(Pair, Rc<Native>)> {
    let pair = Pair::new(NAME, Box::new(firewall), fixture::native_conntrack);
    verify_output(pool, &pair)?;
    Ok((pair, Rc::new(Native::new())))
}

/// Returns a segment of connection number `flow`, from its client if `out`. Its TCP checksum does not depend on the
/// number.
fn segment(flow: u32, out: bool, flags: TcpFlags, (seq, ack): (u32, u32), window: u16) -> Vec<u8> {
    let client = 0x0a00_0000 + flow;
    // the port compensates for the address in the checksum
    let sum = (client >> 16) + (client & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let port = (0xffff + 0xc000 - sum) % 0xffff;
    let client = client.to_be_bytes();
    let frame = match out {
        true => build::tcp4(client, SERVER, port as u16, 80),
        false => build::tcp4(SERVER, client, 80, port as u16),
    };
    let frame = frame.flags(flags).seq(seq).window(window).ttl(255).pad_to(60);
    if flags.contains(TcpFlags::ACK) { frame.ack(ack).to_vec() } else { frame.to_vec() }
}

/// Returns the handshake of connection number `flow`.
pub(crate) fn handshake(flow: u32) -> [Vec<u8>; 3] {
    let both = TcpFlags::SYN | TcpFlags::ACK;
    [(true, TcpFlags::SYN, (ISN, 0)), (false, both, (ISN, ISN + 1)), (true, TcpFlags::ACK, (ISN + 1, ISN + 1))]
        .map(|(out, flags, numbers)| segment(flow, out, flags, numbers, u16::MAX))
}

/// Returns a segment of an established connection.
pub(crate) fn established(flow: u32, out: bool) -> Vec<u8> {
    segment(flow, out, TcpFlags::ACK, (ISN + 1, ISN + 1), u16::MAX)
}

/// Returns a list of segments of `flows` connections in both directions.
pub(crate) fn destinations(flows: usize) -> Box<dyn Destinations> {
    let mut random = Random(0xc0_4417_7ac4);
    let next = move || {
        let (flow, out) = (random.next() % flows as u32, random.next() & 1 == 0);
        FreshFlow::of(&established(flow, out))
    };
    Box::new(Connections { list: fresh::list(next), flows })
}

struct Connections {
    list: Box<dyn Destinations>,
    flows: usize,
}

impl Destinations for Connections {
    fn frame(&self) -> Vec<u8> {
        self.list.frame()
    }

    fn source(&self, memory: &Memory) -> Box<dyn Receive> {
        self.list.source(memory)
    }

    /// Establishes all connections on both sides.
    fn prepare(&self, memory: &Memory, packets: &Packets, run: &mut dyn FnMut(usize)) {
        let port: *mut CPort = memory.port.as_ptr();
        let room = self.flows.max(BURST).next_power_of_two();
        for step in 0..3 {
            let frame = |flow: usize| core::mem::take(&mut handshake((flow % self.flows) as u32)[step]);
            let list: Vec<FreshFlow> = (0..room).map(|flow| FreshFlow::of(&frame(flow))).collect();
            packets.fill(&frame(0));
            let _list = ListGuard::new(port, &list);
            run(self.flows.div_ceil(BURST));
        }
        packets.reset();
    }
}

/// A window that Bondstone stores exactly; it rounds large ones up by at most a quarter.
const EXACT_WINDOW: u16 = 8192;

/// Verifies that both sides send the same segments, valid and invalid ones, of a few connections.
pub(crate) fn verify_output(pool: &Arc<Mempool>, pair: &Pair) -> anyhow::Result<()> {
    let mut random = Random(0x5e9_4e47);
    let flags = [16, 16, 16, 16, 24, 17, 4, 20, 2, 18, 1, 0, 3, 41].map(TcpFlags);
    let mut frames = vec![];
    for flow in (0..80).chain([0x42_0000, 0x42_0001]) {
        frames.push(segment(flow, true, TcpFlags::SYN, (ISN, 0), EXACT_WINDOW));
        frames.push(segment(flow, false, TcpFlags::SYN | TcpFlags::ACK, (ISN, ISN + 1), EXACT_WINDOW));
        frames.push(segment(flow, true, TcpFlags::ACK, (ISN + 1, ISN + 1), EXACT_WINDOW));
        frames.push(segment(flow, false, TcpFlags::SYN, (ISN, 0), EXACT_WINDOW));
    }
    frames.truncate(frames.len() / BURST * BURST);
    // no burst has two packets of a connection, as a closed connection may be opened again
    for n in 0..8000u32 {
        let mut pick = |from: &[u32]| from[random.next() as usize % from.len()];
        let numbers =
            (pick(&[999, 1000, 1001, 1500, 9192, 9193, 100_000, 0, u32::MAX]), pick(&[998, 1000, 1001, 1002, 70_000]));
        let out = pick(&[0, 1]) == 0;
        if n % 5 == 0 {
            let (a, b) = ([10, 0, (n % 32) as u8, 1], [10, 66 + (n & 1) as u8, 7, 1]);
            frames.push(if out { build::udp4(a, b, 1, 2) } else { build::udp4(b, a, 2, 1) }.pad_to(60).to_vec());
        } else {
            let flags = flags[random.next() as usize % flags.len()];
            // C does not track a new SYN within a connection: these remain unanswered
            let numbers = if flags == TcpFlags::SYN { (0x7000_0000, numbers.1) } else { numbers };
            frames.push(segment(n % 80, out, flags, numbers, EXACT_WINDOW));
        }
    }
    frames.truncate(frames.len() / BURST * BURST);
    let native = Native::new();
    verify::same_output(pool, pair, &frames, native.state())?;
    // SAFETY: it has not been freed.
    let connections = unsafe { native_conntrack_len(native.state()) };
    anyhow::ensure!(connections > 80, "too few connections in C: {connections}");
    Ok(())
}
