//! An NF with unsafe code that attacks the host from its sandbox.

use crate::common::sandboxed_run::{SandboxedRun, demo, possible};
use crate::common::{Running, Scratch, Summary, attack};
use std::process::Command;

/// Attacks that end the process of the NF.
const FATAL: [&str; 18] = [
    "socket-vsock",
    "rwx",
    "exec",
    "kill-parent",
    "socket-inet",
    "socket-netlink",
    "socket-packet",
    "socket-unix",
    "execute",
    "ptrace",
    "fork",
    "kill-itself",
    "memfd",
    "eventfd",
    "io-uring",
    "keys",
    "shmget",
    "personality",
];

/// Returns a chain file with each NF in a sandbox and a chain of its own, and a chain without a sandbox.
fn sandboxes(kind: &str, attacks: &[&str]) -> String {
    let mut text = "bondstone = 1\n".to_owned();
    for n in 0..=attacks.len() {
        let how = attacks.get(n).copied();
        let nf = how.map_or_else(
            || "[nf.good]\nkind = \"count\"\n".to_owned(),
            |how| format!("[nf.{how}]\nkind = \"attack\"\nhow = \"{how}\"\nisolation = \"{kind}\"\n"),
        );
        let (name, at) = (how.unwrap_or("good"), how.map_or("-good".to_owned(), |_| n.to_string()));
        text += &format!(
            "[port.in{at}]\ndevice = \"null\"\n[port.out{at}]\ndevice = \"null\"\n{nf}\
             [[chain]]\npath = [\"in{at}\", \"{name}\", \"out{at}\"]\n"
        );
    }
    text
}

/// Asserts that the chain without a sandbox lost no packet, and that all packets are accounted for.
fn assert_unharmed(summary: &Summary) {
    let other = [summary.port("in-good").number("/received"), summary.port("out-good").number("/sent")];
    assert!(other[0] > 0 && other[0] == other[1], "{}", summary.0);
    assert_eq!(summary.0["balanced"], true, "{}", summary.0);
}

/// Runs an NF that tries to open files and the like; returns its counters: 1 for an attempt, 2 for a success.
fn probes(isolation: &str, in_build: bool) -> Vec<(String, u64)> {
    let scratch = Scratch::new();
    let file = scratch.write(
        "probe.toml",
        format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"null\"\n\
             [nf.bad]\nkind = \"attack\"\nin_build = {in_build}\nisolation = \"{isolation}\"\n\
             [[chain]]\npath = [\"in\", \"bad\", \"out\"]\n",
            demo()
        ),
    );
    let summary = Running::start(Command::new(attack()).arg("run").arg(file).arg("--json")).end().summary(0);
    assert_eq!(summary.port("out").number("/sent"), summary.port("in").number("/received"), "{isolation}");
    let counters = summary.nf("bad").0["counters"].as_object().unwrap().clone();
    counters.into_iter().map(|(name, n)| (name, n.as_u64().unwrap())).collect()
}

#[test]
fn an_nf_reaches_nothing_outside_of_its_sandbox() {
    let _alone = crate::common::alone();
    if rustix::process::geteuid().is_root() {
        // the same attempts succeed without a sandbox
        let all = probes("inproc", false);
        assert!(all.len() >= 14 && all.iter().all(|(_, n)| *n == 2), "{all:?}");
    }
    for kind in ["process", "container"].into_iter().filter(|kind| possible(kind)) {
        for in_build in [true, false] {
            let all = probes(kind, in_build);
            assert!(all.len() >= 14 && all.iter().all(|(_, n)| *n == 1), "{kind}, in build {in_build}: {all:?}");
        }
    }
}

/// Asserts that each attack ends the process of its NF, and nothing else.
fn assert_fatal(kind: &str, attacks: &[&str]) {
    let text = sandboxes(kind, attacks);
    let Some(mut run) = SandboxedRun::of(kind, &text, attack().to_str().unwrap()) else { return };
    for how in attacks {
        run.running.wait_for(&format!("{kind}: the end of {how}"), |line| {
            line.starts_with("warning: ") && line.contains(&format!("{how:?}")) && line.contains("made a system call")
        });
    }
    run.running.wait_for("more packets", |line| line.contains("pps"));
    assert_unharmed(&run.end(4));
}

/// Asserts that an attack while NFs are built ends their process, and with it the start.
fn assert_fatal_in_build(kind: &str, how: &str) {
    let scratch = Scratch::new();
    let text = sandboxes(kind, &[how]).replace("kind = \"attack\"\n", "kind = \"attack\"\nin_build = true\n");
    let file = scratch.write("build.toml", text);
    let ended = Running::start(Command::new(attack()).arg("run").arg(file).arg("--json")).end();
    assert_eq!(ended.status, Some(3), "{kind}: {how}: {}", ended.err);
    assert!(ended.err.contains("made a system call that NFs may not make"), "{kind}: {how}: {}", ended.err);
}

#[test]
fn a_forbidden_system_call_ends_only_the_process_of_its_nf() {
    if possible("process") {
        assert_fatal("process", &FATAL[..2]);
        let _alone = crate::common::alone();
        assert_fatal_in_build("process", "socket-unix");
    }
}

#[test]
#[ignore = "takes a minute; runs in make soak"]
fn every_forbidden_system_call_ends_only_the_process_of_its_nf() {
    for kind in ["process", "container"].into_iter().filter(|kind| possible(kind)) {
        FATAL.chunks(2).for_each(|attacks| assert_fatal(kind, attacks));
        let _alone = crate::common::alone();
        FATAL.iter().for_each(|how| assert_fatal_in_build(kind, how));
    }
}

/// Random numbers in all indices and descriptors of the shared queues, and more packets than the host side accepts.
#[test]
fn lies_in_shared_queues_and_floods_affect_only_their_sandbox() {
    let text = sandboxes("process", &["scribble"]);
    let Some(mut run) = SandboxedRun::of("process", &text, attack().to_str().unwrap()) else { return };
    // it writes until the watchdog ends its process
    let mut ends = 0;
    run.running.wait_for("the end of two processes", |line| {
        ends += u32::from(line.contains("does not return a batch"));
        ends == 2
    });
    let summary = run.end(4);
    assert_unharmed(&summary);
    assert!(summary.sandbox("scribble").number("/starts") >= 2, "{}", summary.0);

    let Some(mut run) = SandboxedRun::of("process", &sandboxes("process", &["flood"]), attack().to_str().unwrap())
    else {
        return;
    };
    let mut seconds = 0;
    run.running.wait_for("packets", |line| {
        seconds += u32::from(line.contains("pps"));
        seconds == 2
    });
    let summary = run.end(130);
    assert_unharmed(&summary);
    let flood = summary.nf("flood");
    assert!(flood.number("/created") > flood.number("/packets"), "{}", summary.0);
    assert_eq!(summary.sandbox("flood").number("/starts"), 1, "{}", summary.0);
}
