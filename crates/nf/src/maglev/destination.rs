//! Destinations: pairs of a virtual address and a backend, with the data that forwarding from one to the other needs.

use super::backends::BackendState;
use super::config::{Backend, Config, Endpoint, Vip};
use super::connection::Connection;
use super::settings::Forward;
use crate::checksum_delta::ChecksumDelta;
use std::net::{IpAddr, Ipv4Addr};
use wire::checksum::{Delta, Sum};
use wire::{EtherType, IpProtocol, ipv4, ipv6};

/// Maximum length of outer headers in bytes: IPv6 and GRE.
pub(super) const OUTER_MAX: usize = 44;
/// Length of an outer IPv4 header in bytes.
pub(super) const OUTER4: usize = 20;
/// Length of outer IPv4 and GRE headers in bytes.
pub(super) const OUTER4_GRE: usize = 24;
/// Time to live of outer headers.
const TTL: u8 = 64;

/// Processing of packets to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForwardAction {
    /// Rewrites address and port.
    Nat,
    /// Rewrites the address and sets the DSCP.
    L3dsr,
    /// Prepends an IPv4 header to an IPv4 packet.
    Ipip4,
    /// Prepends IPv4 and GRE headers to an IPv4 packet.
    Gre4,
    /// Prepends the headers of another tunnel.
    Tunnel,
    /// None: the backend is down.
    Down,
}

/// A virtual address and one of its backends. The fields that the fast path reads are in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Destination {
    pub(super) action: ForwardAction,
    /// DSCP as a type of service byte, without ECN.
    pub(super) tos: u8,
    pub(super) outer_len: u8,
    /// Generation of the destination's number, which its connections have.
    pub(super) generation: u32,
    /// Checksum of the constant fields of the outer IPv4 header.
    pub(super) outer_sum: u32,
    /// Checksum difference of the rewritten address.
    pub(super) ip_delta: ChecksumDelta,
    /// Checksum difference of the rewritten address and port.
    pub(super) transport_delta: ChecksumDelta,
    /// Packets sent to the destination.
    pub(super) packets: u64,
    pub(super) address: [u8; 4],
    pub(super) port: [u8; 2],
    pub(super) outer_type: EtherType,
    pub(super) outer: [u8; OUTER_MAX],
    pub(super) to: (IpAddr, u16),
    /// Number of the backend; `None` for an unused number.
    pub(super) backend: Option<usize>,
    /// Action while the backend is not down.
    action_when_up: ForwardAction,
}

impl Connection {
    /// Returns the destination unless the backend has been removed.
    #[inline(always)]
    pub(super) fn find(self, destinations: &[Destination]) -> Option<&Destination> {
        destinations.get(self.destination as usize).filter(|d| d.generation == self.generation)
    }

    /// As [`find`](Self::find).
    #[inline(always)]
    pub(super) fn find_mut(self, destinations: &mut [Destination]) -> Option<&mut Destination> {
        destinations.get_mut(self.destination as usize).filter(|d| d.generation == self.generation)
    }
}

/// Rewrite of the source of replies to a virtual address.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) ip_delta: ChecksumDelta,
    pub(super) transport_delta: ChecksumDelta,
    pub(super) address: [u8; 4],
    pub(super) port: [u8; 2],
    pub(super) to: (IpAddr, u16),
}

/// Returns the checksum differences of a rewritten address, and of address and port.
fn endpoint_deltas(from: (IpAddr, u16), to: (IpAddr, u16)) -> (ChecksumDelta, ChecksumDelta) {
    let ip = address_delta(from.0, to.0);
    (ip.into(), ip.u16(from.1, to.1).into())
}

/// Returns the checksum difference of a rewritten address.
pub(super) fn address_delta(from: IpAddr, to: IpAddr) -> Delta {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Delta::ZERO.u32(from.to_bits(), to.to_bits()),
        (IpAddr::V6(from), IpAddr::V6(to)) => Delta::ZERO.octets(from.octets(), to.octets()),
        // the configuration rejects a mixture
        _ => Delta::ZERO,
    }
}

fn v4(address: IpAddr) -> [u8; 4] {
    if let IpAddr::V4(v4) = address { v4.octets() } else { Ipv4Addr::UNSPECIFIED.octets() }
}

/// Returns the key of an IPv4 endpoint: address and port as in a packet, and the protocol. It is never 0.
pub(super) fn endpoint_key(endpoint: Endpoint) -> Option<u64> {
    let (address, port, IpProtocol(protocol)) = endpoint;
    let port = u16::from_le_bytes(port.to_be_bytes());
    let bits = u64::from(u32::from_le_bytes(v4(address))) | u64::from(port) << 32 | u64::from(protocol) << 48;
    address.is_ipv4().then_some(bits)
}

impl Reply {
    pub(super) fn new(from: (IpAddr, u16), to: (IpAddr, u16)) -> Self {
        let (ip_delta, transport_delta) = endpoint_deltas(from, to);
        Reply { ip_delta, transport_delta, address: v4(to.0), port: to.1.to_be_bytes(), to }
    }
}

