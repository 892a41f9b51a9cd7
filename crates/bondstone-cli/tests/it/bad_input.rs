//! Wrong input, through the program: every fault names file, line, value and remedy, with the right exit status.

use crate::common::{Said, Scratch, bondstone};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command on a file to its end; a run that should not have begun ends by itself.
fn command(name: &str, file: &Path) -> Said {
    let for_a_moment: &[&str] = if name == "run" { &["--for", "100ms"] } else { &[] };
    bondstone([OsStr::new(name), file.as_os_str()].into_iter().chain(for_a_moment.iter().map(OsStr::new)))
}

/// Two ports and a path between them, on lines 1 to 7.
const BASE: &str = "bondstone = 1\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"ring\"\n[[chain]]\npath = PATH\n";

/// What the program said too little about; all of it is told when the test ends.
#[derive(Default)]
struct Verdict(Vec<String>);

impl Verdict {
    /// `run` and `check` both refuse the file, in the same words, with its place, the value and a remedy.
    fn refused(&mut self, text: &str, line: usize, value: &str, remedy: &str) {
        let scratch = Scratch::new();
        let file = scratch.write("chain.toml", text);
        let [ran, checked] = ["run", "check"].map(|name| command(name, &file));
        let place = format!("{}:{line}:", file.display());
        let column = |rest: &str| rest.split(':').next().is_some_and(|c| c.parse::<usize>().is_ok_and(|c| c > 0));
        let told = ran.err.split("error: ").any(|fault| {
            let at_line = fault.strip_prefix(&place).is_some_and(column);
            let cured = fault.split_once("help: ").is_some_and(|(_, c)| c.contains(remedy));
            at_line && fault.contains(value) && cured
        });
        if !(told && ran.status == Some(2) && ran == checked && ran.out.is_empty()) {
            let said = format!("run: {:?} {}\ncheck: {:?} {}", ran.status, ran.err, checked.status, checked.err);
            self.0.push(format!("wanted line {line}, {value:?}, remedy {remedy:?} for\n{text}\n{said}"));
        }
    }

    /// The same for a path between the two ports of [`BASE`], with more text below it.
    fn path_refused(&mut self, path: &str, below: &str, line: usize, value: &str, remedy: &str) {
        self.refused(&(BASE.replace("PATH", path) + below), line, value, remedy);
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
fn what_is_not_the_format() {
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
        verdict.refused(text, line, value, remedy);
    }
}

#[test]
fn what_is_no_file() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing.toml");
    let folder = scratch.path("");
    let binary = scratch.write("binary.toml", [0xff, 0xfe, 0]);
    let long = scratch.write("long.toml", vec![b'#'; 17 << 20]);
    for file in [&missing, &folder, &binary, &long] {
        let said = command("run", file);
        assert_eq!(said.status, Some(2), "{said:?}");
        assert!(said.err.contains(&*file.to_string_lossy()) && said.err.contains("help:"), "{said:?}");
        assert_eq!(said, command("check", file));
    }
    // a device that never ends is no chain file either
    let said = command("check", Path::new("/dev/zero"));
    assert!(said.status == Some(2) && said.err.contains("/dev/zero") && said.err.contains("help:"), "{said:?}");
}

#[test]
fn nfs_and_their_settings() {
    let mut verdict = Verdict::default();
    for (nf, line, value, remedy) in [
        ("[nf.x]\nkind = \"teee\"\n", 9, "teee", "\"tee\""),
        ("[nf.x]\nkind = \"firewall9000\"\n", 9, "firewall9000", "use one of"),
        ("[nf.x]\nkind = 7\n", 9, "7", "use one of"),
        ("[nf.x]\nevery = 7\n", 8, "x", "kind ="),
        ("[nf.x]\nkind = \"tee\"\nevry = 2\n", 10, "evry", "every"),
        ("[nf.x]\nkind = \"tee\"\nzzzzzz = 2\n", 10, "zzzzzz", "every"),
        ("[nf.x]\nkind = \"ttl\"\nzzzzzz = 2\n", 10, "zzzzzz", "remove it"),
        ("[nf.x]\nkind = \"tee\"\nevery = \"two\"\n", 10, "two", "u32"),
        ("[nf.x]\nkind = \"tee\"\nevery = -1\n", 10, "-1", "u32"),
        ("[nf.x]\nkind = \"tee\"\nevery = 0\n", 10, "0", "write 1"),
        ("[nf.x]\nkind = \"l2fwd\"\nsrc = \"02:00:00:00:00\"\n", 10, "02:00:00:00:00", "six bytes"),
        ("[nf.x]\nkind = \"l2fwd\"\ndst = \"no MAC\"\n", 10, "no MAC", "six bytes"),
        ("[nf.x]\nkind = \"l2fwd\"\ndst = 4\n", 10, "4", "string"),
    ] {
        verdict.path_refused("[\"a\", \"x\", \"b\"]", nf, line, value, remedy);
    }
    verdict.path_refused("[\"a\", \"x\", \"b\"]", "[nf]\nx = 5\n", 9, "x", "[nf.x]");
}

