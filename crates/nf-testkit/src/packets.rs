//! Random packets for property tests: well formed, and not.
//!
//! ```
//! use testkit::{packets, proptest::prelude::*};
//! # struct Quiet;
//! # impl graph::Nf for Quiet {
//! #     type Settings = Settings;
//! #     const KIND: &'static str = "quiet";
//! #     const ABOUT: &'static str = "Lets everything pass.";
//! #     fn build(_: &Settings, _: &graph::BuildContext) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
//! #         Ok(graph::Operator::compose(graph::frame()))
//! #     }
//! # }
//! # #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
//! # #[serde(default, deny_unknown_fields)]
//! # struct Settings {}
//! use testkit::Bench;
//!
//! // whatever comes, nothing panics and nothing is lost: the bench sees to that
//! proptest!(|(frames in packets::mixed(100))| {
//!     Bench::of::<Quiet>("").feed(&frames);
//! });
//! ```
//!
//! Addresses and ports are of any value. Where a property needs few of them, so that flows meet again, build frames
//! from small ranges:
//! ```
//! use testkit::{proptest::prelude::*, wire::build};
//!
//! let few = (0..4u8, 0..4u16)
//!     .prop_map(|(host, port)| build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1000 + port, 53).to_vec());
//! # let _ = few;
//! ```

mod spoil;
mod upper;

use crate::Frames;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::net::{Ipv4Addr, Ipv6Addr};
use upper::Upper;
use wire::build::{self, Frame, Network, SRC_MAC, Transport};
use wire::options::OptionBytes;
use wire::{EtherType, IpProtocol, MacAddr, arp as arp_packet, ipv4 as v4};

pub use spoil::malformed;

/// Any of the frames below, with up to two VLAN tags, padded to 60 bytes or not.
pub fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => arp(), 5 => ipv4(), 5 => ipv6()]
}

/// UDP over IPv4 without options, tags or fragments.
pub fn udp4() -> impl Strategy<Value = Vec<u8>> {
    plain4(upper::udp())
}

/// TCP over IPv4 without IP options, tags or fragments.
pub fn tcp4() -> impl Strategy<Value = Vec<u8>> {
    plain4(upper::tcp())
}

/// ICMP over IPv4 without options, tags or fragments: echoes and errors.
pub fn icmp4() -> impl Strategy<Value = Vec<u8>> {
    plain4(upper::icmp())
}

/// UDP over IPv6 without extension headers, tags or fragments.
pub fn udp6() -> impl Strategy<Value = Vec<u8>> {
    plain6(upper::udp())
}

/// TCP over IPv6 without extension headers, tags or fragments.
pub fn tcp6() -> impl Strategy<Value = Vec<u8>> {
    plain6(upper::tcp())
}

/// ICMPv6 without extension headers, tags or fragments: echoes and errors.
pub fn icmp6() -> impl Strategy<Value = Vec<u8>> {
    plain6(upper::icmp())
}

/// An address of a host, now and then of documentation (RFC 5737) or private use.
pub fn address4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        (1..=223u8, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| [if first == 127 { 10 } else { first }, b, c, d]),
        any::<[u8; 2]>().prop_map(|[c, d]| [10, 0, c, d]),
        any::<u8>().prop_map(|d| [192, 0, 2, d]),
    ]
    .prop_map(Ipv4Addr::from)
}

/// A global address, mostly of documentation (RFC 3849), or one of the link.
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

/// What is around a network packet.
#[derive(Clone, Debug)]
struct Link {
    src: MacAddr,
    dst: MacAddr,
    tags: Vec<(EtherType, u8, bool, u16)>,
    padded: bool,
}

fn mac() -> impl Strategy<Value = MacAddr> {
    // a station's: the group bit is clear, and it is not zero
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

fn link() -> impl Strategy<Value = Link> {
    let dst = prop_oneof![6 => mac(), 1 => Just(MacAddr::BROADCAST)];
    (mac(), dst, tags(), any::<bool>()).prop_map(|(src, dst, tags, padded)| Link { src, dst, tags, padded })
}

impl Link {
    fn around<N: Network, T: Transport<N>>(&self, frame: Frame<N, T>) -> Vec<u8> {
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

/// Which fragment of a packet comes.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Whole,
    First(Index),
    Last(Index),
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        6 => Just(Cut::Whole),
        1 => any::<Index>().prop_map(Cut::First),
        1 => any::<Index>().prop_map(Cut::Last),
    ]
}

impl Cut {
    /// Offset, whether more follows, and the bytes; `None` for a whole packet. The first fragment has at least `header`
    /// bytes: a segment too short for that stays whole.
    fn part<'s>(&self, segment: &'s [u8], header: usize) -> Option<(u16, bool, &'s [u8])> {
        let least = header.next_multiple_of(8).max(8);
        let places = segment.len().checked_sub(least)?.div_ceil(8);
        let at = |index: &Index| least + 8 * index.index(places);
        match self {
            _ if places == 0 => None,
            Cut::Whole => None,
            Cut::First(index) => Some((0, true, &segment[..at(index)])),
            Cut::Last(index) => Some((at(index) as u16, false, &segment[at(index)..])),
        }
    }
}

