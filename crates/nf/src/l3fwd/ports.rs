//! Ports of the router, each with one interface, or with several that have different MAC addresses.

use super::headers::ETHERNET_LEN;
use super::interface::Interface;
use std::net::{IpAddr, Ipv6Addr};
use wire::ndp::{self, Neighbor};
use wire::{EtherType, MacAddr, arp, ethernet, icmpv6, ipv4, ipv6};

/// Outputs besides the ports: packets to the router itself.
pub(super) const OUTPUTS: &[&str] = &["local"];
/// Number of the output `local`.
pub(super) const LOCAL: u8 = 0;

/// Slots of a table of MAC addresses: four times the maximum number of interfaces.
const SLOTS: usize = 512;
/// Interface of a slot that is empty.
const EMPTY: u8 = u8::MAX;

/// The interfaces of a port.
#[derive(Clone, Debug)]
pub(super) enum PortInterfaces {
    /// One, with this number.
    One(usize),
    /// Several.
    Several(MacTable),
}

/// Interfaces by MAC address, with open addressing.
#[derive(Clone, Debug)]
pub(super) struct MacTable {
    slots: Box<[(MacAddr, u8); SLOTS]>,
    interfaces: Vec<usize>,
}

impl MacTable {
    pub(super) fn new(interfaces: Vec<(MacAddr, usize)>) -> MacTable {
        let mut slots = Box::new([(MacAddr([0; 6]), EMPTY); SLOTS]);
        for (mac, interface) in &interfaces {
            let mut slot = hash(*mac);
            while slots[slot].1 != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = (*mac, *interface as u8);
        }
        MacTable { slots, interfaces: interfaces.into_iter().map(|(_, interface)| interface).collect() }
    }

    /// Returns the interface with a MAC address.
    #[inline(always)]
    pub(super) fn get(&self, mac: MacAddr) -> Option<usize> {
        let mut slot = hash(mac);
        loop {
            match self.slots[slot] {
                (_, EMPTY) => return None,
                (own, interface) if own == mac => return Some(usize::from(interface)),
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }
}

#[inline(always)]
fn hash(MacAddr([a, b, c, d, e, f]): MacAddr) -> usize {
    let key = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2())) as usize
}

impl PortInterfaces {
    /// Returns the interface that a frame is for: that with its destination address; of several, those of a group are for
    /// the one with the address that an ARP request or neighbor solicitation asks for, or else with the network of the
    /// sender.
    pub(super) fn receiver(&self, interfaces: &[Interface], frame: &[u8]) -> Option<usize> {
        let table = match self {
            PortInterfaces::One(interface) => return Some(*interface),
            PortInterfaces::Several(table) => table,
        };
        let link = ethernet::Frame::new(frame).ok()?;
        if link.header().dst().is_unicast() {
            return table.get(link.header().dst());
        }
        let payload = frame.get(ETHERNET_LEN..)?;
        let (wanted, sender): (Option<IpAddr>, IpAddr) = match link.header().ether_type() {
            EtherType::ARP => {
                let message = arp::Packet::new(payload).and_then(|packet| arp::Repr::parse(&packet)).ok()?;
                (Some(message.target_ip.into()), message.sender_ip.into())
            }
            EtherType::IPV4 => (None, ipv4::Packet::new(payload).ok()?.header().src().into()),
            EtherType::IPV6 => {
                let ip = ipv6::Packet::new(payload).ok()?;
                (solicited(&ip).map(IpAddr::from), ip.header().src().into())
            }
            _ => return None,
        };
        let of = |is_it: &dyn Fn(&Interface) -> bool| table.interfaces.iter().copied().find(|n| is_it(&interfaces[*n]));
        let by_target = wanted.and_then(|wanted| of(&|interface| interface.has(wanted)));
        let is_link_local = matches!(sender, IpAddr::V6(sender) if sender.is_unicast_link_local());
        by_target.or_else(|| of(&|interface| !is_link_local && interface.reaches(sender)))
    }
}

/// Returns the address that a neighbor solicitation asks for.
fn solicited(ip: &ipv6::Packet<'_>) -> Option<Ipv6Addr> {
    let message = icmpv6::Message::new(ip.payload()).ok()?;
    if !ndp::is_neighbor(message.header()) {
        return None;
    }
    match Neighbor::parse(&message).ok()? {
        Neighbor::Solicitation { target, .. } => Some(target),
        Neighbor::Advertisement { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn mac_addresses_are_found(
            macs in prop::collection::btree_map(any::<[u8; 6]>(), 0..128usize, 1..128),
            others in prop::collection::vec(any::<[u8; 6]>(), 20),
        ) {
            let macs: BTreeMap<[u8; 6], usize> = macs;
            let table = MacTable::new(macs.iter().map(|(mac, n)| (MacAddr(*mac), *n)).collect());
            for mac in macs.keys().chain(&others) {
                prop_assert_eq!(table.get(MacAddr(*mac)), macs.get(mac).copied());
            }
        }
    }
}
