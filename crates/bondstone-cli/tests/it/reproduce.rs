//! `bondstone reproduce`: scenarios, verdicts and errors.

use crate::common::{Running, Said, Scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHAIN: &str = r#"
bondstone = 1
port.in.device = "ring:in"
port.out.device = "ring:out"
[nf.it]
kind = "${nf}"
[[chain]]
path = ["in", "it", "out"]
cores = [CORE]
"#;

const SCENARIO: &str = r#"
bondstone = 1
[scenario]
title = "A study of nothing much"
figure = "figure 7"
[dut]
chain = "chain.toml"
needs = ["${nf}"]
[traffic]
frames = "512"
[goal]
throughput = "quick,loss=90%,final=10ms,sum=10ms,first=10ms,width=50%"
[matrix]
nf = ["ttl", "teleport"]
[native]
filter = "ttl"
pairs = 20
[[published]]
id = "fast"
value = 4
unit = "Mpps"
[[published]]
id = "slow"
value = 2
unit = "Mpps"
[[published]]
id = "curve"
image = true
[[claim]]
text = "twice as fast"
published = "fast / slow"
metric = "speed over C"
where = { nf = "ttl", source = "ring" }
tolerance = 0.1
[[claim]]
text = "some"
published = "fast"
metric = "throughput"
where = { nf = "ttl" }
not_testable = "another machine"
[[claim]]
text = "many"
published = "fast"
metric = "throughput"
where = { nf = "teleport" }
min = 1
"#;

/// Output of native-bench.
const ROWS: &str = r#"{ "nfs": [{ "nf": "ttl", "source": "ring", "flows": 512, "frame": 64,
  "bondstone": { "p05": 1, "median": 1 }, "native": { "p05": 1, "median": 1 },
  "ratio": RATIO, "ratio_lower": LOWER, "ratio_upper": UPPER }] }"#;

/// A directory with one study.
struct Studies(Scratch);

impl Studies {
    fn new() -> Studies {
        let studies = Studies(Scratch::new());
        std::fs::create_dir_all(studies.0.path("studies/alpha")).unwrap();
        let core = runtime::allowed_cpus()[0].to_string();
        studies.0.write("studies/alpha/chain.toml", CHAIN.replace("CORE", &core));
        studies.0.write("studies/alpha/one.toml", SCENARIO);
        studies.0.write("studies/alpha/study.toml", "title = \"Alpha\"\nvenue = \"1999\"\nenvironment.cpu = \"Z80\"\n");
        studies
    }

