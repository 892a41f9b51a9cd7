//! `bondstone reproduce`.

mod find;
mod native;
mod show;

use crate::exit::Exit;
use crate::session::{CliSession, OutputOptions};
use crate::stdout::stdout;
use crate::table::Table;
use bench::Scenario;
use bench::method::{self, LoadChoice, MethodInfo};
use bench::scenario::{Metric, Missing, MissingPart, Observation, evaluate};
use bench::session::{CellResult, SessionCell};
use diagnostics::Diagnostics;
use graph::Registry;
use logger::eprintln;
use native::NativeOutcome;
use report::LimitedBy;
use report::reproduction::verdict_counts;
use std::collections::BTreeMap;
use std::io::Write;

/// Repeats the measurements of a study and reports a verdict on each of its claims: reproduced, contradicted, not
/// testable here.
///
/// A scenario lists the measurements, the published results and the claims that can be tested on any machine. Chains
/// run in memory as with `bench`; native-bench measures ratios to C. The output compares published and measured values,
/// and the test environments. A contradicted claim is a result, not a failure: the exit status is 0.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone reproduce
  bondstone reproduce netbricks/lpm
  bondstone reproduce netbricks --report netbricks.html
  bondstone reproduce --all --quick --report studies.html
  bondstone reproduce scenarios/netbricks/ttl.toml --json")]
pub(crate) struct Reproduce {
    /// Scenario such as netbricks/lpm, study for all of its scenarios, or path of a scenario file; without it,
    /// scenarios are listed
    scenario: Option<String>,
    /// List all scenarios
    #[arg(long)]
    list: bool,
    /// Run all scenarios of all studies
    #[arg(long, conflicts_with_all = ["scenario", "list"])]
    all: bool,
    /// Measure each scenario in its quick form: the values of [quick], once, in short trials
    #[arg(long)]
    quick: bool,
    /// CPU of the generator; by default the last one that no chain uses. With several (2,3) a thread on each sends a
    /// part of the flows and the same share of the load
    #[arg(long, value_delimiter = ',', value_name = "CPUS")]
    core: Vec<usize>,
    /// Resume the last run if it was interrupted, without repeating finished measurements
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Print findings and verdicts as JSON
    #[arg(long)]
    json: bool,
}

/// Measurements of a scenario.
#[derive(Default)]
struct Measurements {
    results: Vec<report::Result>,
    observations: Vec<Observation>,
    missing: Vec<Missing>,
    exit: Exit,
}

impl Reproduce {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let (name, files) = match &self.scenario {
            _ if self.all => ("studies", find::all(&find::folder()?)?.into_iter().map(|one| one.file).collect()),
            Some(name) if !self.list => (name.trim_end_matches(".toml").trim_matches('/'), find::select(name)?),
            _ => return self.list(),
        };
        let (mut scenarios, mut errors) = (vec![], vec![]);
        for file in files {
            match Scenario::read(&file, registry) {
                Ok(mut scenario) => {
                    if self.quick {
                        scenario.reduce_to_quick();
                    }
                    scenarios.push(scenario);
                }
                Err(diagnostics) => errors.extend(diagnostics),
            }
        }
        if !errors.is_empty() {
            return Err(Diagnostics(errors).into());
        }
        let mut session = CliSession::open(&self.output, &self.core, registry)?;
        let (mut reproductions, mut documents, mut exit) = (vec![], vec![], Exit::Success);
        for (n, scenario) in scenarios.iter().enumerate() {
            eprintln!("{} of {}: {}: {}", n + 1, scenarios.len(), scenario.name, scenario.title);
            let measurements = match measure(scenario, &mut session, self.resume) {
                // the others are measured, and reported
                Err(error) if scenarios.len() > 1 => {
                    let reason = format!("{error:#}");
                    eprintln!("error: {}: {reason}", scenario.name);
                    let reason = reason.lines().next().unwrap_or_default().to_owned();
                    let missing = Missing { native: false, part: MissingPart::All, labels: BTreeMap::new(), reason };
                    Measurements { missing: vec![missing], exit: Exit::Failed, ..Measurements::default() }
                }
                measured => measured?,
            };
            match measurements.exit {
                Exit::Success | Exit::NotMet => {}
                failed => exit = failed,
            }
            if exit == Exit::Interrupted {
                reproductions.push(show::unfinished(scenario, measurements.results));
                break;
            }
            let findings = evaluate(scenario, &measurements.observations, &measurements.missing);
            let environment = match measurements.results.last() {
                Some(result) => result.environment.clone(),
                None => bench::environment(&[], "none: no chain ran"),
            };
            let local = show::local_environment(scenario, &environment);
            let document = show::document(scenario, &findings, &local, &measurements.results);
            let reproduction = show::reproduction(scenario, &findings, &local, measurements.results);
            if self.json {
                documents.push(document);
            } else {
                write!(stdout(), "{}", show::text(&reproduction))?;
            }
            reproductions.push(reproduction);
        }
        if self.json {
            writeln!(stdout(), "{:#}", serde_json::Value::Array(documents))?;
        }
        if reproductions.iter().any(|scenario| !scenario.results.is_empty()) {
            let counts = verdict_counts(reproductions.iter().flat_map(|scenario| &scenario.findings));
            let page = session.write_reproduction(reproductions, name)?;
            if !self.json {
                write!(stdout(), "\n{counts}")?;
                writeln!(stdout(), "\nresults  {}\nreport   {}", session.location(), page.display())?;
            }
        }
        Ok(exit)
    }

    fn list(&self) -> anyhow::Result<Exit> {
        let folder = find::folder()?;
        let mut table = Table::new(&["scenario", "title"]);
        let mut all = vec![];
        for scenario in find::all(&folder)? {
            match Scenario::title(&scenario.file) {
                Ok(title) => {
                    all.push(serde_json::json!({ "scenario": scenario.name, "title": title, "file": scenario.file }));
                    table.row([scenario.name, title]);
                }
                Err(error) => eprintln!("warning: {error}"),
            }
        }
        if self.json {
            writeln!(stdout(), "{:#}", serde_json::Value::Array(all))?;
        } else if table.is_empty() {
            writeln!(stdout(), "no scenarios in {}", folder.display())?;
        } else {
            write!(stdout(), "{table}")?;
        }
        Ok(Exit::Success)
    }
}

