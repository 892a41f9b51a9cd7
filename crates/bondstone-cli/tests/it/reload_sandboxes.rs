//! Reloads that add, remove and replace sandboxes under traffic.

use crate::common::instance::{command, start};
use crate::common::sandboxed_run::{leftovers_of, possible, sandbox_processes, until};
use crate::common::{Running, Said, Scratch, Summary, alone};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;

/// A run whose file changes.
struct Changing {
    running: Running,
    dir: PathBuf,
    scratch: Scratch,
}

/// Returns a file with two chains: through these NFs, with these tables.
fn file(first: &str, second: &str, tables: &str) -> String {
    let ports = ["in", "out", "in2", "out2"].map(|port| format!("port.{port}.device = \"null\"\n")).concat();
    format!(
        "bondstone = 1\n{ports}{tables}[[chain]]\npath = [\"in\", {first}\"out\"]\n\
         [[chain]]\npath = [\"in2\", {second}\"out2\"]\n"
    )
}

/// Returns the table of an NF `count` in a sandbox, with keys of the sandbox.
fn sandboxed(name: &str, kind: &str, keys: &str) -> String {
    format!("[nf.{name}]\nkind = \"count\"\nisolation = \"{kind}\"\n[sandbox.{name}]\n{keys}\n")
}

impl Changing {
    fn start(text: &str) -> Changing {
        let scratch = Scratch::new();
        let (dir, file) = (scratch.path("sockets"), scratch.write("chain.toml", text));
        let running = start(&dir, &file, &[]);
        Changing { running, dir, scratch }
    }

    fn try_reload(&self, text: &str) -> Said {
        self.scratch.write("chain.toml", text);
        command(&self.dir, &["reload"])
    }

    #[track_caller]
    fn reload(&self, text: &str) -> String {
        let said = self.try_reload(text);
        assert_eq!(said.status, Some(0), "{}", said.err);
        said.out
    }

