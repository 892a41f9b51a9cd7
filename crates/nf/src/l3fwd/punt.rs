//! Punting and injection: packets between an interface and its representor, the port of the control plane.

pub(super) mod class;
pub(super) mod gtsm;
pub(super) mod limits;

use super::config::Config;
use super::counters::DropReason;
use super::headers::ETHERNET_LEN;
use super::interface::Interface;
use super::ports::OUTPUTS;
use super::router::Router;
use graph::Context;
use packet::{Batch, Packet};
use std::net::IpAddr;
use wire::{EtherType, MacAddr, ethernet};

/// First bytes of the group addresses that bridges reserve for protocols of a link, such as STP and LLDP (IEEE 802.1Q
/// §8.6.3).
const BRIDGE_GROUPS: [u8; 5] = [0x01, 0x80, 0xc2, 0, 0];

/// Returns true if packets to a broadcast or multicast address may go to the control plane: limited broadcast, and the
/// link-local groups of routing protocols, 224.0.0.0/24 and ff02::/16.
pub(super) fn is_punted_group(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_broadcast() || group.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(group) => group.segments()[0] == 0xff02,
    }
}

/// Representor that receives a packet to the router.
#[derive(Clone, Copy)]
pub(super) struct PuntTarget {
    representor: usize,
    /// MAC address of its interface, with which alone the control plane accepts a packet that another interface received.
    mac: Option<MacAddr>,
}

impl Config {
    /// Returns the representor for a packet to the router: that of the interface which received it, by which routing
    /// protocols recognise their neighbours, or else that of the interface which has the address.
    pub(super) fn punt_target(&self, received_from: usize, dst: IpAddr) -> Option<PuntTarget> {
        if let Some(representor) = self.interfaces[received_from].representor {
            return Some(PuntTarget { representor, mac: None });
        }
        if matches!(dst, IpAddr::V6(dst) if dst.is_unicast_link_local()) {
            return None;
        }
        let owners = self.control_plane_of(received_from).filter(|owner| owner.has(dst));
        owners.filter_map(|owner| Some(PuntTarget { representor: owner.representor?, mac: Some(owner.mac) })).next()
    }
}

impl Router {
    /// Sends a packet to a representor.
    pub(super) fn punt(
        &mut self,
        cx: &mut Context<'_>,
        PuntTarget { representor, mac }: PuntTarget,
        mut packet: Packet,
    ) {
        if let Some(mac) = mac
            && let Some(dst) = packet.data_mut().first_chunk_mut()
        {
            *dst = mac.0;
        }
        match self.punt.admit(cx, representor, packet.data()) {
            Some(class) => {
                self.punt.punted[class].add(1);
                cx.emit(self.output_of(representor), packet);
            }
            None => self.drop(cx, DropReason::PuntExceeded, packet),
        }
    }

    /// Sends a copy of a frame, which the router processes itself, to the representor of an interface if it has one.
    pub(super) fn punt_copy(&mut self, cx: &mut Context<'_>, interface: usize, frame: &[u8]) {
        if let Some(representor) = self.config.interfaces[interface].representor
            && let Some(class) = self.punt.admit(cx, representor, frame)
            && let Some(copy) = self.alloc_frame(cx, frame)
        {
            self.punt.punted[class].add(1);
            cx.emit(self.output_of(representor), copy);
        }
    }

    /// Returns the output to a representor: they follow the output `local` and those of the interfaces.
    fn output_of(&self, representor: usize) -> u8 {
        (OUTPUTS.len() + self.config.ports.len() + representor) as u8
    }

    /// Sends packets that were received from a representor by its interface, unchanged: the control plane has chosen
    /// both by its own routes. Drops frames that the interface must not send.
    #[cold]
    pub(super) fn inject(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let representor = usize::from(input).checked_sub(self.config.ports.len());
        let interface = representor.and_then(|n| self.config.representors.get(n)).copied();
        let own = interface.map(|n| &self.config.interfaces[n]);
        let is_refused = |packet: &mut Packet| (!own.is_some_and(|own| own.may_send(packet.data()))).then_some(());
        batch.extract_if(is_refused, |(), packet| cx.drop(DropReason::InjectRefused, packet));
        self.punt.injected.add(batch.len() as u64);
        if let Some(own) = own {
            cx.set_output(own.output);
        }
    }
}

impl Interface {
    /// Returns true if a frame of the control plane may be sent: ARP and IP from the interface's MAC address, not longer
    /// than its MTU, and not to the addresses of protocols of bridges.
    fn may_send(&self, frame: &[u8]) -> bool {
        let Ok(link) = ethernet::Frame::new(frame) else { return false };
        let link = link.header();
        link.src() == self.mac
            && [EtherType::ARP, EtherType::IPV4, EtherType::IPV6].contains(&link.ether_type())
            && !link.dst().0.starts_with(&BRIDGE_GROUPS)
            && frame.len() <= ETHERNET_LEN + usize::from(self.mtu)
    }
}