impl Destination {
    /// Returns the entry of a number that no destination has.
    pub(super) fn unused(generation: u32) -> Self {
        let (ip_delta, transport_delta) = (Delta::ZERO.into(), Delta::ZERO.into());
        Destination {
            action: ForwardAction::Down,
            tos: 0,
            outer_len: 0,
            generation,
            outer_sum: 0,
            ip_delta,
            transport_delta,
            packets: 0,
            address: [0; 4],
            port: [0; 2],
            outer_type: EtherType::IPV4,
            outer: [0; OUTER_MAX],
            to: (Ipv4Addr::UNSPECIFIED.into(), 0),
            backend: None,
            action_when_up: ForwardAction::Down,
        }
    }

    pub(super) fn new(config: &Config, (vip, number): (usize, usize), generation: u32, state: BackendState) -> Self {
        let (Vip { endpoint, service }, backend) = (config.vips[vip], &config.backends[number]);
        let (forward, dscp) = (config.services[service].forward, config.services[service].dscp);
        let to = (backend.address, backend.port.unwrap_or(endpoint.1));
        let (ip_delta, transport_delta) = endpoint_deltas((endpoint.0, endpoint.1), to);
        let (outer_type, header) = match forward {
            Forward::Nat | Forward::L3dsr => (EtherType::IPV4, vec![]),
            Forward::Gre | Forward::Ipip => outer(config, backend, endpoint.0.is_ipv4(), forward == Forward::Gre),
        };
        let both4 = endpoint.0.is_ipv4() && backend.address.is_ipv4();
        let action = match forward {
            Forward::Nat => ForwardAction::Nat,
            Forward::L3dsr => ForwardAction::L3dsr,
            Forward::Ipip if both4 => ForwardAction::Ipip4,
            Forward::Gre if both4 => ForwardAction::Gre4,
            _ => ForwardAction::Tunnel,
        };
        let mut bytes = [0; OUTER_MAX];
        bytes[..header.len()].copy_from_slice(&header);
        let sum = Sum::ZERO.bytes(&bytes[..OUTER4]).finish();
        let mut destination = Destination {
            action,
            tos: dscp << 2,
            outer_len: header.len() as u8,
            generation,
            outer_sum: u32::from(!sum),
            ip_delta,
            transport_delta,
            packets: 0,
            address: v4(to.0),
            port: to.1.to_be_bytes(),
            outer_type,
            outer: bytes,
            to,
            backend: Some(number),
            action_when_up: action,
        };
        destination.set_state(state);
        destination
    }

    /// Applies the state of the backend.
    pub(super) fn set_state(&mut self, state: BackendState) {
        self.action = if state == BackendState::Down { ForwardAction::Down } else { self.action_when_up };
    }
}

/// Returns the headers of a tunnel, without lengths, checksum and fields copied from the inner packet.
fn outer(config: &Config, backend: &Backend, inner_v4: bool, gre: bool) -> (EtherType, Vec<u8>) {
    let source = config.source.iter().find(|s| s.is_ipv4() == backend.address.is_ipv4());
    let next = match (gre, inner_v4) {
        (true, _) => IpProtocol::GRE,
        (false, true) => IpProtocol::IPV4,
        (false, false) => IpProtocol::IPV6,
    };
    let (ether_type, mut bytes) = match (source, backend.address) {
        (Some(IpAddr::V4(src)), IpAddr::V4(dst)) => {
            let mut bytes = vec![0; OUTER4];
            let written = ipv4::Repr { ttl: TTL, ..ipv4::Repr::new(*src, dst, next, 0) }.emit(&mut bytes);
            written.expect("twenty bytes hold it");
            // the fields that differ from packet to packet are 0 in the sum
            bytes[2..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, TTL, next.0, 0, 0]);
            (EtherType::IPV4, bytes)
        }
        (Some(IpAddr::V6(src)), IpAddr::V6(dst)) => {
            let mut bytes = vec![0; 40];
            let written = ipv6::Repr { hop_limit: TTL, ..ipv6::Repr::new(*src, dst, next, 0) }.emit(&mut bytes);
            written.expect("forty bytes hold it");
            (EtherType::IPV6, bytes)
        }
        _ => unreachable!("settings without a source for the tunnel are refused"),
    };
    if gre {
        let inner = if inner_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        bytes.extend([0, 0]);
        bytes.extend(inner.0.to_be_bytes());
    }
    (ether_type, bytes)
}

#[cfg(test)]
mod tests {
    use super::endpoint_key;
    use std::collections::HashSet;
    use wire::IpProtocol;

    #[test]
    fn endpoint_keys_are_distinct() {
        let endpoints = [
            ([1, 0, 0, 0], 0, IpProtocol::TCP),
            ([0, 0, 0, 0], 0x0100, IpProtocol::TCP),
            ([0, 0, 0, 1], 0, IpProtocol::TCP),
            ([1, 0, 0, 0], 0, IpProtocol::UDP),
        ];
        let keys: HashSet<_> =
            endpoints.iter().map(|&(a, port, protocol)| endpoint_key((a.into(), port, protocol))).collect();
        assert!(keys.len() == 4 && !keys.contains(&None));
    }
}
