//! Rule sets in the manner of ClassBench (Taylor and Turner, 2007), and packets near their rules.
//!
//! The sets have the characteristics of its seeds: prefix lengths with peaks at 0, 16, 24 and 32, nested sources and
//! destinations from a few networks, the five port classes (any, low, high, arbitrary range, exact), few protocols, and
//! an order from specific to general, so that rules overlap.

use tables::classifier::{Addresses, FragmentKind, Key4, Rule, Upper};

/// A deterministic random number generator.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

pub(super) fn rng(seed: u8) -> Random {
    Random(0x5eed_c1a5_5be2_c400 + u64::from(seed))
}

/// A rule for the linear scan.
#[derive(Clone, Debug)]
pub(super) struct ModelRule {
    pub(super) src: (u32, u8),
    pub(super) dst: (u32, u8),
    pub(super) protocol: Option<u8>,
    pub(super) sport: (u16, u16),
    pub(super) dport: (u16, u16),
}

/// ClassBench seed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seed {
    /// Access control list: general sources, specific destinations.
    Acl,
    /// Firewall: many wildcards and port ranges.
    Firewall,
    /// IP chains: a mix of both.
    Chain,
}

pub(super) fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

pub(super) fn model_rules(seed: Seed, n: usize) -> Vec<ModelRule> {
    let mut rng = rng(n as u8 ^ seed as u8);
    let nets: Vec<u32> = (0..(n / 20).max(4)).map(|_| rng.next()).collect();
    let net = |rng: &mut Random, lens: &[u8]| {
        let len = lens[rng.below(lens.len())];
        let host = rng.next();
        // from a few networks, most of them used repeatedly
        let (one, other) = (rng.below(nets.len()), rng.below(nets.len()));
        let base = nets[one.min(other)];
        ((base & mask(16) | host & !mask(16)) & mask(len), len)
    };
    let port = |rng: &mut Random, exact: usize| match rng.below(100) {
        k if k < exact => {
            let p = [80, 443, 53, 25, 22, 1521, 135, 1433, 8080, 6789][rng.below(10)];
            (p, p)
        }
        k if k < exact + 8 => (0, 1023),
        k if k < exact + 16 => (1024, u16::MAX),
        k if k < exact + 26 => {
            let from = rng.below(60_000) as u16;
            (from, from + 1 + rng.below(5000) as u16)
        }
        _ => (0, u16::MAX),
    };
    let mut all: Vec<ModelRule> = (0..n)
        .map(|_| {
            let (src, dst, sports, dports) = match seed {
                Seed::Acl => {
                    (net(&mut rng, &[0, 0, 16, 24, 24, 27, 32]), net(&mut rng, &[24, 28, 30, 32, 32, 32]), 0, 60)
                }
                Seed::Firewall => {
                    (net(&mut rng, &[0, 0, 0, 8, 16, 24, 32]), net(&mut rng, &[0, 0, 16, 21, 24, 32]), 10, 40)
                }
                Seed::Chain => (net(&mut rng, &[0, 8, 16, 23, 24, 32]), net(&mut rng, &[0, 16, 24, 29, 32]), 5, 50),
            };
            let protocol = [Some(6), Some(6), Some(6), Some(17), Some(17), None, Some(1), Some(50)][rng.below(8)];
            let with_ports = matches!(protocol, Some(6 | 17));
            let any = (0, u16::MAX);
            ModelRule {
                src,
                dst,
                protocol,
                sport: if with_ports { port(&mut rng, sports) } else { any },
                dport: if with_ports { port(&mut rng, dports) } else { any },
            }
        })
        .collect();
    // specific rules first, otherwise the first few would shadow all others
    all.sort_by_key(|l| core::cmp::Reverse(u32::from(l.src.1) + u32::from(l.dst.1)));
    all
}

impl ModelRule {
    pub(super) fn rule(&self) -> Rule {
        let upper = match (self.sport, self.dport) {
            ((0, u16::MAX), (0, u16::MAX)) => Upper::Any,
            (s, d) => Upper::Ports { src: s.0..=s.1, dst: d.0..=d.1 },
        };
        Rule {
            addresses: Addresses::V4 { src: (self.src.0.into(), self.src.1), dst: (self.dst.0.into(), self.dst.1) },
            protocol: self.protocol,
            upper,
            ..Rule::ANY
        }
    }

    /// Returns true if the rule matches.
    pub(super) fn matches(&self, p: &Packet) -> bool {
        let within = |net: (u32, u8), address: u32| (address ^ net.0) & mask(net.1) == 0;
        let ports = self.sport == (0, u16::MAX) && self.dport == (0, u16::MAX)
            || matches!(p.protocol, 6 | 17)
                && (self.sport.0..=self.sport.1).contains(&p.sport)
                && (self.dport.0..=self.dport.1).contains(&p.dport);
        within(self.src, p.src) && within(self.dst, p.dst) && self.protocol.is_none_or(|n| n == p.protocol) && ports
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) protocol: u8,
    pub(super) sport: u16,
    pub(super) dport: u16,
}

impl Packet {
    /// Returns a packet inside a rule, at its boundary, or just outside.
    pub(super) fn near(line: &ModelRule, rng: &mut Random) -> Self {
        let mut edge = |from: u32, to: u32| match rng.below(5) {
            0 => from,
            1 => to,
            2 => from.wrapping_sub(1),
            3 => to.wrapping_add(1),
            _ => from.wrapping_add(rng.below(to.wrapping_sub(from) as usize + 1) as u32),
        };
        let mut net = |(base, len): (u32, u8)| edge(base, base | !mask(len));
        let (src, dst) = (net(line.src), net(line.dst));
        let (sport, dport) =
            (edge(line.sport.0.into(), line.sport.1.into()), edge(line.dport.0.into(), line.dport.1.into()));
        let protocol = line.protocol.filter(|_| rng.below(10) != 0);
        let protocol = protocol.unwrap_or_else(|| [6, 17, 1, 47][rng.below(4)]);
        Packet { src, dst, protocol, sport: sport as u16, dport: dport as u16 }
    }

    pub(super) fn key(&self) -> Key4 {
        let key = Key4::new(self.src.into(), self.dst.into(), self.protocol, FragmentKind::Whole);
        match self.protocol {
            6 => key.with_tcp(self.sport, self.dport, 0x10),
            17 => key.with_ports(self.sport, self.dport),
            1 => key.with_icmp(8, 0),
            _ => key,
        }
    }
}
