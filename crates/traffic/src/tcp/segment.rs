//! TCP segments in frames.

use std::net::{IpAddr, SocketAddr};

use wire::checksum::Pseudo;
use wire::options::OptionBytes;
use wire::tcp::{self, TcpOption};
use wire::{EtherType, IpProtocol, MacAddr, TcpFlags, ipv4, ipv6};

use super::Transmit;
use crate::size::FrameSize;

/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// Most payload of a segment, bytes: a frame of 1518 bytes with IPv6.
pub(super) const MSS: u16 = 1440;
/// Bytes of the MSS option of SYNs.
pub(super) const MSS_OPTION: usize = 4;
/// Window of all segments, bytes.
pub(super) const WINDOW: u16 = u16::MAX;

/// Reason why a frame is not a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSegment {
    /// A checksum or a length is wrong.
    Corrupt,
    /// Another protocol, or a fragment.
    Foreign,
}

/// A segment: received, with valid checksums, or to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Source and destination of the frame.
    pub(super) macs: (MacAddr, MacAddr),
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: TcpFlags,
    pub(super) payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a frame; a tunnel of IP in IP or GRE (RFC 2784, without options) around the packet is removed.
    ///
    /// # Errors
    /// [`NotSegment`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, NotSegment> {
        let header: &[u8; ETHERNET_LEN] = frame.first_chunk().ok_or(NotSegment::Foreign)?;
        let mac = |at: usize| MacAddr([0, 1, 2, 3, 4, 5].map(|byte: usize| header[at + byte]));
        let kind = EtherType(u16::from_be_bytes([header[12], header[13]]));
        if !matches!(kind, EtherType::IPV4 | EtherType::IPV6) {
            return Err(NotSegment::Foreign);
        }
        Self::parse_packet(&frame[ETHERNET_LEN..], (mac(6), mac(0)), true)
    }

    fn parse_packet(packet: &'a [u8], macs: (MacAddr, MacAddr), may_be_tunnel: bool) -> Result<Self, NotSegment> {
        let (src, dst, protocol, payload, pseudo): (IpAddr, IpAddr, _, &[u8], _) = match packet.first() {
            Some(first) if first >> 4 == 4 => {
                let ip = ipv4::Packet::new(packet).map_err(|_| NotSegment::Corrupt)?;
                if !ip.checksum_ok() {
                    return Err(NotSegment::Corrupt);
                }
                if ip.header().is_fragment() {
                    return Err(NotSegment::Foreign);
                }
                let header = ip.header();
                (header.src().into(), header.dst().into(), header.protocol(), ip.payload(), ip.pseudo())
            }
            Some(first) if first >> 4 == 6 => {
                let ip = ipv6::Packet::new(packet).map_err(|_| NotSegment::Corrupt)?;
                let header = ip.header();
                (header.src().into(), header.dst().into(), header.next_header(), ip.payload(), ip.pseudo())
            }
            _ => return Err(NotSegment::Foreign),
        };
        match protocol {
            IpProtocol::TCP => {}
            IpProtocol::IPV4 | IpProtocol::IPV6 if may_be_tunnel => return Self::parse_packet(payload, macs, false),
            IpProtocol::GRE if may_be_tunnel => {
                // no checksum, key or sequence number
                let inner = payload.strip_prefix(&[0, 0]).and_then(|rest| rest.get(2..)).ok_or(NotSegment::Foreign)?;
                return Self::parse_packet(inner, macs, false);
            }
            _ => return Err(NotSegment::Foreign),
        }
        let segment = tcp::Segment::new(payload).map_err(|_| NotSegment::Corrupt)?;
        if !segment.checksum_ok(pseudo) {
            return Err(NotSegment::Corrupt);
        }
        let header = segment.header();
        Ok(Self {
            macs,
            src: SocketAddr::new(src, header.src_port()),
            dst: SocketAddr::new(dst, header.dst_port()),
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            payload: segment.payload(),
        })
    }

    /// Returns the sequence number behind the segment.
    pub(super) fn end(&self) -> u32 {
        let controls = u32::from(self.flags.contains(TcpFlags::SYN)) + u32::from(self.flags.contains(TcpFlags::FIN));
        self.seq.wrapping_add(self.payload.len() as u32).wrapping_add(controls)
    }

    /// Writes the segment to a buffer of the caller; false if there is none.
    pub(super) fn send(&self, out: &mut impl Transmit) -> bool {
        let options = match self.flags.contains(TcpFlags::SYN) {
            true => tcp::options(&[TcpOption::Mss(MSS)]).unwrap_or(OptionBytes::EMPTY),
            false => OptionBytes::EMPTY,
        };
        let header = tcp::Repr {
            src_port: self.src.port(),
            dst_port: self.dst.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: WINDOW,
            urgent: 0,
            options,
        };
        let ip_len = if self.src.is_ipv4() { 20 } else { 40 };
        let segment_len = header.len() + self.payload.len();
        let len = ETHERNET_LEN + ip_len + segment_len;
        let Some(frame) = out.frame(len.max(FrameSize::MIN.without_fcs())) else { return false };
        self.write(frame, &header, ip_len, segment_len).is_some()
    }

    fn write(&self, frame: &mut [u8], header: &tcp::Repr, ip_len: usize, segment_len: usize) -> Option<()> {
        let (ethernet, rest) = frame.split_at_mut_checked(ETHERNET_LEN)?;
        ethernet[..6].copy_from_slice(&self.macs.1.0);
        ethernet[6..12].copy_from_slice(&self.macs.0.0);
        let (ip, rest) = rest.split_at_mut_checked(ip_len)?;
        let (segment, padding) = rest.split_at_mut_checked(segment_len)?;
        padding.fill(0);
        segment[header.len()..].copy_from_slice(self.payload);
        let (kind, pseudo) = match (self.src.ip(), self.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut repr = ipv4::Repr::new(src, dst, IpProtocol::TCP, segment_len as u16);
                repr.dont_fragment = true;
                repr.emit(ip).ok()?;
                (EtherType::IPV4, Pseudo::v4(src, dst, IpProtocol::TCP))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                ipv6::Repr::new(src, dst, IpProtocol::TCP, segment_len as u16).emit(ip).ok()?;
                (EtherType::IPV6, Pseudo::v6(src, dst, IpProtocol::TCP))
            }
            _ => return None,
        };
        ethernet[12..].copy_from_slice(&kind.0.to_be_bytes());
        header.emit_with(pseudo, segment).ok()
    }
}
