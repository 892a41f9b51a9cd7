//! `bondstone results compare`.

use super::list::plain;
use super::select::{load, select};
use super::{Db, SELECTION, input_error, with_unit};
use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use results::compare::{Compared, Interval, Mismatch, Pair, Side};
use results::metric::Direction;
use std::collections::BTreeSet;
use std::io::Write;

/// Compares results: median, spread, and the ratio of side B to side A with an interval.
///
/// Results are compared if they were measured under the same conditions: method, goal, frames, flows, directions,
/// burst, protocol, and parameters of the study. Otherwise the command fails and prints the differences; --across
/// ignores a condition.
///
/// Several results on one side are repetitions. With several on both sides, the ratio is the median of all pairwise
/// ratios (Hodges-Lehmann) with the exact rank interval (Mann-Whitney). With one result on a side, the interval is
/// derived from the bounds of its search.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results compare 3fa85f 91be02
  bondstone results compare tag=before tag=after
  bondstone results compare dut=native dut=bondstone --common
  bondstone results compare cell.isolation=inproc cell.isolation=vm --across isolation
  bondstone results compare main branch --metric throughput --json"))]
pub(crate) struct Compare {
    /// Side A, and one or more sides B to compare with it.
    #[arg(value_name = "SELECTION", required = true, num_args = 2..)]
    sides: Vec<String>,
    /// Condition that may differ: method, goal, frames, flows, directions, burst, protocol, dut, or a parameter of the
    /// study.
    #[arg(long, value_name = "KEY")]
    across: Vec<String>,
    /// Compares only conditions that both sides have.
    #[arg(long)]
    common: bool,
    /// Metrics to compare, such as throughput, p99 or "p99 at 50 %" [default: all].
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
        let (first, others) = self.sides.split_first().ok_or_else(|| input_error("two sides are needed"))?;
        let first_results = load(&store, &select(&store, first)?)?;
        let mut json = vec![];
        let mut out = stdout();
        for (n, other) in others.iter().enumerate() {
            let results = load(&store, &select(&store, other)?)?;
            let compared = results::compare::compare(&first_results, &results, &self.across, self.common);
            let mut pairs = compared.map_err(|e: Mismatch| input_error(e))?;
            for pair in &mut pairs {
                pair.rows.retain(|row| self.includes(row));
            }
            pairs.retain(|pair| !pair.rows.is_empty());
            if pairs.is_empty() {
                return Err(input_error(format_args!(
                    "{first} and {other} have none of these metrics in common: {}",
                    self.metric.join(", ")
                )));
            }
            let notes = notes(&first_results, &results);
            if self.json {
                json.push(serde_json::json!({
                    "a": first, "b": other, "notes": notes,
                    "pairs": pairs.iter().map(|p| serde_json::json!({"conditions": p.conditions.0, "metrics": p.rows})).collect::<Vec<_>>(),
                }));
                continue;
            }
            if n > 0 {
                writeln!(out)?;
            }
            writeln!(out, "A  {first}: {}", describe_side(&first_results))?;
            writeln!(out, "B  {other}: {}\n", describe_side(&results))?;
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
        Ok(Exit::Success)
    }

    fn includes(&self, row: &Compared) -> bool {
        let name = row.metric.split(" at ").next().unwrap_or(&row.metric);
        self.metric.is_empty() || self.metric.iter().any(|m| *m == row.metric || m == name)
    }
}

fn describe_side(results: &[report::Result]) -> String {
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
    // frames, and the conditions that differ between pairs
    let names: BTreeSet<&String> = pairs.iter().flat_map(|p| p.conditions.0.keys()).collect();
    let varying: Vec<&String> = names
        .into_iter()
        .filter(|name| {
            *name != "frames" && pairs.iter().any(|p| p.conditions.0.get(*name) != pairs[0].conditions.0.get(*name))
        })
        .collect();
    let mut table = Table::new(&[
        "conditions",
        "metric",
        "A n",
        "A median",
        "A spread",
        "B n",
        "B median",
        "B spread",
        "B/A",
        "interval",
        "",
    ]);
    for pair in pairs {
        let mut conditions = vec![pair.conditions.0.get("frames").cloned().unwrap_or_default()];
        conditions.extend(varying.iter().filter_map(|name| Some(format!("{name} {}", pair.conditions.0.get(*name)?))));
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
                plain(conditions.join(", ")),
                plain(row.metric.clone()),
                row.a.n.to_string(),
                median(&row.a, &row.unit),
                spread(&row.a),
                row.b.n.to_string(),
                median(&row.b, &row.unit),
                spread(&row.b),
                row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                interval,
                verdict(row).to_owned(),
            ]);
        }
    }
    table
}

