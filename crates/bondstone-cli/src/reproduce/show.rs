//! A judged scenario, for people and as JSON.

use crate::measuring::words;
use crate::table::Table;
use bench::scenario::{Judged, Setting, Spread, Verdict};
use bench::{Scenario, Sent};
use report::Environment;
use serde_json::{Value, json};
use std::fs::read_to_string;

/// Characters of what was published that stand in the table.
const LONGEST: usize = 32;

/// This machine, as `environment` and the scenario have it.
pub(super) fn here(scenario: &Scenario, environment: &Environment) -> Setting {
    let goal = scenario.how.goal;
    let used: Vec<usize> = environment.cpus_used.iter().map(|c| *c as usize).collect();
    let shared = environment.shared_cpus();
    let smt = match read_to_string("/sys/devices/system/cpu/smt/active").unwrap_or_default().trim() {
        "0" => Some("off".to_owned()),
        "1" => Some("on".to_owned()),
        _ => None,
    };
    let steal =
        environment.steal_share.map_or(String::new(), |s| format!(", {:.1} % of the time taken away", 100.0 * s));
    let mut frames: Vec<String> = vec![];
    for sent in scenario.cells.iter().map(|c| &c.sent) {
        let unit = if matches!(sent, Sent::Made { .. }) { " B" } else { "" };
        let names = format!("{}{unit}", sent.names().join(", "));
        if !frames.contains(&names) {
            frames.push(names);
        }
    }
    Setting {
        cpu: Some(format!("{}, CPUs that may be used: {}", environment.cpu, runtime::allowed_cpus().len())),
        clock: Some(format!("{:.2} GHz time-stamp counter", environment.tsc_hz as f64 / 1e9)),
        smt,
        isolation: Some(match (used.is_empty(), shared.is_empty()) {
            (true, _) => "nothing ran".to_owned(),
            (false, true) => format!("CPU {} free of other work", words(&used)),
            (false, false) => "none: other work runs on the same CPUs".to_owned(),
        }),
        machine: Some(match &environment.hypervisor {
            Some(vendor) if vendor == "a virtual machine" => format!("virtual{steal}"),
            Some(vendor) => format!("virtual ({vendor}){steal}"),
            None => "real".to_owned(),
        }),
        wire: Some("in memory: no NIC, no link, no line rate".to_owned()),
        generator: Some(match used.last() {
            Some(cpu) => format!("on this machine, CPU {cpu}"),
            None => "on this machine".to_owned(),
        }),
        dpdk: environment.dpdk_version.clone(),
        kernel: Some(environment.kernel.clone()),
        memory: Some(environment.memory.clone()),
        frames: Some(frames.join("; ")),
        throughput: Some(format!(
            "MLRsearch, {} s a load in trials of {} s, loss up to {} %",
            goal.sum_s(),
            goal.final_s(),
            100.0 * goal.loss_ratio()
        )),
    }
}

