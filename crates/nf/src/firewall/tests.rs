//! Rules, compared with a linear scan.

mod classbench;
mod live;
mod model;
mod saved;
mod sets;
mod tracked;

use crate::Firewall;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::Harness;
use wire::flow::FiveTuple;
use wire::{IpProtocol, TcpFlags, build, icmpv4};

fn firewall(rules: &[&str], more: &str) -> Harness {
    Harness::new::<Firewall>(&format!("rules = {rules:?}\n{more}"))
}

fn udp(src: [u8; 4], dst: [u8; 4], port: u16) -> Vec<u8> {
    build::udp4(src, dst, 5000, port).pad_to(60).to_vec()
}

fn tcp(flags: TcpFlags) -> Vec<u8> {
    build::tcp4([10, 0, 0, 1], [192, 0, 2, 1], 5000, 80).flags(flags).pad_to(60).to_vec()
}

#[test]
fn the_first_match_decides_and_is_counted() {
    let rules = ["drop src 10.1.0.0/16 dport 53", "accept src 10.0.0.0/8 proto udp", "drop src 10.0.0.0/8"];
    let mut f = firewall(&rules, "default = \"drop\"");
    let frames = [
        udp([10, 1, 0, 1], [1, 1, 1, 1], 53),
        udp([10, 1, 0, 1], [1, 1, 1, 1], 54),
        udp([10, 2, 0, 1], [1, 1, 1, 1], 53),
        tcp(TcpFlags::SYN),
        udp([11, 0, 0, 1], [1, 1, 1, 1], 53),
    ];
    assert_eq!(f.feed(&frames), [frames[1].clone(), frames[2].clone()]);
    assert_eq!(f.drops(), [("denied", 2), ("denied_by_default", 1)]);
    let counts: Vec<_> =
        f.counters().into_iter().map(|(name, n)| (name.split(' ').next().unwrap().to_owned(), n)).collect();
    assert_eq!(counts[..4], [("1".into(), 1), ("2".into(), 2), ("3".into(), 1), ("default".into(), 1)]);
}

#[test]
fn matches_flags_icmp_types_vlan_tags_and_both_ip_versions() {
    let mut f = firewall(
        &[
            "drop flags syn,!ack",
            "accept proto tcp",
            "accept proto icmp type 8",
            "accept dst 2001:db8::/32 proto udp dport 53",
        ],
        "",
    );
    assert_eq!(f.feed_one(&tcp(TcpFlags::SYN)), Err("denied"));
    let both = tcp(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(f.feed_one(&both), Ok(both.clone()));
    let echo = build::echo4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec();
    assert_eq!(f.feed_one(&echo), Ok(echo.clone()));
    let other =
        build::icmp4([10, 0, 0, 1], [10, 0, 0, 2], icmpv4::Repr::TimeExceeded { code: 0 }).payload(&[0; 28]).to_vec();
    assert_eq!(f.feed_one(&other), Err("denied_by_default"));
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let v6 = build::udp6(a, b, 1, 53).to_vec();
    assert_eq!(f.feed_one(&v6), Ok(v6.clone()));
    assert_eq!(f.feed_one(&build::udp6(a, b, 1, 54).to_vec()), Err("denied_by_default"));
    let tagged = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).flags(TcpFlags::SYN).vlan(7).to_vec();
    assert_eq!(f.feed_one(&tagged), Err("denied"));
    let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).pad_to(60).to_vec();
    assert_eq!(f.feed_one(&arp), Ok(arp.clone()));
    assert_eq!(firewall(&[], "other = \"drop\"").feed_one(&arp), Err("not_ip"));
    let mut lying = udp([10, 0, 0, 1], [10, 0, 0, 2], 1);
    lying[17] = 0xff;
    assert_eq!(f.feed_one(&lying), Err("malformed_ip"));
}

