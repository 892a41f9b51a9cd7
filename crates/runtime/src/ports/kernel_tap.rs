//! Configuration of the kernel's side of taps.

use super::device::{ETHERNET_HEADER, scheme_and_target};
use config::Port;
use dpdk::netdev::{InterfaceConfig, configure};

/// Moves the tap of a port into its network namespace, and configures a representor like its interface.
///
/// # Errors
/// The problem and the remedy.
pub(crate) fn configure_tap(port: &Port, max_frame: usize) -> Result<(), (String, String)> {
    let Some(("tap", name)) = scheme_and_target(&port.device) else { return Ok(()) };
    if port.namespace.is_none() && port.representor.is_none() {
        return Ok(());
    }
    // the driver truncates longer frames
    let longest = max_frame as u32 - ETHERNET_HEADER;
    let config = port.representor.as_ref().map(|representor| InterfaceConfig {
        mac: representor.mac,
        mtu: u32::from(representor.mtu).min(longest),
        addresses: &representor.addresses,
    });
    configure(name, port.namespace.as_deref(), config.as_ref()).map_err(|e| {
        let remedy = match &port.namespace {
            Some(namespace) => format!("create the namespace (ip netns add {namespace}), and run as root"),
            None => "run as root, and check that no other interface has the addresses".to_owned(),
        };
        (format!("tap {name} could not be configured: {e}"), remedy)
    })
}
