//! What every router does to a packet's lifetime.

use core::hint::cold_path;
use diagnostics::Diagnostic;
use graph::{BuildContext, Layered, Nf, Node, On, Operator, Over, Raw, Stack, Start, View, frame};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::{Ethernet, Ipv4, Ipv6, Vlan};

/// `ttl`: takes one off the time to live (IPv4, RFC 1812 §5.3.1) or hop limit (IPv6, RFC 8200 §3).
pub struct Ttl;

/// `ttl` has no settings.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {}

impl Nf for Ttl {
    type Settings = Settings;
    const KIND: &'static str = "ttl";
    const ABOUT: &'static str = "Takes one off the time to live of IPv4 and the hop limit of IPv6 packets, plain or in one VLAN tag, and drops those \
         that have none left; other frames pass.";

    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(age(frame().parse::<Ethernet>()).compose())
    }
}

/// Adds to a chain of operators what `ttl` does.
pub fn age<U>(up: U) -> impl Operator<Output = Over<Ethernet, Raw>>
where
    U: Operator<Output = Over<Ethernet, Raw>>,
{
    // closures written here would carry the type of `up` in theirs, and double it with each call
    up.group_by(kind, |start| (v4(), v6(), tagged(), start))
}

#[inline(always)]
fn kind(ethernet: &View<'_, Over<Ethernet, Raw>>) -> usize {
    if ethernet.announces::<Ipv4>() {
        return 0;
    }
    // the commonest type first, without a search among the others
    cold_path();
    match () {
        () if ethernet.announces::<Ipv6>() => 1,
        () if ethernet.announces::<Vlan>() => 2,
        () => 3,
    }
}

fn tagged() -> impl Operator<Over<Ethernet, Raw>> {
    start::<Over<Ethernet, Raw>>().parse::<Vlan>().group_by(
        |vlan| match () {
            () if vlan.announces::<Ipv4>() => 0,
            () if vlan.announces::<Ipv6>() => 1,
            () => 2,
        },
        |start| (v4(), v6(), start),
    )
}

/// An IPv4 packet behind the headers `S`.
fn v4<S: Layered>() -> impl Operator<S>
where
    Ipv4: On<S>,
{
    start::<S>()
        .parse::<Ipv4>()
        .filter("ttl_expired", |ip| ip.header().ttl() > 1)
        .transform(|ip| ip.header_mut().decrement_ttl())
}

/// An IPv6 packet behind the headers `S`.
fn v6<S: Layered>() -> impl Operator<S>
where
    Ipv6: On<S>,
{
    start::<S>().parse::<Ipv6>().filter("ttl_expired", |ip| ip.header().hop_limit() > 1).transform(|ip| {
        let limit = ip.header().hop_limit();
        ip.header_mut().set_hop_limit(limit - 1);
    })
}

fn start<S: Stack>() -> Start<S> {
    Start::default()
}

#[cfg(test)]
mod tests {
    use super::Ttl;
    use proptest::prelude::*;
    use testkit::Bench;
    use wire::checksum;

    fn v4(ttl: u8, options: usize, id: u16) -> Vec<u8> {
        let mut f = vec![2; 12];
        f.extend([
            8,
            0,
            0x45 + options as u8,
            0,
            0,
            (20 + 4 * options) as u8,
            (id >> 8) as u8,
            id as u8,
            0,
            0,
            ttl,
            17,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
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
        fn takes_one_off_and_keeps_the_checksum_right(ttl: u8, options in 0..=10usize, id: u16, tag: bool) {
            let at = if tag { 18 } else { 14 };
            let frame = if tag { tagged(v4(ttl, options, id)) } else { v4(ttl, options, id) };
            let mut nf = Bench::of::<Ttl>("");
            if ttl <= 1 {
                prop_assert_eq!(nf.one(&frame), Err("ttl_expired"));
            } else {
                let out = nf.one(&frame).unwrap();
                let mut expected = frame.clone();
                expected[at + 8] -= 1;
                expected[at + 10..at + 12].fill(0);
                let sum = checksum::of(&expected[at..at + 20 + 4 * options]);
                expected[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
                prop_assert_eq!(out, expected);
            }
        }

        #[test]
        fn hop_limit_likewise(limit: u8, tag: bool) {
            let frame = if tag { tagged(v6(limit)) } else { v6(limit) };
            let mut nf = Bench::of::<Ttl>("");
            if limit <= 1 {
                prop_assert_eq!(nf.one(&frame), Err("ttl_expired"));
            } else {
                let mut expected = frame.clone();
                expected[if tag { 25 } else { 21 }] -= 1;
                prop_assert_eq!(nf.one(&frame).unwrap(), expected);
            }
        }
    }

    #[test]
    fn what_is_not_ip_passes_and_what_lies_is_dropped() {
        let mut nf = Bench::of::<Ttl>("");
        let mut arp = vec![2; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(nf.one(&arp), Ok(arp));
        let mut short = v4(9, 0, 1);
        short.truncate(33);
        assert_eq!(nf.one(&short), Err("malformed_ipv4"));
        let mut lying = v4(9, 0, 1);
        lying[17] = 200;
        assert_eq!(nf.one(&lying), Err("malformed_ipv4"));
        assert_eq!(nf.one(&[0; 5]), Err("malformed_ethernet"));
    }
}
