//! Strategies for random packets in property tests, valid and malformed.
//!
//! ```
//! use testkit::{packets, proptest::prelude::*};
//! # struct Pass;
//! # impl graph::Nf for Pass {
//! #     type Settings = graph::NoSettings;
//! #     const KIND: &'static str = "pass";
//! #     const ABOUT: &'static str = "Forwards every packet unchanged.";
//! #     fn build(
//! #         _: &graph::NoSettings,
//! #         _: &graph::BuildContext,
//! #     ) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
//! #         Ok(graph::Operator::compose(graph::frame()))
//! #     }
//! # }
//! use testkit::Harness;
//!
//! // no panic and no lost packet on any input: the harness checks that
//! proptest!(|(frames in packets::mixed(100))| {
//!     Harness::new::<Pass>("").feed(&frames);
//! });
//! ```
//!
//! Addresses and ports are random. For a property that needs several packets of a flow, build frames from small ranges:
//! ```
//! use testkit::{proptest::prelude::*, wire::build};
//!
//! let few_flows = (0..4u8, 0..4u16)
//!     .prop_map(|(host, port)| build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1000 + port, 53).to_vec());
//! # let _ = few_flows;
//! ```

mod malformed;
mod transport;

use crate::Frames;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::net::{Ipv4Addr, Ipv6Addr};
use transport::TransportPacket;
use wire::build::{self, Frame, Network, SRC_MAC, Transport};
use wire::options::OptionBytes;
use wire::{EtherType, IpProtocol, MacAddr, arp as arp_packet, ipv4 as v4};

pub use malformed::malformed;

/// Valid frames of all kinds below, with up to two VLAN tags, padded to 60 bytes or not.
pub fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => arp(), 5 => ipv4(), 5 => ipv6()]
}

/// UDP over IPv4 without options, tags or fragments.
pub fn udp4() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv4(transport::udp())
}

/// TCP over IPv4 without IP options, tags or fragments.
pub fn tcp4() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv4(transport::tcp())
}

/// ICMP over IPv4 without options, tags or fragments: echo messages and errors.
pub fn icmp4() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv4(transport::icmp())
}

/// UDP over IPv6 without extension headers, tags or fragments.
pub fn udp6() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv6(transport::udp())
}

/// TCP over IPv6 without extension headers, tags or fragments.
pub fn tcp6() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv6(transport::tcp())
}

/// ICMPv6 without extension headers, tags or fragments: echo messages and errors.
pub fn icmp6() -> impl Strategy<Value = Vec<u8>> {
    plain_ipv6(transport::icmp())
}

/// Host addresses: any unicast address, private addresses (RFC 1918) and documentation addresses (RFC 5737).
pub fn address4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        (1..=223u8, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| [if first == 127 { 10 } else { first }, b, c, d]),
        any::<[u8; 2]>().prop_map(|[c, d]| [10, 0, c, d]),
        any::<u8>().prop_map(|d| [192, 0, 2, d]),
    ]
    .prop_map(Ipv4Addr::from)
}

/// Host addresses: documentation addresses (RFC 3849), other global addresses and link-local addresses.
pub fn address6() -> impl Strategy<Value = Ipv6Addr> {
    let head = select(vec![[0x20, 1, 0x0d, 0xb8], [0x26, 0, 0, 1], [0xfe, 0x80, 0, 0]]);
    (head, any::<[u8; 12]>(), any::<u8>()).prop_map(|(head, mut rest, last)| {
        if head[0] == 0xfe {
            rest[..4].fill(0);
        }
        rest[11] = last;
        let mut all = [0; 16];
        all[..4].copy_from_slice(&head);
        all[4..].copy_from_slice(&rest);
        all.into()
    })
}

/// The link layer of a frame: Ethernet addresses, VLAN tags, padding.
#[derive(Clone, Debug)]
struct LinkLayer {
    src: MacAddr,
    dst: MacAddr,
    tags: Vec<(EtherType, u8, bool, u16)>,
    padded: bool,
}

