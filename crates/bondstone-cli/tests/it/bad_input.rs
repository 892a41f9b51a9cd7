//! Invalid input: every error names file, line, value and remedy, with the right exit status.

use crate::common::{Said, Scratch, bondstone};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command on a file to its end; runs are limited to 100 ms.
fn command(name: &str, file: &Path) -> Said {
    let limit: &[&str] = if name == "run" { &["--for", "100ms"] } else { &[] };
    bondstone([OsStr::new(name), file.as_os_str()].into_iter().chain(limit.iter().map(OsStr::new)))
}

/// A chain file with two ports and a path between them, on lines 1 to 7.
const BASE: &str = "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"ring\"\n[[chain]]\npath = PATH\n";

/// Errors that the program did not report as expected; they are printed at the end of the test.
#[derive(Default)]
struct Verdict(Vec<String>);

impl Verdict {
    /// Expects that `run` and `check` reject the file with the same message, which contains the location, the value and
    /// a remedy.
    fn expect_error(&mut self, text: &str, line: usize, value: &str, remedy: &str) {
        let scratch = Scratch::new();
        let file = scratch.write("chain.toml", text);
        let [ran, checked] = ["run", "check"].map(|name| command(name, &file));
        let location = format!("{}:{line}:", file.display());
        let column = |rest: &str| rest.split(':').next().is_some_and(|c| c.parse::<usize>().is_ok_and(|c| c > 0));
        let is_reported = ran.err.split("error: ").any(|error| {
            let at_line = error.strip_prefix(&location).is_some_and(column);
            let has_remedy = error.split_once("help: ").is_some_and(|(_, c)| c.contains(remedy));
            at_line && error.contains(value) && has_remedy
        });
        if !(is_reported && ran.status == Some(2) && ran == checked && ran.out.is_empty()) {
            let output = format!("run: {:?} {}\ncheck: {:?} {}", ran.status, ran.err, checked.status, checked.err);
            self.0.push(format!("expected line {line}, {value:?}, remedy {remedy:?} for\n{text}\n{output}"));
        }
    }

    /// Expects an error of a path between the two ports of [`BASE`], followed by more text.
    fn expect_path_error(&mut self, path: &str, below: &str, line: usize, value: &str, remedy: &str) {
        self.expect_error(&(BASE.replace("PATH", path) + below), line, value, remedy);
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        if !self.0.is_empty() && !std::thread::panicking() {
            panic!("{} times:\n{}", self.0.len(), self.0.join("\n----\n"));
        }
    }
}

#[test]
fn rejects_invalid_format() {
    let mut verdict = Verdict::default();
    for (text, line, value, remedy) in [
        ("", 1, "bondstone", "bondstone = 1"),
        ("[port.a]\ndevice = \"null\"\n", 1, "bondstone", "bondstone = 1"),
        ("# mine\nbondstone = 2\n", 2, "2", "bondstone = 1"),
        ("bondstone = \"1\"\n", 1, "1", ""),
        ("bondstone = 1\nthis is not TOML\n", 2, "this is", ""),
        ("bondstone = 1\n[port.a\n", 2, "[port.a", ""),
        ("bondstone = 1\nx = \"open\n", 2, "open", ""),
        ("bondstone = 1\n[chains]\npath = []\n", 2, "chains", "chain"),
        ("bondstone = 1\n[chain]\npath = []\n", 2, "chain", "[[chain]]"),
        ("bondstone = 1\n[[port]]\ndevice = \"null\"\n", 2, "port", "[port.NAME]"),
        ("bondstone = 1\nport = 3\n", 2, "3", "[port.NAME]"),
        ("bondstone = 1\nnf = 3\n", 2, "3", "[nf.NAME]"),
        ("bondstone = 1\nbondstone = 1\n", 2, "bondstone", "once"),
        ("bondstone = 1\n[port.a]\ndevcie = \"null\"\n", 3, "devcie", "device"),
        ("bondstone = 1\n[port.a]\n", 2, "a", "device"),
        ("bondstone = 1\n[[chain]]\nname = \"x\"\n", 2, "chain", "path"),
    ] {
        verdict.expect_error(text, line, value, remedy);
    }
}

#[test]
fn rejects_unreadable_files() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing.toml");
    let folder = scratch.path("");
    let binary = scratch.write("binary.toml", [0xff, 0xfe, 0]);
    let long = scratch.write("long.toml", vec![b'#'; 17 << 20]);
    for file in [&missing, &folder, &binary, &long] {
        let output = command("run", file);
        assert_eq!(output.status, Some(2), "{output:?}");
        assert!(output.err.contains(&*file.to_string_lossy()) && output.err.contains("help:"), "{output:?}");
        assert_eq!(output, command("check", file));
    }
    // reading an endless device stops
    let output = command("check", Path::new("/dev/zero"));
    assert!(output.status == Some(2) && output.err.contains("/dev/zero") && output.err.contains("help:"), "{output:?}");
}

