//! Matrices on the command line: every cell is measured once, whatever the end of the others.

use crate::common::{Said, Scratch, bondstone};
use report::Result;
use std::collections::BTreeSet;

const HEAD: &str = "bondstone = 1\n[scenario]\ntitle = \"numbers\"\n";

fn run(scratch: &Scratch, command: &[&str]) -> Said {
    let db = scratch.path("results.sqlite");
    bondstone(command.iter().copied().chain(["--db", db.to_str().unwrap()]))
}

fn bench(scratch: &Scratch, scenario: &str, arguments: &[&str]) -> Said {
    let file = scratch.write("scenario.toml", scenario);
    let page = scratch.path("report.html");
    let fixed = ["bench", file.to_str().unwrap(), "--json", "--report", page.to_str().unwrap()];
    run(scratch, &fixed.iter().chain(arguments).copied().collect::<Vec<_>>())
}

#[test]
fn resume_measures_only_missing_results() {
    let scratch = Scratch::new();
    let devices = |capacity: &str| {
        format!(
            "{HEAD}[dut]\nsimulated = \"capacity=${{capacity}},noise=normal:0.01\"\n[matrix]\ncapacity = [1e6, 2e6, {capacity}]\n\
             [traffic]\nframes = \"64,512\"\n"
        )
    };
    let scenario = devices("3e6");
    let first = bench(&scratch, &scenario, &[]);
    assert_eq!(first.status, Some(0), "{}", first.err);
    let all = first.results();
    assert_eq!(all.len(), 6);
    // two results are missing, as after an interruption
    let gone: Vec<&str> = [&all[3], &all[4]].iter().map(|r| r.id.as_str()).collect();
    assert_eq!(run(&scratch, &["results", "rm", gone[0], gone[1], "--yes"]).status, Some(0));
    let again = bench(&scratch, &scenario, &["--resume"]);
    assert_eq!(again.status, Some(0), "{}", again.err);
    assert!(again.err.contains("4 results are reused"), "{}", again.err);
    let ids = |all: &[Result]| all.iter().map(|r| r.id.clone()).collect::<BTreeSet<_>>();
    let (before, after) = (ids(&all), ids(&again.results()));
    assert_eq!((after.len(), before.intersection(&after).count()), (6, 4));
    let capacities = |all: &[Result]| {
        let mut all: Vec<_> = all.iter().map(|r| (r.cell["capacity"].clone(), r.traffic.frames.label())).collect();
        all.sort();
        all
    };
    assert_eq!(capacities(&again.results()), capacities(&all));
    let other = bench(&scratch, &devices("4e6"), &["--resume"]);
    assert!(other.err.contains("nothing to resume"), "{}", other.err);
    assert_eq!(other.results().len(), 6);
}

#[test]
fn a_failing_cell_does_not_end_the_session() {
    let scratch = Scratch::new();
    let scenario = format!(
        "{HEAD}[[dut]]\nname = \"gone\"\nkind = \"command\"\nports = \"vhost-user\"\nstart = \"exit 7\"\n\
         [[dut]]\nname = \"numbers\"\nsimulated = \"capacity=1e6\"\n[traffic]\nframes = \"64\"\n"
    );
    let said = bench(&scratch, &scenario, &[]);
    assert_eq!(said.status, Some(3), "{}", said.err);
    let all = said.results();
    assert_eq!((all.len(), all[0].cell["dut"].as_str()), (1, "numbers"));
    assert!(said.err.contains("gone"), "{}", said.err);
}

