//! Huge pages that are allocated by others between the count of the free ones and their use.

use crate::common::namespace::possible;
use crate::common::{Running, Scratch, alone};
use std::process::Command;

const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Sets the number of huge pages, and restores it when dropped.
struct HugePages(String);

impl HugePages {
    fn set(number: &str) -> HugePages {
        let before = std::fs::read_to_string(RESERVED).unwrap();
        std::fs::write(RESERVED, number).unwrap();
        HugePages(before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        std::fs::write(RESERVED, &self.0).unwrap();
    }
}

#[test]
fn a_run_starts_again_on_ordinary_pages_when_huge_pages_are_taken() {
    let _one = alone();
    if !possible(&["unshare"]) || std::fs::OpenOptions::new().write(true).open(RESERVED).is_err() {
        return;
    }
    let scratch = Scratch::new();
    scratch.capture("in.pcap", 100);
    let text = "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\n[port.out]\ndevice = \"null\"\n\
                [[chain]]\npath = [\"in\", \"count\", \"out\"]\n";
    let file = scratch.write("chain.toml", text);
    // the process counts more free pages than there are: none, or fewer than a pool needs
    let free = scratch.write("free", "4000\n");
    let script =
        "mount --bind \"$1\" /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages && exec \"$2\" run \"$3\" --json";
    for (reserved, operation) in [("0", "starting DPDK"), ("4", "creating a pool")] {
        let _pages = HugePages::set(reserved);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&free).arg(env!("CARGO_BIN_EXE_bondstone")).arg(&file);
        let ended = Running::start(&mut command).end();
        let note = ended.err.lines().find(|line| line.ends_with("starting again on ordinary pages"));
        assert!(note.is_some_and(|note| note.contains(operation)), "{}", ended.err);
        let summary = ended.summary(0);
        assert_eq!((&summary.0["memory"], summary.number("/totals/sent")), (&"ordinary pages".into(), 100));
    }
}
