//! Parsing of a frame into a segment of a flow.

use super::stream_state::Segment;
use super::transport::Transport;
use tables::flow::{Tuple4, Tuple6};
use wire::checksum::Pseudo;
use wire::flow::{FiveTuple, MAX_TAGS};
use wire::{EtherType, Ethernet, Follows, Header, Ipv4, Ipv6, Vlan};

/// Classification of a frame.
pub(crate) enum Frame {
    /// Another protocol.
    Other,
    /// The transport, but malformed or a fragment.
    Unreadable,
    /// A packet over IPv4.
    V4(Tuple4, FlowPacket),
    /// A packet over IPv6.
    V6(Tuple6, FlowPacket),
}

/// Classification of a packet of a batch whose flow is looked up separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Classified {
    /// Not processed by the node.
    Other,
    /// The transport, but without a known flow.
    Unreadable,
    /// A packet of a flow.
    Ours,
}

/// A packet as its flow processes it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FlowPacket {
    /// Direction: 0 from the end with the smaller address and port, 1 to it.
    pub(crate) way: u8,
    pub(crate) segment: Segment,
    /// Offset of the payload in the frame.
    pub(crate) at: u32,
    /// Length of the payload in bytes.
    pub(crate) len: u32,
}

impl FlowPacket {
    /// Returns the payload.
    #[inline(always)]
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let at = self.at as usize;
        frame.get(at..at + self.len as usize).unwrap_or_default()
    }
}

#[inline(always)]
fn lay<H: Header>(bytes: &[u8]) -> Option<&H> {
    H::ref_from_prefix(bytes).ok().map(|(header, _)| header)
}

/// Parses a frame, also behind VLAN tags. `sums`: frames with a wrong checksum count as unreadable.
#[inline(always)]
pub(crate) fn read<T: Transport>(frame: &[u8], sums: bool) -> Frame {
    let Some(ethernet) = lay::<Ethernet>(frame) else { return Frame::Other };
    let (mut kind, mut at) = (ethernet.ether_type(), size_of::<Ethernet>());
    if kind.is_vlan() {
        (kind, at) = behind_tags(frame, kind, at);
    }
    match kind {
        EtherType::IPV4 => read4::<T>(frame, at, sums),
        EtherType::IPV6 => read6::<T>(frame, at, sums),
        _ => Frame::Other,
    }
}

#[cold]
fn behind_tags(frame: &[u8], mut kind: EtherType, mut at: usize) -> (EtherType, usize) {
    for _ in 0..MAX_TAGS {
        let Some(tag) = frame.get(at..).and_then(lay::<Vlan>).filter(|_| kind.is_vlan()) else { break };
        (kind, at) = (tag.ether_type(), at + size_of::<Vlan>());
    }
    (kind, at)
}

#[inline(always)]
fn read4<T: Transport>(frame: &[u8], at: usize, sums: bool) -> Frame {
    let ip = frame.get(at..).unwrap_or_default();
    let (Ok(len), Some(header)) = (Ipv4::check(ip), lay::<Ipv4>(ip)) else {
        return if lay::<Ipv4>(ip).is_some_and(|ip| ip.protocol() == T::PROTOCOL) {
            Frame::Unreadable
        } else {
            Frame::Other
        };
    };
    if header.protocol() != T::PROTOCOL {
        return Frame::Other;
    }
    if header.is_fragment() {
        return Frame::Unreadable;
    }
    let Some(([src_port, dst_port], mut part)) = read_transport::<T>(frame, at + len, at + Ipv4::extent(ip)) else {
        return Frame::Unreadable;
    };
    if sums && !sums4::<T>(ip, len) {
        return Frame::Unreadable;
    }
    let (src, dst) = (header.src_bits(), header.dst_bits());
    let back = (src, src_port) > (dst, dst_port);
    part.way = back.into();
    let protocol = T::PROTOCOL.0;
    let key = if back {
        Tuple4::new(dst, src, dst_port, src_port, protocol)
    } else {
        Tuple4::new(src, dst, src_port, dst_port, protocol)
    };
    Frame::V4(key, part)
}

/// Returns true if the checksums of an IPv4 packet with a header of `len` bytes are correct.
#[inline(never)]
fn sums4<T: Transport>(ip: &[u8], len: usize) -> bool {
    let payload = ip.get(len..Ipv4::extent(ip)).unwrap_or_default();
    wire::ipv4::Packet::new(ip).is_ok_and(|ip| ip.checksum_ok() && T::sum_is_right(payload, ip.pseudo()))
}

#[inline(never)]
fn read6<T: Transport>(frame: &[u8], at: usize, sums: bool) -> Frame {
    let ip = frame.get(at..).unwrap_or_default();
    let (Ok(len), Some(header)) = (Ipv6::check(ip), lay::<Ipv6>(ip)) else {
        return if lay::<Ipv6>(ip).is_some_and(|ip| ip.next_header() == T::PROTOCOL) {
            Frame::Unreadable
        } else {
            Frame::Other
        };
    };
    if header.next_header().is_extension()
        && FiveTuple::of_ipv6(ip).is_some_and(|flow| flow.protocol == T::PROTOCOL && flow.src_port == 0)
    {
        return Frame::Unreadable;
    }
    if !<T as Follows<Ipv6>>::announced_by(&ip[..len]) {
        return Frame::Other;
    }
    let Some(([src_port, dst_port], mut part)) = read_transport::<T>(frame, at + len, at + Ipv6::extent(ip)) else {
        return Frame::Unreadable;
    };
    let pseudo = || Pseudo::v6(header.src(), header.dst(), T::PROTOCOL);
    if sums && !T::sum_is_right(&ip[len..Ipv6::extent(ip)], pseudo()) {
        return Frame::Unreadable;
    }
    let (src, dst) = (header.src().to_bits(), header.dst().to_bits());
    let back = (src, src_port) > (dst, dst_port);
    part.way = back.into();
    let protocol = T::PROTOCOL.0;
    let key = if back {
        Tuple6::new(dst, src, dst_port, src_port, protocol)
    } else {
        Tuple6::new(src, dst, src_port, dst_port, protocol)
    };
    Frame::V6(key, part)
}

