//! Handing packets from core to core beside a plain `rte_ring`.
//!
//! The same 256 packets go to the other core and come back, in bursts; both cores do the same, so that the time for a lap is
//! what one crossing costs the two cores together: one packet sent, and one received.

use super::{Table, What};
use crate::sample::compare_costs;
use anyhow::ensure;
use config::Shuffle;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use packet::{Batch, HeapPool, Packet, Pool, clock};
use runtime::{Receive, Transmit, shuffle_link};
use std::ffi::CString;

/// Packets under way.
const PACKETS: usize = 256;
/// Laps of a packet in a sample.
const LAPS: usize = 16_384;

unsafe extern "C" {
    fn native_ring_new(name: *const c_char, room: u32) -> *mut c_void;
    fn native_ring_free(ring: *mut c_void);
    fn native_ring_put(ring: *mut c_void, packets: *const *mut c_void, n: u32) -> u32;
    fn native_ring_take(ring: *mut c_void, packets: *mut *mut c_void, n: u32) -> u32;
    fn native_ring_pass(from: *mut c_void, to: *mut c_void, bytes: *mut u64) -> u32;
}

/// `rte_ring`, for one core on either side.
struct Ring(*mut c_void);

// SAFETY: that is what the ring is for; the benchmark has one thread put and another one take.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: made by `native_ring_new`, and nobody has it any more.
        unsafe { native_ring_free(self.0) }
    }
}

impl Ring {
    fn new(name: &CStr) -> anyhow::Result<Ring> {
        // SAFETY: a NUL-terminated name; the EAL runs.
        let ring = Ring(unsafe { native_ring_new(name.as_ptr(), 1024) });
        ensure!(!ring.0.is_null(), "no memory for an rte_ring");
        Ok(ring)
    }

    fn put(&self, packet: Packet) {
        let raw = packet.into_raw().as_ptr().cast();
        // SAFETY: a live ring with room, and one packet that is its from now on.
        assert_eq!(unsafe { native_ring_put(self.0, &raw, 1) }, 1, "a ring holds all packets");
    }

    fn take(&self) -> Option<Packet> {
        let mut raw: *mut c_void = core::ptr::null_mut();
        // SAFETY: a live ring, and room for one pointer; what is in the ring was a packet and is nobody's.
        unsafe {
            (native_ring_take(self.0, &mut raw, 1) == 1)
                .then(|| Packet::from_raw(core::ptr::NonNull::new_unchecked(raw.cast())))
        }
    }

    /// Hands a burst on to another ring; how many packets.
    fn pass(&self, to: &Ring, bytes: &mut u64) -> usize {
        // SAFETY: live rings; each has one thread that puts and one that takes.
        unsafe { native_ring_pass(self.0, to.0, bytes) as usize }
    }
}

/// One core's ends of both ways.
struct Ends {
    to: Box<dyn Transmit>,
    from: Vec<Box<dyn Receive>>,
    batch: Batch,
}

