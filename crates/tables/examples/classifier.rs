//! Measures the classifier: TSC cycles per packet in bursts of 64, on rule sets made here.
//!
//! `cargo run --release -p bondstone-tables --example classifier [SET…]` with sets `uniform`, `acl`, `fw`, `ipc`.
//! Half of the packets are made to match a random rule, half have random fields. Below each line stands what it takes to put
//! a rule anywhere into the list, or to take one away, and to have the classifier of what there is then; and what look-ups
//! take while so many changes are pending.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use core::hint::black_box;
use core::net::Ipv6Addr;
use packet::clock::cycles;
use std::time::{Duration, Instant};
use tables::Classifier;
use tables::classifier::{Addresses, Changing, FragmentKind, Key4, Key6, Rule, Upper};

const BURST: usize = 64;
const PACKETS: usize = 16_384;
/// No rule.
const NONE: u32 = u32::MAX;

/// xorshift64*: enough for rules and packets.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.word()) * n as u64) >> 32) as usize
    }

    /// True `percent` times of a hundred.
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Small numbers more often than great ones.
    fn skewed(&mut self, n: usize) -> usize {
        let (a, b) = (self.below(n), self.below(n));
        a.min(b).min(self.below(n))
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// Random /8 to /24 pairs, UDP, half with one destination port or a range of 1000.
fn uniform(random: &mut Random, n: usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    for _ in 0..n {
        let [src, dst] = [0; 2].map(|_| {
            let len = 8 + random.below(17) as u8;
            ((random.word() & mask(len)).into(), len)
        });
        let ports = match random.below(4) {
            0 | 1 => 0..=u16::MAX,
            2 => {
                let port = random.below(60_000) as u16;
                port..=port
            }
            _ => {
                let port = random.below(60_000) as u16;
                port..=port + 1000
            }
        };
        let upper = Upper::Ports { src: 0..=u16::MAX, dst: ports };
        rules.push(Rule { addresses: Addresses::V4 { src, dst }, protocol: Some(17), upper, ..Rule::ANY });
    }
    rules
}

/// The shares, in percent, that make a set look like an access list, a firewall's, or a mixture.
struct Shape {
    src_any: usize,
    dst_any: usize,
    /// Lengths of prefixes that are not `any`.
    lengths: [u8; 8],
    src_ports: usize,
    dst_ports: usize,
    tcp: usize,
    udp: usize,
    icmp: usize,
    default: bool,
}

const ACL: Shape = Shape {
    src_any: 25,
    dst_any: 2,
    lengths: [16, 20, 24, 24, 27, 28, 32, 32],
    src_ports: 0,
    dst_ports: 75,
    tcp: 75,
    udp: 15,
    icmp: 3,
    default: false,
};
const FW: Shape = Shape {
    src_any: 45,
    dst_any: 30,
    lengths: [8, 16, 20, 24, 24, 28, 32, 32],
    src_ports: 25,
    dst_ports: 70,
    tcp: 60,
    udp: 25,
    icmp: 5,
    default: true,
};
const IPC: Shape = Shape {
    src_any: 12,
    dst_any: 10,
    lengths: [8, 16, 24, 24, 28, 30, 32, 32],
    src_ports: 15,
    dst_ports: 55,
    tcp: 55,
    udp: 25,
    icmp: 5,
    default: true,
};

const SERVICES: [u16; 20] =
    [80, 443, 53, 25, 22, 21, 110, 143, 993, 123, 161, 389, 445, 1433, 1521, 3306, 3389, 5060, 8080, 1812];

fn service(random: &mut Random) -> core::ops::RangeInclusive<u16> {
    match random.below(100) {
        0..70 => {
            let port = SERVICES[random.skewed(SERVICES.len())];
            port..=port
        }
        70..82 => 1024..=u16::MAX,
        82..90 => {
            let port = 1 + random.below(65_000) as u16;
            port..=port
        }
        _ => {
            let port = 1024 + random.below(60_000) as u16;
            port..=port + random.below(4000) as u16
        }
    }
}

/// Addresses of a few sites, each with a few networks, as a real list has; then `any` as often as the shape says.
fn shaped(shape: &Shape, random: &mut Random, n: usize) -> Vec<Rule> {
    let sites: Vec<u32> = (0..4 + n / 100).map(|_| random.word()).collect();
    let networks: Vec<u32> =
        (0..8 + n / 4).map(|_| sites[random.skewed(sites.len())] & 0xffff_0000 | random.word() & 0xffff).collect();
    let far: Vec<u32> = (0..8 + n / 4).map(|_| random.word()).collect();
    let mut rules = Vec::new();
    while rules.len() < n {
        let mut prefix = |any: usize, pool: &[u32]| {
            if random.chance(any) {
                return (0.into(), 0);
            }
            let len = shape.lengths[random.below(8)];
            ((pool[random.skewed(pool.len())] & mask(len)).into(), len)
        };
        let outbound = prefix(50, &[0]).1 == 0;
        let (src, dst) = if outbound {
            (prefix(shape.src_any, &networks), prefix(shape.dst_any, &far))
        } else {
            (prefix(shape.src_any, &far), prefix(shape.dst_any, &networks))
        };
        let all = 0..=u16::MAX;
        let ports = |random: &mut Random| Upper::Ports {
            src: if random.chance(shape.src_ports) { service(random) } else { all.clone() },
            dst: if random.chance(shape.dst_ports) { service(random) } else { all.clone() },
        };
        let kind = random.below(100);
        let (protocol, upper) = if kind < shape.tcp {
            (Some(6), ports(random))
        } else if kind < shape.tcp + shape.udp {
            (Some(17), ports(random))
        } else if kind < shape.tcp + shape.udp + shape.icmp {
            let kind = [0, 3, 8, 11][random.below(4)];
            (Some(1), Upper::Icmp { kind: kind..=kind, code: 0..=u8::MAX })
        } else {
            (None, Upper::Any)
        };
        let rule = Rule { addresses: Addresses::V4 { src, dst }, protocol, upper, ..Rule::ANY };
        // what matches half of all traffic, or never anything, is not written
        let vague = src.1 + dst.1 < 8 && !matches!(&rule.upper, Upper::Ports { dst, .. } if dst.len() == 1);
        if !vague && !rules.iter().any(|r| hides(r, &rule)) {
            rules.push(rule);
        }
    }
    if shape.default {
        rules.pop();
        rules.push(Rule { addresses: Addresses::V4 { src: (0.into(), 0), dst: (0.into(), 0) }, ..Rule::ANY });
    }
    rules
}

/// Returns true if every packet that matches `b` matches `a`.
fn hides(a: &Rule, b: &Rule) -> bool {
    let (Addresses::V4 { src: a_src, dst: a_dst }, Addresses::V4 { src: b_src, dst: b_dst }) =
        (a.addresses, b.addresses)
    else {
        return false;
    };
    let within = |a: (core::net::Ipv4Addr, u8), b: (core::net::Ipv4Addr, u8)| {
        a.1 <= b.1 && (a.0.to_bits() ^ b.0.to_bits()) & mask(a.1) == 0
    };
    let upper = match (&a.upper, &b.upper) {
        (Upper::Any, _) => true,
        (Upper::Ports { src, dst }, Upper::Ports { src: s, dst: d }) => {
            src.contains(s.start()) && src.contains(s.end()) && dst.contains(d.start()) && dst.contains(d.end())
        }
        (a, b) => a == b,
    };
    within(a_src, b_src) && within(a_dst, b_dst) && (a.protocol.is_none() || a.protocol == b.protocol) && upper
}

struct Packet {
    src: u32,
    dst: u32,
    protocol: u8,
    src_port: u16,
    dst_port: u16,
}

impl Packet {
    fn key4(&self) -> Key4 {
        let key = Key4::new(self.src.into(), self.dst.into(), self.protocol, FragmentKind::Whole);
        match self.protocol {
            1 => key.with_icmp(self.src_port as u8, self.dst_port as u8),
            6 => key.with_tcp(self.src_port, self.dst_port, 0x10),
            17 => key.with_ports(self.src_port, self.dst_port),
            _ => key,
        }
    }

    fn key6(&self) -> Key6 {
        let (src, dst) = (address6(self.src, self.dst), address6(self.dst, self.src));
        let key = |protocol| Key6::new(src, dst, protocol, FragmentKind::Whole);
        match self.protocol {
            1 => key(58).with_icmp(self.src_port as u8, self.dst_port as u8),
            6 => key(6).with_tcp(self.src_port, self.dst_port, 0x10),
            17 => key(17).with_ports(self.src_port, self.dst_port),
            other => key(other),
        }
    }
}

fn packet(rule: Option<&Rule>, random: &mut Random) -> Packet {
    let (mut src, mut dst) = (random.word(), random.word());
    let mut protocol = [6, 6, 6, 17, 17, 1][random.below(6)];
    let (mut src_port, mut dst_port) = (random.word() as u16, random.word() as u16);
    if let Some(rule) = rule {
        if let Addresses::V4 { src: s, dst: d } = rule.addresses {
            src = s.0.to_bits() | src & !mask(s.1);
            dst = d.0.to_bits() | dst & !mask(d.1);
        }
        protocol = rule.protocol.unwrap_or(protocol);
        let within = |lo: u16, hi: u16, x: u16| (u32::from(lo) + u32::from(x) % (u32::from(hi - lo) + 1)) as u16;
        match &rule.upper {
            Upper::Any => {}
            Upper::Ports { src, dst } => {
                src_port = within(*src.start(), *src.end(), src_port);
                dst_port = within(*dst.start(), *dst.end(), dst_port);
            }
            Upper::Icmp { kind, .. } => (src_port, dst_port) = ((*kind.start()).into(), dst_port & 0xff),
        }
    } else if random.chance(50) {
        dst_port = SERVICES[random.skewed(SERVICES.len())];
    }
    Packet { src, dst, protocol, src_port, dst_port }
}

/// The same rule for IPv6: its prefixes behind 32 bits of their own.
fn rule6(rule: &Rule) -> Rule {
    let prefix = |(address, len): (core::net::Ipv4Addr, u8)| match len {
        0 => (Ipv6Addr::UNSPECIFIED, 0),
        _ => (address6(address.to_bits(), 0), len + 32),
    };
    let Addresses::V4 { src, dst } = rule.addresses else { return rule.clone() };
    let protocol = rule.protocol.map(|p| if p == 1 { 58 } else { p });
    Rule { addresses: Addresses::V6 { src: prefix(src), dst: prefix(dst) }, protocol, ..rule.clone() }
}

fn address6(word: u32, host: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(word) << 64 | u128::from(host))
}

