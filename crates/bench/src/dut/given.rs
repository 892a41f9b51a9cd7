//! Interfaces that a device is given: lent to its namespace, and given back as they were.

use super::guard::Guard;
use super::program::Line;
use super::{DutError, Site};
use serde_json::Value;

/// Lends interfaces: `$1` is a process in the namespace, each other word an interface with its MAC address, whether it
/// is promiscuous and takes all multicasts (`on` or `off`), and `up` or `down`.
/// Both namespaces stay open, so that they can be given back whatever has ended meanwhile.
const LEND: &str = "exec 8</proc/$1/ns/net 9</proc/self/ns/net
shift
lend() { for x; do ip link set \"${x%%,*}\" netns /proc/self/fd/8 || return 1; done; }
lend \"$@\"";
/// Gives them back.
const RETURN: &str = "for x; do
n=${x%%,*} r=${x#*,}
in=\"nsenter --net=/proc/self/fd/8 ip link set $n\"
IFS=,; set -- $r; unset IFS
$in nomaster; $in down; $in address $1; $in promisc $2; $in allmulticast $3; $in netns /proc/self/fd/9
ip link set $n $4
done";

/// Interfaces that are lent for as long as this lives.
pub(crate) struct Given {
    _guard: Guard,
}

impl Given {
    /// Lends the site's interfaces to the namespace of a process.
    ///
    /// # Errors
    /// When one is not there, or is in use: carries an address, or has another interface on top.
    pub(crate) fn lend(site: &mut Site, pid: u32) -> Result<Given, DutError> {
        let mut words = vec![pid.to_string()];
        for name in site.inner().to_vec() {
            words.push(looked_at(site, &name)?);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.note(format!("given to the device: {}", site.inner().join(" ")));
        Ok(Given { _guard: Guard::start(site, LEND, RETURN, &words)? })
    }
}

/// An interface as [`LEND`] wants it.
fn looked_at(site: &Site, name: &str) -> Result<String, DutError> {
    let there = "name one that ip link shows there, and that nothing else uses";
    let above = std::fs::read_dir(format!("/sys/class/net/{name}"));
    let above = above.map_err(|_| site.wrong(format!("there is no interface {name:?}"), there))?;
    let upper = above.flatten().find_map(|e| e.file_name().to_str()?.strip_prefix("upper_").map(str::to_owned));
    if let Some(upper) = upper {
        return Err(site.wrong(format!("interface {name} is in use: {upper} is on top of it"), there));
    }
    let said = Line::new("ip").args(["-json", "addr", "show", "dev", name]).quietly(site)?;
    let all: Value = serde_json::from_str(&said).unwrap_or_default();
    let shown = &all[0];
    let addresses = shown["addr_info"].as_array().map_or(&[][..], Vec::as_slice);
    // the kernel makes addresses of the link by itself
    if let Some(used) = addresses.iter().find(|a| a["scope"] != "link") {
        let address = used["local"].as_str().unwrap_or("an address");
        return Err(site.wrong(format!("interface {name} is in use: it has the address {address}"), there));
    }
    let Some(mac) = shown["address"].as_str().filter(|_| shown["link_type"] == "ether") else {
        return Err(site.wrong(format!("interface {name} is no Ethernet"), there));
    };
    let flag = |flag: &str| shown["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == flag));
    let switch = |is: bool| if is { "on" } else { "off" };
    let (promiscuous, all) = (switch(flag("PROMISC")), switch(flag("ALLMULTI")));
    Ok(format!("{name},{mac},{promiscuous},{all},{}", if flag("UP") { "up" } else { "down" }))
}
