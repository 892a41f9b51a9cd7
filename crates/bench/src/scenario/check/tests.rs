use super::super::{Dut, Scenario};
use crate::dut::Env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const CHAIN: &str = r#"
bondstone = 1
port.in.device = "ring:in"
port.out.device = "ring:out"
[nf.cells]
kind = "cells"
cells = ${cells}
[[chain]]
path = ["in", "cells", "out"]
"#;

const SCENARIO: &str = r#"
bondstone = 1
[scenario]
title = "cells"
[dut]
chain = "chain-cells.toml"
needs = ["cells"]
[traffic]
frames = "64,imix"
flows = 10
[matrix]
cells = [1, 2]
[native]
only = "cells"
pairs = 100
[[published]]
id = "a"
value = 3
unit = "Mpps"
[[published]]
id = "b"
value = 4
unit = "Mpps"
[[claim]]
says = "a is three quarters of b"
published = "a / b"
measure = "speed over C"
where = { nf = "cells", cells = [1, 2] }
within = 0.1
[[claim]]
says = "fast"
published = "a"
measure = "throughput"
where = { cells = 2, frames = "imix" }
untestable = "another machine"
"#;

/// A folder that goes with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bondstone-scenario-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder.write("chain-cells.toml", CHAIN);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, text: &str) -> Result<Scenario, Vec<diagnostics::Diagnostic>> {
        Scenario::parse(text, &self.0.join("some.toml"), &nf::registry())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn good(text: &str) -> Scenario {
    Folder::new().read(text).unwrap_or_else(|faults| panic!("{}", diagnostics::Diagnostics(faults)))
}

#[test]
fn a_matrix_becomes_chain_files() {
    let scenario = good(SCENARIO);
    assert!(scenario.name.ends_with("/some"), "{}", scenario.name);
    let settings = |n: usize| match &scenario.cells[n].dut {
        Dut::Chain(file) => file.text.lines().find(|l| l.starts_with("cells")).unwrap().to_owned(),
        _ => panic!("not a chain"),
    };
    assert_eq!((scenario.cells.len(), settings(0), settings(1)), (2, "cells = 1".to_owned(), "cells = 2".to_owned()));
    assert_eq!(scenario.cells[1].sent.names(), ["64", "imix"]);
    let claim = &scenario.claims[0];
    let (least, most) = (claim.at_least.unwrap(), claim.at_most.unwrap());
    assert!((least - 0.675).abs() < 1e-9 && (most - 0.825).abs() < 1e-9, "{least} {most}");
}

