//! Flow keys, directions and the translation of one direction of a session.

use crate::checksum_delta::ChecksumDelta;
use crate::link::plain_ipv4_mismatch;
use tables::flow::Tuple4;
use wire::IpProtocol;

/// Addresses and ports in host byte order. For ICMP queries the identifier takes the place of the requester's port; the
/// other port is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) protocol: u8,
}

impl Flow {
    pub(super) fn key(&self) -> Tuple4 {
        Tuple4::new(self.src, self.dst, self.src_port, self.dst_port, self.protocol)
    }

    pub(super) fn of_key(key: &Tuple4) -> Self {
        let (src, dst, src_port, dst_port, protocol) = key.fields();
        Flow { src, dst, src_port, dst_port, protocol }
    }

    pub(crate) fn reversed(&self) -> Self {
        Flow { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, ..*self }
    }

    /// Returns the flow with another source.
    pub(super) fn with_source(&self, src: u32, src_port: u16) -> Self {
        Flow { src, src_port, ..*self }
    }
}

/// An inside or external endpoint of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: u32,
    pub(crate) port: u16,
    pub(crate) protocol: u8,
}

/// Maps an address to one of `copies` by a hash over all its bits.
pub(crate) fn hash_to_index(address: u32, copies: usize) -> usize {
    let mixed = u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * copies as u64) >> 32) as usize
}

/// Bits of [`Translation::flags_seen`]: FIN, SYN and RST as in TCP, and `DATA` for a segment with none of them.
pub(super) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(crate) const DATA: u8 = 8;
/// Marks a session between two inside hosts.
const HAIRPIN: u8 = 0x80;
/// Marks a session of a forward.
const FORWARD: u8 = 0x40;
const MARKS: u8 = HAIRPIN | FORWARD;

/// Returns the bits of [`Translation::flags_seen`] that a TCP segment sets.
#[inline(always)]
pub(crate) fn observed_flags(flags: u8) -> u8 {
    let control = flags & (FIN | SYN | RST);
    if control == 0 { DATA } else { control }
}

/// One direction of a session: the address and port that replace the source (outbound) or destination (inbound), and
/// the resulting changes of checksums. The size of twelve bytes lets two sessions share a cache line.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Translation {
    /// In network byte order.
    pub(crate) address: [u8; 4],
    /// In network byte order.
    pub(crate) port: [u8; 2],
    /// Change of the IPv4 header checksum.
    pub(super) ip: ChecksumDelta,
    /// Change of the TCP, UDP or ICMP checksum.
    pub(super) upper: ChecksumDelta,
    /// TCP flags seen in this direction, see [`observed_flags`]; [`DATA`] for other protocols. And [`MARKS`].
    flags_seen: u8,
    /// Flags with which a packet needs the slow path.
    changing: u8,
}

const _: () = assert!(size_of::<Translation>() == 12);

impl Translation {
    pub(super) fn new(protocol: u8, (old, old_port): (u32, u16), (new, new_port): (u32, u16)) -> Self {
        let bytes = |address: u32, port: u16| {
            let ([a, b, c, d], [e, f]) = (address.to_be_bytes(), port.to_be_bytes());
            [a, b, c, d, e, f]
        };
        let (old, new) = (bytes(old, old_port), bytes(new, new_port));
        // the ICMP checksum covers no pseudo header
        let from = if protocol == IpProtocol::ICMPV4.0 { 4 } else { 0 };
        let mut t = Translation {
            address: [new[0], new[1], new[2], new[3]],
            port: [new[4], new[5]],
            ip: ChecksumDelta::new(&old[..4], &new[..4]),
            upper: ChecksumDelta::new(&old[from..], &new[from..]),
            flags_seen: 0,
            changing: 0,
        };
        t.set_flags_seen(if protocol == IpProtocol::TCP.0 { 0 } else { DATA });
        t
    }

    pub(super) fn flags_seen(&self) -> u8 {
        self.flags_seen & !MARKS
    }

    pub(super) fn set_flags_seen(&mut self, flags: u8) {
        self.flags_seen = self.flags_seen & MARKS | flags;
        // a SYN may reopen a closed connection, so it always needs the slow path
        self.changing = if self.flags_seen & HAIRPIN != 0 { !0 } else { !flags | SYN };
    }

