//! Misbehaving NFs: containment, reporting and fault attribution.

use crate::common::{Said, Scratch};
use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns a CPU that this process may use.
fn cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    line.trim().split([',', '-']).next().unwrap().to_owned()
}

/// Runs two chains on one CPU for a while. The NF `bad` of the first misbehaves after 1000 packets, the NF `good` of
/// the second does not.
fn run(how: &str, time: &str) -> Said {
    // one run at a time, as the machine has few cores
    static RUN: Mutex<()> = Mutex::new(());
    let _run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new();
    let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
    let cpu = cpu();
    let file = scratch.write(
        "bad.toml",
        format!(
            "bondstone = 1\n{ports}\n[nf.before]\nkind = \"count\"\n[nf.bad]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\n\
             [nf.after]\nkind = \"count\"\n[nf.good]\nkind = \"misbehave\"\n\
             [[chain]]\npath = [\"in\", \"before\", \"bad\", \"after\", \"out\"]\ncores = [{cpu}]\n\
             [[chain]]\npath = [\"in2\", \"good\", \"out2\"]\ncores = [{cpu}]\n"
        ),
    );
    let mut command = Command::new(crate::common::misbehave());
    // no core dumps
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
    command.arg("run").arg(file).args(["--for", time, "--memory", "600MiB", "--json"]).output().unwrap().into()
}

/// Summary and misbehaviour of a completed run.
struct CompletedRun(Value, String);

impl CompletedRun {
    fn of(how: &str, time: &str, status: i32) -> CompletedRun {
        let output = run(how, time);
        assert_eq!(output.status, Some(status), "{how}: {output:?}");
        let summary = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{how}: {e}: {output:?}"));
        CompletedRun(summary, how.to_owned())
    }

    fn errors(&self) -> Vec<&str> {
        self.0["errors"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect()
    }

    /// Asserts that an error with this text names the NF, and that none names another NF.
    fn reports(self, text: &str) -> Self {
        let (errors, how) = (self.errors(), &self.1);
        assert!(errors.iter().any(|f| f.contains("nf \"bad\"") && f.contains(text)), "{how}: {errors:?}");
        self.names_no_other_nf()
    }

    fn names_no_other_nf(self) -> Self {
        let (errors, how) = (self.errors(), &self.1);
        let other = |f: &&str| ["before", "after", "good"].iter().any(|nf| f.contains(&format!("\"{nf}\"")));
        assert!(!errors.iter().any(other), "{how}: {errors:?}");
        self
    }

    /// Asserts that every packet is accounted for, and that the other chain lost none.
    fn spares_other_chain(self) -> Self {
        let how = &self.1;
        assert_eq!(self.0["balanced"], true, "{how}: {}", self.0);
        let (received, sent) = (self.port("in2", "received"), self.port("out2", "sent"));
        assert!(received > 0 && received == sent, "{how}: {received} {sent} {}", self.0);
        self
    }

    fn port(&self, name: &str, counter: &str) -> u64 {
        self.0["ports"].as_array().unwrap().iter().find(|p| p["name"] == name).unwrap()[counter].as_u64().unwrap()
    }

    fn nf(&self, name: &str) -> &Value {
        self.0["nfs"].as_array().unwrap().iter().find(|nf| nf["name"] == name).unwrap()
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.nf("bad")["drops"][reason].as_u64().unwrap_or(0)
    }
}

#[test]
fn names_the_nf_that_ends_the_process() {
    for (how, what) in [
        ("recurse", "overflowed its stack"),
        ("recurse-in-build", "while it was built, overflowed its stack"),
        ("exit", "called exit"),
        ("exit-in-finish", "called exit"),
        ("exit-in-drop", "called exit"),
        ("abort", "aborted the process"),
        ("panic-in-drop", "aborted the process"),
        ("huge", "aborted the process"),
    ] {
        // only these need the run to end; the others may take long on a busy machine
        let at_end = how.ends_with("-in-finish") || how.ends_with("-in-drop");
        let output = run(how, if at_end { "500ms" } else { "60s" });
        assert_eq!((output.status, output.out.as_str()), (Some(4), ""), "{how}: {output:?}");
        // the message may follow an incomplete line
        let errors: Vec<_> = output.err.split("error: ").skip(1).collect();
        assert!(
            errors.len() == 1 && errors[0].contains(what) && errors[0].starts_with("nf \"bad\""),
            "{how}: {output:?}"
        );
        assert!(output.err.contains("process isolation"), "{how}: {output:?}");
    }
}

#[test]
fn contains_panics_in_every_function() {
    for (how, words) in [
        ("throw", "panicked: panic payload is not a string, at "),
        ("throw-in-drop", "panicked when it was dropped after a panic: panic payload is not a string"),
        ("panic-in-counters", "panicked again when it was rebuilt: in counters, at "),
        ("panic-in-finish", "panicked when it finished: at its end, at "),
        ("panic-in-extract", "panicked: one of a batch, at "),
    ] {
        let ended = CompletedRun::of(how, "500ms", 4).reports(words).spares_other_chain();
        assert!(!ended.errors().iter().any(|f| f.contains("leaked")), "{how}: {:?}", ended.errors());
        assert_eq!(ended.dropped("nf_panic") > 0, how != "panic-in-finish", "{how}");
    }
    let output = run("panic-in-build", "500ms");
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.err.contains("panicked during build: while it is built"), "{output:?}");
}

