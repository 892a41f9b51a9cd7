use super::super::{CellDut, Scenario};
use crate::dut::Env;
use std::collections::BTreeSet;
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
filter = "cells"
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
text = "a is three quarters of b"
published = "a / b"
metric = "speed over C"
where = { nf = "cells", cells = [1, 2] }
tolerance = 0.1
[[claim]]
text = "fast"
published = "a"
metric = "throughput"
where = { cells = 2, frames = "imix" }
not_testable = "another machine"
"#;

/// A directory that is removed on drop.
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

fn parse(text: &str) -> Scenario {
    Folder::new().read(text).unwrap_or_else(|errors| panic!("{}", diagnostics::Diagnostics(errors)))
}

#[test]
fn substitutes_the_matrix_in_chain_files() {
    let scenario = parse(SCENARIO);
    assert!(scenario.name.ends_with("/some"), "{}", scenario.name);
    let settings = |n: usize| match &scenario.cells[n].dut {
        CellDut::InProcess(file) => file.text.lines().find(|l| l.starts_with("cells")).unwrap().to_owned(),
        _ => panic!("not a chain"),
    };
    assert_eq!((scenario.cells.len(), settings(0), settings(1)), (2, "cells = 1".to_owned(), "cells = 2".to_owned()));
    assert_eq!(scenario.cells[1].traffic.frame_names(), ["64", "imix"]);
    let claim = &scenario.claims[0];
    let (min, max) = (claim.min.unwrap(), claim.max.unwrap());
    assert!((min - 0.675).abs() < 1e-9 && (max - 0.825).abs() < 1e-9, "{min} {max}");
}

#[test]
fn reads_captures() {
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
    assert_eq!(
        scenario.cells[1].traffic,
        crate::TrafficSpec::Capture(crate::CaptureSpec::file(folder.0.join("lunch.pcap")))
    );
    assert_eq!(scenario.cells[1].traffic.frame_names(), ["lunch.pcap"]);
    for (with, value, words) in [
        ("capture = \"lunch.pcap\"\nflows = 10", "10", "cannot be combined with a capture"),
        ("capture = \"lunch.pcap\"\nframes = \"64\"", "\"64\"", "cannot be combined with a capture"),
        ("capture = \"lunch.pcap\"\nbidirectional = true", "true", "cannot be combined with a capture"),
        ("capture = \"absent.pcap\"", "absent.pcap", "not found"),
        ("capture = \"../lunch.pcap\"", "../lunch.pcap", "without a directory"),
        ("capture = \"no.pcap\"", "no.pcap", "not a capture"),
        ("capture = [\"lunch.pcap\", 7]", "[\"lunch.pcap\", 7]", "a string or a list"),
        ("capture = [\"lunch.pcap\", \"lunch.pcap\", \"lunch.pcap\"]", "3", "not a valid number of captures"),
        ("capture = \"lunch.pcap\"\nrewrite = \"10.0.0.0/8=11.0.0.0/9\"", "10.0.0.0/8=11.0.0.0/9", "maps no prefix"),
        ("capture = \"lunch.pcap\"\nvlan = 5000", "5000", "VLAN"),
        ("capture = \"lunch.pcap\"\nvlan = \"all\"", "all", "VLAN"),
        ("capture = \"lunch.pcap\"\nspeed = 0.0", "0", "times the captured speed"),
        ("capture = \"lunch.pcap\"\ngaps = false\nspeed = 2.0", "2", "own timing"),
        ("gaps = true", "true", "no capture is sent"),
        ("rewrite = []", "[]", "no capture is sent"),
        ("vlan = 7\nspeed = 2.0", "7", "no capture is sent"),
    ] {
        let errors = folder.read(&replace(with)).err().unwrap_or_else(|| panic!("{with}"));
        assert_eq!(errors[0].value.as_deref(), Some(value), "{errors:?}");
        assert!(errors[0].problem.contains(words) && errors[0].remedy.is_some(), "{errors:?}");
    }
}

