//! Methods on the command line, with simulated DUTs.

use crate::common::{Said, Scratch, alone, bondstone};

const ALL: &str = "throughput,latency,loss,back-to-back,recovery,reset,delay-variation,soak,changes";

fn bench(scratch: &Scratch, scenario: &str, arguments: &[&str]) -> Said {
    let file = scratch.write("scenario.toml", scenario);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(fixed.iter().chain(arguments).copied())
}

fn scenario(device: &str, more: &str) -> String {
    format!("bondstone = 1\n[scenario]\ntitle = \"numbers\"\n[dut]\nsimulated = \"{device}\"\n{more}\n")
}

#[test]
fn every_method_finds_the_properties_of_a_simulated_dut() {
    let scratch = Scratch::new();
    let device = scenario("capacity=3.3e6,buffer=900,reset=0.2,change=1e-4", "");
    let said = bench(&scratch, &device, &["--method", ALL, "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let results = said.results();
    let names: Vec<&str> = results.iter().map(|r| r.method.name.as_str()).collect();
    assert_eq!(names.join(","), ALL);
    let of = |method: &str, name: &str| {
        let result = results.iter().find(|r| r.method.name == method).unwrap();
        result.quantity(name).unwrap_or_else(|| panic!("{method} has no {name}: {:?}", result.quantities)).value
    };
    // in trials of 50 ms the buffer absorbs an excess of half a per cent
    let throughput = results[0].summary.lower_pps;
    assert!((3.2e6..3.35e6).contains(&throughput), "{throughput}");
    // corrected for the packets that are forwarded during the burst (RFC 9004)
    assert!((of("back-to-back", "corrected buffer") - 900.0).abs() < 40.0);
    let by_loss = of("reset", "reset time by frames lost");
    assert!((0.19..0.22).contains(&by_loss), "{by_loss}");
    let blocked = of("changes", "blocked time of a change at 10000 per second");
    assert!((0.9e-4..1.1e-4).contains(&blocked), "{blocked}");
    assert!(
        results.iter().all(|r| r.summary.lower_pps > 0.0 && r.limited_by == report::LimitedBy::Dut),
        "all of one DUT"
    );
    assert!(results.iter().any(|r| r.method.name == "loss" && !r.series.is_empty()));
    assert!(results.iter().all(|r| r.method.quick && !r.deviations.is_empty()), "the quick form lists its deviations");
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.contains("corrected buffer") && page.contains("loss over load"));
}

#[test]
fn connections_have_the_requested_number_of_packets() {
    let scratch = Scratch::new();
    let device = scenario("capacity=2e6", "");
    let said = bench(&scratch, &device, &["--method", "connections", "--short", "4x64", "--frames", "128", "--json"]);
    let found = &said.results()[0];
    let cps = found.quantity("connections").unwrap().value;
    assert!((cps * 4.0 - found.summary.lower_pps).abs() < 4.0, "{cps}");
    let said = bench(&scratch, &device, &["--method", "connections", "--json"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("--short"), "{}", said.err);
}

#[test]
fn addresses_of_a_switch_are_counted() {
    let _alone = alone();
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.one.device = \"ring:one\"\nport.two.device = \"ring:two\"\n\
                 nf.switch = { kind = \"bridge\", ports = [\"one\", \"two\"], mac_entries = 500 }\n\
                 [[chain]]\npath = [\"one\", \"switch\"]\n[[chain]]\npath = [\"two\", \"switch\"]\n";
    let table = bench(&scratch, chain, &["--frames", "64", "--flows", "2k", "--method", "address-table", "--json"]);
    let found = table.results().remove(0);
    let learned = found.quantity("addresses learned").unwrap().value;
    // one is the generator's own
    assert!((480.0..=499.0).contains(&learned) && found.limited_by == report::LimitedBy::Dut, "{learned}");
    let chain = chain.replace("mac_entries = 500", "mac_entries = 100000");
    let rate = bench(&scratch, &chain, &["--frames", "64", "--flows", "2k", "--method", "learning-rate", "--json"]);
    let found = rate.results().remove(0);
    assert!(found.quantity("addresses learned").unwrap().value >= 2000.0, "{:?}", found.deviations);
    let said = bench(&scratch, &chain, &["--tcp", "response=5", "--method", "address-table"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("no flows"), "{}", said.err);
}

#[test]
fn the_line_rate_limits_the_load() {
    let scratch = Scratch::new();
    let device = scenario("capacity=9e6", "");
    let said = bench(&scratch, &device, &["--line", "1G", "--frames", "1518", "--json"]);
    let found = said.results().remove(0);
    assert!(found.summary.lower_pps < 81_275.0, "{}", found.summary.lower_pps);
}

#[test]
fn full_form_and_other_searches() {
    let scratch = Scratch::new();
    let device = scenario("capacity=3.3e6", "");
    let said = bench(&scratch, &device, &["--method", "throughput", "--full", "--json"]);
    let full = &said.results()[0];
    assert!(!full.method.quick && full.goal.is_rfc2544(), "{:?}", full.goal);
    assert_eq!(full.latency.len(), 5);
    for search in ["binary", "verified,r=2", "binary,step=10000"] {
        let said = bench(&scratch, &device, &["--search", search, "--json"]);
        let found = said.results()[0].summary.lower_pps;
        assert!((3.2e6..=3.3e6 * 1.001).contains(&found), "{search}: {found}");
    }
}

#[test]
fn a_scenario_sets_methods_and_repetitions() {
    let scratch = Scratch::new();
    let more = "[goal]\nmethods = [\"throughput\", \"loss\"]\nrepeat = 3\nsearch = \"binary\"\n";
    let said = bench(&scratch, &scenario("capacity=2e6", more), &["--json"]);
    let results = said.results();
    assert_eq!(results.len(), 6);
    assert!(results.iter().all(|r| r.goal.search.starts_with("bisection")), "{}", results[0].goal.search);
    assert!(said.err.contains("[2/3, about "), "{}", said.err);
}

#[test]
fn unsupported_methods_do_not_prevent_others() {
    let scratch = Scratch::new();
    // this DUT does not support a reset
    let said = bench(&scratch, &scenario("capacity=2e6", ""), &["--method", "reset,throughput", "--json"]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.err.contains("not measured") && said.err.contains("reset"), "{}", said.err);
    assert_eq!(said.results().len(), 1);
    // and this DUT does not start
    let two = "bondstone = 1\n[scenario]\ntitle = \"two\"\n[[dut]]\nname = \"none\"\nkind = \"external\"\n\
               ports = [\"af_packet:not-there0\", \"af_packet:not-there1\"]\n[[dut]]\nname = \"numbers\"\nsimulated = \"capacity=2e6\"\n";
    let said = bench(&scratch, two, &["--json"]);
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.contains("none") && said.err.contains("help:"), "{}", said.err);
    assert_eq!(said.results().len(), 1);
}

#[test]
fn errors_name_the_valid_words() {
    let scratch = Scratch::new();
    let good = scenario("capacity=2e6", "");
    for (arguments, words) in [
        (&["--method", "speed"][..], &["speed", "back-to-back"][..]),
        (&["--method", "load"], &["load", "--rate"]),
        (&["--search", "guess"], &["guess"]),
        (&["--line", "10X"], &["10X"]),
    ] {
        let said = bench(&scratch, &good, arguments);
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(words.iter().all(|w| said.err.contains(w)), "{}", said.err);
    }
    for (text, words) in [
        (scenario("capacity=fast", ""), &["capacity=fast", ":5:"][..]),
        (scenario("capacity=2e6", "[goal]\nmethods = [\"speed\"]\n"), &["speed", "unknown method"]),
        (scenario("capacity=2e6", "[goal]\nthoroughness = \"slow\"\n"), &["slow", "quick"]),
        (scenario("capacity=2e6", "[goal]\nrepeat = 1000\n"), &["1000", "out of range"]),
        (scenario("capacity=2e6", "kind = \"ovs\"\n"), &["cannot be combined"]),
        (good.replace("simulated = \"capacity=2e6\"", "kind = \"cisco\""), &["cisco", "testpmd"]),
        (
            good.replace("simulated = \"capacity=2e6\"", "kind = \"ovs\"\nports = \"token-ring\""),
            &["token-ring", "vhost-user"],
        ),
        (good.replace("simulated = \"capacity=2e6\"", "kind = \"command\""), &["command", "start ="]),
        (good.replace("simulated = \"capacity=2e6\"", ""), &["names no device"]),
    ] {
        let said = bench(&scratch, &text, &[]);
        assert_eq!(said.status, Some(2), "{text}\n{}", said.err);
        assert!(words.iter().all(|w| said.err.contains(w)), "{text}\n{}", said.err);
    }
}