/// Runs native-bench and measures the cells of a scenario.
fn measure(scenario: &Scenario, session: &mut CliSession, resume: bool) -> anyhow::Result<Measurements> {
    let mut run = Measurements::default();
    if let Some(native) = &scenario.native {
        let reason = match native::run(native, || session.is_cancelled()) {
            NativeOutcome::Measured(rows) => {
                run.observations = rows;
                None
            }
            NativeOutcome::Unreliable(rows, reason) => {
                run.observations = rows;
                Some(reason)
            }
            NativeOutcome::Failed(reason) => Some(reason),
            NativeOutcome::Interrupted => return Ok(Measurements { exit: Exit::Interrupted, ..run }),
        };
        if let Some(reason) = reason {
            eprintln!("warning: {reason}");
            let (part, labels) = (MissingPart::All, BTreeMap::new());
            run.missing.push(Missing { native: true, part, labels, reason });
        }
    }
    let cells = SessionCell::of_scenario(scenario);
    run.exit = session.run(&cells, scenario.settings.repeat, resume, |cell, results| match results {
        Ok(measured) => {
            for CellResult { frames, result } in measured {
                let mut labels = result.cell.clone();
                labels.insert("frames".to_owned(), frames.clone());
                observe(result, labels, &mut run);
                run.results.push(result.clone());
            }
        }
        Err(reason) => run.missing.push(Missing {
            native: false,
            part: MissingPart::All,
            labels: cell.parameters.clone(),
            reason: reason.to_owned(),
        }),
    })?;
    Ok(run)
}

/// Load at which latency is compared, as a share of the throughput.
const LATENCY_SHARE: f64 = 0.8;

/// Adds the values of a result, if its method measures a rate.
fn observe(result: &report::Result, labels: BTreeMap<String, String>, run: &mut Measurements) {
    let has_rate = |method: &MethodInfo| method.properties.is_throughput || method.properties.load == LoadChoice::Given;
    if !method::find(&result.method.name).is_ok_and(has_rate) {
        return;
    }
    let mut miss = |part: MissingPart, reason: &str| {
        run.missing.push(Missing { native: false, part, labels: labels.clone(), reason: reason.to_owned() });
    };
    let summary = result.summary;
    match result.limited_by {
        LimitedBy::HostInterference if summary.lower_pps <= 0.0 => {
            return miss(MissingPart::All, "every attempt was invalidated by host interference");
        }
        _ if summary.lower_pps <= 0.0 => return miss(MissingPart::All, "no rate met the goal"),
        LimitedBy::Generator | LimitedBy::MaxLoad => {
            miss(MissingPart::UpperBound, "the generator limited the search: the throughput of the chain may be higher")
        }
        LimitedBy::Budget => miss(
            MissingPart::UpperBound,
            "the search ended before its bounds converged: it reached its limit of trials or time",
        ),
        LimitedBy::HostInterference => miss(
            MissingPart::UpperBound,
            "host interference limited the search: the throughput of the chain may be higher",
        ),
        LimitedBy::Dut | LimitedBy::LineRate => {}
    }
    let mut add = |metric, value, bounds| {
        run.observations.push(Observation { metric, labels: labels.clone(), value, bounds });
    };
    add(Metric::Throughput, summary.lower_pps, summary.upper_pps.map(|upper| (summary.lower_pps, upper)));
    let line = result.traffic.line_pps();
    let bounds = summary.upper_pps.map(|upper| (summary.lower_pps / line, upper / line));
    add(Metric::LineShare, summary.lower_pps / line, bounds);
    let from_80 = |l: &&report::Latency| (l.share_of_throughput.unwrap_or(LATENCY_SHARE) - LATENCY_SHARE).abs();
    let latency = result.latency.iter().min_by(|a, b| from_80(a).total_cmp(&from_80(b)));
    if latency.is_some_and(|l| l.host_interference) {
        miss(MissingPart::Latency, "every latency measurement was invalidated by host interference");
    }
    if let Some(latency) = latency.filter(|latency| !latency.host_interference) {
        add(Metric::P50, latency.p50_ns, None);
        add(Metric::P99, latency.p99_ns, None);
        add(Metric::P999, latency.p999_ns, None);
    }
    for anatomy in &result.anatomy {
        let is_same = |l: &&report::Latency| l.share_of_throughput == anatomy.share_of_throughput;
        if result.latency.iter().find(is_same).is_some_and(|latency| latency.host_interference) {
            continue;
        }
        if let (Some(share), Some(value)) = (anatomy.share_of_throughput, anatomy.host_share()) {
            let mut labels = labels.clone();
            labels.insert("load".to_owned(), format!("{:.0}", share * 100.0));
            run.observations.push(Observation { metric: Metric::HostShare, labels, value, bounds: None });
        }
    }
}
