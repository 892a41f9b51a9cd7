//! NFs behind walls: the same packets, the same counts; what a process behind one may do; what becomes of the others when it
//! ends, lies or stands still; and that nothing is left.

mod common;

use common::{Running, Said, Scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Workers stay on their CPUs, so runs beside each other only wait for each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether namespaces can be made here.
fn possible() -> bool {
    let made = Command::new("unshare").args(["-Urnmp", "--fork", "true"]).output();
    let possible = rustix::process::geteuid().is_root() || made.is_ok_and(|made| made.status.success());
    if !possible {
        eprintln!("skipped: this user may make no namespaces");
    }
    possible
}

fn demo() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.pcap").display().to_string()
}

fn run(file: &Path, more: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.arg("run").arg(file).arg("--json").args(more).output().unwrap().into()
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

/// The one of this name in a list of the summary.
fn named<'a>(summary: &'a Value, list: &str, name: &str) -> &'a Value {
    let all = summary[list].as_array().unwrap();
    all.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}: {summary}"))
}

/// What a process of the program leaves behind, while there is anything.
fn left_by(id: u32) -> Vec<PathBuf> {
    let name = format!("bondstone-{id}");
    let mut left: Vec<PathBuf> = [PathBuf::from("/run"), std::env::temp_dir()].map(|base| base.join(&name)).into();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                left.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    left.retain(|path| path.exists());
    left.extend(behind(id).into_iter().map(|id| PathBuf::from(format!("/proc/{id}"))));
    left
}

/// Processes behind the walls of a process of the program: those in their namespaces.
fn behind(id: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is = |process: &u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("wall-host") && line.contains(&format!("/bondstone-{id}/")) && line.contains("--inner")
    };
    all.filter(is).collect()
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + common::LIMIT;
    while !is() {
        assert!(Instant::now() < end, "waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn packets_and_counts_are_the_same_before_and_behind_a_wall() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let file = |name: &str, isolation: &str, nf: &str| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"pcap:{name}.pcap\"\n\
             [port.copies]\ndevice = \"pcap:{name}-copies.pcap\"\n\
             [nf.guard]\nkind = \"ttl\"\n{nf}[nf.wall]\nkind = \"firewall\"\n{nf}rules = [\"drop proto icmp\", \"accept\"]\n\
             [nf.probe]\nkind = \"tee\"\n{nf}[[chain]]\nname = \"all\"\n{isolation}\
             path = [\"in\", \"count\", \"guard\", \"wall\", \"probe\", \"monitor\", \"out\"]\n\
             [[edge]]\nfrom = \"probe.copy\"\nto = \"copies\"\n",
            demo()
        );
        scratch.write(format!("{name}.toml"), text)
    };
    let word = "isolation = \"process\"\n";
    let plain = run(&file("plain", "", ""), &[]);
    assert_eq!(plain.status, Some(0), "{plain:?}");
    let whole = json(&plain);
    // all of the chain behind one wall, or each of three NFs behind its own
    for (name, of_chain, of_nfs, walls) in [("chain", word, "", 1), ("each", "", word, 3)] {
        let said = run(&file(name, of_chain, of_nfs), &[]);
        assert_eq!(said.status, Some(0), "{name}: {said:?}");
        let summary = json(&said);
        assert_eq!(summary["walls"].as_array().unwrap().len(), walls, "{name}: {summary}");
        assert_eq!((&summary["balanced"], &summary["totals"]), (&Value::Bool(true), &whole["totals"]), "{name}");
        assert_eq!(summary["drops"], whole["drops"], "{name}");
        for nf in whole["nfs"].as_array().unwrap() {
            let here = named(&summary, "nfs", nf["name"].as_str().unwrap());
            for key in ["kind", "packets", "created", "held", "drops", "counters", "table"] {
                assert_eq!(here[key], nf[key], "{name}: {key} of {}", nf["name"]);
            }
        }
        for capture in ["", "-copies"] {
            let frames = |of: &str| {
                let mut reader = pcap::Reader::open(scratch.path(format!("{of}{capture}.pcap"))).unwrap();
                let mut frames = vec![];
                while let Some(record) = reader.next().unwrap() {
                    frames.push(record.frame.to_vec());
                }
                frames
            };
            assert!(!frames("plain").is_empty());
            assert_eq!(frames(name), frames("plain"), "{name}{capture}");
        }
    }
}

/// A flow of packets through an NF behind a wall, and another beside it through none.
fn flow(scratch: &Scratch) -> PathBuf {
    let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
    scratch.write(
        "flow.toml",
        format!(
            "bondstone = 1\n{ports}[nf.far]\nkind = \"count\"\nisolation = \"process\"\n[nf.near]\nkind = \"count\"\n\
             [[chain]]\npath = [\"in\", \"far\", \"out\"]\n[[chain]]\npath = [\"in2\", \"near\", \"out2\"]\n"
        ),
    )
}

