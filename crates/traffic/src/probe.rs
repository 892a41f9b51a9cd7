//! The probe in a packet's payload, by which the receiver identifies it.
//!
//! 18 bytes at the start of the UDP or TCP payload, so that a 64-byte frame of UDP over IPv4 has room for it
//! (14 + 20 + 8 + 18 = 60, and 4 of frame check sequence). The smallest frames for the other stacks are
//! [`MIN_SIZE`]'s. All fields are little endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | [`MAGIC`] |
//! | 4–5 | check over the rest |
//! | 6–10 | sequence number, 40 bits: 20 hours at 14.88 Mpps before it starts over |
//! | 11 | stream |
//! | 12–17 | departure stamp, the low 48 bits of a tick counter: 26 hours at 3 GHz |
//!
//! A network function may change whatever lies outside the payload without breaking the probe: MAC addresses, VLAN
//! tags, time to live, traffic class, addresses, ports, options, checksums; it may add or remove a tunnel. [`find`] looks
//! for the probe behind up to four VLAN tags, behind MPLS labels or PPPoE, behind IPv4 options and IPv6 extension headers,
//! and within one tunnel of VXLAN, GTP-U, SRv6 or IP in IP, if headers are 256 bytes or less in all. Fragments, other
//! tunnels and encryption hide it, unless the receiver is given its offset. A payload may only be changed behind the
//! probe, and if the receiver checks payloads, not at all.

use wire::checksum::Sum;
use wire::flow::FiveTuple;
use wire::{EtherType, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp, ipv4, ipv6};

use crate::stack;

/// Bytes of a probe.
pub const LEN: usize = 18;
/// First bytes of a probe: `BsPr`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"BsPr");
/// Bits of a sequence number.
pub const SEQUENCE_BITS: u32 = 40;
/// Bits of a stamp.
pub const STAMP_BITS: u32 = 48;

/// MPLS labels that are looked behind.
const MAX_LABELS: usize = 16;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// Smallest frames with a probe, frame check sequence included: UDP over IPv4 and IPv6, TCP over IPv4 and IPv6.
pub const MIN_SIZE: [u16; 4] = [64, 84, 76, 96];

/// Contents of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probe {
    /// Which stream of packets: numbers are given out for each by itself.
    pub stream: u8,
    /// The packet's number in its stream; only the low 40 bits travel.
    pub sequence: u64,
    /// When it left, in ticks of the sender's clock; only the low 48 bits travel.
    pub stamp: u64,
}

/// Result of parsing a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// A probe.
    Probe(Probe),
    /// A probe whose number, stream or stamp was damaged.
    Corrupt,
    /// Something else. A probe with a damaged magic counts as this.
    Foreign,
}

/// A random sample of probes: the same probes wherever it is taken.
///
/// Probes are chosen by a hash of stream and number, so that the sample is independent of periods in the traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Largest hash of the probes in the sample.
    highest: u64,
}

impl Sample {
    /// Returns a sample of one probe in `every` on average; 0 counts as 1.
    pub const fn one_in(every: u64) -> Sample {
        Sample { highest: if every > 1 { u64::MAX / every } else { u64::MAX } }
    }

    /// Returns true if a probe is in the sample.
    #[inline(always)]
    pub fn contains(self, probe: Probe) -> bool {
        self.highest == u64::MAX || hash(probe.identity()) <= self.highest
    }
}

