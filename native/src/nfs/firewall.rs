//! The stateless firewall: rules, packets, and its C baseline.

use crate::fixture::{self, CLoop, Random, mask, packet_of};
use crate::pair::{CompareCounters, Pair, node};
use core::ffi::c_void;
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;
use packet::BURST;
use runtime::Worker;
use std::rc::Rc;

/// Protocol of all rules and packets.
const UDP: u8 = 17;

/// `struct rule` of firewall.c.
#[repr(C)]
pub(crate) struct CRule {
    /// Time to live, protocol, TCP flags and kind, from the lowest byte.
    meta: u32,
    meta_mask: u32,
    /// Addresses and masks in network byte order.
    src: u32,
    src_mask: u32,
    dst: u32,
    dst_mask: u32,
    first: u32,
    span: u32,
    drop: u32,
    src_len: u8,
    dst_len: u8,
    reserved: u16,
}

unsafe extern "C" {
    fn native_firewall_new(rules: *const CRule, n: u32, drop_by_default: i32, acl: i32) -> *mut c_void;
    fn native_firewall_free(firewall: *mut c_void);
    fn native_firewall_counts(firewall: *mut c_void) -> *mut u64;
    fn native_firewall_classify(firewall: *mut c_void, from: *const *const u8, found: *mut u32, n: u32);
}

impl CRule {
    /// Returns a rule without TCP flags, ICMP types and fragments.
    pub(crate) fn plain(
        src: (u32, u8),
        dst: (u32, u8),
        protocol: Option<u8>,
        sport: (u16, u16),
        dport: (u16, u16),
    ) -> CRule {
        let both = |sport: u16, dport: u16| u32::from(dport) << 16 | u32::from(sport);
        CRule {
            meta: u32::from(protocol.unwrap_or(0)) << 8,
            meta_mask: protocol.map_or(0, |_| 0xff << 8),
            src: src.0.to_be(),
            src_mask: mask(src.1).to_be(),
            dst: dst.0.to_be(),
            dst_mask: mask(dst.1).to_be(),
            first: both(sport.0, dport.0),
            span: both(sport.1 - sport.0, dport.1 - dport.0),
            drop: 0,
            src_len: src.1,
            dst_len: dst.1,
            reserved: 0,
        }
    }
}

/// `rte_acl` without packet processing.
pub(crate) struct Acl(Native);

impl Acl {
    pub(crate) fn new(rules: Vec<CRule>) -> anyhow::Result<Acl> {
        Native::of(rules, true).map(Acl)
    }

    /// Returns the rule of each packet, whose bytes start at the protocol, or `u32::MAX`.
    pub(crate) fn classify(&self, packets: &[[u8; 16]; BURST]) -> [u32; BURST] {
        let from = packets.each_ref().map(|bytes| bytes.as_ptr());
        let mut found = [0; BURST];
        // SAFETY: a burst of packets, of which rte_acl reads fifteen bytes, and as many results.
        unsafe { native_firewall_classify(self.0.raw, from.as_ptr(), found.as_mut_ptr(), BURST as u32) };
        // rules are numbered from 1
        found.map(|rule| rule.wrapping_sub(1))
    }
}

/// A rule for UDP between two networks.
struct Rule {
    src: (u32, u8),
    dst: (u32, u8),
    dport: RangeInclusive<u16>,
}

impl Rule {
    fn text(&self) -> String {
        let net = |(address, len): (u32, u8)| format!("{}/{len}", Ipv4Addr::from_bits(address));
        let ports = match (*self.dport.start(), *self.dport.end()) {
            (0, u16::MAX) => String::new(),
            (from, to) => format!(" dport {from}-{to}"),
        };
        format!("accept proto udp src {} dst {}{ports}", net(self.src), net(self.dst))
    }

    fn compiled(&self) -> CRule {
        let (from, to) = (u32::from(*self.dport.start()), u32::from(*self.dport.end()));
        CRule {
            meta: u32::from(UDP) << 8,
            meta_mask: 0xff << 8,
            src: self.src.0.to_be(),
            src_mask: mask(self.src.1).to_be(),
            dst: self.dst.0.to_be(),
            dst_mask: mask(self.dst.1).to_be(),
            first: from << 16,
            span: (to - from) << 16 | 0xffff,
            drop: 0,
            src_len: self.src.1,
            dst_len: self.dst.1,
            reserved: 0,
        }
    }
}

