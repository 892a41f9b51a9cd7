//! What rules see of a frame.

use tables::classifier::{FragmentKind, Key4, Key6};
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, IpProtocol, Ipv4, Tcp, Vlan, ipv4, ipv6};
use zerocopy::byteorder::{BigEndian, LittleEndian, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a TCP header that a first fragment has to hold (RFC 1858 §3.1.1).
const TMIN: usize = 16;

/// A frame, as rules see it.
pub(super) enum View {
    V4(Key4),
    V6(Key6),
    Other,
    Malformed,
    /// A fragment by which TCP ports or flags could be hidden (RFC 1858).
    TinyFragment,
}

/// What the header behind IP says.
#[derive(Clone, Copy)]
enum Upper {
    Nothing,
    Ports(u16, u16),
    Tcp(u16, u16, u8),
    Icmp(u8, u8),
}

/// The first bytes of the commonest packet, untagged, IPv4 without options: in words that are compared in one go.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain4 {
    macs: [u8; 12],
    /// EtherType, version and header length, DSCP.
    front: U32<LittleEndian>,
    total_length: U16<BigEndian>,
    id: U16<BigEndian>,
    /// Flags and fragment offset, time to live, protocol.
    middle: U32<LittleEndian>,
    checksum: U16<BigEndian>,
    src: U32<BigEndian>,
    dst: U32<BigEndian>,
    upper: U32<BigEndian>,
    behind: [u8; 9],
    tcp_flags: u8,
}

/// Bytes in front of those that a header of UDP or ICMP has, and its length.
const FRONT: usize = size_of::<Ethernet>() + size_of::<Ipv4>();
const SHORTEST: usize = 8;

/// The key of an untagged, unfragmented TCP, UDP or ICMP packet over IPv4 without options, of 48 bytes at the least.
#[inline(always)]
pub(super) fn plain4(frame: &[u8]) -> Option<Key4> {
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    let middle = h.middle.get();
    // what is beyond the shortest upper header; a length below wraps and is too long
    let upper = u32::from(h.total_length.get()).wrapping_sub((size_of::<Ipv4>() + SHORTEST) as u32);
    let odd = ((h.front.get() & 0x00ff_ffff) ^ 0x0045_0008) | (middle & 0xff3f);
    if odd != 0 || upper > (frame.len() - FRONT - SHORTEST) as u32 {
        return None;
    }
    let protocol = (middle >> 24) as u8;
    let key = Key4::new(h.src.get().into(), h.dst.get().into(), protocol, FragmentKind::Whole);
    let ports = h.upper.get();
    let (src, dst) = ((ports >> 16) as u16, ports as u16);
    match IpProtocol(protocol) {
        IpProtocol::UDP => Some(key.with_ports(src, dst)),
        IpProtocol::TCP if upper >= (size_of::<Tcp>() - SHORTEST) as u32 => Some(key.with_tcp(src, dst, h.tcp_flags)),
        IpProtocol::ICMPV4 => Some(key.with_icmp((ports >> 24) as u8, (ports >> 16) as u8)),
        _ => None,
    }
}

/// Any frame.
pub(super) fn look(frame: &[u8]) -> View {
    let Ok((ethernet, mut rest)) = Ethernet::ref_from_prefix(frame) else { return View::Malformed };
    let mut ether_type = ethernet.ether_type();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        let Ok((vlan, behind)) = Vlan::ref_from_prefix(rest) else { return View::Malformed };
        (ether_type, rest) = (vlan.ether_type(), behind);
    }
    match ether_type {
        EtherType::IPV4 => v4(rest),
        EtherType::IPV6 => v6(rest),
        // what is behind still more tags is not known, so it is not known to be no IP either
        more if more.is_vlan() => View::Malformed,
        _ => View::Other,
    }
}

fn v4(bytes: &[u8]) -> View {
    let Ok(ip) = ipv4::Packet::new(bytes) else { return View::Malformed };
    let h = ip.header();
    let fragment = match (h.fragment_offset(), h.more_fragments()) {
        (0, false) => FragmentKind::Whole,
        (0, true) => FragmentKind::First,
        _ => FragmentKind::Later,
    };
    if is_tiny(h.protocol(), fragment, usize::from(h.fragment_offset()), ip.payload()) {
        return View::TinyFragment;
    }
    let key = Key4::new(h.src(), h.dst(), h.protocol().0, fragment);
    View::V4(match upper(h.protocol(), fragment, ip.payload()) {
        Upper::Nothing => key,
        Upper::Ports(src, dst) => key.with_ports(src, dst),
        Upper::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
        Upper::Icmp(kind, code) => key.with_icmp(kind, code),
    })
}

fn v6(bytes: &[u8]) -> View {
    let Ok(ip) = ipv6::Packet::new(bytes) else { return View::Malformed };
    let mut kind = FragmentKind::Whole;
    let (mut offset, mut seen) = (0, false);
    for extension in ip.extensions() {
        if let Some(fragment) = extension.fragment() {
            // no sender writes two (RFC 8200 §4.1): the second could hide what the first says
            if core::mem::replace(&mut seen, true) {
                return View::Malformed;
            }
            offset = usize::from(fragment.offset);
            kind = match (fragment.offset, fragment.more) {
                // an atomic fragment is a whole packet (RFC 6946)
                (0, false) => FragmentKind::Whole,
                (0, true) => FragmentKind::First,
                _ => FragmentKind::Later,
            };
        }
    }
    let (protocol, _) = ip.upper();
    if is_tiny(protocol, kind, offset, ip.payload()) {
        return View::TinyFragment;
    }
    let key = Key6::new(ip.header().src(), ip.header().dst(), protocol.0, kind);
    View::V6(match upper(protocol, kind, ip.payload()) {
        Upper::Nothing => key,
        Upper::Ports(src, dst) => key.with_ports(src, dst),
        Upper::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
        Upper::Icmp(kind, code) => key.with_icmp(kind, code),
    })
}

/// RFC 1858 §3, RFC 3128.
fn is_tiny(protocol: IpProtocol, fragment: FragmentKind, offset: usize, payload: &[u8]) -> bool {
    protocol == IpProtocol::TCP
        && match fragment {
            FragmentKind::Whole => false,
            FragmentKind::First => payload.len() < TMIN,
            FragmentKind::Later => offset < TMIN,
        }
}

fn upper(protocol: IpProtocol, fragment: FragmentKind, payload: &[u8]) -> Upper {
    if fragment == FragmentKind::Later {
        return Upper::Nothing;
    }
    match (protocol, payload) {
        (IpProtocol::TCP, [a, b, c, d, _, _, _, _, _, _, _, _, _, flags, ..]) => {
            Upper::Tcp(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]), *flags)
        }
        (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, [kind, code, ..]) => Upper::Icmp(*kind, *code),
        // UDP, DCCP, SCTP, UDP-Lite
        (IpProtocol(17 | 33 | 132 | 136), [a, b, c, d, ..]) => {
            Upper::Ports(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => Upper::Nothing,
    }
}

const _: () = assert!(size_of::<Plain4>() == 48);
