//! Profiles on the command line: streams whose rates a script sets for every second.

use crate::common::{Said, Scratch, bondstone, has_cpu_0_and_another};
use report::Result;
use std::path::{Path, PathBuf};

/// Chains in both directions between two ports.
const CHAIN: &str = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                     chain = [{ path = [\"a\", \"count\", \"b\"], cores = [0] }, { path = [\"b\", \"a\"], cores = [0] }]\n";

/// Three streams: one sends only in one second, and one is sent into the second port.
const SCRIPT: &str = "fn streams() {
    [
        #{ name: \"web\", frames: \"imix\", flows: 100 },
        #{ name: \"dns\", frames: \"128\", flows: 10 },
        #{ name: \"back\", port: 1 },
    ]
}
fn at(second) {
    let rates = #{ web: #{ rate: 2000 * (second + 1) }, back: #{ share: 0.0001 } };
    if second == 1 { rates.dns = #{ rate: 500.5, frames: \"256\", flows: 20 }; }
    rates
}
fn seconds() { 3 }
";

fn bench(scratch: &Scratch, file: &Path, arguments: &[&str]) -> Said {
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(fixed.iter().chain(arguments).copied())
}

/// Reads the result documents and checks that every packet of every stream and second is accounted for.
#[track_caller]
fn results(said: &Said) -> Vec<Result> {
    assert_eq!(said.status, Some(0), "{}", said.err);
    let all = said.results();
    all.iter().for_each(assert_accounts);
    all
}

fn assert_accounts(result: &Result) {
    let [trial] = &result.trials[..] else { panic!("one trial, not {}", result.trials.len()) };
    let profile = result.traffic.profile.as_ref().expect("it has a profile");
    let seconds = profile.duration_s as usize;
    assert_eq!((trial.duration_s, &*result.method.name), (seconds as f64, "profile"));
    let mut sums = [0; 5];
    for s in &result.streams {
        assert_eq!(
            (s.sent + s.unsent, s.received + s.lost, s.per_second.len()),
            (s.intended, s.sent, seconds),
            "{s:?}"
        );
        let of = |n: usize| s.per_second.iter().map(|second| second[n]).sum::<u64>();
        assert_eq!((of(0), of(1), of(2)), (s.intended, s.sent, s.received), "{s:?}");
        assert_eq!(s.latency.is_some(), s.received != 0, "{s:?}");
        for (sum, n) in sums.iter_mut().zip([s.intended, s.sent, s.unsent, s.received, s.lost]) {
            *sum += n;
        }
    }
    assert_eq!(sums, [trial.intended, trial.sent, trial.unsent, trial.received, trial.lost]);
    assert_eq!((trial.duplicate, trial.corrupt, trial.reordered), (0, 0, 0));
    if result.dut.kind == "bondstone" {
        let preempted = trial.poll_gap_max_ns > 100_000;
        assert!(preempted || trial.lost + trial.unsent == 0, "lost without host interference: {trial:?}");
    }
    let curve = |name: &str| {
        let series = result.series.iter().find(|s| s.name == format!("{name} over time")).expect(name);
        assert_eq!(series.points.len(), seconds);
        series.points.iter().map(|p| p[1] as u64).collect::<Vec<_>>()
    };
    let sum = |n: usize| -> Vec<u64> {
        (0..seconds).map(|second| result.streams.iter().map(|s| s.per_second[second][n]).sum()).collect()
    };
    assert_eq!((curve("offered"), curve("received")), (sum(0), sum(2)));
    assert_eq!(curve("lost").iter().sum::<u64>(), trial.lost);
}

#[test]
fn sends_streams_as_the_script_specifies() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = scratch.write("chain.toml", CHAIN);
    let script = scratch.write("three.rhai", SCRIPT);
    let with = ["--profile", script.to_str().unwrap(), "--json"];
    let said = bench(&scratch, &chain, &with);
    let [result] = &results(&said)[..] else { panic!("{}", said.out) };
    let of = |name: &str| result.streams.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no {name}"));
    let each = |name: &str| of(name).per_second.iter().map(|second| second[0]).collect::<Vec<_>>();
    assert_eq!(each("web"), [2000, 4000, 6000]);
    // 10 Gbit/s carry 14,880,952 frames of 64 bytes
    assert_eq!((each("dns"), each("back")), (vec![0, 500, 0], vec![1488; 3]));
    assert_eq!((of("dns").flows, &*of("dns").frames, of("dns").port), (20, "256", 0));
    assert_eq!((of("back").flows, &*of("back").frames, of("back").port), (1, "64", 1));
    // both directions forward
    assert!(result.streams.iter().all(|s| s.received > 0), "{:?}", result.streams);
    let profile = result.traffic.profile.as_ref().unwrap();
    assert_eq!((profile.script.as_deref(), profile.duration_s), (Some(SCRIPT), 3));
    assert_eq!((&*profile.name, profile.line_rate_bps), ("three.rhai", Some(10e9)));
    assert_eq!((result.traffic.flows, result.traffic.directions), (121, 1));
    assert!(said.err.contains("three.rhai: 3 s of web, dns, back"), "{}", said.err);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(["Streams over time", "offered over time", "fn seconds() { 3 }"].iter().all(|text| page.contains(text)));
    // a shorter one, as a table
    let said = bench(&scratch, &chain, &["--profile", script.to_str().unwrap(), "--seconds", "1", "--line", "1G"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(said.out.contains("over time") && said.out.contains("back"), "{}", said.out);
    let exported = bondstone(["results", "list", "--json", "--db", scratch.path("results.sqlite").to_str().unwrap()]);
    assert_eq!(exported.status, Some(0), "{}", exported.err);
}

#[test]
fn a_scenario_sends_a_profile_once_per_repetition() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("chain.toml", CHAIN);
    scratch.write("three.rhai", SCRIPT);
    let text = "bondstone = 1\n[scenario]\ntitle = \"streams\"\n[dut]\nchain = \"chain.toml\"\n\
                [traffic]\nprofile = \"three.rhai\"\nduration_s = 1\n[goal]\nrepeat = 2\n";
    let file = scratch.write("scenario.toml", text);
    let all = results(&bench(&scratch, &file, &["--json"]));
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].traffic, all[1].traffic);
    assert!(all.iter().all(|r| r.trials[0].intended == 2000 + 1488));
    // with another duration
    let longer = results(&bench(&scratch, &file, &["--seconds", "2", "--json"]));
    assert_eq!(longer[0].trials[0].intended, 2000 + 4000 + 500 + 2 * 1488);
}

#[test]
fn sends_a_profile_to_another_program() {
    let _one = crate::common::alone();
    let there = |program: &str| ["/usr/bin", "/usr/sbin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !has_cpu_0_and_another() || !there("dpdk-testpmd") {
        return eprintln!("skipped: needs dpdk-testpmd");
    }
    let scratch = Scratch::new();
    scratch.write("three.rhai", SCRIPT);
    let text = "bondstone = 1\n[scenario]\ntitle = \"streams\"\n[dut]\nkind = \"testpmd\"\n\
                [traffic]\nprofile = \"three.rhai\"\nduration_s = 2\n";
    let all = results(&bench(&scratch, &scratch.write("scenario.toml", text), &["--json"]));
    assert_eq!(all[0].dut.kind, "testpmd");
    let received: u64 = all[0].streams.iter().map(|s| s.received).sum();
    assert!(received * 2 > all[0].trials[0].sent, "most are received: {:?}", all[0].streams);
    assert!(all[0].streams.iter().all(|s| s.received > 0), "of both ports: {:?}", all[0].streams);
}

/// Returns the example profiles.
fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/profiles");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == "rhai")).collect();
    all.sort();
    assert!(all.len() >= 4, "{all:?}");
    all
}