#[test]
fn rejects_invalid_nf_settings() {
    let mut verdict = Verdict::default();
    for (nf, line, value, remedy) in [
        ("[nf.x]\nkind = \"teee\"\n", 9, "teee", "\"tee\""),
        ("[nf.x]\nkind = \"firewall9000\"\n", 9, "firewall9000", "use one of"),
        ("[nf.x]\nkind = 7\n", 9, "7", "use one of"),
        ("[nf.x]\nevery = 7\n", 8, "x", "kind ="),
        ("[nf.x]\nkind = \"tee\"\nevry = 2\n", 10, "evry", "every"),
        ("[nf.x]\nkind = \"tee\"\nzzzzzz = 2\n", 10, "zzzzzz", "every"),
        ("[nf.x]\nkind = \"ttl\"\nzzzzzz = 2\n", 10, "zzzzzz", "remove it"),
        ("[nf.x]\nkind = \"tee\"\nevery = \"two\"\n", 10, "two", "a whole number from 0 to 4294967295"),
        ("[nf.x]\nkind = \"tee\"\nevery = -1\n", 10, "-1", "whole number"),
        ("[nf.x]\nkind = \"tee\"\nevery = 0\n", 10, "0", "write 1"),
        ("[nf.x]\nkind = \"l2fwd\"\nsrc = \"02:00:00:00:00\"\n", 10, "02:00:00:00:00", "six hexadecimal bytes"),
        ("[nf.x]\nkind = \"l2fwd\"\ndst = \"no MAC\"\n", 10, "no MAC", "six hexadecimal bytes"),
        ("[nf.x]\nkind = \"l2fwd\"\ndst = 4\n", 10, "4", "text in quotes"),
    ] {
        verdict.expect_path_error("[\"a\", \"x\", \"b\"]", nf, line, value, remedy);
    }
    verdict.expect_path_error("[\"a\", \"x\", \"b\"]", "[nf]\nx = 5\n", 9, "x", "[nf.x]");
}

#[test]
fn rejects_invalid_names() {
    let mut verdict = Verdict::default();
    for (name, value) in [("\"a b\"", "a b"), ("\"a.b\"", "a.b"), ("\"ä\"", "ä"), ("\"\"", "\"\""), ("\"a:b\"", "a:b")]
    {
        verdict.expect_path_error(
            "[\"a\", \"b\"]",
            &format!("[port.{name}]\ndevice = \"null\"\n"),
            8,
            value,
            "letters",
        );
        verdict.expect_path_error("[\"a\", \"b\"]", &format!("[nf.{name}]\nkind = \"ttl\"\n"), 8, value, "letters");
    }
    let long = "x".repeat(33);
    verdict.expect_path_error("[\"a\", \"b\"]", &format!("[nf.{long}]\nkind = \"ttl\"\n"), 8, &long, "32");
    verdict.expect_path_error("[\"a\", \"b\"]", "[nf.a]\nkind = \"ttl\"\n", 8, "\"a\"", "rename");
    verdict.expect_path_error("[\"a\", \"b\"]", "name = \"\\u001b[31m\"\n", 8, "[31m", "letters");
    verdict.expect_path_error(
        "[\"a\", \"b\"]",
        "name = \"x\"\n[[chain]]\nname = \"x\"\npath = [\"b\", \"drop\"]\n",
        10,
        "x",
        "another",
    );
}

#[test]
fn rejects_invalid_devices() {
    let mut verdict = Verdict::default();
    for (device, value, remedy) in [
        ("tapp:lan0", "tapp:lan0", "\"tap\""),
        ("quantum:1", "quantum:1", "use one of"),
        ("tap", "tap", "tap:lan0"),
        ("tap:", "tap:", "tap:lan0"),
        ("", "\"\"", "use one of"),
        ("null:3", "null:3", "null"),
        ("pcap:missing.pcap", "missing.pcap", "capture"),
        ("tap:a-name-longer-than-a-kernel-interface-may-have", "a-name-longer", "shorter"),
        ("af_packet:../etc", "../etc", "eth0"),
        ("eth0", "eth0", "did you mean \"af_packet:eth0\"?"),
    ] {
        let below = format!("[port.c]\ndevice = \"{device}\"\n[[chain]]\npath = [\"c\", \"drop\"]\n");
        verdict.expect_path_error("[\"a\", \"b\"]", &below, 9, value, remedy);
    }
    for (setting, value, remedy) in [
        ("repeat = 2", "repeat", "remove it"),
        ("timed = true", "timed", "remove it"),
        ("descriptors = 3", "3", "32"),
        ("descriptors = 70000", "70000", "65535"),
        ("descriptors = \"many\"", "many", "65535"),
        ("repeat = -1", "-1", "0 or more"),
        ("reapet = 1", "reapet", "repeat"),
    ] {
        let below = format!("[port.c]\ndevice = \"null\"\n{setting}\n[[chain]]\npath = [\"c\", \"drop\"]\n");
        verdict.expect_path_error("[\"a\", \"b\"]", &below, 10, value, remedy);
    }
    verdict.expect_path_error(
        "[\"a\", \"b\"]",
        "[port.c]\ndevice = \"ring:b\"\n[[chain]]\npath = [\"c\", \"drop\"]\n",
        9,
        "ring:b",
        "\"b\"",
    );
    verdict.expect_path_error("[\"a\", \"b\"]", "[port.c]\ndevice = \"null\"\n", 8, "\"c\"", "path");
    let many: String = (0..31).map(|n| format!("[port.p{n}]\ndevice = \"null\"\n")).collect();
    verdict.expect_path_error("[\"a\", \"b\"]", &many, 68, "p30", "split");
}

