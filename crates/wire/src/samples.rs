//! Valid frames of every kind, for tests.

use crate::build::*;
use crate::tcp::{self, TcpOption};
use crate::{EtherType, IpProtocol, TcpFlags, icmpv4, icmpv6, ipv4};

/// Returns an IPv6 address that ends in `last`.
pub(crate) fn ip6(last: u8) -> [u8; 16] {
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// Two IPv4 and two IPv6 hosts.
pub(crate) const A: [u8; 4] = [10, 0, 0, 1];
pub(crate) const B: [u8; 4] = [192, 168, 1, 2];

/// Returns the one frame of each kind.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let (a6, b6) = (ip6(1), ip6(2));
    let sack = [tcp::SackBlock::new(1, 2), tcp::SackBlock::new(5, 9)];
    let options = [
        TcpOption::Mss(1460),
        TcpOption::WindowScale(7),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 7, echo: 8 },
    ];
    let syn = tcp::options(&options).unwrap();
    let sack = tcp::options(&[TcpOption::Sack(&sack), TcpOption::Unknown { kind: 254, data: &[1, 2] }]).unwrap();
    let route = [ipv4::Ipv4Option::RouterAlert(0), ipv4::Ipv4Option::RecordRoute { pointer: 4, route: &[0; 8] }];
    let route = ipv4::options(&route).unwrap();
    let inner = echo4(A, B, 3, 4).to_vec()[14..].to_vec();
    let inner6 = udp6(a6, b6, 3, 4).to_vec()[14..].to_vec();
    vec![
        udp4(A, B, 1000, 53).payload(b"question").to_vec(),
        udp4(A, B, 1000, 53).vlan(5).payload(b"question").pad_to(60).to_vec(),
        udp4(A, B, 1000, 53).qinq(100).vlan(5).dscp(46).ecn(1).id(7).dont_fragment().to_vec(),
        udp4(A, B, 1000, 53).ip_options(route).payload(&[1; 100]).to_vec(),
        udp4(A, B, 1000, 53).fragment(0, true).payload(&[1; 16]).to_vec(),
        ipv4(A, B, IpProtocol::UDP).fragment(24, false).payload(&[1; 16]).to_vec(),
        ipv4(A, B, IpProtocol::IPV4).payload(&inner).to_vec(),
        ipv4(A, B, IpProtocol::IPV6).payload(&inner6).to_vec(),
        tcp4(A, B, 40000, 80).tcp_options(syn).to_vec(),
        tcp4(A, B, 40000, 80).seq(5).ack(6).flags(TcpFlags::ACK | TcpFlags::PSH).payload(b"GET /").pad_to(80).to_vec(),
        tcp4(A, B, 40000, 80).ack(1).tcp_options(sack).window(100).urgent(3).to_vec(),
        echo4(A, B, 1, 2).payload(b"ping").to_vec(),
        icmp4(A, B, icmpv4::Repr::FragmentationNeeded { mtu: 1400 }).payload(&inner).to_vec(),
        arp_request(A, B).pad_to(60).to_vec(),
        arp_request(A, B).vlan(7).to_vec(),
        udp6(a6, b6, 1000, 53).payload(b"question").to_vec(),
        udp6(a6, b6, 1000, 53).tag(EtherType::VLAN, 5, true, 4095).traffic_class(0xb9).flow_label(0xabcde).to_vec(),
        udp6(a6, b6, 1000, 53).extension(IpProtocol::HOP_BY_HOP, &[5, 2, 0, 0]).payload(&[1; 3]).to_vec(),
        udp6(a6, b6, 1000, 53)
            .extension(IpProtocol::HOP_BY_HOP, &[1; 20])
            .extension(IpProtocol::ROUTING, &[0; 6])
            .extension(IpProtocol::DESTINATION_OPTIONS, &[])
            .extension(IpProtocol::AH, &[9; 22])
            .to_vec(),
        udp6(a6, b6, 1000, 53).fragment(0, true, 99).payload(&[1; 24]).to_vec(),
        ipv6(a6, b6, IpProtocol::UDP).fragment(64, false, 99).payload(&[1; 24]).to_vec(),
        udp6(a6, b6, 1000, 53).fragment(0, false, 99).payload(&[1; 24]).pad_to(110).to_vec(),
        ipv6(a6, b6, IpProtocol::IPV4).payload(&inner).to_vec(),
        ipv6(a6, b6, IpProtocol::IPV6).payload(&inner6).to_vec(),
        ipv6(a6, b6, IpProtocol::NO_NEXT).to_vec(),
        tcp6(a6, b6, 40000, 443).tcp_options(syn).payload(b"data").to_vec(),
        echo6(a6, b6, 1, 2).payload(b"ping").pad_to(90).to_vec(),
        icmp6(a6, b6, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&inner6).to_vec(),
    ]
}
