//! Header templates of the output packets of one direction.

use crate::window::piece::behind;
use packet::Packet;
use wire::checksum::Pseudo;
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, Header, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags, Vlan};
use zerocopy::FromBytes;

/// Room for headers before TCP: Ethernet with tags, and IP with options or extension headers.
const MOST: usize = 14 + 4 * MAX_TAGS + 98;
/// Length of a TCP header with timestamps: two padding bytes precede the option (RFC 7323 appendix A).
const STAMPED: usize = size_of::<Tcp>() + 12;
const STAMP: [u8; 4] = [1, 1, 8, 10];

/// Offsets of the headers in a frame.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct HeaderOffsets {
    pub(super) ip: usize,
    pub(super) tcp: usize,
    /// Offset of the payload and end of the packet, without Ethernet padding.
    pub(super) payload: usize,
    pub(super) end: usize,
    pub(super) v6: bool,
}

impl HeaderOffsets {
    /// Locates the headers of a frame that contains TCP over IP.
    pub(super) fn of(frame: &[u8]) -> Option<HeaderOffsets> {
        let ethernet = Ethernet::ref_from_prefix(frame).ok()?.0;
        let (mut kind, mut ip) = (ethernet.ether_type(), size_of::<Ethernet>());
        for _ in 0..MAX_TAGS {
            if !kind.is_vlan() {
                break;
            }
            kind = Vlan::ref_from_prefix(frame.get(ip..)?).ok()?.0.ether_type();
            ip += size_of::<Vlan>();
        }
        let v6 = kind == EtherType::IPV6;
        let bytes = frame.get(ip..)?;
        let (len, extent) = if v6 {
            (Ipv6::check(bytes).ok()?, Ipv6::extent(bytes))
        } else {
            (Ipv4::check(bytes).ok()?, Ipv4::extent(bytes))
        };
        let header = Tcp::check(bytes.get(len..extent)?).ok()?;
        Some(HeaderOffsets { ip, tcp: ip + len, payload: ip + len + header, end: ip + extent, v6 })
    }

    /// Returns the sum of the pseudo header of a segment.
    fn pseudo(&self, frame: &[u8]) -> Option<Pseudo> {
        let ip = frame.get(self.ip..)?;
        if self.v6 {
            let header = Ipv6::ref_from_prefix(ip).ok()?.0;
            Some(Pseudo::v6(header.src(), header.dst(), IpProtocol::TCP))
        } else {
            let header = Ipv4::ref_from_prefix(ip).ok()?.0;
            Some(Pseudo::v4(header.src(), header.dst(), IpProtocol::TCP))
        }
    }

    /// Returns true if the checksums of the frame are correct.
    pub(super) fn has_valid_checksums(&self, frame: &[u8]) -> bool {
        let (Some(pseudo), Some(segment)) = (self.pseudo(frame), frame.get(self.tcp..self.end)) else { return false };
        let header = frame.get(self.ip..self.tcp).unwrap_or_default();
        (self.v6 || wire::checksum::verify(header)) && pseudo.sum(segment).is_valid()
    }

    /// Writes lengths and checksums into a frame that ends with its segment.
    pub(super) fn write_checksums(&self, frame: &mut [u8]) {
        let len = frame.len() - self.ip;
        if self.v6 {
            if let Ok((header, _)) = Ipv6::mut_from_prefix(&mut frame[self.ip..]) {
                header.set_payload_length((len - size_of::<Ipv6>()) as u16);
            }
        } else {
            if let Ok((header, _)) = Ipv4::mut_from_prefix(&mut frame[self.ip..]) {
                header.set_total_length(len as u16);
                header.set_checksum(0);
            }
            let sum = wire::checksum::of(&frame[self.ip..self.tcp]);
            if let Ok((header, _)) = Ipv4::mut_from_prefix(&mut frame[self.ip..]) {
                header.set_checksum(sum);
            }
        }
        let Some(pseudo) = self.pseudo(frame) else { return };
        if let Ok((header, _)) = Tcp::mut_from_prefix(&mut frame[self.tcp..]) {
            header.set_checksum(0);
        }
        let sum = pseudo.sum(&frame[self.tcp..]).finish();
        if let Ok((header, _)) = Tcp::mut_from_prefix(&mut frame[self.tcp..]) {
            header.set_checksum(sum);
        }
    }
}