#[test]
fn a_process_behind_a_wall_has_no_rights_and_sees_nothing() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = Running::run(&flow(&scratch), &[]);
    running.started();
    let id = running.id();
    let [host] = behind(id)[..] else { panic!("{:?}", behind(id)) };
    let status = std::fs::read_to_string(format!("/proc/{host}/status")).unwrap();
    let of = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap().trim().to_owned();
    for sets in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(u64::from_str_radix(&of(sets), 16), Ok(0), "{sets}\n{status}");
    }
    assert_eq!((of("NoNewPrivs:").as_str(), of("Seccomp:").as_str()), ("1", "2"));
    assert!(of("NSpid:").ends_with("\t1"), "{status}");
    if rustix::process::geteuid().is_root() {
        let user: u32 = of("Uid:").split_whitespace().next().unwrap().parse().unwrap();
        assert!(user > 1_000_000_000, "{status}");
        let groups = std::fs::read_to_string(format!("/proc/{host}/cgroup")).unwrap();
        assert!(groups.contains(&format!("bondstone-{id}-far")), "{groups}");
    }
    for kind in ["user", "mnt", "net", "pid", "ipc", "uts"] {
        let at = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).unwrap();
        assert_ne!(at(&host.to_string()), at("self"), "{kind}");
    }
    // its root has its sockets, the chain file's folder, and what DPDK asks of the machine
    let root = PathBuf::from(format!("/proc/{host}/root"));
    assert!(root.join(scratch.path("flow.toml").strip_prefix("/").unwrap()).exists());
    for absent in ["etc", "usr", "home", "root", "sys/fs", "dev/hugepages"] {
        assert!(!root.join(absent).exists(), "it sees /{absent}");
    }
    // nor has it anything open of the process before the wall
    for open in std::fs::read_dir(format!("/proc/{host}/fd")).unwrap().flatten() {
        let to = std::fs::read_link(open.path()).unwrap_or_default().display().to_string();
        assert!(!to.contains(".sock") && (!to.starts_with('/') || to == "/dev/null" || to.contains("memfd")), "{to}");
    }
    let ended = running.interrupt();
    assert_eq!(ended.status, Some(130), "{}", ended.err);
    assert_eq!(left_by(id), Vec::<PathBuf>::new());
}

#[test]
fn a_process_that_is_killed_is_started_again_and_others_feel_nothing() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = Running::run(&flow(&scratch), &[]);
    running.started();
    let id = running.id();
    for turn in 1..=3 {
        let [host] = behind(id)[..] else { panic!("{:?}", behind(id)) };
        kill_process(Pid::from_raw(host as i32).unwrap(), Signal::KILL).unwrap();
        until("another process", || behind(id).first().is_some_and(|now| *now != host));
        // told each second, so the packets of a whole second came through the new one
        let mut flowing = 0;
        running.wait_for(&format!("packets after death {turn}"), |line| {
            let sent = line.split("  ").find_map(|part| part.trim().strip_prefix("out in "));
            let sent = sent.and_then(|part| part.split(" out ").nth(1));
            flowing += u32::from(sent.is_some_and(|rate| !rate.starts_with("0 pps")));
            flowing == 2 * turn
        });
    }
    let ended = running.interrupt();
    let summary: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {} {}", ended.out, ended.err));
    // that a process was ended is a fault
    assert_eq!(ended.status, Some(4), "{}", ended.err);
    assert_eq!(summary["balanced"], true, "{summary}");
    let wall = named(&summary, "walls", "far");
    assert_eq!(wall["starts"], 4, "{summary}");
    let faults: Vec<&str> = summary["faults"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(faults.iter().all(|fault| fault.contains("\"far\"") && fault.contains("signal 9")), "{faults:?}");
    // every packet that went behind the wall came back or is told
    let n = |of: &Value| of.as_u64().unwrap_or(0);
    let drops = |reason: &str| n(&wall["drops"][reason]);
    assert_eq!(n(&wall["handed"]), n(&wall["returned"]) + drops("wall_lost") + drops("return_full"), "{summary}");
    assert_eq!(wall["returned"], named(&summary, "ports", "out")["sent"]);
    let beside =
        [named(&summary, "ports", "in2")["received"].clone(), named(&summary, "ports", "out2")["sent"].clone()];
    assert!(beside[0] == beside[1] && n(&beside[0]) > 0, "{summary}");
    assert_eq!(left_by(id), Vec::<PathBuf>::new());
}

