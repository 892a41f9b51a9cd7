//! `bondstone reproduce`.

mod find;
mod native;
mod show;

use crate::exit::Exit;
use crate::measuring::{Desk, Keep, Measured, Rounds, Task, task};
use crate::table::Table;
use bench::Scenario;
use bench::scenario::{Lacking, Measure, Missing, Observation, judge};
use diagnostics::Diagnostics;
use graph::Registry;
use native::Ran;
use report::LimitedBy;
use std::collections::BTreeMap;
use std::io::{Write, stdout};

/// Measures what a study measured, and judges each of its findings: reproduced, contradicted, not testable here.
///
/// A scenario says what to run, what was published, and what of it can be tested on any machine. Chains run on wires in
/// memory as with `bench`; ratios to C come from native-bench. Each finding stands beside what was measured here, and the
/// study's machine beside this one. A finding that is contradicted is an answer, not a failure.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone reproduce
  bondstone reproduce netbricks/lpm
  bondstone reproduce netbricks --report netbricks.html
  bondstone reproduce scenarios/netbricks/ttl.toml --json")]
pub(crate) struct Reproduce {
    /// A scenario, such as netbricks/lpm; a study, for all of its scenarios; or a scenario's file. Without, all are listed.
    scenario: Option<String>,
    /// Lists the scenarios there are.
    #[arg(long)]
    list: bool,
    /// CPU of the generator; by default the last that no chain uses.
    #[arg(long)]
    core: Option<usize>,
    /// Goes on with the last run, if it was interrupted: what it measured is not measured again.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    keep: Keep,
    /// Prints findings and verdicts as JSON.
    #[arg(long)]
    json: bool,
}

/// What was measured of a scenario.
#[derive(Default)]
struct Run {
    results: Vec<report::Result>,
    seen: Vec<Observation>,
    missing: Vec<Missing>,
    exit: Exit,
}

impl Reproduce {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let Some(name) = self.scenario.as_ref().filter(|_| !self.list) else {
            return self.list();
        };
        let (mut scenarios, mut faults) = (vec![], vec![]);
        for file in find::named(name)? {
            match Scenario::read(&file, registry) {
                Ok(scenario) => scenarios.push(scenario),
                Err(found) => faults.extend(found),
            }
        }
        if !faults.is_empty() {
            return Err(Diagnostics(faults).into());
        }
        let mut desk = Desk::open(&self.keep, self.core, registry)?;
        let (mut results, mut documents, mut exit) = (vec![], vec![], Exit::Done);
        for scenario in &scenarios {
            eprintln!("{}: {}", scenario.name, scenario.title);
            let run = measure(scenario, &mut desk, self.resume)?;
            match run.exit {
                Exit::Done | Exit::NotMet => {}
                ended => exit = ended,
            }
            if exit == Exit::Interrupted {
                results.extend(run.results);
                break;
            }
            let judged = judge(scenario, &run.seen, &run.missing);
            let environment = match run.results.last() {
                Some(result) => result.environment.clone(),
                None => bench::environment(&[], "nothing: no chain ran"),
            };
            let ours = show::here(scenario, &environment);
            if self.json {
                documents.push(show::document(scenario, &judged, &ours, &run.results));
            } else {
                write!(stdout(), "{}", show::text(scenario, &judged, &ours))?;
            }
            results.extend(run.results);
        }
        if self.json {
            writeln!(stdout(), "{:#}", serde_json::Value::Array(documents))?;
        }
        if !results.is_empty() {
            let page = desk.page(&results, name.trim_end_matches(".toml").trim_matches('/'))?;
            if !self.json {
                writeln!(stdout(), "\nresults  {}\nreport   {}", desk.db().display(), page.display())?;
            }
        }
        Ok(exit)
    }

    fn list(&self) -> anyhow::Result<Exit> {
        let folder = find::folder()?;
        let mut table = Table::new(&["scenario", "what it is about"]);
        let mut all = vec![];
        for found in find::all(&folder)? {
            match Scenario::title(&found.file) {
                Ok(title) => {
                    all.push(serde_json::json!({ "scenario": found.name, "title": title, "file": found.file }));
                    table.row([found.name, title]);
                }
                Err(fault) => eprintln!("warning: {fault}"),
            }
        }
        if self.json {
            writeln!(stdout(), "{:#}", serde_json::Value::Array(all))?;
        } else if table.is_empty() {
            writeln!(stdout(), "{} has no scenarios", folder.display())?;
        } else {
            write!(stdout(), "{table}")?;
        }
        Ok(Exit::Done)
    }
}