#[test]
fn reads_rewriting_timing_and_a_second_capture() {
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
    assert!(plain.cells[0].traffic.is_bidirectional() && !plain.cells[0].traffic.keeps_gaps());
    assert_eq!(plain.settings.methods, ["throughput"]);
    let all =
        with(&format!("{both}\nrewrite = [\"10.0.0.0/8=11.0.0.0/8\", \"::/0=::/0\"]\nvlan = \"strip\"\nspeed = 2.0"));
    let crate::TrafficSpec::Capture(captured) = &all.cells[0].traffic else { panic!("{:?}", all.cells[0].traffic) };
    assert_eq!(captured.files, ["lunch.pcap", "back.pcap"].map(|name| folder.0.join(name)));
    assert_eq!(captured.rewrite.to_string(), "10.0.0.0/8=11.0.0.0/8,::/0=::/0");
    assert_eq!((captured.rewrite.tagging, captured.speed), (traffic::Tagging::Strip, Some(2.0)));
    assert_eq!(all.settings.methods, ["load"], "its own rate");
    let tagged = with(&format!("{both}\nvlan = 7\ngaps = true"));
    let crate::TrafficSpec::Capture(captured) = &tagged.cells[0].traffic else {
        panic!("{:?}", tagged.cells[0].traffic)
    };
    assert_eq!((captured.rewrite.tagging, captured.speed), (traffic::Tagging::One(7), Some(1.0)));
}

#[test]
fn reads_traces_stacks_and_short_connections() {
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
        let scenario = parse(&with(more));
        let crate::TrafficSpec::Synthetic { options, .. } = &scenario.cells[0].traffic else { panic!("{more}") };
        assert_eq!(*options, crate::SyntheticOptions::parse(expected.0, expected.1, expected.2, None, &[]).unwrap());
    }
    let scenario = parse(&with("vary = [\"ipv4.dscp=0-63\", \"udp.dst=expr:5:n\"]"));
    let crate::TrafficSpec::Synthetic { options, .. } = &scenario.cells[0].traffic else { panic!("a capture") };
    let vary = ["ipv4.dscp=0-63", "udp.dst=expr:5:n"].map(str::to_owned);
    assert_eq!(*options, crate::SyntheticOptions::parse(None, None, None, None, &vary).unwrap());
    for (more, both) in [
        ("bidirectional = true", true),
        ("bidirectional = false", false),
        ("bidirectional = true\ntrace = \"tr2i\"", true),
    ] {
        assert_eq!(parse(&with(more)).cells[0].traffic.is_bidirectional(), both, "{more}");
    }
    for (more, value, words) in [
        ("trace = \"tr9\"", "tr9", "tr5ul"),
        ("trace = \"tr2i\"\nflows = 5", "tr2i", "its own flows"),
        ("stack = \"eth\"", "eth", "vxlan"),
        ("vary = [\"ipv4.dscp=0-63\", \"udp=5\"]", "udp=5", "no field"),
        ("short = \"10x100\"\norder = \"uniform\"", "10x100", "order"),
        ("bidirectional = true\nshort = \"10x100\"", "10x100", "one direction"),
    ] {
        let Err(errors) = Folder::new().read(&with(more)) else { panic!("{more} is accepted") };
        let message = errors[0].to_string();
        assert_eq!((errors[0].line, errors[0].value.as_deref()), (Some(10), Some(value)), "{more}: {message}");
        assert!(message.contains(words) && errors[0].remedy.is_some(), "{more}: {message}");
    }
}

#[test]
fn cells_that_need_an_unknown_nf_are_unavailable() {
    let scenario = parse(&SCENARIO.replace("needs = [\"cells\"]", "needs = [\"cells\", \"teleport\"]"));
    assert!(
        scenario.cells.iter().all(|c| matches!(&c.dut, CellDut::Unavailable(reason) if reason.contains("teleport")))
    );
}

