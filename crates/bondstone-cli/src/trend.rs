//! `bondstone trend`.

use crate::exit::Exit;
use crate::results::{Db, SELECTION, human, short, wrong};
use crate::table::Table;
use results::trend::{Trend, trends};
use std::io::Write;

/// Shows one number over time, and when it changed.
///
/// The values of each cell of each device, in the order of their dates, are divided into groups of constant mean so that their
/// description is shortest, in bits: a mean and a standard deviation for each group, and the values as a normal distribution
/// of these codes them. A change is told only where it saves bits, so noise has none.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone trend nightly
  bondstone trend dut=bondstone,frame=64 --metric p99
  bondstone trend study=bench --metric \"p99 at 50 %\" --json"))]
pub(crate) struct TrendOf {
    /// Which; all, if left out.
    #[arg(value_name = "WHICH")]
    which: Vec<String>,
    /// The number: throughput, loss, p50, p99, p99.9, max, or a quantity by its name.
    #[arg(long, default_value = "throughput", value_name = "NAME")]
    metric: String,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Trends that are printed.
const MOST: usize = 50;
/// Values that a line of small bars shows.
const BARS: usize = 60;

impl TrendOf {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let entries = if self.which.is_empty() {
            store.list(&results::Filter::default())?
        } else {
            crate::results::pick_all(&store, &self.which)?
        };
        let all = crate::results::whole(&store, &entries)?;
        let found = trends(&all, &self.metric);
        if found.is_empty() {
            let names = results::threshold::Threshold::names(&all);
            return Err(wrong(format_args!(
                "--metric {}: no result of {} has it; there are {}",
                self.metric,
                all.len(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &found)?;
            writeln!(out)?;
            return Ok(Exit::Done);
        }
        for (n, trend) in found.iter().take(MOST).enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            print(&mut out, trend, &self.metric, &found)?;
        }
        if found.len() > MOST {
            writeln!(out, "\n  and {} more; name fewer results, or take --json", found.len() - MOST)?;
        }
        Ok(Exit::Done)
    }
}

fn print(out: &mut impl Write, trend: &Trend, metric: &str, all: &[Trend]) -> std::io::Result<()> {
    let differs = |name: &String| all.iter().any(|t| t.cell.get(name) != trend.cell.get(name));
    let cell: Vec<String> = trend
        .cell
        .iter()
        .filter(|(name, _)| *name == "frames" || differs(name))
        .map(|(name, value)| format!("{} {value}", name.strip_prefix("cell.").unwrap_or(name)))
        .collect();
    let values: Vec<f64> = trend.points.iter().map(|p| p.value).collect();
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>();
    writeln!(out, "{}, {}: {metric}, {} results", plain(&trend.dut), plain(&cell.join(", ")), values.len())?;
    let (Some(first), Some(last)) = (trend.points.first(), trend.points.last()) else { return Ok(()) };
    writeln!(out, "  {}  {}  {}", day(&first.date), sparkline(&values), day(&last.date))?;
    if trend.changes.is_empty() {
        return writeln!(out, "  no change: {}", human(last.group_mean, &trend.unit));
    }
    let mut table = Table::new(&["date", "result", "before", "after", "change", "with it changed"]);
    for c in &trend.changes {
        let versions: Vec<String> = c.versions.iter().map(|(name, a, b)| format!("{name} {a} → {b}")).collect();
        table.row([
            c.date.clone(),
            short(&c.id),
            human(c.before, &trend.unit),
            human(c.after, &trend.unit),
            c.change.map_or("-".to_owned(), |share| format!("{:+.1} %", share * 100.0)),
            plain(&versions.join(", ")),
        ]);
    }
    write!(out, "{table}")
}

fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

/// A bar for each value, from the smallest to the largest; of many values, the means of neighbours.
fn sparkline(values: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let each = values.len().div_ceil(BARS).max(1);
    let means: Vec<f64> = values.chunks(each).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // less than a thousandth is no height
    let flat = high - low <= high.abs() * 1e-3;
    let bar = |v: &f64| {
        if flat { STEPS[3] } else { STEPS[(((v - low) / (high - low)) * 7.0).round().clamp(0.0, 7.0) as usize] }
    };
    means.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_rise_with_values() {
        assert_eq!(sparkline(&[1.0, 1.0, 2.0, 3.0]), "▁▁▅█");
        assert_eq!(sparkline(&[5.0, 5.0001]), "▄▄");
        assert_eq!(sparkline(&[0.0]), "▄");
        assert_eq!(sparkline(&vec![1.0; 1000]).chars().count(), 59);
    }
}
