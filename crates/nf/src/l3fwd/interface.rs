//! Interfaces of the router and their addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{MacAddr, ndp};

/// An interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Output to its port.
    pub(super) output: u8,
    /// Number of the VRF whose routes packets follow that arrive here.
    pub(super) vrf: usize,
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
    /// Own addresses with prefix lengths.
    pub(super) v4: Vec<(Ipv4Addr, u8)>,
    pub(super) v6: Vec<(Ipv6Addr, u8)>,
    /// Number of its representor, if it has one.
    pub(super) representor: Option<usize>,
}

impl Interface {
    /// Returns the own address on the network of `other`, or else the first.
    pub(super) fn source4(&self, other: Ipv4Addr) -> Option<Ipv4Addr> {
        self.own4(other).or(self.v4.first().map(|(a, _)| *a))
    }

    /// As [`source4`](Self::source4); the link-local address if the interface has no other.
    pub(super) fn source6(&self, other: Ipv6Addr) -> Ipv6Addr {
        self.own6(other).or(self.v6.first().map(|(a, _)| *a)).unwrap_or(self.link_local())
    }

    pub(super) fn link_local(&self) -> Ipv6Addr {
        ndp::link_local(self.mac)
    }

    fn own4(&self, other: Ipv4Addr) -> Option<Ipv4Addr> {
        self.v4.iter().find(|(own, len)| mask4(*own, *len) == mask4(other, *len)).map(|(own, _)| *own)
    }

    fn own6(&self, other: Ipv6Addr) -> Option<Ipv6Addr> {
        if other.is_unicast_link_local() {
            return Some(self.link_local());
        }
        self.v6.iter().find(|(own, len)| mask6(*own, *len) == mask6(other, *len)).map(|(own, _)| *own)
    }

    /// Returns true if an address is on a network of this interface.
    pub(super) fn reaches(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.own4(a).is_some(),
            IpAddr::V6(a) => self.own6(a).is_some(),
        }
    }

    /// Returns the length of the longest of its prefixes that contains an address.
    pub(super) fn prefix_len(&self, address: IpAddr) -> Option<u8> {
        match address {
            IpAddr::V4(a) => self.v4.iter().filter(|(own, l)| mask4(*own, *l) == mask4(a, *l)).map(|(_, l)| *l).max(),
            IpAddr::V6(a) => self.v6.iter().filter(|(own, l)| mask6(*own, *l) == mask6(a, *l)).map(|(_, l)| *l).max(),
        }
    }

    /// Returns true if an address is one of the interface's own.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.iter().any(|(own, _)| *own == a),
            IpAddr::V6(a) => self.v6.iter().any(|(own, _)| *own == a) || a == self.link_local(),
        }
    }
}

pub(super) fn mask4(address: Ipv4Addr, len: u8) -> u32 {
    address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

pub(super) fn mask6(address: Ipv6Addr, len: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
