//! Cost of a lookup: `cargo run --release -p bondstone-tables --example lpm [hugetlb|transparent|ordinary]`.
//!
//! Bursts of 32 over 1k, 64k and 4M destinations, each drawn from a random route and random within it; samples of about
//! 0.3 ms; the 5th percentile and the median. Cycles are of the time-stamp counter. The real table is `data/routes`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use packet::clock;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;
use tables::lpm::{Address, Isa, Limits, Writer};
use tables::{Backing, Pages, lpm4, lpm6};

const BURST: usize = 32;
const STREAM: usize = 4 << 20;
const SAMPLES: usize = 120;

/// xorshift64*: the same stream everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// The routes of a family: address, length, value.
type Routes<A> = Vec<(A, u8, u32)>;

/// 16,000 routes of /16 to /24, one in fifty of /25 to /32: the set that peers were measured with.
fn random_routes(random: &mut Random) -> Routes<u32> {
    let mut value = 0;
    (0..16_000)
        .map(|_| {
            let len = if random.below(50) == 0 { 25 + random.below(8) } else { 16 + random.below(9) };
            let address = ((1 + random.below(223)) << 24 | random.below(1 << 24)) as u32 & (!0 << (32 - len));
            value += 1;
            (address, len as u8, value)
        })
        .collect()
}

fn real_routes() -> Option<(Routes<u32>, Routes<u128>)> {
    let data =
        std::env::var("BONDSTONE_DATA").unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into());
    let file = std::fs::File::open(format!("{data}/routes/prefixes.txt.gz")).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (n, line) in text.lines().enumerate() {
        let (address, len) = line.split_once('/')?;
        let (len, value) = (len.parse().ok()?, 1 + n as u32 % 1000);
        match address.parse().ok()? {
            IpAddr::V4(address) => v4.push((address.into(), len, value)),
            IpAddr::V6(address) => v6.push((address.into(), len, value)),
        }
    }
    Some((v4, v6))
}

/// An address of either family from random bits below a prefix.
trait Fill: Address {
    fn fill(self, len: u8, random: &mut Random) -> Self;
}

impl Fill for u32 {
    fn fill(self, len: u8, random: &mut Random) -> u32 {
        self | (random.next() >> 32) as u32 & u32::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }
}

impl Fill for u128 {
    fn fill(self, len: u8, random: &mut Random) -> u128 {
        let bits = u128::from(random.next()) << 64 | u128::from(random.next());
        self | bits & u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn measure<A: Fill>(name: &str, mut writer: Writer<A>, mut routes: Routes<A>, random: &mut Random) {
    for i in (1..routes.len()).rev() {
        routes.swap(i, random.below(i + 1));
    }
    let start = Instant::now();
    writer.extend(routes.iter().copied()).expect("within the limits");
    let load = start.elapsed();
    let (usage, Backing { hugetlb, transparent, ordinary }) = (writer.usage(), writer.table().backing());
    println!(
        "\n{name}: {} routes loaded in {:.0} ms; {} groups; table {:.0} MiB, backed by {:.0} hugetlb + {:.0} transparent + \
         {:.1} ordinary; writer {:.0} MiB",
        writer.len(),
        load.as_secs_f64() * 1e3,
        usage.groups,
        mib(usage.table_bytes),
        mib(hugetlb),
        mib(transparent),
        mib(ordinary),
        mib(usage.writer_bytes),
    );
    for flows in [1 << 10, 64 << 10, 4 << 20] {
        let destinations: Vec<A> = (0..flows)
            .map(|_| {
                let (address, len, _) = routes[random.below(routes.len())];
                address.fill(len, random)
            })
            .collect();
        let stream: Vec<A> = if flows == STREAM {
            destinations
        } else {
            (0..STREAM).map(|_| destinations[random.below(flows)]).collect()
        };
        for isa in Isa::ALL {
            let Some(mut reader) = writer.table().reader_with(isa) else {
                println!("  {flows:>8} destinations  {isa:?}: not on this processor");
                continue;
            };
            let mut values = [0; BURST];
            let mut bursts = stream.as_chunks::<BURST>().0.iter().cycle();
            let mut sample = |count: usize| {
                let start = clock::cycles();
                for addresses in bursts.by_ref().take(count) {
                    reader.look_up(addresses, &mut values);
                    std::hint::black_box(&values);
                }
                (clock::cycles() - start) as f64 / (count * BURST) as f64
            };
            let slow = sample(STREAM / BURST / 4);
            let count = (clock::hz() as f64 * 0.3e-3 / slow) as usize / BURST + 1;
            let mut taken: Vec<f64> = (0..SAMPLES).map(|_| sample(count)).collect();
            taken.sort_unstable_by(f64::total_cmp);
            let (p05, median) = (taken[SAMPLES / 20], taken[SAMPLES / 2]);
            let ns = 1e9 / clock::hz() as f64;
            println!(
                "  {flows:>8} destinations  {isa:<7?} p05 {p05:6.2} cycles {:6.2} ns   median {median:6.2} cycles {:6.2} ns",
                p05 * ns,
                median * ns,
            );
        }
    }
    let count = routes.len().min(100_000);
    let start = Instant::now();
    for (address, len, _) in &routes[..count] {
        writer.remove(*address, *len);
    }
    let removed = start.elapsed();
    for (address, len, value) in &routes[..count] {
        writer.insert(*address, *len, *value).expect("it was there before");
    }
    let inserted = start.elapsed() - removed;
    let each = |time: std::time::Duration| time.as_nanos() / count as u128;
    println!("  {count} random routes removed at {} ns each, inserted at {} ns each", each(removed), each(inserted));
}

fn main() {
    let pages = match std::env::args().nth(1).as_deref() {
        None | Some("hugetlb") => Pages::Hugetlb,
        Some("transparent") => Pages::Transparent,
        Some("ordinary") => Pages::Ordinary,
        Some(other) => {
            eprintln!("{other}: one of hugetlb, transparent, ordinary");
            std::process::exit(2);
        }
    };
    println!("{:.1} MHz counter, best instructions {:?}, pages {pages:?}", clock::hz() as f64 / 1e6, Isa::best());
    let mut random = Random(88_172_645_463_325_252);
    let v4 = || lpm4::with(Limits { pages, ..lpm4::DEFAULT_LIMITS }).expect("memory").0;
    let routes = random_routes(&mut random);
    debug_assert!(routes.iter().all(|(a, ..)| Ipv4Addr::from(*a).octets()[0] > 0));
    measure("IPv4, random", v4(), routes, &mut random);
    let Some((real4, real6)) = real_routes() else {
        println!("skipped: the real table: data/routes is not there (BONDSTONE_DATA)");
        return;
    };
    measure("IPv4, real", v4(), real4, &mut random);
    let v6 = lpm6::with(Limits { pages, ..lpm6::DEFAULT_LIMITS }).expect("memory").0;
    measure("IPv6, real", v6, real6, &mut random);
}
