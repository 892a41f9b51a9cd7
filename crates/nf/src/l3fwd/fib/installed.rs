//! Numbers and tags of the routes of a routing daemon.

use ipnet::IpNet;
use std::collections::HashMap;

/// Tags of routes of a routing daemon; others have 0.
pub(super) const TAGS: [u8; 2] = [1, 2];

/// State of the routes of a routing daemon.
pub(in crate::l3fwd) struct Installed {
    /// Tag of routes that are announced.
    pub(super) tag: u8,
    /// Number of routes.
    pub(super) routes: usize,
    /// Number of routes that were not installed, as limits or their next hops do not permit it.
    pub(in crate::l3fwd) refused: u64,
    /// Values and tags of routes that are not in the tables, as routes of the settings or commands have their prefixes.
    pub(super) shadowed: HashMap<IpNet, (u32, u8)>,
}

impl Default for Installed {
    fn default() -> Self {
        Installed { tag: TAGS[0], routes: 0, refused: 0, shadowed: HashMap::new() }
    }
}

impl Installed {
    /// Returns the tag of stale routes.
    pub(super) fn stale_tag(&self) -> u8 {
        if self.tag == TAGS[0] { TAGS[1] } else { TAGS[0] }
    }

    /// Returns the number of routes.
    pub(in crate::l3fwd) fn routes(&self) -> usize {
        self.routes
    }

    /// Notes that a route of the settings or of a command takes the place of one with this value and tag.
    pub(super) fn shadow(&mut self, net: IpNet, value: u32, tag: u8) {
        self.shadowed.insert(net, (value, tag));
    }

    /// Returns the value and tag of the route that is to take the place of one of the settings or of a command.
    pub(super) fn shadowed(&self, net: IpNet) -> Option<(u32, u8)> {
        self.shadowed.get(&net).copied()
    }

    /// Forgets and returns the value and tag of such a route.
    pub(super) fn unshadow(&mut self, net: IpNet) -> Option<(u32, u8)> {
        self.shadowed.remove(&net)
    }
}