#[test]
fn accounts_for_leaked_and_held_packets() {
    for how in ["leak", "hoard", "drop-hold-queue"] {
        let ended = CompletedRun::of(how, "500ms", 4).reports("neither sent, dropped nor held");
        assert_eq!(ended.0["balanced"], true);
        let vanished = ended.dropped("vanished");
        assert!(vanished > 0 && ended.0["totals"]["held"] == 0, "{how}: {}", ended.0);
        let errors = ended.errors().join("\n");
        assert_eq!(errors.contains(&format!("{vanished} packet buffers leaked")), how == "leak", "{errors}");
        assert_eq!(errors.contains("few are left to receive"), how != "drop-hold-queue", "{errors}");
    }
    // packets that are sent later were never lost
    let ended = CompletedRun::of("delay", "500ms", 4).reports("neither sent, dropped nor held").spares_other_chain();
    let delayed = ended.dropped("vanished") - ended.nf("bad")["created"].as_u64().unwrap();
    assert!(delayed <= packet::BURST as u64, "{}", ended.0);
    // packets that an NF held when it panicked are lost with it, even if another NF has the queue
    let ended =
        CompletedRun::of("shared-hold-queue", "500ms", 4).reports("panicked: holds packets").spares_other_chain();
    assert_eq!(ended.0["totals"]["held"], 0);
}

#[test]
fn packets_stay_on_their_path() {
    let ended = CompletedRun::of("wrong-path", "500ms", 0).names_no_other_nf().spares_other_chain();
    let packets = |nf: &str| ended.nf(nf)["packets"].as_u64().unwrap();
    assert!(ended.dropped("no_edge") > 1000);
    assert_eq!(packets("bad"), packets("after") + ended.dropped("no_edge"));
}

#[test]
fn unlimited_memory_use_ends_the_run() {
    for how in ["allocate", "reserve"] {
        let ended = CompletedRun::of(how, "60s", 4).reports("MiB").spares_other_chain();
        assert!(ended.0["seconds"].as_f64().unwrap() < 59.0, "{}", ended.0);
        let of = |name: &str| ended.nf(name)["memory"].as_u64().unwrap();
        // the excess depends on how fast it is detected
        assert!((100 << 20..16 << 30).contains(&of("bad")) && of("before") < 1 << 20, "{how}: {}", ended.0);
    }
}

#[test]
fn names_the_nf_in_an_endless_loop_and_ends() {
    for (how, time, words) in [
        ("loop", "3s", "endless loop"),
        ("loop-in-finish", "500ms", "has not finished its batch"),
        ("loop-in-counters", "500ms", "is still being rebuilt or dropped after a panic"),
        ("loop-in-build", "500ms", "is still being rebuilt or dropped after a panic"),
    ] {
        let ended = CompletedRun::of(how, time, 4).reports(words);
        let stuck = how.starts_with("loop-in-") && how != "loop-in-finish";
        assert_eq!(ended.0["stuck"].is_null(), stuck, "{how}: {}", ended.0);
        if stuck {
            ended.spares_other_chain();
        }
    }
}

#[test]
fn reports_no_errors_of_correct_nfs() {
    for (how, time) in [("pass", "1s"), ("slow", "3s"), ("wait", "4s")] {
        let ended = CompletedRun::of(how, time, 0).spares_other_chain();
        assert!(ended.errors().is_empty(), "{how}: {:?}", ended.errors());
    }
}
