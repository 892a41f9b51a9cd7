//! Policing by source address, and its C baseline with `rte_meter`.

use crate::fixture::{self, Random};
use crate::fresh::{self, Destinations, FreshUdp};
use crate::pair::{Pair, node};
use crate::verify;
use core::ffi::c_void;
use dpdk::Mempool;
use packet::BURST;
use std::sync::Arc;
use wire::build;

pub(crate) const NAME: &str = "police";
/// Maximum number of subscribers of either side.
const CAPACITY: u32 = 1 << 20;

unsafe extern "C" {
    fn native_police_new(capacity: u32, cir: u64, cbs: u64, ebs: u64, cycles_per_second: u64) -> *mut c_void;
    fn native_police_free(police: *mut c_void);
}

/// Policing in C.
pub(crate) struct Native(*mut c_void);

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by `native_police_new` and freed once.
        unsafe { native_police_free(self.0) }
    }
}

impl Native {
    /// `cir` is in bytes per second.
    fn new(cir: u64, burst: u64) -> Native {
        // SAFETY: no pointers are passed.
        Native(unsafe { native_police_new(CAPACITY, cir, burst, burst, packet::clock::hz()) })
    }

    /// Returns one for which all packets are green.
    pub(crate) fn green() -> Native {
        Native::new(GREEN.0 / 8, GREEN.1)
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.0
    }
}

/// Rate in bit/s and burst sizes in bytes with which all packets of the benchmark are green while no bucket is full again,
/// so that subscribers are not removed; and with which a few bytes are added during a comparison of output.
const GREEN: (u64, u64) = (1000, 4_000_000_000);
const SLOW: (u64, u64) = (1000, 481);

fn pair((rate, burst): (u64, u64)) -> Pair {
    let settings = format!(
        "subscribers = {CAPACITY}\nclasses = [{{ name = \"all\", per = \"source\", cir = \"{rate} bps\", cbs = {burst}, \
         ebs = {burst}, yellow = {{ dscp = \"af12\" }} }}]"
    );
    Pair::new(NAME, Box::new(move || vec![node(NAME, &settings)]), fixture::native_police)
}

/// Returns both sides, with a rate at which all packets are green.
pub(crate) fn green() -> Pair {
    pair(GREEN)
}

/// Returns the packet of a source.
pub(crate) fn packet(source: u32) -> Vec<u8> {
    let frame = build::udp4((0x0a00_0000 + source).to_be_bytes(), [192, 0, 2, 1], 1000, 53);
    frame.ttl(255).payload(b"a question").pad_to(60).to_vec()
}

/// Returns a list of packets of `sources` sources.
pub(crate) fn sources(sources: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x0070_6f6c);
    fresh::list(move || FreshUdp::of(&packet(random.next() % sources as u32)))
}

/// Verifies that both sides send the same packets, of which some are marked and some dropped.
pub(crate) fn verify_output(pool: &Arc<Mempool>) -> anyhow::Result<()> {
    let mut random = Random(0x0070_6f6d);
    let mut frames: Vec<Vec<u8>> = vec![];
    for n in 0..128 * BURST as u32 {
        let source = random.next() % 300;
        frames.push(match n % 16 {
            // all that is not IPv4 is one subscriber
            0 => build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).pad_to(60).to_vec(),
            1 => build::tcp4((0x0a00_0000 + source).to_be_bytes(), [192, 0, 2, 1], 1, 2).ecn(2).pad_to(90).to_vec(),
            _ => packet(source),
        });
    }
    let native = Native::new(SLOW.0 / 8, SLOW.1);
    verify::same_output(pool, &pair(SLOW), &frames, native.state())
}
