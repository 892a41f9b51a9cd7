//! `bondstone upgrade`: another process continues the chains.

use crate::common::flows::{json, until};
use crate::common::gateway::{Download, HOME, REMOTE, accounted, example};
use crate::common::instance::{CHAIN, command, start};
use crate::common::namespace::{Namespace, possible};
use crate::common::{LIMIT, Running, Scratch, Summary, alone};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Stops the instance, which is no child of this process any more, also when a test fails.
struct Stopped<'a>(&'a Path);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // errors: it has ended
        let _ = command(self.0, &["stop"]);
    }
}

/// Stops the instance, and returns the summary of each process in turn.
#[track_caller]
fn stop(dir: &Path, first: Running) -> Vec<Summary> {
    assert_eq!(command(dir, &["stop"]).status, Some(0));
    // the end of the output, which all processes have in common
    let ended = first.end();
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let all = serde_json::Deserializer::from_str(&ended.out).into_iter().map(|one| Summary(one.unwrap()));
    let all: Vec<Summary> = all.collect();
    for one in &all {
        accounted(one);
        assert_eq!(one.0["balanced"], true, "{}", one.0);
    }
    all
}

fn total(all: &[Summary], name: &str) -> u64 {
    all.iter().map(|one| one.number(&format!("/totals/{name}"))).sum()
}

/// Two hosts at a chain file over packet sockets, `a1` and `b1`.
fn hosts(name: &str) -> [Namespace; 3] {
    let all = ["a", "b", "m"].map(|n| Namespace::new(&format!("{name}-{n}")));
    let [a, b, between] = &all;
    all.iter().for_each(Namespace::mute);
    for (host, near, far, address) in [(a, "a1", "a0", "10.9.0.1/24"), (b, "b1", "b0", "10.9.0.2/24")] {
        between.link(near, host, far);
        between.raise(near);
        host.configure(far, &[address]);
    }
    all
}

/// A chain file with a firewall between two ports: hosts behind the first may begin connections.
fn firewall(a: &str, b: &str) -> String {
    format!(
        "bondstone = 1\n[port.a]\ndevice = \"{a}\"\n[port.b]\ndevice = \"{b}\"\n\
         [nf.fw]\nkind = \"firewall\"\nrules = [\"accept src 10.9.0.1/32\"]\ndefault = \"drop\"\nother = \"accept\"\n\
         track = {{}}\n\
         [[chain]]\npath = [\"a\", \"fw\", \"b\"]\ncores = [0]\n[[chain]]\npath = [\"b\", \"fw\", \"a\"]\ncores = [0]\n"
    )
}

/// Starts `program` with its socket in `dir`.
fn run(between: &Namespace, program: &Path, file: &Path, dir: &Path) -> Running {
    let mut words = between.command(program.to_str().unwrap());
    let mut running = Running::start(words.env("BONDSTONE_RUNTIME_DIR", dir).arg("run").arg(file).arg("--json"));
    running.started();
    running
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bondstone"))
}

/// Pings `times` times at intervals of 2 ms; returns the answers.
fn ping(from: &Namespace, address: &str, times: u32) -> Running {
    let times = times.to_string();
    Running::start(from.command("ping").args(["-q", "-i", "0.002", "-W", "5", "-c", &times, address]))
}

/// Asserts that all pings were answered.
#[track_caller]
fn answered(pings: Running) {
    let ended = pings.end();
    assert!(ended.out.contains(" 0% packet loss"), "{}", ended.out);
}

