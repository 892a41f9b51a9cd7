//! Configuration of taps like the interfaces that they represent.

use super::super::device::ETHERNET_HEADER;
use config::{ChainFile, Port};
use dpdk::netdev::{self, InterfaceConfig};
use graph::Representor;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Configures the tap of a representor like its interface.
///
/// # Errors
/// The problem.
pub(super) fn configure(port: &Port, max_frame: usize) -> Result<(), String> {
    let (Some(name), Some(Representor { mac, mtu, addresses, interface, .. })) =
        (port.representor_tap(), &port.representor)
    else {
        return Ok(());
    };
    // longer frames do not fit into packet buffers
    let longest = max_frame as u32 - ETHERNET_HEADER;
    let config = InterfaceConfig { mac: *mac, mtu: u32::from(*mtu).min(longest), addresses };
    netdev::configure(name, port.namespace.as_deref(), &config)
        .map_err(|e| format!("tap {name} could not be configured like interface {interface:?}: {e}"))
}

/// Representors that a reload could not configure, by port, with the last problem of each.
#[derive(Default)]
pub(crate) struct UnconfiguredRepresentors(Mutex<BTreeMap<String, String>>);

impl UnconfiguredRepresentors {
    /// Configures the representors of open ports like their interfaces in the file, where these differ from `before` or
    /// an attempt has failed. Returns the problems, which [`retry`](Self::retry) tries to resolve.
    pub(crate) fn update(&self, before: &[Port], file: &ChainFile) -> Vec<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_changed = |port: &&Port| {
            before.iter().any(|old| old.name == port.name && old.representor != port.representor)
                || all.contains_key(&port.name)
        };
        let failed = |port: &Port| Some((port.name.clone(), configure(port, file.max_frame).err()?));
        *all = file.ports.iter().filter(is_changed).filter_map(failed).collect();
        all.values().cloned().collect()
    }

    /// Configures those whose last attempt has failed again, and logs successes and new problems.
    pub(crate) fn retry(&self, file: &ChainFile) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, problem| {
            let Some(port) = file.ports.iter().find(|port| port.name == *name) else { return false };
            match configure(port, file.max_frame) {
                Ok(()) => {
                    tracing::info!(target: "run", port = name, "port {name:?}: the tap is configured like its interface");
                    false
                }
                Err(new) => {
                    if new != *problem {
                        tracing::warn!(target: "run", port = name, "port {name:?}: {new}; it is tried again every second");
                        *problem = new;
                    }
                    true
                }
            }
        });
    }
}
