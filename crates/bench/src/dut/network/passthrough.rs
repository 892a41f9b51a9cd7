//! Existing interfaces, moved into the namespace of a device and back.

use crate::dut::context::{DutContext, DutError};
use crate::dut::process::{CommandLine, start_cleanup};
use runtime::CleanupProcess;
use serde_json::Value;

/// Moves interfaces into a namespace: `$1` is a process in it, each other word an interface with its MAC address, its
/// promiscuous and all-multicast flags (`on` or `off`), and `up` or `down`. Both namespaces stay open, so that the
/// interfaces can be moved back after any process has ended.
const MOVE_IN: &str = "exec 8</proc/$1/ns/net 9</proc/self/ns/net
shift
move() { for x; do ip link set \"${x%%,*}\" netns /proc/self/fd/8 || return 1; done; }
move \"$@\"";
/// Moves them back and restores their state.
const MOVE_BACK: &str = "for x; do
n=${x%%,*} r=${x#*,}
in=\"nsenter --net=/proc/self/fd/8 ip link set $n\"
IFS=,; set -- $r; unset IFS
$in nomaster; $in down; $in address $1; $in promisc $2; $in allmulticast $3; $in netns /proc/self/fd/9
ip link set $n $4
done";

/// Interfaces in the namespace of a device; they are moved back on drop.
pub(crate) struct InterfacePassthrough {
    _cleanup: CleanupProcess,
}

impl InterfacePassthrough {
    /// Moves the interfaces of the context into the namespace of a process.
    ///
    /// # Errors
    /// If one does not exist or is in use: it has an address or an upper interface.
    pub(crate) fn new(context: &mut DutContext, pid: u32) -> Result<InterfacePassthrough, DutError> {
        let mut words = vec![pid.to_string()];
        for name in context.interfaces().to_vec() {
            words.push(interface_state(context, &name)?);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        context.record(format!("given to the device: {}", context.interfaces().join(" ")));
        Ok(InterfacePassthrough { _cleanup: start_cleanup(context, MOVE_IN, MOVE_BACK, &words)? })
    }
}

/// Returns an unused interface with its state, in the format of [`MOVE_IN`].
fn interface_state(context: &DutContext, name: &str) -> Result<String, DutError> {
    let remedy = "name an unused interface that ip link lists on that host";
    let sysfs = std::fs::read_dir(format!("/sys/class/net/{name}"));
    let sysfs = sysfs.map_err(|_| context.error(format!("interface {name:?} does not exist"), remedy))?;
    let upper = sysfs.flatten().find_map(|e| e.file_name().to_str()?.strip_prefix("upper_").map(str::to_owned));
    if let Some(upper) = upper {
        return Err(context.error(format!("interface {name} is in use: {upper} is on top of it"), remedy));
    }
    let output = CommandLine::new("ip").args(["-json", "addr", "show", "dev", name]).run_unrecorded(context)?;
    let all: Value = serde_json::from_str(&output).unwrap_or_default();
    let interface = &all[0];
    let addresses = interface["addr_info"].as_array().map_or(&[][..], Vec::as_slice);
    // link-local addresses are assigned by the kernel
    if let Some(used) = addresses.iter().find(|a| a["scope"] != "link") {
        let address = used["local"].as_str().unwrap_or("an address");
        return Err(context.error(format!("interface {name} is in use: it has the address {address}"), remedy));
    }
    let Some(mac) = interface["address"].as_str().filter(|_| interface["link_type"] == "ether") else {
        return Err(context.error(format!("interface {name} is not an Ethernet interface"), remedy));
    };
    let flag = |flag: &str| interface["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == flag));
    let on_off = |on: bool| if on { "on" } else { "off" };
    let (promiscuous, all_multicast) = (on_off(flag("PROMISC")), on_off(flag("ALLMULTI")));
    Ok(format!("{name},{mac},{promiscuous},{all_multicast},{}", if flag("UP") { "up" } else { "down" }))
}