#[test]
fn drops_fragments_that_could_hide_a_tcp_header() {
    // RFC 1858: a tiny first fragment, and an overlapping one
    let mut f =
        firewall(&["accept proto tcp dport 80", "accept fragment later", "accept proto udp fragment first"], "");
    let fragment = |offset: u16, more: bool, len: usize| {
        build::ipv4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::TCP)
            .fragment(offset, more)
            .payload(&[0; 64][..len])
            .to_vec()
    };
    assert_eq!(f.feed_one(&fragment(0, true, 8)), Err("tiny_fragment"));
    assert_eq!(f.feed_one(&fragment(8, true, 16)), Err("tiny_fragment"));
    assert!(f.feed_one(&fragment(16, false, 16)).is_ok());
    // later fragments have no ports
    assert_eq!(f.feed_one(&fragment(0, true, 24)), Err("denied_by_default"));
    let first = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[0; 8]).fragment(0, true).to_vec();
    assert!(f.feed_one(&first).is_ok());
}

#[test]
fn a_second_fragment_header_is_malformed() {
    // the second header contradicts the first
    let mut f = firewall(&["drop fragment yes"], "default = \"accept\"");
    let packet = || build::udp6([1; 16], [2; 16], 1, 2).payload(&[0; 16]);
    for two in [
        packet().fragment(0, true, 1).fragment(0, false, 2),
        packet().fragment(0, true, 1).extension(IpProtocol::DESTINATION_OPTIONS, &[]).fragment(0, false, 2),
        packet().fragment(0, false, 1).fragment(0, true, 2),
        packet().fragment(0, false, 1).fragment(64, true, 2),
    ] {
        assert_eq!(f.feed_one(&two.to_vec()), Err("malformed_ip"));
    }
    assert_eq!(f.feed_one(&packet().fragment(0, true, 1).to_vec()), Err("denied"));
    assert!(f.feed_one(&packet().fragment(0, false, 1).to_vec()).is_ok());
    // it cannot hide a tiny first TCP fragment either
    let tcp = build::tcp6([1; 16], [2; 16], 1, 2).fragment(0, true, 1).fragment(0, false, 2).to_vec();
    assert_eq!(firewall(&[], "default = \"accept\"").feed_one(&tcp), Err("malformed_ip"));
}

#[test]
fn drops_frames_with_more_than_four_vlan_tags() {
    let mut f = firewall(&[], "default = \"drop\"\nother = \"accept\"");
    let tagged = |tags| {
        let mut frame = udp([10, 0, 0, 1], [1, 1, 1, 1], 53);
        for n in 0..tags {
            frame.splice(12..12, if n % 2 == 0 { [0x81, 0, 0, 5] } else { [0x88, 0xa8, 0, 5] });
        }
        frame
    };
    assert_eq!(f.feed_one(&tagged(4)), Err("denied_by_default"));
    assert_eq!(f.feed_one(&tagged(5)), Err("malformed_ip"));
    assert_eq!(f.feed_one(&tagged(9)), Err("malformed_ip"));
}

#[test]
fn rejects_ipv6_rules_for_extension_headers() {
    for protocol in ["ah", "0", "43", "44", "51", "60", "135"] {
        for more in ["", " src 2001:db8::/32", " dst ::/0"] {
            let e = Harness::try_new::<Firewall>(&format!("rules = [\"drop proto {protocol}{more}\"]")).err();
            let e = e.unwrap_or_else(|| panic!("proto {protocol}{more} is taken")).to_string();
            assert!(e.contains("extension header") && e.contains("src 0.0.0.0/0"), "{e}");
        }
    }
    let mut f = firewall(&["drop src 0.0.0.0/0 proto ah", "drop dst ::/0 proto udp"], "default = \"accept\"");
    let ah4 = build::ipv4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::AH).payload(&[0; 32]).to_vec();
    assert_eq!(f.feed_one(&ah4), Err("denied"));
    // the remedy for IPv6: match the protocol after the extension header
    let ah6 = build::udp6([1; 16], [2; 16], 1, 2).extension(IpProtocol::AH, &[0; 14]).to_vec();
    assert_eq!(f.feed_one(&ah6), Err("denied"));
}

