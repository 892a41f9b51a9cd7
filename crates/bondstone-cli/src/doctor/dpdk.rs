//! Checks of DPDK.

use super::{Check, State};
use dpdk::{Eal, Memory, Port};
use logger::eprintln;
use std::path::{Path, PathBuf};

/// Name of the check of virtual devices.
pub(super) const DEVICES: &str = "virtual devices of DPDK";

/// Result of starting DPDK.
pub(super) struct DpdkChecks {
    /// Packet memory; `None` if DPDK does not start.
    pub(super) memory: Option<Memory>,
    pub(super) checks: Vec<Check>,
}

pub(super) fn checks() -> DpdkChecks {
    let version = Check::new("DPDK", State::Ok, dpdk::version(), "");
    let eal = match Eal::start(Memory::best(), &[]) {
        Ok(eal) => eal,
        Err(e) => {
            let remedy = "free 512 MiB of memory; give this user access to the huge pages, /sys and /proc";
            let check = Check::new("DPDK starts", State::Missing, e.to_string(), "running chain files").remedy(remedy);
            return DpdkChecks { memory: None, checks: vec![version, check] };
        }
    };
    DpdkChecks { memory: Some(eal.memory()), checks: vec![version, started(eal.memory()), drivers(eal)] }
}

fn started(memory: Memory) -> Check {
    let found = match memory {
        Memory::Huge => "yes, on huge pages",
        Memory::Ordinary => "yes, on ordinary pages",
    };
    Check::new("DPDK starts", State::Ok, found, "running chain files")
}

/// Opens a device of each driver that needs neither privileges nor a peer.
fn drivers(eal: Eal) -> Check {
    let folder = Folder::new();
    let socket = |name: &str| folder.0.join(name).display().to_string();
    let devices = [
        ("null", "net_null_doctor", String::new()),
        ("ring", "net_ring_doctor", String::new()),
        ("memif", "net_memif_doctor", format!("socket-abstract=no,role=server,socket={}", socket("m"))),
        ("vhost", "net_vhost_doctor", format!("iface={}", socket("v"))),
    ];
    let tried: Vec<(&str, Result<(), String>)> = devices
        .iter()
        .map(|(kind, name, arguments)| (*kind, Port::open(eal, name, arguments).map(drop).map_err(|e| e.to_string())))
        .collect();
    devices_check(&tried)
}

fn devices_check(tried: &[(&str, Result<(), String>)]) -> Check {
    let opened: Vec<&str> = tried.iter().filter(|(_, r)| r.is_ok()).map(|(kind, _)| *kind).collect();
    let failed: Vec<String> =
        tried.iter().filter_map(|(kind, r)| Some(format!("{kind} failed: {}", r.as_ref().err()?))).collect();
    let provides = "ports in memory, to other processes and to VMs";
    if failed.is_empty() {
        return Check::new(DEVICES, State::Ok, format!("{} open", opened.join(", ")), provides);
    }
    Check::new(DEVICES, State::Missing, [opened.join(", "), failed.join("; ")].join("; "), provides)
        .remedy("check the error; a build of DPDK may lack the driver")
}

/// A temporary folder for sockets.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("bondstone-doctor-{}", std::process::id()));
        // if this fails, opening the sockets fails and is reported
        let _ = std::fs::create_dir(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let leave = |e: std::io::Error| eprintln!("warning: cannot remove {}: {e}", Path::display(&self.0));
        std::fs::remove_dir_all(&self.0).unwrap_or_else(leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_drivers_are_listed() {
        assert_eq!(devices_check(&[("null", Ok(())), ("ring", Ok(()))]).found, "null, ring open");
        let some = devices_check(&[("null", Ok(())), ("vhost", Err("no driver".into()))]);
        assert_eq!((some.state, some.found.as_str()), (State::Missing, "null; vhost failed: no driver"));
        assert!(started(Memory::Huge).found.contains("huge"));
    }
}
