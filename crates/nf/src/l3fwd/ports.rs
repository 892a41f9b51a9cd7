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
/// Slot without an interface; no interface has the broadcast address.
const EMPTY: u64 = u64::MAX;

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
    /// From the highest bit: MAC address, interface, VRF.
    slots: Box<[u64; SLOTS]>,
    interfaces: Vec<usize>,
}

/// Interface with a MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MacEntry {
    pub(super) interface: u8,
    /// Number of its VRF.
    pub(super) vrf: u8,
}

impl MacTable {
    /// Returns a table of interfaces with different addresses, at most 128.
    pub(super) fn new(interfaces: &[(MacAddr, MacEntry)]) -> MacTable {
        let mut slots = Box::new([EMPTY; SLOTS]);
        for (mac, entry) in interfaces {
            let mac = bits(*mac);
            let mut slot = hash(mac);
            while slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = mac << 16 | u64::from(entry.interface) << 8 | u64::from(entry.vrf);
        }
        MacTable { slots, interfaces: interfaces.iter().map(|(_, entry)| entry.interface.into()).collect() }
    }

    /// Returns the interface with a MAC address.
    #[inline(always)]
    pub(super) fn get(&self, mac: MacAddr) -> Option<MacEntry> {
        let mac = bits(mac);
        let mut slot = hash(mac);
        loop {
            match self.slots[slot] {
                EMPTY => return None,
                found if found >> 16 == mac => {
                    let [vrf, interface, ..] = found.to_le_bytes();
                    return Some(MacEntry { interface, vrf });
                }
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }
}

#[inline(always)]
fn bits(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[inline(always)]
fn hash(mac: u64) -> usize {
    (mac.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2())) as usize
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
            return table.get(link.header().dst()).map(|entry| entry.interface.into());
        }
        let payload = frame.get(ETHERNET_LEN..)?;
        let (target, sender): (Option<IpAddr>, IpAddr) = match link.header().ether_type() {
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
        let first = |matches: &dyn Fn(&Interface) -> bool| {
            table.interfaces.iter().copied().find(|number| matches(&interfaces[*number]))
        };
        let by_target = target.and_then(|target| first(&|interface| interface.has(target)));
        let is_link_local = matches!(sender, IpAddr::V6(sender) if sender.is_unicast_link_local());
        by_target.or_else(|| first(&|interface| !is_link_local && interface.reaches(sender)))
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
            macs in prop::collection::btree_map(unicast(), (0..128u8, any::<u8>()), 1..128),
            others in prop::collection::vec(unicast(), 20),
        ) {
            let macs: BTreeMap<[u8; 6], MacEntry> =
                macs.into_iter().map(|(mac, (interface, vrf))| (mac, MacEntry { interface, vrf })).collect();
            let table = MacTable::new(&macs.iter().map(|(mac, entry)| (MacAddr(*mac), *entry)).collect::<Vec<_>>());
            for mac in macs.keys().chain(&others) {
                prop_assert_eq!(table.get(MacAddr(*mac)), macs.get(mac).copied());
            }
            prop_assert_eq!(table.get(MacAddr::BROADCAST), None);
        }
    }

    fn unicast() -> impl Strategy<Value = [u8; 6]> {
        any::<[u8; 6]>().prop_map(|mac| [mac[0] & !1, mac[1], mac[2], mac[3], mac[4], mac[5]])
    }
}
