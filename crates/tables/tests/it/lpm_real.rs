//! All prefixes of a real Internet table, against an independent trie, standing still and changing.

use prefix_trie::{Prefix, PrefixMap};
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tables::lpm::{Address, Isa, Writer};
use tables::{lpm4, lpm6};

/// xorshift64*.
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

type Routes<A> = Vec<(A, u8, u32)>;

/// Added to a route's value when the churn inserts it again.
const AGAIN: u32 = 1 << 20;

/// The routes of both families, in the order of the file.
fn real() -> Option<&'static (Routes<u32>, Routes<u128>)> {
    static REAL: OnceLock<Option<(Routes<u32>, Routes<u128>)>> = OnceLock::new();
    let read = || {
        let data = std::env::var_os("BONDSTONE_DATA").map(PathBuf::from);
        let data = data.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into());
        let Ok(file) = std::fs::File::open(data.join("routes/prefixes.txt.gz")) else {
            println!("skipped: data/routes is not there (BONDSTONE_DATA)");
            return None;
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file");
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (n, line) in text.lines().enumerate() {
            let (address, len) = line.split_once('/').expect("a prefix");
            let (len, value) = (len.parse().expect("a length"), 1 + n as u32 % 5003);
            match address.parse().expect("an address") {
                IpAddr::V4(address) => v4.push((address.into(), len, value)),
                IpAddr::V6(address) => v6.push((address.into(), len, value)),
            }
        }
        assert_eq!((v4.len(), v6.len()), (901_899, 160_147));
        Some((v4, v6))
    };
    REAL.get_or_init(read).as_ref()
}

trait Bits: Address {
    fn random(random: &mut Random) -> Self;
    /// `self` with random bits behind the first `len`.
    fn filled(self, len: u8, random: &mut Random) -> Self;
    fn whole(self) -> (Self, u8);
}

impl Bits for u32 {
    fn random(random: &mut Random) -> u32 {
        (random.next() >> 32) as u32
    }
    fn filled(self, len: u8, random: &mut Random) -> u32 {
        self | u32::random(random) & u32::MAX.checked_shr(len.into()).unwrap_or(0)
    }
    fn whole(self) -> (u32, u8) {
        (self, 32)
    }
}

impl Bits for u128 {
    fn random(random: &mut Random) -> u128 {
        u128::from(random.next()) << 64 | u128::from(random.next())
    }
    fn filled(self, len: u8, random: &mut Random) -> u128 {
        self | u128::random(random) & u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }
    fn whole(self) -> (u128, u8) {
        (self, 128)
    }
}

/// Half in random routes, half anywhere.
fn draw<A: Bits>(routes: &[(A, u8, u32)], random: &mut Random) -> A {
    if random.below(2) == 0 {
        return A::random(random);
    }
    let (address, len, _) = routes[random.below(routes.len())];
    address.filled(len, random)
}

/// A million random look-ups and one in each route, by every instruction set.
fn agree<A: Bits>(writer: &Writer<A>, trie: &PrefixMap<(A, u8), u32>, routes: &[(A, u8, u32)])
where
    (A, u8): Prefix,
{
    assert_eq!(writer.len(), trie.len());
    let mut random = Random(99);
    let mut addresses: Vec<A> = (0..1_000_000).map(|_| draw(routes, &mut random)).collect();
    addresses.extend(routes.iter().map(|(address, len, _)| address.filled(*len, &mut random)));
    let expected: Vec<u32> =
        addresses.iter().map(|a| trie.get_lpm(&a.whole()).map_or(0, |(_, value)| *value)).collect();
    assert!(expected.iter().filter(|v| **v != 0).count() > routes.len());
    for isa in Isa::ALL {
        let Some(mut reader) = writer.table().reader_with(isa) else { continue };
        let mut values = vec![0; addresses.len()];
        for (addresses, values) in addresses.chunks(37).zip(values.chunks_mut(37)) {
            reader.look_up(addresses, values);
        }
        let wrong = values.iter().zip(&expected).position(|(value, expected)| value != expected);
        assert!(wrong.is_none(), "{isa:?}: {:x?} gave {:?}", wrong.map(|i| addresses[i]), wrong.map(|i| values[i]));
    }
}

fn stands_and_churns<A: Bits>(mut writer: Writer<A>, routes: &[(A, u8, u32)], changes: usize)
where
    (A, u8): Prefix + Sync,
{
    let start = std::time::Instant::now();
    writer.extend(routes.iter().copied()).unwrap();
    println!("{} routes loaded in {:?}: {:?}", routes.len(), start.elapsed(), writer.usage());
    let all: PrefixMap<(A, u8), u32> = routes.iter().map(|(a, len, value)| ((*a, *len), *value)).collect();
    agree(&writer, &all, routes);

    let table = writer.table().clone();
    let (over, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let (over, checked, all_routes) = (&over, &checked, &all);
    let mut left = all.clone();
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            let mut reader = table.reader();
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
                loop {
                    let addresses: [A; 32] = std::array::from_fn(|_| draw(routes, &mut random));
                    let mut values = [0; 32];
                    reader.look_up(&addresses, &mut values);
                    for (address, value) in addresses.into_iter().zip(values) {
                        // Any route that holds the address may be the longest now, with either of its values, or all of
                        // them may be gone.
                        let right = value == 0
                            || all_routes.cover_values(&address.whole()).any(|v| value == *v || value == v + AGAIN);
                        assert!(right, "{address:x?} gave {value}");
                    }
                    checked.fetch_add(32, Relaxed);
                    if over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut random = Random(31);
        for _ in 0..changes {
            let (address, len, value) = routes[random.below(routes.len())];
            match random.below(4) {
                0 => {
                    let again = writer.insert(address, len, value + AGAIN).unwrap();
                    assert_eq!(again, left.insert((address, len), value + AGAIN));
                }
                1 => assert_eq!(writer.insert(address, len, value).unwrap(), left.insert((address, len), value)),
                _ => assert_eq!(writer.remove(address, len), left.remove(&(address, len))),
            }
        }
        over.store(true, Relaxed);
    });
    println!("{} answers checked during {changes} changes, {} routes left", checked.load(Relaxed), left.len());
    agree(&writer, &left, routes);

    for (address, len, _) in routes {
        assert_eq!(writer.remove(*address, *len), left.remove(&(*address, *len)));
    }
    assert!(writer.is_empty() && writer.usage().groups == 0, "{:?}", writer.usage());
    let mut reader = table.reader();
    assert!(routes.iter().all(|(address, ..)| reader.look_up_one(*address) == 0));
}

#[test]
fn a_real_ipv4_table_agrees_with_a_trie() {
    if let Some((v4, _)) = real() {
        stands_and_churns(lpm4::new().unwrap().0, v4, 400_000);
    }
}

#[test]
fn a_real_ipv6_table_agrees_with_a_trie() {
    if let Some((_, v6)) = real() {
        stands_and_churns(lpm6::new().unwrap().0, v6, 100_000);
    }
}
