//! Links between cores compared with a plain `rte_ring`.
//!
//! The same 256 packets are passed to the other core and back in bursts. Both cores do the same, so that the time of a
//! round trip is the cost of one crossing on both cores: one packet sent and one received.

use super::table::{ComponentTable, Measurement};
use crate::sample::compare_costs;
use anyhow::ensure;
use config::Shuffle;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use packet::{Batch, HeapPool, Packet, Pool, clock};
use runtime::{Receive, Transmit, shuffle_link};
use std::ffi::CString;

/// Packets in flight.
const PACKETS: usize = 256;
/// Round trips of packets in a sample.
const ROUND_TRIPS: usize = 16_384;

unsafe extern "C" {
    fn native_ring_new(name: *const c_char, room: u32) -> *mut c_void;
    fn native_ring_free(ring: *mut c_void);
    fn native_ring_put(ring: *mut c_void, packets: *const *mut c_void, n: u32) -> u32;
    fn native_ring_take(ring: *mut c_void, packets: *mut *mut c_void, n: u32) -> u32;
    fn native_ring_pass(from: *mut c_void, to: *mut c_void, bytes: *mut u64) -> u32;
}

/// `rte_ring` with one producer and one consumer.
struct Ring(*mut c_void);

// SAFETY: the ring supports one producer and one consumer on different threads, which the benchmark has.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: created by `native_ring_new` and freed once.
        unsafe { native_ring_free(self.0) }
    }
}

impl Ring {
    fn new(name: &CStr) -> anyhow::Result<Ring> {
        // SAFETY: a NUL-terminated name; the EAL is initialised.
        let ring = Ring(unsafe { native_ring_new(name.as_ptr(), 1024) });
        ensure!(!ring.0.is_null(), "cannot allocate an rte_ring");
        Ok(ring)
    }

    fn put(&self, packet: Packet) {
        let raw = packet.into_raw().as_ptr().cast();
        // SAFETY: a live ring with room, which takes ownership of one packet.
        assert_eq!(unsafe { native_ring_put(self.0, &raw, 1) }, 1, "a ring holds all packets");
    }

    fn take(&self) -> Option<Packet> {
        let mut raw: *mut c_void = core::ptr::null_mut();
        // SAFETY: a live ring and room for one pointer; the ring owns its packets.
        unsafe {
            (native_ring_take(self.0, &mut raw, 1) == 1)
                .then(|| Packet::from_raw(core::ptr::NonNull::new_unchecked(raw.cast())))
        }
    }

    /// Passes a burst to another ring and returns the number of packets.
    fn pass(&self, to: &Ring, bytes: &mut u64) -> usize {
        // SAFETY: live rings, each with one producer and one consumer.
        unsafe { native_ring_pass(self.0, to.0, bytes) as usize }
    }
}

/// LinkEnds of the links in both directions at one core.
struct LinkEnds {
    to: Box<dyn Transmit>,
    from: Vec<Box<dyn Receive>>,
    batch: Batch,
}

impl LinkEnds {
    /// Receives from each ring, sends the packets, and returns their number.
    fn pass(&mut self) -> usize {
        let mut n = 0;
        for from in &mut self.from {
            n += from.receive(&mut self.batch);
            while !self.batch.is_empty() {
                self.to.send(&mut self.batch);
            }
        }
        n
    }
}

/// Returns the ends at two cores of links with a number of rings in each direction.
fn links(rings: usize) -> (LinkEnds, LinkEnds) {
    let ((to_b, at_b), (to_a, at_a)) = (shuffle_link(rings, Shuffle::Flow), shuffle_link(rings, Shuffle::Flow));
    let ends = |to, from| LinkEnds { to, from, batch: Batch::new() };
    (ends(to_b, at_a), ends(to_a, at_b))
}

/// Returns a packet of a flow of its own, with its number.
fn frame(n: usize) -> Vec<u8> {
    wire::build::udp4([10, 0, (n >> 8) as u8, n as u8], [10, 9, 0, 1], 1000, 53).pad_to(60).to_vec()
}

/// Returns the sorted numbers of packets.
fn numbers(packets: impl Iterator<Item = Packet>) -> Vec<u16> {
    let mut all: Vec<u16> = packets.map(|p| u16::from_be_bytes([p.data()[28], p.data()[29]])).collect();
    all.sort_unstable();
    all
}