/// Rules that accept packets, as the default does.
pub(crate) struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Returns `n` random rules: networks of /8 to /24, half of them with one destination port or a range of a
    /// thousand.
    pub(crate) fn random(n: usize) -> Rules {
        let mut random = Random(0x5eed_f11e + n as u64);
        let rule = |_| {
            let mut net = || {
                let len = 8 + (random.next() % 17) as u8;
                (random.next() & mask(len), len)
            };
            let (src, dst) = (net(), net());
            let dport = match random.next() % 4 {
                0 | 1 => 0..=u16::MAX,
                kind => {
                    let from = (random.next() % 60_000) as u16;
                    from..=from + if kind == 2 { 0 } else { 1000 }
                }
            };
            Rule { src, dst, dport }
        };
        Rules { rules: (0..n).map(rule).collect() }
    }

    pub(crate) fn name(&self) -> String {
        format!("firewall {} rules", self.rules.len())
    }

    /// Returns `n` packets, half of which match a random rule.
    pub(crate) fn frames(&self, n: usize) -> Vec<Vec<u8>> {
        let mut random = Random(0xf4a3_e5ed);
        let frame = |_| {
            let (mut src, mut dst) = (random.next(), random.next());
            let (sport, mut dport) = (random.next() as u16, random.next() as u16);
            if random.next().is_multiple_of(2) {
                let rule = &self.rules[random.next() as usize % self.rules.len()];
                src = rule.src.0 | src & !mask(rule.src.1);
                dst = rule.dst.0 | dst & !mask(rule.dst.1);
                let (from, to) = (u32::from(*rule.dport.start()), u32::from(*rule.dport.end()));
                dport = (from + u32::from(dport) % (to - from + 1)) as u16;
            }
            packet_of(src, dst, sport, dport)
        };
        (0..n).map(frame).collect()
    }

    /// Returns the firewall with these rules; in C, ten rules are compared by AVX-512 and a thousand by rte_acl.
    pub(crate) fn pair(&self) -> anyhow::Result<(Pair, Rc<Native>)> {
        let acl = self.rules.len() > 64;
        let native = Rc::new(Native::new(&self.rules, acl)?);
        let texts: Vec<_> = self.rules.iter().map(Rule::text).collect();
        let settings = format!("default = \"accept\"\nrules = {texts:?}");
        let nodes = Box::new(move || vec![node("firewall", &settings)]);
        let function = if acl { fixture::native_firewall_acl } else { fixture::native_firewall } as CLoop;
        let pair = Pair { counters: Some(native.clone()), ..Pair::new(&self.name(), nodes, function) };
        Ok((pair, native))
    }
}

/// A firewall in C with its rules.
pub(crate) struct Native {
    raw: *mut c_void,
    rules: Vec<CRule>,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: created by native_firewall_new and freed once.
        unsafe { native_firewall_free(self.raw) }
    }
}

impl Native {
    fn new(rules: &[Rule], acl: bool) -> anyhow::Result<Native> {
        Native::of(rules.iter().map(Rule::compiled).collect(), acl)
    }

    fn of(rules: Vec<CRule>, acl: bool) -> anyhow::Result<Native> {
        // SAFETY: an array of that length, which lives as long as the firewall.
        let raw = unsafe { native_firewall_new(rules.as_ptr(), rules.len() as u32, 0, i32::from(acl)) };
        anyhow::ensure!(!raw.is_null(), "rte_acl rejects the rules");
        Ok(Native { raw, rules })
    }

    pub(crate) fn state(&self) -> *mut c_void {
        self.raw
    }

    /// Returns the counters: first that of the default, then those of the rules.
    #[expect(clippy::mut_from_ref, reason = "C owns them, and does not run while they are borrowed")]
    fn counts(&self) -> &mut [u64] {
        // SAFETY: as many counters as rules plus one, and one thread.
        unsafe { core::slice::from_raw_parts_mut(native_firewall_counts(self.raw), self.rules.len() + 1) }
    }
}

impl CompareCounters for Native {
    fn reset(&self) {
        self.counts().fill(0);
    }

    fn compare(&self, worker: &mut Worker) -> anyhow::Result<()> {
        let (_, stats) = worker.graph().stats().next().expect("one node");
        // those of live changes are not of a rule
        let is_of_rule = |name: &str| !["rules_changed", "rules_rejected"].contains(&name);
        let rules = stats.counters().into_iter().filter(|(name, _)| is_of_rule(name));
        let mut ours: Vec<u64> = rules.map(|(_, count)| count.get()).collect();
        // the counter of the default is the last one
        ours.rotate_right(1);
        let baseline = self.counts();
        let hits: u64 = baseline[1..].iter().sum();
        anyhow::ensure!(ours == *baseline, "counters of rules differ: {ours:?} in Bondstone, {baseline:?} in C");
        anyhow::ensure!(
            hits > 0 && baseline[0] > 0,
            "too few packets matched: {hits} by rules, {} by default",
            baseline[0]
        );
        Ok(())
    }
}
