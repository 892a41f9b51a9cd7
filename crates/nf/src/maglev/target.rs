//! A virtual address and one of its backends: everything that a packet from the one to the other needs.

use super::Forward;
use super::config::{Backend, Config, Place, Vip};
use super::lookup::key4;
use super::shared::Condition;
use std::net::{IpAddr, Ipv4Addr};
use wire::checksum::{Delta, Sum};
use wire::{EtherType, IpProtocol, ipv4, ipv6};

/// Bytes in front of a packet in a tunnel at most: IPv6 and GRE.
pub(super) const OUTER_MOST: usize = 44;
/// Of IPv4, and with GRE.
pub(super) const OUTER4: usize = 20;
pub(super) const OUTER4_GRE: usize = 24;
/// Time to live of a tunnel's packets.
const TTL: u8 = 64;

/// What is done with a packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Another destination and port.
    Nat,
    /// Another destination, and a code point.
    L3dsr,
    /// Twenty bytes of IPv4 in front of IPv4.
    Ipip4,
    /// As well, and four of GRE.
    Gre4,
    /// Any other tunnel.
    Tunnel,
    /// Nothing: its backend is down.
    Gone,
}

/// What a change does to a checksum over it, with 16 bits in the order of the wire: a [`Delta`] that needs neither swapping
/// nor folding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change(u16);

impl Change {
    fn new(delta: Delta) -> Self {
        // of one's complement's zeros this is the one that changes nothing
        Change((!delta.apply(0xffff)).to_be())
    }

    /// The checksum of bytes after the change (RFC 1624 eq. 3).
    #[inline(always)]
    pub(super) fn apply(self, sum: [u8; 2]) -> [u8; 2] {
        let (sum, carry) = (!u16::from_ne_bytes(sum)).overflowing_add(self.0);
        (!(sum + u16::from(carry))).to_ne_bytes()
    }

    /// As [`Delta::apply_udp`].
    #[inline(always)]
    pub(super) fn apply_udp(self, sum: [u8; 2]) -> [u8; 2] {
        let changed = self.apply(sum);
        let changed = if changed == [0, 0] { [0xff, 0xff] } else { changed };
        if sum == [0, 0] { sum } else { changed }
    }
}

/// In the order in which a packet asks for it: what the usual ones ask for is one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Target {
    pub(super) how: How,
    /// Type of service without ECN.
    pub(super) tos: u8,
    pub(super) outer_len: u8,
    /// The sum of the outer IPv4 header but for what differs from packet to packet.
    pub(super) outer_sum: u32,
    /// What the change of the destination does to checksums, and that with the port's change.
    pub(super) ip: Change,
    pub(super) upper: Change,
    /// Packets that went this way.
    pub(super) packets: u64,
    pub(super) address: [u8; 4],
    pub(super) port: [u8; 2],
    pub(super) outer_type: EtherType,
    pub(super) outer: [u8; OUTER_MOST],
    pub(super) to: (IpAddr, u16),
    /// Number of its backend.
    pub(super) backend: usize,
    /// What is done with packets while the backend is not down.
    usual: How,
}

/// Where answers seem to come from.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) ip: Change,
    pub(super) upper: Change,
    pub(super) address: [u8; 4],
    pub(super) port: [u8; 2],
    pub(super) to: (IpAddr, u16),
}

/// What it does to checksums over it that one place takes the other's: the address's part, and all of it.
fn change(from: (IpAddr, u16), to: (IpAddr, u16)) -> (Change, Change) {
    let ip = address(from.0, to.0);
    (Change::new(ip), Change::new(ip.u16(from.1, to.1)))
}

/// What a change of the address does to a checksum over it.
pub(super) fn address(from: IpAddr, to: IpAddr) -> Delta {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Delta::ZERO.u32(from.to_bits(), to.to_bits()),
        (IpAddr::V6(from), IpAddr::V6(to)) => Delta::ZERO.octets(from.octets(), to.octets()),
        // settings with both are refused
        _ => Delta::ZERO,
    }
}

fn v4(address: IpAddr) -> [u8; 4] {
    if let IpAddr::V4(v4) = address { v4.octets() } else { Ipv4Addr::UNSPECIFIED.octets() }
}

/// The key of a place in an IPv4 packet.
pub(super) fn key(place: Place) -> Option<u64> {
    place.0.is_ipv4().then(|| key4(v4(place.0), place.1.to_be_bytes(), place.2.0))
}

impl Reply {
    pub(super) fn new(from: (IpAddr, u16), vip: &Vip) -> Self {
        let to = (vip.place.0, vip.place.1);
        let (ip, upper) = change(from, to);
        Reply { ip, upper, address: v4(to.0), port: to.1.to_be_bytes(), to }
    }
}

impl Target {
    pub(super) fn new(config: &Config, vip: usize, number: usize, condition: Condition) -> Self {
        let (Vip { place, service }, backend) = (config.vips[vip], &config.backends[number]);
        let (forward, dscp) = (config.services[service].forward, config.services[service].dscp);
        let to = (backend.address, backend.port.unwrap_or(place.1));
        let (ip, upper) = change((place.0, place.1), to);
        let (outer_type, header) = match forward {
            Forward::Nat | Forward::L3dsr => (EtherType::IPV4, vec![]),
            Forward::Gre | Forward::Ipip => outer(config, backend, place.0.is_ipv4(), forward == Forward::Gre),
        };
        let both4 = place.0.is_ipv4() && backend.address.is_ipv4();
        let how = match forward {
            Forward::Nat => How::Nat,
            Forward::L3dsr => How::L3dsr,
            Forward::Ipip if both4 => How::Ipip4,
            Forward::Gre if both4 => How::Gre4,
            _ => How::Tunnel,
        };
        let mut bytes = [0; OUTER_MOST];
        bytes[..header.len()].copy_from_slice(&header);
        let sum = Sum::ZERO.bytes(&bytes[..OUTER4]).finish();
        let mut target = Target {
            how,
            tos: dscp << 2,
            outer_len: header.len() as u8,
            outer_sum: u32::from(!sum),
            ip,
            upper,
            packets: 0,
            address: v4(to.0),
            port: to.1.to_be_bytes(),
            outer_type,
            outer: bytes,
            to,
            backend: number,
            usual: how,
        };
        target.set(condition);
        target
    }

    /// Says what its backend may get.
    pub(super) fn set(&mut self, condition: Condition) {
        self.how = if condition == Condition::Down { How::Gone } else { self.usual };
    }
}

/// The headers of a tunnel, without lengths, checksum and what they take from the packet inside.
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
            // added to what differs: as if all of that were 0
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
    use super::{Change, Delta};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_is_what_its_delta_is(old in any::<[u32; 3]>(), new in any::<[u32; 3]>(), sum in any::<u16>()) {
            let delta = old.iter().zip(new).fold(Delta::ZERO, |d, (old, new)| d.u32(*old, new));
            let change = Change::new(delta);
            // 0 and 0xffff are the same number; neither IP nor TCP can have both
            let same = |a: u16, b: u16| a == b || [a, b].iter().all(|n| [0, 0xffff].contains(n));
            prop_assert!(same(u16::from_be_bytes(change.apply(sum.to_be_bytes())), delta.apply(sum)));
            prop_assert_eq!(u16::from_be_bytes(change.apply_udp(sum.to_be_bytes())) == 0, sum == 0);
        }
    }
}