impl Ends {
    /// Receives from each ring, and sends what came; how many packets.
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

/// The ends at two cores, with so many rings each way.
fn joined(rings: usize) -> (Ends, Ends) {
    let ((there, at_b), (back, at_a)) = (shuffle_link(rings, Shuffle::Flow), shuffle_link(rings, Shuffle::Flow));
    let ends = |to, from| Ends { to, from, batch: Batch::new() };
    (ends(there, at_a), ends(back, at_b))
}

/// A packet of a flow of its own, with its number.
fn frame(n: usize) -> Vec<u8> {
    wire::build::udp4([10, 0, (n >> 8) as u8, n as u8], [10, 9, 0, 1], 1000, 53).pad_to(60).to_vec()
}

/// Packets' numbers, in order.
fn numbers(packets: impl Iterator<Item = Packet>) -> Vec<u16> {
    let mut all: Vec<u16> = packets.map(|p| u16::from_be_bytes([p.data()[28], p.data()[29]])).collect();
    all.sort_unstable();
    all
}

/// Whose packets go round.
const NOBODY: usize = 0;
const OURS: usize = 1;
const THEIRS: usize = 2;
const STOP: usize = 3;

/// A side's sample: what a lap costs, or `None` when the other core was away for long.
fn cost(turn: &AtomicUsize, whose: usize, mut pass: impl FnMut() -> usize) -> Option<f64> {
    /// Longest time without a packet.
    const PATIENCE: Duration = Duration::from_millis(1);
    let patience = PATIENCE.as_micros() as u64 * clock::hz() / 1_000_000;
    turn.store(whose, Ordering::Release);
    let (from, mut laps, mut last) = (clock::cycles(), 0, clock::cycles());
    while laps < LAPS {
        match pass() {
            0 if clock::cycles() - last > patience => {
                turn.store(NOBODY, Ordering::Release);
                return None;
            }
            0 => core::hint::spin_loop(),
            n => {
                laps += n;
                last = clock::cycles();
            }
        }
    }
    let spent = last - from;
    turn.store(NOBODY, Ordering::Release);
    Some(spent as f64 / laps as f64)
}

pub(super) fn rows(table: &mut Table<'_>, (core, other): (usize, Option<usize>)) -> anyhow::Result<()> {
    for (what, rings) in [("shuffle, a crossing, one core", 1), ("shuffle, a crossing, by flow, two rings", 2)] {
        if !table.wanted(what) {
            continue;
        }
        let Some(other) = other else {
            println!("{what}: skipped: needs two CPUs");
            continue;
        };
        row(table, what, rings, other)?;
        runtime::pin(core)?;
    }
    Ok(())
}

fn row(table: &mut Table<'_>, what: &str, rings: usize, other: usize) -> anyhow::Result<()> {
    let pool = HeapPool::new(2 * PACKETS);
    let (mut ours, mut far) = joined(rings);
    let name = |way: &str| CString::new(format!("native_{way}_{rings}")).expect("no NUL");
    let (there, back) = (Ring::new(&name("there"))?, Ring::new(&name("back"))?);
    for n in 0..PACKETS {
        ours.batch.push(pool.alloc_from(&frame(n)).expect("room")).expect("room");
        if ours.batch.is_full() {
            ours.to.send(&mut ours.batch);
            ensure!(ours.batch.is_empty(), "{what}: a ring holds all packets");
        }
        there.put(pool.alloc_from(&frame(n)).expect("room"));
    }
    let turn = AtomicUsize::new(NOBODY);
    let (compared, mut far) = std::thread::scope(|threads| {
        let (turn, there, back) = (&turn, &there, &back);
        let echo = threads.spawn(move || {
            // where it may not be pinned, it runs wherever it is
            let _ = runtime::pin(other);
            let mut bytes = 0;
            loop {
                let n = match turn.load(Ordering::Acquire) {
                    OURS => far.pass(),
                    THEIRS => there.pass(back, &mut bytes),
                    NOBODY => 0,
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
            || cost(turn, OURS, || ours.pass()),
            || cost(turn, THEIRS, || back.pass(there, &mut bytes)),
        );
        turn.store(STOP, Ordering::Release);
        (compared, echo.join().expect("the echo does not panic"))
    });
    // every packet is still there, once, on either side
    let mut left = vec![];
    for end in [&mut ours, &mut far] {
        for from in &mut end.from {
            while from.receive(&mut end.batch) != 0 {
                left.extend(end.batch.drain());
            }
        }
    }
    let all: Vec<u16> = (0..PACKETS as u16).collect();
    ensure!(numbers(left.into_iter()) == all, "{what}: packets were lost or doubled on Bondstone's side");
    let left = core::iter::from_fn(|| there.take().or_else(|| back.take()));
    ensure!(numbers(left) == all, "{what}: packets were lost or doubled in C's rings");
    match compared {
        Some(compared) => {
            let what = What { what, beside: "rte_ring, one", size: PACKETS, unit: "packet handed over and taken" };
            table.add(&what, &compared);
        }
        None => println!("{what}: skipped: the other CPU was never free"),
    }
    Ok(())
}