#[test]
fn names() {
    let mut verdict = Verdict::default();
    for (name, value) in [("\"a b\"", "a b"), ("\"a.b\"", "a.b"), ("\"ä\"", "ä"), ("\"\"", "\"\""), ("\"a:b\"", "a:b")]
    {
        verdict.path_refused("[\"a\", \"b\"]", &format!("[port.{name}]\ndevice = \"null\"\n"), 8, value, "letters");
        verdict.path_refused("[\"a\", \"b\"]", &format!("[nf.{name}]\nkind = \"ttl\"\n"), 8, value, "letters");
    }
    let long = "x".repeat(33);
    verdict.path_refused("[\"a\", \"b\"]", &format!("[nf.{long}]\nkind = \"ttl\"\n"), 8, &long, "32");
    verdict.path_refused("[\"a\", \"b\"]", "[nf.a]\nkind = \"ttl\"\n", 8, "\"a\"", "rename");
    verdict.path_refused("[\"a\", \"b\"]", "name = \"\\u001b[31m\"\n", 8, "[31m", "letters");
    verdict.path_refused(
        "[\"a\", \"b\"]",
        "name = \"x\"\n[[chain]]\nname = \"x\"\npath = [\"b\", \"drop\"]\n",
        10,
        "x",
        "another",
    );
}

#[test]
fn ports_and_their_devices() {
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
    ] {
        let below = format!("[port.c]\ndevice = \"{device}\"\n[[chain]]\npath = [\"c\", \"drop\"]\n");
        verdict.path_refused("[\"a\", \"b\"]", &below, 9, value, remedy);
    }
    for (setting, value, remedy) in [
        ("repeat = 2", "repeat", "remove it"),
        ("timed = true", "timed", "remove it"),
        ("descriptors = 3", "3", "32"),
        ("descriptors = 70000", "70000", "u16"),
        ("descriptors = \"many\"", "many", "u16"),
        ("repeat = -1", "-1", "u64"),
        ("reapet = 1", "reapet", "repeat"),
    ] {
        let below = format!("[port.c]\ndevice = \"null\"\n{setting}\n[[chain]]\npath = [\"c\", \"drop\"]\n");
        verdict.path_refused("[\"a\", \"b\"]", &below, 10, value, remedy);
    }
    verdict.path_refused(
        "[\"a\", \"b\"]",
        "[port.c]\ndevice = \"ring:b\"\n[[chain]]\npath = [\"c\", \"drop\"]\n",
        9,
        "ring:b",
        "\"b\"",
    );
    verdict.path_refused("[\"a\", \"b\"]", "[port.c]\ndevice = \"null\"\n", 8, "\"c\"", "path");
    let many: String = (0..31).map(|n| format!("[port.p{n}]\ndevice = \"null\"\n")).collect();
    verdict.path_refused("[\"a\", \"b\"]", &many, 68, "p30", "split");
}

#[test]
fn captures() {
    let scratch = Scratch::new();
    scratch.capture("in.pcap", 1);
    let say = |ports: &str, path: &str| {
        let file = scratch.write("chain.toml", format!("bondstone = 1\n{ports}[[chain]]\npath = {path}\n"));
        let said = command("run", &file);
        assert_eq!(said.status, Some(2), "{said:?}");
        assert_eq!(said, command("check", &file));
        said.err
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
fn no_fault_prints_what_a_terminal_obeys() {
    let scratch = Scratch::new();
    let escape = "\"\\u001b[2Jgone\"";
    for text in [
        BASE.replace("PATH", &format!("[\"a\", {escape}, \"b\"]")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n{escape} = 1")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n[nf.{escape}]")),
        BASE.replace("PATH", &format!("[\"a\", \"b\"]\n[port.x]\ndevice = {escape}")),
        BASE.replace("PATH", "[\"a\", \"b\"]\n\u{1b}[2J = 1"),
    ] {
        let said = command("check", &scratch.write("chain.toml", text));
        assert!(said.status == Some(2) && said.err.contains("help:") && !said.err.contains('\u{1b}'), "{said:?}");
    }
}

#[test]
fn paths() {
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
        ("[\"a\", 5, \"b\"]", "5", "string"),
        ("\"a, b\"", "a, b", "list"),
        ("[\"a\", \"\", \"b\"]", "\"\"", ""),
    ] {
        verdict.path_refused(path, "", 7, value, remedy);
    }
    verdict.path_refused("[\"a\", \"b\"]", "[[chain]]\npath = [\"a\", \"b\"]\n", 9, "\"a\"", "tee");
    verdict.path_refused("[\"a\", \"b\"]", "[nf.lonely]\nkind = \"ttl\"\n", 8, "lonely", "path");
    verdict.path_refused("[\"a\", \"b\"]", "cores = [1, 1]\n", 8, "1", "once");
    verdict.path_refused("[\"a\", \"b\"]", "cores = [99999]\n", 8, "99999", "CPU");
    verdict.path_refused("[\"a\", \"b\"]", "cores = [-1]\n", 8, "-1", "");
    verdict.path_refused("[\"a\", \"b\"]", "cores = 1\n", 8, "1", "list");
    verdict.path_refused("[\"a\", \"b\"]", "core = [1]\n", 8, "core", "cores");
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
        verdict.path_refused(split, below, line, value, remedy);
    }
    verdict.path_refused(
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
        verdict.path_refused("[\"a\", \"b\"]", &format!("{class}\n"), line, value, remedy);
    }
    // no chain at all
    verdict.refused("bondstone = 1\n", 1, "chain", "[[chain]]");
}