/// Formats the median of a side, marked if it is only a lower bound.
fn median(side: &Side, unit: &str) -> String {
    let mark = if side.limited_by.is_empty() { "" } else { "≥ " };
    format!("{mark}{}", with_unit(side.median, unit))
}

/// Formats a value without its unit.
fn number(value: f64, unit: &str) -> String {
    with_unit(value, unit).split(' ').next().unwrap_or_default().to_owned()
}

/// Returns the verdict if the interval does not include 1.
fn verdict(row: &Compared) -> &'static str {
    let direction = Direction::of(&row.metric, &row.unit);
    let higher = match row.interval {
        Some((low, _)) if low > 1.0 => true,
        Some((_, Some(high))) if high < 1.0 => false,
        _ => return "",
    };
    match (direction, higher) {
        (Direction::HigherIsBetter, true) | (Direction::LowerIsBetter, false) => "better",
        (Direction::HigherIsBetter, false) | (Direction::LowerIsBetter, true) => "worse",
        (Direction::Unknown, true) => "higher",
        (Direction::Unknown, false) => "lower",
    }
}

/// Explains the intervals.
fn legend(pairs: &[Pair]) -> Vec<String> {
    let rows = || pairs.iter().flat_map(|p| &p.rows);
    let mut out = vec![];
    let ranks: Vec<f64> = rows()
        .filter_map(|r| match r.interval_type {
            Interval::Ranks { confidence } => Some(confidence),
            _ => None,
        })
        .collect();
    if let Some(least) = ranks.iter().copied().reduce(f64::min) {
        let few = if least < 0.95 { "; the maximum for so few repetitions" } else { "" };
        out.push(format!(
            "exact rank intervals for several results on both sides, confidence at least {:.1} %{few}",
            least * 100.0
        ));
    }
    for (name, side) in [("A", (|r| &r.a) as fn(&Compared) -> &Side), ("B", |r| &r.b)] {
        let limits: BTreeSet<&str> = rows().flat_map(|r| side(r).limited_by.iter().map(|limit| limit.name())).collect();
        if !limits.is_empty() {
            out.push(format!(
                "≥: on side {name} the throughput was limited by {}, not by the DUT; the ratio is no comparison of the \
                 DUTs unless there is a verdict",
                limits.into_iter().collect::<Vec<_>>().join(" and ")
            ));
        }
    }
    if rows().any(|r| r.interval_type == Interval::Bounds) {
        out.push(
            "intervals with one result on a side, or one that the DUT did not limit, are derived from the bounds of \
             searches or the spread of values, and have no confidence"
                .to_owned(),
        );
    }
    if rows().any(|r| r.interval_type == Interval::None && r.ratio.is_some()) {
        out.push("metrics of one result without bounds have no interval; repeat the measurement to get one".to_owned());
    }
    out
}

/// Returns notes on the validity of the comparison.
fn notes(a: &[report::Result], b: &[report::Result]) -> Vec<String> {
    let mut out = vec![];
    let cpus: BTreeSet<&str> = a.iter().chain(b).map(|r| r.environment.cpu.as_str()).collect();
    if cpus.len() > 1 {
        let cpus: Vec<&str> = cpus.into_iter().take(4).collect();
        out.push(format!("different CPUs: {}; the ratios include the difference between them", cpus.join(" and ")));
    }
    if a.iter().any(|r| b.iter().any(|other| other.id == r.id)) {
        out.push("some results are on both sides".to_owned());
    }
    for (side, results) in [("A", a), ("B", b)] {
        let versions: BTreeSet<&str> = results.iter().filter_map(|r| r.dut.version.as_deref()).collect();
        if versions.len() > 1 {
            let versions: Vec<&str> = versions.into_iter().take(4).collect();
            out.push(format!("side {side} contains several versions of the DUT: {}", versions.join(", ")));
        }
    }
    out
}