#[test]
fn errors_have_line_value_and_remedy() {
    for (from, to, line, value, words) in [
        ("bondstone = 1", "bondstone = 7", 2, "7", "format"),
        ("title = ", "titel = ", 4, "titel", "title"),
        ("flows = 10", "flows = 0", 10, "0", "flows"),
        ("64,imix\"", "64,imax\"", 9, "imax", "imix"),
        ("cells = [1, 2]\n[native]", "cells = [1, 1]\n[native]", 12, "[1, 1]", "duplicate"),
        ("cells = [1, 2]\n[native]", "cells = [1, true]\n[native]", 12, "[1, true]", "number"),
        ("cells = [1, 2]\n[native]", "cells = []\n[native]", 12, "[]", "number of values"),
        ("cells = [1, 2]\n[native]", "cells = [1, 2]\nflows = 3\n[native]", 13, "flows", "[traffic]"),
        ("cells = [1, 2]\n[native]", "cells = [1, 2]\nidle = [3, 4]\n[native]", 13, "idle", "unused"),
        ("chain-cells.toml", "../chain-cells.toml", 6, "../chain-cells.toml", "directory"),
        ("chain-cells.toml", "chain-${sells}.toml", 6, "${sells}", "cells"),
        ("pairs = 100", "pairs = 1", 15, "1", "20"),
        ("id = \"b\"", "id = \"a\"", 21, "a", "duplicate"),
        ("unit = \"Mpps\"\n[[claim]]", "[[claim]]", 21, "b", "unit"),
        ("\"a / b\"", "\"a / bb\"", 26, "bb", "\"b\""),
        ("\"throughput\"", "\"thruput\"", 33, "thruput", "throughput"),
        ("cells = 2, frames", "cells = 3, frames", 34, "3", "1, 2"),
        ("cells = 2, frames", "sells = 2, frames", 34, "sells", "cells"),
        ("tolerance = 0.1", "tolerance = 1.5", 29, "1.5", "share"),
        ("not_testable = \"another machine\"", "tolerance = 0.1", 35, "0.1", "min"),
        ("not_testable = \"another machine\"", "min = 3\nmax = 2", 35, "3", "above"),
        ("not_testable = \"another machine\"", "", 31, "fast", "bounds"),
        ("not_testable = \"another machine\"", "min = 1\nrequires = \"b\"", 36, "b", "before"),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let Err(errors) = Folder::new().read(&SCENARIO.replacen(from, to, 1)) else { panic!("{to} is accepted") };
        let first = &errors[0];
        let message = first.to_string();
        assert_eq!((first.line, first.value.as_deref()), (Some(line), Some(value)), "{to}: {message}");
        assert!(message.contains(words) && first.remedy.is_some(), "{to}: {message}");
    }
}

#[test]
fn the_quick_form_measures_a_part_and_judges_it() {
    let with = |quick: &str| {
        parse(&SCENARIO.replace("[[published]]\nid = \"a\"", &format!("{quick}[[published]]\nid = \"a\"")))
    };
    let mut scenario = with("[quick]\ncells = 2\nframes = \"imix\"\n");
    assert_eq!(scenario.cells.len(), 2);
    scenario.reduce_to_quick();
    let [cell] = &scenario.cells[..] else { panic!("{}", scenario.cells.len()) };
    assert_eq!((&*cell.parameters["cells"], cell.traffic.frame_names()), ("2", vec!["imix".to_owned()]));
    assert!(cell.settings.goal.sum_s() < 0.3 && scenario.native.as_ref().is_some_and(|native| native.pairs == 60));
    assert_eq!(scenario.claims[1].not_testable.as_deref(), Some("another machine"));
    let mut scenario = parse(
        &SCENARIO
            .replace("where = { cells = 2,", "where = { cells = [1, 2],")
            .replace("[native]", "[quick]\ncells = 2\n[native]"),
    );
    scenario.reduce_to_quick();
    assert!(scenario.claims[1].note.as_ref().unwrap().contains("a part of its values"), "{:?}", scenario.claims[1]);
    // all values are left without the table, and a claim about others has no verdict
    let mut scenario = with("");
    scenario.reduce_to_quick();
    assert_eq!((scenario.cells.len(), scenario.cells[0].traffic.frame_names().len()), (2, 2));
    let bounded = SCENARIO.replace("not_testable = \"another machine\"", "min = 1\n[quick]\ncells = [1]");
    let mut scenario = parse(&bounded);
    scenario.reduce_to_quick();
    assert_eq!(scenario.claims[1].not_testable.as_deref(), Some("its values are not part of the quick form"));
    let wrong = Folder::new().read(&SCENARIO.replace("[native]", "[quick]\ncells = 3\n[native]")).err().unwrap();
    assert!(wrong[0].problem.contains("no cell has this value"), "{wrong:?}");
}

#[test]
fn rejects_a_published_result_without_a_claim() {
    let Err(errors) =
        Folder::new().read(&SCENARIO.replace("\"a / b\"", "\"a\"").replace("tolerance = 0.1", "min = 0.7"))
    else {
        panic!("no claim refers to b");
    };
    assert_eq!((errors.len(), errors[0].value.as_deref()), (1, Some("b")));
}

#[test]
fn reports_errors_of_chain_files_and_of_the_study() {
    let folder = Folder::new();
    folder.write("chain-cells.toml", &CHAIN.replace("kind", "kin"));
    let Err(errors) = folder.read(SCENARIO) else { panic!("kin is accepted") };
    assert!(errors[0].file.as_ref().is_some_and(|f| f.ends_with("chain-cells.toml")), "{}", errors[0]);
    let folder = Folder::new();
    folder.write("study.toml", "title = \"x\"\nvenu = \"y\"\n");
    let Err(errors) = folder.read(SCENARIO) else { panic!("venu is accepted") };
    assert_eq!((errors[0].line, errors[0].value.as_deref()), (Some(2), Some("venu")), "{}", errors[0]);
}