/// Median and fifth percentile of cycles per packet, over samples of `window` packets, for 0.1 s.
fn measure(window: usize, mut burst: impl FnMut(usize)) -> (f64, f64) {
    let mut samples = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        let from = cycles();
        (0..window).step_by(BURST).for_each(&mut burst);
        samples.push((cycles() - from) as f64 / window as f64);
    }
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[samples.len() / 20])
}

/// The rule of each packet of a set.
#[inline(always)]
fn place(out: &mut [u32], rule: u32, mut set: u64) {
    while set != 0 {
        out[set.trailing_zeros() as usize] = rule;
        set &= set - 1;
    }
}

/// Times of changes, and of look-ups beside them.
fn changes(rules: &[Rule], keys: &[Key4], random: &mut Random) {
    let named: Vec<(Rule, u32)> = rules.iter().cloned().zip(0..).collect();
    let (mut inserted, mut removed, mut pending) = (vec![], vec![], vec![]);
    for most in [1, 16, 128] {
        let mut changing = Changing::new(&named).expect("rules are sound");
        for n in 0..most {
            let (from, to) = (random.below(changing.rules()), random.below(changing.rules()));
            let start = Instant::now();
            if n % 2 == 0 {
                changing.remove(from);
                drop(black_box(changing.classifier()));
                removed.push(start.elapsed().as_secs_f64() * 1e6);
            } else {
                changing.insert(to, &rules[from], 0).expect("a rule of the list");
                drop(black_box(changing.classifier()));
                inserted.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let classifier = changing.classifier();
        let mut out = vec![0; keys.len()];
        let (median, _) = measure(keys.len(), |at| {
            let out = &mut out[at..at + BURST];
            let none = classifier.classify4(black_box(&keys[at..at + BURST]), |rule, set| place(out, rule, set));
            place(out, NONE, none);
        });
        pending.push(median);
    }
    let say = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        format!("{:.0} (at most {:.0}) us", times[times.len() / 2], times[times.len() - 1])
    };
    print!("                  a rule comes in {}, goes in {}; ", say(&mut inserted), say(&mut removed));
    println!("cycles with 1, 16, 128 changes: {:.1} {:.1} {:.1}", pending[0], pending[1], pending[2]);
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    println!("set       rules  build ms      KiB  hits  cycles per packet, median (p05): 1024 packets, 16384, IPv6");
    for set in ["uniform", "acl", "fw", "ipc"] {
        if !chosen.is_empty() && !chosen.iter().any(|c| c == set) {
            continue;
        }
        for n in [10, 100, 1000, 10_000] {
            let random = &mut Random(88_172_645_463_325_252);
            let rules = match set {
                "uniform" => uniform(random, n),
                "acl" => shaped(&ACL, random, n),
                "fw" => shaped(&FW, random, n),
                _ => shaped(&IPC, random, n),
            };
            let start = Instant::now();
            let classifier = Classifier::new(&rules).expect("rules are sound");
            let built = start.elapsed();
            let packets: Vec<Packet> =
                (0..PACKETS).map(|i| packet((i % 2 == 0).then(|| &rules[random.below(n)]), random)).collect();
            let keys: Vec<Key4> = packets.iter().map(Packet::key4).collect();
            let mut out = vec![0; PACKETS];
            let mut classify = |at: usize| {
                let out = &mut out[at..at + BURST];
                let none = classifier.classify4(black_box(&keys[at..at + BURST]), |rule, set| place(out, rule, set));
                place(out, NONE, none);
            };
            let results = [1024, PACKETS].map(|window| measure(window, &mut classify));
            let hits = out.iter().filter(|&&rule| rule != NONE).count() * 100 / PACKETS;
            let rules6: Vec<Rule> = rules.iter().map(rule6).collect();
            let classifier6 = Classifier::new(&rules6).expect("rules are sound");
            let keys6: Vec<Key6> = packets.iter().map(Packet::key6).collect();
            let mut out6 = vec![0; PACKETS];
            let v6 = measure(PACKETS, |at| {
                let out = &mut out6[at..at + BURST];
                let none = classifier6.classify6(black_box(&keys6[at..at + BURST]), |rule, set| place(out, rule, set));
                place(out, NONE, none);
            });
            assert_eq!(out, out6, "both versions have the same rules and packets");
            let ms = built.as_secs_f64() * 1e3;
            print!("{set:8} {n:6} {ms:9.2} {:8} {hits:4}%", classifier.bytes() / 1024);
            for (median, low) in results.into_iter().chain([v6]) {
                print!("  {median:5.1} ({low:.1})");
            }
            println!();
            changes(&rules, &keys, random);
        }
    }
}
