//! Changes of routes while workers look up addresses.
//!
//! The holder of the [`NextHops`] of a VRF changes its routes. It holds the lock of the tables as long as it takes, up to
//! milliseconds for a short prefix, which workers never wait for, and then that of [`Control`](super::Control), which they
//! do wait for, for a moment.

use super::adjacency::AdjacencyKind;
use super::route_file::RouteTarget;
use super::{Fib, MARTIAN, MARTIANS, NextHops, RouteKey, interface_of, is_connected};
use crate::l3fwd::config::Config;
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::net::IpAddr;

const LIST: &str = "list the routes: bondstone routes list";

impl Fib {
    /// Checks whether a route can be added or replaced.
    ///
    /// # Errors
    /// The prefix is that of a network or address of the router, or a next hop is invalid.
    pub(in crate::l3fwd) fn check_addition(
        &self,
        config: &Config,
        (vrf, net): RouteKey,
        to: &RouteTarget,
    ) -> Result<(), Diagnostic> {
        let value = self.tables(vrf).get_tagged(net).filter(|(_, tag)| *tag == 0).map(|(value, _)| value);
        if let Some(AdjacencyKind::Connected | AdjacencyKind::Local | AdjacencyKind::Broadcast) = self.kind(value) {
            let d = Diagnostic::new("is a network or an address of the router itself").value(net);
            return Err(d.remedy("add a route to another prefix"));
        }
        if let RouteTarget::Via(hops) = to {
            Self::check_hops(config, (vrf, net), hops).map_err(|problem| invalid(net, &problem))?;
        }
        match to {
            RouteTarget::Default => Err(invalid(net, "has no next hop")),
            _ => Ok(()),
        }
    }

    /// Adds a route or replaces it.
    ///
    /// # Errors
    /// As for [`Fib::check_addition`], or a table is full.
    pub(in crate::l3fwd) fn add_route(
        &self,
        config: &Config,
        hops: &mut NextHops,
        (vrf, net): RouteKey,
        to: &RouteTarget,
    ) -> Result<(), Diagnostic> {
        let full = |problem: String| Diagnostic::new(problem).value(net).remedy("remove routes");
        let value = self.value(config, (vrf, net), to, hops).map_err(|problem| invalid(net, &problem))?;
        let mut tables = self.tables(vrf);
        let before = tables.get_tagged(net).filter(|(_, tag)| *tag != 0);
        tables.insert(net, value).map_err(|e| full(e.to_string()))?;
        if let Some((value, tag)) = before {
            hops.installed.shadow(net, value, tag);
        }
        Ok(())
    }

    /// Checks whether a route can be removed.
    ///
    /// # Errors
    /// There is no such route, or it is not one of those that settings and commands add.
    pub(in crate::l3fwd) fn check_removal(&self, (vrf, net): RouteKey) -> Result<(), Diagnostic> {
        let (value, tag) = self.tables(vrf).get_tagged(net).unzip();
        match self.kind(value) {
            Some(_) if tag != Some(0) => {
                let d = Diagnostic::new("is a route that the routing daemon has installed").value(net);
                Err(d.remedy("remove it there, or add a route to the same prefix, which precedes it"))
            }
            None => Err(Diagnostic::new("has no route").value(net).remedy(LIST)),
            Some(
                AdjacencyKind::Connected | AdjacencyKind::Local | AdjacencyKind::Broadcast | AdjacencyKind::Martian,
            ) => Err(Diagnostic::new("is a route of the router itself").value(net).remedy(LIST)),
            _ if value.is_some_and(|value| self.is_neighbour_route(net, value)) => {
                Err(Diagnostic::new("is a neighbour, not a route").value(net).remedy(LIST))
            }
            Some(_) => Ok(()),
        }
    }

    /// Removes a route, for which [`Fib::check_removal`] returned no error.
    pub(in crate::l3fwd) fn remove_route(&self, hops: &mut NextHops, (vrf, net): RouteKey) -> Result<(), Diagnostic> {
        let full = |problem: String| Diagnostic::new(problem).value(net);
        // the route that it had replaced returns
        if let Some((value, tag)) = hops.installed.shadowed(net) {
            self.tables(vrf).insert_tagged(net, value, tag).map_err(|e| full(e.to_string()))?;
            hops.installed.unshadow(net);
            return Ok(());
        }
        self.tables(vrf).remove_net(net);
        if MARTIANS.split(' ').any(|martian| martian.parse() == Ok(net)) {
            self.tables(vrf).insert(net, MARTIAN).map_err(|e| full(e.to_string()))?;
        }
        if net.prefix_len() == net.max_prefix_len() {
            self.insert_neighbour_route(vrf, net.addr()).map_err(full)?;
        }
        Ok(())
    }

    /// Inserts the host route to an address if it is that of a neighbour and no longer prefix than that of the interface
    /// contains it.
    pub(super) fn insert_neighbour_route(&self, vrf: usize, address: IpAddr) -> Result<(), String> {
        let mut tables = self.tables(vrf);
        let control = self.control();
        let interface = tables.longest(address).map_or(0, interface_of);
        if let Some(neighbour) = control.neighbours.get(&(interface, address))
            && is_connected(&tables, interface, address)
        {
            tables.insert(IpNet::from(address), neighbour.adjacency).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Returns true if a route is that to a neighbour, which its adjacency was made for.
    pub(in crate::l3fwd) fn is_neighbour_route(&self, net: IpNet, value: u32) -> bool {
        net.prefix_len() == net.max_prefix_len() && self.control().key_of(value).is_some_and(|key| key.1 == net.addr())
    }

    fn kind(&self, value: Option<u32>) -> Option<AdjacencyKind> {
        value.map(|value| self.adjacency(value).load().kind())
    }
}

fn invalid(net: IpNet, problem: &str) -> Diagnostic {
    let remedy = "write PREFIX via ADDRESS..., PREFIX unreachable, PREFIX prohibit or PREFIX blackhole; next hops are on networks of interfaces";
    Diagnostic::new(format!("route {problem}")).value(net).remedy(remedy)
}
