//! `bondstone trend`.

use crate::exit::Exit;
use crate::results::{Db, SELECTION, input_error, short, with_unit};
use crate::stdout::stdout;
use crate::table::Table;
use results::trend::{self, trends};
use std::collections::BTreeSet;
use std::io::Write;

/// Shows a metric over time, and its change points.
///
/// The values of each DUT under the same conditions, ordered by date, are divided into segments of constant mean by
/// minimum description length: a change point is reported only if it shortens the encoding of the series, so noise has
/// none.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone trend nightly
  bondstone trend dut=bondstone,frame=64 --metric p99
  bondstone trend study=bench --metric \"p99 at 50 %\" --json"))]
pub(crate) struct Trend {
    /// Results to select; all by default.
    #[arg(value_name = "SELECTION")]
    selection: Vec<String>,
    /// Metric: throughput, loss, p50, p99, p99.9, max, or a quantity by its name.
    #[arg(long, default_value = "throughput", value_name = "NAME")]
    metric: String,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Maximum number of trends to print.
const MAX_TRENDS: usize = 50;
/// Maximum number of bars in a sparkline.
const MAX_BARS: usize = 60;

impl Trend {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let entries = if self.selection.is_empty() {
            store.list(&results::Filter::default())?
        } else {
            crate::results::select_all(&store, &self.selection)?
        };
        let all = crate::results::load(&store, &entries)?;
        let trends = trends(&all, &self.metric);
        if trends.is_empty() {
            let names = results::threshold::Threshold::names(&all);
            return Err(input_error(format_args!(
                "--metric {}: none of {} results has this metric; available: {}",
                self.metric,
                all.len(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )));
        }
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &trends)?;
            writeln!(out)?;
            return Ok(Exit::Success);
        }
        for (n, trend) in trends.iter().take(MAX_TRENDS).enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            print(&mut out, trend, &self.metric, &trends)?;
        }
        if trends.len() > MAX_TRENDS {
            writeln!(out, "\n  and {} more; select fewer results, or use --json", trends.len() - MAX_TRENDS)?;
        }
        Ok(Exit::Success)
    }
}

fn print(out: &mut impl Write, trend: &trend::Trend, metric: &str, all: &[trend::Trend]) -> std::io::Result<()> {
    let differs = |name: &String| all.iter().any(|t| t.conditions.get(name) != trend.conditions.get(name));
    let conditions: Vec<String> = trend
        .conditions
        .iter()
        .filter(|(name, _)| *name == "frames" || differs(name))
        .map(|(name, value)| format!("{} {value}", name.strip_prefix("cell.").unwrap_or(name)))
        .collect();
    let values: Vec<f64> = trend.points.iter().map(|p| p.value).collect();
    let plain = |text: &str| text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>();
    writeln!(out, "{}, {}: {metric}, {} results", plain(&trend.dut), plain(&conditions.join(", ")), values.len())?;
    let (Some(first), Some(last)) = (trend.points.first(), trend.points.last()) else { return Ok(()) };
    writeln!(out, "  {}  {}  {}", day(&first.date), sparkline(&values), day(&last.date))?;
    let names = |limits: &[report::LimitedBy]| {
        limits.iter().map(|limit| limit.name()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let limited: Vec<_> = trend.points.iter().filter_map(|p| p.limited_by).collect();
    if !limited.is_empty() {
        let (count, names) = (limited.len(), names(&limited));
        writeln!(out, "  {count} of them not limited by the DUT but by {names}: lower bounds")?;
    }
    if trend.change_points.is_empty() {
        return writeln!(out, "  no change point: {}", with_unit(last.segment_mean, &trend.unit));
    }
    let mut table = Table::new(&["date", "result", "before", "after", "change", "notes"]);
    for c in &trend.change_points {
        let mut notes: Vec<String> = vec![];
        if !c.limited_by.is_empty() {
            notes.push(format!("may not be the DUT: limited by {}", names(&c.limited_by)));
        }
        notes.extend(c.differences.iter().map(|(name, a, b)| format!("{name} {a} → {b}")));
        table.row([
            c.date.clone(),
            short(&c.id),
            with_unit(c.before, &trend.unit),
            with_unit(c.after, &trend.unit),
            c.change.map_or("-".to_owned(), |share| format!("{:+.1} %", share * 100.0)),
            plain(&notes.join(", ")),
        ]);
    }
    write!(out, "{table}")
}

fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

/// Draws a bar for each value, scaled from the minimum to the maximum; adjacent values are averaged if there are many.
fn sparkline(values: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let per_bar = values.len().div_ceil(MAX_BARS).max(1);
    let means: Vec<f64> = values.chunks(per_bar).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // differences below 0.1 % are not shown
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
    fn bars_scale_with_values() {
        assert_eq!(sparkline(&[1.0, 1.0, 2.0, 3.0]), "▁▁▅█");
        assert_eq!(sparkline(&[5.0, 5.0001]), "▄▄");
        assert_eq!(sparkline(&[0.0]), "▄");
        assert_eq!(sparkline(&vec![1.0; 1000]).chars().count(), 59);
    }
}
