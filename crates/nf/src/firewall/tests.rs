//! Rules against a reading of them that knows no table.

mod classbench;
mod live;
mod model;
mod sets;
mod tracked;

use crate::Firewall;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::Bench;
use wire::flow::FiveTuple;
use wire::{IpProtocol, TcpFlags, build, icmpv4};

fn firewall(rules: &[&str], more: &str) -> Bench {
    Bench::of::<Firewall>(&format!("rules = {rules:?}\n{more}"))
}

fn udp(src: [u8; 4], dst: [u8; 4], port: u16) -> Vec<u8> {
    build::udp4(src, dst, 5000, port).pad_to(60).to_vec()
}

fn tcp(flags: TcpFlags) -> Vec<u8> {
    build::tcp4([10, 0, 0, 1], [192, 0, 2, 1], 5000, 80).flags(flags).pad_to(60).to_vec()
}

#[test]
fn the_first_match_wins_and_is_counted() {
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
    assert_eq!(f.drops(), [("refused", 2), ("refused_by_default", 1)]);
    let counts: Vec<_> =
        f.counters().into_iter().map(|(name, n)| (name.split(' ').next().unwrap().to_owned(), n)).collect();
    assert_eq!(counts, [("1".into(), 1), ("2".into(), 2), ("3".into(), 1), ("default".into(), 1)]);
}

#[test]
fn flags_types_tags_and_versions() {
    let mut f = firewall(
        &[
            "drop flags syn,!ack",
            "accept proto tcp",
            "accept proto icmp type 8",
            "accept dst 2001:db8::/32 proto udp dport 53",
        ],
        "",
    );
    assert_eq!(f.one(&tcp(TcpFlags::SYN)), Err("refused"));
    let both = tcp(TcpFlags::SYN | TcpFlags::ACK);
    assert_eq!(f.one(&both), Ok(both.clone()));
    let echo = build::echo4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec();
    assert_eq!(f.one(&echo), Ok(echo.clone()));
    let other =
        build::icmp4([10, 0, 0, 1], [10, 0, 0, 2], icmpv4::Repr::TimeExceeded { code: 0 }).payload(&[0; 28]).to_vec();
    assert_eq!(f.one(&other), Err("refused_by_default"));
    let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let v6 = build::udp6(a, b, 1, 53).to_vec();
    assert_eq!(f.one(&v6), Ok(v6.clone()));
    assert_eq!(f.one(&build::udp6(a, b, 1, 54).to_vec()), Err("refused_by_default"));
    let tagged = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).flags(TcpFlags::SYN).vlan(7).to_vec();
    assert_eq!(f.one(&tagged), Err("refused"));
    let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).pad_to(60).to_vec();
    assert_eq!(f.one(&arp), Ok(arp.clone()));
    assert_eq!(firewall(&[], "other = \"drop\"").one(&arp), Err("not_ip"));
    let mut lying = udp([10, 0, 0, 1], [10, 0, 0, 2], 1);
    lying[17] = 0xff;
    assert_eq!(f.one(&lying), Err("malformed_ip"));
}

#[test]
fn fragments_cannot_hide_a_tcp_header() {
    // RFC 1858: too small a first fragment, and one that would be laid over it
    let mut f =
        firewall(&["accept proto tcp dport 80", "accept fragment later", "accept proto udp fragment first"], "");
    let fragment = |offset: u16, more: bool, len: usize| {
        build::ipv4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::TCP)
            .fragment(offset, more)
            .payload(&[0; 64][..len])
            .to_vec()
    };
    assert_eq!(f.one(&fragment(0, true, 8)), Err("tiny_fragment"));
    assert_eq!(f.one(&fragment(8, true, 16)), Err("tiny_fragment"));
    assert!(f.one(&fragment(16, false, 16)).is_ok());
    // its ports are 0
    assert_eq!(f.one(&fragment(0, true, 24)), Err("refused_by_default"));
    let first = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[0; 8]).fragment(0, true).to_vec();
    assert!(f.one(&first).is_ok());
}

