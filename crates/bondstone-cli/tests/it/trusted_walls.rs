//! NFs behind walls that packets go through by memif or by rings: what is so by vhost-user is so here, as long as the NF is trusted.

use crate::common::stand::{Stand, demo, is_flowing, left_by, possible, run, until};
use crate::common::{Said, Scratch, Summary};
use rustix::process::Signal;
use std::process::Command;

/// Walls, and how packets go through them.
const WALLS: [(&str, &str); 4] =
    [("process", "memif"), ("process", "memif-zero-copy"), ("process", "rings"), ("container", "memif")];

/// Whether there are huge pages, without which nothing is shared as it is.
fn shares() -> bool {
    let enough = dpdk::Memory::free_huge_pages() >= 256;
    if !enough {
        eprintln!("skipped: zero-copy: there are no 256 free huge pages");
    }
    enough
}

/// Walls that can be here.
fn walls() -> impl Iterator<Item = (&'static str, &'static str)> {
    WALLS.into_iter().filter(|(kind, by)| possible(kind) && (*by != "memif-zero-copy" || shares()))
}

/// Memory that a process shares with others, by its map: what a peer has brought.
fn shared(process: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

/// Files that a process has open.
fn open(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[test]
fn packets_and_counts_are_the_same_before_and_behind_a_wall() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    scratch.write("rules", "drop proto icmp\naccept\n");
    let file = |name: &str, of_nfs: &str, of_walls: &str| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"pcap:{name}.pcap\"\n{of_walls}\
             [nf.guard]\nkind = \"ttl\"\n{of_nfs}[nf.wall]\nkind = \"firewall\"\n{of_nfs}file = \"rules\"\n\
             [[chain]]\npath = [\"in\", \"count\", \"guard\", \"monitor\", \"wall\", \"out\"]\n",
            demo()
        );
        scratch.write(format!("{name}.toml"), text)
    };
    let frames = |of: &str| {
        let mut reader = pcap::Reader::open(scratch.path(format!("{of}.pcap"))).unwrap();
        let mut frames = vec![];
        while let Some(record) = reader.next().unwrap() {
            frames.push(record.frame.to_vec());
        }
        frames
    };
    let whole = run(&file("plain", "", "")).summary(0).0;
    assert!(!frames("plain").is_empty());
    // two walls, of which one polls and one sleeps
    for (kind, by) in walls() {
        let name = format!("{kind}-{by}");
        let of_walls = format!(
            "[wall.guard]\ntransport = \"{by}\"\nidle = \"poll\"\n[wall.wall]\ntransport = \"{by}\"\nidle = \"sleep\"\n"
        );
        let summary = run(&file(&name, &format!("isolation = \"{kind}\"\n"), &of_walls)).summary(0);
        let walls = summary.0["walls"].as_array().unwrap();
        assert_eq!(walls.len(), 2, "{name}");
        let is = |wall: &serde_json::Value| wall["isolation"] == kind && wall["transport"] == by && wall["starts"] == 1;
        assert!(walls.iter().all(is), "{walls:?}");
        for key in ["totals", "drops"] {
            assert_eq!(summary.0[key], whole[key], "{name}: {key}");
        }
        for nf in whole["nfs"].as_array().unwrap() {
            let here = summary.nf(nf["name"].as_str().unwrap()).0;
            for key in ["kind", "packets", "created", "held", "drops", "counters", "table"] {
                assert_eq!(here[key], nf[key], "{name}: {key} of {}", nf["name"]);
            }
        }
        assert_eq!(frames(&name), frames("plain"), "{name}");
    }
}