    fn stats(&self) -> Summary {
        let said = command(&self.dir, &["stats", "--json"]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        Summary(serde_json::from_str(&said.out).unwrap())
    }

    /// Waits until an NF has processed more packets than so far.
    fn wait_for_packets(&self, nf: &str) {
        let before = self.stats().nf(nf).number("/packets");
        until(&format!("packets of {nf}"), || self.stats().nf(nf).number("/packets") > before);
    }

    fn processes(&self) -> Vec<u32> {
        sandbox_processes(self.running.id())
    }

    /// Stops the run, which must leave nothing; returns the summary.
    #[track_caller]
    fn stop(self, status: i32) -> Summary {
        assert_eq!(command(&self.dir, &["stop"]).status, Some(0));
        let id = self.running.id();
        let summary = self.running.end().reported(status);
        assert_eq!(leftovers_of(id), Vec::<PathBuf>::new());
        summary
    }
}

/// No packet that entered a sandbox was lost.
#[track_caller]
fn lost_nothing(summary: &Summary, sandbox: &str) {
    let of = summary.sandbox(sandbox);
    // queues may be full while a worker does not get its CPU
    let reasons = of.0["drops"].as_object().unwrap();
    assert!(reasons.keys().all(|reason| reason == "sandbox_full" || reason == "sandbox_return_full"), "{}", of.0);
    let returned = of.number("/received") + of.0["drops"]["sandbox_return_full"].as_u64().unwrap_or_default();
    assert!(of.number("/sent") > 0 && of.number("/sent") == returned, "{}", of.0);
}

#[test]
fn sandboxes_are_added_replaced_and_removed_under_traffic() {
    let _alone = alone();
    let all = [("process", "vhost"), ("process", "memif"), ("process", "rings"), ("container", "vhost")];
    for (kind, transport) in all.into_iter().filter(|(kind, _)| possible(kind)) {
        let keys = format!("transport = \"{transport}\"\n");
        let stays = sandboxed("stays", kind, &keys);
        let run = Changing::start(&file("\"stays\", ", "", &stays));
        let [stays_in] = run.processes()[..] else { panic!("{:?}", run.processes()) };
        let other = |more: &str| format!("{stays}{}", sandboxed("other", kind, &format!("{keys}{more}")));

        let said = run.reload(&file("\"stays\", ", "\"other\", ", &other("")));
        assert!(said.contains("added         sandbox other") && said.contains("added         nf other"), "{said}");
        assert!(said.contains("ready after") && said.contains("kept          nf stays"), "{said}");
        run.wait_for_packets("other");
        let [first] = run.processes().into_iter().filter(|id| *id != stays_in).collect::<Vec<_>>()[..] else {
            panic!("{:?}", run.processes())
        };

        let before = run.stats().nf("other").number("/packets");
        // on the CPU of the worker, and of the sandbox that stays
        let cpus = runtime::allowed_cpus().into_iter().rev().take(2).map(|cpu| cpu.to_string()).collect::<Vec<_>>();
        let keys = format!("memory_mib = 900\ncores = [{}]", cpus.join(", "));
        let said = run.reload(&file("\"stays\", ", "\"other\", ", &other(&keys)));
        assert!(said.contains("changed       sandbox other"), "{said}");
        assert!(said.contains("nf other (count): its sandbox; starts without state"), "{said}");
        assert!(!said.contains("were lost"), "{said}");
        run.wait_for_packets("other");
        let stats = run.stats();
        assert!(stats.nf("other").number("/packets") > before, "{}", stats.0);
        assert_eq!(stats.sandbox("other").0["up"], true);
        assert!(run.processes().contains(&stays_in) && !run.processes().contains(&first), "{:?}", run.processes());
        assert_eq!(run.processes().len(), 2);

        let said = run.reload(&file("\"stays\", ", "", &stays));
        assert!(said.contains("removed       sandbox other") && !said.contains("were lost"), "{said}");
        assert_eq!(run.processes(), [stays_in]);
        // a sandbox of the same name continues the counts
        run.reload(&file("\"stays\", ", "\"other\", ", &other("")));
        run.wait_for_packets("other");
        run.wait_for_packets("stays");

        let summary = run.stop(0);
        lost_nothing(&summary, "stays");
        lost_nothing(&summary, "other");
        let [stays, other] = ["stays", "other"].map(|name| summary.sandbox(name));
        assert_eq!((stays.number("/starts"), other.number("/starts")), (1, 3), "{kind} by {transport}");
        assert_eq!(summary.nf("other").number("/packets"), other.number("/sent"), "{kind} by {transport}");
        assert_eq!(summary.0["nfs"].as_array().unwrap().len(), 2, "{}", summary.0["nfs"]);
    }
}

/// The run has no sandbox at first and at the end; an NF moves into one and back, and between two sandboxes.
#[test]
fn nfs_move_into_sandboxes_and_back() {
    let _alone = alone();
    if !possible("process") {
        return;
    }
    let near = "[nf.a]\nkind = \"count\"\n[nf.b]\nkind = \"count\"\n";
    let text = |tables: &str| file("\"a\", \"b\", ", "", tables);
    let run = Changing::start(&text(near));
    run.wait_for_packets("a");
    let inside = |kind: &str| format!("kind = \"count\"\nisolation = \"{kind}\"");
    let one = near.replacen("kind = \"count\"", &inside("process"), 1);
    let said = run.reload(&text(&one));
    assert!(said.contains("added         sandbox a"), "{said}");
    assert!(said.contains("rebuilt       nf a (count): isolation; starts without state"), "{said}");
    run.wait_for_packets("b");
    let both = near.replace("kind = \"count\"", &inside("process"));
    run.reload(&text(&both));
    run.wait_for_packets("b");
    // packets leave the first sandbox into the second
    let said = run.reload(&text(&format!("{both}[sandbox.a]\nmemory_mib = 900\n[sandbox.b]\nmemory_mib = 900\n")));
    assert!(said.contains("changed       sandbox a") && said.contains("changed       sandbox b"), "{said}");
    run.wait_for_packets("b");
    run.reload(&file("\"a\", ", "", "[nf.a]\nkind = \"count\"\n"));
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    run.wait_for_packets("a");
    let summary = run.stop(0);
    lost_nothing(&summary, "a");
    lost_nothing(&summary, "b");
    assert_eq!(summary.sandbox("a").number("/starts"), 2);
    let packets = summary.nf("a").number("/packets");
    assert!(packets > summary.sandbox("a").number("/sent"), "the host side counts, too: {}", summary.0["nfs"]);
    assert_eq!(packets + summary.sandbox("a").dropped(), summary.port("in").number("/received"), "{}", summary.0);
}

#[test]
fn a_process_that_cannot_start_changes_nothing() {
    let _alone = alone();
    if !possible("process") {
        return;
    }
    let stays = sandboxed("stays", "process", "");
    let text = file("\"stays\", ", "", &stays);
    let run = Changing::start(&text);
    // more memory than it may have
    let huge = "[nf.huge]\nkind = \"nat44\"\nexternal = [\"203.0.113.1\"]\nsessions = 10000000\nisolation = \"process\"\n\
        [sandbox.huge]\nmemory_mib = 640\n";
    let broken = file("\"stays\", ", "\"huge:inside\", ", &format!("{stays}{huge}"));
    for _ in 0..2 {
        let said = run.try_reload(&broken);
        assert!(said.status == Some(2) && said.err.contains("sandbox \"huge\""), "{:?} {}", said.status, said.err);
        assert_eq!(run.processes().len(), 1);
    }
    // a port with the name of a connection
    let named = text.replace("out2", "stays-1");
    let said = run.try_reload(&named);
    let problem = "port \"stays-1\" cannot be added by a reload: a connection to sandbox \"stays\" has that name";
    assert!(said.status == Some(2) && said.err.contains(problem), "{}", said.err);
    assert!(run.reload(&text).starts_with("no changes"));
    run.wait_for_packets("stays");
    let summary = run.stop(0);
    lost_nothing(&summary, "stays");
    assert_eq!(summary.0["sandboxes"].as_array().unwrap().len(), 1);
}

#[test]
fn packets_in_a_hung_sandbox_that_is_removed_are_counted_as_lost() {
    let _alone = alone();
    if !possible("process") {
        return;
    }
    let run = Changing::start(&file("\"hangs\", ", "", &sandboxed("hangs", "process", "")));
    run.wait_for_packets("hangs");
    let [process] = run.processes()[..] else { panic!("{:?}", run.processes()) };
    kill_process(Pid::from_raw(process as i32).unwrap(), Signal::STOP).unwrap();
    // so that packets wait in it
    let sent = |stats: Summary| stats.sandbox("hangs").number("/sent");
    let mut before = sent(run.stats());
    until("its queues to be full", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = sent(run.stats());
        now == std::mem::replace(&mut before, now)
    });
    run.reload(&file("", "", ""));
    assert!(run.processes().is_empty(), "{:?}", run.processes());
    let summary = run.stop(4);
    assert!(summary.sandbox("hangs").number("/drops/sandbox_lost") > 0, "{}", summary.0);
}

