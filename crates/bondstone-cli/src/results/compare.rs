//! `bondstone results compare`.

use super::list::plain;
use super::pick::{pick, whole};
use super::{Db, SELECTION, human, wrong};
use crate::exit::Exit;
use crate::table::Table;
use results::compare::{Compared, Interval, Mismatch, Pair, Side};
use results::metric::Better;
use std::collections::BTreeSet;
use std::io::Write;

/// Compares results: median, spread, and how much more or less the second side has, with an interval.
///
/// Only what was measured under the same conditions is compared: the same method, goal, frames, flows, directions, burst,
/// protocol, and parameters of the study. Anything else is refused, with what differs; --across compares all the same.
///
/// A side of several results is of repetitions. With several on both sides, the ratio is the median of all ratios of one to the
/// other (Hodges and Lehmann) and its interval the exact one of ranks (Mann and Whitney), with the confidence that so few
/// allow. With one result on a side, the interval is that of the bounds of its search.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results compare 3fa85f 91be02
  bondstone results compare tag=before tag=after
  bondstone results compare dut=native dut=bondstone --common
  bondstone results compare cell.isolation=inproc cell.isolation=vm --across isolation
  bondstone results compare main branch --metric throughput --json"))]
pub(crate) struct Compare {
    /// The first side, and those that are compared with it.
    #[arg(value_name = "WHICH", required = true, num_args = 2..)]
    sides: Vec<String>,
    /// A condition that may differ: method, goal, frames, flows, directions, burst, protocol, dut, or a parameter of the study.
    #[arg(long, value_name = "KEY")]
    across: Vec<String>,
    /// Compares only the cells that both sides have.
    #[arg(long)]
    common: bool,
    /// Only these numbers, as throughput, p99 or "p99 at 50 %".
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let (first, others) = self.sides.split_first().ok_or_else(|| wrong("two sides are compared"))?;
        let first_results = whole(&store, &pick(&store, first)?)?;
        let mut json = vec![];
        let mut out = std::io::stdout().lock();
        for (n, other) in others.iter().enumerate() {
            let results = whole(&store, &pick(&store, other)?)?;
            let compared = results::compare::compare(&first_results, &results, &self.across, self.common);
            let mut pairs = compared.map_err(|e: Mismatch| wrong(e))?;
            for pair in &mut pairs {
                pair.rows.retain(|row| self.wants(row));
            }
            pairs.retain(|pair| !pair.rows.is_empty());
            if pairs.is_empty() {
                return Err(wrong(format_args!(
                    "{first} and {other} have none of the numbers {}",
                    self.metric.join(", ")
                )));
            }
            let notes = notes(&first_results, &results);
            if self.json {
                json.push(serde_json::json!({
                    "a": first, "b": other, "notes": notes,
                    "cells": pairs.iter().map(|p| serde_json::json!({"cell": p.cell.0, "metrics": p.rows})).collect::<Vec<_>>(),
                }));
                continue;
            }
            if n > 0 {
                writeln!(out)?;
            }
            writeln!(out, "A  {first}: {}", devices(&first_results))?;
            writeln!(out, "B  {other}: {}\n", devices(&results))?;
            write!(out, "{}", table(&pairs))?;
            writeln!(out)?;
            for note in legend(&pairs).into_iter().chain(notes) {
                writeln!(out, "  note: {note}")?;
            }
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json)?;
            writeln!(out)?;
        }
        Ok(Exit::Done)
    }

    fn wants(&self, row: &Compared) -> bool {
        let name = row.metric.split(" at ").next().unwrap_or(&row.metric);
        self.metric.is_empty() || self.metric.iter().any(|m| *m == row.metric || m == name)
    }
}

fn devices(results: &[report::Result]) -> String {
    let labels: BTreeSet<String> = results
        .iter()
        .map(|r| format!("{} {}", r.dut.label(), r.dut.version.as_deref().unwrap_or_default()).trim().to_owned())
        .collect();
    let days: BTreeSet<&str> =
        results.iter().map(|r| r.environment.date.split('T').next().unwrap_or_default()).collect();
    let (first, last) = (days.first().copied().unwrap_or_default(), days.last().copied().unwrap_or_default());
    let when = if first == last { first.to_owned() } else { format!("{first} to {last}") };
    let (labels, n) = (labels.into_iter().collect::<Vec<_>>().join(", "), results.len());
    format!("{}, {n} {}, {when}", plain(labels), if n == 1 { "result" } else { "results" })
}

