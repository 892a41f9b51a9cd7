//! What rules see of a frame.

use tables::classifier::{FragmentKind, Key4, Key6};
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, IpProtocol, Ipv4, Tcp, Vlan, ipv4, ipv6};
use zerocopy::FromBytes;

/// Bytes of a TCP header that a first fragment has to hold (RFC 1858 §3.1.1).
pub(super) const TMIN: usize = 16;

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

/// Bytes that are looked at of the commonest packet, untagged, IPv4 without options: up to the flags of TCP.
const PLAIN: usize = 48;
/// Bytes in front of those that a header of UDP or ICMP has, and its length.
const FRONT: usize = size_of::<Ethernet>() + size_of::<Ipv4>();
const SHORTEST: usize = 8;

/// Writes the key of an untagged, unfragmented TCP, UDP or ICMP packet over IPv4 without options, of 48 bytes at the least;
/// false for any other.
#[inline(always)]
pub(super) fn plain4(frame: &[u8], key: &mut Key4) -> bool {
    let Some(h) = frame.first_chunk::<PLAIN>() else { return false };
    let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    // whole and at once: pieces of it would have to be put together again where sixteen are read
    *key = Key4::of_wire(h[22..].first_chunk().expect("48 bytes"));
    // EtherType, version and header length; flags and fragment offset, time to live, protocol
    let (front, middle) = (word(12), word(20));
    // what is beyond the shortest upper header; a length below wraps and is too long
    let upper = u32::from(u16::from_be_bytes([h[16], h[17]])).wrapping_sub((size_of::<Ipv4>() + SHORTEST) as u32);
    // of the flags only "don't fragment" may be set
    let odd = ((front & 0x00ff_ffff) ^ 0x0045_0008) | middle & 0xffbf;
    let protocol = IpProtocol((middle >> 24) as u8);
    if upper > (frame.len() - FRONT - SHORTEST) as u32 {
        return false;
    }
    if odd | u32::from(protocol.0 ^ IpProtocol::UDP.0) == 0 {
        return true;
    }
    match protocol {
        IpProtocol::TCP if odd == 0 && upper >= (size_of::<Tcp>() - SHORTEST) as u32 => {
            *key = key.with_flags(h[47]);
            true
        }
        IpProtocol::ICMPV4 if odd == 0 => {
            let (src, dst) = ([h[26], h[27], h[28], h[29]], [h[30], h[31], h[32], h[33]]);
            *key = Key4::new(src.into(), dst.into(), protocol.0, FragmentKind::Whole).with_icmp(h[34], h[35]);
            true
        }
        _ => false,
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