/// Measures native rows and cells.
fn measure(scenario: &Scenario, desk: &mut Desk, resume: bool) -> anyhow::Result<Run> {
    let mut run = Run::default();
    if let Some(native) = &scenario.native {
        let why = match native::run(native, || desk.is_interrupted()) {
            Ran::Rows(rows) => {
                run.seen = rows;
                None
            }
            Ran::Doubtful(rows, why) => {
                run.seen = rows;
                Some(why)
            }
            Ran::Nothing(why) => Some(why),
            Ran::Interrupted => return Ok(Run { exit: Exit::Interrupted, ..run }),
        };
        if let Some(why) = why {
            eprintln!("{why}");
            run.missing.push(Missing { native: true, what: Lacking::All, facts: BTreeMap::new(), why });
        }
    }
    let tasks: Vec<Task<'_>> = scenario.cells.iter().map(|cell| task(scenario, cell)).collect();
    let rounds = Rounds { rounds: scenario.how.repeat, resume };
    run.exit = desk.measure_all(&tasks, rounds, |task, came| match came {
        Ok(measured) => {
            for Measured { frames, result } in measured {
                let mut facts = result.cell.clone();
                facts.insert("frames".to_owned(), frames.clone());
                observe(result, facts, &mut run);
                run.results.push(result.clone());
            }
        }
        Err(why) => run.missing.push(Missing { native: false, what: Lacking::All, facts: task.cell.clone(), why }),
    })?;
    Ok(run)
}

/// The numbers of a result, of a method that finds a rate.
fn observe(result: &report::Result, facts: BTreeMap<String, String>, run: &mut Run) {
    if !matches!(&*result.method.name, "throughput" | "load") {
        return;
    }
    let mut miss = |what: Lacking, why: &str| {
        run.missing.push(Missing { native: false, what, facts: facts.clone(), why: why.to_owned() });
    };
    let summary = result.summary;
    match result.limited_by {
        LimitedBy::Machine if summary.lower_pps <= 0.0 => {
            return miss(Lacking::All, "the machine took cores away in every try: no rate could be judged");
        }
        _ if summary.lower_pps <= 0.0 => return miss(Lacking::All, "no rate met the goal"),
        LimitedBy::Generator | LimitedBy::Load => {
            miss(Lacking::Upper, "the generator ended the search, not the chain: what the chain can do is not known")
        }
        LimitedBy::Budget => {
            miss(Lacking::Upper, "the search ran out of trials or time before its bounds were near enough")
        }
        LimitedBy::Machine => {
            miss(Lacking::Upper, "the machine took cores away for too long: what the chain can do is not known")
        }
        LimitedBy::Dut | LimitedBy::Wire => {}
    }
    let mut number = |measure, value, bounds| {
        run.seen.push(Observation { measure, facts: facts.clone(), value, bounds });
    };
    number(Measure::Throughput, summary.lower_pps, summary.upper_pps.map(|upper| (summary.lower_pps, upper)));
    let line = result.traffic.line_pps();
    let bounds = summary.upper_pps.map(|upper| (summary.lower_pps / line, upper / line));
    number(Measure::LineShare, summary.lower_pps / line, bounds);
    let latency = result.latency.first().filter(|latency| !latency.machine);
    if result.latency.first().is_some_and(|l| l.machine) {
        miss(Lacking::Latency, "the machine was in the way of every measurement of latency");
    }
    if let Some(latency) = latency {
        number(Measure::P50, latency.p50_ns, None);
        number(Measure::P99, latency.p99_ns, None);
        number(Measure::P999, latency.p999_ns, None);
    }
}