#[test]
fn rejects_invalid_captures() {
    let scratch = Scratch::new();
    scratch.capture("in.pcap", 1);
    let say = |ports: &str, path: &str| {
        let file = scratch.write("chain.toml", format!("bondstone = 1\n{ports}[[chain]]\npath = {path}\n"));
        let output = command("run", &file);
        assert_eq!(output.status, Some(2), "{output:?}");
        assert_eq!(output, command("check", &file));
        output.err
    };
    let port = "[port.a]\ndevice = \"pcap:in.pcap\"\n";
    let both = say(port, "[\"a\", \"ttl\", \"a\"]");
    assert!(both.contains("chain.toml:3:10: \"pcap:in.pcap\"") && both.contains("help:"), "{both}");
    for same in ["pcap:in.pcap", "pcap:./in.pcap"] {
        let twice = say(&format!("{port}[port.b]\ndevice = \"{same}\"\n"), "[\"a\", \"ttl\", \"b\"]");
        assert!(twice.contains(&format!("chain.toml:5:10: \"{same}\"")) && twice.contains("help:"), "{twice}");
    }
    let folder = say("[port.a]\ndevice = \"pcap:.\"\n", "[\"a\", \"drop\"]");
    assert!(folder.contains("chain.toml:3:10: \"pcap:.\"") && folder.contains("help:"), "{folder}");
    let nowhere = say(&format!("{port}[port.b]\ndevice = \"pcap:no/out.pcap\"\n"), "[\"a\", \"b\"]");
    assert!(nowhere.contains("chain.toml:5:10: \"pcap:no/out.pcap\"") && nowhere.contains("help:"), "{nowhere}");
    let repeated = say(&format!("{port}[port.b]\ndevice = \"pcap:out.pcap\"\nrepeat = 2\n"), "[\"a\", \"b\"]");
    assert!(repeated.contains("chain.toml:6:10:") && repeated.contains("help:"), "{repeated}");
}

#[test]
fn errors_contain_no_control_characters() {
    let scratch = Scratch::new();
    let escape = "\"\\u001b[2Jgone\"";
    for text in [
        BASE.replace("PATH", &format!("[\"a\", {escape}, \"b\"]")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n{escape} = 1")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n[nf.{escape}]")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n[port.x]\ndevice = {escape}")),
        BASE.replace("PATH", "[\"a\", \"b\"]\n\u{1b}[2J = 1"),
    ] {
        let output = command("check", &scratch.write("chain.toml", text));
        assert!(
            output.status == Some(2) && output.err.contains("help:") && !output.err.contains('\u{1b}'),
            "{output:?}"
        );
    }
}

#[test]
fn rejects_invalid_paths() {
    let mut verdict = Verdict::default();
    for (path, value, remedy) in [
        ("[\"ttl\", \"b\"]", "ttl", "begin it with a port"),
        ("[\"a\", \"ttl\"]", "ttl", "end it with"),
        ("[\"a\", \"b\", \"b\"]", "b", "end the path"),
        ("[\"a\"]", "a", "path ="),
        ("[]", "path", "path ="),
        ("[\"a\", \"ttll\", \"b\"]", "ttll", "\"ttl\""),
        ("[\"a\", \"unheard-of\", \"b\"]", "unheard-of", "[nf.unheard-of]"),
        ("[\"a\", \"ttl:side\", \"b\"]", "ttl:side", "inputs"),
        ("[\"unheard-of\", \"b\"]", "unheard-of", "[port.unheard-of]"),
        ("[\"a\", \"unheard-of\"]", "unheard-of", "[port.unheard-of]"),
        ("[\"a\", \"drop\", \"b\"]", "drop", "end the path"),
        ("[\"a\", 5, \"b\"]", "5", "text in quotes"),
        ("\"a, b\"", "a, b", "list"),
        ("[\"a\", \"\", \"b\"]", "\"\"", ""),
    ] {
        verdict.expect_path_error(path, "", 7, value, remedy);
    }
    verdict.expect_path_error("[\"a\", \"b\"]", "[[chain]]\npath = [\"a\", \"b\"]\n", 9, "\"a\"", "tee");
    verdict.expect_path_error("[\"a\", \"b\"]", "[nf.lonely]\nkind = \"ttl\"\n", 8, "lonely", "path");
    verdict.expect_path_error("[\"a\", \"b\"]", "cores = [1, 1]\n", 8, "1", "once");
    verdict.expect_path_error("[\"a\", \"b\"]", "cores = [99999]\n", 8, "99999", "CPU");
    verdict.expect_path_error("[\"a\", \"b\"]", "cores = [-1]\n", 8, "-1", "");
    verdict.expect_path_error("[\"a\", \"b\"]", "cores = 1\n", 8, "1", "list");
    verdict.expect_path_error("[\"a\", \"b\"]", "core = [1]\n", 8, "core", "cores");
    // paths that begin with an output
    let split = "[\"a\", \"ttl\"]";
    for (below, line, value, remedy) in [
        ("[[chain]]\npath = [\"ttl.out\", \"b\"]\n[[chain]]\npath = [\"ttl.out\", \"b\"]\n", 11, "ttl.out", "tee"),
        ("[[chain]]\npath = [\"ttl.in\", \"b\"]\n", 9, "ttl.in", "outputs"),
        ("[[chain]]\npath = [\"tll.out\", \"b\"]\n", 9, "tll.out", "\"ttl\""),
        ("[[chain]]\npath = [\"ttl.out\", \"b\"]\nshuffle = \"x\"\n", 10, "x", ""),
        ("shuffle = \"flow\"\n[[chain]]\npath = [\"ttl.out\", \"b\"]\n", 8, "shuffle", "begin the path"),
        (
            "[[chain]]\npath = [\"ttl.out\", \"count\"]\n[[chain]]\npath = [\"count.out\", \"ttl\"]\n[[chain]]\npath = [\"b\", \"drop\"]\n",
            8,
            "count -> ttl",
            "ring port",
        ),
    ] {
        verdict.expect_path_error(split, below, line, value, remedy);
    }
    verdict.expect_path_error(
        "[\"a\", \"ttl\", \"b\"]",
        "[[chain]]\npath = [\"ttl.out\", \"b\"]\n",
        9,
        "ttl.out",
        "end that path",
    );
    for (class, value, remedy) in [
        ("on_panic = \"ajar\"", "ajar", ""),
        ("share = 0", "0", "1 to 1000"),
        ("priority = 256", "256", ""),
        ("rate = \"fast\"", "fast", "Mpps"),
        ("rate = \"0 pps\"", "0 pps", "Mpps"),
        ("rate = \"10 Gpps\"\nshare = 1001", "1001", "1 to 1000"),
    ] {
        let line = 8 + class.matches('\n').count();
        verdict.expect_path_error("[\"a\", \"b\"]", &format!("{class}\n"), line, value, remedy);
    }
    // no chain at all
    verdict.expect_error("bondstone = 1\n", 1, "chain", "[[chain]]");
}

