//! Random packets, parsed by etherparse as an independent implementation.

use etherparse::{LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use std::collections::BTreeMap;
use testkit::packets;
use testkit::proptest::prelude::*;
use testkit::proptest::strategy::ValueTree;
use testkit::proptest::test_runner::TestRunner;

/// Returns the properties of a valid frame after checking all lengths and checksums.
fn properties(frame: &[u8]) -> Result<Vec<&'static str>, String> {
    let sliced = SlicedPacket::from_ethernet(frame).map_err(|e| format!("{e}"))?;
    let mut found = vec![["untagged", "tagged", "tagged twice"][sliced.link_exts.len()]];
    if sliced.link_exts.is_empty() {
        found.push(if frame.len() == 60 { "padded" } else { "bare" });
    }
    let Some(net) = &sliced.net else { return Err("unknown protocol".into()) };
    match net {
        NetSlice::Ipv4(ip) => {
            found.push("ipv4");
            let header = ip.header();
            if header.header_checksum() != header.to_header().calc_header_checksum() {
                return Err("wrong header checksum".into());
            }
            if !header.options().is_empty() {
                found.push("options");
            }
            if header.is_fragmenting_payload() {
                found.push(if header.more_fragments() { "first fragment" } else { "last fragment" });
                return Ok(found);
            }
        }
        NetSlice::Ipv6(ip) => {
            found.push("ipv6");
            if !ip.extensions().is_empty() {
                found.push("extensions");
            }
            if ip.is_payload_fragmented() {
                found.push("fragment");
                return Ok(found);
            }
        }
        NetSlice::Arp(_) => {
            found.push("arp");
            return Ok(found);
        }
    }
    let check = |actual: u16, computed: Result<u16, String>| match computed? {
        _ if actual == 0 => Ok(()),
        computed if actual == computed => Ok(()),
        computed => Err(format!("checksum {actual:04x}, not {computed:04x}")),
    };
    match (&sliced.transport, net) {
        (Some(TransportSlice::Udp(udp)), net) => {
            found.push("udp");
            let header = udp.to_header();
            let computed = match net {
                NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
                NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
                NetSlice::Arp(_) => unreachable!("ARP has no payload"),
            };
            check(udp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        (Some(TransportSlice::Tcp(tcp)), net) => {
            found.push("tcp");
            if tcp.options_iterator().any(|option| option.is_err()) {
                found.push("tcp options unknown to etherparse");
            }
            let computed = match net {
                NetSlice::Ipv4(ip) => tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()),
                NetSlice::Ipv6(ip) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
                NetSlice::Arp(_) => unreachable!("ARP has no payload"),
            };
            check(tcp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        (Some(TransportSlice::Icmpv4(icmp)), _) => {
            found.push("icmpv4");
            check(icmp.checksum(), Ok(icmp.icmp_type().calc_checksum(icmp.payload())))?;
        }
        (Some(TransportSlice::Icmpv6(icmp)), NetSlice::Ipv6(ip)) => {
            found.push("icmpv6");
            let (src, dst) = (ip.header().source(), ip.header().destination());
            let computed = icmp.icmp_type().calc_checksum(src, dst, icmp.payload());
            check(icmp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        _ => found.push("another protocol"),
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn well_formed_frames_are_valid(frame in packets::well_formed()) {
        if let Err(error) = properties(&frame) {
            prop_assert!(false, "{}: {:02x?}", error, frame);
        }
    }

    #[test]
    fn strategies_yield_their_protocols(
        udp4 in packets::udp4(), tcp4 in packets::tcp4(), icmp4 in packets::icmp4(),
        udp6 in packets::udp6(), tcp6 in packets::tcp6(), icmp6 in packets::icmp6(), arp in packets::arp(),
    ) {
        let names = [
            (udp4, "ipv4", "udp"), (tcp4, "ipv4", "tcp"), (icmp4, "ipv4", "icmpv4"),
            (udp6, "ipv6", "udp"), (tcp6, "ipv6", "tcp"), (icmp6, "ipv6", "icmpv6"),
        ];
        for (frame, network, transport) in names {
            let found = properties(&frame).unwrap();
            prop_assert!(frame.len() >= 60 && found[0] == "untagged", "{:?}", found);
            prop_assert!(found.contains(&network) && found.contains(&transport), "{:?}", found);
        }
        prop_assert!(properties(&arp).unwrap().contains(&"arp"));
    }
}

/// Returns frames of a strategy, the same in every run.
fn sample(strategy: impl Strategy<Value = Vec<u8>>, n: usize) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    (0..n).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn well_formed_covers_all_properties() {
    let mut counts = BTreeMap::new();
    for frame in sample(packets::well_formed(), 2000) {
        properties(&frame).unwrap().into_iter().for_each(|property| *counts.entry(property).or_insert(0) += 1);
    }
    for property in [
        "untagged",
        "tagged",
        "tagged twice",
        "padded",
        "bare",
        "arp",
        "ipv4",
        "ipv6",
        "options",
        "first fragment",
        "last fragment",
        "extensions",
        "fragment",
        "udp",
        "tcp",
        "icmpv4",
        "icmpv6",
        "another protocol",
    ] {
        assert!(counts.get(property).is_some_and(|n| *n >= 20), "{property}: {counts:?}");
    }
}

#[test]
fn most_malformed_frames_are_invalid() {
    let frames = sample(packets::malformed(packets::well_formed()), 2000);
    let invalid = frames.iter().filter(|frame| properties(frame).is_err()).count();
    assert!(invalid > 1000, "{invalid} of {}", frames.len());
    // many of them only after a valid network header
    let deep = |frame: &&Vec<u8>| LaxSlicedPacket::from_ethernet(frame).is_ok_and(|p| p.net.is_some());
    let deep = frames.iter().filter(|frame| properties(frame).is_err()).filter(deep).count();
    assert!(deep > 600, "{deep} of {invalid}");
}
