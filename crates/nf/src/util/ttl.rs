//! Decrementing the time to live.

use core::hint::cold_path;
use diagnostics::Diagnostic;
use graph::{BuildContext, HeaderStack, Layer, NextHeader, Nf, Node, NonEmptyStack, Operator, Raw, Start, View, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::{Ethernet, Ipv4, Ipv6, Vlan};

/// `ttl`: decrements the time to live (IPv4, RFC 1812 §5.3.1) or hop limit (IPv6, RFC 8200 §3).
pub struct Ttl;

/// `ttl` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

impl Nf for Ttl {
    type Settings = Settings;
    const KIND: &'static str = "ttl";
    const ABOUT: &'static str = "Decrements the time to live of IPv4 and the hop limit of IPv6 packets, untagged or \
         with one VLAN tag, and drops expired packets; other frames pass.";

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(decrement_ttl(frame().parse::<Ethernet>()).compose())
    }
}

/// Appends the operators of `ttl` to a chain of operators.
pub fn decrement_ttl<U>(up: U) -> impl Operator<Output = Layer<Ethernet, Raw>>
where
    U: Operator<Output = Layer<Ethernet, Raw>>,
{
    // closures written here would contain the type of `up` in theirs and double its length with each call
    up.group_by(branch_of, |start| (v4(), v6(), tagged(), start))
}

/// Returns the branch of a frame: IPv4, IPv6, VLAN, other.
#[inline(always)]
fn branch_of(ethernet: &View<'_, Layer<Ethernet, Raw>>) -> usize {
    if ethernet.is_next::<Ipv4>() {
        return 0;
    }
    // the most frequent type is tested first
    cold_path();
    match () {
        () if ethernet.is_next::<Ipv6>() => 1,
        () if ethernet.is_next::<Vlan>() => 2,
        () => 3,
    }
}

fn tagged() -> impl Operator<Layer<Ethernet, Raw>> {
    start::<Layer<Ethernet, Raw>>().parse::<Vlan>().group_by(
        |vlan| match () {
            () if vlan.is_next::<Ipv4>() => 0,
            () if vlan.is_next::<Ipv6>() => 1,
            () => 2,
        },
        |start| (v4(), v6(), start),
    )
}

/// Processes an IPv4 packet after the headers `S`.
fn v4<S: NonEmptyStack>() -> impl Operator<S>
where
    Ipv4: NextHeader<S>,
{
    start::<S>()
        .parse::<Ipv4>()
        .filter("ttl_expired", |ip| ip.header().ttl() > 1)
        .transform(|ip| ip.header_mut().decrement_ttl())
}

/// Processes an IPv6 packet after the headers `S`.
fn v6<S: NonEmptyStack>() -> impl Operator<S>
where
    Ipv6: NextHeader<S>,
{
    start::<S>().parse::<Ipv6>().filter("ttl_expired", |ip| ip.header().hop_limit() > 1).transform(|ip| {
        let limit = ip.header().hop_limit();
        ip.header_mut().set_hop_limit(limit - 1);
    })
}

fn start<S: HeaderStack>() -> Start<S> {
    Start::default()
}

#[cfg(test)]
mod tests {
    use super::Ttl;
    use proptest::prelude::*;
    use testkit::Harness;
    use wire::checksum;

    fn v4(ttl: u8, options: usize, id: u16) -> Vec<u8> {
        let mut f = vec![2; 12];
        let [id_high, id_low] = id.to_be_bytes();
        f.extend([8, 0, 0x45 + options as u8, 0, 0, (20 + 4 * options) as u8, id_high, id_low, 0, 0, ttl, 17, 0, 0]);
        f.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        f.resize(34 + 4 * options, 1);
        let sum = checksum::of(&f[14..]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f.resize(60.max(f.len()), 0);
        f
    }

    fn v6(limit: u8) -> Vec<u8> {
        let mut f = vec![2; 12];
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 6, 17, limit]);
        f.resize(60, 0);
        f
    }

    fn tagged(mut f: Vec<u8>) -> Vec<u8> {
        f.splice(12..12, [0x81, 0, 0, 5]);
        f
    }

    proptest! {
        #[test]
        fn decrements_ttl_and_updates_the_checksum(ttl: u8, options in 0..=10usize, id: u16, tag: bool) {
            let at = if tag { 18 } else { 14 };
            let frame = if tag { tagged(v4(ttl, options, id)) } else { v4(ttl, options, id) };
            let mut nf = Harness::new::<Ttl>("");
            if ttl <= 1 {
                prop_assert_eq!(nf.feed_one(&frame), Err("ttl_expired"));
            } else {
                let out = nf.feed_one(&frame).unwrap();
                let mut expected = frame.clone();
                expected[at + 8] -= 1;
                expected[at + 10..at + 12].fill(0);
                let sum = checksum::of(&expected[at..at + 20 + 4 * options]);
                expected[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
                prop_assert_eq!(out, expected);
            }
        }

        #[test]
        fn decrements_hop_limit(limit: u8, tag: bool) {
            let frame = if tag { tagged(v6(limit)) } else { v6(limit) };
            let mut nf = Harness::new::<Ttl>("");
            if limit <= 1 {
                prop_assert_eq!(nf.feed_one(&frame), Err("ttl_expired"));
            } else {
                let mut expected = frame.clone();
                expected[if tag { 25 } else { 21 }] -= 1;
                prop_assert_eq!(nf.feed_one(&frame).unwrap(), expected);
            }
        }
    }

    #[test]
    fn passes_non_ip_and_drops_malformed_packets() {
        let mut nf = Harness::new::<Ttl>("");
        let mut arp = vec![2; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(nf.feed_one(&arp), Ok(arp));
        let mut short = v4(9, 0, 1);
        short.truncate(33);
        assert_eq!(nf.feed_one(&short), Err("malformed_ipv4"));
        let mut too_long = v4(9, 0, 1);
        too_long[17] = 200;
        assert_eq!(nf.feed_one(&too_long), Err("malformed_ipv4"));
        assert_eq!(nf.feed_one(&[0; 5]), Err("malformed_ethernet"));
    }
}
