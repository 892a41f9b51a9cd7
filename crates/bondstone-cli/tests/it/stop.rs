//! `bondstone stop --drain`, and control sockets of a group.

use crate::common::gateway::accounted;
use crate::common::instance::{command, program, start};
use crate::common::{LIMIT, Running, Said, Scratch, Summary, alone};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Instant;

/// Packets without an end, which an NF holds for some time.
fn chain(scratch: &Scratch, delay_ms: u32) -> std::path::PathBuf {
    scratch.capture("in.pcap", 100);
    let text = format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.out]\ndevice = \"null\"\n\
         [nf.late]\nkind = \"impair\"\ndelay = {delay_ms}\nqueue = 500\n[[chain]]\npath = [\"in\", \"late\", \"out\"]\n"
    );
    scratch.write("edge.toml", text)
}

fn wait_for_held(dir: &std::path::Path) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let stats: serde_json::Value = serde_json::from_str(&command(dir, &["stats", "--json"]).out).unwrap();
        if stats["nfs"][0]["held"].as_u64() > Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "{stats}");
    }
}

#[test]
fn held_packets_are_forwarded_before_the_end() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), chain(&scratch, 200));
    for (arguments, left) in [(&["stop"][..], true), (&["stop", "edge", "--drain", "100", "--json"], false)] {
        let running = start(&dir, &edge, &[]);
        wait_for_held(&dir);
        let said = command(&dir, arguments);
        assert_eq!(said.status, Some(0), "{}", said.err);
        let ended = running.end();
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        let summary = Summary(serde_json::from_str(&ended.out).unwrap());
        accounted(&summary);
        let held = summary.number("/totals/held");
        assert_eq!(held > 0, left, "{}", summary.0);
        if !left {
            let answer: serde_json::Value = serde_json::from_str(&said.out).unwrap();
            assert_eq!(answer["totals"], summary.0["totals"]);
        }
    }
}

#[test]
fn a_drain_ends_after_its_time_and_tells_what_was_left() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), chain(&scratch, 60_000));
    let running = start(&dir, &edge, &[]);
    wait_for_held(&dir);
    let said = command(&dir, &["stop", "--drain", "1"]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.out.contains("    left 500\n"), "{}", said.out);
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    assert_eq!(summary.number("/totals/held"), 500);
    let wrong = command(&dir, &["stop", "--drain", "0"]);
    assert_eq!(wrong.status, Some(2), "{}", wrong.err);
}

#[test]
fn a_group_may_use_the_control_socket() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), chain(&scratch, 0));
    let unknown = command(&dir, &["run", edge.to_str().unwrap(), "--control-group", "no-such-group"]);
    assert_eq!(unknown.status, Some(2), "{}", unknown.err);
    assert!(
        unknown.err.contains("\"no-such-group\": is not a group") && unknown.err.contains("help:"),
        "{}",
        unknown.err
    );
    let private = scratch.path("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    let socket = private.join("edge.sock");
    let arguments = ["run", edge.to_str().unwrap(), "--control-group", "4242", "--control", socket.to_str().unwrap()];
    let closed = command(&dir, &arguments);
    assert_eq!(closed.status, Some(2), "{}", closed.err);
    assert!(closed.err.contains("is not passable") && closed.err.contains("chmod g+x"), "{}", closed.err);

    let running = start(&dir, &edge, &["--control-group", "4242"]);
    let socket = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let mode = |path: &std::path::Path| {
        let file = path.metadata().unwrap();
        (file.permissions().mode() & 0o777, file.gid())
    };
    assert_eq!((mode(&socket), mode(&dir)), ((0o660, 4242), (0o750, 4242)));
    // a user of the group, and another one
    let as_user = |group: &str| -> Said {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "65534", "--clear-groups", "--regid", group]);
        let stats = program(&dir);
        let copy = scratch.path("bondstone");
        std::fs::copy(stats.get_program(), &copy).unwrap();
        user.arg(copy).args(["stats", "--json"]).env("BONDSTONE_RUNTIME_DIR", &dir).output().unwrap().into()
    };
    let member = as_user("4242");
    assert_eq!(member.status, Some(0), "{}", member.err);
    assert!(member.out.contains("\"totals\""), "{}", member.out);
    assert_eq!(as_user("4243").status, Some(2));
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    assert_eq!(Running::end(running).status, Some(0));
}