#[test]
fn the_frames_may_be_those_of_a_capture() {
    let folder = Folder::new();
    let mut writer = pcap::Writer::create(folder.0.join("lunch.pcap"), pcap::LinkType::ETHERNET).unwrap();
    writer.write(0, 60, &[1; 60]).unwrap();
    writer.finish().unwrap();
    folder.write("no.pcap", "no capture at all");
    let made = SCENARIO.lines().filter(|l| l.starts_with("frames = ") || l.starts_with("flows = ")).count();
    let replace = |with: &str| -> String {
        let mut lines: Vec<&str> = SCENARIO.lines().collect();
        lines.retain(|l| !l.starts_with("frames = ") && !l.starts_with("flows = "));
        let text = lines.join("\n").replace("[traffic]", &format!("[traffic]\n{with}"));
        text.replace("frames = \"imix\" }", "frames = \"lunch.pcap\" }")
    };
    assert_eq!(made, 2);
    let scenario = folder.read(&replace("capture = \"lunch.pcap\"")).unwrap_or_else(|f| panic!("{f:?}"));
    assert_eq!(scenario.cells[1].sent, crate::Sent::Capture(crate::Captured::of(folder.0.join("lunch.pcap"))));
    assert_eq!(scenario.cells[1].sent.names(), ["lunch.pcap"]);
    for (with, value, words) in [
        ("capture = \"lunch.pcap\"\nflows = 10", "10", "does not go with a capture"),
        ("capture = \"lunch.pcap\"\nframes = \"64\"", "\"64\"", "does not go with a capture"),
        ("capture = \"lunch.pcap\"\nboth_ways = true", "true", "does not go with a capture"),
        ("capture = \"absent.pcap\"", "absent.pcap", "no file"),
        ("capture = \"../lunch.pcap\"", "../lunch.pcap", "without folders"),
        ("capture = \"no.pcap\"", "no.pcap", "not a capture"),
        ("capture = [\"lunch.pcap\", 7]", "[\"lunch.pcap\", 7]", "neither a text nor a list"),
        ("capture = [\"lunch.pcap\", \"lunch.pcap\", \"lunch.pcap\"]", "3", "no number of captures"),
        ("capture = \"lunch.pcap\"\nrewrite = \"10.0.0.0/8=11.0.0.0/9\"", "10.0.0.0/8=11.0.0.0/9", "maps no prefix"),
        ("capture = \"lunch.pcap\"\nvlan = 5000", "5000", "VLAN"),
        ("capture = \"lunch.pcap\"\nvlan = \"all\"", "all", "VLAN"),
        ("capture = \"lunch.pcap\"\nspeed = 0.0", "0", "times as fast"),
        ("capture = \"lunch.pcap\"\ngaps = false\nspeed = 2.0", "2", "own gaps"),
        ("gaps = true", "true", "no capture is sent"),
        ("rewrite = []", "[]", "no capture is sent"),
        ("vlan = 7\nspeed = 2.0", "7", "no capture is sent"),
    ] {
        let faults = folder.read(&replace(with)).err().unwrap_or_else(|| panic!("{with}"));
        assert_eq!(faults[0].value.as_deref(), Some(value), "{faults:?}");
        assert!(faults[0].problem.contains(words) && faults[0].remedy.is_some(), "{faults:?}");
    }
}

#[test]
fn captures_may_be_rewritten_keep_their_gaps_and_go_both_ways() {
    let folder = Folder::new();
    for name in ["lunch.pcap", "back.pcap"] {
        let mut writer = pcap::Writer::create(folder.0.join(name), pcap::LinkType::ETHERNET).unwrap();
        writer.write(0, 60, &[1; 60]).unwrap();
        writer.finish().unwrap();
    }
    let with = |more: &str| {
        let lines = SCENARIO.lines().filter(|l| !l.starts_with("frames = ") && !l.starts_with("flows = "));
        let text = lines.collect::<Vec<_>>().join("\n").replace("[traffic]", &format!("[traffic]\n{more}"));
        let text = text.replace("frames = \"imix\" }", "frames = \"lunch.pcap,back.pcap\" }");
        folder.read(&text).unwrap_or_else(|f| panic!("{f:?}"))
    };
    let both = "capture = [\"lunch.pcap\", \"back.pcap\"]";
    let plain = with(both);
    assert!(plain.cells[0].sent.is_both_ways() && !plain.cells[0].sent.keeps_gaps());
    assert_eq!(plain.how.methods, ["throughput"]);
    let all =
        with(&format!("{both}\nrewrite = [\"10.0.0.0/8=11.0.0.0/8\", \"::/0=::/0\"]\nvlan = \"strip\"\nspeed = 2.0"));
    let crate::Sent::Capture(captured) = &all.cells[0].sent else { panic!("{:?}", all.cells[0].sent) };
    assert_eq!(captured.files, ["lunch.pcap", "back.pcap"].map(|name| folder.0.join(name)));
    assert_eq!(captured.rewrite.to_string(), "10.0.0.0/8=11.0.0.0/8,::/0=::/0");
    assert_eq!((captured.rewrite.tagging, captured.speed), (traffic::Tagging::Strip, Some(2.0)));
    assert_eq!(all.how.methods, ["load"], "its own rate");
    let tagged = with(&format!("{both}\nvlan = 7\ngaps = true"));
    let crate::Sent::Capture(captured) = &tagged.cells[0].sent else { panic!("{:?}", tagged.cells[0].sent) };
    assert_eq!((captured.rewrite.tagging, captured.speed), (traffic::Tagging::One(7), Some(1.0)));
}