#[test]
fn streams_have_headers_of_their_own() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let script = "fn streams() { [
        #{ name: \"v4\", stack: \"eth/ipv4/tcp\" , frames: \"128\" },
        #{ name: \"v6\", stack: \"eth/vlan:7/ipv6/udp\", frames: \"128\", vary: [\"vlan.id=1-4000\", \"ipv6.src=2001:db8::1|2001:db9::2\"] },
        #{ name: \"back\", port: 1, frames: \"128\", stack: \"gtpu:5(ipv4/udp)\", vary: [\"gtpu.teid=1-9\"] },
    ] }
    fn at(second) { #{ v4: #{ rate: 1000 }, v6: #{ rate: 2000 }, back: #{ rate: 500 } } }";
    let scratch = Scratch::new();
    let chain = scratch.write("chain.toml", CHAIN);
    let path = scratch.write("s.rhai", script);
    let said = bench(&scratch, &chain, &["--profile", path.to_str().unwrap(), "--seconds", "1", "--json"]);
    let [result] = &results(&said)[..] else { panic!("{}", said.out) };
    assert_eq!(result.streams.iter().map(|s| s.intended).collect::<Vec<_>>(), [1000, 2000, 500]);
    assert!(result.streams.iter().all(|s| s.received > 0 && s.latency.is_some()), "{:?}", result.streams);
    for (from, to, words) in [
        ("eth/ipv4/tcp", "eth/ipv4", "no header stack"),
        ("vlan.id=1-4000", "vlan.id=1-", "no field with values"),
        ("gtpu.teid=1-9", "vxlan.vni=1-9", "no field `vxlan.vni`"),
        ("[\"gtpu.teid=1-9\"]", "7", "vary is not a list"),
    ] {
        let path = scratch.write("s.rhai", script.replace(from, to));
        let said = bench(&scratch, &chain, &["--profile", path.to_str().unwrap(), "--seconds", "1"]);
        assert_eq!(said.status, Some(2), "{to}: {}", said.err);
        assert!(said.err.contains(words) && said.err.contains("s.rhai"), "{to}: {}", said.err);
    }
}