#[test]
fn rejects_invalid_edges() {
    let mut verdict = Verdict::default();
    let tee = "[\"a\", \"tee\", \"b\"]";
    for (edges, line, value, remedy) in [
        ("[[edge]]\nfrom = \"tee.copie\"\nto = \"b\"\n", 9, "tee.copie", "copy"),
        ("[[edge]]\nfrom = \"tee.copy\"\nto = \"ttl:side\"\n", 10, "ttl:side", "in"),
        ("[[edge]]\nfrom = \"tee.copy\"\nto = \"unheard-of\"\n", 10, "unheard-of", "declare"),
        ("[[edge]]\nfrom = \"tea.copy\"\nto = \"b\"\n", 9, "tea.copy", "tee"),
        ("[[edge]]\nfrom = \"a\"\nto = \"b\"\n", 9, "\"a\"", ""),
        (
            "[[edge]]\nfrom = \"tee.copy\"\nto = \"b\"\n[[edge]]\nfrom = \"tee.copy\"\nto = \"b\"\n",
            12,
            "tee.copy",
            "tee",
        ),
        ("[[edge]]\nfrom = \"tee.copy\"\nto = \"tee\"\n", 9, "tee", "ring"),
        ("[[edge]]\nfrom = \"tee\"\nto = \"b\"\n", 9, "tee", "remove"),
        ("[[edge]]\nfrom = \"tee.copy\"\nto = \"ttl\"\n", 10, "ttl", "[[edge]]"),
        ("[[edge]]\nfrom = \"tee.copy\"\n", 8, "edge", "to"),
        ("[[edge]]\nfrom = \"tee.copy\"\nto = \"b\"\nvia = \"c\"\n", 11, "via", "from"),
    ] {
        verdict.expect_path_error(tee, edges, line, value, remedy);
    }
}

/// Each tee copies the copies of the one before, so the number of packets grows exponentially.
#[test]
fn rejects_exponential_copies() {
    let scratch = Scratch::new();
    let names: Vec<_> = (0..40).map(|n| format!("t{n}")).collect();
    let mut text = "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null,size=60\"\n".to_owned();
    for (name, next) in names.iter().zip(names.iter().skip(1).map(String::as_str).chain(["b"])) {
        text += &format!("[nf.{name}]\nkind = \"tee\"\n[[edge]]\nfrom = \"{name}.copy\"\nto = \"{next}\"\n");
    }
    text += &format!(
        "[[chain]]\npath = [\"a\", {}, \"b\"]\n",
        names.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ")
    );
    let ran = command("check", &scratch.write("chain.toml", text));
    assert!(ran.status == Some(2) && ran.err.contains("copies") && ran.err.contains("help:"), "{ran:?}");
}

#[test]
fn rejects_a_missing_cpu() {
    let scratch = Scratch::new();
    let text = BASE.replace("PATH", "[\"a\", \"b\"]") + "cores = [4000]\n";
    let file = scratch.write("chain.toml", text);
    let location = format!("{}:8:10: \"4000\"", file.display());
    let ran = command("run", &file);
    assert!(ran.status == Some(2) && ran.err.contains(&location) && ran.err.contains("help:"), "{ran:?}");
    assert_eq!(ran, command("check", &file));
}