#[test]
fn traces_stacks_and_short_flows_may_be_asked_for() {
    let with = |more: &str| {
        let lines = SCENARIO.lines().filter(|l| !l.starts_with("flows = "));
        let text = lines.collect::<Vec<_>>().join("\n");
        text.replace("frames = \"64,imix\"", &format!("frames = \"128,(128:9,1518:1)\"\n{more}"))
            .replace("frames = \"imix\"", "frames = \"128:9,1518:1\"")
    };
    for (more, expected) in [
        ("trace = \"tr3i\"", (Some("tr3i"), None, None)),
        ("stack = \"eth/vlan:5/ipv4/udp\"", (None, Some("eth/vlan:5/ipv4/udp"), None)),
        ("short = \"10x100\"", (None, None, Some("10x100"))),
    ] {
        let scenario = good(&with(more));
        let crate::Sent::Made { shape, .. } = scenario.cells[0].sent else { panic!("{more}") };
        assert_eq!(shape, crate::Shape::parse(expected.0, expected.1, expected.2).unwrap());
    }
    for (more, both) in
        [("both_ways = true", true), ("both_ways = false", false), ("both_ways = true\ntrace = \"tr2i\"", true)]
    {
        assert_eq!(good(&with(more)).cells[0].sent.is_both_ways(), both, "{more}");
    }
    for (more, value, words) in [
        ("trace = \"tr9\"", "tr9", "tr5ul"),
        ("trace = \"tr2i\"\nflows = 5", "tr2i", "has the flows"),
        ("stack = \"eth\"", "eth", "vxlan"),
        ("short = \"10x100\"\norder = \"uniform\"", "10x100", "order"),
        ("both_ways = true\nshort = \"10x100\"", "10x100", "both ways"),
    ] {
        let Err(faults) = Folder::new().read(&with(more)) else { panic!("{more} is accepted") };
        let said = faults[0].to_string();
        assert_eq!((faults[0].line, faults[0].value.as_deref()), (Some(10), Some(value)), "{more}: {said}");
        assert!(said.contains(words) && faults[0].remedy.is_some(), "{more}: {said}");
    }
}

#[test]
fn what_is_needed_and_not_there_is_no_fault() {
    let scenario = good(&SCENARIO.replace("needs = [\"cells\"]", "needs = [\"cells\", \"teleport\"]"));
    assert!(scenario.cells.iter().all(|c| matches!(&c.dut, Dut::Absent(why) if why.contains("teleport"))));
}

#[test]
fn faults_have_a_line_a_value_and_a_cure() {
    for (from, to, line, value, words) in [
        ("bondstone = 1", "bondstone = 7", 2, "7", "format"),
        ("title = ", "titel = ", 4, "titel", "title"),
        ("flows = 10", "flows = 0", 10, "0", "flows"),
        ("64,imix\"", "64,imax\"", 9, "imax", "imix"),
        ("cells = [1, 2]\n[native]", "cells = [1, 1]\n[native]", 12, "[1, 1]", "twice"),
        ("cells = [1, 2]\n[native]", "cells = [1, true]\n[native]", 12, "[1, true]", "number"),
        ("cells = [1, 2]\n[native]", "cells = []\n[native]", 12, "[]", "some"),
        ("cells = [1, 2]\n[native]", "cells = [1, 2]\nflows = 3\n[native]", 13, "flows", "[traffic]"),
        ("cells = [1, 2]\n[native]", "cells = [1, 2]\nidle = [3, 4]\n[native]", 13, "idle", "nowhere"),
        ("chain-cells.toml", "../chain-cells.toml", 6, "../chain-cells.toml", "folder"),
        ("chain-cells.toml", "chain-${sells}.toml", 6, "${sells}", "cells"),
        ("pairs = 100", "pairs = 1", 15, "1", "20"),
        ("id = \"b\"", "id = \"a\"", 21, "a", "another"),
        ("unit = \"Mpps\"\n[[claim]]", "[[claim]]", 21, "b", "unit"),
        ("\"a / b\"", "\"a / bb\"", 26, "bb", "\"b\""),
        ("\"throughput\"", "\"thruput\"", 33, "thruput", "throughput"),
        ("cells = 2, frames", "cells = 3, frames", 34, "3", "1, 2"),
        ("cells = 2, frames", "sells = 2, frames", 34, "sells", "cells"),
        ("within = 0.1", "within = 1.5", 29, "1.5", "share"),
        ("untestable = \"another machine\"", "within = 0.1", 35, "0.1", "at_least"),
        ("untestable = \"another machine\"", "at_least = 3\nat_most = 2", 35, "3", "above"),
        ("untestable = \"another machine\"", "", 31, "fast", "bounds"),
        ("untestable = \"another machine\"", "at_least = 1\ngiven = \"b\"", 36, "b", "before"),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let Err(faults) = Folder::new().read(&SCENARIO.replacen(from, to, 1)) else { panic!("{to} is accepted") };
        let first = &faults[0];
        let said = first.to_string();
        assert_eq!((first.line, first.value.as_deref()), (Some(line), Some(value)), "{to}: {said}");
        assert!(said.contains(words) && first.remedy.is_some(), "{to}: {said}");
    }
}

