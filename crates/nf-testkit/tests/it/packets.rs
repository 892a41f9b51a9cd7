//! Random packets against a reading by etherparse, which knows nothing of how they are made.

use etherparse::{LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
use std::collections::BTreeMap;
use testkit::packets;
use testkit::proptest::prelude::*;
use testkit::proptest::strategy::ValueTree;
use testkit::proptest::test_runner::TestRunner;

/// What a well-formed frame holds, after every length and checksum in it was seen to be right.
fn read(frame: &[u8]) -> Result<Vec<&'static str>, String> {
    let sliced = SlicedPacket::from_ethernet(frame).map_err(|e| format!("{e}"))?;
    let mut holds = vec![["untagged", "tagged", "tagged twice"][sliced.link_exts.len()]];
    if sliced.link_exts.is_empty() {
        holds.push(if frame.len() == 60 { "padded" } else { "bare" });
    }
    let Some(net) = &sliced.net else { return Err("nothing is known of it".into()) };
    match net {
        NetSlice::Ipv4(ip) => {
            holds.push("ipv4");
            let header = ip.header();
            if header.header_checksum() != header.to_header().calc_header_checksum() {
                return Err("wrong header checksum".into());
            }
            if !header.options().is_empty() {
                holds.push("options");
            }
            if header.is_fragmenting_payload() {
                holds.push(if header.more_fragments() { "first fragment" } else { "last fragment" });
                return Ok(holds);
            }
        }
        NetSlice::Ipv6(ip) => {
            holds.push("ipv6");
            if !ip.extensions().is_empty() {
                holds.push("extensions");
            }
            if ip.is_payload_fragmented() {
                holds.push("fragment");
                return Ok(holds);
            }
        }
        NetSlice::Arp(_) => {
            holds.push("arp");
            return Ok(holds);
        }
    }
    let right = |said: u16, computed: Result<u16, String>| match computed? {
        _ if said == 0 => Ok(()),
        computed if said == computed => Ok(()),
        computed => Err(format!("checksum {said:04x}, not {computed:04x}")),
    };
    match (&sliced.transport, net) {
        (Some(TransportSlice::Udp(udp)), net) => {
            holds.push("udp");
            let header = udp.to_header();
            let computed = match net {
                NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
                NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
                NetSlice::Arp(_) => unreachable!("it carries nothing"),
            };
            right(udp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        (Some(TransportSlice::Tcp(tcp)), net) => {
            holds.push("tcp");
            if tcp.options_iterator().any(|option| option.is_err()) {
                holds.push("tcp options unknown to etherparse");
            }
            let computed = match net {
                NetSlice::Ipv4(ip) => tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()),
                NetSlice::Ipv6(ip) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
                NetSlice::Arp(_) => unreachable!("it carries nothing"),
            };
            right(tcp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        (Some(TransportSlice::Icmpv4(icmp)), _) => {
            holds.push("icmpv4");
            right(icmp.checksum(), Ok(icmp.icmp_type().calc_checksum(icmp.payload())))?;
        }
        (Some(TransportSlice::Icmpv6(icmp)), NetSlice::Ipv6(ip)) => {
            holds.push("icmpv6");
            let (src, dst) = (ip.header().source(), ip.header().destination());
            let computed = icmp.icmp_type().calc_checksum(src, dst, icmp.payload());
            right(icmp.checksum(), computed.map_err(|e| e.to_string()))?;
        }
        _ => holds.push("another protocol"),
    }
    Ok(holds)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn well_formed_ones_are(frame in packets::well_formed()) {
        if let Err(why) = read(&frame) {
            prop_assert!(false, "{}: {:02x?}", why, frame);
        }
    }

    #[test]
    fn they_are_what_their_names_say(
        udp4 in packets::udp4(), tcp4 in packets::tcp4(), icmp4 in packets::icmp4(),
        udp6 in packets::udp6(), tcp6 in packets::tcp6(), icmp6 in packets::icmp6(), arp in packets::arp(),
    ) {
        let names = [
            (udp4, "ipv4", "udp"), (tcp4, "ipv4", "tcp"), (icmp4, "ipv4", "icmpv4"),
            (udp6, "ipv6", "udp"), (tcp6, "ipv6", "tcp"), (icmp6, "ipv6", "icmpv6"),
        ];
        for (frame, network, transport) in names {
            let holds = read(&frame).unwrap();
            prop_assert!(frame.len() >= 60 && holds[0] == "untagged", "{:?}", holds);
            prop_assert!(holds.contains(&network) && holds.contains(&transport), "{:?}", holds);
        }
        prop_assert!(read(&arp).unwrap().contains(&"arp"));
    }
}

/// Frames of a strategy, the same in every run.
fn many(strategy: impl Strategy<Value = Vec<u8>>, n: usize) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    (0..n).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn everything_promised_comes() {
    let mut seen = BTreeMap::new();
    for frame in many(packets::well_formed(), 2000) {
        read(&frame).unwrap().into_iter().for_each(|what| *seen.entry(what).or_insert(0) += 1);
    }
    for what in [
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
        assert!(seen.get(what).is_some_and(|n| *n >= 20), "{what}: {seen:?}");
    }
}

#[test]
fn most_malformed_ones_are_no_longer_well_formed() {
    let frames = many(packets::malformed(packets::well_formed()), 2000);
    let refused = frames.iter().filter(|frame| read(frame).is_err()).count();
    assert!(refused > 1000, "{refused} of {}", frames.len());
    // many of them far enough in that a careless reader would go on
    let deep = |frame: &&Vec<u8>| LaxSlicedPacket::from_ethernet(frame).is_ok_and(|p| p.net.is_some());
    let deep = frames.iter().filter(|frame| read(frame).is_err()).filter(deep).count();
    assert!(deep > 600, "{deep} of {refused}");
}