#[test]
fn check_prints_json_with_locations() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"ttll\", \"c\"]"));
    let output = bondstone([OsStr::new("check"), OsStr::new("--json"), file.as_os_str()]);
    assert_eq!(output.status, Some(2), "{output:?}");
    let verdict: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(verdict["ok"], false);
    let errors = verdict["errors"].as_array().unwrap();
    assert!(errors.len() >= 2, "{verdict}");
    for error in errors {
        assert_eq!(error["file"], file.to_str().unwrap());
        assert!(error["line"].is_u64() && error["column"].is_u64(), "{error}");
        assert!(error["value"].is_string() && error["problem"].is_string() && error["remedy"].is_string(), "{error}");
    }
    let missing = bondstone([OsStr::new("check"), OsStr::new("--json"), scratch.path("none").as_os_str()]);
    assert_eq!(
        (missing.status, serde_json::from_str::<Value>(&missing.out).unwrap()["ok"].clone()),
        (Some(2), false.into())
    );
    let good = scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"b\"]"));
    let output = bondstone([OsStr::new("check"), OsStr::new("--json"), good.as_os_str()]);
    assert_eq!(
        (output.status, serde_json::from_str::<Value>(&output.out).unwrap()["ok"].clone()),
        (Some(0), true.into())
    );
}

#[test]
fn every_command_has_help_with_an_example() {
    for arguments in [&[][..], &["run"], &["check"], &["nf", "list"], &["nf", "show"], &["doctor"]] {
        let output = bondstone(arguments.iter().chain(&["--help"]));
        assert!(output.status == Some(0) && output.out.contains("Example"), "{arguments:?}: {output:?}");
    }
    let output = bondstone(["nf", "--help"]);
    assert!(output.status == Some(0) && output.out.contains("Example"), "{output:?}");
    let output = bondstone(["rnu"]);
    assert!(output.status == Some(2) && output.err.contains("rnu"), "{output:?}");
    let output = bondstone(["run", "x.toml", "--for", "soon"]);
    assert!(output.status == Some(2) && output.err.contains("soon"), "{output:?}");
}

/// Text before the example in the output of `nf show`.
const IN_A_FILE: &str = "In a chain file:\n\n";

#[test]
fn every_nf_is_shown_with_a_working_example() {
    let output = bondstone(["nf", "list", "--json"]);
    assert_eq!(output.status, Some(0));
    let all: Value = serde_json::from_str(&output.out).unwrap();
    let kinds: Vec<&str> = all.as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap()).collect();
    let list = bondstone(["nf", "list"]);
    assert!(list.status == Some(0) && kinds.iter().all(|k| list.out.contains(k)), "{list:?}");
    for kind in kinds {
        let [human, json] = [vec!["nf", "show", kind], vec!["nf", "show", kind, "--json"]].map(bondstone);
        assert_eq!((human.status, json.status), (Some(0), Some(0)), "{human:?} {json:?}");
        let example = human.out.split_once(IN_A_FILE).unwrap().1;
        let document: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(document["example"].as_str().unwrap().trim(), example.trim());
        assert_eq!(document["name"], kind);
        let scratch = Scratch::new();
        scratch.capture("in.pcap", 10);
        let file = scratch.write("chain.toml", example);
        let checked = command("check", &file);
        assert!(checked.status == Some(0) && checked.err.is_empty(), "{kind}: {checked:?}");
    }
    let output = bondstone(["nf", "show", "teee"]);
    assert!(output.status == Some(2) && output.err.contains("help:") && output.err.contains("\"tee\""), "{output:?}");
}

/// Writes a chain file with a path from `from` to `to`, and a capture `in.pcap`.
fn forwards(scratch: &Scratch, from: &str, to: &str, frames: u32) -> PathBuf {
    scratch.capture("in.pcap", frames);
    let ports = format!("[port.a]\ndevice = \"{from}\"\n[port.b]\ndevice = \"{to}\"\n");
    scratch.write("chain.toml", format!("bondstone = 1\n{ports}[[chain]]\npath = [\"a\", \"ttl\", \"b\"]\n"))
}

/// Runs a file for up to two seconds and returns its summary.
fn summary(file: &Path) -> (Said, Value) {
    let output = bondstone([OsStr::new("run"), file.as_os_str(), OsStr::new("--json"), OsStr::new("--for=2s")]);
    let summary = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output, summary)
}

#[test]
fn rejects_files_that_are_not_captures() {
    let scratch = Scratch::new();
    let file = forwards(&scratch, "pcap:in.pcap", "null", 1);
    for content in [&b"GET / HTTP/1.1\r\nthis is not a capture"[..], b"", b"\xd4\xc3\xb2"] {
        scratch.write("in.pcap", content);
        let output = command("run", &file);
        assert_eq!(output.status, Some(3), "{output:?}");
        assert!(
            output.err.contains("in.pcap") && output.err.contains("help:") && output.err.contains("\"a\""),
            "{output:?}"
        );
    }
}

#[test]
fn forwards_a_truncated_capture_up_to_the_end() {
    let scratch = Scratch::new();
    let file = forwards(&scratch, "pcap:in.pcap", "pcap:out.pcap", 1000);
    let whole = std::fs::read(scratch.path("in.pcap")).unwrap();
    scratch.write("in.pcap", &whole[..whole.len() - 10]);
    let (output, summary) = summary(&file);
    assert_eq!(output.status, Some(4), "{output:?}");
    assert!(output.err.contains("in.pcap") && output.err.contains("cut short"), "{output:?}");
    let totals = &summary["totals"];
    let [received, sent, dropped] = ["received", "sent", "dropped"].map(|n| totals[n].as_u64().unwrap());
    assert!(received == 999 && sent + dropped == 999 && summary["balanced"] == true, "{summary}");
    let mut out = pcap::Reader::open(scratch.path("out.pcap")).unwrap();
    let mut written = 0;
    while out.next().unwrap().is_some() {
        written += 1;
    }
    assert_eq!(written, sent);
}

