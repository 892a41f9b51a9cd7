//! Bytes of a header stack in front of the IP packet.

use super::{
    Encapsulation, GTPU_FLAGS, GTPU_LEN, GTPU_PORT, Link, PPP_IPV4, PPP_IPV6, PPPOE_LEN, Shim, Stack, Tags, Tunnel,
    VXLAN_FLAGS, VXLAN_LEN, VXLAN_PORT,
};
use std::net::{IpAddr, Ipv6Addr};
use wire::{EtherType, IpProtocol, MacAddr, build};

/// First of the source ports of a tunnel, of which each flow has one (RFC 7348 §5: 49152 to 65535).
pub(crate) const FIRST_PORT: u16 = 49_152;
/// Time to live of MPLS labels.
const TTL: u8 = 64;
/// Bytes of the MAC addresses and the EtherType.
const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;

/// Field of a tunnel that differs between flows, for the multipath of routers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowField {
    /// The UDP source port at this offset.
    Port(usize),
    /// The flow label in the IPv6 header at this offset (RFC 6437).
    Label(usize),
}

impl Stack {
    /// Returns the bytes that it adds to a frame of Ethernet, IP and transport.
    pub fn overhead(&self) -> usize {
        let len = match &self.tunnel {
            None => self.link.len(),
            Some(tunnel) if tunnel.contains_frames() => tunnel.len() + self.link.len(),
            Some(tunnel) => tunnel.len(),
        };
        len - ETHERNET_LEN
    }

    /// Returns the headers in front of an IP packet of `len` bytes.
    pub(crate) fn front(&self, src: MacAddr, dst: MacAddr, len: usize) -> Vec<u8> {
        let Some(tunnel) = &self.tunnel else { return self.link.headers(src, dst, self.ipv6, len) };
        let mut inner = if tunnel.contains_frames() { self.link.headers(src, dst, self.ipv6, len) } else { vec![] };
        inner.resize(inner.len() + len, 0);
        let packet = tunnel.packet(self.ipv6, &inner);
        let mut front = tunnel.link.headers(src, dst, tunnel.encapsulation.is_ipv6(), packet.len());
        front.extend(&packet[..packet.len() - len]);
        front
    }

    /// Returns the offset of the MAC addresses of the flows.
    pub(crate) fn macs_at(&self) -> usize {
        match &self.tunnel {
            Some(tunnel) if tunnel.contains_frames() => tunnel.len(),
            _ => 0,
        }
    }

    /// Returns the field of the tunnel that differs between flows.
    pub(crate) fn flow_field(&self) -> Option<FlowField> {
        let tunnel = self.tunnel.as_ref()?;
        Some(match tunnel.encapsulation {
            Encapsulation::Vxlan { .. } => FlowField::Port(tunnel.len() - VXLAN_LEN - UDP_LEN),
            Encapsulation::GtpU { .. } => FlowField::Port(tunnel.len() - GTPU_LEN - UDP_LEN),
            Encapsulation::Srv6 { .. } => FlowField::Label(tunnel.link.len()),
        })
    }
}

impl Link {
    /// Returns the length of the headers in bytes, with MAC addresses and EtherType.
    fn len(&self) -> usize {
        let tags = match self.tags {
            Tags::None => 0,
            Tags::One(_) => 4,
            Tags::Two(..) => 8,
        };
        let shim = match &self.shim {
            Shim::None => 0,
            Shim::Mpls(labels) => 4 * labels.len(),
            Shim::Pppoe(_) => PPPOE_LEN,
        };
        ETHERNET_LEN + tags + shim
    }