/// Returns a hash of a probe's identity (the finalizer of SplitMix64).
#[inline(always)]
fn hash(identity: u64) -> u64 {
    let mixed = (identity ^ identity >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Probe {
    /// Returns the stream and the part of the number that travels, in 48 bits.
    #[inline(always)]
    pub const fn identity(self) -> u64 {
        self.sequence & SEQUENCE_MASK | (self.stream as u64) << SEQUENCE_BITS
    }

    /// Returns the bytes of the probe, as two words and a half.
    #[inline(always)]
    pub(crate) fn words(self) -> (u64, u64, u16) {
        let identity = self.identity();
        let stamp = self.stamp & STAMP_MASK;
        let first = u64::from(MAGIC) | u64::from(check(identity, stamp)) << 32 | identity << 48;
        (first, identity >> 16 | stamp << 32, (stamp >> 32) as u16)
    }

    /// Returns the bytes to put in front of a payload.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; LEN] {
        let (first, second, third) = self.words();
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        bytes[16..].copy_from_slice(&third.to_le_bytes());
        bytes
    }

    /// Parses a probe at the start of `bytes`.
    #[inline(always)]
    pub fn read(bytes: &[u8; LEN]) -> Reading {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let [i, j, k, l, m, n, o, p, q, r] = rest;
        let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let second = u64::from_le_bytes([i, j, k, l, m, n, o, p]);
        let third = u16::from_le_bytes([q, r]);
        if first as u32 != MAGIC {
            return Reading::Foreign;
        }
        let identity = first >> 48 | (second & 0xffff_ffff) << 16;
        let stamp = second >> 32 | u64::from(third) << 32;
        if (first >> 32) as u16 != check(identity, stamp) {
            return Reading::Corrupt;
        }
        Reading::Probe(Self { stream: (identity >> SEQUENCE_BITS) as u8, sequence: identity & SEQUENCE_MASK, stamp })
    }

    /// Parses a probe at offset `at` or, if there is none, at the payload that the headers announce.
    ///
    /// The second number is where it was found; `usize::MAX` as `at` leaves it to the headers.
    #[inline(always)]
    pub fn read_at(frame: &[u8], at: usize) -> (Reading, usize) {
        match frame.get(at..).and_then(<[u8]>::first_chunk).map(Self::read) {
            Some(Reading::Foreign) | None => Self::search(frame, at),
            Some(reading) => (reading, at),
        }
    }

    #[inline(never)]
    fn search(frame: &[u8], at: usize) -> (Reading, usize) {
        if !has_magic(frame) {
            return (Reading::Foreign, at);
        }
        match find(frame).filter(|place| *place != at) {
            Some(place) => {
                let bytes = frame.get(place..).and_then(<[u8]>::first_chunk);
                (bytes.map_or(Reading::Foreign, Self::read), place)
            }
            None => (Reading::Foreign, at),
        }
    }

    /// Ticks from this probe's stamp to `now`, of which only the low 48 bits matter; 0 if the stamp lies in the
    /// future, as when two cores' counters differ by a little.
    #[inline(always)]
    pub fn age(self, now: u64) -> u64 {
        let age = now.wrapping_sub(self.stamp) & STAMP_MASK;
        if age >> (STAMP_BITS - 1) == 0 { age } else { 0 }
    }
}

/// Returns true if [`MAGIC`] is at any offset of a frame where a payload may start. Headers are multiples of four bytes,
/// except Ethernet's 14: checking every fourth offset is cheaper than parsing them.
#[inline(always)]
fn has_magic(frame: &[u8]) -> bool {
    /// Behind Ethernet, IPv4 and UDP.
    const FIRST: usize = 14 + 20 + 8;
    /// The same within the smallest tunnel: two more bytes off the multiple of four.
    const WITHIN: usize = FIRST + 8 + FIRST;
    const DEEPEST: usize = 256;
    let any = |first: usize| {
        let (words, _) = frame.get(first..).unwrap_or_default().as_chunks::<4>();
        let words = &words[..words.len().min((DEEPEST - first) / 4 + 1)];
        words.iter().fold(false, |any, word| any | (u32::from_le_bytes(*word) == MAGIC))
    };
    any(FIRST) | any(WITHIN)
}

/// 16 bits in which every single changed bit of number, stream or stamp shows, and others all but 1 in 65,536 times.
#[inline(always)]
fn check(identity: u64, stamp: u64) -> u16 {
    let mixed = (identity ^ stamp.rotate_left(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stamp;
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 48) as u16
}

/// Where the payload of the UDP or TCP packet in an Ethernet frame begins, if it is one, not a fragment, and has room
/// for a probe.
pub fn find(frame: &[u8]) -> Option<usize> {
    payload(frame).filter(|place| place.end - place.start >= LEN).map(|place| place.start)
}

/// The payload of the UDP or TCP packet in a frame, of the inner one in a tunnel.
pub(crate) fn payload(frame: &[u8]) -> Option<Payload> {
    let outer = Upper::of(frame, network(frame, 0)?)?;
    let (within, checksum) = match outer.protocol {
        IpProtocol::IPV4 | IpProtocol::IPV6 => (Some(outer.start), None),
        _ => {
            let payload = outer.payload(frame)?;
            (inner_network(frame, &payload), Some(payload.checksum))
        }
    };
    let within = within.and_then(|at| {
        let frame = frame.get(..outer.end)?;
        Upper::of(frame, at)?.payload(frame)
    });
    match within {
        Some(within) => Some(Payload { tunnel: checksum, ..within }),
        None => outer.payload(frame),
    }
}

/// Returns the offset of the IP header within the VXLAN or GTP-U tunnel that this is the payload of.
fn inner_network(frame: &[u8], outer: &Payload) -> Option<usize> {
    let port = u16::from_be_bytes(*frame.get(outer.transport + 2..)?.first_chunk()?);
    let flags = *frame.get(outer.start)?;
    match port {
        _ if outer.start != outer.transport + 8 => None,
        stack::VXLAN_PORT if flags & stack::VXLAN_FLAGS != 0 => network(frame, outer.start + stack::VXLAN_LEN),
        stack::GTPU_PORT => Some(outer.start + gtpu_len(frame.get(outer.start..)?)?),
        _ => None,
    }
}

/// Returns the length of a GTP-U header with its extension headers (3GPP TS 29.281 §5).
fn gtpu_len(header: &[u8]) -> Option<usize> {
    let flags = *header.first()?;
    if flags & 0xf0 != stack::GTPU_FLAGS {
        return None;
    }
    // the flags E, S and PN: a next extension header, a sequence number and an N-PDU number
    if flags & 0x07 == 0 {
        return Some(stack::GTPU_LEN);
    }
    let mut len = stack::GTPU_LEN + 4;
    let mut next = if flags & 0x04 != 0 { *header.get(len - 1)? } else { 0 };
    while next != 0 {
        len += 4 * usize::from(*header.get(len).filter(|words| **words != 0)?);
        next = *header.get(len - 1)?;
    }
    Some(len)
}

/// Returns the offset of the IP header in the frame at `at`, behind VLAN tags and either MPLS labels or PPPoE.
fn network(frame: &[u8], at: usize) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut ether_type = EtherType(word(at + 12)?);
    let mut at = at + 14;
    for _ in 0..wire::flow::MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        ether_type = EtherType(word(at + 2)?);
        at += 4;
    }
    match ether_type {
        EtherType::IPV4 | EtherType::IPV6 => Some(at),
        EtherType::MPLS => {
            // the lowest bit of the third byte is set in the last label (RFC 3032 §2.1)
            let is_last = |label: &[u8; 4]| label[2] & 1 != 0;
            let (labels, _) = frame.get(at..)?.as_chunks();
            Some(at + 4 * (labels.iter().take(MAX_LABELS).position(is_last)? + 1))
        }
        EtherType::PPPOE => {
            let protocol = word(at + stack::PPPOE_LEN - 2)?;
            [stack::PPP_IPV4, stack::PPP_IPV6].contains(&protocol).then_some(at + stack::PPPOE_LEN)
        }
        _ => None,
    }
}

