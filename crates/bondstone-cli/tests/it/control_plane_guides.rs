//! Guides to control planes in a container and in a virtual machine: their commands do what they say.

use crate::common::frr;
use crate::common::gateway::accounted;
use crate::common::instance::command;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::page::page;
use crate::common::tenants::{has_routes, start, until};
use crate::common::{LIMIT, Scratch, alone};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Commands that remove what a test that fails leaves.
struct Cleanup(String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // ignore errors: some of it is gone
            let _ = Command::new("sh").args(["-c", &self.0]).output();
        }
    }
}

/// Runs the commands of a page but for installations, each after `ready`; returns their output.
fn follow(name: &str, scratch: &Scratch, ready: impl Fn(&Path, &str)) -> String {
    let own = Namespace::new("own");
    let folder = scratch.path("");
    let (commands, files) = page(name);
    for (name, text) in &files {
        scratch.write(name, text.replace("/run/bondstone", folder.to_str().unwrap().trim_end_matches('/')));
    }
    let sockets = scratch.path("sockets");
    let mut running = None;
    let mut output = String::new();
    for line in commands.iter().filter(|line| !line.contains("apt-get") && !line.contains("--fetch")) {
        let line = line.trim_start_matches("sudo ");
        if let Some(file) = line.strip_prefix("bondstone run ") {
            running = Some(start(&own, &scratch.path(file), &sockets));
            continue;
        }
        ready(&sockets, line);
        let line = line.replacen("bondstone ", &format!("{} ", env!("CARGO_BIN_EXE_bondstone")), 1);
        // the machine is in the namespace of the run
        let line = match line.as_str() {
            "sh vm.sh" => format!("nsenter --net=/run/netns/{} sh vm.sh", own.0),
            _ => line,
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&folder).env("BONDSTONE_RUNTIME_DIR", &sockets);
        output += &String::from_utf8_lossy(&done(&mut shell).stdout);
    }
    accounted(&running.unwrap().end().summary(0));
    output
}

fn installed(files: &[&str]) -> bool {
    let missing = files.iter().find(|file| !Path::new(file).exists());
    if let Some(missing) = missing {
        eprintln!("skipped: no {missing} on this machine");
    }
    missing.is_none()
}

#[test]
fn a_control_plane_in_a_container_works() {
    let _one = alone();
    if !possible(&["ping", "nsenter", "runc"]) || !frr::installed() || !installed(&["/usr/sbin/bird"]) {
        return;
    }
    let scratch = Scratch::new();
    let _cleanup = Cleanup(
        "runc delete --force green; birdc -s /run/green-peer.ctl down; ip netns del green-host; ip netns del green-peer"
            .to_owned(),
    );
    let output = follow("how-to/control-plane-container.md", &scratch, |sockets, line| {
        if line.starts_with("bondstone tenant show") {
            until(sockets, "green", has_routes(1));
        }
    });
    assert!(["198.51.100.0/24", "connected from 127.0.0.1"].iter().all(|text| output.contains(text)), "{output}");
    assert_eq!(output.matches(" 0% packet loss").count(), 2, "{output}");
}

#[test]
fn a_control_plane_in_a_virtual_machine_works() {
    let _one = alone();
    let home = std::env::var("HOME").unwrap_or_default();
    let kernel = format!("{home}/.cache/bondstone/kernel/boot");
    if !possible(&["ping", "nsenter", "qemu-system-x86_64", "cpio"])
        || !frr::installed()
        || !installed(&["/usr/sbin/bird", "/bin/busybox", &kernel])
    {
        return;
    }
    let scratch = Scratch::new();
    let pid = scratch.path("vm.pid");
    let _cleanup = Cleanup(format!(
        "kill $(cat {}); birdc -s /run/vm-peer.ctl down; ip netns del vm-host; ip netns del vm-peer",
        pid.display()
    ));
    let output = follow("how-to/control-plane-vm.md", &scratch, |sockets, line| {
        let deadline = Instant::now() + LIMIT;
        while line == "bondstone routes list" && !command(sockets, &["routes", "list"]).out.contains(" fpm ") {
            let log = || std::fs::read_to_string(scratch.path("vm.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{}", log());
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    assert!(output.contains("198.51.100.0/24") && output.contains(" 0% packet loss"), "{output}");
}