fn mac() -> impl Strategy<Value = MacAddr> {
    // locally administered unicast addresses
    any::<[u8; 6]>().prop_map(|[first, b, c, d, e, f]| MacAddr([first & 0xfe | 2, b, c, d, e, f]))
}

fn tags() -> impl Strategy<Value = Vec<(EtherType, u8, bool, u16)>> {
    let tag = |kind| (Just(kind), 0..8u8, any::<bool>(), 0..4095u16);
    prop_oneof![
        4 => Just(vec![]),
        2 => tag(EtherType::VLAN).prop_map(|t| vec![t]),
        1 => (tag(EtherType::QINQ), tag(EtherType::VLAN)).prop_map(|(outer, inner)| vec![outer, inner]),
    ]
}

fn link() -> impl Strategy<Value = LinkLayer> {
    let dst = prop_oneof![6 => mac(), 1 => Just(MacAddr::BROADCAST)];
    (mac(), dst, tags(), any::<bool>()).prop_map(|(src, dst, tags, padded)| LinkLayer { src, dst, tags, padded })
}

impl LinkLayer {
    fn wrap<N: Network, T: Transport<N>>(&self, frame: Frame<N, T>) -> Vec<u8> {
        self.tagged(frame.src_mac(self.src).dst_mac(self.dst))
    }

    fn tagged<N: Network, T: Transport<N>>(&self, frame: Frame<N, T>) -> Vec<u8> {
        let frame = self.tags.iter().fold(frame, |f, &(kind, pcp, dei, vid)| f.tag(kind, pcp, dei, vid));
        frame.pad_to(if self.padded { 60 } else { 0 }).to_vec()
    }
}

/// ARP requests and replies.
pub fn arp() -> impl Strategy<Value = Vec<u8>> {
    let packet = (any::<bool>(), mac(), address4(), mac(), address4());
    (link(), packet).prop_map(|(link, (request, sender_mac, sender_ip, target, target_ip))| {
        let operation = if request { arp_packet::Operation::Request } else { arp_packet::Operation::Reply };
        let target_mac = if request { MacAddr::ZERO } else { target };
        link.tagged(build::arp(arp_packet::Repr { operation, sender_mac, sender_ip, target_mac, target_ip }))
    })
}

/// The part of a packet that a frame carries.
#[derive(Clone, Copy, Debug)]
enum Fragment {
    Whole,
    First(Index),
    Last(Index),
}

fn fragment() -> impl Strategy<Value = Fragment> {
    prop_oneof![
        6 => Just(Fragment::Whole),
        1 => any::<Index>().prop_map(Fragment::First),
        1 => any::<Index>().prop_map(Fragment::Last),
    ]
}

impl Fragment {
    /// Returns the offset, the more-fragments flag and the bytes of the fragment; `None` for a whole packet. The first
    /// fragment has at least `header` bytes; shorter segments are not fragmented.
    fn slice<'s>(&self, segment: &'s [u8], header: usize) -> Option<(u16, bool, &'s [u8])> {
        let min_len = header.next_multiple_of(8).max(8);
        let positions = segment.len().checked_sub(min_len)?.div_ceil(8);
        let at = |index: &Index| min_len + 8 * index.index(positions);
        match self {
            _ if positions == 0 => None,
            Fragment::Whole => None,
            Fragment::First(index) => Some((0, true, &segment[..at(index)])),
            Fragment::Last(index) => Some((at(index) as u16, false, &segment[at(index)..])),
        }
    }
}