#[test]
fn edges() {
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
        verdict.path_refused(tee, edges, line, value, remedy);
    }
}

/// Each copies what the one before has copied: one packet would become more than anybody can send.
#[test]
fn copies_of_copies_without_end() {
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
    assert!(ran.status == Some(2) && ran.err.contains("copied") && ran.err.contains("help:"), "{ran:?}");
}

#[test]
fn a_cpu_that_is_not_there() {
    let scratch = Scratch::new();
    let text = BASE.replace("PATH", "[\"a\", \"b\"]") + "cores = [4000]\n";
    let file = scratch.write("chain.toml", text);
    let place = format!("{}:8:10: \"4000\"", file.display());
    let ran = command("run", &file);
    assert!(ran.status == Some(2) && ran.err.contains(&place) && ran.err.contains("help:"), "{ran:?}");
    // the file may be meant for another machine
    let checked = command("check", &file);
    assert!(checked.status == Some(0) && checked.err.contains(&place), "{checked:?}");
}

#[test]
fn check_prints_json_with_places() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"ttll\", \"c\"]"));
    let said = bondstone([OsStr::new("check"), OsStr::new("--json"), file.as_os_str()]);
    assert_eq!(said.status, Some(2), "{said:?}");
    let verdict: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(verdict["ok"], false);
    let faults = verdict["faults"].as_array().unwrap();
    assert!(faults.len() >= 2, "{verdict}");
    for fault in faults {
        assert_eq!(fault["file"], file.to_str().unwrap());
        assert!(fault["line"].is_u64() && fault["column"].is_u64(), "{fault}");
        assert!(fault["value"].is_string() && fault["problem"].is_string() && fault["remedy"].is_string(), "{fault}");
    }
    let missing = bondstone([OsStr::new("check"), OsStr::new("--json"), scratch.path("none").as_os_str()]);
    assert_eq!(
        (missing.status, serde_json::from_str::<Value>(&missing.out).unwrap()["ok"].clone()),
        (Some(2), false.into())
    );
    let good = scratch.write("chain.toml", BASE.replace("PATH", "[\"a\", \"b\"]"));
    let said = bondstone([OsStr::new("check"), OsStr::new("--json"), good.as_os_str()]);
    assert_eq!((said.status, serde_json::from_str::<Value>(&said.out).unwrap()["ok"].clone()), (Some(0), true.into()));
}

#[test]
fn every_command_has_help_with_an_example() {
    for words in [&[][..], &["run"], &["check"], &["nf", "list"], &["nf", "show"], &["doctor"]] {
        let said = bondstone(words.iter().chain(&["--help"]));
        assert!(said.status == Some(0) && said.out.contains("Example"), "{words:?}: {said:?}");
    }
    let said = bondstone(["nf", "--help"]);
    assert!(said.status == Some(0) && said.out.contains("Example"), "{said:?}");
    let said = bondstone(["rnu"]);
    assert!(said.status == Some(2) && said.err.contains("rnu"), "{said:?}");
    let said = bondstone(["run", "x.toml", "--for", "soon"]);
    assert!(said.status == Some(2) && said.err.contains("soon"), "{said:?}");
}

/// The `[section]`s of a page that `nf show` prints begin below this line.
const IN_A_FILE: &str = "In a chain file:\n\n";

#[test]
fn every_nf_is_shown_and_its_example_works() {
    let said = bondstone(["nf", "list", "--json"]);
    assert_eq!(said.status, Some(0));
    let all: Value = serde_json::from_str(&said.out).unwrap();
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
    let said = bondstone(["nf", "show", "teee"]);
    assert!(said.status == Some(2) && said.err.contains("help:") && said.err.contains("\"tee\""), "{said:?}");
}