    /// Returns the headers in front of an IP packet of `len` bytes.
    fn headers(&self, src: MacAddr, dst: MacAddr, ipv6: bool, len: usize) -> Vec<u8> {
        let mut out = [dst.0, src.0].concat();
        for (kind, vid) in self.tags.list() {
            out.extend(kind.0.to_be_bytes());
            out.extend(vid.to_be_bytes());
        }
        let ether_type = match self.shim {
            Shim::None if ipv6 => EtherType::IPV6,
            Shim::None => EtherType::IPV4,
            Shim::Mpls(_) => EtherType::MPLS,
            Shim::Pppoe(_) => EtherType::PPPOE,
        };
        out.extend(ether_type.0.to_be_bytes());
        match &self.shim {
            Shim::None => {}
            Shim::Mpls(labels) => {
                for (i, label) in labels.iter().enumerate() {
                    let bottom = u32::from(i + 1 == labels.len());
                    out.extend((label << 12 | bottom << 8 | u32::from(TTL)).to_be_bytes());
                }
            }
            Shim::Pppoe(session) => {
                // version and type 1, code 0 for data; the length is that of the PPP protocol and the packet
                out.extend([0x11, 0]);
                out.extend(session.to_be_bytes());
                out.extend((len as u16 + 2).to_be_bytes());
                out.extend((if ipv6 { PPP_IPV6 } else { PPP_IPV4 }).to_be_bytes());
            }
        }
        out
    }
}

impl Encapsulation {
    fn is_ipv6(&self) -> bool {
        match self {
            Self::Vxlan { dst, .. } | Self::GtpU { dst, .. } => dst.is_ipv6(),
            Self::Srv6 { .. } => true,
        }
    }
}

impl Tunnel {
    fn contains_frames(&self) -> bool {
        matches!(self.encapsulation, Encapsulation::Vxlan { .. })
    }

    /// Returns the length of the headers in front of the inner frame or packet.
    fn len(&self) -> usize {
        let ip = if self.encapsulation.is_ipv6() { 40 } else { 20 };
        let rest = match &self.encapsulation {
            Encapsulation::Vxlan { .. } => UDP_LEN + VXLAN_LEN,
            Encapsulation::GtpU { .. } => UDP_LEN + GTPU_LEN,
            Encapsulation::Srv6 { segments, .. } => 8 + 16 * segments.len(),
        };
        self.link.len() + ip + rest
    }

    /// Returns the packet around `inner`, a frame or a packet of this IP version.
    fn packet(&self, ipv6: bool, inner: &[u8]) -> Vec<u8> {
        match &self.encapsulation {
            Encapsulation::Vxlan { vni, src, dst } => {
                let header = [[VXLAN_FLAGS, 0, 0, 0], (vni << 8).to_be_bytes()].concat();
                udp(*src, *dst, VXLAN_PORT, &[&header[..], inner].concat())
            }
            Encapsulation::GtpU { teid, src, dst } => {
                // message type 255 is a G-PDU; the length is that of the packet
                let [high, low] = (inner.len() as u16).to_be_bytes();
                let header = [[GTPU_FLAGS, 255, high, low], teid.to_be_bytes()].concat();
                udp(*src, *dst, GTPU_PORT, &[&header[..], inner].concat())
            }
            Encapsulation::Srv6 { src, segments } => srv6(*src, segments, ipv6, inner),
        }
    }
}

/// Returns a UDP packet without a checksum (RFC 7348 §5; RFC 6935 over IPv6).
fn udp(src: IpAddr, dst: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            build::udp4(src, dst, FIRST_PORT, port).dont_fragment().payload(payload).to_vec()
        }
        (src, dst) => build::udp6(v6(src), v6(dst), FIRST_PORT, port).payload(payload).to_vec(),
    };
    let checksum = frame.len() - payload.len() - 2;
    frame[checksum..checksum + 2].fill(0);
    frame.split_off(ETHERNET_LEN)
}

/// Returns an IPv6 packet with a segment routing header, at its first segment.
fn srv6(src: Ipv6Addr, segments: &[Ipv6Addr], ipv6: bool, inner: &[u8]) -> Vec<u8> {
    let last = segments.len() as u8 - 1;
    let next = if ipv6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 };
    // routing type, segments left, last entry, flags and tag
    let mut header = vec![4, last, last, 0, 0, 0];
    header.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    let frame = build::ipv6(src, segments[0], next).extension(IpProtocol::ROUTING, &header).payload(inner);
    frame.to_vec().split_off(ETHERNET_LEN)
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