#[test]
fn invalid_rules_are_reported() {
    for (rule, word) in [
        ("allow", "allow"),
        ("accept proto", "proto"),
        ("accept proto tpc", "tpc"),
        ("accept src 10.0.0.0/40", "10.0.0.0/40"),
        ("accept src 10.0.0.0/8 dst 2001:db8::/32", "versions"),
        ("accept sport 9-8", "9-8"),
        ("accept dport 80 type 8", "ICMP"),
        ("accept flags syn,fun", "fun"),
        ("accept proto udp flags syn", "17"),
        ("accept fragment maybe", "maybe"),
        ("accept dport 80 dport 81", "twice"),
    ] {
        let e = Harness::try_new::<Firewall>(&format!("rules = [{rule:?}]")).err().unwrap_or_default().to_string();
        assert!(e.contains(word), "{rule}: {e}");
    }
    assert!(Harness::try_new::<Firewall>("file = \"absent.rules\"").unwrap_err().to_string().contains("absent.rules"));
}

/// A rule as text and as a predicate.
#[derive(Clone, Debug)]
struct ModelRule {
    accept: bool,
    src: Option<(Ipv4Addr, u8)>,
    dst: Option<(Ipv4Addr, u8)>,
    protocol: Option<u8>,
    dport: Option<(u16, u16)>,
}

impl ModelRule {
    fn text(&self) -> String {
        let mut text = if self.accept { "accept" } else { "drop" }.to_owned();
        let net = |(a, l): &(Ipv4Addr, u8)| ipnet::Ipv4Net::new(*a, *l).unwrap().trunc().to_string();
        text += &self.src.iter().map(|n| format!(" src {}", net(n))).collect::<String>();
        text += &self.dst.iter().map(|n| format!(" dst {}", net(n))).collect::<String>();
        text += &self.protocol.iter().map(|p| format!(" proto {p}")).collect::<String>();
        text + &self.dport.iter().map(|(a, b)| format!(" dport {a}-{b}")).collect::<String>()
    }

    fn matches(&self, t: &FiveTuple) -> bool {
        let within = |net: Option<(Ipv4Addr, u8)>, address: std::net::IpAddr| {
            net.is_none_or(|(a, l)| ipnet::IpNet::from(ipnet::Ipv4Net::new(a, l).unwrap()).contains(&address))
        };
        within(self.src, t.src)
            && within(self.dst, t.dst)
            && self.protocol.is_none_or(|p| p == t.protocol.0)
            && self.dport.is_none_or(|(a, b)| matches!(t.protocol.0, 6 | 17) && (a..=b).contains(&t.dst_port))
    }
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    // few bits, so that prefixes match
    (0..4u8, 0..4u8).prop_map(|(a, b)| [10, a, 0, b].into())
}

fn rule() -> impl Strategy<Value = ModelRule> {
    let net = || prop::option::of((address(), prop::sample::select(vec![0u8, 8, 16, 31, 32])));
    let ports = prop::option::of((0..4u16, 0..4u16).prop_map(|(a, b)| (a.min(b), a.max(b))));
    (any::<bool>(), net(), net(), prop::option::of(prop::sample::select(vec![6u8, 17])), ports)
        .prop_map(|(accept, src, dst, protocol, dport)| ModelRule { accept, src, dst, protocol, dport })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn decides_as_a_linear_scan(
        rules in prop::collection::vec(rule(), 0..40),
        packets in prop::collection::vec((address(), address(), any::<bool>(), 0..4u16), 1..100),
        accept: bool,
    ) {
        let texts: Vec<_> = rules.iter().map(ModelRule::text).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut f = firewall(&texts, if accept { "default = \"accept\"" } else { "" });
        let frames: Vec<_> = packets
            .iter()
            .map(|(src, dst, udp, port)| match udp {
                true => build::udp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
                false => build::tcp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
            })
            .collect();
        let passes = |frame: &Vec<u8>| {
            let tuple = FiveTuple::of_frame(frame).unwrap();
            rules.iter().find(|r| r.matches(&tuple)).map_or(accept, |r| r.accept)
        };
        let expected: Vec<_> = frames.iter().filter(|f| passes(f)).cloned().collect();
        prop_assert_eq!(f.feed(&frames), expected);
    }
}
