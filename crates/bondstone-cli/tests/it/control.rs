//! The control socket of a run, and the commands that use it.

use crate::common::instance::{CHAIN, command, program, start};
use crate::common::{Running, Said, Scratch, alone};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn a_run_is_observed_and_stopped() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", CHAIN));
    let none = command(&dir, &["stats"]);
    assert_eq!(none.status, Some(2), "{}", none.err);
    assert!(none.err.contains("no instance of bondstone run is running") && none.err.contains("help:"), "{}", none.err);

    let running = start(&dir, &edge, &[]);
    let read = |arguments: &[&str]| {
        let said = command(&dir, arguments);
        assert_eq!(said.status, Some(0), "{}", said.err);
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    let received = |stats: &serde_json::Value| stats["totals"]["received"].as_u64().unwrap();
    let first = read(&["stats", "--json"]);
    let second = read(&["stats", "edge", "--json"]);
    assert!(received(&second) > received(&first) && received(&first) > 0);
    assert_eq!(second["control"]["requests"], 2);
    let text = command(&dir, &["stats", edge.to_str().unwrap()]);
    assert!(text.out.contains("hops") && text.out.contains("  received "), "{}", text.out);

    let rates = read(&["top", "--once", "--json", "--interval", "200ms"]);
    assert!(rates["received"].as_f64().unwrap() > 0.0 && rates["nfs"][0]["name"] == "hops", "{rates}");
    let screen = command(&dir, &["top", "--once", "--interval", "100ms", "--filter", "hop"]);
    assert_eq!(screen.status, Some(0), "{}", screen.err);
    assert!(screen.out.contains("edge.toml") && screen.out.contains("hops  ttl"), "{}", screen.out);
    assert!(
        !screen.out.contains("null") && screen.out.lines().all(|line| line.chars().count() <= 200),
        "{}",
        screen.out
    );

    let socket = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let other = command(&dir, &["stats", "core"]);
    assert_eq!(other.status, Some(2), "{}", other.err);
    assert!(other.err.contains("core") && other.err.contains("edge.toml (process "), "{}", other.err);

    let stopped = command(&dir, &["stop", &running.id().to_string()]);
    assert_eq!(stopped.status, Some(0), "{}", stopped.err);
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let summary: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert!(summary["balanced"] == true && received(&summary) >= received(&second));
    assert!(!socket.exists());
}

#[test]
fn several_runs_are_told_apart_and_a_killed_one_leaves_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    let dir = scratch.path("sockets");
    let [first, second] = ["a.toml", "b.toml"].map(|name| scratch.write(name, CHAIN));
    let (killed, running) = (start(&dir, &first, &[]), start(&dir, &second, &[]));
    let which = command(&dir, &["stats"]);
    assert_eq!(which.status, Some(2), "{}", which.err);
    assert!(which.err.contains("several instances") && which.err.contains("b.toml (process "), "{}", which.err);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().status, None);
    // its socket is ignored, and removed by the next run
    assert_eq!(command(&dir, &["stats"]).status, Some(0));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
    let third = start(&dir, &first, &[]);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
    for run in [running, third] {
        assert_eq!(command(&dir, &["stop", &run.id().to_string()]).status, Some(0));
        assert_eq!(run.end().status, Some(0));
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_socket_may_be_named() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (edge, socket) = (scratch.write("edge.toml", CHAIN), scratch.path("control.sock"));
    let run = |socket: &Path| {
        let mut command = program(&scratch.path("sockets"));
        command.arg("run").arg(&edge).arg("--json").arg("--control").arg(socket);
        command
    };
    let mut running = Running::start(&mut run(&socket));
    running.started();
    assert!(!scratch.path("sockets").exists());
    let name = socket.to_str().unwrap();
    assert_eq!(command(&scratch.path("sockets"), &["stats", name]).status, Some(0));
    let busy: Said = run(&socket).output().unwrap().into();
    assert_eq!(busy.status, Some(3), "{}", busy.err);
    assert!(busy.err.contains("control.sock") && busy.err.contains("help:"), "{}", busy.err);
    let nowhere: Said = run(&scratch.path("no/such.sock")).output().unwrap().into();
    assert_eq!(nowhere.status, Some(2), "{}", nowhere.err);
    assert_eq!(command(&scratch.path("sockets"), &["stop", name]).status, Some(0));
    assert_eq!(running.end().status, Some(0));
}