#[test]
fn killing_the_run_leaves_no_process_of_a_reload_behind() {
    let _alone = alone();
    for kind in ["process", "container"].into_iter().filter(|kind| possible(kind)) {
        let run = Changing::start(&file("", "", ""));
        run.reload(&file("\"far\", ", "", &sandboxed("far", kind, "")));
        assert_eq!(run.processes().len(), 1);
        run.running.signal(Signal::KILL);
        let id = run.running.id();
        until(&format!("all of the {kind} to go"), || leftovers_of(id).is_empty());
    }
}

/// A file that a sandboxed NF reads is read again by a new process.
#[test]
fn a_changed_file_of_an_nf_replaces_its_sandbox() {
    let _alone = alone();
    if !possible("process") {
        return;
    }
    let firewall = "[nf.fw]\nkind = \"firewall\"\nfile = \"rules\"\nisolation = \"process\"\n";
    let text = file("\"fw\", ", "", firewall);
    let scratch = Scratch::new();
    scratch.write("rules", "accept\n");
    let (dir, path) = (scratch.path("sockets"), scratch.write("chain.toml", &text));
    let running = start(&dir, &path, &[]);
    let run = Changing { running, dir, scratch };
    assert!(run.reload(&text).starts_with("no changes"));
    run.scratch.write("rules", "drop proto udp\naccept\n");
    let said = run.reload(&text);
    assert!(said.contains("changed       sandbox fw") && said.contains("a file that it reads"), "{said}");
    let summary = run.stop(0);
    assert_eq!(summary.sandbox("fw").number("/starts"), 2);
}