/// Places in an IP packet.
struct Upper {
    network: usize,
    protocol: IpProtocol,
    /// True if it has ports.
    has_ports: bool,
    /// First byte behind the IP header and its extension headers.
    start: usize,
    /// Behind the packet.
    end: usize,
}

impl Upper {
    /// Parses the IP header at `network`; none for fragments.
    fn of(frame: &[u8], network: usize) -> Option<Upper> {
        let packet = frame.get(network..)?;
        let (tuple, header, extent) = match packet.first()? >> 4 {
            4 if !ipv4::Packet::new(packet).ok()?.header().is_fragment() => {
                (FiveTuple::of_ipv4(packet)?, Ipv4::check(packet).ok()?, Ipv4::extent(packet))
            }
            6 => {
                let fragment = |extension: ipv6::Extension<'_>| extension.kind == IpProtocol::FRAGMENT;
                if ipv6::Packet::new(packet).ok()?.extensions().any(fragment) {
                    return None;
                }
                (FiveTuple::of_ipv6(packet)?, Ipv6::check(packet).ok()?, Ipv6::extent(packet))
            }
            _ => return None,
        };
        let has_ports = tuple.src_port != 0 || tuple.dst_port != 0;
        let (start, end) = (network + header, network + extent);
        Some(Upper { network, protocol: tuple.protocol, has_ports, start, end })
    }

