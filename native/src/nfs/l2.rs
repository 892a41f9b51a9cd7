//! Forwarding by MAC address: `l2fwd` with a MAC table, and the learning `bridge`.

use crate::fixture::{self, Random};
use crate::fresh::{self, Destinations, FreshMacs};
use crate::pair::{Pair, Ports, node};
use crate::verify;
use core::ffi::c_void;
use packet::clock;

pub(crate) const MAC_TABLE: &str = "l2fwd MAC table";
pub(crate) const BRIDGE: &str = "bridge";

/// First address at the first port.
const FIRST_A: u64 = 0x0200_0000_0000;
/// First address at the second port.
const FIRST_B: u64 = 0x0600_0000_0000;
/// Ageing time of the bridges on both sides in seconds.
const AGEING_TIME: u32 = 300;

unsafe extern "C" {
    fn native_hash_new(entries: u32, key_len: u32) -> *mut c_void;
    fn native_hash_free(hash: *mut c_void);
    fn native_hash_add(hash: *mut c_void, key: *const u8, value: u64) -> i32;
    fn native_bridge_new(addresses: u32, age_s: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_bridge_free(bridge: *mut c_void);
}

/// State of a C baseline.
pub(crate) struct Native(*mut c_void, unsafe extern "C" fn(*mut c_void));

impl Native {
    /// Returns a table of `n` addresses, all at the first port.
    pub(crate) fn mac_table(n: usize) -> anyhow::Result<Native> {
        // SAFETY: keys have eight bytes and are copied.
        unsafe {
            let hash = native_hash_new((n + n / 4).max(64) as u32, 8);
            anyhow::ensure!(!hash.is_null(), "cannot allocate a table of {n} addresses in C");
            for address in (0..n as u64).map(|n| FIRST_A + n) {
                let wire = (address << 16).to_be_bytes();
                anyhow::ensure!(
                    native_hash_add(hash, wire.as_ptr(), 1) >= 0,
                    "the table in C has no room for {n} addresses"
                );
            }
            Ok(Native(hash, native_hash_free))
        }
    }

    /// Returns a bridge with an empty table.
    pub(crate) fn bridge(addresses: usize) -> Native {
        // SAFETY: freed once, in `drop`.
        Native(unsafe { native_bridge_new(addresses as u32, AGEING_TIME, clock::hz()) }, native_bridge_free)
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by the matching constructor.
        unsafe { (self.1)(self.0) }
    }
}

/// Returns `l2fwd` with a table of `n` addresses.
pub(crate) fn mac_table(n: usize) -> Pair {
    let settings =
        format!("ports = [\"a\", \"b\"]\nmac_table = [{{ mac = \"02:00:00:00:00:00\", count = {n}, to = [\"a\"] }}]");
    Pair::new(MAC_TABLE, Box::new(move || vec![node("l2fwd", &settings)]), fixture::native_mac_table)
}

/// Returns destinations among `n` known addresses.
pub(crate) fn to_known_macs(n: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x7374_6174);
    fresh::list(move || FreshMacs::of(FIRST_B, FIRST_A + u64::from(random.next()) % n as u64))
}

/// Returns valid and malformed frames, every other one to one of `n` known addresses.
pub(crate) fn frames(n: usize) -> Vec<Vec<u8>> {
    let mut all = verify::frames();
    for (at, frame) in all.iter_mut().enumerate().step_by(2) {
        if let Some(dst) = frame.first_chunk_mut::<6>() {
            *dst = *(FIRST_A + (at % n) as u64).to_be_bytes().last_chunk().expect("six of eight bytes");
        }
    }
    all
}

/// Returns a bridge between two ports with room for `n` addresses at each.
pub(crate) fn bridge(n: usize) -> Pair {
    let settings = format!("ports = [\"a\", \"b\"]\nmac_entries = {}\nageing_time = {AGEING_TIME}", bridge_entries(n));
    let pair = Pair::new(BRIDGE, Box::new(move || vec![node("bridge", &settings)]), fixture::native_bridge);
    Pair { ports: Ports::Between, ..pair }
}

/// Returns the capacity of a bridge with `n` addresses at each of two ports.
pub(crate) fn bridge_entries(n: usize) -> usize {
    (2 * n).max(1024)
}

/// Returns the addresses of frames from `n` hosts at each port of a bridge to those at the other.
pub(crate) fn between(n: usize) -> [Box<dyn Destinations>; 2] {
    [(FIRST_A, FIRST_B, 0x6272_6964u64), (FIRST_B, FIRST_A, 0x6765_7320)].map(|(from, to, seed)| {
        let (mut random, mut sender) = (Random(seed), 0);
        // every host sends frames, so that all addresses are learned: flooding would change the order of frames
        fresh::list(move || {
            sender = (sender + 1) % n as u64;
            FreshMacs::of(from + sender, to + u64::from(random.next()) % n as u64)
        })
    })
}
