//! Headers of one IP version in the place of the other's (RFC 7915 §4.1, §5.1).

use super::look::{Head, six_of, u16_at};
use crate::nat44::flow::{Change, Way};
use packet::Packet;
use wire::{EtherType, IpProtocol, checksum};

/// Bytes of the headers.
pub(super) const FOUR: usize = 20;
pub(super) const SIX: usize = 40;
pub(super) const FRAGMENT: usize = 8;
/// IPv4 packets up to this length may be fragmented: nobody tells hosts of IPv6 of links below 1280 (RFC 7915 §5.1).
pub(super) const MAY_BE_CUT: usize = 1260;
/// The least bytes of a frame without its checksum.
const FRAME: usize = 60;

/// Addresses as a packet gets them; those of IPv4 are the low 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub(super) src: u128,
    pub(super) dst: u128,
}

/// Up to 48 bytes of header.
pub(super) struct Header {
    bytes: [u8; SIX + FRAGMENT],
    len: usize,
}

impl Header {
    fn new() -> Self {
        Header { bytes: [0; SIX + FRAGMENT], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The IPv4 header for an IPv6 packet; `id` is for one that has none.
pub(super) fn header4(head: &Head, protocol: u8, ends: &Ends, hops: u8, id: u16) -> Header {
    let total = FOUR + head.len();
    let (id, flags) = match head.piece {
        true => (head.id as u16, head.offset >> 3 | u16::from(head.more) << 13),
        false => (id, u16::from(total > MAY_BE_CUT) << 14),
    };
    let mut header = Header::new();
    header.push(&[0x45, head.class]);
    header.push(&(total as u16).to_be_bytes());
    header.push(&id.to_be_bytes());
    header.push(&flags.to_be_bytes());
    header.push(&[hops, protocol, 0, 0]);
    header.push(&(ends.src as u32).to_be_bytes());
    header.push(&(ends.dst as u32).to_be_bytes());
    let sum = checksum::of(header.bytes()).to_be_bytes();
    header.bytes[10..12].copy_from_slice(&sum);
    header
}

/// The IPv6 header for an IPv4 packet, with a fragment header for a fragment.
pub(super) fn header6(head: &Head, ends: &Ends, hops: u8) -> Header {
    let part = head.is_part();
    let payload = head.len() + if part { FRAGMENT } else { 0 };
    let next = six_of(head.protocol);
    let mut header = Header::new();
    header.push(&(6 << 28 | u32::from(head.class) << 20).to_be_bytes());
    header.push(&(payload as u16).to_be_bytes());
    header.push(&[if part { IpProtocol::FRAGMENT.0 } else { next }, hops]);
    header.push(&ends.src.to_be_bytes());
    header.push(&ends.dst.to_be_bytes());
    if part {
        header.push(&fragment(next, head.offset, head.more, head.id));
    }
    header
}

/// A fragment header (RFC 8200 §4.5).
fn fragment(next: u8, offset: u16, more: bool, id: u32) -> [u8; FRAGMENT] {
    let [high, low] = (offset & !7 | u16::from(more)).to_be_bytes();
    let [a, b, c, d] = id.to_be_bytes();
    [next, 0, high, low, a, b, c, d]
}

/// Puts a header in the place of those of `head`; what stands behind the packet in its frame goes. False where there is no
/// room.
pub(super) fn reshape(packet: &mut Packet, head: &Head, header: &Header) -> bool {
    /// Addresses, and type, with as many tags as there may be.
    const LINK: usize = 14 + 4 * wire::flow::MAX_TAGS;
    let mut link = [0; LINK];
    let (old, new) = (head.upper - head.ip, header.len);
    let Some(kept) = link.get_mut(..head.ip) else { return false };
    kept.copy_from_slice(&packet.data()[..head.ip]);
    let kind = if head.six { EtherType::IPV4 } else { EtherType::IPV6 };
    let [.., a, b] = kept else { return false };
    [*a, *b] = kind.0.to_be_bytes();
    packet.truncate(head.end);
    let moved = if new > old { packet.prepend(new - old).is_some() } else { packet.trim_front(old - new) };
    if !moved {
        return false;
    }
    let data = packet.data_mut();
    data[..head.ip].copy_from_slice(&link[..head.ip]);
    data[head.ip..head.ip + new].copy_from_slice(header.bytes());
    pad(packet);
    true
}

/// Makes a short frame as long as Ethernet asks for.
#[inline(always)]
pub(super) fn pad(packet: &mut Packet) {
    if let Some(short) = FRAME.checked_sub(packet.len()).filter(|short| *short != 0)
        && let Some(padding) = packet.append(short)
    {
        padding.fill(0);
    }
}

/// What a checksum is over besides what is behind the ports: pseudo header and ports, or ICMP's type and identifier.
struct Summed {
    bytes: [u8; 48],
    len: usize,
}

impl Summed {
    fn new(six: bool, ends: &Ends) -> Self {
        let mut it = Summed { bytes: [0; 48], len: 0 };
        if six {
            it.push(&ends.src.to_be_bytes());
            it.push(&ends.dst.to_be_bytes());
        } else {
            it.push(&(ends.src as u32).to_be_bytes());
            it.push(&(ends.dst as u32).to_be_bytes());
        }
        it
    }

    fn none() -> Self {
        Summed { bytes: [0; 48], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

fn u16s(bytes: &[u8], at: usize) -> [u8; 2] {
    u16_at(bytes, at).to_be_bytes()
}

/// Gives what is behind the headers, TCP, UDP or an ICMP echo, its new port, and a checksum that is right with the new
/// addresses if it was before. `way` says which of the ports is new; `total` are the bytes of the whole datagram behind the
/// headers, which a pseudo header has. Of what is quoted and cut there may be no checksum.
pub(super) fn upper(bytes: &mut [u8], head: &Head, ends: &Ends, port: u16, way: Way, total: usize) {
    let before = Ends { src: head.src, dst: head.dst };
    let at = if way == Way::Out { 0 } else { 2 };
    let port = port.to_be_bytes();
    let sum = match IpProtocol(head.protocol) {
        IpProtocol::ICMPV4 => return echo(bytes, head, &before, ends, port, total),
        IpProtocol::TCP => 16,
        _ => 6,
    };
    let (mut old, mut new) = (Summed::new(head.six, &before), Summed::new(!head.six, ends));
    old.push(&u16s(bytes, at));
    new.push(&port);
    put(bytes, at, &port);
    let change = Change::new(&old.bytes[..old.len], &new.bytes[..new.len]);
    let sum_old = u16s(bytes, sum);
    let sum_new = if sum == 6 { change.apply_udp(sum_old) } else { change.apply(sum_old) };
    put(bytes, sum, &sum_new);
}

fn echo(bytes: &mut [u8], head: &Head, before: &Ends, ends: &Ends, id: [u8; 2], total: usize) {
    let kind = match (head.six, bytes.first()) {
        (true, Some(128)) => 8,
        (true, _) => 0,
        (false, Some(8)) => 128,
        (false, _) => 129,
    };
    // only that of IPv6 is over a pseudo header as well
    let [mut old, mut new] = match head.six {
        true => [Summed::new(true, before), Summed::none()],
        false => [Summed::none(), Summed::new(true, ends)],
    };
    let pseudo = if head.six { &mut old } else { &mut new };
    pseudo.push(&(total as u32).to_be_bytes());
    pseudo.push(&[0, IpProtocol::ICMPV6.0]);
    old.push(&u16s(bytes, 0));
    old.push(&u16s(bytes, 4));
    put(bytes, 0, &[kind]);
    put(bytes, 4, &id);
    new.push(&u16s(bytes, 0));
    new.push(&id);
    let sum = Change::new(&old.bytes[..old.len], &new.bytes[..new.len]).apply(u16s(bytes, 2));
    put(bytes, 2, &sum);
}

/// The pieces behind the first, as frames, of a frame with an IPv6 packet that is cut so that none is longer than `most`;
/// the frame becomes the first. `id` is for one that is no fragment yet. None, and no change, where it need not be cut.
pub(super) fn cut(packet: &mut Packet, ip: usize, most: usize, id: u32) -> Vec<Vec<u8>> {
    let frame = packet.data();
    let end = ip + SIX + usize::from(u16_at(frame, ip + 4));
    if end - ip <= most || end > frame.len() {
        return vec![];
    }
    let next = frame[ip + 6];
    // of a fragment that is cut once more
    let part = next == IpProtocol::FRAGMENT.0;
    let (begin, next, field, id) = match frame.get(ip + SIX..ip + SIX + FRAGMENT) {
        Some(&[next, _, a, b, c, d, e, f]) if part => {
            (ip + SIX + FRAGMENT, next, u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
        }
        _ => (ip + SIX, next, 0, id),
    };
    let room = (most - SIX - FRAGMENT) & !7;
    let body = &frame[begin..end];
    let pieces = body.chunks(room).enumerate().map(|(n, chunk)| {
        let offset = (field & !7) as usize + n * room;
        let last = (n + 1) * room >= body.len();
        let mut piece = frame[..ip + SIX].to_vec();
        piece[ip + 4..ip + 6].copy_from_slice(&((FRAGMENT + chunk.len()) as u16).to_be_bytes());
        piece[ip + 6] = IpProtocol::FRAGMENT.0;
        piece.extend(fragment(next, offset as u16, !last || field & 1 != 0, id));
        piece.extend(chunk);
        piece
    });
    let mut pieces: Vec<_> = pieces.collect();
    let first = pieces.remove(0);
    packet.truncate(first.len().min(packet.len()));
    packet.data_mut().copy_from_slice(&first);
    pieces
}