/// Both directions of a chain, and an output that leads out by itself: three ways through one wall.
#[test]
fn a_wall_has_many_ways() {
    let _alone = crate::common::alone();
    for (kind, by) in walls().filter(|(_, by)| *by != "memif-zero-copy") {
        let scratch = Scratch::new();
        std::fs::copy(demo(), scratch.path("other.pcap")).unwrap();
        let file = scratch.write(
            "ways.toml",
            format!(
                "bondstone = 1\nport.in.device = \"pcap:{}\"\nport.in2.device = \"pcap:other.pcap\"\nport.out.device = \"null\"\n\
                 port.out2.device = \"null\"\nport.copies.device = \"null\"\n[nf.far]\nkind = \"tee\"\n\
                 isolation = \"{kind}\"\n[wall.far]\ntransport = \"{by}\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n\
                 [[chain]]\npath = [\"in2\", \"far\", \"out2\"]\n[[edge]]\nfrom = \"far.copy\"\nto = \"copies\"\n",
                demo()
            ),
        );
        let summary = run(&file).summary(0);
        let all = summary.port("in").number("/received");
        let sent = ["out", "out2", "copies"].map(|port| summary.port(port).number("/sent"));
        assert_eq!(sent, [all, all, 2 * all], "{kind} by {by}: {}", summary.0);
        assert_eq!(summary.nf("far").number("/created"), 2 * all, "{kind} by {by}");
    }
}

/// What one of memif's sides has given away it takes back in the middle of whatever the other is doing, which is the end of
/// that one unless it is waited for; each death finds the packets of a full flow on their way.
#[test]
fn what_is_killed_is_started_again_and_others_feel_nothing() {
    const DEATHS: u32 = 2;
    for (kind, by) in walls() {
        let Some(mut stand) = Stand::flow_by(kind, by) else { continue };
        stand.running.wait_for("packets", is_flowing);
        let before = (shared(stand.id), open(stand.id));
        let mut flowing = 1;
        for turn in 1..=DEATHS {
            stand.kill();
            let mut seen = 0;
            stand.running.wait_for(&format!("packets after death {turn}"), |line| {
                seen += u32::from(is_flowing(line));
                seen == flowing + 2
            });
            flowing += 2;
        }
        // the memory of those that are no more has gone with them
        assert_eq!((shared(stand.id), open(stand.id)), before, "{kind} by {by}");
        let summary = stand.end(4);
        counted(&summary, &format!("{kind} by {by}"));
        assert_eq!(summary.wall("far").number("/starts"), u64::from(DEATHS) + 1, "{kind} by {by}");
        let faults = summary.faults();
        assert_eq!(faults.len(), DEATHS as usize, "{kind} by {by}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.contains("\"far\"") && fault.contains("signal 9")), "{faults:?}");
    }
}

/// Every packet that went behind the wall came back or is told, and the chain beside it has lost none.
#[track_caller]
fn counted(summary: &Summary, what: &str) {
    let wall = summary.wall("far");
    let lost = wall.number("/drops/wall_lost") + wall.number("/drops/return_full");
    let [handed, returned, created] = ["/handed", "/returned", "/created"].map(|key| wall.number(key));
    assert_eq!((handed, created), (returned + lost, 0), "{what}: {}", summary.0);
    assert_eq!(returned, summary.port("out").number("/sent"), "{what}");
    assert!(returned > 0, "{what}: {}", summary.0);
    let beside = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
    assert!(beside[0] == beside[1] && beside[0] > 0, "{what}: {}", summary.0);
}

#[test]
fn what_stands_still_is_started_again() {
    // each is found after three seconds
    for (kind, by) in walls().filter(|(kind, by)| *kind == "process" && *by != "memif-zero-copy") {
        let Some(mut stand) = Stand::flow_by(kind, by) else { continue };
        stand.signal(Signal::STOP);
        stand.running.wait_for("its end", |line| line.contains("said nothing any more"));
        stand.running.wait_for("another", |line| line.contains("runs again"));
        counted(&stand.end(4), &format!("{kind} by {by}"));
    }
}

#[test]
fn an_end_that_is_asked_for_loses_nothing() {
    for (kind, by) in walls() {
        let Some(mut stand) = Stand::flow_by(kind, by) else { continue };
        stand.running.wait_for("packets", is_flowing);
        let summary = stand.end(130);
        counted(&summary, &format!("{kind} by {by}"));
        assert_eq!(summary.wall("far").number("/drops/wall_lost"), 0, "{kind} by {by}: {}", summary.0);
        assert_eq!(summary.0["balanced"], true, "{kind} by {by}: {}", summary.0);
    }
}

