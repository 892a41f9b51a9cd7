//! Configuration of the kernel's side of taps.

use super::device::{ETHERNET_HEADER, scheme_and_target};
use config::{ChainFile, Port};
use dpdk::netdev::{InterfaceConfig, configure, move_to_namespace};
use graph::Representor;

/// Moves the tap of a port into its network namespace, and configures a representor like its interface.
///
/// # Errors
/// The problem and the remedy.
pub(crate) fn configure_tap(port: &Port, max_frame: usize) -> Result<(), (String, String)> {
    let Some(("tap", name)) = scheme_and_target(&port.device) else { return Ok(()) };
    if let Some(namespace) = &port.namespace {
        move_to_namespace(name, namespace).map_err(|e| {
            let remedy = format!("create the namespace (ip netns add {namespace}), and run as root");
            (format!("tap {name} could not be moved into the network namespace {namespace:?}: {e}"), remedy)
        })?;
    }
    configure_representor(None, port, max_frame).map_err(|problem| {
        let remedy = "run as root, and check that IPv6 is not disabled in the namespace if there are such addresses";
        (problem, remedy.to_owned())
    })
}

/// Configures the representors of ports that remain open like their interfaces, and returns the errors.
pub(crate) fn reconfigure_representors(before: &[Port], file: &ChainFile) -> Vec<String> {
    let old = |port: &Port| before.iter().find(|old| old.name == port.name);
    let configure = |port| configure_representor(Some(old(port)?), port, file.max_frame).err();
    file.ports.iter().filter_map(configure).collect()
}

/// Configures the tap of a representor like its interface, if that is different from the one of the port `before`.
fn configure_representor(before: Option<&Port>, port: &Port, max_frame: usize) -> Result<(), String> {
    let before = before.and_then(|before| before.representor.as_ref());
    let (Some(("tap", name)), Some(now)) = (scheme_and_target(&port.device), &port.representor) else { return Ok(()) };
    if before == Some(now) {
        return Ok(());
    }
    let before = before.map(|before| interface_config(before, max_frame));
    configure(name, port.namespace.as_deref(), before.as_ref(), &interface_config(now, max_frame))
        .map_err(|e| format!("tap {name} could not be configured like interface {:?}: {e}", now.interface))
}

fn interface_config(representor: &Representor, max_frame: usize) -> InterfaceConfig<'_> {
    // the driver truncates longer frames
    let longest = max_frame as u32 - ETHERNET_HEADER;
    let Representor { mac, mtu, addresses, .. } = representor;
    InterfaceConfig { mac: *mac, mtu: u32::from(*mtu).min(longest), addresses }
}
