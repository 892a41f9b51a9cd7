//! What a flow is known by, and how it is translated.

use tables::flow::Tuple4;
use wire::IpProtocol;

/// Addresses and ports of a packet, as numbers; for ICMP queries the identifier is the port of whoever asks, and the other
/// is 0.
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
        let t = key.five_tuple();
        let bits = |address| if let core::net::IpAddr::V4(a) = address { a.to_bits() } else { 0 };
        Flow { src: bits(t.src), dst: bits(t.dst), src_port: t.src_port, dst_port: t.dst_port, protocol: t.protocol.0 }
    }

    pub(crate) fn reversed(&self) -> Self {
        Flow { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, ..*self }
    }

    /// As it goes on outside, with another source.
    pub(super) fn from(&self, src: u32, src_port: u16) -> Self {
        Flow { src, src_port, ..*self }
    }
}

/// Which of several copies has a subscriber: all bits of the address count.
pub(crate) fn spread(address: u32, copies: usize) -> usize {
    let mixed = u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * copies as u64) >> 32) as usize
}

/// FIN, SYN, RST as in TCP's flags; then: a segment without any of them.
pub(super) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(crate) const PLAIN: u8 = 8;

/// What a TCP segment with these flags says of its direction.
#[inline(always)]
pub(crate) fn said(flags: u8) -> u8 {
    let control = flags & (FIN | SYN | RST);
    if control == 0 { PLAIN } else { control }
}

/// What a change does to a checksum over what is changed (RFC 1624 eq. 3): 16-bit words in the order of this machine, which
/// one's complement sums do not mind as long as they stand at even places.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Change(u16);

impl Change {
    /// From some bytes to as many others, an even number.
    pub(crate) fn new(old: &[u8], new: &[u8]) -> Self {
        let word = |pair: &[u8; 2]| u32::from(u16::from_ne_bytes(*pair));
        let (old, new) = (old.as_chunks().0.iter(), new.as_chunks().0.iter());
        let mut sum = old.map(|pair| !word(pair) & 0xffff).chain(new.map(word)).sum::<u32>();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        Change(sum as u16)
    }

    /// The checksum after it.
    #[inline(always)]
    pub(crate) fn apply(self, sum: [u8; 2]) -> [u8; 2] {
        let sum = u32::from(!u16::from_ne_bytes(sum)) + u32::from(self.0);
        (!((sum + (sum >> 16)) as u16)).to_ne_bytes()
    }

    /// As [`apply`](Self::apply) for UDP: 0 (none) stays 0 and a sum of 0 becomes 0xffff (RFC 768).
    #[inline(always)]
    pub(crate) fn apply_udp(self, sum: [u8; 2]) -> [u8; 2] {
        let new = self.apply(sum);
        let new = if new == [0; 2] { [0xff; 2] } else { new };
        if sum == [0; 2] { sum } else { new }
    }
}

/// One direction of a session: what takes the place of source (outwards) or destination (inwards), and what that does to
/// checksums. Twelve bytes, so that two sessions share a cache line.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Translation {
    /// As it stands on the wire.
    pub(crate) address: [u8; 4],
    /// As it stands on the wire.
    pub(crate) port: [u8; 2],
    /// To the IP header's checksum.
    pub(super) ip: Change,
    /// To the checksum behind it.
    pub(super) upper: Change,
    /// What TCP has [said] in this direction; [`PLAIN`] for others.
    pub(crate) state: u8,
    /// 1 if what is translated turns round.
    pub(crate) hairpin: u8,
}

const _: () = assert!(size_of::<Translation>() == 12);

impl Translation {
    pub(super) fn new(protocol: u8, (old, old_port): (u32, u16), (new, new_port): (u32, u16)) -> Self {
        let bytes = |address: u32, port: u16| {
            let ([a, b, c, d], [e, f]) = (address.to_be_bytes(), port.to_be_bytes());
            [a, b, c, d, e, f]
        };
        let (old, new) = (bytes(old, old_port), bytes(new, new_port));
        // ICMP has no pseudo header
        let from = if protocol == IpProtocol::ICMPV4.0 { 4 } else { 0 };
        Translation {
            address: [new[0], new[1], new[2], new[3]],
            port: [new[4], new[5]],
            ip: Change::new(&old[..4], &new[..4]),
            upper: Change::new(&old[from..], &new[from..]),
            state: if protocol == IpProtocol::TCP.0 { 0 } else { PLAIN },
            hairpin: 0,
        }
    }

    pub(crate) fn address(&self) -> u32 {
        u32::from_be_bytes(self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }
}

/// Whether a session hears nothing new from a packet with these flags of TCP, if it is of TCP.
#[inline(always)]
pub(crate) fn is_dull(t: &Translation, tcp_flags: Option<u8>) -> bool {
    // other protocols have a state that has heard all
    let said = tcp_flags.map_or(PLAIN, said);
    // whoever begins may begin anew
    said & (!t.state | SYN) | t.hairpin == 0
}

/// Which of a packet's addresses is translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The source, of what comes from inside.
    Out,
    /// The destination, of what comes from outside.
    In,
}

/// Bytes that are looked at of the commonest packet: up to the checksum of TCP.
pub(super) const LONG: usize = 54;
const SRC: usize = 26;
const DST: usize = 30;
const TCP_SUM: usize = 50;
const UDP_SUM: usize = 40;

/// The key of an untagged, unfragmented TCP or UDP packet over IPv4 without options, of 54 bytes at the least.
#[inline(always)]
pub(crate) fn plain(frame: &[u8]) -> Option<Tuple4> {
    let h = frame.first_chunk::<LONG>()?;
    let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    // EtherType, version and header length; flags and fragment offset, time to live, protocol
    let (front, middle) = (word(12), word(20));
    // of the flags only "don't fragment" may be set
    let odd = ((front & 0x00ff_ffff) ^ 0x0045_0008) | middle & 0xffbf;
    let protocol = (middle >> 24) as u8;
    let total = usize::from(u16::from_be_bytes([h[16], h[17]]));
    // TCP needs 20 bytes behind 20, UDP 8
    let least = if protocol == IpProtocol::TCP.0 { 40 } else { 28 };
    let plain = odd == 0
        && (protocol == IpProtocol::TCP.0 || protocol == IpProtocol::UDP.0)
        && total >= least
        && total <= frame.len() - 14;
    plain.then(|| Tuple4::of_wire(h[SRC..].first_chunk().expect("54 bytes"), protocol))
}

/// Translates a packet that is [`plain`]; false, and nothing done, if its session has to hear of it first.
#[inline(always)]
pub(super) fn rewrite(frame: &mut [u8], t: &Translation, way: Way) -> bool {
    let Some(h) = frame.first_chunk_mut::<LONG>() else { return false };
    let tcp = h[23] == IpProtocol::TCP.0;
    if !is_dull(t, tcp.then_some(h[47])) {
        return false;
    }
    let (address, port) = match way {
        Way::Out => (SRC, 34),
        Way::In => (DST, 36),
    };
    h[address..address + 4].copy_from_slice(&t.address);
    h[port..port + 2].copy_from_slice(&t.port);
    let sum = t.ip.apply([h[24], h[25]]);
    h[24..26].copy_from_slice(&sum);
    if tcp {
        let sum = t.upper.apply([h[TCP_SUM], h[TCP_SUM + 1]]);
        h[TCP_SUM..TCP_SUM + 2].copy_from_slice(&sum);
    } else {
        let sum = t.upper.apply_udp([h[UDP_SUM], h[UDP_SUM + 1]]);
        h[UDP_SUM..UDP_SUM + 2].copy_from_slice(&sum);
    }
    true
}
