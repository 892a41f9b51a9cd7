//! The flow table compared with DPDK's `rte_hash`: look-ups of the same keys in bursts.

use super::table::{ComponentTable, Measurement, RandomKeys};
use crate::sample::compare;
use anyhow::{Context, ensure};
use core::ffi::{c_int, c_void};
use core::hint::black_box;
use packet::BURST;
use tables::flow::{FlowTable, Lookup, Settings, Tuple4};

/// Look-ups of a sample.
const SAMPLE: usize = 16_384;
/// Bytes of a key of `rte_hash`.
const KEY_LEN: usize = 16;

unsafe extern "C" {
    fn native_hash_new(entries: u32, key_len: u32) -> *mut c_void;
    fn native_hash_free(hash: *mut c_void);
    fn native_hash_add(hash: *mut c_void, key: *const u8, value: u64) -> c_int;
    fn native_hash_sum(hash: *const c_void, keys: *const u8, n: u32) -> u64;
}

/// Returns addresses, ports and protocol of flow `n` in network byte order, padded with zeros.
fn wire_key(n: u64) -> [u8; KEY_LEN] {
    let x = (n as u32).wrapping_mul(0x9e37_79b1);
    let mut key = [0; KEY_LEN];
    key[..4].copy_from_slice(&(0x0a00_0000 | x >> 12).to_be_bytes());
    key[4..8].copy_from_slice(&(0xc633_0000 | x & 0xffff).to_be_bytes());
    key[8..10].copy_from_slice(&(n as u16).to_be_bytes());
    key[10..12].copy_from_slice(&443u16.to_be_bytes());
    key[12] = 6;
    key
}

/// Returns the same key for the flow table.
fn key(wire: &[u8; KEY_LEN]) -> Tuple4 {
    let [addresses_and_ports @ .., protocol, _, _, _] = wire;
    Tuple4::of_wire(addresses_and_ports, *protocol)
}

/// `rte_hash`.
struct Hash(*mut c_void);

impl Drop for Hash {
    fn drop(&mut self) {
        // SAFETY: created by `native_hash_new` and freed once.
        unsafe { native_hash_free(self.0) }
    }
}

impl Hash {
    fn new(keys: &[[u8; KEY_LEN]]) -> anyhow::Result<Hash> {
        // rounded up to the next power of two: half of the slots are free, as in the flow table
        let entries = keys.len() as u32 + keys.len() as u32 / 4;
        // SAFETY: no pointers are passed; the EAL is initialised.
        let hash = Hash(unsafe { native_hash_new(entries, KEY_LEN as u32) });
        ensure!(!hash.0.is_null(), "cannot allocate an rte_hash of {} keys", keys.len());
        for (n, key) in (1..).zip(keys) {
            // SAFETY: a live table and sixteen bytes.
            let rc = unsafe { native_hash_add(hash.0, key.as_ptr(), n) };
            ensure!(rc == 0, "rte_hash rejects key {n} of {}: {rc}", keys.len());
        }
        Ok(hash)
    }

    fn sum(&self, keys: &[[u8; KEY_LEN]]) -> u64 {
        // SAFETY: a live table, and whole bursts of keys of sixteen bytes.
        unsafe { native_hash_sum(self.0, keys.as_ptr().cast(), keys.len() as u32) }
    }
}

#[inline(always)]
fn sum(table: &mut FlowTable<Tuple4, u64>, keys: &[Tuple4]) -> u64 {
    let mut sum = 0;
    for burst in keys.as_chunks::<BURST>().0 {
        let burst = burst.map(|key| table.prepare(key));
        table.look_up(&burst, 0, |_, value| sum += *value);
    }
    sum
}

pub(super) fn rows(table: &mut ComponentTable<'_>) -> anyhow::Result<()> {
    const NAME: &str = "flow table, look-up";
    if !table.is_selected(NAME) {
        return Ok(());
    }
    for flows in [1 << 10, 1 << 16, 1 << 20] {
        let all: Vec<[u8; KEY_LEN]> = (0..flows as u64).map(wire_key).collect();
        let mut ours = FlowTable::new(&Settings::new(flows)).context("the flow table")?;
        for (wire, n) in all.iter().zip(1u64..) {
            let prepared = [ours.prepare(key(wire))];
            let mut new = false;
            ours.look_up_or_insert(
                &prepared,
                0,
                |_, _| {},
                |_, found| {
                    if let Lookup::New(value) = found {
                        (*value, new) = (n, true);
                    }
                },
            );
            ensure!(new, "the flow table rejects flow {n} of {flows}");
        }
        let baseline = Hash::new(&all)?;
        // keys are read sequentially, so that only the table causes cache misses
        let mut random = RandomKeys::new(flows);
        let stream: Vec<[u8; KEY_LEN]> = (0..4 * (1 << 20)).map(|_| all[random.next() as usize]).collect();
        let ours_stream: Vec<Tuple4> = stream.iter().map(key).collect();
        let verified = stream.len().min(64 * flows);
        let (x, y) = (sum(&mut ours, &ours_stream[..verified]), baseline.sum(&stream[..verified]));
        ensure!(x == y, "{NAME}: the values of {verified} keys add up to {x} in the flow table, {y} in rte_hash");

        // the sides look up different parts of the list, so that neither finds the other's entries in the cache
        let (mut our_at, mut baseline_at) = (0, stream.len() / 2);
        let next = |at: &mut usize| {
            let from = *at;
            *at = (from + SAMPLE) % stream.len();
            from..from + SAMPLE
        };
        let our_side = || {
            black_box(sum(&mut ours, &ours_stream[next(&mut our_at)]));
            SAMPLE as u64
        };
        let baseline_side = || {
            black_box(baseline.sum(&stream[next(&mut baseline_at)]));
            SAMPLE as u64
        };
        let compared = compare(table.pairs, || (), our_side, baseline_side);
        table.add(
            &Measurement { name: NAME, baseline: "rte_hash_lookup_bulk_data", size: flows, unit: "flow looked up" },
            &compared,
        );
    }
    Ok(())
}