/// Fields of a segment to build.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFields {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: TcpFlags,
    pub(super) window: u16,
    /// Payload length in bytes.
    pub(super) len: usize,
    /// ECN flags.
    pub(super) ecn: u8,
}

/// Header template of one direction: the headers of the last received packet, up to TCP.
pub(super) struct HeaderTemplate {
    bytes: [u8; MOST],
    place: HeaderOffsets,
    ports: [u16; 2],
    /// Port that its packets are received from.
    port: u16,
    /// IPv4 identification of the next packet.
    ident: u16,
    /// ECN bits of the packet in process.
    pub(super) ecn: u8,
    /// True if bytes not yet sent were marked "congestion experienced" (RFC 3168 §5).
    pub(super) congested: bool,
    /// Longest IP packet since the last retransmission of the sender.
    longest: usize,
    /// Timestamp value and echo reply (RFC 7323 §3), if both ends use timestamps.
    stamps: Option<[u32; 2]>,
    /// TS.Recent (RFC 7323 §4.3): older timestamps are rejected.
    recent: u32,
}

impl Default for HeaderTemplate {
    fn default() -> Self {
        let place = HeaderOffsets::default();
        HeaderTemplate {
            bytes: [0; MOST],
            place,
            ports: [0; 2],
            port: 0,
            ident: 0,
            ecn: 0,
            congested: false,
            longest: 0,
            stamps: None,
            recent: 0,
        }
    }
}

impl HeaderTemplate {
    /// Returns true if a frame has the VLAN tags of the frames before it.
    pub(super) fn has_tags_of(&self, frame: &[u8], place: &HeaderOffsets) -> bool {
        let tags = self.bytes.get(12..self.place.ip);
        tags.is_some() && tags == frame.get(12..place.ip)
    }

    /// Stores the headers of a packet as the template; returns false if they are too long.
    pub(super) fn store(&mut self, packet: &Packet, place: &HeaderOffsets) -> bool {
        let frame = packet.data();
        let (Some(to), Some(from)) = (self.bytes.get_mut(..place.tcp), frame.get(..place.tcp)) else { return false };
        let Some(Ok((tcp, _))) = frame.get(place.tcp..).map(Tcp::ref_from_prefix) else { return false };
        to.copy_from_slice(from);
        if self.place.tcp == 0 && !place.v6 {
            self.ident = u16::from_be_bytes([from[place.ip + 4], from[place.ip + 5]]);
        }
        self.place = *place;
        self.ports = [tcp.src_port(), tcp.dst_port()];
        self.port = packet.meta().port();
        self.longest = self.longest.max(place.end - place.ip);
        self.ecn = self.ip_ecn();
        self.set_ecn(0);
        true
    }

    /// Updates timestamps from a segment in order; `recent`: from a segment that reaches back to the acknowledged bytes
    /// (RFC 7323 §4.3).
    pub(super) fn stamp(&mut self, new: [u32; 2], recent: bool) {
        let old = self.stamps.unwrap_or(new);
        if !behind(old[0], new[0]) {
            self.stamps = Some(new);
        }
        if recent && !behind(self.recent, new[0]) {
            self.recent = new[0];
        }
    }

    /// Initialises the timestamps from a SYN.
    pub(super) fn begin_stamps(&mut self, new: Option<[u32; 2]>) {
        (self.stamps, self.recent) = (new, new.map_or(0, |it| it[0]));
    }

    /// Returns true if a timestamp is older than TS.Recent (RFC 7323 §5).
    pub(super) fn is_past(&self, clock: u32) -> bool {
        behind(self.recent, clock)
    }