    /// Creates a script that replaces native-bench.
    fn native(&self, script: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let file = self.0.write("native", format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    /// Creates a replacement of native-bench that reports a ratio of cycles.
    fn native_with_ratio(&self, ratio: f64, warning: &str) -> PathBuf {
        let rows = ROWS.replace("RATIO", &ratio.to_string());
        let rows = rows.replace("LOWER", &(ratio * 0.99).to_string()).replace("UPPER", &(ratio * 1.01).to_string());
        let rows = self.0.write("rows.json", rows);
        self.native(&format!("{warning}\nwhile [ $# -gt 1 ]; do shift; done\ncp '{}' \"$1\"", rows.display()))
    }

    fn command(&self, native: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.arg("reproduce").args(arguments);
        command.env("BONDSTONE_SCENARIOS", self.0.path("studies")).env("BONDSTONE_NATIVE_BENCH", native);
        command
    }

    /// Runs it to the end, also with a single CPU for chain and generator.
    fn run(&self, native: &Path, arguments: &[&str]) -> Said {
        let mut command = self.command(native, arguments);
        command.arg("--db").arg(self.0.path("results.sqlite")).arg("--report").arg(self.0.path("report.html"));
        if let [only] = runtime::allowed_cpus()[..] {
            command.args(["--core", &only.to_string()]);
        }
        command.output().unwrap().into()
    }

    fn findings(&self, native: &Path) -> (Value, Vec<Value>) {
        let output = self.run(native, &["alpha/one", "--json"]);
        assert_eq!(output.status, Some(0), "{}", output.err);
        let all: Value = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {}", output.out));
        (all[0].clone(), all[0]["findings"].as_array().unwrap().clone())
    }
}

#[test]
fn evaluates_claims_and_stores_results() {
    let studies = Studies::new();
    let (document, findings) = studies.findings(&studies.native_with_ratio(0.5, ""));
    assert_eq!((&document["scenario"], &document["environment"]["study"]["cpu"]), (&"alpha/one".into(), &"Z80".into()));
    let of = |n: usize, key: &str| findings[n][key].as_str().unwrap_or_default().to_owned();
    let verdicts: Vec<_> = (0..findings.len()).map(|n| of(n, "verdict")).collect();
    assert_eq!(verdicts, ["reproduced", "not testable here", "not testable here", "not testable here"]);
    assert_eq!(
        (findings[0]["measured"]["min"].as_f64(), of(0, "published")),
        (Some(2.0), "2.000 (4 / 2 Mpps)".to_owned())
    );
    assert!(of(1, "reason").contains("another machine"), "{}", findings[1]);
    assert!(of(2, "reason").contains("no NF of kind \"teleport\""), "{}", findings[2]);
    assert_eq!(of(3, "published"), "not published as numbers");
    // one cell can be measured; its result is stored under the name of the scenario
    let ids = document["results"].as_array().unwrap();
    let store = results::Store::open(&studies.0.path("results.sqlite")).unwrap();
    let filter = results::Filter { study: Some("alpha/one".to_owned()), ..Default::default() };
    let stored = store.list(&filter).unwrap();
    assert_eq!((ids.len(), stored.len()), (1, 1));
    assert_eq!((ids[0].as_str(), stored[0].cell["nf"].as_str()), (Some(stored[0].id.as_str()), "ttl"));
    let page = std::fs::read_to_string(studies.0.path("report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
}

#[test]
fn all_studies_in_quick_form_make_one_report() {
    let studies = Studies::new();
    std::fs::create_dir(studies.0.path("studies/beta")).unwrap();
    let core = runtime::allowed_cpus()[0].to_string();
    studies.0.write("studies/beta/chain.toml", CHAIN.replace("CORE", &core));
    let two = SCENARIO.replace("frames = \"512\"", "frames = \"512,1024\"").replace("teleport", "l2fwd");
    let two = two.replace("[native]", "[quick]\nframes = \"1024\"\nnf = \"ttl\"\n[native]");
    studies.0.write("studies/beta/two.toml", two);
    let native = studies.native_with_ratio(0.5, "");
    let output = studies.run(&native, &["--all", "--quick", "--json"]);
    assert_eq!(output.status, Some(0), "{}", output.err);
    let documents: Value = serde_json::from_str(&output.out).unwrap();
    let names: Vec<_> = documents.as_array().unwrap().iter().map(|d| d["scenario"].as_str().unwrap()).collect();
    assert_eq!(names, ["alpha/one", "beta/two"]);
    let results = |n: usize| documents[n]["results"].as_array().unwrap().len();
    assert_eq!((results(0), results(1)), (1, 1), "{documents:#}");
    let finding = &documents[1]["findings"][2];
    assert_eq!(finding["reason"], "its values are not part of the quick form", "{finding}");
    // every published result, with a link to its scenario, and each scenario with its figures
    let page = std::fs::read_to_string(studies.0.path("report.html")).unwrap();
    for words in [
        "8 claims: 2 reproduced, 6 not testable here",
        "<a href=\"#scenario-2\">beta/two</a>",
        "<section id=\"scenario-2\"><h2>beta/two: ",
        "id=\"s1-f1-0-t\"",
        "twice as fast",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "identifiers are unique");
    // a resumed run measures nothing again
    let again = studies.run(&native, &["--all", "--quick", "--resume", "--json"]);
    let resumed: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(resumed[1]["results"], documents[1]["results"]);
    let refused = studies.run(&native, &["--all", "alpha/one"]);
    assert_eq!(refused.status, Some(2), "{}", refused.err);
}

#[test]
fn a_contradicted_claim_is_not_a_failure() {
    let studies = Studies::new();
    // a third faster than published
    let (_, findings) = studies.findings(&studies.native_with_ratio(0.375, ""));
    assert_eq!(findings[0]["verdict"], "contradicted");
    let output = studies.run(&studies.native_with_ratio(0.375, ""), &["alpha"]);
    assert_eq!(output.status, Some(0), "{}", output.err);
    for words in [
        "Alpha (1999), figure 7",
        "contradicted (not 1.800 to 2.200)",
        "2.667 (",
        "Z80",
        "not stated",
        "results.sqlite",
    ] {
        assert!(output.out.contains(words), "{words}: {}", output.out);
    }
}

#[test]
fn claims_are_not_testable_without_native_bench() {
    let studies = Studies::new();
    let reason = |native: &Path| studies.findings(native).1[0]["reason"].as_str().unwrap_or_default().to_owned();
    let absent = reason(Path::new("/nonexistent/native-bench"));
    assert!(absent.contains("cannot start /nonexistent/native-bench"), "{absent}");
    let failed = reason(&studies.native("echo 'no huge page' >&2; echo 'mount them' >&2; exit 3"));
    assert!(failed.contains("failed") && failed.ends_with("mount them"), "{failed}");
    let wrong = reason(&studies.native("while [ $# -gt 1 ]; do shift; done; echo nonsense > \"$1\""));
    assert!(wrong.contains("cannot read the output"), "{wrong}");
    let native = studies.native_with_ratio(0.5, "echo 'warning: ordinary pages' >&2");
    let (_, findings) = studies.findings(&native);
    assert_eq!(
        (&findings[0]["verdict"], findings[0]["measured"]["min"].as_f64()),
        (&"not testable here".into(), Some(2.0))
    );
    assert!(findings[0]["reason"].as_str().unwrap().contains("ordinary pages"), "{}", findings[0]);
}

#[test]
fn sigint_ends_native_bench() {
    let studies = Studies::new();
    let mark = studies.0.path("pid");
    let native = studies.native(&format!("echo $$ > '{}.new'; mv '{0}.new' '{0}'; exec sleep 100", mark.display()));
    let mut command = studies.command(&native, &["alpha/one", "--db"]);
    let running = Running::start(command.arg(studies.0.path("results.sqlite")));
    let from = std::time::Instant::now();
    while !mark.exists() {
        assert!(from.elapsed() < crate::common::LIMIT, "native-bench was not started");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let child = std::fs::read_to_string(&mark).unwrap().trim().to_owned();
    assert_eq!(running.interrupt().status, Some(130));
    assert!(!Path::new("/proc").join(child).exists(), "the child still runs");
}

#[test]
fn lists_scenarios() {
    let studies = Studies::new();
    for arguments in [&[][..], &["--list"], &["alpha/one", "--list"]] {
        let output: Said = studies.command(Path::new("x"), arguments).output().unwrap().into();
        assert_eq!(output.status, Some(0), "{}", output.err);
        assert!(output.out.contains("alpha/one") && output.out.contains("A study of nothing much"), "{}", output.out);
        assert!(!output.out.contains("chain") && !output.out.contains("alpha/study"), "{}", output.out);
    }
}

#[test]
fn reports_invalid_input() {
    let studies = Studies::new();
    let refuses = |name: &str, words: &[&str]| {
        let output = studies.run(Path::new("x"), &[name]);
        assert_eq!(output.status, Some(2), "{name}: {}", output.err);
        for word in words {
            assert!(output.err.contains(word), "{word}: {}", output.err);
        }
        assert!(!studies.0.path("results.sqlite").exists(), "the database was created before the input was checked");
    };
    refuses("alpha/onne", &["alpha/onne", "did you mean alpha/one?"]);
    refuses("beta", &["beta", "help: "]);
    refuses("absent.toml", &["absent.toml", "cannot be read"]);
    for (from, to, words) in [
        ("\"fast / slow\"", "\"fast / show\"", &["one.toml:31:", "show", "slow"][..]),
        ("min = 1", "mim = 1", &["mim", "min"]),
        ("kind", "kine", &["chain.toml:5:", "kind"]),
    ] {
        studies.0.write("studies/alpha/one.toml", SCENARIO.replace(from, to));
        let chain = CHAIN.replace("CORE", "0").replace(from, to);
        studies.0.write("studies/alpha/chain.toml", chain);
        refuses("alpha/one", words);
    }
}

#[test]
fn reports_a_missing_cpu_for_the_generator() {
    let [_] = runtime::allowed_cpus()[..] else {
        return eprintln!("skipped: there is more than one CPU");
    };
    let studies = Studies::new();
    let mut command = studies.command(Path::new("/nonexistent"), &["alpha/one", "--db"]);
    let output: Said = command.arg(studies.0.path("results.sqlite")).output().unwrap().into();
    assert_eq!(output.status, Some(3), "{}", output.err);
    assert!(output.err.contains("--core"), "{}", output.err);
}

#[test]
fn bench_measures_the_cells_of_a_scenario() {
    let studies = Studies::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command
        .arg("bench")
        .arg(studies.0.path("studies/alpha/one.toml"))
        .args(["--frames", "64", "--rate", "50000", "--json"]);
    command.arg("--db").arg(studies.0.path("results.sqlite")).arg("--report").arg(studies.0.path("report.html"));
    if let [only] = runtime::allowed_cpus()[..] {
        command.args(["--core", &only.to_string()]);
    }
    let output: Said = command.output().unwrap().into();
    assert!(matches!(output.status, Some(0 | 1)), "{}", output.err);
    let results: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(results.as_array().map(Vec::len), Some(1), "NF teleport does not exist");
    assert_eq!((&results[0]["study"], &results[0]["cell"]["nf"]), (&"alpha/one".into(), &"ttl".into()));
    assert_eq!(results[0]["traffic"]["frames"]["frame_bytes"], 64);
    assert!(results[0]["dut"]["chain"].as_str().unwrap().contains("kind = \"ttl\""));
}

#[test]
fn every_shipped_scenario_checks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    let output: Said =
        command.args(["reproduce", "--list", "--json"]).env("BONDSTONE_SCENARIOS", folder).output().unwrap().into();
    let all: Value = serde_json::from_str(&output.out).unwrap();
    let names: Vec<&str> = all.as_array().unwrap().iter().filter_map(|s| s["scenario"].as_str()).collect();
    for name in ["fig1", "fig7", "fig9", "latency", "lpm", "table2", "ttl"].map(|name| format!("netbricks/{name}")) {
        let name = name.as_str();
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for scenario in all.as_array().unwrap() {
        let output = crate::common::bondstone(["check", scenario["file"].as_str().unwrap()]);
        assert_eq!(output.status, Some(0), "{}", output.err);
        assert!(output.out.contains("no errors"), "{}", output.out);
    }
}