/// All of it, for people.
pub(super) fn text(scenario: &Scenario, judged: &[Judged<'_>], ours: &Setting) -> String {
    let mut out = format!("\n{}: {}\n", scenario.name, scenario.title);
    if let Some(study) = &scenario.study {
        let figure = scenario.figure.as_ref().map_or(String::new(), |f| format!(", {f}"));
        out += &format!("{} ({}){figure}\n", study.title, study.venue);
    }
    let theirs = scenario.study.as_ref().map(|s| s.environment.clone()).unwrap_or_default();
    let mut table = Table::new(&["environment", "theirs", "ours"]);
    for ((name, theirs), (_, ours)) in theirs.all().into_iter().zip(ours.all()) {
        let said = |text: Option<&str>| text.unwrap_or("not said").to_owned();
        table.row([name.to_owned(), said(theirs), said(ours)]);
    }
    out += &format!("\n{table}\n");

    let mut remarks = vec![];
    let mut table = Table::new(&["finding", "published", "here", "verdict"]);
    for judged in judged {
        let mut verdict = judged.verdict.name().to_owned();
        if let Some(claim) = judged.claim.filter(|_| !matches!(judged.verdict, Verdict::NotTestable(_))) {
            verdict += &format!(" ({})", asked(judged, claim));
        }
        let mut number = |text: &str| {
            let known = remarks.iter().position(|r| r == text);
            let at = known.unwrap_or_else(|| {
                remarks.push(text.to_owned());
                remarks.len() - 1
            });
            format!("[{}]", at + 1)
        };
        // a statement may be a sentence
        let long = judged.published.chars().count() > LONGEST;
        let published = if long { number(&judged.published) } else { judged.published.clone() };
        let mut remark = |text: &str| verdict += &format!(" {}", number(text));
        if let Verdict::NotTestable(why) = &judged.verdict {
            remark(why);
        }
        if judged.is_close() {
            remark("the interval reaches across the bound: more pairs or a longer goal would decide it better");
        }
        if let Some(note) = judged.claim.filter(|_| judged.here.is_some()).and_then(|c| c.note.as_ref()) {
            remark(note);
        }
        let here = judged.here.as_ref().map_or("-".to_owned(), Spread::to_string);
        table.row([judged.says.clone(), published, here, verdict]);
    }
    out += &table.to_string();
    for (n, remark) in remarks.iter().enumerate() {
        out += &format!("  [{}] {remark}\n", n + 1);
    }
    out
}

/// What the numbers had to be, and how many were not.
fn asked(judged: &Judged<'_>, claim: &bench::scenario::Claim) -> String {
    let bounds = claim.bounds();
    match (&judged.verdict, judged.here.map_or(1, |h| h.count)) {
        (Verdict::Contradicted { outside }, count) if count > 1 => format!("{outside} of {count} not {bounds}"),
        (Verdict::Contradicted { .. }, _) => format!("not {bounds}"),
        _ => bounds,
    }
}

/// All of it, as JSON.
pub(super) fn document(
    scenario: &Scenario,
    judged: &[Judged<'_>],
    ours: &Setting,
    results: &[report::Result],
) -> Value {
    let findings: Vec<Value> = judged.iter().map(|j| finding(scenario, j)).collect();
    let study = scenario.study.as_ref();
    json!({
        "scenario": scenario.name,
        "title": scenario.title,
        "figure": scenario.figure,
        "study": study.map(|s| json!({ "title": s.title, "venue": s.venue })),
        "environment": { "theirs": study.map(|s| &s.environment), "ours": ours },
        "findings": findings,
        "results": results.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(),
    })
}

fn finding(scenario: &Scenario, judged: &Judged<'_>) -> Value {
    let published: Vec<Value> = judged
        .published_of(scenario)
        .into_iter()
        .map(|p| {
            json!({
                "id": p.id, "figure": p.figure, "table": p.table, "value": p.value(None), "values": p.values, "x": p.x, "unit": p.unit,
                "conditions": p.conditions, "statement": p.statement,
            })
        })
        .collect();
    let claim = judged.claim;
    let here = judged.here.map(|h| {
        json!({
            "measure": h.measure.name(),
            "unit": if h.is_ratio { "ratio" } else if h.measure.unit().0 == "us" { "ns" } else { "pps" },
            "count": h.count,
            "least": h.values.0,
            "most": h.values.1,
            "lower": h.bounds.map(|b| b.0),
            "upper": h.bounds.map(|b| b.1),
        })
    });
    let why = match &judged.verdict {
        Verdict::NotTestable(why) => Some(why),
        _ => None,
    };
    json!({
        "finding": judged.says,
        "published": judged.published,
        "published_results": published,
        "here": here,
        "at_least": claim.and_then(|c| c.at_least),
        "at_most": claim.and_then(|c| c.at_most),
        "verdict": judged.verdict.name(),
        "close": judged.is_close(),
        "why": why,
        "note": claim.and_then(|c| c.note.as_ref()),
    })
}