#[test]
fn a_result_that_no_claim_is_about_is_a_fault() {
    let Err(faults) =
        Folder::new().read(&SCENARIO.replace("\"a / b\"", "\"a\"").replace("within = 0.1", "at_least = 0.7"))
    else {
        panic!("b is about nothing");
    };
    assert_eq!((faults.len(), faults[0].value.as_deref()), (1, Some("b")));
}

#[test]
fn faults_of_chain_files_and_of_the_study_are_told_too() {
    let folder = Folder::new();
    folder.write("chain-cells.toml", &CHAIN.replace("kind", "kin"));
    let Err(faults) = folder.read(SCENARIO) else { panic!("kin is no key") };
    assert!(faults[0].file.as_ref().is_some_and(|f| f.ends_with("chain-cells.toml")), "{}", faults[0]);
    let folder = Folder::new();
    folder.write("study.toml", "title = \"x\"\nvenu = \"y\"\n");
    let Err(faults) = folder.read(SCENARIO) else { panic!("venu is no key") };
    assert_eq!((faults[0].line, faults[0].value.as_deref()), (Some(2), Some("venu")), "{}", faults[0]);
}

/// The scenarios that are shipped.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut all = vec![];
    for study in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        let files = std::fs::read_dir(study).unwrap().map(|e| e.unwrap().path());
        all.extend(files.filter(|f| std::fs::read_to_string(f).is_ok_and(|text| Scenario::is(&text))));
    }
    all
}