#[inline(always)]
fn read_transport<T: Transport>(frame: &[u8], at: usize, end: usize) -> Option<([u16; 2], FlowPacket)> {
    let bytes = frame.get(at..end)?;
    let len = T::check(bytes).ok()?;
    let (ports, segment) = lay::<T>(bytes)?.read(bytes.get(..len)?);
    let payload = T::extent(bytes) - len;
    Some((ports, FlowPacket { way: 0, segment, at: (at + len) as u32, len: payload as u32 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Tcp, Udp, build};

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    fn tcp(frame: &[u8]) -> (FiveTuple, FlowPacket) {
        match read::<Tcp>(frame, true) {
            Frame::V4(key, part) => (key.five_tuple(), part),
            Frame::V6(key, part) => (key.five_tuple(), part),
            _ => panic!("not TCP"),
        }
    }

    #[test]
    fn both_directions_have_one_key() {
        let there = build::tcp4(A, B, 40_000, 80).seq(7).ack(9).payload(b"abc").vlan(3).qinq(4).to_vec();
        let back = build::tcp4(B, A, 80, 40_000).seq(9).payload(b"").pad_to(60).to_vec();
        let ((key, part), (other, reply)) = (tcp(&there), tcp(&back));
        assert_eq!(key, other);
        assert_eq!(key, FiveTuple::of_frame(&there).unwrap());
        assert_eq!((part.way, reply.way, part.payload(&there), reply.payload(&back)), (0, 1, &b"abc"[..], &b""[..]));
        assert_eq!((part.segment.seq, part.segment.ack), (7, 9));

        let [a, b] = [[0u16, 0, 0, 0, 0, 0, 0, 1], [0u16, 0, 0, 0, 0, 0, 0, 2]];
        let there = build::tcp6(b, a, 80, 40_000).payload(b"six").to_vec();
        let (key, part) = tcp(&there);
        assert_eq!((key, part.way), (FiveTuple::of_frame(&there).unwrap().reversed(), 1));
        assert_eq!(part.payload(&there), b"six");
    }

    #[test]
    fn what_cannot_be_read_is_told_from_what_is_something_else() {
        let frame = build::tcp4(A, B, 1, 2).payload(&[1; 100]).to_vec();
        for cut in [0, 13, 14, 20, 33] {
            assert!(matches!(read::<Tcp>(&frame[..cut], false), Frame::Other), "{cut}");
        }
        for cut in [34, 50, 153] {
            assert!(matches!(read::<Tcp>(&frame[..cut], false), Frame::Unreadable), "{cut}");
        }
        assert!(matches!(read::<Udp>(&frame, false), Frame::Other));
        let part = build::tcp4(A, B, 1, 2).payload(&[1; 100]);
        for frame in [part.clone().fragment(0, true), part.fragment(64, false)] {
            assert!(matches!(read::<Tcp>(&frame.to_vec(), false), Frame::Unreadable));
        }
        let six = build::tcp6([0u16, 0, 0, 0, 0, 0, 0, 1], [0u16, 0, 0, 0, 0, 0, 0, 2], 1, 2).payload(&[1; 100]);
        for frame in [six.clone().fragment(0, true, 5), six.fragment(64, false, 5)] {
            assert!(matches!(read::<Tcp>(&frame.to_vec(), false), Frame::Unreadable));
        }
        assert!(matches!(read::<Tcp>(&build::arp_request(A, B).to_vec(), false), Frame::Other));
    }

    #[test]
    fn a_wrong_checksum_can_be_told() {
        let mut frames = vec![build::tcp4(A, B, 1, 2).payload(b"abc").to_vec()];
        frames.push(build::tcp6([0u16, 0, 0, 0, 0, 0, 0, 1], [0u16, 0, 0, 0, 0, 0, 0, 2], 1, 2).payload(b"x").to_vec());
        for mut frame in frames {
            assert!(!matches!(read::<Tcp>(&frame, true), Frame::Unreadable));
            *frame.last_mut().unwrap() ^= 1;
            assert!(matches!(read::<Tcp>(&frame, true), Frame::Unreadable));
            assert!(!matches!(read::<Tcp>(&frame, false), Frame::Unreadable));
        }
        let mut frame = build::udp4(A, B, 1, 2).payload(b"abc").to_vec();
        assert!(matches!(read::<Udp>(&frame, true), Frame::V4(..)));
        // in the IPv4 header
        frame[24] ^= 1;
        assert!(matches!(read::<Udp>(&frame, true), Frame::Unreadable));
    }

    #[test]
    fn a_window_scale_is_read_from_a_syn() {
        let options = wire::tcp::options(&[wire::tcp::TcpOption::Mss(1460), wire::tcp::TcpOption::WindowScale(9)]);
        let syn = build::tcp4(A, B, 1, 2).tcp_options(options.unwrap());
        assert_eq!(tcp(&syn.to_vec()).1.segment.scale, 9);
        assert_eq!(tcp(&syn.flags(wire::TcpFlags::ACK).to_vec()).1.segment.scale, 0);
    }
}