fn table(pairs: &[Pair]) -> Table {
    // frames always; of the other conditions, those in which cells differ
    let names: BTreeSet<&String> = pairs.iter().flat_map(|p| p.cell.0.keys()).collect();
    let varying: Vec<&String> = names
        .into_iter()
        .filter(|name| *name != "frames" && pairs.iter().any(|p| p.cell.0.get(*name) != pairs[0].cell.0.get(*name)))
        .collect();
    let mut table = Table::new(&[
        "cell", "metric", "A n", "A median", "A spread", "B n", "B median", "B spread", "B/A", "interval", "",
    ]);
    for pair in pairs {
        let mut cell = vec![pair.cell.0.get("frames").cloned().unwrap_or_default()];
        cell.extend(varying.iter().filter_map(|name| Some(format!("{name} {}", pair.cell.0.get(*name)?))));
        for row in &pair.rows {
            let spread = |side: &Side| {
                let max = side.max.map_or("…".to_owned(), |max| number(max, &row.unit));
                if side.max == Some(side.min) {
                    "-".to_owned()
                } else {
                    format!("{}–{max}", number(side.min, &row.unit))
                }
            };
            let interval = row.interval.map_or("-".to_owned(), |(low, high)| {
                format!("{low:.3}–{}", high.map_or("…".to_owned(), |high| format!("{high:.3}")))
            });
            table.row([
                plain(cell.join(", ")),
                plain(row.metric.clone()),
                row.a.n.to_string(),
                human(row.a.median, &row.unit),
                spread(&row.a),
                row.b.n.to_string(),
                human(row.b.median, &row.unit),
                spread(&row.b),
                row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                interval,
                verdict(row).to_owned(),
            ]);
        }
    }
    table
}

/// A value without its unit.
fn number(value: f64, unit: &str) -> String {
    human(value, unit).split(' ').next().unwrap_or_default().to_owned()
}

/// What the interval says, if it lies on one side of 1.
fn verdict(row: &Compared) -> &'static str {
    let unit = |unit: &str| results::metric::Metric {
        name: row.metric.clone(),
        load: None,
        unit: unit.to_owned(),
        value: 0.0,
        within: results::metric::Within::Unknown,
    };
    let better = unit(&row.unit).better();
    let more = match row.interval {
        Some((low, _)) if low > 1.0 => true,
        Some((_, Some(high))) if high < 1.0 => false,
        _ => return "",
    };
    match (better, more) {
        (Better::More, true) | (Better::Less, false) => "better",
        (Better::More, false) | (Better::Less, true) => "worse",
        (Better::Unknown, true) => "more",
        (Better::Unknown, false) => "less",
    }
}

/// What the intervals are.
fn legend(pairs: &[Pair]) -> Vec<String> {
    let rows = || pairs.iter().flat_map(|p| &p.rows);
    let mut out = vec![];
    let ranks: Vec<f64> = rows()
        .filter_map(|r| match r.interval_is {
            Interval::Ranks { confidence } => Some(confidence),
            _ => None,
        })
        .collect();
    if let Some(least) = ranks.iter().copied().reduce(f64::min) {
        let few = if least < 0.95 { "; with so few repetitions no interval is surer" } else { "" };
        out.push(format!(
            "intervals of several results on both sides are the exact ones of ranks, confidence at least {:.1} %{few}",
            least * 100.0
        ));
    }
    if rows().any(|r| r.interval_is == Interval::Bounds) {
        out.push(
            "intervals with a side of one result come from the bounds of its search, or the spread that it tells: they know \
             nothing of repetitions, and have no confidence"
                .to_owned(),
        );
    }
    if rows().any(|r| r.interval_is == Interval::None && r.ratio.is_some()) {
        out.push("numbers of one result without bounds have no interval; measure again to get one".to_owned());
    }
    out
}

/// What may mislead.
fn notes(a: &[report::Result], b: &[report::Result]) -> Vec<String> {
    let mut out = vec![];
    let cpus: BTreeSet<&str> = a.iter().chain(b).map(|r| r.environment.cpu.as_str()).collect();
    if cpus.len() > 1 {
        let cpus: Vec<&str> = cpus.into_iter().take(4).collect();
        out.push(format!("different machines: {}; ratios between them are of the machines too", cpus.join(" and ")));
    }
    if a.iter().any(|r| b.iter().any(|other| other.id == r.id)) {
        out.push("some results are on both sides".to_owned());
    }
    for (side, results) in [("A", a), ("B", b)] {
        let versions: BTreeSet<&str> = results.iter().filter_map(|r| r.dut.version.as_deref()).collect();
        if versions.len() > 1 {
            let versions: Vec<&str> = versions.into_iter().take(4).collect();
            out.push(format!("side {side} has several versions of its dut: {}", versions.join(", ")));
        }
    }
    out
}
