//! No device: a cable from one of the generator's ports to the other, to know what the generator does by itself.

use super::attach::Attached;
use super::links::Links;
use super::program::Line;
use super::{About, Driver, DutError, Plan, Ports, Running, Site};
use std::path::Path;

/// Beginning of the interfaces' names; this process's number follows.
const NAME: &str = "bw";

pub(crate) struct Wire {
    ports: Ports,
}

impl Wire {
    pub(crate) fn new(plan: &Plan) -> Wire {
        Wire { ports: plan.ports.clone() }
    }
}

impl Driver for Wire {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        remove_leftovers();
        let [a, b] = ["a", "b"].map(|end| format!("{NAME}{}{end}", std::process::id()));
        Line::new("ip").args(["link", "add", &a, "type", "veth", "peer", "name", &b]).output(site)?;
        let cable = Links(vec![a.clone()]);
        for end in [&a, &b] {
            Line::new("ip").args(["link", "set", end, "addrgenmode", "none"]).output(site)?;
            Line::new("ip").args(["link", "set", end, "arp", "off", "up"]).output(site)?;
        }
        let outer = [a, b].map(|end| format!("{}:{end}", self.ports)).to_vec();
        Ok(Running::new(site, Attached::cable(outer, cable), vec![], About::default()))
    }
}

/// Removes cables of processes that are gone.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(NAME).and_then(|n| n.strip_suffix('a')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            Line::new("ip").args(["link", "del", &name]).succeeds();
        }
    }
}
