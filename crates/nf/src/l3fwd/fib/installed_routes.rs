//! Routes that a routing daemon installs.
//!
//! They are in the same tables as the routes of the settings and of commands, which precede routes to the same prefix. A
//! tag tells them apart, and those that the daemon has announced since it connected last from those of before, which are
//! stale.

use super::adjacency::AdjacencyKind;
use super::groups::Member;
use super::installed::{Installed, TAGS};
use super::next_hops::ObjectKey;
use super::{BLACKHOLE, Fib, MARTIANS, NextHops, PROHIBITED, RouteKey, UNREACHABLE, connected, interface_of};
use crate::l3fwd::config::Config;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::LazyLock;

/// Target of a route that a routing daemon installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstalledTarget {
    /// Packets are dropped, and senders receive an ICMP error.
    Unreachable,
    /// As [`InstalledTarget::Unreachable`], with the code of a prohibition.
    Prohibited,
    /// Packets are dropped silently.
    Blackhole,
    /// Next hops, 1 to 64.
    Via(Vec<InstalledHop>),
    /// Next hops of a next-hop object, 1 to 64. Those of all its routes can be changed at once.
    Object {
        /// Number of the object, until routes are made stale.
        id: u32,
        /// The next hops.
        via: Vec<InstalledHop>,
    },
}

/// A next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstalledHop {
    /// Its address; `None` for a network of the interface.
    pub gateway: Option<IpAddr>,
    /// Number of its interface; `None` for that whose network has the address.
    pub interface: Option<usize>,
    /// Share of flows in relation to that of others, 1 to 65,535.
    pub weight: u16,
}

/// Reason for which a route is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A next hop is on no network of an interface, or without an interface.
    #[error("next hop {0} is not on a network of an interface")]
    NotConnected(IpAddr),
    /// A next hop is an address of the router.
    #[error("next hop {0} is the router itself")]
    OwnAddress(IpAddr),
    /// A next hop without address among others, or without interface.
    #[error("a next hop has no address, and is one of several or of an interface that is not the router's")]
    ConnectedInGroup,
    /// Not 1 to 64 next hops.
    #[error("{0} next hops; 1 to {max} are possible", max = super::NEXT_HOPS_MAX)]
    HopCount(usize),
    /// Addresses that must not be forwarded to.
    #[error("addresses that are not forwarded to (RFC 1812 section 5.3.7)")]
    Martian,
    /// The settings do not allow the prefix.
    #[error("the setting `fpm.prefixes` does not contain it")]
    NotAllowed,
    /// The most routes are installed.
    #[error("{0} routes are installed, the maximum")]
    TooManyRoutes(usize),
    /// A table is full, or there are too many next hops.
    #[error("{0}")]
    Full(String),
}

impl Fib {
    /// Installs a route or replaces it. A network or address of the router keeps its own.
    ///
    /// # Errors
    /// The route is not installed; one that was before is removed.
    pub(in crate::l3fwd) fn install(
        &self,
        config: &Config,
        hops: &mut NextHops,
        of: RouteKey,
        target: &InstalledTarget,
    ) -> Result<(), Refused> {
        let installed = self.try_install(config, hops, of, target);
        if installed.is_err() {
            self.uninstall(hops, of);
        }
        installed
    }

    fn try_install(
        &self,
        config: &Config,
        hops: &mut NextHops,
        (vrf, net): RouteKey,
        target: &InstalledTarget,
    ) -> Result<(), Refused> {
        let settings = &config.vrfs[vrf];
        if !settings.is_allowed(net) {
            return Err(Refused::NotAllowed);
        }
        match martian(net) {
            // the kernel has one for each interface
            Some(IpNet::V6(net)) if net.network().is_unicast_link_local() => return Ok(()),
            Some(_) => return Err(Refused::Martian),
            None => {}
        }
        let before = self.tables(vrf).get_tagged(net);
        let is_shadowed = match before.filter(|(_, tag)| *tag == 0) {
            Some((value, _)) => match self.adjacency(value).load().kind() {
                AdjacencyKind::Connected | AdjacencyKind::Local | AdjacencyKind::Broadcast => return Ok(()),
                _ => !self.is_neighbour_route(net, value),
            },
            None => false,
        };
        let old = match is_shadowed {
            true => hops.installed[vrf].shadowed(net).map(|(value, _)| value),
            false => before.filter(|(_, tag)| *tag != 0).map(|(value, _)| value),
        };
        let routes_max = settings.fpm.as_ref().map_or(0, |fpm| fpm.routes_max);
        if old.is_none() && hops.installed[vrf].routes >= routes_max {
            return Err(Refused::TooManyRoutes(hops.installed[vrf].routes));
        }
        let value = match target {
            InstalledTarget::Unreachable => UNREACHABLE,
            InstalledTarget::Prohibited => PROHIBITED,
            InstalledTarget::Blackhole => BLACKHOLE,
            InstalledTarget::Via(via) | InstalledTarget::Object { via, .. } => match (&via[..], target) {
                // a network of the interface
                ([InstalledHop { gateway: None, interface: Some(n), .. }], _)
                    if config.interfaces.get(*n).is_some_and(|interface| interface.vrf == vrf)
                        && net.prefix_len() < net.max_prefix_len() =>
                {
                    connected(*n)
                }
                (_, InstalledTarget::Object { id, .. }) => {
                    let members = members(config, (vrf, Some(net)), via)?;
                    hops.acquire_object(self, &config.interfaces, (vrf, *id), members).map_err(Refused::Full)?
                }
                _ => {
                    let members = members(config, (vrf, Some(net)), via)?;
                    hops.acquire(self, &config.interfaces, members).map_err(Refused::Full)?
                }
            },
        };
        let tag = hops.installed[vrf].tag;
        if is_shadowed {
            hops.installed[vrf].shadow(net, value, tag);
        } else {
            let inserted = self.tables(vrf).insert_tagged(net, value, tag);
            if let Err(e) = inserted {
                hops.release(self, value);
                return Err(Refused::Full(e.to_string()));
            }
        }
        hops.installed[vrf].routes += usize::from(old.is_none());
        if let Some(old) = old {
            hops.release(self, old);
        }
        Ok(())
    }

