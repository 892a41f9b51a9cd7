//! Chain files that describe several hosts.

use crate::plan::ChainFile;
use remote::RemoteHost;

/// The hosts of a chain file, and the links between them.
pub struct Hosts {
    /// Hosts, in the order in which the paths reach them.
    pub hosts: Vec<Host>,
    /// Links, in the order of the file.
    pub links: Vec<HostLink>,
}

/// A host and its part of the file.
pub struct Host {
    /// Name.
    pub name: String,
    /// Destination of ssh, and program there.
    pub remote: RemoteHost,
    /// Part of the file, without the checks that need this host.
    pub part: ChainFile,
}

/// A link between two hosts: a port of its name on each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// Name.
    pub name: String,
    /// Names of the hosts.
    pub ends: [String; 2],
    /// True if packets cross from the first end to the second, and from the second to the first.
    pub is_crossed: [bool; 2],
}

impl HostLink {
    /// Returns the index in [`HostLink::is_crossed`] of the direction between two hosts, if the link connects them.
    pub(crate) fn direction(&self, from: &str, to: &str) -> Option<usize> {
        [[from, to], [to, from]].iter().position(|ends| self.ends == *ends)
    }

    /// Returns the sending and the receiving host of each direction in which packets cross.
    pub fn crossings(&self) -> impl Iterator<Item = (&str, &str)> {
        let [a, b] = &self.ends;
        let both = [(a.as_str(), b.as_str()), (b.as_str(), a.as_str())];
        both.into_iter().zip(self.is_crossed).filter_map(|(direction, is_crossed)| is_crossed.then_some(direction))
    }
}

/// All hosts and links of a file.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) hosts: Vec<(String, RemoteHost)>,
    pub(crate) links: Vec<HostLink>,
}
