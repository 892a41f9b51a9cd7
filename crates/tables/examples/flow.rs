//! Measures the flow table: TSC cycles per packet, in bursts of 32, of flows drawn at random.
//!
//! `cargo run --release -p bondstone-tables --example flow`
//!
//! The first line is what making the keys costs, which all others include; the second, the bound that memory sets: a
//! random line for the tags and one for the flow, of as much memory as a table of a million flows has, and nothing else.

use core::hint::black_box;
use packet::clock::cycles;
use std::time::{Duration, Instant};
use tables::flow::{FlowKey, FlowTable, Full, Prepared, Settings, Slot, Tuple4, Tuple6};

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

fn located<K: Numbered>(table: &Table<K>, keys: [K; BURST]) -> [Prepared<K>; BURST] {
    let mut keys = keys.map(|key| table.prepare(key));
    table.locate(&mut keys);
    keys
}

/// Looks flows up and counts packets and bytes of each.
fn count<K: Numbered>(table: &mut Table<K>, keys: &[Prepared<K>; BURST], now: u32) {
    let mut slots = [Slot::NONE; BURST];
    table.look_up_or_insert(keys, now, &mut slots, |_, _| {});
    for slot in slots {
        if let Some([packets, bytes]) = table.value_mut(slot) {
            *packets += 1;
            *bytes += 60;
        }
    }
}

fn table<K: Numbered>(name: &str, flows: usize) -> Result<(), tables::flow::Error> {
    let settings = Settings { full: Full::EvictOldest, ..Settings::new(flows) };
    let mut table: Table<K> = FlowTable::new(&settings)?;
    let from = cycles();
    for n in (0..flows as u32).step_by(BURST) {
        let keys = located(&table, core::array::from_fn(|i| K::number((n + i as u32).min(flows as u32 - 1))));
        count(&mut table, &keys, 0);
    }
    let insert = (cycles() - from) as f64 / flows as f64;
    assert_eq!(table.len(), flows);
    let mut slots = [Slot::NONE; BURST];
    let found = measure(flows, |keys: [K; BURST]| {
        table.look_up(&located(&table, keys), 1, &mut slots);
        black_box(&slots);
    });
    let counted = measure(flows, |keys| {
        let keys = located(&table, keys);
        count(&mut table, &keys, 1);
    });
    // each burst is looked up after the next one was located
    let mut before = [table.prepare(K::number(0)); BURST];
    let lagged = measure(flows, |keys| {
        let mut keys = keys.map(|key| table.prepare(key));
        count(&mut table, &before, 1);
        table.locate(&mut keys);
        before = keys;
    });
    assert_eq!(table.counters().inserted, flows as u64, "all were there");
    let from = cycles();
    assert_eq!(table.age(2, table.buckets(), |_, _, idle| idle > 10), 0);
    let age = (cycles() - from) as f64 / flows as f64;
    // ever new flows: each takes the place of another
    let (mut next, mut now) = (flows as u32, 2);
    let replaced = measure(flows, |_: [K; BURST]| {
        let keys = located(&table, core::array::from_fn(|i| K::number(next.wrapping_add(i as u32))));
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

/// A random word that leads to a random line, of which a word is changed, twice `BURST` misses that overlap.
fn bound() -> (f64, f64) {
    let (mut tags, mut lines) = (vec![[0u64; 8]; 1_250_000 / 32], vec![[0u64; 8]; 1_250_000]);
    tags.iter_mut().zip(0..).for_each(|(tag, n)| tag[0] = n % 32);
    let (all_tags, all) = (tags.len(), lines.len());
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
        let mut at = keys.map(|Word(n)| ((u64::from(n) * all_tags as u64) >> 32) as usize);
        at.iter().for_each(|&at| fetch(&tags[at]));
        for at in &mut at {
            *at = (*at * 32 + tags[*at][0] as usize).min(all - 1);
            fetch(&lines[*at]);
        }
        black_box(&mut at).iter().for_each(|&at| lines[at][1] += 1);
    })
}

/// A random number as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Word(u32);

impl FlowKey for Word {
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
    println!("two random lines in 80 MB, in the allocator's pages: {:.1} ({:.1})", bound.0, bound.1);
    println!("      flows        look up      and count  a burst later   insert          replace    age     MiB  huge");
    for flows in [1, 1000, 10_000, 100_000, 1_000_000] {
        table::<Tuple4>("v4", flows)?;
    }
    table::<Tuple6>("v6", 1_000_000)
}
