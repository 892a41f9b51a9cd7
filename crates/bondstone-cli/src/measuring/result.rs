//! What is said of a measurement, and what is kept.

use super::standing::Standing;
use super::{Carried, Found, Job, asks_for_a_line, asks_for_a_rate};
use bench::search::SearchKind;
use bench::{Generator, LimitedBy, Offered, Trial, Way};
use report::Tool;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub(super) fn document(
    job: &Job<'_>,
    at: &Standing,
    carried: &Carried,
    offered: &Offered,
    before: Option<Found>,
) -> report::Result {
    let Carried { findings, nodes, environment, .. } = carried;
    let mut deviations = findings.deviations.clone();
    if asks_for_a_line(&findings.method.name) && job.how.line_bps.is_none() {
        let line = carried.line_pps.unwrap_or_default() / 1e6;
        deviations.push(format!("no rate of the medium is given (--line): 100 % is taken to be {line:.3} Mpps"));
    }
    deviations.extend(at.remarks());
    deviations.extend(offered.remarks());
    deviations.truncate(report::limit::DEVIATIONS);
    let goal = findings.goal;
    // a profile is one trial of its own length
    let lasts = offered.timetable().map(|timetable| f64::from(timetable.seconds()));
    let mut cell = job.cell.clone();
    cell.extend(offered.cell());
    if job.generator != Generator::Bondstone {
        cell.insert("generator".to_owned(), job.generator.to_string());
    }
    let by = match &*findings.method.name {
        "load" => "one load".to_owned(),
        "receive-rate" => "the highest load there is".to_owned(),
        "profile" => "a profile".to_owned(),
        _ if job.how.search == SearchKind::Mlr => "MLRsearch (RFC 9971)".to_owned(),
        _ => format!("{} ({})", job.how.search.name(), job.how.search.standard()),
    };
    report::Result {
        schema: report::Version::V1,
        id: String::new(),
        tool: Tool {
            name: "bondstone".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: Some(std::env::args().collect::<Vec<_>>().join(" ")),
        },
        study: job.study.clone(),
        cell,
        method: findings.method.clone(),
        dut: at.dut(job),
        traffic: job.generator.traffic(offered.document()),
        goal: report::Goal {
            name: None,
            trial_s: lasts.unwrap_or(goal.final_s()),
            sum_s: lasts.unwrap_or(goal.sum_s()),
            loss_ratio: goal.loss_ratio(),
            exceed_ratio: goal.exceed_ratio(),
            width: goal.width(),
            method: by,
        },
        environment: environment.clone(),
        calibration: None,
        limited_by: before.map_or_else(|| findings.limit(), |found| found.limited_by),
        deviations,
        trials: findings.trials.iter().map(bench::document).collect(),
        // of a throughput that was found before, the bounds as well
        summary: match before {
            Some(found) if found.summary.lower_pps == findings.summary.lower_pps => found.summary,
            _ => findings.summary,
        },
        latency: findings.latency.clone(),
        quantities: findings.quantities.clone(),
        series: findings.series.clone(),
        streams: offered.streams(&findings.streams),
        nodes: nodes.clone(),
    }
}

/// Says what of captures is sent.
pub(super) fn introduce(offered: &Offered) {
    for trace in offered.traces() {
        let capture = trace.capture();
        eprintln!(
            "{}: {} frames of {:.0} bytes on average, flows: {}",
            trace.name(),
            capture.len(),
            capture.mean_size(),
            capture.flows()
        );
        if let Some(left_out) = trace.left_out() {
            eprintln!("  {left_out}");
        }
    }
    if let Some(pps) = offered.own_pps() {
        eprintln!("  with their own gaps: {pps:.1} packets/s where no other load is asked for");
    }
    match offered.rewritten() {
        Some((what, true)) => eprintln!("  {what}"),
        Some((what, false)) => eprintln!("warning: {what}"),
        None => {}
    }
}

/// Says what was found, and if it is nothing, why.
pub(super) fn explain(offered: &Offered, carried: &Carried) {
    let Carried { what, findings, drops, ways, .. } = carried;
    let mpps = |pps: f64| format!("{:.3} Mpps", pps / 1e6);
    let trials = findings.trials.len();
    match findings.summary.lower_pps {
        // a device that lets nothing through is wrong in any case
        _ if !asks_for_a_rate(&findings.method.name) && findings.trials.iter().any(|trial| trial.received != 0) => {
            eprintln!("{what}: {trials} trials")
        }
        lower if lower > 0.0 => eprintln!("{what}: {}, {trials} trials", mpps(lower)),
        _ => {
            let worst: Vec<_> = drops.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            match () {
                () if !worst.is_empty() => {
                    eprintln!("{what}: no rate meets the goal. Dropped by the chain: {}", worst.join(", "))
                }
                () if findings.limited_by == LimitedBy::Machine => {
                    eprintln!("{what}: no rate could be judged: the machine was in the way of every try");
                }
                () => eprintln!("{what}: no rate meets the goal"),
            }
            let remedy = match offered.traces() {
                _ if worst.is_empty() => None,
                [] => Some(
                    "[traffic] in the chain file says what is sent; a router takes only what goes to its MAC address (dst_mac)",
                ),
                _ => Some(
                    "frames of a capture go where they say: set dst_mac in [traffic] to the router's, give it routes for \
                     them or others to them (--rewrite), or allow with --loss what the chain refuses",
                ),
            };
            if let Some(remedy) = remedy {
                eprintln!("  help: {remedy}");
            }
        }
    }
    for (way, Way { sent, received }) in ["there", "back"].iter().zip(ways) {
        let numbered = if offered.traces().is_empty() { "" } else { " with a number" };
        eprintln!("  {way}: {received} of {sent} packets{numbered} came");
    }
}

/// How often a line is written where none can change.
const EVERY: Duration = Duration::from_secs(10);

/// One line that changes, on a terminal; a new one now and then elsewhere.
pub(super) struct Progress {
    name: String,
    trials: usize,
    /// Trials in which the machine was away.
    away: usize,
    shown: bool,
    last: Instant,
}

impl Progress {
    pub(super) fn new(name: &str) -> Self {
        let shown = std::io::stderr().is_terminal();
        Progress { name: name.to_owned(), trials: 0, away: 0, shown, last: Instant::now() }
    }

    pub(super) fn tell(&mut self, trial: &Trial) {
        self.trials += 1;
        self.away += usize::from(trial.machine);
        if !self.shown && self.last.elapsed() < EVERY {
            return;
        }
        self.last = Instant::now();
        let verdict = match () {
            () if trial.machine => "the machine was away".to_owned(),
            () => format!("loss {:.4} %", 100.0 * trial.loss_ratio()),
        };
        let line = format!("{}: trial {}, {:.3} Mpps, {verdict}", self.name, self.trials, trial.load_pps / 1e6);
        match self.away {
            _ if self.shown => eprint!("\r\x1b[K{line}"),
            0 => eprintln!("{line}"),
            away => eprintln!("{line}; the machine was away in {away} so far"),
        }
    }

    pub(super) fn end(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