    /// Returns the payload of UDP or TCP.
    fn payload(&self, frame: &[u8]) -> Option<Payload> {
        let upper = frame.get(self.start..self.end).filter(|_| self.has_ports)?;
        let (header, end, checksum) = match self.protocol {
            IpProtocol::UDP => (Udp::check(upper).ok()?, Udp::extent(upper), 6),
            IpProtocol::TCP => (Tcp::check(upper).ok()?, upper.len(), 16),
            _ => return None,
        };
        Some(Payload {
            network: self.network,
            transport: self.start,
            checksum: self.start + checksum,
            start: self.start + header,
            end: self.start + end,
            tunnel: None,
        })
    }
}

/// Places in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Payload {
    /// The IP header.
    pub(crate) network: usize,
    /// The UDP or TCP header.
    pub(crate) transport: usize,
    /// Its checksum field.
    pub(crate) checksum: usize,
    /// The payload.
    pub(crate) start: usize,
    /// Behind the payload, before padding.
    pub(crate) end: usize,
    /// The checksum field of the tunnel that it is in.
    pub(crate) tunnel: Option<usize>,
}

/// Returns the contribution of a probe to a checksum over its payload, if the payload starts at an even offset.
#[inline(always)]
pub(crate) fn sum((first, second, third): (u64, u64, u16)) -> u64 {
    // The words are little endian on every machine, the sum is native: on this side of the swap it is the same.
    let (first, second, third) = (first.to_le(), second.to_le(), third.to_le());
    (first & 0xffff_ffff) + (first >> 32) + (second & 0xffff_ffff) + (second >> 32) + u64::from(third)
}

/// Returns the sum over `bytes`, to which [`Sum`] and this crate's sums add up.
pub(crate) fn partial(sum: Sum) -> u16 {
    (!sum.finish()).to_be()
}

/// Returns the checksum field, native order, for a sum below 2⁴⁸; see RFC 1071.
#[inline(always)]
pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}