/// Returns the shipped scenarios.
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
fn published_values_of_shipped_scenarios_match_the_studies() {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let mut claimed = BTreeSet::new();
    for file in shipped() {
        let scenario =
            Scenario::read(&file, &nf::registry()).unwrap_or_else(|f| panic!("{}", diagnostics::Diagnostics(f)));
        let study = scenario.name.split('/').next().unwrap();
        let path = data.join(format!("published/{study}.toml"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            eprintln!("skipped: {} not found", path.display());
            continue;
        };
        let table: toml::Table = text.parse().unwrap();
        let all = table["result"].as_array().unwrap();
        for p in scenario.published.iter().filter(|p| !p.image) {
            let same = |r: &&toml::Value| r["id"].as_str() == Some(&p.id);
            let theirs = all
                .iter()
                .find(same)
                .unwrap_or_else(|| panic!("{}: unknown result of the study: {}", scenario.name, p.id));
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
            claimed.insert(format!("{study}/{}", p.id));
        }
        let shipped = scenario.study.expect("a study.toml");
        let testbed = table["study"]["testbed"].as_str().unwrap();
        assert_eq!(Some(shipped.title.as_str()), table["study"]["title"].as_str());
        assert_eq!(Some(shipped.venue.as_str()), table["study"]["venue"].as_str());
        for (name, value) in shipped.environment.facts() {
            assert!(value.is_none_or(|value| testbed.contains(value)), "{name}: {value:?} is not in {testbed:?}");
        }
    }
    // every published result has a claim
    for study in std::fs::read_dir(data.join("published")).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let name = study.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&study).unwrap();
        let ids = text.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
        let missing: Vec<&str> = ids.filter(|id| !claimed.contains(&format!("{name}/{id}"))).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

#[test]
fn reads_devices_in_containers_and_on_remote_hosts() {
    let with = |device: &str| {
        format!(
            "bondstone = 1\n[scenario]\ntitle = \"a device\"\n[matrix]\nx = [\"container\", \"native\"]\n[dut]\n{device}\n"
        )
    };
    let spec = |scenario: &Scenario, n: usize| match &scenario.cells[n].dut {
        CellDut::External(external) => external.0.clone(),
        _ => panic!("not an external device"),
    };
    let scenario = parse(&with("kind = \"testpmd\"\nenv = \"${x}\""));
    assert_eq!((spec(&scenario, 0).env, spec(&scenario, 1).env), (Env::Container, Env::Native));
    let far = "kind = \"bridge\"\nprogram = \"sudo ${x}\"\nssh = \"me@there\"\nports = [\"af_packet:a\", \"af_packet:b\"]\n\
               interfaces = [\"eth1\", \"eth2\"]";
    let remote = spec(&parse(&with(far)), 0).remote.unwrap();
    assert_eq!((&*remote.host, &*remote.program), ("me@there", "sudo container"));
    for (device, words) in [
        ("kind = \"testpmd\"\nforward = \"${x}\"".to_owned(), "unknown forwarding behaviour"),
        ("kind = \"ovs\"\nenv = \"vm\"".to_owned(), "virtual machines cannot be started"),
        ("kind = \"ovs\"\nenv = \"lxc\"".to_owned(), "unknown environment"),
        ("kind = \"ovs\"\nenv = \"container\"\nports = \"af_packet\"".to_owned(), "does not support these ports"),
        ("kind = \"bridge\"\nenv = \"container\"".to_owned(), "not supported"),
        (format!("{far}\nenv = \"container\""), "not supported"),
        (far.replace("\"eth1\", ", ""), "as many interfaces as ports"),
        (far.replace("eth1", "../eth1"), "as many interfaces as ports"),
        (far.replace("me@there", "-oProxyCommand=x"), "invalid host"),
        (far.replace("me@there", "a b"), "invalid host"),
        (far.replace("ssh = \"me@there\"", ""), "on a remote host only"),
        (far.replace("interfaces", "#"), "invalid list of ports"),
        (far.replace("bridge", "external"), "cannot be set for an external device"),
        ("kind = \"bridge\"\nssh = \"there\"".to_owned(), "needs interfaces"),
        ("kind = \"bridge\"\ninterfaces = [\"a\", \"b\"]".to_owned(), "needs a list of ports"),
    ] {
        let errors = Folder::new().read(&with(&device)).err().unwrap_or_else(|| panic!("{device}"));
        assert!(errors[0].problem.contains(words) && errors[0].remedy.is_some(), "{device}: {errors:?}");
    }
}