    /// Changes the group of a next-hop object, in a time that does not depend on the number of its routes. Each packet
    /// finds the old next hops or the new ones. Returns the number of routes that have changed: all that were installed
    /// while the object had several next hops, and none if the next hops are refused.
    pub(in crate::l3fwd) fn change_object(
        &self,
        config: &Config,
        hops: &mut NextHops,
        (vrf, id): ObjectKey,
        via: &[InstalledHop],
    ) -> usize {
        let members = members(config, (vrf, None), via).map_err(|e| e.to_string());
        members.and_then(|members| hops.change_object(self, &config.interfaces, (vrf, id), members)).unwrap_or(0)
    }

    /// Removes a route that was installed; does nothing if there is none.
    pub(in crate::l3fwd) fn uninstall(&self, hops: &mut NextHops, (vrf, net): RouteKey) {
        let value = match hops.installed[vrf].unshadow(net) {
            Some((value, _)) => value,
            None => {
                let mut tables = self.tables(vrf);
                let Some((value, _)) = tables.get_tagged(net).filter(|(_, tag)| *tag != 0) else { return };
                tables.remove_net(net);
                value
            }
        };
        hops.installed[vrf].routes -= 1;
        if net.prefix_len() == net.max_prefix_len() {
            // without it, packets to the neighbour resolve it again
            let _ = self.insert_neighbour_route(vrf, net.addr());
        }
        hops.release(self, value);
    }

    /// Makes all installed routes of a VRF stale.
    pub(in crate::l3fwd) fn mark_stale(&self, hops: &mut NextHops, vrf: usize) {
        let (fresh, stale) = (hops.installed[vrf].tag, hops.installed[vrf].stale_tag());
        // stale ones get the tag of those that become stale, so that theirs is free
        let stale_ones = self.stale(hops, vrf);
        self.retag_stale(hops, vrf, &stale_ones);
        hops.installed[vrf].shadowed.values_mut().for_each(|(_, tag)| *tag = fresh);
        hops.installed[vrf].tag = stale;
        hops.forget_objects(vrf);
    }

    /// Gives stale routes of a VRF to these prefixes the tag of those that become stale next.
    pub(in crate::l3fwd) fn retag_stale(&self, hops: &NextHops, vrf: usize, nets: &[IpNet]) {
        let (fresh, stale) = (hops.installed[vrf].tag, hops.installed[vrf].stale_tag());
        let mut tables = self.tables(vrf);
        for net in nets {
            if let Some((value, tag)) = tables.get_tagged(*net)
                && tag == stale
            {
                // ignore errors: a route that is in the table can be replaced
                let _ = tables.insert_tagged(*net, value, fresh);
            }
        }
    }

    /// Returns the prefixes of the stale routes of a VRF.
    pub(in crate::l3fwd) fn stale(&self, hops: &NextHops, vrf: usize) -> Vec<IpNet> {
        let stale = hops.installed[vrf].stale_tag();
        let mut nets: Vec<IpNet> = self.tables(vrf).of_tag(stale).map(|(net, _)| net).collect();
        let shadowed = hops.installed[vrf].shadowed.iter().filter(|(_, (_, tag))| *tag == stale);
        nets.extend(shadowed.map(|(net, _)| *net));
        nets
    }