#[test]
fn sends_every_example() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = scratch.write("chain.toml", CHAIN);
    for script in examples() {
        let said = bench(&scratch, &chain, &["--profile", script.to_str().unwrap(), "--seconds", "2", "--json"]);
        let [result] = &results(&said)[..] else { panic!("{}: {}", script.display(), said.out) };
        assert!(result.streams.iter().any(|s| s.sent > 0), "{}", script.display());
    }
}

#[test]
fn errors_have_a_position_and_a_remedy() {
    let scratch = Scratch::new();
    let chain = scratch.write("chain.toml", CHAIN);
    let one = "fn streams() { [#{ name: \"a\" }] }\n";
    for (script, words) in [
        ("fn streams() { [", &["s.rhai:1:", "help:"][..]),
        ("fn at(second) { #{} }", &["s.rhai", "no function streams", "help:"]),
        (&format!("{one}\nfn at(second) {{ #{{ b: #{{ rate: 1 }} }} }}"), &["s.rhai:3:", "\"b\"", "second 0", "help:"]),
        (
            &format!("{one}fn at(second) {{ #{{ a: #{{ rate: if second == 5 {{ -1 }} else {{ 9 }} }} }} }}"),
            &["s.rhai:2:", "\"-1\"", "second 5", "help:"],
        ),
        (&format!("{one}fn at(second) {{ loop {{ }} }}"), &["s.rhai:2:", "operations", "help:"]),
        (&format!("{one}fn at(second) {{ at(second) }}"), &["s.rhai:2:", "help:"]),
        (&format!("{one}fn at(second) {{ let x = \"ab\"; loop {{ x += x; }} }}"), &["s.rhai:2:", "help:"]),
        (&format!("{one}fn at(second) {{ #{{}} }}"), &["s.rhai:2:", "60 s", "help:"]),
    ] {
        let path = scratch.write("s.rhai", script);
        let said = bench(&scratch, &chain, &["--profile", path.to_str().unwrap()]);
        assert_eq!(said.status, Some(2), "{script}\n{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{script}\n{}", said.err);
        // and in a scenario
        let text = "bondstone = 1\n[scenario]\ntitle = \"s\"\n[dut]\nchain = \"chain.toml\"\n[traffic]\nprofile = \"s.rhai\"\n";
        let said = bench(&scratch, &scratch.write("scenario.toml", text), &[]);
        assert_eq!(said.status, Some(2), "{script}\n{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{script}\n{}", said.err);
    }
    let good = scratch.write("s.rhai", format!("{one}fn at(second) {{ #{{ a: #{{ rate: 9 }} }} }}"));
    let good = good.to_str().unwrap();
    for (arguments, words) in [
        (&["--profile", "/nowhere/at-all.rhai"][..], &["/nowhere/at-all.rhai", "cannot be read"][..]),
        (&["--profile", good, "--seconds", "0"], &["--seconds", "0"]),
        (&["--profile", good, "--rate", "1000"], &["--profile", "--rate"]),
        (&["--profile", good, "--frames", "64"], &["--profile", "--frames"]),
        (&["--seconds", "5"], &["--seconds", "--profile"]),
        (&["--method", "profile"], &["profile", "--profile SCRIPT"]),
    ] {
        let said = bench(&scratch, &chain, arguments);
        assert_eq!(said.status, Some(2), "{arguments:?}\n{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{arguments:?}\n{}", said.err);
    }
    // a simulated device does not support streams
    for (more, words) in [
        ("profile = \"s.rhai\"\nframes = \"64\"\n", &["scenario.toml:8:", "cannot be combined with a profile"][..]),
        ("profile = \"s.rhai\"\nduration_s = 20000\n", &["scenario.toml:8:", "20000"]),
        ("profile = \"away.rhai\"\n", &["scenario.toml:7:", "away.rhai"]),
        ("duration_s = 5\n", &["scenario.toml:7:", "length of a profile"]),
        ("profile = \"s.rhai\"\n[goal]\nmethods = [\"loss\"]\n", &["scenario.toml:9:", "cannot send a profile"]),
        ("[goal]\nmethods = [\"profile\"]\n", &["scenario.toml:8:", "needs a profile"]),
    ] {
        let text =
            format!("bondstone = 1\n[scenario]\ntitle = \"s\"\n[dut]\nsimulated = \"capacity=2e6\"\n[traffic]\n{more}");
        let said = bench(&scratch, &scratch.write("scenario.toml", text), &[]);
        assert_eq!(said.status, Some(2), "{more}\n{}", said.err);
        assert!(words.iter().all(|word| said.err.contains(word)), "{more}\n{}", said.err);
    }
    let text = "bondstone = 1\n[scenario]\ntitle = \"s\"\n[dut]\nsimulated = \"capacity=2e6\"\n[traffic]\nprofile = \"s.rhai\"\n";
    let said = bench(&scratch, &scratch.write("scenario.toml", text), &[]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.err.contains("not measured") && said.err.contains("simulated device"), "{}", said.err);
}

#[test]
fn compares_only_results_of_the_same_script() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = scratch.write("chain.toml", CHAIN);
    let db = scratch.path("results.sqlite");
    let mut ids = vec![];
    for (n, script) in [SCRIPT.to_owned(), SCRIPT.to_owned(), SCRIPT.replace("2000 *", "2001 *")].iter().enumerate() {
        let path = scratch.write("three.rhai", script);
        let said = bench(&scratch, &chain, &["--profile", path.to_str().unwrap(), "--seconds", "1", "--json"]);
        ids.push(results(&said)[0].id.clone());
        assert_eq!(ids.len(), n + 1);
    }
    let compare = |a: &str, b: &str| bondstone(["results", "compare", a, b, "--db", db.to_str().unwrap()]);
    let same = compare(&ids[0], &ids[1]);
    assert_eq!(same.status, Some(0), "{}", same.err);
    let other = compare(&ids[0], &ids[2]);
    assert_eq!(other.status, Some(2), "{}", other.out);
    assert!(other.err.contains("profile: A has three.rhai (") && other.err.contains(", 1 s"), "{}", other.err);
}