#[test]
fn reports_and_counts_a_full_disk() {
    for frames in [10, 20_000] {
        let scratch = Scratch::new();
        let (output, summary) = summary(&forwards(&scratch, "pcap:in.pcap", "pcap:/dev/full", frames));
        assert_eq!(output.status, Some(4), "{output:?}");
        assert!(output.err.contains("/dev/full") && output.err.contains("space"), "{output:?}");
        assert_eq!(summary["balanced"], true, "{summary}");
        // fewer frames than the writer buffers fail only at the end
        let out = &summary["ports"].as_array().unwrap().iter().find(|port| port["name"] == "b").unwrap();
        assert_eq!((&out["sent"], &out["sent_bytes"]), (&0.into(), &0.into()), "{summary}");
        assert_eq!(summary["drops"]["write_failed"], frames, "{summary}");
    }
}

/// A file system that becomes full while a capture is written.
#[test]
fn frames_that_a_full_disk_loses_are_not_counted_as_sent() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount");
        return;
    }
    for (name, size) in [("out.pcap", "size=600k"), ("out.pcap.gz", "size=48k")] {
        let scratch = Scratch::new();
        let file = forwards(&scratch, "pcap:in.pcap", &format!("pcap:small/{name}"), 20_000);
        let (folder, copy) = (scratch.path("small"), scratch.path(name));
        std::fs::create_dir(&folder).unwrap();
        let script = "mount -t tmpfs -o \"$6\" none \"$1\" || exit 99; \"$2\" run \"$3\" --json; status=$?; \
                      cp \"$1/$4\" \"$5\"; exit $status";
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", script, "sh"]).args([&folder, Path::new(env!("CARGO_BIN_EXE_bondstone")), &file]);
        let output: Said = shell.arg(name).arg(&copy).arg(size).output().unwrap().into();
        assert_eq!(output.status, Some(4), "{output:?}");
        let summary: Value = serde_json::from_str(&output.out).unwrap();
        assert_eq!(summary["balanced"], true, "{summary}");
        let [received, sent, dropped] = ["received", "sent", "dropped"].map(|n| summary["totals"][n].as_u64().unwrap());
        assert!(sent > 0 && dropped > 0 && received == sent + dropped, "{summary}");
        assert_eq!(summary["drops"]["write_failed"], dropped, "{summary}");
        let out = summary["ports"].as_array().unwrap().iter().find(|port| port["name"] == "b").unwrap();
        let mut reader = pcap::Reader::open(&copy).unwrap();
        let (mut frames, mut bytes) = (0, 0);
        while let Ok(Some(record)) = reader.next() {
            (frames, bytes) = (frames + 1, bytes + record.frame.len() as u64);
        }
        if name.ends_with(".gz") {
            // the end of the compressed stream is missing, but what was counted is there
            assert!(frames >= sent, "{frames} {summary}");
        } else {
            assert_eq!((frames, bytes), (sent, out["sent_bytes"].as_u64().unwrap()), "{summary}");
        }
    }
}

#[test]
fn reports_ports_that_cannot_be_opened() {
    let scratch = Scratch::new();
    let socket = scratch.path("unused.sock");
    let away = scratch.path("away/v.sock");
    let (client, server) = (format!("virtio-user:{}", socket.display()), format!("vhost:{}", away.display()));
    let memif = format!("memif:{}", scratch.path("away/m.sock").display());
    for (device, value) in [
        ("af_packet:nosuch0", "nosuch0"),
        ("af_xdp:nosuch0", "nosuch0"),
        ("net_nosuch0", "net_nosuch0"),
        ("net_null0,sise=9", "sise=9"),
        ("0000:ff:1f.7", "vfio-pci"),
        ("sriov:lo", "ip link"),
        ("sriov:0000:ff:1f.7", "lspci"),
        (&client, socket.to_str().unwrap()),
        (&server, away.to_str().unwrap()),
        (&memif, "away/m.sock"),
    ] {
        let output = command("run", &forwards(&scratch, device, "null", 1));
        assert_eq!(output.status, Some(3), "{device}: {output:?}");
        let remedy = output.err.split_once("help: ").map_or("", |(_, remedy)| remedy);
        assert!(output.err.contains("port \"a\"") && remedy.contains(value), "{device}: {output:?}");
    }
    // a missing interface is no lack of privileges
    let missing = forwards(&scratch, "af_packet:nosuch0", "af_packet:nosuch1", 1);
    let [ran, checked] = ["run", "check"].map(|name| command(name, &missing));
    for output in [&ran, &checked] {
        assert!(output.err.contains("there is no interface \"nosuch0\"") && output.err.contains("lo,"), "{output:?}");
        assert!(!output.err.contains("permitted"), "{output:?}");
    }
    // check reports all devices that are missing
    assert!(checked.status == Some(3) && checked.err.contains("there is no interface \"nosuch1\""), "{checked:?}");
    let output = bondstone([OsStr::new("check"), OsStr::new("--json"), missing.as_os_str()]);
    let verdict: Value = serde_json::from_str(&output.out).unwrap();
    let count = |list: &str| verdict[list].as_array().unwrap().len();
    assert_eq!((output.status, &verdict["ok"], count("errors"), count("machine")), (Some(3), &false.into(), 0, 2));
    let output = command("run", &forwards(&scratch, "pcap:in.pcap", "pcap:/proc/out.pcap", 1));
    assert_eq!(output.status, Some(3), "{output:?}");
    assert!(output.err.contains("/proc/out.pcap") && output.err.contains("help:"), "{output:?}");
}