/// [`fold`] for two parts.
#[inline(always)]
pub(crate) fn fold_two(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    !(sum + u16::from(carry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::build;

    #[test]
    fn every_flipped_bit_shows() {
        for seed in 0..200_u64 {
            let numbers = crate::random::scramble(seed);
            let probe = Probe { stream: seed as u8, sequence: numbers >> 24, stamp: numbers & STAMP_MASK };
            for bit in 0..8 * LEN {
                let mut bytes = probe.to_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let expected = if bit < 32 { Reading::Foreign } else { Reading::Corrupt };
                assert_eq!(Probe::read(&bytes), expected, "bit {bit} of {probe:?}");
            }
        }
    }

    #[test]
    fn random_damage_is_missed_rarely() {
        let mut random = crate::random::Random::new(3);
        let mut missed = 0;
        for _ in 0..100_000 {
            let probe =
                Probe { stream: 1, sequence: random.next_u64() & SEQUENCE_MASK, stamp: random.next_u64() >> 16 };
            let mut bytes = probe.to_bytes();
            bytes[6..].copy_from_slice(&{
                let mut noise = [0; 12];
                noise[..8].copy_from_slice(&random.next_u64().to_le_bytes());
                noise
            });
            missed += usize::from(Probe::read(&bytes) != Reading::Corrupt);
        }
        assert!(missed < 20, "{missed} of 100,000");
    }

    #[test]
    fn stamps_start_over() {
        let probe = Probe { stamp: STAMP_MASK - 10, ..Probe::default() };
        assert_eq!(probe.age(STAMP_MASK + 90), 100);
        assert_eq!(probe.age(89), 100);
        assert_eq!(probe.age(STAMP_MASK - 20), 0, "from the future");
    }

    #[test]
    fn smallest_frames_hold_a_probe() {
        let payload = [0; LEN];
        let (a4, b4, a6, b6) = ([10, 0, 0, 1], [10, 0, 0, 2], [1; 16], [2; 16]);
        let frames = [
            build::udp4(a4, b4, 1, 2).payload(&payload).to_vec(),
            build::udp6(a6, b6, 1, 2).payload(&payload).to_vec(),
            build::tcp4(a4, b4, 1, 2).payload(&payload).to_vec(),
            build::tcp6(a6, b6, 1, 2).payload(&payload).to_vec(),
        ];
        for (frame, size) in frames.iter().zip(MIN_SIZE) {
            assert_eq!(frame.len() + 4, usize::from(size));
            assert_eq!(find(frame), Some(frame.len() - LEN));
            assert_eq!(find(&frame[..frame.len() - 1]), None);
        }
    }

    #[test]
    fn found_behind_what_functions_add() {
        let probe = Probe { stream: 3, sequence: 5, stamp: 7 };
        let bytes = probe.to_bytes();
        let udp = || build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 2000).payload(&bytes);
        let options = ipv4::options(&[ipv4::Ipv4Option::RouterAlert(0)]).unwrap();
        let frames = [
            (udp().to_vec(), 42),
            (udp().ttl(1).dscp(46).src_mac(wire::MacAddr([2; 6])).to_vec(), 42),
            (udp().vlan(7).to_vec(), 46),
            (udp().qinq(7).vlan(8).pad_to(90).to_vec(), 50),
            (udp().ip_options(options).to_vec(), 46),
            (build::udp6([1; 16], [2; 16], 1, 2).extension(IpProtocol::HOP_BY_HOP, &[]).payload(&bytes).to_vec(), 70),
            (build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&bytes).to_vec(), 54),
        ];
        for (frame, place) in frames {
            assert_eq!(Probe::read_at(&frame, 42), (Reading::Probe(probe), place));
            assert_eq!(Probe::read_at(&frame, 9999), (Reading::Probe(probe), place));
        }
        assert_eq!(Probe::read_at(&udp().fragment(0, true).to_vec(), 43).0, Reading::Foreign);
        let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).pad_to(60).to_vec();
        assert_eq!(Probe::read_at(&arp, 42), (Reading::Foreign, 42));
    }

    #[test]
    fn the_magic_is_seen_wherever_a_payload_begins() {
        let probe = Probe { stream: 3, sequence: 5, stamp: 7 }.to_bytes();
        let (a6, b6) = ([1; 16], [2; 16]);
        for more in 0..20 {
            let frame = build::udp6(a6, b6, 1, 2).extension(IpProtocol::HOP_BY_HOP, &vec![0; 8 * more]);
            let frame = frame.qinq(7).vlan(8).payload(&probe).to_vec();
            let place = find(&frame).unwrap();
            assert_eq!(Probe::read_at(&frame, usize::MAX).1 == place, place <= 256, "{place}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(stream: u8, sequence in 0..=SEQUENCE_MASK, stamp in 0..=STAMP_MASK) {
            let probe = Probe { stream, sequence, stamp };
            prop_assert_eq!(Probe::read(&probe.to_bytes()), Reading::Probe(probe));
            let expected = wire::checksum::of(&probe.to_bytes());
            prop_assert_eq!(u16::from_be(fold(sum(probe.words()))), expected);
        }

        #[test]
        fn any_bytes_are_read(frame in prop::collection::vec(any::<u8>(), 0..120), at in 0_usize..130) {
            let _ = (Probe::read_at(&frame, at), find(&frame));
        }
    }
}