#[test]
fn rates_and_flows_of_a_matrix() {
    let scratch = Scratch::new();
    let scenario = format!(
        "{HEAD}[dut]\nsimulated = \"capacity=1e6\"\n[matrix]\nflows = [1, 10, 1000]\nrate = [5e5, 2e6]\n\
         [traffic]\nframes = \"64\"\nflows = \"${{flows}}\"\n[goal]\nrate = \"${{rate}}\"\n"
    );
    let said = bench(&scratch, &scenario, &[]);
    let all = said.results();
    assert_eq!(all.len(), 6);
    for result in &all {
        assert_eq!(result.method.name, "load");
        let (flows, rate): (u64, f64) = (result.cell["flows"].parse().unwrap(), result.cell["rate"].parse().unwrap());
        assert_eq!(result.traffic.flows, flows);
        assert!(result.trials.iter().all(|t| t.load_pps == rate && (t.lost > 0) == (rate > 1e6)), "{rate}");
    }
    let wrong = bench(&scratch, &scenario.replace("[1, 10, 1000]", "[0]"), &[]);
    assert_eq!(wrong.status, Some(2));
    assert!(wrong.err.contains("invalid number of flows"), "{}", wrong.err);
}

#[test]
fn draws_throughput_over_flows() {
    let scratch = Scratch::new();
    let scenario = format!("{HEAD}[dut]\nsimulated = \"capacity=1e6\"\n[traffic]\nframes = \"64\"\n");
    let said = bench(&scratch, &scenario, &["--method", "flow-scale", "--flows", "1,100,10k"]);
    let flows: Vec<u64> = said.results().iter().map(|r| r.traffic.flows).collect();
    assert_eq!(flows, [1, 100, 10_000]);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.contains("Throughput over flows"), "the figure");
    let wrong = bench(&scratch, &scenario, &["--flows", "1,99G"]);
    assert_eq!(wrong.status, Some(2));
}

#[test]
fn rejects_options_that_contradict_the_matrix() {
    let scratch = Scratch::new();
    let scenario = format!(
        "{HEAD}[dut]\nsimulated = \"capacity=1e6\"\n[matrix]\nn = [10, 1000]\nload = [1e5, 2e5]\n\
         [traffic]\nframes = \"64\"\nflows = \"${{n}}\"\n[goal]\nrate = \"${{load}}\"\n"
    );
    for option in [["--flows", "5"], ["--rate", "1e6"], ["--method", "flow-scale"]] {
        let said = bench(&scratch, &scenario, &option);
        assert_eq!(said.status, Some(2), "{option:?}: {}", said.err);
        assert!(said.err.contains("matrix"), "{option:?}: {}", said.err);
    }
    let said = bench(&scratch, &scenario.replace("flows = \"${n}\"", "trace = \"tr2e\""), &["--method", "flow-scale"]);
    assert_eq!(said.status, Some(2), "a trace has its own flows: {}", said.err);
}

#[test]
fn a_resumed_session_has_the_same_end() {
    let scratch = Scratch::new();
    let scenario = format!(
        "{HEAD}[[dut]]\nname = \"good\"\nsimulated = \"capacity=1e6\"\n[[dut]]\nname = \"bad\"\nsimulated = \"capacity=1e6,loss=0.5\"\n\
         [traffic]\nframes = \"64\"\n[goal]\nrepeat = 2\n"
    );
    let whole = bench(&scratch, &scenario, &[]);
    let again = bench(&scratch, &scenario, &["--resume"]);
    assert_eq!((whole.status, again.status), (Some(1), Some(1)), "{}\n{}", whole.err, again.err);
    let ids = |said: &Said| said.results().iter().map(|r| r.id.clone()).collect::<BTreeSet<_>>();
    assert_eq!(ids(&whole).len(), 4, "every repetition has a result");
    assert_eq!(ids(&whole), ids(&again));
}

#[test]
fn rejects_keys_that_do_not_apply_to_the_dut() {
    let scratch = Scratch::new();
    for key in ["ssh = \"host\"", "env = \"container\"", "cpus = [0]", "clock_mhz = 2000", "forward = \"any\""] {
        let scenario = format!("{HEAD}[dut]\nsimulated = \"capacity=1e6\"\n{key}\n[traffic]\nframes = \"64\"\n");
        let said = bench(&scratch, &scenario, &[]);
        assert_eq!(said.status, Some(2), "{key}: {}", said.err);
        assert!(said.err.contains(":6:"), "{key}: {}", said.err);
    }
}