/// Returns a command that runs the program as an unprivileged user, if possible.
fn unprivileged(scratch: &Scratch) -> Option<Command> {
    // other users may not have access to the build folder
    let program = scratch.path("bondstone");
    std::fs::copy(env!("CARGO_BIN_EXE_bondstone"), &program).unwrap();
    let command = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
        command
    };
    command().arg("--version").output().ok().filter(|o| o.status.success())?;
    Some(command())
}

#[test]
fn reports_missing_privileges_of_ports() {
    for (device, right) in
        [("tap:bstest9", "cap_net_admin"), ("af_packet:lo", "cap_net_raw"), ("af_xdp:lo", "cap_net_raw")]
    {
        let scratch = Scratch::new();
        let Some(mut command) = unprivileged(&scratch) else {
            eprintln!("skipped: only root can become another user");
            return;
        };
        let file = forwards(&scratch, device, "null", 1);
        let output: Said =
            command.args([OsStr::new("run"), file.as_os_str(), OsStr::new("--for=100ms")]).output().unwrap().into();
        assert_eq!(output.status, Some(3), "{device}: {output:?}");
        let remedy = output.err.split_once("help: ").map_or("", |(_, remedy)| remedy);
        assert!(remedy.contains(right) && remedy.contains(&device[device.len() - 2..]), "{device}: {output:?}");
    }
}

/// Returns the lines of the errors that `check` reports of a file.
fn error_lines(file: &Path) -> Vec<u64> {
    let output = bondstone([OsStr::new("check"), OsStr::new("--json"), file.as_os_str()]);
    let verdict: Value = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let lines: Vec<_> = verdict["errors"].as_array().unwrap().iter().map(|e| e["line"].as_u64().unwrap()).collect();
    assert_eq!(output.status, Some(if lines.is_empty() { 0 } else { 2 }), "{output:?}");
    lines
}

#[test]
fn reports_all_errors_at_once() {
    let scratch = Scratch::new();
    let text = "\
bondstone = 2
[port.a]
device = \"nul\"
descriptors = 70000
[port.b]
device = \"ring\"
repeat = \"two\"
[port.c]
devcie = \"null\"
[nf.first]
kind = \"teee\"
[nf.second]
kind = \"tee\"
every = -1
zzzzzz = 1
[nf.third]
kind = \"tee\"
every = 0
[[chain]]
path = [\"a\", \"first\", 5, \"second\", \"third\", \"unheard-of\", \"b\"]
priority = 256
rate = \"fast\"
[[chain]]
name = \"no path\"
[[chain]]
path = [\"c\", \"drop\"]
[[edge]]
from = \"third.copie\"
to = \"b\"
[[edge]]
from = \"second.copy\"
to = \"missing\"
[sandbox.first]
queues = \"many\"
[traffic]
dst_port = 65536
[colour]
";
    let file = scratch.write("chain.toml", text);
    let expected = [1, 3, 4, 7, 9, 11, 14, 15, 18, 20, 20, 21, 22, 23, 28, 32, 34, 36, 37];
    assert_eq!(error_lines(&file), expected, "{}", command("check", &file).err);
    // run reports the same
    assert_eq!(command("run", &file), command("check", &file));
    // with these errors only, run has started to build the NFs
    let below = "[nf.x]\nkind = \"tee\"\nevery = 0\n[nf.y]\nkind = \"tee\"\nevery = 0\n";
    let file = scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"x\", \"y\", \"b\"]") + below);
    assert_eq!(error_lines(&file), [10, 13]);
    assert_eq!(command("run", &file), command("check", &file));
}