    /// Removes the routes of a VRF to these prefixes that are stale, and returns their number.
    pub(in crate::l3fwd) fn remove_stale(&self, hops: &mut NextHops, vrf: usize, nets: &[IpNet]) -> usize {
        let stale = hops.installed[vrf].stale_tag();
        let mut removed = 0;
        for net in nets {
            let shadowed = hops.installed[vrf].shadowed(*net).map(|(_, tag)| tag);
            if shadowed.or_else(|| self.tables(vrf).get_tagged(*net).map(|(_, tag)| tag)) == Some(stale) {
                self.uninstall(hops, (vrf, *net));
                removed += 1;
            }
        }
        removed
    }

    /// Passes every installed route of a VRF to `each`, and whether it is stale.
    pub(in crate::l3fwd) fn for_each_installed(
        &self,
        hops: &NextHops,
        vrf: usize,
        mut each: impl FnMut(IpNet, InstalledTarget, bool),
    ) {
        let Installed { tag, shadowed, .. } = &hops.installed[vrf];
        let shadowed = shadowed.iter().map(|(net, (value, tag))| (*net, *value, *tag));
        let routes: Vec<_> = {
            let tables = self.tables(vrf);
            let tagged = TAGS.iter().flat_map(|tag| tables.of_tag(*tag).map(|(net, value)| (net, value, *tag)));
            tagged.chain(shadowed).collect()
        };
        for (net, value, of) in routes {
            let hop = |&((interface, gateway), weight): &Member| InstalledHop {
                gateway: Some(gateway),
                interface: Some(interface),
                weight,
            };
            let target = match value {
                UNREACHABLE => InstalledTarget::Unreachable,
                PROHIBITED => InstalledTarget::Prohibited,
                BLACKHOLE => InstalledTarget::Blackhole,
                _ => match hops.members(value) {
                    [] => {
                        let interface = Some(interface_of(value));
                        InstalledTarget::Via(vec![InstalledHop { gateway: None, interface, weight: 1 }])
                    }
                    members => {
                        let via = members.iter().map(hop).collect();
                        match hops.object(value) {
                            Some(id) => InstalledTarget::Object { id, via },
                            None => InstalledTarget::Via(via),
                        }
                    }
                },
            };
            each(net, target, of != *tag);
        }
    }

    /// Returns true if a routing daemon has installed the route that packets use.
    pub(in crate::l3fwd) fn is_installed(&self, (vrf, net): RouteKey) -> bool {
        self.tables(vrf).get_tagged(net).is_some_and(|(_, tag)| tag != 0)
    }

    /// Makes an installed route stale.
    pub(in crate::l3fwd) fn make_stale(&self, hops: &mut NextHops, (vrf, net): RouteKey) {
        let stale = hops.installed[vrf].stale_tag();
        if let Some((_, tag)) = hops.installed[vrf].shadowed.get_mut(&net) {
            *tag = stale;
            return;
        }
        let mut tables = self.tables(vrf);
        if let Some((value, _)) = tables.get_tagged(net).filter(|(_, tag)| *tag != 0) {
            // ignore errors: a route that is in the table can be replaced
            let _ = tables.insert_tagged(net, value, stale);
        }
    }
}

/// Returns the prefix of addresses that are not forwarded to which contains a network.
fn martian(net: IpNet) -> Option<IpNet> {
    static ALL: LazyLock<Vec<IpNet>> = LazyLock::new(|| MARTIANS.split(' ').filter_map(|m| m.parse().ok()).collect());
    ALL.iter().find(|martian| martian.contains(&net)).copied()
}

/// Returns the next hops with their interfaces; `net` is that of their only route.
fn members(config: &Config, (vrf, net): (usize, Option<IpNet>), via: &[InstalledHop]) -> Result<Vec<Member>, Refused> {
    if via.is_empty() || via.len() > super::NEXT_HOPS_MAX {
        return Err(Refused::HopCount(via.len()));
    }
    let member = |hop: &InstalledHop| {
        let host = net.filter(|net| net.prefix_len() == net.max_prefix_len());
        let host = host.filter(|_| via.len() == 1 && hop.interface.is_some());
        let gateway = hop.gateway.or(host.map(|host| host.addr())).ok_or(Refused::ConnectedInGroup)?;
        // the interface of a gateway that is said, as those of link-local addresses have to be
        let interface = hop.interface.filter(|n| config.interfaces.get(*n).is_some_and(|own| own.vrf == vrf));
        let interface =
            interface.or_else(|| config.interface_to(vrf, gateway)).ok_or(Refused::NotConnected(gateway))?;
        if config.interfaces[interface].has(gateway) {
            return Err(Refused::OwnAddress(gateway));
        }
        Ok(((interface, gateway), hop.weight.max(1)))
    };
    via.iter().map(member).collect()
}

#[cfg(test)]
mod tests;