#[test]
fn a_second_fragment_header_is_malformed() {
    // the second says that the packet is whole, and the first that it is not
    let mut f = firewall(&["drop fragment yes"], "default = \"accept\"");
    let packet = || build::udp6([1; 16], [2; 16], 1, 2).payload(&[0; 16]);
    for two in [
        packet().fragment(0, true, 1).fragment(0, false, 2),
        packet().fragment(0, true, 1).extension(IpProtocol::DESTINATION_OPTIONS, &[]).fragment(0, false, 2),
        packet().fragment(0, false, 1).fragment(0, true, 2),
        packet().fragment(0, false, 1).fragment(64, true, 2),
    ] {
        assert_eq!(f.one(&two.to_vec()), Err("malformed_ip"));
    }
    assert_eq!(f.one(&packet().fragment(0, true, 1).to_vec()), Err("refused"));
    assert!(f.one(&packet().fragment(0, false, 1).to_vec()).is_ok());
    // nor does it hide a tiny first fragment of TCP
    let tcp = build::tcp6([1; 16], [2; 16], 1, 2).fragment(0, true, 1).fragment(0, false, 2).to_vec();
    assert_eq!(firewall(&[], "default = \"accept\"").one(&tcp), Err("malformed_ip"));
}

#[test]
fn tags_beyond_the_fourth_hide_nothing() {
    let mut f = firewall(&[], "default = \"drop\"\nother = \"accept\"");
    let tagged = |tags| {
        let mut frame = udp([10, 0, 0, 1], [1, 1, 1, 1], 53);
        for n in 0..tags {
            frame.splice(12..12, if n % 2 == 0 { [0x81, 0, 0, 5] } else { [0x88, 0xa8, 0, 5] });
        }
        frame
    };
    assert_eq!(f.one(&tagged(4)), Err("refused_by_default"));
    assert_eq!(f.one(&tagged(5)), Err("malformed_ip"));
    assert_eq!(f.one(&tagged(9)), Err("malformed_ip"));
}

#[test]
fn extension_headers_are_no_protocol_of_ipv6() {
    for protocol in ["ah", "0", "43", "44", "51", "60", "135"] {
        for more in ["", " src 2001:db8::/32", " dst ::/0"] {
            let e = Bench::try_of::<Firewall>(&format!("rules = [\"drop proto {protocol}{more}\"]")).err();
            let e = e.unwrap_or_else(|| panic!("proto {protocol}{more} is taken")).to_string();
            assert!(e.contains("extension header") && e.contains("src 0.0.0.0/0"), "{e}");
        }
    }
    let mut f = firewall(&["drop src 0.0.0.0/0 proto ah", "drop dst ::/0 proto udp"], "default = \"accept\"");
    let ah4 = build::ipv4([10, 0, 0, 1], [10, 0, 0, 2], IpProtocol::AH).payload(&[0; 32]).to_vec();
    assert_eq!(f.one(&ah4), Err("refused"));
    // the remedy for IPv6: the protocol behind it
    let ah6 = build::udp6([1; 16], [2; 16], 1, 2).extension(IpProtocol::AH, &[0; 14]).to_vec();
    assert_eq!(f.one(&ah6), Err("refused"));
}

#[test]
fn wrong_rules_are_named() {
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
        let e = Bench::try_of::<Firewall>(&format!("rules = [{rule:?}]")).err().unwrap_or_default().to_string();
        assert!(e.contains(word), "{rule}: {e}");
    }
    assert!(Bench::try_of::<Firewall>("file = \"absent.rules\"").unwrap_err().to_string().contains("absent.rules"));
}

/// A rule as written, and as a function of a five-tuple.
#[derive(Clone, Debug)]
struct Simple {
    accept: bool,
    src: Option<(Ipv4Addr, u8)>,
    dst: Option<(Ipv4Addr, u8)>,
    protocol: Option<u8>,
    dport: Option<(u16, u16)>,
}

impl Simple {
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
    // few bits, so that prefixes are met
    (0..4u8, 0..4u8).prop_map(|(a, b)| [10, a, 0, b].into())
}

fn rule() -> impl Strategy<Value = Simple> {
    let net = || prop::option::of((address(), prop::sample::select(vec![0u8, 8, 16, 31, 32])));
    let ports = prop::option::of((0..4u16, 0..4u16).prop_map(|(a, b)| (a.min(b), a.max(b))));
    (any::<bool>(), net(), net(), prop::option::of(prop::sample::select(vec![6u8, 17])), ports)
        .prop_map(|(accept, src, dst, protocol, dport)| Simple { accept, src, dst, protocol, dport })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn decides_as_a_linear_scan(
        rules in prop::collection::vec(rule(), 0..40),
        packets in prop::collection::vec((address(), address(), any::<bool>(), 0..4u16), 1..100),
        accept: bool,
    ) {
        let texts: Vec<_> = rules.iter().map(Simple::text).collect();
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