/// A valid file in which one value at a time is replaced by an invalid one.
const VALID: &str = "\
bondstone = 1
[port.a]
device = \"null\"
descriptors = 64
[port.b]
device = \"ring\"
[port.log]
device = \"ring\"
[nf.copy]
kind = \"tee\"
every = 2
[nf.route]
kind = \"l3fwd\"
icmp_rate = 10
[nf.route.interface]
a = { addresses = [\"10.0.0.1/24\"] }
b = { addresses = [\"10.0.1.1/24\"] }
[[chain]]
name = \"main\"
path = [\"a\", \"copy\", \"route\"]
cores = [0]
rate = \"10 Gbit/s\"
[[chain]]
path = [\"b\", \"route\"]
cores = [0]
[[edge]]
from = \"copy.copy\"
to = \"log\"
";

/// Every single mistake is one error, in its own line.
#[test]
fn an_error_causes_no_other() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", VALID);
    assert_eq!(error_lines(&file), [] as [u64; 0], "{}", command("check", &file).err);
    let mut wrong = vec![];
    let mut tried = 0;
    for (n, line) in VALID.lines().enumerate().filter(|(_, line)| !line.starts_with('[')) {
        let (key, value) = line.split_once(" = ").unwrap();
        let misspelt = format!("{key}{}", key.chars().last().unwrap());
        // each value becomes one of another type, and one of an unknown word; each key is misspelt
        let mut faults = vec![format!("{key} = 1979-05-27"), format!("{misspelt} = {value}")];
        faults.extend(value.starts_with('"').then(|| format!("{key} = \"no.such/thing\"")));
        faults.extend((value.starts_with('[') && key == "path").then(|| format!("{key} = [\"a\", 7]")));
        faults.retain(|fault| !(fault.starts_with("aa = ") || fault.starts_with("bb = ")));
        faults.retain(|fault| !(key == "name" && fault.contains("such")));
        for fault in faults {
            let text: Vec<&str> = VALID.lines().enumerate().map(|(m, old)| if m == n { &fault } else { old }).collect();
            let file = scratch.write("chain.toml", text.join("\n"));
            let lines = error_lines(&file);
            // a key that is missing is an error of its table, or of the file
            let is_here = lines.iter().all(|at| *at as usize == n + 1) || key == "kind" || key == "bondstone";
            if lines.len() != 1 || !is_here {
                wrong.push(format!("{}: {fault}\n{}", n + 1, command("check", &file).err));
            }
            tried += 1;
        }
    }
    assert!(wrong.is_empty() && tried > 30, "{tried}\n{}", wrong.join("\n"));
}

#[test]
fn check_reports_all_errors_of_a_scenario() {
    let scratch = Scratch::new();
    scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"ttll\", \"${x}\"]") + "colour = 1\n");
    let text = "\
bondstone = 1
[scenario]
title = 4
[dut]
chain = \"chain.toml\"
[traffic]
flows = 0
order = \"none\"
[goal]
line_rate_bps = \"10 Gbps\"
repeat = \"two\"
search = \"bogus\"
rate = \"2 kpps\"
[matrix]
x = [\"b\", \"c\"]
[[published]]
id = \"one\"
value = \"many\"
unit = 5
";
    let file = scratch.write("scenario.toml", text);
    let output = command("check", &file);
    let errors = output.err.matches("error: ").count();
    for (line, value) in [(3, "4"), (7, "0"), (8, "none"), (11, "two"), (12, "bogus"), (18, "many"), (19, "5")] {
        assert!(output.err.contains(&format!("scenario.toml:{line}:")) && output.err.contains(value), "{output:?}");
    }
    // those of the chain file, each once though it is read for every cell
    for line in [7, 8] {
        assert_eq!(
            output.err.matches(&format!("chain.toml:{line}:")).count(),
            if line == 7 { 2 } else { 1 },
            "{output:?}"
        );
    }
    assert_eq!((output.status, errors), (Some(2), 10), "{output:?}");
}

#[test]
fn values_in_errors_are_cut() {
    let scratch = Scratch::new();
    let long = "x".repeat(10_000_000);
    for text in [
        BASE.replace("PATH", &format!("[\"a\", \"{long}\", \"b\"]")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n{long} = 1")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\nrate = \"{long}\"")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\npriority = \"{long}\"")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n[port.c]\ndevice = \"{long}\"")),
        BASE.replace("PATH", &format!("[\"a\", \"l2fwd\", \"b\"]\n[nf.l2fwd]\nkind = \"l2fwd\"\ndst = \"{long}\"")),
    ] {
        let output = command("check", &scratch.write("chain.toml", text));
        assert!(output.status == Some(2) && output.err.len() < 5000, "{} bytes", output.err.len());
        assert!(output.err.contains("characters)") && output.err.contains("help:"), "{}", output.err);
    }
}

#[test]
fn plan_mentions_sandboxes_only_if_there_are_some() {
    let scratch = Scratch::new();
    let output = command("plan", &scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"ttl\", \"b\"]")));
    assert!(output.status == Some(0) && !output.out.contains("sandbox"), "{output:?}");
    let below = "[nf.x]\nkind = \"ttl\"\nisolation = \"process\"\n";
    let text = BASE.replace("PATH", "[\"a\", \"x\", \"b\"]") + below;
    let output = command("plan", &scratch.write("chain.toml", text));
    assert!(output.status == Some(0) && output.out.contains("not used by sandboxes"), "{output:?}");
}

#[test]
fn nf_show_describes_nested_settings() {
    let row = |text: &str, name: &str| {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no {name} in\n{text}")).to_owned()
    };
    let shown = bondstone(["nf", "show", "l3fwd"]).out;
    assert!(row(&shown, "table").contains("\"lpm\" or \"exact\""), "{shown}");
    assert!(row(&shown, "interface").contains("none") && row(&shown, "route").contains("none"), "{shown}");
    assert!(row(&shown, "interface.NAME.addresses").contains("list of string"), "{shown}");
    assert!(row(&shown, "route[].prefix").contains("string"), "{shown}");
    // every setting of every NF has a type
    let all: Value = serde_json::from_str(&bondstone(["nf", "list", "--json"]).out).unwrap();
    for kind in all.as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()) {
        let shown = bondstone(["nf", "show", kind]).out;
        let rows = shown.lines().skip_while(|line| !line.contains("setting ")).skip(1);
        for line in rows.take_while(|line| !line.trim().is_empty()) {
            let kind_of_value = line.split_whitespace().nth(1).unwrap();
            let known = ["string", "integer", "number", "boolean", "list", "table"];
            assert!(known.contains(&kind_of_value) || kind_of_value.starts_with('"'), "{kind}: {line}");
        }
    }
}
