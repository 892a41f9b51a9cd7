//! Classes of packets to the control plane.

use crate::l3fwd::headers::ETHERNET_LEN;
use graph::Named;
use wire::flow::FiveTuple;
use wire::{EtherType, Icmpv6, IpProtocol, ethernet, icmpv6, ipv6};

const BGP: u16 = 179;
/// BFD control and echo of single hops (RFC 5881 §4).
pub(super) const BFD_CONTROL: u16 = 3784;
pub(super) const BFD_ECHO: u16 = 3785;
/// BFD, also multihop and on link aggregates (RFC 5883 §5, RFC 7130 §2.2).
const BFD: [u16; 4] = [BFD_CONTROL, BFD_ECHO, 4784, 6784];
/// DHCP servers and clients (RFC 2131 §4.1), DHCPv6 clients and servers (RFC 8415 §7.2).
const DHCP: [u16; 4] = [67, 68, 546, 547];
const OSPF: IpProtocol = IpProtocol(89);
/// Router solicitation to redirect (RFC 4861 §4).
const NEIGHBOR_DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

graph::named_enum! {
    /// Classes of punted packets, each with a rate of its own.
    pub(in crate::l3fwd) enum PuntClass {
        Arp = "arp",
        /// Neighbor discovery.
        Nd = "nd",
        Bgp = "bgp",
        Ospf = "ospf",
        Bfd = "bfd",
        Dhcp = "dhcp",
        Icmp = "icmp",
        Other = "other",
    }
}

impl PuntClass {
    pub(in crate::l3fwd) const COUNT: usize = <PuntClass as Named>::NAMES.len();

    /// Returns the class of a frame. Fragments have no ports, and those of TCP and UDP are [`Other`](PuntClass::Other).
    pub(super) fn of(frame: &[u8]) -> PuntClass {
        if ethernet::Frame::new(frame).is_ok_and(|frame| frame.header().ether_type() == EtherType::ARP) {
            return PuntClass::Arp;
        }
        let Some(flow) = FiveTuple::of_frame(frame) else { return PuntClass::Other };
        match flow.protocol {
            OSPF => PuntClass::Ospf,
            IpProtocol::TCP if [flow.src_port, flow.dst_port].contains(&BGP) => PuntClass::Bgp,
            IpProtocol::UDP if BFD.contains(&flow.dst_port) => PuntClass::Bfd,
            IpProtocol::UDP if DHCP.contains(&flow.dst_port) => PuntClass::Dhcp,
            IpProtocol::ICMPV4 => PuntClass::Icmp,
            IpProtocol::ICMPV6 if is_neighbor_discovery(frame) => PuntClass::Nd,
            IpProtocol::ICMPV6 => PuntClass::Icmp,
            _ => PuntClass::Other,
        }
    }
}

/// Returns true if a frame contains a neighbor discovery message, also behind extension headers.
pub(super) fn is_neighbor_discovery(frame: &[u8]) -> bool {
    let Ok(ip) = ipv6::Packet::new(frame.get(ETHERNET_LEN..).unwrap_or_default()) else { return false };
    ip.upper() == (IpProtocol::ICMPV6, false)
        && icmpv6::Message::new(ip.payload()).is_ok_and(|m| NEIGHBOR_DISCOVERY.contains(&Icmpv6::kind(m.header())))
}
