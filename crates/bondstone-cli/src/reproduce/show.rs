//! The findings of a scenario as text and as JSON.

use crate::session::cpu_list;
use crate::table::Table;
use bench::scenario::{Finding, StudyEnvironment, ValueRange, Verdict};
use bench::{Scenario, TrafficSpec};
use report::Environment;
use report::reproduction::{self, Reproduction};
use serde_json::{Value, json};
use std::fs::read_to_string;

/// Longest published text in the table, characters; longer ones become notes.
const MAX_PUBLISHED_CHARS: usize = 32;

/// Returns the test environment of this machine.
pub(super) fn local_environment(scenario: &Scenario, environment: &Environment) -> StudyEnvironment {
    let goal = scenario.settings.goal;
    let used: Vec<usize> = environment.cpus_used.iter().map(|c| *c as usize).collect();
    let shared = environment.shared_cpus();
    let smt = match read_to_string("/sys/devices/system/cpu/smt/active").unwrap_or_default().trim() {
        "0" => Some("off".to_owned()),
        "1" => Some("on".to_owned()),
        _ => None,
    };
    let steal = environment.steal_share.map_or(String::new(), |s| format!(", {:.1} % steal time", 100.0 * s));
    let mut frames: Vec<String> = vec![];
    for traffic in scenario.cells.iter().map(|c| &c.traffic) {
        let unit = if matches!(traffic, TrafficSpec::Synthetic { .. }) { " B" } else { "" };
        let names = format!("{}{unit}", traffic.frame_names().join(", "));
        if !frames.contains(&names) {
            frames.push(names);
        }
    }
    StudyEnvironment {
        cpu: Some(format!("{}, {} CPUs available", environment.cpu, runtime::allowed_cpus().len())),
        clock: Some(format!("{:.2} GHz time-stamp counter", environment.tsc_hz as f64 / 1e9)),
        smt,
        isolation: Some(match (used.is_empty(), shared.is_empty()) {
            (true, _) => "nothing was run".to_owned(),
            (false, true) => format!("CPU {} isolated", cpu_list(&used)),
            (false, false) => "none: CPUs are shared with other processes".to_owned(),
        }),
        machine: Some(match &environment.hypervisor {
            Some(vendor) if vendor == "unknown hypervisor" => format!("virtual{steal}"),
            Some(vendor) => format!("virtual ({vendor}){steal}"),
            None => "bare metal".to_owned(),
        }),
        wire: Some("in memory: no NIC, no link, no line rate".to_owned()),
        generator: Some(match used.last() {
            Some(cpu) => format!("on this host, CPU {cpu}"),
            None => "on this host".to_owned(),
        }),
        dpdk: environment.dpdk_version.clone(),
        kernel: Some(environment.kernel.clone()),
        memory: Some(environment.memory.clone()),
        frames: Some(frames.join("; ")),
        throughput: Some(format!(
            "MLRsearch, {} s per load in trials of {} s, loss up to {} %",
            goal.sum_s(),
            goal.final_s(),
            100.0 * goal.loss_ratio()
        )),
    }
}