#[test]
fn every_published_value_of_a_shipped_scenario_is_the_study_s() {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let mut compared = 0;
    for file in shipped() {
        let scenario =
            Scenario::read(&file, &nf::registry()).unwrap_or_else(|f| panic!("{}", diagnostics::Diagnostics(f)));
        let study = scenario.name.split('/').next().unwrap();
        let path = data.join(format!("published/{study}.toml"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            eprintln!("skipped: {} is not there", path.display());
            continue;
        };
        let table: toml::Table = text.parse().unwrap();
        let all = table["result"].as_array().unwrap();
        for p in scenario.published.iter().filter(|p| !p.image) {
            let same = |r: &&toml::Value| r["id"].as_str() == Some(&p.id);
            let theirs =
                all.iter().find(same).unwrap_or_else(|| panic!("{}: the study has no {}", scenario.name, p.id));
            let word = |key: &str| theirs.get(key).and_then(toml::Value::as_str).map(str::to_owned);
            let number = |v: &toml::Value| v.as_float().or(v.as_integer().map(|n| n as f64)).unwrap();
            let mut numbers: Vec<(String, f64)> = match (theirs.get("value"), theirs.get("values")) {
                (Some(toml::Value::Array(all)), _) => {
                    all.iter().enumerate().map(|(n, v)| (n.to_string(), number(v))).collect()
                }
                (Some(one), _) => vec![(String::new(), number(one))],
                (None, Some(all)) => {
                    all.as_table().unwrap().iter().map(|(name, v)| (name.clone(), number(v))).collect()
                }
                (None, None) => vec![],
            };
            let mut values = p.values.clone();
            values.sort_by(|a, b| a.0.cmp(&b.0));
            numbers.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(values, numbers, "{}: {}", scenario.name, p.id);
            let ours = (&p.x, &p.unit, &p.figure, &p.table, &p.conditions, &p.statement);
            let wanted =
                (&word("x"), &word("unit"), &word("figure"), &word("table"), &word("conditions"), &word("statement"));
            assert_eq!(ours, wanted, "{}: {}", scenario.name, p.id);
            compared += 1;
        }
        let shipped = scenario.study.expect("a study.toml");
        let testbed = table["study"]["testbed"].as_str().unwrap();
        assert_eq!(Some(shipped.title.as_str()), table["study"]["title"].as_str());
        assert_eq!(Some(shipped.venue.as_str()), table["study"]["venue"].as_str());
        for (name, said) in shipped.environment.all() {
            assert!(said.is_none_or(|said| testbed.contains(said)), "{name}: {said:?} is not in {testbed:?}");
        }
    }
    assert!(compared > 0 || !data.join("published").is_dir());
}

#[test]
fn devices_in_containers_and_on_other_machines() {
    let with = |device: &str| {
        format!(
            "bondstone = 1\n[scenario]\ntitle = \"a device\"\n[matrix]\nx = [\"container\", \"native\"]\n[dut]\n{device}\n"
        )
    };
    let plan = |scenario: &Scenario, n: usize| match &scenario.cells[n].dut {
        Dut::Rig(rig) => rig.0.clone(),
        _ => panic!("no rig"),
    };
    let scenario = good(&with("kind = \"testpmd\"\nenv = \"${x}\""));
    assert_eq!((plan(&scenario, 0).env, plan(&scenario, 1).env), (Env::Container, Env::Native));
    let far = "kind = \"bridge\"\nprogram = \"sudo ${x}\"\nssh = \"me@there\"\nports = [\"af_packet:a\", \"af_packet:b\"]\n\
               inner = [\"eth1\", \"eth2\"]";
    let elsewhere = plan(&good(&with(far)), 0).elsewhere.unwrap();
    assert_eq!((&*elsewhere.host, &*elsewhere.program), ("me@there", "sudo container"));
    for (device, words) in [
        ("kind = \"testpmd\"\nforward = \"${x}\"".to_owned(), "nothing that a device does"),
        ("kind = \"ovs\"\nenv = \"vm\"".to_owned(), "virtual machines are not started yet"),
        ("kind = \"ovs\"\nenv = \"lxc\"".to_owned(), "nothing that a device runs in"),
        ("kind = \"ovs\"\nenv = \"container\"\nports = \"af_packet\"".to_owned(), "does not go with these ports"),
        ("kind = \"bridge\"\nenv = \"container\"".to_owned(), "is for programs"),
        (format!("{far}\nenv = \"container\""), "is for programs"),
        (far.replace("\"eth1\", ", ""), "not as many interfaces as ports"),
        (far.replace("eth1", "../eth1"), "not as many interfaces as ports"),
        (far.replace("me@there", "-oProxyCommand=x"), "is no host"),
        (far.replace("me@there", "a b"), "is no host"),
        (far.replace("ssh = \"me@there\"", ""), "for a device on another machine"),
        (far.replace("inner", "#"), "is no list of ports"),
        (far.replace("bridge", "external"), "not for a device that somebody else runs"),
        ("kind = \"bridge\"\nssh = \"there\"".to_owned(), "by no interfaces"),
        ("kind = \"bridge\"\ninner = [\"a\", \"b\"]".to_owned(), "no ports at the other end"),
    ] {
        let faults = Folder::new().read(&with(&device)).err().unwrap_or_else(|| panic!("{device}"));
        assert!(faults[0].problem.contains(words) && faults[0].remedy.is_some(), "{device}: {faults:?}");
    }
}