#[test]
fn nothing_is_left_when_the_process_before_the_walls_is_killed() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = Running::run(&flow(&scratch), &[]);
    running.started();
    let id = running.id();
    assert_eq!(behind(id).len(), 1);
    running.signal(Signal::KILL);
    until("all of it to go", || left_by(id).is_empty());
}

#[test]
fn a_process_that_stands_still_is_started_again() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = Running::run(&flow(&scratch), &[]);
    running.started();
    let id = running.id();
    let [host] = behind(id)[..] else { panic!("{:?}", behind(id)) };
    kill_process(Pid::from_raw(host as i32).unwrap(), Signal::STOP).unwrap();
    running.wait_for("its end", |line| line.contains("said nothing any more"));
    running.wait_for("another", |line| line.contains("runs again"));
    let ended = running.interrupt();
    assert_eq!(ended.status, Some(4), "{}", ended.err);
    assert_eq!(left_by(id), Vec::<PathBuf>::new());
}

#[test]
fn a_stop_does_not_wait_for_a_process_that_stands_still() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let mut running = Running::run(&flow(&scratch), &[]);
    running.started();
    let id = running.id();
    let [host] = behind(id)[..] else { panic!("{:?}", behind(id)) };
    kill_process(Pid::from_raw(host as i32).unwrap(), Signal::STOP).unwrap();
    let ended = running.interrupt();
    let summary: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.err));
    assert_eq!((ended.status, &summary["balanced"]), (Some(4), &Value::Bool(true)), "{summary}");
    assert_eq!(left_by(id), Vec::<PathBuf>::new());
}

#[test]
fn what_was_made_behind_a_wall_is_counted_though_its_process_was_killed() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "tee.toml",
        "bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"null\"\nport.copies.device = \"null\"\n\
         [nf.far]\nkind = \"tee\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n\
         [[edge]]\nfrom = \"far.copy\"\nto = \"copies\"\n",
    );
    let mut running = Running::run(&file, &[]);
    running.started();
    let id = running.id();
    running.wait_for("packets", |line| line.contains("Mpps"));
    let [host] = behind(id)[..] else { panic!("{:?}", behind(id)) };
    kill_process(Pid::from_raw(host as i32).unwrap(), Signal::KILL).unwrap();
    until("another process", || behind(id).first().is_some_and(|now| *now != host));
    running.wait_for("packets again", |line| line.contains("Mpps"));
    let ended = running.interrupt();
    let summary: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.err));
    assert_eq!((ended.status, &summary["balanced"]), (Some(4), &Value::Bool(true)), "{summary}");
    assert!(named(&summary, "ports", "copies")["sent"].as_u64() > Some(0), "{summary}");
}

#[test]
fn what_is_left_in_a_ring_before_a_wall_is_counted() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "ring.toml",
        format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"ring:x\"\n\
             [nf.far]\nkind = \"count\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n",
            demo()
        ),
    );
    let said = run(&file, &[]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let summary = json(&said);
    assert_eq!((&summary["balanced"], &summary["totals"]["held"]), (&Value::Bool(true), &summary["totals"]["sent"]));
}

#[test]
fn what_an_nf_does_to_its_process_harms_no_other() {
    let _alone = alone();
    if !possible() {
        return;
    }
    for (how, words) in [
        ("exit", "called exit"),
        ("abort", "aborted the process"),
        ("recurse", "overflowed its stack"),
        ("panic-in-drop", "aborted the process"),
        ("connect", "asked the system for something that NFs may not"),
        ("loop", "does not give a batch back"),
        ("allocate", "an allocation that is refused"),
    ] {
        let scratch = Scratch::new();
        let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
        let file = scratch.write(
            "bad.toml",
            format!(
                "bondstone = 1\n{ports}[nf.bad]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\nisolation = \"process\"\n\
                 [nf.good]\nkind = \"misbehave\"\n[wall.bad]\nmemory_mib = 640\n\
                 [[chain]]\npath = [\"in\", \"bad\", \"out\"]\n[[chain]]\npath = [\"in2\", \"good\", \"out2\"]\n"
            ),
        );
        let mut running = Running::start(Command::new(common::misbehave()).arg("run").arg(file).arg("--json"));
        let id = running.id();
        running.started();
        running.wait_for(&format!("{how}: the end of its process"), |line| {
            let told = line.starts_with("warning: ") && line.contains("\"bad\"") && line.contains(words);
            assert!(!told || how == "connect" || !line.contains("asked the system"), "{how}: {line}");
            told
        });
        // and its successors', while the other chain forwards
        running.wait_for(&format!("{how}: more"), |line| line.contains("pps"));
        let ended = running.interrupt();
        assert_eq!(ended.status, Some(4), "{how}: {}", ended.err);
        let summary: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{how}: {e}: {}", ended.err));
        assert_eq!(summary["balanced"], true, "{how}: {summary}");
        assert!(named(&summary, "walls", "bad")["starts"].as_u64() > Some(1), "{how}: {summary}");
        let port = |name: &str, key: &str| named(&summary, "ports", name)[key].as_u64().unwrap();
        assert!(port("in2", "received") > 0 && port("in2", "received") == port("out2", "sent"), "{how}: {summary}");
        assert_eq!(left_by(id), Vec::<PathBuf>::new(), "{how}");
    }
}

