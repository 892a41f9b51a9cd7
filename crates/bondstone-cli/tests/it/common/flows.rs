//! Chains that forward the packets of some flows all the time.

use super::instance::command;
use super::{LIMIT, Scratch};
use std::path::Path;
use std::time::Instant;

/// Number of flows.
pub(crate) const FLOWS: u16 = 3000;

/// Writes a capture with one packet of each flow, which is repeated without an end.
pub(crate) fn capture(scratch: &Scratch, frame: impl Fn(u16) -> Vec<u8>) {
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for n in 0..FLOWS {
        let frame = frame(n);
        writer.write(0, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns a chain file that forwards the packets of the capture through some NFs.
pub(crate) fn chain(nfs: &str, path: &str) -> String {
    format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.out]\ndevice = \"null\"\n\
         {nfs}\n[[chain]]\npath = [\"in\", {path}, \"out\"]\n"
    )
}

/// Returns the JSON output of a command with the sockets in `dir`.
pub(crate) fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let said = command(dir, arguments);
    assert_eq!(said.status, Some(0), "{arguments:?}: {}", said.err);
    serde_json::from_str(&said.out).unwrap()
}

/// Repeats until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
    }
}