#[test]
fn packets_that_wait_in_packet_sockets_are_not_lost() {
    let _alone = alone();
    if !possible(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let [a, b, between] = hosts("wait");
    let (dir, file) = (scratch.path("sockets"), scratch.write("edge.toml", firewall("af_packet:a1", "af_packet:b1")));
    let first = run(&between, program(), &file, &dir);
    let _stopped = Stopped(&dir);
    // the interface of the host asks for its neighbour
    answered(ping(&a, "10.9.0.2", 1));
    let pings = ping(&a, "10.9.0.2", 1500);
    for n in 1..=3 {
        let before = json(&dir, &["stats", "--json"]);
        let upgraded = json(&dir, &["upgrade", "--json"]);
        assert_eq!(
            (&upgraded["missed"], &upgraded["links"]),
            (&serde_json::json!({"a": 0, "b": 0}), &serde_json::json!({}))
        );
        assert!(upgraded["notes"].is_null() && upgraded["pause_ms"].as_f64().unwrap() > 0.0, "{upgraded}");
        until("it forwards", || json(&dir, &["stats", "--json"])["totals"]["sent"].as_u64() > Some(0));
        let after = json(&dir, &["stats", "--json"]);
        assert!(before["totals"]["received"].as_u64() > Some(0), "upgrade {n}: {before}");
        // the connection of the pings is older than the process
        let counter = |name: &str| after["nfs"][0]["counters"][name].as_u64();
        assert_eq!((counter("connections"), counter("connections_new")), (Some(2), Some(0)), "upgrade {n}: {after}");
    }
    // the input of one socket is closed microseconds before that of the other opens: a packet may arrive between both
    let ended = pings.end();
    let lost = (0..=3).find(|lost| ended.out.contains(&format!(" {} received", 1500 - lost)));
    let lost = lost.unwrap_or_else(|| panic!("{}", ended.out));
    // hosts behind the second port still begin none
    assert!(!b.command("ping").args(["-c", "1", "-W", "1", "10.9.0.1"]).output().unwrap().status.success());
    let all = stop(&dir, first);
    assert_eq!((all.len(), total(&all, "held"), all[3].dropped()), (4, 0, 1), "{}", all[3].0);
    // 1,501 pings and their answers, and what neighbours ask
    assert!((3002 - 2 * lost..3100).contains(&total(&all, "sent")), "{lost} {}", total(&all, "sent"));
}

/// A download through the home gateway, whose sessions and connections three more processes continue.
#[test]
fn connections_survive_upgrades() {
    let _alone = alone();
    if !possible(&["iperf3"]) {
        return;
    }
    let scratch = Scratch::new();
    let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("upgrade-{n}")));
    let (dir, file) = (scratch.path("sockets"), example(&scratch, "home-gateway.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("tap:lan0", "af_packet:lan1").replace("tap:wan0", "af_packet:wan1")).unwrap();
    gateway.mute();
    for (near, host, far, addresses) in [("lan1", &home, "lan0", &[HOME][..]), ("wan1", &remote, "wan0", &REMOTE[..])] {
        gateway.link(near, host, far);
        gateway.raise(near);
        host.configure(far, addresses);
    }
    home.ip("route add default via 192.168.1.1");
    let notify = scratch.path("notify");
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let message = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    let mut words = gateway.command(program().to_str().unwrap());
    words.env("BONDSTONE_RUNTIME_DIR", &dir).env("NOTIFY_SOCKET", &notify).arg("run").arg(&file).arg("--json");
    let mut first = Running::start(&mut words);
    first.started();
    let _stopped = Stopped(&dir);
    assert_eq!(message(), "READY=1");
    let download = Download::start(&home, &remote, 5);
    let sessions = || {
        let all = json(&dir, &["nat", "sessions", "--filter", "tcp", "--json"]);
        let of = |session: &serde_json::Value| ["inside", "outside", "peer"].map(|key| session[key].to_string());
        let mut all: Vec<_> = all["sessions"].as_array().unwrap().iter().map(of).collect();
        all.sort();
        all
    };
    until("both connections", || sessions().len() == 2);
    let before = sessions();
    for _ in 0..3 {
        let upgraded = json(&dir, &["upgrade", "--json"]);
        assert!(upgraded["notes"].is_null(), "{upgraded}");
        assert_eq!(message(), format!("MAINPID={}", upgraded["pid"]));
        assert_eq!(sessions(), before);
    }
    download.end();
    let all = stop(&dir, first);
    assert_eq!(message(), "STOPPING=1");
    assert_eq!(all.len(), 4);
    for later in &all[1..] {
        let new = |nf: &str, counter: &str| later.nf(nf).number(&format!("/counters/{counter}"));
        assert_eq!((new("fw", "connections_new"), new("nat", "created")), (0, 0), "{}", later.0);
    }
}

#[test]
fn a_process_that_fails_leaves_the_chains_to_the_old_one() {
    let _alone = alone();
    if !possible(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let [a, _b, between] = hosts("fails");
    let text = firewall("af_packet:a1", "af_packet:b1");
    let (dir, file) = (scratch.path("sockets"), scratch.write("edge.toml", &text));
    let installed = scratch.path("bondstone");
    std::fs::copy(program(), &installed).unwrap();
    let first = run(&between, &installed, &file, &dir);
    let _stopped = Stopped(&dir);
    let upgrade = || command(&dir, &["upgrade"]);
    answered(ping(&a, "10.9.0.2", 1));

    // a program that ends at once, and one that finds an error in the file
    let install = |script: &str| {
        let new = scratch.write("new", script);
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, &installed).unwrap();
    };
    install("#!/bin/sh\nexit 7\n");
    let said = upgrade();
    assert!(said.status == Some(2) && said.err.contains("exit status: 7"), "{}", said.err);
    std::fs::copy(program(), scratch.path("same")).unwrap();
    std::fs::rename(scratch.path("same"), &installed).unwrap();
    scratch.write("edge.toml", text.replace("kind = \"firewall\"", "kind = \"fire\""));
    let said = upgrade();
    assert!(said.status == Some(2) && said.err.contains("nothing has changed"), "{}", said.err);
    answered(ping(&a, "10.9.0.2", 10));

    // a port that can be opened only when those of the old process are closed
    let port = format!("[port.x]\ndevice = \"vhost:{}\"\n[nf.fw]", scratch.path("missing/socket").display());
    let chain = "[[chain]]\npath = [\"x\", \"a\"]\ncores = [0]\n";
    scratch.write("edge.toml", text.replace("[nf.fw]", &port) + chain);
    let said = upgrade();
    assert!(said.status == Some(2) && said.err.contains("this program opens them again"), "{}", said.err);
    let stats = || json(&dir, &["stats", "--json"]);
    until("the first program to go on", || !json_fails(&dir));
    answered(ping(&a, "10.9.0.2", 10));
    let counters = &stats()["nfs"][0]["counters"];
    let of = |name: &str| counters[name].as_u64();
    assert_eq!((of("connections"), of("connections_new")), (Some(3), Some(1)), "one of each ping");

    // it can be upgraded afterwards
    scratch.write("edge.toml", &text);
    assert_eq!(upgrade().status, Some(0));
    answered(ping(&a, "10.9.0.2", 10));
    let all = stop(&dir, first);
    assert_eq!((all.len(), total(&all, "dropped"), total(&all, "held")), (3, 0, 0));
}

/// Returns true if the instance does not answer.
fn json_fails(dir: &Path) -> bool {
    command(dir, &["stats", "--json"]).status != Some(0)
}

#[test]
fn a_memif_port_connects_again() {
    let _alone = alone();
    if !possible(&[]) {
        return;
    }
    let scratch = Scratch::new();
    let [a, _b, between] = hosts("memif");
    let dirs = ["near", "far"].map(|name| scratch.path(name));
    let socket = |more: &str| format!("memif:{}{more}", scratch.path("m").display());
    let far = scratch.write("far.toml", firewall(&socket(""), "af_packet:b1"));
    let near = scratch.write("near.toml", firewall("af_packet:a1", &socket(",role=client")));
    let of_far = run(&between, program(), &far, &dirs[1]);
    let of_near = run(&between, program(), &near, &dirs[0]);
    let _stopped = dirs.each_ref().map(|dir| Stopped(dir));
    let has_link = |dir: &Path, n: usize| json(dir, &["stats", "--json"])["ports"][n]["link"] == true;
    until("the link", || has_link(&dirs[1], 0) && has_link(&dirs[0], 1));
    answered(ping(&a, "10.9.0.2", 10));
    let upgraded = json(&dirs[0], &["upgrade", "--json"]);
    assert!(upgraded["links"]["b"].as_f64().is_some_and(|ms| ms > 0.0) || has_link(&dirs[0], 1), "{upgraded}");
    until("the link", || has_link(&dirs[1], 0));
    answered(ping(&a, "10.9.0.2", 10));
    assert_eq!(stop(&dirs[0], of_near).len(), 2);
    assert_eq!(stop(&dirs[1], of_far).len(), 1);
}

#[test]
fn what_ends_with_its_process_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let dir = scratch.path("sockets");
    scratch.capture("in.pcap", 4);
    let text = CHAIN.replace("[port.in]\ndevice = \"null\"", "[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0");
    let running = start(&dir, &scratch.write("edge.toml", text), &[]);
    let said = command(&dir, &["upgrade"]);
    assert!(said.status == Some(2) && said.err.contains("port \"in\": a capture cannot be continued"), "{}", said.err);
    assert_eq!(stop(&dir, running).len(), 1);
}