fn options4() -> impl Strategy<Value = OptionBytes> {
    use v4::Ipv4Option::{RecordRoute, RouterAlert, Unknown};
    let list = |list: &[v4::Ipv4Option<'_>]| v4::options(list).expect("they are short");
    prop_oneof![
        4 => Just(OptionBytes::EMPTY),
        1 => Just(list(&[RouterAlert(0)])),
        1 => (1..9usize).prop_map(move |n| list(&[RecordRoute { pointer: 4, route: &[0; 36][..4 * n] }])),
        1 => (1..30usize).prop_map(move |n| list(&[Unknown { kind: 30, data: &[7; 30][..n] }])),
    ]
}

/// IPv4 with UDP, TCP, ICMP and other protocols; with options; fragments, first and last.
pub fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let header = (address4(), address4(), 0..=255u8, 0..64u8, 0..4u8, any::<u16>(), options4());
    (link(), header, upper::each(), cut()).prop_map(|(link, (src, dst, ttl, dscp, ecn, id, options), upper, cut)| {
        let segment = upper.over4(src, dst);
        let frame =
            build::ipv4(src, dst, upper.protocol(false)).ttl(ttl).dscp(dscp).ecn(ecn).id(id).ip_options(options);
        link.around(match cut.part(&segment, upper.header()) {
            Some((offset, more, part)) => frame.fragment(offset, more).payload(part),
            None => frame.payload(&segment),
        })
    })
}

/// IPv6 with UDP, TCP, ICMPv6 and other protocols; with extension headers in the order of RFC 8200 §4.1; fragments,
/// first, last and atomic ones (RFC 6946).
pub fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let header = (address6(), address6(), 0..=255u8, any::<u8>(), 0..1u32 << 20, any::<[bool; 4]>(), any::<u32>());
    (link(), header, upper::each(), cut(), any::<u8>()).prop_map(
        |(link, (src, dst, hops, class, label, [hop, routing, destination, ah], id), upper, cut, plain)| {
            let segment = upper.over6(src, dst);
            let mut frame =
                build::ipv6(src, dst, upper.protocol(true)).ttl(hops).traffic_class(class).flow_label(label);
            // one in two has no extension header
            let with = |wanted: bool| wanted && plain & 1 == 0;
            if with(hop) {
                frame = frame.extension(IpProtocol::HOP_BY_HOP, &[5, 2, 0, 0, 1, 0]);
            }
            if with(routing) {
                frame = frame.extension(IpProtocol::ROUTING, &[253, 0, 0, 0, 0, 0]);
            }
            match cut.part(&segment, upper.header()) {
                Some((offset, more, part)) => return link.around(frame.fragment(offset, more, id).payload(part)),
                None if matches!(cut, Cut::First(_)) => frame = frame.fragment(0, false, id),
                None => {}
            }
            if with(ah) {
                frame = frame.extension(IpProtocol::AH, &[9; 22]);
            }
            if with(destination) {
                frame = frame.extension(IpProtocol::DESTINATION_OPTIONS, &[1, 4, 0, 0, 0, 0]);
            }
            link.around(frame.payload(&segment))
        },
    )
}

fn plain4(upper: impl Strategy<Value = Upper>) -> impl Strategy<Value = Vec<u8>> {
    (mac(), address4(), address4(), 0..=255u8, any::<u16>(), upper).prop_map(|(mac, src, dst, ttl, id, upper)| {
        let frame = build::ipv4(src, dst, upper.protocol(false)).ttl(ttl).id(id).payload(&upper.over4(src, dst));
        frame.src_mac(SRC_MAC).dst_mac(mac).pad_to(60).to_vec()
    })
}

fn plain6(upper: impl Strategy<Value = Upper>) -> impl Strategy<Value = Vec<u8>> {
    (mac(), address6(), address6(), 0..=255u8, upper).prop_map(|(mac, src, dst, hops, upper)| {
        let frame = build::ipv6(src, dst, upper.protocol(true)).ttl(hops).payload(&upper.over6(src, dst));
        frame.src_mac(SRC_MAC).dst_mac(mac).pad_to(60).to_vec()
    })
}

/// Bytes of an application's, mostly few.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    // a number instead of bytes: there is little to shrink in a payload, but its length
    (prop_oneof![4 => 0..64usize, 1 => 64..1300usize], any::<u64>()).prop_map(|(length, seed)| {
        let mut state = seed | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    })
}

/// Up to `most` frames, well formed but for one in four.
pub fn mixed(most: usize) -> impl Strategy<Value = Frames> {
    vec(prop_oneof![3 => well_formed(), 1 => malformed(well_formed())], 0..=most)
}