fn options4() -> impl Strategy<Value = OptionBytes> {
    use v4::Ipv4Option::{RecordRoute, RouterAlert, Unknown};
    let list = |list: &[v4::Ipv4Option<'_>]| v4::options(list).expect("short options");
    prop_oneof![
        4 => Just(OptionBytes::EMPTY),
        1 => Just(list(&[RouterAlert(0)])),
        1 => (1..9usize).prop_map(move |n| list(&[RecordRoute { pointer: 4, route: &[0; 36][..4 * n] }])),
        1 => (1..30usize).prop_map(move |n| list(&[Unknown { kind: 30, data: &[7; 30][..n] }])),
    ]
}

/// IPv4 with UDP, TCP, ICMP and other protocols, with options, as whole packets and first and last fragments.
pub fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let header = (address4(), address4(), 0..=255u8, 0..64u8, 0..4u8, any::<u16>(), options4());
    (link(), header, transport::any_protocol(), fragment()).prop_map(
        |(link, (src, dst, ttl, dscp, ecn, id, options), transport, fragment)| {
            let segment = transport.to_bytes_over_ipv4(src, dst);
            let frame = build::ipv4(src, dst, transport.protocol(false))
                .ttl(ttl)
                .dscp(dscp)
                .ecn(ecn)
                .id(id)
                .ip_options(options);
            link.wrap(match fragment.slice(&segment, transport.header_len()) {
                Some((offset, more, part)) => frame.fragment(offset, more).payload(part),
                None => frame.payload(&segment),
            })
        },
    )
}

/// IPv6 with UDP, TCP, ICMPv6 and other protocols, with extension headers in the order of RFC 8200 §4.1, as whole
/// packets and first, last and atomic fragments (RFC 6946).
pub fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let header = (address6(), address6(), 0..=255u8, any::<u8>(), 0..1u32 << 20, any::<[bool; 4]>(), any::<u32>());
    (link(), header, transport::any_protocol(), fragment(), any::<u8>()).prop_map(
        |(link, (src, dst, hops, class, label, [hop, routing, destination, ah], id), transport, fragment, plain)| {
            let segment = transport.to_bytes_over_ipv6(src, dst);
            let mut frame =
                build::ipv6(src, dst, transport.protocol(true)).ttl(hops).traffic_class(class).flow_label(label);
            // one in two has no extension header
            let with = |extension: bool| extension && plain & 1 == 0;
            if with(hop) {
                frame = frame.extension(IpProtocol::HOP_BY_HOP, &[5, 2, 0, 0, 1, 0]);
            }
            if with(routing) {
                frame = frame.extension(IpProtocol::ROUTING, &[253, 0, 0, 0, 0, 0]);
            }
            match fragment.slice(&segment, transport.header_len()) {
                Some((offset, more, part)) => return link.wrap(frame.fragment(offset, more, id).payload(part)),
                None if matches!(fragment, Fragment::First(_)) => frame = frame.fragment(0, false, id),
                None => {}
            }
            if with(ah) {
                frame = frame.extension(IpProtocol::AH, &[9; 22]);
            }
            if with(destination) {
                frame = frame.extension(IpProtocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]);
            }
            link.wrap(frame.payload(&segment))
        },
    )
}

fn plain_ipv4(transport: impl Strategy<Value = TransportPacket>) -> impl Strategy<Value = Vec<u8>> {
    (mac(), address4(), address4(), 0..=255u8, any::<u16>(), transport).prop_map(
        |(mac, src, dst, ttl, id, transport)| {
            let frame = build::ipv4(src, dst, transport.protocol(false))
                .ttl(ttl)
                .id(id)
                .payload(&transport.to_bytes_over_ipv4(src, dst));
            frame.src_mac(SRC_MAC).dst_mac(mac).pad_to(60).to_vec()
        },
    )
}

fn plain_ipv6(transport: impl Strategy<Value = TransportPacket>) -> impl Strategy<Value = Vec<u8>> {
    (mac(), address6(), address6(), 0..=255u8, transport).prop_map(|(mac, src, dst, hops, transport)| {
        let frame =
            build::ipv6(src, dst, transport.protocol(true)).ttl(hops).payload(&transport.to_bytes_over_ipv6(src, dst));
        frame.src_mac(SRC_MAC).dst_mac(mac).pad_to(60).to_vec()
    })
}

/// Up to `max` frames, a quarter of them malformed.
pub fn mixed(max: usize) -> impl Strategy<Value = Frames> {
    vec(prop_oneof![3 => well_formed(), 1 => malformed(well_formed())], 0..=max)
}