#[test]
fn a_file_that_an_nf_may_not_open_stays_closed() {
    let _alone = alone();
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "open.toml",
        format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"null\"\n\
             [nf.bad]\nkind = \"misbehave\"\nhow = \"open\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"bad\", \"out\"]\n",
            demo()
        ),
    );
    let said: Said = Command::new(common::misbehave()).arg("run").arg(file).arg("--json").output().unwrap().into();
    assert_eq!(said.status, Some(0), "{said:?}");
    let summary = json(&said);
    assert_eq!(named(&summary, "walls", "bad")["starts"], 1, "{summary}");
    assert_eq!(named(&summary, "ports", "out")["sent"], named(&summary, "ports", "in")["received"]);
}

/// Twenty times a side that links as it should, sends what it should, and then lies as fast as it can.
#[test]
fn a_side_that_lies_about_its_memory_harms_nobody() {
    let _alone = alone();
    let scratch = Scratch::new();
    let socket = scratch.path("evil.sock");
    let file = scratch.write(
        "evil.toml",
        format!(
            "bondstone = 1\nport.evil.device = \"vhost:{}\"\nport.out.device = \"null\"\nport.in.device = \"null\"\n\
             port.out2.device = \"null\"\n[[chain]]\npath = [\"evil\", \"count\", \"out\"]\n\
             [[chain]]\npath = [\"in\", \"tee\", \"out2\"]\n[[edge]]\nfrom = \"tee.copy\"\nto = \"evil\"\n",
            socket.display()
        ),
    );
    let mut running = Running::run(&file, &[]);
    running.started();
    let frame = wire::build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(b"the truth").pad_to(60).to_vec();
    for turn in 0..20 {
        let mut peer = common::peer::Peer::link(&socket, &scratch.path(format!("memory{turn}")));
        running.wait_for("its link", |line| line.contains("\"evil\"") && line.contains("has its link"));
        (0..64).for_each(|_| peer.send(&frame));
        until("the truth to be heard", || peer.taken() == 64);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            (0..100).for_each(|_| peer.lie());
        }
    }
    let ended = running.interrupt();
    assert_eq!(ended.status, Some(130), "{}", ended.err);
    let summary: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.err));
    assert_eq!((&summary["balanced"], &summary["faults"]), (&Value::Bool(true), &serde_json::json!([])), "{summary}");
    let port = |name: &str, key: &str| named(&summary, "ports", name)[key].as_u64().unwrap();
    assert!(port("evil", "received") >= 20 * 64, "{summary}");
    assert!(port("in", "received") > 0 && port("in", "received") == port("out2", "sent"), "{summary}");
}

#[test]
fn what_cannot_be_behind_a_wall_is_told() {
    let scratch = Scratch::new();
    for (text, words) in [
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"prison\"\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "no such isolation",
        ),
        ("[wall.a]\ncores = [0]\n[[chain]]\npath = [\"in\", \"count\", \"out\"]", "is behind a wall"),
        (
            "[nf.a]\nkind = \"count\"\n[[chain]]\nisolation = \"process\"\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"a\", \"out\"]",
            "and in this one, which is not",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"a\"]\n[[chain]]\npath = [\"a.out\", \"out\"]",
            "before it",
        ),
        (
            "[nf.a]\nkind = \"tee\"\nisolation = \"process\"\n[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[edge]]\nfrom = \"a.copy\"\nto = \"drop\"",
            "on the other side of a wall",
        ),
        (
            "[nf.a]\nkind = \"count\"\nisolation = \"process\"\n[wall.a]\nmemory_mib = 10\n[[chain]]\npath = [\"in\", \"a\", \"out\"]",
            "too little",
        ),
    ] {
        let second = if text.contains("in2") { "port.in2.device = \"null,size=60\"\n" } else { "" };
        let file = scratch.write(
            "wrong.toml",
            format!("bondstone = 1\nport.in.device = \"null\"\nport.out.device = \"ring:x\"\n{second}{text}\n"),
        );
        let said: Said = Command::new(env!("CARGO_BIN_EXE_bondstone")).arg("check").arg(file).output().unwrap().into();
        assert_eq!(said.status, Some(2), "{text}: {said:?}");
        assert!(said.err.contains(words) && said.err.contains("cure: "), "{text}: {said:?}");
    }
}