    /// Returns the flags that were seen, with the marks.
    pub(super) fn state(&self) -> u8 {
        self.flags_seen
    }

    /// Sets what [`state`](Self::state) has returned.
    pub(super) fn set_state(&mut self, state: u8) {
        self.flags_seen = state;
        self.set_flags_seen(state & !MARKS);
    }

    /// Makes all packets of the session take the slow path: it is between two inside hosts.
    pub(super) fn set_hairpin(&mut self) {
        self.flags_seen |= HAIRPIN;
        self.changing = !0;
    }

    pub(super) fn set_forward(&mut self) {
        self.flags_seen |= FORWARD;
    }

    /// Returns true if the session has the ports of a forward.
    pub(super) fn is_forward(&self) -> bool {
        self.flags_seen & FORWARD != 0
    }

    pub(crate) fn address(&self) -> u32 {
        u32::from_be_bytes(self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }
}

/// Returns true if a packet with these TCP flags (`None` for other protocols) does not change the state of the session.
#[inline(always)]
pub(crate) fn is_state_unchanged(t: &Translation, tcp_flags: Option<u8>) -> bool {
    // sessions of other protocols have `DATA` set from the start
    tcp_flags.map_or(DATA, observed_flags) & t.changing == 0
}

/// Direction of a packet with respect to the inside network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From inside: the source is translated.
    Outbound,
    /// From outside: the destination is translated.
    Inbound,
}

/// Bytes that the fast path reads: up to and including the TCP checksum and urgent pointer.
pub(super) const PLAIN_LEN: usize = 54;
const SRC: usize = 26;
const DST: usize = 30;
const TCP_CHECKSUM: usize = 50;
const UDP_CHECKSUM: usize = 40;

/// Returns the flow key of an untagged, unfragmented TCP or UDP packet over IPv4 without options, in a frame of at
/// least 54 bytes.
#[inline(always)]
pub(crate) fn plain_ipv4_key(frame: &[u8]) -> Option<Tuple4> {
    let h = frame.first_chunk::<PLAIN_LEN>()?;
    let protocol = h[23];
    let total = usize::from(u16::from_be_bytes([h[16], h[17]]));
    // IPv4 header plus TCP or UDP header
    let min_len = if protocol == IpProtocol::TCP.0 { 40 } else { 28 };
    let plain = plain_ipv4_mismatch(h.first_chunk().expect("54 bytes")) == 0
        && (protocol == IpProtocol::TCP.0 || protocol == IpProtocol::UDP.0)
        && total >= min_len
        && total <= frame.len() - 14;
    plain.then(|| Tuple4::of_wire(h[SRC..].first_chunk().expect("54 bytes"), protocol))
}

/// Translates a packet for which [`plain_ipv4_key`] returned a key. Returns false, without a change, if the packet
/// changes the state of the session and needs the slow path.
#[inline(always)]
pub(super) fn rewrite_plain(frame: &mut [u8], t: &Translation, direction: Direction) -> bool {
    let Some(h) = frame.first_chunk_mut::<PLAIN_LEN>() else { return false };
    let tcp = h[23] == IpProtocol::TCP.0;
    if !is_state_unchanged(t, tcp.then_some(h[47])) {
        return false;
    }
    let (address, port) = match direction {
        Direction::Outbound => (SRC, 34),
        Direction::Inbound => (DST, 36),
    };
    h[address..address + 4].copy_from_slice(&t.address);
    h[port..port + 2].copy_from_slice(&t.port);
    let sum = t.ip.apply([h[24], h[25]]);
    h[24..26].copy_from_slice(&sum);
    if tcp {
        let sum = t.upper.apply([h[TCP_CHECKSUM], h[TCP_CHECKSUM + 1]]);
        h[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&sum);
    } else {
        let sum = t.upper.apply_udp([h[UDP_CHECKSUM], h[UDP_CHECKSUM + 1]]);
        h[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&sum);
    }
    true
}

/// Input numbers of a translator.
pub(super) const INSIDE: u8 = 0;
pub(super) const OUTSIDE: u8 = 1;