/// Returns the report of a scenario.
pub(super) fn reproduction(
    scenario: &Scenario,
    findings: &[Finding<'_>],
    local: &StudyEnvironment,
    results: Vec<report::Result>,
) -> Reproduction {
    let study = scenario.study.as_ref().map(|s| s.environment.clone()).unwrap_or_default();
    let text = |text: Option<&str>| text.unwrap_or("not stated").to_owned();
    let environment = study.facts().into_iter().zip(local.facts());
    Reproduction {
        environment: environment.map(|((name, study), (_, here))| [name.to_owned(), text(study), text(here)]).collect(),
        findings: findings.iter().map(|finding| reproduced(scenario, finding)).collect(),
        ..unfinished(scenario, results)
    }
}

/// Returns the report of a scenario that was interrupted.
pub(super) fn unfinished(scenario: &Scenario, results: Vec<report::Result>) -> Reproduction {
    Reproduction {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        figure: scenario.figure.clone(),
        study: scenario.study.as_ref().map(|study| format!("{} ({})", study.title, study.venue)),
        results,
        ..Reproduction::default()
    }
}

/// Returns a finding for the report.
fn reproduced(scenario: &Scenario, finding: &Finding<'_>) -> reproduction::Finding {
    let reason = match &finding.verdict {
        Verdict::NotTestable(reason) => reason.clone(),
        _ => finding.claim.map_or(String::new(), |claim| bounds_text(finding, claim)),
    };
    let close = "the interval crosses the bound; more pairs or a longer goal would give a clearer verdict";
    let note = finding.claim.filter(|_| finding.measured.is_some()).and_then(|claim| claim.note.clone());
    reproduction::Finding {
        results: finding.published_results(scenario).into_iter().map(|p| (p.id.clone(), p.text())).collect(),
        claim: finding.text.clone(),
        published: finding.published.clone(),
        measured: finding.measured.as_ref().map(ValueRange::to_string),
        verdict: finding.verdict.kind(),
        reason,
        notes: finding.is_close().then(|| close.to_owned()).into_iter().chain(note).collect(),
    }
}

/// Returns environments and findings as text.
pub(super) fn text(scenario: &Reproduction) -> String {
    let mut out = format!("\n{}: {}\n", scenario.name, scenario.title);
    if let Some(study) = &scenario.study {
        let figure = scenario.figure.as_ref().map_or(String::new(), |f| format!(", {f}"));
        out += &format!("{study}{figure}\n");
    }
    let mut table = Table::new(&["environment", "study", "here"]);
    scenario.environment.iter().for_each(|facts| table.row(facts.clone()));
    out += &format!("\n{table}\n");

    let mut notes = vec![];
    let mut table = Table::new(&["claim", "published", "measured", "verdict"]);
    for finding in &scenario.findings {
        let mut note = |text: &str| {
            let known = notes.iter().position(|n| n == text);
            let index = known.unwrap_or_else(|| {
                notes.push(text.to_owned());
                notes.len() - 1
            });
            format!("[{}]", index + 1)
        };
        // a statement may be a long sentence
        let long = finding.published.chars().count() > MAX_PUBLISHED_CHARS;
        let published = if long { note(&finding.published) } else { finding.published.clone() };
        let mut verdict = finding.verdict.name().to_owned();
        match finding.verdict {
            reproduction::Verdict::NotTestable => verdict += &format!(" {}", note(&finding.reason)),
            _ => verdict += &format!(" ({})", finding.reason),
        }
        finding.notes.iter().for_each(|text| verdict += &format!(" {}", note(text)));
        let measured = finding.measured.clone().unwrap_or_else(|| "-".to_owned());
        table.row([finding.claim.clone(), published, measured, verdict]);
    }
    out += &table.to_string();
    for (n, note) in notes.iter().enumerate() {
        out += &format!("  [{}] {note}\n", n + 1);
    }
    out
}

/// Returns the bounds, and the number of values that are out of bounds.
fn bounds_text(finding: &Finding<'_>, claim: &bench::scenario::Claim) -> String {
    let bounds = claim.bounds();
    match (&finding.verdict, finding.measured.map_or(1, |m| m.count)) {
        (Verdict::Contradicted { outside }, count) if count > 1 => format!("{outside} of {count} not {bounds}"),
        (Verdict::Contradicted { .. }, _) => format!("not {bounds}"),
        _ => bounds,
    }
}

/// Returns environments and findings as JSON.
pub(super) fn document(
    scenario: &Scenario,
    findings: &[Finding<'_>],
    local: &StudyEnvironment,
    results: &[report::Result],
) -> Value {
    let findings: Vec<Value> = findings.iter().map(|finding| finding_json(scenario, finding)).collect();
    let study = scenario.study.as_ref();
    json!({
        "scenario": scenario.name,
        "title": scenario.title,
        "figure": scenario.figure,
        "study": study.map(|s| json!({ "title": s.title, "venue": s.venue })),
        "environment": { "study": study.map(|s| &s.environment), "local": local },
        "findings": findings,
        "results": results.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(),
    })
}

fn finding_json(scenario: &Scenario, finding: &Finding<'_>) -> Value {
    let published: Vec<Value> = finding
        .published_results(scenario)
        .into_iter()
        .map(|p| {
            json!({
                "id": p.id, "figure": p.figure, "table": p.table, "value": p.value(None), "values": p.values,
                "x": p.x, "unit": p.unit, "conditions": p.conditions, "statement": p.statement,
            })
        })
        .collect();
    let claim = finding.claim;
    let measured = finding.measured.map(|m| {
        json!({
            "metric": m.metric.name(),
            "unit": if m.is_ratio { "ratio" } else if m.metric.unit().0 == "us" { "ns" } else { "pps" },
            "count": m.count,
            "min": m.values.0,
            "max": m.values.1,
            "lower_bound": m.bounds.map(|b| b.0),
            "upper_bound": m.bounds.map(|b| b.1),
        })
    });
    let reason = match &finding.verdict {
        Verdict::NotTestable(reason) => Some(reason),
        _ => None,
    };
    json!({
        "claim": finding.text,
        "published": finding.published,
        "published_results": published,
        "measured": measured,
        "min": claim.and_then(|c| c.min),
        "max": claim.and_then(|c| c.max),
        "verdict": finding.verdict.kind().name(),
        "close": finding.is_close(),
        "reason": reason,
        "note": claim.and_then(|c| c.note.as_ref()),
    })
}
