//! Forwarding by MAC address: `l2fwd` with a table of stations, and `bridge`, which learns them.

use crate::fixture::{self, Random};
use crate::fresh::{self, Destinations, FreshMacs};
use crate::rows::{Pair, Ports, node};
use crate::verify;
use core::ffi::c_void;
use packet::clock;

pub(crate) const STATIONS: &str = "l2fwd stations";
pub(crate) const BRIDGE: &str = "bridge";

/// The first station's address, and the first of those at the other port.
const FIRST: u64 = 0x0200_0000_0000;
const OTHER: u64 = 0x0600_0000_0000;
/// Seconds after which a bridge forgets, on both sides.
const AGE: u32 = 300;

unsafe extern "C" {
    fn native_hash_new(entries: u32, key_len: u32) -> *mut c_void;
    fn native_hash_free(hash: *mut c_void);
    fn native_hash_add(hash: *mut c_void, key: *const u8, value: u64) -> i32;
    fn native_bridge_new(addresses: u32, age_s: u32, cycles_per_second: u64) -> *mut c_void;
    fn native_bridge_free(bridge: *mut c_void);
}

/// A table in C.
pub(crate) struct Native(*mut c_void, unsafe extern "C" fn(*mut c_void));

impl Native {
    /// So many stations, all at the first port.
    pub(crate) fn stations(n: usize) -> anyhow::Result<Native> {
        // SAFETY: a key of eight bytes each time, of which nothing is kept but a copy.
        unsafe {
            let hash = native_hash_new((n + n / 4).max(64) as u32, 8);
            anyhow::ensure!(!hash.is_null(), "no memory for a table of {n} stations in C");
            for address in (0..n as u64).map(|n| FIRST + n) {
                let wire = (address << 16).to_be_bytes();
                anyhow::ensure!(native_hash_add(hash, wire.as_ptr(), 1) >= 0, "C has no room for {n} stations");
            }
            Ok(Native(hash, native_hash_free))
        }
    }

    /// A bridge that knows nobody yet.
    pub(crate) fn bridge(addresses: usize) -> Native {
        // SAFETY: a plain call, undone once.
        Native(unsafe { native_bridge_new(addresses as u32, AGE, clock::hz()) }, native_bridge_free)
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: made by its counterpart.
        unsafe { (self.1)(self.0) }
    }
}

/// `l2fwd` with so many stations.
pub(crate) fn stations(n: usize) -> Pair {
    let settings =
        format!("ports = [\"a\", \"b\"]\nstation = [{{ mac = \"02:00:00:00:00:00\", count = {n}, to = [\"a\"] }}]");
    Pair::new(STATIONS, Box::new(move || vec![node("l2fwd", &settings)]), fixture::native_stations)
}

/// What `n` stations are sent.
pub(crate) fn to_stations(n: usize) -> Box<dyn Destinations> {
    let mut random = Random(0x7374_6174);
    fresh::list(move || FreshMacs::of(OTHER, FIRST + u64::from(random.next()) % n as u64))
}

/// Frames of every sort, every other to one of `n` stations.
pub(crate) fn frames(n: usize) -> Vec<Vec<u8>> {
    let mut all = verify::frames();
    for (at, frame) in all.iter_mut().enumerate().step_by(2) {
        if let Some(dst) = frame.first_chunk_mut::<6>() {
            *dst = *(FIRST + (at % n) as u64).to_be_bytes().last_chunk().expect("of eight");
        }
    }
    all
}

/// A bridge between two ports, with room for so many stations at each.
pub(crate) fn bridge(n: usize) -> Pair {
    let settings = format!("ports = [\"a\", \"b\"]\naddresses = {}\nage = {AGE}", addresses(n));
    let pair = Pair::new(BRIDGE, Box::new(move || vec![node("bridge", &settings)]), fixture::native_bridge);
    Pair { ports: Ports::Between, ..pair }
}

/// Addresses that a bridge has room for, with `n` stations at each of its ports.
pub(crate) fn addresses(n: usize) -> usize {
    (2 * n).max(1024)
}

/// What `n` stations at either port of a bridge send to those at the other.
pub(crate) fn between(n: usize) -> [Box<dyn Destinations>; 2] {
    [(FIRST, OTHER, 0x6272_6964u64), (OTHER, FIRST, 0x6765_7320)].map(|(from, to, seed)| {
        let (mut random, mut sender) = (Random(seed), 0);
        // each sends something: to whom nobody knows a frame would go in another order
        fresh::list(move || {
            sender = (sender + 1) % n as u64;
            FreshMacs::of(from + sender, to + u64::from(random.next()) % n as u64)
        })
    })
}
