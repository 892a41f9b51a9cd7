//! Generalized TTL Security Mechanism (RFC 5082).

use super::class::{BFD_CONTROL, BFD_ECHO, is_neighbor_discovery};
use crate::l3fwd::headers::ETHERNET_LEN;
use std::net::IpAddr;
use wire::flow::FiveTuple;
use wire::{IpProtocol, ipv4, ipv6};

/// Returns true if a frame to the router contains a message that only neighbours may send, and that has been forwarded:
/// its TTL or hop limit is not 255. Messages of BFD in fragments are not recognised, as fragments have no ports.
pub(in crate::l3fwd) fn is_forwarded(frame: &[u8]) -> bool {
    let Some(flow) = FiveTuple::of_frame(frame) else { return false };
    let least = match flow.protocol {
        IpProtocol::UDP if flow.dst_port == BFD_CONTROL => 255,
        // the neighbour has forwarded the router's own echo (RFC 5881 §4)
        IpProtocol::UDP if flow.dst_port == BFD_ECHO => 254,
        IpProtocol::ICMPV6 if is_neighbor_discovery(frame) => 255,
        _ => return false,
    };
    let packet = frame.get(ETHERNET_LEN..).unwrap_or_default();
    let ttl = match flow.dst {
        IpAddr::V4(_) => ipv4::Packet::new(packet).map(|ip| ip.header().ttl()),
        IpAddr::V6(_) => ipv6::Packet::new(packet).map(|ip| ip.header().hop_limit()),
    };
    ttl.is_ok_and(|ttl| ttl < least)
}
