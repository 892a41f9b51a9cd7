//! What an NF can do that it should not: what is contained, what is seen, and that nobody else is blamed or harmed.

use crate::common::{Said, Scratch};
use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A CPU that this process may use.
fn cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    line.trim().split([',', '-']).next().unwrap().to_owned()
}

/// Runs two chains on one CPU for a while. In one there is an NF called `bad`, which begins after 1000 packets; in the other
/// one called `good`.
fn run(how: &str, time: &str) -> Said {
    // one at a time: this machine has few cores
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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
    // a core dump would let the signal take its course
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
    command.arg("run").arg(file).args(["--for", time, "--memory", "600MiB", "--json"]).output().unwrap().into()
}

/// A run that came to its end, with a summary.
struct Ended(Value, String);

impl Ended {
    fn of(how: &str, time: &str, status: i32) -> Ended {
        let said = run(how, time);
        assert_eq!(said.status, Some(status), "{how}: {said:?}");
        let summary = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{how}: {e}: {said:?}"));
        Ended(summary, how.to_owned())
    }

    fn faults(&self) -> Vec<&str> {
        self.0["faults"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect()
    }

    /// The NF is told in a fault with these words, and no other NF is told at all.
    fn tells(self, words: &str) -> Self {
        let (faults, how) = (self.faults(), &self.1);
        assert!(faults.iter().any(|f| f.contains("nf \"bad\"") && f.contains(words)), "{how}: {faults:?}");
        self.blames_no_other()
    }

    fn blames_no_other(self) -> Self {
        let (faults, how) = (self.faults(), &self.1);
        let other = |f: &&str| ["before", "after", "good"].iter().any(|nf| f.contains(&format!("\"{nf}\"")));
        assert!(!faults.iter().any(other), "{how}: {faults:?}");
        self
    }

    /// Every packet is accounted for, and those of the other chain all came through.
    fn harms_no_other(self) -> Self {
        let how = &self.1;
        assert_eq!(self.0["balanced"], true, "{how}: {}", self.0);
        let (came, left) = (self.port("in2", "received"), self.port("out2", "sent"));
        assert!(came > 0 && came == left, "{how}: {came} {left} {}", self.0);
        self
    }

    fn port(&self, name: &str, what: &str) -> u64 {
        self.0["ports"].as_array().unwrap().iter().find(|p| p["name"] == name).unwrap()[what].as_u64().unwrap()
    }

    fn nf(&self, name: &str) -> &Value {
        self.0["nfs"].as_array().unwrap().iter().find(|nf| nf["name"] == name).unwrap()
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.nf("bad")["drops"][reason].as_u64().unwrap_or(0)
    }
}

#[test]
fn whoever_brings_the_process_down_is_named_and_the_status_says_failed() {
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
        // those that do it at the end need one; to the others it may come late on a busy machine
        let at_the_end = how.ends_with("-in-finish") || how.ends_with("-in-drop");
        let said = run(how, if at_the_end { "500ms" } else { "60s" });
        assert_eq!((said.status, said.out.as_str()), (Some(4), ""), "{how}: {said:?}");
        // it may come in the middle of another line
        let told: Vec<_> = said.err.split("error: ").skip(1).collect();
        assert!(told.len() == 1 && told[0].contains(what) && told[0].starts_with("nf \"bad\""), "{how}: {said:?}");
        assert!(said.err.contains("process wall"), "{how}: {said:?}");
    }
}

#[test]
fn a_panic_is_contained_wherever_it_comes() {
    for (how, words) in [
        ("throw", "panicked: a value that is no text was thrown, at "),
        ("throw-in-drop", "panicked when it was dropped after a panic: a value that is no text"),
        ("panic-in-counters", "panicked again when it was built anew: in counters, at "),
        ("panic-in-finish", "panicked when it ended: at its end, at "),
        ("panic-in-sift", "panicked: one of a batch, at "),
    ] {
        let ended = Ended::of(how, "500ms", 4).tells(words).harms_no_other();
        assert!(!ended.faults().iter().any(|f| f.contains("not given back")), "{how}: {:?}", ended.faults());
        assert_eq!(ended.dropped("nf_panic") > 0, how != "panic-in-finish", "{how}");
    }
    let said = run("panic-in-build", "500ms");
    assert_eq!(said.status, Some(2), "{said:?}");
    assert!(said.err.contains("panicked while it was built: while it is built"), "{said:?}");
}

#[test]
fn packets_are_counted_whatever_becomes_of_them() {
    for how in ["leak", "hoard", "lose-held"] {
        let ended = Ended::of(how, "500ms", 4).tells("without a word");
        assert_eq!(ended.0["balanced"], true);
        let vanished = ended.dropped("vanished");
        assert!(vanished > 0 && ended.0["totals"]["held"] == 0, "{how}: {}", ended.0);
        let told = ended.faults().join("\n");
        assert_eq!(told.contains(&format!("{vanished} packet buffers were not given back")), how == "leak", "{told}");
        assert_eq!(told.contains("few are left to receive with"), how != "lose-held", "{told}");
    }
    // what comes back was never lost
    let ended = Ended::of("delay", "500ms", 4).tells("without a word").harms_no_other();
    assert!(ended.dropped("vanished") - ended.nf("bad")["created"].as_u64().unwrap() <= 32, "{}", ended.0);
    // what an NF held when it panicked is lost with it, even if another has it afterwards
    let ended = Ended::of("held-abroad", "500ms", 4).tells("panicked: holds packets").harms_no_other();
    assert_eq!(ended.0["totals"]["held"], 0);
}

#[test]
fn nobody_sends_packets_by_the_way_of_another() {
    let ended = Ended::of("stray", "500ms", 0).blames_no_other().harms_no_other();
    assert!(ended.port("out", "sent") > 1000);
    assert_eq!(ended.nf("after")["packets"], ended.nf("bad")["packets"]);
}

#[test]
fn memory_without_end_ends_the_run_while_the_machine_has_some() {
    for how in ["allocate", "reserve"] {
        let ended = Ended::of(how, "60s", 4).tells("of it").harms_no_other();
        assert!(ended.0["seconds"].as_f64().unwrap() < 59.0, "{}", ended.0);
        let of = |name: &str| ended.nf(name)["memory"].as_u64().unwrap();
        // how far beyond it came depends on who was faster
        assert!((100 << 20..16 << 30).contains(&of("bad")) && of("before") < 1 << 20, "{how}: {}", ended.0);
    }
}

#[test]
fn an_endless_loop_is_named_and_the_program_ends_all_the_same() {
    for (how, time, words) in [
        ("loop", "3s", "endless loop"),
        ("loop-in-finish", "500ms", "has not given its batch back"),
        ("loop-in-counters", "500ms", "is being built anew after a panic"),
        ("loop-in-build", "500ms", "is being built anew after a panic"),
    ] {
        let ended = Ended::of(how, time, 4).tells(words);
        let stuck = how.starts_with("loop-in-") && how != "loop-in-finish";
        assert_eq!(ended.0["stuck"].is_null(), stuck, "{how}: {}", ended.0);
        if stuck {
            ended.harms_no_other();
        }
    }
}

#[test]
fn one_that_behaves_is_not_blamed() {
    for how in ["pass", "slow"] {
        let ended = Ended::of(how, "3s", 0).harms_no_other();
        assert!(ended.faults().is_empty(), "{how}: {:?}", ended.faults());
    }
}
