//! No device: a cable from one of the generator's ports to the other, to know what the generator does by itself.

use super::program::Line;
use super::{About, Driver, DutError, Plan, Ports, Site, Started};
use std::path::Path;

/// Beginning of the interfaces' names; this process's number follows.
const NAME: &str = "bw";

pub(crate) struct Wire {
    ports: Ports,
    /// One end, with which the other goes.
    made: Option<String>,
}

impl Wire {
    pub(crate) fn new(plan: &Plan) -> Wire {
        Wire { ports: plan.ports.clone(), made: None }
    }
}

impl Driver for Wire {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        remove_leftovers();
        let [a, b] = ["a", "b"].map(|end| format!("{NAME}{}{end}", std::process::id()));
        Line::new("ip").args(["link", "add", &a, "type", "veth", "peer", "name", &b]).output(site)?;
        self.made = Some(a.clone());
        for end in [&a, &b] {
            Line::new("ip").args(["link", "set", end, "addrgenmode", "none"]).output(site)?;
            Line::new("ip").args(["link", "set", end, "arp", "off", "up"]).output(site)?;
        }
        let devices = [a, b].map(|end| format!("{}:{end}", self.ports)).to_vec();
        let about = About { configuration: site.notes(), ..About::default() };
        Ok(Started { devices, about })
    }

    fn stop(&mut self) {
        if let Some(name) = self.made.take() {
            Line::new("ip").args(["link", "del", &name]).succeeds();
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop();
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
