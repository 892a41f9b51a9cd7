//! Measures the flow table: TSC cycles per packet, in bursts of 32, of flows drawn at random.
//!
//! `cargo run --release -p bondstone-tables --example flow`
//!
//! The first line is what making the keys costs, which all others include; the second, the bound that memory sets: a
//! random line of as much memory as a table of a million flows has, and nothing else.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use core::hint::black_box;
use packet::clock::cycles;
use std::time::{Duration, Instant};
use tables::flow::{FlowKey, FlowTable, Full, Lookup, Prepared, Settings, Tuple4, Tuple6};

const BURST: usize = 32;
/// Bursts in a sample: about 0.2 ms.
const SAMPLE: usize = 512;

trait Numbered: FlowKey {
    /// Key of flow `n`: computed, so that only the table is fetched from memory.
    fn number(n: u32) -> Self;
}

impl Numbered for Tuple4 {
    #[inline(always)]
    fn number(n: u32) -> Self {
        let x = n.wrapping_mul(0x9e37_79b1);
        Tuple4::new(0x0a00_0000 | x >> 12, 0xc633_0000 | x & 0xffff, n as u16, 443, 6)
    }
}

impl Numbered for Tuple6 {
    #[inline(always)]
    fn number(n: u32) -> Self {
        let x = n.wrapping_mul(0x9e37_79b1);
        let net = 0x2001_0db8 << 96;
        Tuple6::new(net | u128::from(x >> 12), net | u128::from(x & 0xffff) << 32, n as u16, 443, 6)
    }
}

/// Median and fifth percentile of cycles per packet for 0.3 s of bursts of flows below `flows`.
fn measure<K: Numbered>(flows: usize, mut burst: impl FnMut([K; BURST])) -> (f64, f64) {
    let (mut state, mut samples, start) = (88_172_645_463_325_252u64, Vec::new(), Instant::now());
    while start.elapsed() < Duration::from_millis(300) {
        let from = cycles();
        for _ in 0..SAMPLE {
            burst(core::array::from_fn(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                K::number((((state >> 32) * flows as u64) >> 32) as u32)
            }));
        }
        samples.push((cycles() - from) as f64 / (SAMPLE * BURST) as f64);
    }
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[samples.len() / 20])
}

type Table<K> = FlowTable<K, [u64; 2]>;

fn prepared<K: Numbered>(table: &Table<K>, keys: [K; BURST]) -> [Prepared<K>; BURST] {
    keys.map(|key| table.prepare(key))
}

/// Looks flows up and counts packets and bytes of each.
fn count<K: Numbered>(table: &mut Table<K>, keys: &[Prepared<K>; BURST], now: u32) {
    table.look_up_or_insert(
        keys,
        now,
        |_, _| {},
        |_, found| {
            if let Lookup::Known([packets, bytes]) | Lookup::New([packets, bytes]) = found {
                *packets += 1;
                *bytes += 60;
            }
        },
    );
}

fn table<K: Numbered>(name: &str, flows: usize) -> Result<(), tables::flow::Error> {
    let settings = Settings { full: Full::EvictOldest, ..Settings::new(flows) };
    let mut table: Table<K> = FlowTable::new(&settings)?;
    let from = cycles();
    for n in (0..flows as u32).step_by(BURST) {
        let keys = prepared(&table, core::array::from_fn(|i| K::number((n + i as u32).min(flows as u32 - 1))));
        count(&mut table, &keys, 0);
    }
    let insert = (cycles() - from) as f64 / flows as f64;
    assert_eq!(table.len(), flows);
    let found = measure(flows, |keys: [K; BURST]| {
        let keys = prepared(&table, keys);
        table.look_up(&keys, 1, |_, value| {
            black_box(value);
        });
    });
    let counted = measure(flows, |keys| {
        let keys = prepared(&table, keys);
        count(&mut table, &keys, 1);
    });
    // each burst is looked up after the next one was prepared
    let mut before = [table.prepare(K::number(0)); BURST];
    let lagged = measure(flows, |keys| {
        let keys = prepared(&table, keys);
        count(&mut table, &before, 1);
        before = keys;
    });
    assert_eq!(table.counters().inserted, flows as u64, "all were there");
    let from = cycles();
    assert_eq!(table.age(2, table.buckets(), |_, _, idle| idle > 10), 0);
    let age = (cycles() - from) as f64 / flows as f64;
    // ever new flows: each takes the place of another
    let (mut next, mut now) = (flows as u32, 2);
    let replaced = measure(flows, |_: [K; BURST]| {
        let keys = prepared(&table, core::array::from_fn(|i| K::number(next.wrapping_add(i as u32))));
        count(&mut table, &keys, now);
        (next, now) = (next.wrapping_add(BURST as u32), now + 1);
    });
    let backing = table.backing();
    let mib = backing.total() as f64 / (1 << 20) as f64;
    let huge = 100 * (backing.hugetlb + backing.transparent) / backing.total();
    let [found, counted, lagged, replaced] =
        [found, counted, lagged, replaced].map(|(median, low)| format!("{median:.1} ({low:.1})"));
    println!(
        "{name} {flows:8} {found:>14} {counted:>14} {lagged:>14} {insert:8.1} {replaced:>16} {age:6.1} {mib:7.1} {huge:4}%"
    );
    Ok(())
}

/// A random line, of which a word is changed: `BURST` misses that overlap.
fn bound() -> (f64, f64) {
    let mut lines = vec![[0u64; 8]; 1_000_000];
    let all = lines.len();
    let fetch = |line: &[u64; 8]| {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address has no effect but on the cache.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        black_box(line);
    };
    measure(u32::MAX as usize, |keys: [Word; BURST]| {
        let at = keys.map(|Word(n)| ((u64::from(n) * all as u64) >> 32) as usize);
        at.iter().for_each(|&at| fetch(&lines[at]));
        black_box(&at).iter().for_each(|&at| lines[at][1] += 1);
    })
}

/// A random number as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Word(u32);

impl FlowKey for Word {
    type Packed = [u8; 4];

    fn pack(&self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }

    fn unpack(packed: &[u8; 4]) -> Self {
        Word(u32::from_ne_bytes(*packed))
    }

    fn is(&self, packed: &[u8; 4]) -> bool {
        self.pack() == *packed
    }

    fn flow_hash(&self, seed: &tables::flow::Seed) -> u64 {
        seed.mix(0, self.0.into(), 0)
    }
}

impl Numbered for Word {
    #[inline(always)]
    fn number(n: u32) -> Self {
        Word(n.wrapping_mul(0x9e37_79b1))
    }
}

fn main() -> Result<(), tables::flow::Error> {
    let keys = measure(1000, |keys: [Tuple4; BURST]| {
        black_box(keys);
    });
    let bound = bound();
    println!("cycles per packet, median (p05); making keys: {:.1} ({:.1})", keys.0, keys.1);
    println!("a random line in 64 MB, in the allocator's pages: {:.1} ({:.1})", bound.0, bound.1);
    println!("      flows        look up      and count  a burst later   insert          replace    age     MiB  huge");
    for flows in [1, 1000, 10_000, 100_000, 1_000_000] {
        table::<Tuple4>("v4", flows)?;
    }
    table::<Tuple6>("v6", 1_000_000)
}