/// Writes a chain file with one path from `from` to `to`, and a capture `in.pcap` beside it.
fn forwards(scratch: &Scratch, from: &str, to: &str, frames: u32) -> PathBuf {
    scratch.capture("in.pcap", frames);
    let ports = format!("[port.a]\ndevice = \"{from}\"\n[port.b]\ndevice = \"{to}\"\n");
    scratch.write("chain.toml", format!("bondstone = 1\n{ports}[[chain]]\npath = [\"a\", \"ttl\", \"b\"]\n"))
}

/// Runs a file to its end, two seconds at most; the summary that it printed.
fn summary(file: &Path) -> (Said, Value) {
    let said = bondstone([OsStr::new("run"), file.as_os_str(), OsStr::new("--json"), OsStr::new("--for=2s")]);
    let summary = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    (said, summary)
}

#[test]
fn what_is_no_capture() {
    let scratch = Scratch::new();
    let file = forwards(&scratch, "pcap:in.pcap", "null", 1);
    for content in [&b"GET / HTTP/1.1\r\nthis is not a capture"[..], b"", b"\xd4\xc3\xb2"] {
        scratch.write("in.pcap", content);
        let said = command("run", &file);
        assert_eq!(said.status, Some(3), "{said:?}");
        assert!(said.err.contains("in.pcap") && said.err.contains("help:") && said.err.contains("\"a\""), "{said:?}");
    }
}

#[test]
fn a_capture_cut_short_is_forwarded_up_to_the_cut() {
    let scratch = Scratch::new();
    let file = forwards(&scratch, "pcap:in.pcap", "pcap:out.pcap", 1000);
    let whole = std::fs::read(scratch.path("in.pcap")).unwrap();
    scratch.write("in.pcap", &whole[..whole.len() - 10]);
    let (said, summary) = summary(&file);
    assert_eq!(said.status, Some(4), "{said:?}");
    assert!(said.err.contains("in.pcap") && said.err.contains("cut short"), "{said:?}");
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
fn a_full_disk_is_told_and_counted() {
    for frames in [10, 20_000] {
        let scratch = Scratch::new();
        let (said, summary) = summary(&forwards(&scratch, "pcap:in.pcap", "pcap:/dev/full", frames));
        assert_eq!(said.status, Some(4), "{said:?}");
        assert!(said.err.contains("/dev/full") && said.err.contains("space"), "{said:?}");
        assert_eq!(summary["balanced"], true, "{summary}");
        // fewer than the writer gathers fail only when it is closed
        let failed = summary["drops"]["write_failed"].as_u64().unwrap_or(0);
        assert!(frames == 10 || failed > 0, "{summary}");
    }
}

#[test]
fn ports_that_do_not_open() {
    let scratch = Scratch::new();
    let socket = scratch.path("nobody.sock");
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
        let said = command("run", &forwards(&scratch, device, "null", 1));
        assert_eq!(said.status, Some(3), "{device}: {said:?}");
        let remedy = said.err.split_once("help: ").map_or("", |(_, remedy)| remedy);
        assert!(said.err.contains("port \"a\"") && remedy.contains(value), "{device}: {said:?}");
    }
    let said = command("run", &forwards(&scratch, "pcap:in.pcap", "pcap:/proc/out.pcap", 1));
    assert_eq!(said.status, Some(3), "{said:?}");
    assert!(said.err.contains("/proc/out.pcap") && said.err.contains("help:"), "{said:?}");
}

/// A command that runs the program as a user who may do nothing, or `None` where that cannot be arranged.
fn unprivileged(scratch: &Scratch) -> Option<Command> {
    // the build's folder may be closed to other users
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
fn ports_that_a_plain_user_may_not_open() {
    for (device, right) in
        [("tap:bstest9", "cap_net_admin"), ("af_packet:lo", "cap_net_raw"), ("af_xdp:lo", "cap_net_raw")]
    {
        let scratch = Scratch::new();
        let Some(mut command) = unprivileged(&scratch) else {
            eprintln!("skipped: only root can become another user");
            return;
        };
        let file = forwards(&scratch, device, "null", 1);
        let said: Said =
            command.args([OsStr::new("run"), file.as_os_str(), OsStr::new("--for=100ms")]).output().unwrap().into();
        assert_eq!(said.status, Some(3), "{device}: {said:?}");
        let remedy = said.err.split_once("help: ").map_or("", |(_, remedy)| remedy);
        assert!(remedy.contains(right) && remedy.contains(&device[device.len() - 2..]), "{device}: {said:?}");
    }
}