/// Side whose packets are passed.
const IDLE: usize = 0;
const OURS: usize = 1;
const BASELINE: usize = 2;
const STOP: usize = 3;

/// Returns the cost of a round trip of a side, or `None` if the other core was preempted.
fn cost(active: &AtomicUsize, side: usize, mut pass: impl FnMut() -> usize) -> Option<f64> {
    /// Maximum time without a packet.
    const GAP_MAX: Duration = Duration::from_millis(1);
    let gap_max = GAP_MAX.as_micros() as u64 * clock::hz() / 1_000_000;
    active.store(side, Ordering::Release);
    let (from, mut round_trips, mut last) = (clock::cycles(), 0, clock::cycles());
    while round_trips < ROUND_TRIPS {
        match pass() {
            0 if clock::cycles() - last > gap_max => {
                active.store(IDLE, Ordering::Release);
                return None;
            }
            0 => core::hint::spin_loop(),
            n => {
                round_trips += n;
                last = clock::cycles();
            }
        }
    }
    let cycles = last - from;
    active.store(IDLE, Ordering::Release);
    Some(cycles as f64 / round_trips as f64)
}

pub(super) fn rows(table: &mut ComponentTable<'_>, (core, other): (usize, Option<usize>)) -> anyhow::Result<()> {
    for (name, rings) in [("shuffle, one crossing", 1), ("shuffle, one crossing by flow, two rings", 2)] {
        if !table.is_selected(name) {
            continue;
        }
        let Some(other) = other else {
            println!("{name}: skipped: two CPUs are needed");
            continue;
        };
        row(table, name, rings, other)?;
        runtime::pin(core)?;
    }
    Ok(())
}

fn row(table: &mut ComponentTable<'_>, name: &str, rings: usize, other: usize) -> anyhow::Result<()> {
    let pool = HeapPool::new(2 * PACKETS);
    let (mut ours, mut far) = links(rings);
    let ring_name = |direction: &str| CString::new(format!("native_{direction}_{rings}")).expect("no NUL");
    let (forward, reverse) = (Ring::new(&ring_name("forward"))?, Ring::new(&ring_name("reverse"))?);
    for n in 0..PACKETS {
        ours.batch.push(pool.alloc_from(&frame(n)).expect("room")).expect("room");
        if ours.batch.is_full() {
            ours.to.send(&mut ours.batch);
            ensure!(ours.batch.is_empty(), "{name}: a ring holds all packets");
        }
        forward.put(pool.alloc_from(&frame(n)).expect("room"));
    }
    let active = AtomicUsize::new(IDLE);
    let (compared, mut far) = std::thread::scope(|threads| {
        let (active, forward, reverse) = (&active, &forward, &reverse);
        let other_core = threads.spawn(move || {
            // the thread is not pinned if that is not permitted
            let _ = runtime::pin(other);
            let mut bytes = 0;
            loop {
                let n = match active.load(Ordering::Acquire) {
                    OURS => far.pass(),
                    BASELINE => forward.pass(reverse, &mut bytes),
                    IDLE => 0,
                    _ => return far,
                };
                if n == 0 {
                    core::hint::spin_loop();
                }
            }
        });
        let mut bytes = 0;
        let compared = compare_costs(
            table.pairs,
            || cost(active, OURS, || ours.pass()),
            || cost(active, BASELINE, || reverse.pass(forward, &mut bytes)),
        );
        active.store(STOP, Ordering::Release);
        (compared, other_core.join().expect("the other thread does not panic"))
    });
    // no packet was lost or duplicated
    let mut remaining = vec![];
    for end in [&mut ours, &mut far] {
        for from in &mut end.from {
            while from.receive(&mut end.batch) != 0 {
                remaining.extend(end.batch.drain());
            }
        }
    }
    let all: Vec<u16> = (0..PACKETS as u16).collect();
    ensure!(numbers(remaining.into_iter()) == all, "{name}: packets were lost or duplicated in Bondstone");
    let remaining = core::iter::from_fn(|| forward.take().or_else(|| reverse.take()));
    ensure!(numbers(remaining) == all, "{name}: packets were lost or duplicated in rte_ring");
    match compared {
        Some(compared) => {
            let measurement =
                Measurement { name, baseline: "rte_ring, one", size: PACKETS, unit: "packet sent and received" };
            table.add(&measurement, &compared);
        }
        None => println!("{name}: skipped: the other CPU was never free"),
    }
    Ok(())
}
