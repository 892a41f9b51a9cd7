//! Classifier keys of frames.

use crate::link;
use tables::classifier::{FragmentKind, Key4, Key6};
use wire::{EtherType, Ethernet, IpProtocol, Ipv4, Tcp, ipv4, ipv6};

/// Bytes of the TCP header that a first fragment must contain (RFC 1858 §3.1.1).
pub(super) const MIN_TCP_FRAGMENT: usize = 16;

/// Classifier key of a frame, or the reason for which it has none.
pub(super) enum FrameKey {
    V4(Key4),
    V6(Key6),
    Other,
    Malformed,
    /// A fragment that could hide TCP ports or flags (RFC 1858).
    TinyFragment,
}

/// Fields of the transport header.
#[derive(Clone, Copy)]
enum L4Header {
    Nothing,
    Ports(u16, u16),
    Tcp(u16, u16, u8),
    Icmp(u8, u8),
}

/// Bytes that are read of a plain packet, untagged IPv4 without options: up to and including the TCP flags.
const PLAIN_LEN: usize = 48;
/// Offset of the transport header, and shortest length of a UDP or ICMP header.
const L4_OFFSET: usize = size_of::<Ethernet>() + size_of::<Ipv4>();
const MIN_L4_LEN: usize = 8;

/// Writes the key of an untagged, unfragmented TCP, UDP or ICMP packet over IPv4 without options, in a frame of at
/// least 48 bytes. Returns false for any other frame.
#[inline(always)]
pub(super) fn write_plain_key(frame: &[u8], key: &mut Key4) -> bool {
    let Some(h) = frame.first_chunk::<PLAIN_LEN>() else { return false };
    // written in one piece, because it is read in one piece: partial stores would defeat store forwarding
    *key = Key4::of_wire(h[22..].first_chunk().expect("48 bytes"));
    // bytes beyond the shortest transport header; a shorter length wraps around and is too long
    let upper = u32::from(u16::from_be_bytes([h[16], h[17]])).wrapping_sub((size_of::<Ipv4>() + MIN_L4_LEN) as u32);
    let not_plain = link::plain_ipv4_mismatch(h.first_chunk().expect("48 bytes"));
    let protocol = IpProtocol(h[23]);
    if upper > (frame.len() - L4_OFFSET - MIN_L4_LEN) as u32 {
        return false;
    }
    if not_plain | u32::from(protocol.0 ^ IpProtocol::UDP.0) == 0 {
        return true;
    }
    match protocol {
        IpProtocol::TCP if not_plain == 0 && upper >= (size_of::<Tcp>() - MIN_L4_LEN) as u32 => {
            *key = key.with_flags(h[47]);
            true
        }
        IpProtocol::ICMPV4 if not_plain == 0 => {
            let (src, dst) = ([h[26], h[27], h[28], h[29]], [h[30], h[31], h[32], h[33]]);
            *key = Key4::new(src.into(), dst.into(), protocol.0, FragmentKind::Whole).with_icmp(h[34], h[35]);
            true
        }
        _ => false,
    }
}

/// Parses any frame.
pub(super) fn parse(frame: &[u8]) -> FrameKey {
    match link::parse(frame) {
        Ok((EtherType::IPV4, packet)) => parse_ipv4(packet),
        Ok((EtherType::IPV6, packet)) => parse_ipv6(packet),
        Ok(_) => FrameKey::Other,
        Err(_) => FrameKey::Malformed,
    }
}

fn parse_ipv4(bytes: &[u8]) -> FrameKey {
    let Ok(ip) = ipv4::Packet::new(bytes) else { return FrameKey::Malformed };
    let h = ip.header();
    let fragment = match (h.fragment_offset(), h.more_fragments()) {
        (0, false) => FragmentKind::Whole,
        (0, true) => FragmentKind::First,
        _ => FragmentKind::Later,
    };
    if is_tiny_fragment(h.protocol(), fragment, usize::from(h.fragment_offset()), ip.payload()) {
        return FrameKey::TinyFragment;
    }
    let key = Key4::new(h.src(), h.dst(), h.protocol().0, fragment);
    FrameKey::V4(match parse_l4(h.protocol(), fragment, ip.payload()) {
        L4Header::Nothing => key,
        L4Header::Ports(src, dst) => key.with_ports(src, dst),
        L4Header::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
        L4Header::Icmp(kind, code) => key.with_icmp(kind, code),
    })
}

fn parse_ipv6(bytes: &[u8]) -> FrameKey {
    let Ok(ip) = ipv6::Packet::new(bytes) else { return FrameKey::Malformed };
    let mut kind = FragmentKind::Whole;
    let (mut offset, mut has_fragment_header) = (0, false);
    for extension in ip.extensions() {
        if let Some(fragment) = extension.fragment() {
            // a second fragment header is invalid (RFC 8200 §4.1) and could contradict the first
            if core::mem::replace(&mut has_fragment_header, true) {
                return FrameKey::Malformed;
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
    if is_tiny_fragment(protocol, kind, offset, ip.payload()) {
        return FrameKey::TinyFragment;
    }
    let key = Key6::new(ip.header().src(), ip.header().dst(), protocol.0, kind);
    FrameKey::V6(match parse_l4(protocol, kind, ip.payload()) {
        L4Header::Nothing => key,
        L4Header::Ports(src, dst) => key.with_ports(src, dst),
        L4Header::Tcp(src, dst, flags) => key.with_tcp(src, dst, flags),
        L4Header::Icmp(kind, code) => key.with_icmp(kind, code),
    })
}

/// Returns true for a fragment that could hide parts of the TCP header (RFC 1858 §3, RFC 3128).
fn is_tiny_fragment(protocol: IpProtocol, fragment: FragmentKind, offset: usize, payload: &[u8]) -> bool {
    protocol == IpProtocol::TCP
        && match fragment {
            FragmentKind::Whole => false,
            FragmentKind::First => payload.len() < MIN_TCP_FRAGMENT,
            FragmentKind::Later => offset < MIN_TCP_FRAGMENT,
        }
}

fn parse_l4(protocol: IpProtocol, fragment: FragmentKind, payload: &[u8]) -> L4Header {
    if fragment == FragmentKind::Later {
        return L4Header::Nothing;
    }
    match (protocol, payload) {
        (IpProtocol::TCP, [a, b, c, d, _, _, _, _, _, _, _, _, _, flags, ..]) => {
            L4Header::Tcp(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]), *flags)
        }
        (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, [kind, code, ..]) => L4Header::Icmp(*kind, *code),
        // UDP, DCCP, SCTP, UDP-Lite
        (IpProtocol(17 | 33 | 132 | 136), [a, b, c, d, ..]) => {
            L4Header::Ports(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => L4Header::Nothing,
    }
}
