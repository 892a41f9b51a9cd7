//! NFs in sandboxes with memif or shared-memory rings: the same guarantees as with vhost-user, for trusted NFs.

use crate::common::gateway::{accounted, plug, start};
use crate::common::namespace::{self, Namespace, done};
use crate::common::sandboxed_run::{
    SandboxedRun, demo, is_flowing, leftovers_of, possible, run, sandbox_processes, until,
};
use crate::common::{Said, Scratch, Summary};
use rustix::process::Signal;
use std::process::Command;

/// Isolation and transport.
const SANDBOXES: [(&str, &str); 4] =
    [("process", "memif"), ("process", "memif-zero-copy"), ("process", "rings"), ("container", "memif")];

/// Returns true if there are enough huge pages for zero-copy.
fn has_huge_pages() -> bool {
    let enough = dpdk::Memory::free_huge_pages() >= 256;
    if !enough {
        eprintln!("skipped: zero-copy needs 256 free huge pages");
    }
    enough
}

/// Returns the sandboxes that this machine supports.
fn sandboxes() -> impl Iterator<Item = (&'static str, &'static str)> {
    SANDBOXES.into_iter().filter(|(kind, by)| possible(kind) && (*by != "memif-zero-copy" || has_huge_pages()))
}

/// Returns the number of shared mappings of a process.
fn shared(process: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

/// Returns the number of open files of a process.
fn open(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

#[test]
fn packets_and_counts_do_not_depend_on_the_sandbox() {
    let _alone = crate::common::alone();
    let scratch = Scratch::new();
    scratch.write("rules", "drop proto icmp\naccept\n");
    let file = |name: &str, of_nfs: &str, of_sandboxes: &str| {
        let text = format!(
            "bondstone = 1\n[port.in]\ndevice = \"pcap:{}\"\n[port.out]\ndevice = \"pcap:{name}.pcap\"\n{of_sandboxes}\
             [nf.guard]\nkind = \"ttl\"\n{of_nfs}[nf.sandbox]\nkind = \"firewall\"\n{of_nfs}file = \"rules\"\n\
             [[chain]]\npath = [\"in\", \"count\", \"guard\", \"monitor\", \"sandbox\", \"out\"]\n",
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
    // two sandboxes: one polls, one sleeps
    for (kind, by) in sandboxes() {
        let name = format!("{kind}-{by}");
        let of_sandboxes = format!(
            "[sandbox.guard]\ntransport = \"{by}\"\nidle = \"poll\"\n[sandbox.sandbox]\ntransport = \"{by}\"\nidle = \"sleep\"\n"
        );
        let summary = run(&file(&name, &format!("isolation = \"{kind}\"\n"), &of_sandboxes)).summary(0);
        let sandboxes = summary.0["sandboxes"].as_array().unwrap();
        assert_eq!(sandboxes.len(), 2, "{name}");
        let is = |sandbox: &serde_json::Value| {
            sandbox["isolation"] == kind && sandbox["transport"] == by && sandbox["starts"] == 1
        };
        assert!(sandboxes.iter().all(is), "{sandboxes:?}");
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

/// Returns how often the threads of a process have slept.
fn sleeps(process: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let of = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |number| number.trim().parse::<u64>().unwrap())
    };
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).map(of).sum()
}

/// A process that shares its CPU sleeps without packets, and is woken by them.
#[test]
fn an_idle_process_sleeps_until_packets_arrive() {
    let _alone = crate::common::alone();
    if !possible("process") || !namespace::possible(&["ping"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "idle.toml",
        "bondstone = 1\nport.a.device = \"tap:a0\"\nport.b.device = \"tap:b0\"\n[nf.far]\nkind = \"count\"\n\
         isolation = \"process\"\n[sandbox.far]\ntransport = \"rings\"\nidle = \"sleep\"\n\
         [[chain]]\npath = [\"a\", \"far\", \"b\"]\n[[chain]]\npath = [\"b\", \"far\", \"a\"]\n",
    );
    let [near, far, between] = ["near", "far", "m"].map(|n| Namespace::new(&format!("idle-{n}")));
    let running = start(&between, &file);
    plug(&between, "a0", &near, &["192.0.2.1/24"]);
    plug(&between, "b0", &far, &["192.0.2.2/24"]);
    let ping = ["-n", "-c", "20", "-i", "0.05", "-w", "100", "192.0.2.2"];
    done(near.command("ping").args(ping));
    let [process] = sandbox_processes(running.id())[..] else { panic!("{:?}", sandbox_processes(running.id())) };
    let before = sleeps(process);
    std::thread::sleep(std::time::Duration::from_secs(1));
    // timers wake it a thousand times per second; sleeps of 50 us would be more than ten thousand
    let slept = sleeps(process) - before;
    assert!((1..5000).contains(&slept), "{slept} sleeps per second");
    done(near.command("ping").args(ping));
    let summary = running.terminate().summary(130);
    accounted(&summary);
    assert!(summary.sandbox("far").number("/received") >= 80, "{}", summary.0);
}

/// Both directions of a chain, and an output that leaves by an edge: three crossings.
#[test]
fn a_sandbox_may_have_several_crossings() {
    let _alone = crate::common::alone();
    for (kind, by) in sandboxes().filter(|(_, by)| *by != "memif-zero-copy") {
        let scratch = Scratch::new();
        std::fs::copy(demo(), scratch.path("other.pcap")).unwrap();
        let file = scratch.write(
            "crossings.toml",
            format!(
                "bondstone = 1\nport.in.device = \"pcap:{}\"\nport.in2.device = \"pcap:other.pcap\"\nport.out.device = \"null\"\n\
                 port.out2.device = \"null\"\nport.copies.device = \"null\"\n[nf.far]\nkind = \"tee\"\n\
                 isolation = \"{kind}\"\n[sandbox.far]\ntransport = \"{by}\"\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n\
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

/// A memif peer that ends unmaps its memory while the other side may be using it. Each process is killed at full load.
#[test]
fn a_killed_process_is_restarted_and_others_lose_nothing() {
    const KILLS: u32 = 2;
    for (kind, by) in sandboxes() {
        let Some(mut run) = SandboxedRun::flow_by(kind, by) else { continue };
        run.running.wait_for("packets", is_flowing);
        let before = (shared(run.id), open(run.id));
        let mut flowing = 1;
        for turn in 1..=KILLS {
            run.kill();
            let mut intervals = 0;
            run.running.wait_for(&format!("packets after kill {turn}"), |line| {
                intervals += u32::from(is_flowing(line));
                intervals == flowing + 2
            });
            flowing += 2;
        }
        // mappings and files of ended processes are gone
        assert_eq!((shared(run.id), open(run.id)), before, "{kind} by {by}");
        let summary = run.end(4);
        counted(&summary, &format!("{kind} by {by}"));
        assert_eq!(summary.sandbox("far").number("/starts"), u64::from(KILLS) + 1, "{kind} by {by}");
        let errors = summary.errors();
        assert_eq!(errors.len(), KILLS as usize, "{kind} by {by}: {errors:?}");
        assert!(errors.iter().all(|error| error.contains("\"far\"") && error.contains("signal 9")), "{errors:?}");
    }
}

/// Asserts that every packet that entered the sandbox was returned or counted as lost, and that the other chain lost
/// none.
#[track_caller]
fn counted(summary: &Summary, what: &str) {
    let sandbox = summary.sandbox("far");
    let lost = sandbox.number("/drops/sandbox_lost") + sandbox.number("/drops/sandbox_return_full");
    let [sent, received, created] = ["/sent", "/received", "/created"].map(|key| sandbox.number(key));
    assert_eq!((sent, created), (received + lost, 0), "{what}: {}", summary.0);
    assert_eq!(received, summary.port("out").number("/sent"), "{what}");
    assert!(received > 0, "{what}: {}", summary.0);
    let other = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
    assert!(other[0] == other[1] && other[0] > 0, "{what}: {}", summary.0);
}

#[test]
fn a_hung_process_is_restarted() {
    // each is detected after three seconds
    for (kind, by) in sandboxes().filter(|(kind, by)| *kind == "process" && *by != "memif-zero-copy") {
        let Some(mut run) = SandboxedRun::flow_by(kind, by) else { continue };
        run.signal(Signal::STOP);
        run.running.wait_for("its end", |line| line.contains("sent no report"));
        run.running.wait_for("another", |line| line.contains("restarted in"));
        counted(&run.end(4), &format!("{kind} by {by}"));
    }
}

#[test]
fn stopping_loses_no_packets() {
    for (kind, by) in sandboxes() {
        let Some(mut run) = SandboxedRun::flow_by(kind, by) else { continue };
        run.running.wait_for("packets", is_flowing);
        let summary = run.end(130);
        counted(&summary, &format!("{kind} by {by}"));
        assert_eq!(summary.sandbox("far").number("/drops/sandbox_lost"), 0, "{kind} by {by}: {}", summary.0);
        assert_eq!(summary.0["balanced"], true, "{kind} by {by}: {}", summary.0);
    }
}

#[test]
fn killing_the_host_process_leaves_nothing_behind() {
    for (kind, by) in sandboxes() {
        let Some(run) = SandboxedRun::flow_by(kind, by) else { continue };
        run.host();
        run.running.signal(Signal::KILL);
        until(&format!("all of the {kind} by {by} to go"), || leftovers_of(run.id).is_empty());
    }
}

#[test]
fn faults_of_an_nf_do_not_affect_other_processes() {
    for (kind, by) in sandboxes() {
        for (how, expected) in [("exit", "called exit"), ("connect", "made a system call that NFs may not make")] {
            let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
            let text = format!(
                "bondstone = 1\n{ports}[nf.far]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\nisolation = \"{kind}\"\n\
                 [nf.good]\nkind = \"misbehave\"\n[sandbox.far]\ntransport = \"{by}\"\n\
                 [[chain]]\npath = [\"in\", \"far\", \"out\"]\n[[chain]]\npath = [\"in2\", \"good\", \"out2\"]\n"
            );
            let program = crate::common::misbehave();
            let Some(mut run) = SandboxedRun::of(kind, &text, program.to_str().unwrap()) else { continue };
            run.running.wait_for(&format!("{kind} by {by}: {how}: the end of its process"), |line| {
                line.starts_with("warning: ") && line.contains("\"far\"") && line.contains(expected)
            });
            run.wait_for_restart(&format!("{kind} by {by}: {how}"), 0);
            let summary = run.end(4);
            assert!(summary.sandbox("far").number("/starts") > 1, "{kind} by {by}: {how}: {}", summary.0);
            let other = [summary.port("in2").number("/received"), summary.port("out2").number("/sent")];
            assert!(other[0] == other[1] && other[0] > 0, "{kind} by {by}: {how}: {}", summary.0);
        }
    }
}

#[test]
fn rejects_invalid_transports() {
    let scratch = Scratch::new();
    let ports =
        "bondstone = 1\nport.in.device = \"null\"\nport.in2.device = \"null,size=60\"\nport.out.device = \"null\"\n";
    let of = |isolation: &str, by: &str| {
        format!("{ports}[nf.a]\nkind = \"count\"\nisolation = \"{isolation}\"\n[sandbox.a]\ntransport = \"{by}\"\n")
    };
    let (one, two) = (
        "[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"out\"]\n",
        "[[chain]]\npath = [\"in\", \"a\", \"out\"]\n[[chain]]\npath = [\"in2\", \"a\", \"out\"]\n",
    );
    let bondstone = |arguments: [&str; 2], text: &str| -> Said {
        let file = scratch.write("wrong.toml", text);
        Command::new(env!("CARGO_BIN_EXE_bondstone")).args(arguments).arg(file).output().unwrap().into()
    };
    for (isolation, by, chains, expected) in [
        ("process", "memfi", one, "unknown transport"),
        ("vm", "memif", one, "is not supported by VMs"),
        ("vm", "memif-zero-copy", one, "is not supported by VMs"),
        ("vm", "rings", one, "requires isolation"),
        ("container", "rings", one, "requires isolation"),
        ("process", "memif-zero-copy", two, "sandbox \"a\" has 2 interfaces"),
    ] {
        let output = bondstone(["check", "--"], &(of(isolation, by) + chains));
        assert_eq!(output.status, Some(2), "{isolation} by {by}: {output:?}");
        assert!(output.err.contains(expected) && output.err.contains("help: "), "{isolation} by {by}: {output:?}");
        // the value in the file
        assert!(output.err.contains(&format!("\"{by}\"")), "{isolation} by {by}: {output:?}");
    }
    // isolation = "inproc" disables a sandbox; its table may stay
    assert_eq!(bondstone(["check", "--"], &(of("inproc", "rings") + one)).status, Some(0));
    for by in ["vhost", "memif", "rings"] {
        assert_eq!(bondstone(["check", "--"], &(of("process", by) + two)).status, Some(0), "{by}");
    }
    // an external switch does not support these transports
    for by in ["memif", "rings"] {
        let output = bondstone(["sandbox-external-switch", "--"], &(of("process", by) + one));
        assert_eq!(output.status, Some(2), "{output:?}");
        assert!(output.err.contains("external switch") && output.err.contains("help: "), "{output:?}");
    }
}