    /// Records a retransmission of `len` bytes: longer packets may not have reached the receiver.
    pub(super) fn repeated(&mut self, place: &HeaderOffsets) {
        self.longest = place.end - place.ip;
    }

    /// Returns the length of the longest IP packet since the last retransmission of the sender, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    fn ip_ecn(&self) -> u8 {
        let ip = &self.bytes[self.place.ip..];
        if self.place.v6 { ip[1] >> 4 & 3 } else { ip[1] & 3 }
    }

    fn set_ecn(&mut self, ecn: u8) {
        let ip = &mut self.bytes[self.place.ip..];
        if self.place.v6 {
            ip[1] = ip[1] & !0x30 | ecn << 4;
        } else {
            ip[1] = ip[1] & !3 | ecn;
        }
    }

    fn tcp_len(&self) -> usize {
        if self.stamps.is_some() { STAMPED } else { size_of::<Tcp>() }
    }

    /// Returns the payload bytes of a segment for a receiver that announced `mss` (RFC 9293 §3.7.1: without options),
    /// no longer than the sender's packets.
    pub(super) fn room(&self, mss: u16) -> usize {
        let ip = self.place.tcp - self.place.ip;
        let least = if self.place.v6 { 1280 } else { 576 };
        let longest = self.longest.max(least).saturating_sub(ip + size_of::<Tcp>());
        let options = self.tcp_len() - size_of::<Tcp>();
        // room in a buffer of the pool, less the headers
        let pool = 2048 - MOST - STAMPED;
        usize::from(mss).min(longest).saturating_sub(options).clamp(1, pool)
    }

    /// Writes headers and reserves room for the payload in a packet; `None` if the packet is too small.
    pub(super) fn write(
        &mut self,
        packet: &mut Packet,
        shape: &SegmentFields,
        payload: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<()> {
        let (at, header) = (self.place.tcp, self.tcp_len());
        let len = at + header + shape.len;
        packet.truncate(0);
        let frame = packet.append(len)?;
        self.set_ecn(shape.ecn);
        frame[..at].copy_from_slice(&self.bytes[..at]);
        self.set_ecn(0);
        if !self.place.v6 {
            frame[self.place.ip + 4..self.place.ip + 6].copy_from_slice(&self.ident.to_be_bytes());
            self.ident = self.ident.wrapping_add(1);
        }
        let (tcp, body) = frame[at..].split_at_mut(header);
        let (fixed, options) = Tcp::mut_from_prefix(tcp).ok()?;
        fixed.set_src_port(self.ports[0]);
        fixed.set_dst_port(self.ports[1]);
        fixed.set_seq(shape.seq);
        fixed.set_ack(shape.ack);
        fixed.set_header_len(header);
        fixed.set_flags(shape.flags);
        fixed.set_window(shape.window);
        fixed.set_urgent(0);
        if let (Some([value, echo]), Some(options)) = (self.stamps, options.first_chunk_mut::<12>()) {
            options[..4].copy_from_slice(&STAMP);
            options[4..8].copy_from_slice(&value.to_be_bytes());
            options[8..].copy_from_slice(&echo.to_be_bytes());
        }
        if !payload(body) {
            return None;
        }
        self.place.write_checksums(frame);
        packet.meta_mut().set_port(self.port);
        Some(())
    }
}

/// Returns the timestamps of a header.
pub(super) fn read_stamps(header: &[u8]) -> Option<[u32; 2]> {
    // fast path for the usual layout
    if let Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) = header.get(20..32).and_then(|o| o.first_chunk::<12>())
        && [a, b, c, d] == STAMP
    {
        return Some([u32::from_be_bytes([e, f, g, h]), u32::from_be_bytes([i, j, k, l])]);
    }
    let segment = wire::tcp::Segment::new(header).ok()?;
    segment.options().find_map(|option| match option {
        Ok(wire::tcp::TcpOption::Timestamps { value, echo }) => Some([value, echo]),
        _ => None,
    })
}