#[test]
fn nothing_is_left_when_what_is_before_the_walls_is_killed() {
    for (kind, by) in walls() {
        let Some(stand) = Stand::flow_by(kind, by) else { continue };
        stand.host();
        stand.running.signal(Signal::KILL);
        until(&format!("all of the {kind} by {by} to go"), || left_by(stand.id).is_empty());
    }
}

#[test]
fn what_an_nf_does_to_its_process_harms_no_other() {
    for (kind, by) in walls() {
        for (how, words) in [("exit", "called exit"), ("connect", "asked the system for something that NFs may not")] {
            let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
            let text = format!(
                "bondstone = 1\n{ports}[nf.far]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\nisolation = \"{kind}\"\n\
                 [nf.good]\nkind = \"misbehave\"\n[wall.far]\ntransport = \"{by}\"\n\
                 [[chain]]\npath = [\"in\", \"far\", \"out\"]\n[[chain]]\npath = [\"in2\", \"good\", \"out2\"]\n"
            );
            let program = crate::common::misbehave();
            let Some(mut stand) = Stand::of(kind, &text, program.to_str().unwrap()) else { continue };
            stand.running.wait_for(&format!("{kind} by {by}: {how}: the end of its process"), |line| {
                line.starts_with("warning: ") && line.contains("\"far\"") && line.contains(words)
            });
            stand.running.wait_for(&format!("{kind} by {by}: {how}: more"), |line| line.contains("pps"));
            let summary = stand.end(4);
            assert!(summary.wall("far").number("/starts") > 1, "{kind} by {by}: {how}: {}", summary.0);
            let beside = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
            assert!(beside[0] == beside[1] && beside[0] > 0, "{kind} by {by}: {how}: {}", summary.0);
        }
    }
}

#[test]
fn what_cannot_be_is_told() {
    let scratch = Scratch::new();
    let ports =
        "bondstone = 1\nport.in.device = \"null\"\nport.in2.device = \"null,size=60\"\nport.out.device = \"null\"\n";
    let of = |isolation: &str, by: &str| {
        format!("{ports}[nf.a]\nkind = \"count\"\nisolation = \"{isolation}\"\n[wall.a]\ntransport = \"{by}\"\n")
    };
    let (one, two) = (
        "[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"out\"]\n",
        "[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"a\", \"out\"]\n",
    );
    let said = |words: [&str; 2], text: &str| -> Said {
        let file = scratch.write("wrong.toml", text);
        Command::new(env!("CARGO_BIN_EXE_bondstone")).args(words).arg(file).output().unwrap().into()
    };
    for (isolation, by, chains, words) in [
        ("process", "memfi", one, "no such transport"),
        ("vm", "memif", one, "has no place in a VM"),
        ("vm", "memif-zero-copy", one, "has no place in a VM"),
        ("vm", "rings", one, "is for processes"),
        ("container", "rings", one, "is for processes"),
        ("process", "memif-zero-copy", two, "2 interfaces are in wall \"a\""),
    ] {
        let said = said(["check", "--"], &(of(isolation, by) + chains));
        assert_eq!(said.status, Some(2), "{isolation} by {by}: {said:?}");
        assert!(said.err.contains(words) && said.err.contains("help: "), "{isolation} by {by}: {said:?}");
        // where it stands in the file
        assert!(said.err.contains(&format!("\"{by}\"")), "{isolation} by {by}: {said:?}");
    }
    // the wall goes by one word, and what is said of it may stay
    assert_eq!(said(["check", "--"], &(of("inproc", "rings") + one)).status, Some(0));
    for by in ["vhost", "memif", "rings"] {
        assert_eq!(said(["check", "--"], &(of("process", by) + two)).status, Some(0), "{by}");
    }
    // a switch of others has no such ports
    for by in ["memif", "rings"] {
        let said = said(["wall-hosts", "--"], &(of("process", by) + one));
        assert_eq!(said.status, Some(2), "{said:?}");
        assert!(said.err.contains("another switch") && said.err.contains("help: "), "{said:?}");
    }
}
