//! DPDK itself.

use super::{Check, State};
use dpdk::{Eal, Memory, Port};
use std::path::{Path, PathBuf};

/// Name of the check of the drivers.
pub(super) const DEVICES: &str = "DPDK's virtual devices";

/// What became of starting DPDK.
pub(super) struct Found {
    /// What packets are kept in; `None` when it does not start.
    pub(super) memory: Option<Memory>,
    pub(super) checks: Vec<Check>,
}

pub(super) fn look() -> Found {
    let version = Check::new("DPDK", State::Ok, dpdk::version(), "");
    let eal = match Eal::start(Memory::best(), &[]) {
        Ok(eal) => eal,
        Err(e) => {
            let remedy = "free some memory (512 MiB are taken at the start); let this user reach the huge pages that are there, /sys and /proc";
            let check = Check::new("DPDK starts", State::Missing, e.to_string(), "running chain files").remedy(remedy);
            return Found { memory: None, checks: vec![version, check] };
        }
    };
    Found { memory: Some(eal.memory()), checks: vec![version, started(eal.memory()), drivers(eal)] }
}

fn started(memory: Memory) -> Check {
    let found = match memory {
        Memory::Huge => "yes, on huge pages",
        Memory::Ordinary => "yes, on ordinary pages",
    };
    Check::new("DPDK starts", State::Ok, found, "running chain files")
}

/// Opens, for a moment, a device of every driver that needs neither a privilege nor another process.
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
    opened(&tried)
}

fn opened(tried: &[(&str, Result<(), String>)]) -> Check {
    let good: Vec<&str> = tried.iter().filter(|(_, r)| r.is_ok()).map(|(kind, _)| *kind).collect();
    let bad: Vec<String> =
        tried.iter().filter_map(|(kind, r)| Some(format!("{kind} does not open: {}", r.as_ref().err()?))).collect();
    let adds = "ports in memory, and to other processes and VMs";
    if bad.is_empty() {
        return Check::new(DEVICES, State::Ok, format!("{} open", good.join(", ")), adds);
    }
    Check::new(DEVICES, State::Missing, [good.join(", "), bad.join("; ")].join("; "), adds)
        .remedy("see what it says; a build of DPDK without a driver lacks its devices")
}

/// A folder for sockets, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("bondstone-doctor-{}", std::process::id()));
        // when it cannot be made, the sockets do not open, which is told
        let _ = std::fs::create_dir(&folder);
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let leave = |e: std::io::Error| eprintln!("warning: {} is left behind: {e}", Path::display(&self.0));
        std::fs::remove_dir_all(&self.0).unwrap_or_else(leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_does_not_open_is_named() {
        assert_eq!(opened(&[("null", Ok(())), ("ring", Ok(()))]).found, "null, ring open");
        let some = opened(&[("null", Ok(())), ("vhost", Err("no driver".into()))]);
        assert_eq!((some.state, some.found.as_str()), (State::Missing, "null; vhost does not open: no driver"));
        assert!(started(Memory::Huge).found.contains("huge"));
    }
}
