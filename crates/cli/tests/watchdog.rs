//! What an NF can do that nothing in its process contains: it is seen, and the NF is named.

mod common;

use common::{Said, Scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The program of `examples/misbehave.rs`, built.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_bondstone")).parent().expect("it is in a folder");
        let release = if built.ends_with("release") { &["--release"][..] } else { &[] };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline", "--example", "misbehave"]).args(release);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.env("CARGO_TARGET_DIR", built.parent().expect("target folders have one for each profile"));
        let said = Said::from(cargo.output().unwrap());
        assert_eq!(said.status, Some(0), "{}", said.err);
        built.join("examples/misbehave")
    })
}

/// Runs a chain of three NFs, the one in the middle called `bad`, for a while; what was said.
fn run(how: &str) -> Said {
    // one at a time: this machine has few cores
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let time = match how {
        "allocate" => "60s", // it is ended before
        "loop" => "3s",
        _ => "1s",
    };
    let scratch = Scratch::new();
    let file = scratch.write(
        "bad.toml",
        format!(
            "bondstone = 1\n[port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n[nf.before]\nkind = \"count\"\n\
             [nf.after]\nkind = \"count\"\n[nf.bad]\nkind = \"misbehave\"\nhow = \"{how}\"\nafter = 1000\n\
             [[chain]]\npath = [\"in\", \"before\", \"bad\", \"after\", \"out\"]\n"
        ),
    );
    let mut command = Command::new(program());
    // a core dump would let the signal take its course
    rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    )
    .unwrap();
    command.arg("run").arg(file).args(["--for", time, "--memory", "600MiB", "--json"]).output().unwrap().into()
}

/// Runs it to a summary, which names the NF in a fault with these words.
fn faults(how: &str, words: &str) -> Value {
    let said = run(how);
    assert_eq!(said.status, Some(4), "{how}: {said:?}");
    let summary: Value = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{how}: {e}: {said:?}"));
    let faults: Vec<_> = summary["faults"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    assert!(faults.iter().any(|f| f.contains("nf \"bad\"") && f.contains(words)), "{how}: {faults:?}");
    assert!(faults.iter().all(|f| !f.contains("\"before\"") && !f.contains("\"after\"")), "{how}: {faults:?}");
    summary
}

#[test]
fn whoever_brings_the_process_down_is_named_and_the_status_says_failed() {
    for (how, what) in [
        ("recurse", "nf \"bad\" on CPU"),
        ("recurse", "overflowed its stack"),
        ("recurse-in-build", "nf \"bad\", while it was built, overflowed its stack"),
        ("exit", "called exit"),
        ("abort", "aborted the process"),
        ("panic-in-drop", "aborted the process"),
        ("huge", "aborted the process"),
    ] {
        let said = run(how);
        assert_eq!((said.status, said.out.as_str()), (Some(4), ""), "{how}: {said:?}");
        let told: Vec<_> = said.err.lines().filter(|l| l.starts_with("error: ")).collect();
        assert!(told.len() == 1 && told[0].contains(what) && told[0].contains("\"bad\""), "{how}: {said:?}");
        assert!(said.err.contains("process wall"), "{how}: {said:?}");
    }
}

#[test]
fn packets_that_never_come_home_are_counted_and_their_nf_is_named() {
    for how in ["leak", "hoard"] {
        let summary = faults(how, "without a word");
        let bad = summary["nfs"].as_array().unwrap().iter().find(|nf| nf["name"] == "bad").unwrap();
        let vanished = bad["drops"]["vanished"].as_u64().unwrap();
        assert!(vanished > 0 && summary["balanced"] == true, "{summary}");
        assert_eq!(summary["totals"]["dropped"].as_u64(), Some(vanished));
        let told = summary["faults"].to_string();
        assert_eq!(told.contains(&format!("{vanished} packet buffers were not given back")), how == "leak", "{told}");
        assert!(told.contains("few are left to receive with"), "{told}");
    }
}

#[test]
fn memory_without_end_ends_the_run_while_the_machine_has_some() {
    let summary = faults("allocate", "of it");
    assert!(summary["seconds"].as_f64().unwrap() < 59.0 && summary["balanced"] == true, "{summary}");
    let nfs = summary["nfs"].as_array().unwrap();
    let of = |name: &str| nfs.iter().find(|nf| nf["name"] == name).unwrap()["memory"].as_u64().unwrap();
    assert!(of("bad") > 100 << 20 && of("before") < 1 << 20 && of("after") < 1 << 20, "{summary}");
}

#[test]
fn an_endless_loop_is_named_and_the_program_ends_all_the_same() {
    let summary = faults("loop", "endless loop");
    assert_eq!(summary["stuck"], serde_json::json!(["bad"]));
}

#[test]
fn one_that_behaves_is_not_blamed() {
    let said = run("pass");
    assert_eq!(said.status, Some(0), "{said:?}");
    let summary: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&summary["faults"], &summary["balanced"]), (&serde_json::json!([]), &Value::Bool(true)));
}
