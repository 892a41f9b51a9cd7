//! `bondstone results show`.

use super::list::plain;
use super::select::{load, select_all};
use super::{Db, SELECTION, with_unit};
use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use std::io::Write;

/// Shows results: throughput, all metrics, and the conditions of the measurement.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results show 3fa85f
  bondstone results show 3fa85f --trials
  bondstone results show study=netbricks/lpm,frame=64
  bondstone results show 3fa85f --json > result.json"))]
pub(crate) struct Show {
    /// Results to select.
    #[arg(value_name = "SELECTION", required = true)]
    selection: Vec<String>,
    /// Shows all trials.
    #[arg(long)]
    trials: bool,
    #[command(flatten)]
    db: Db,
    /// Prints the documents as JSON, as stored.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let entries = select_all(&store, &self.selection)?;
        let mut out = stdout();
        if self.json {
            for entry in &entries {
                if let Some(document) = store.document(&entry.id)? {
                    writeln!(out, "{}", document.text())?;
                }
            }
            return Ok(Exit::Success);
        }
        let all = load(&store, &entries)?;
        write!(out, "{}", report::table(&all))?;
        for r in &all {
            writeln!(out, "\n{}", r.id)?;
            let tags = store.tags(&r.id)?;
            let mut facts = Table::new(&["", ""]);
            let cell: Vec<String> = r.cell.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let standard = r.method.standard.as_ref().map_or(String::new(), |s| format!(" ({s})"));
            for (name, value) in [
                ("study", r.study.clone()),
                ("cell", cell.join(", ")),
                ("dut", format!("{} {}", r.dut.label(), r.dut.version.as_deref().unwrap_or_default())),
                ("method", format!("{}{standard}", r.method.name)),
                ("date", r.environment.date.clone()),
                ("tool", format!("{} {}", r.tool.name, r.tool.version)),
                ("cpu", r.environment.cpu.clone()),
                ("tags", tags.join(" ")),
            ] {
                if !value.is_empty() {
                    // the colon makes the column text, aligned to the left
                    facts.row([format!("{name}:"), plain(value)]);
                }
            }
            for line in facts.to_string().lines().skip(1) {
                writeln!(out, "{line}")?;
            }
            let mut metrics = Table::new(&["metric", "value"]);
            for m in results::metric::metrics(r) {
                metrics.row([plain(m.label()), with_unit(m.value, &m.unit)]);
            }
            if !metrics.is_empty() {
                write!(out, "\n{metrics}")?;
            }
            if self.trials {
                write!(out, "\n{}", trials(r))?;
            }
        }
        Ok(Exit::Success)
    }
}

fn trials(r: &report::Result) -> Table {
    let mut table = Table::new(&[
        "load",
        "s",
        "sent",
        "unsent",
        "received",
        "lost",
        "loss",
        "generator gap",
        "off CPU",
        "DUT gap",
        "off CPU",
        "host interference",
    ]);
    let times = |times: Option<report::PollTimes>| match times {
        Some(times) => [times.gap_max_ns, times.off_cpu_ns].map(|ns| with_unit(ns as f64, "ns")),
        None => ["-", "-"].map(str::to_owned),
    };
    for t in &r.trials {
        let ([generator_gap, generator_off_cpu], [dut_gap, dut_off_cpu]) = (times(t.generator), times(t.dut));
        table.row([
            with_unit(t.load_pps, "pps"),
            t.duration_s.to_string(),
            t.sent.to_string(),
            t.unsent.to_string(),
            t.received.to_string(),
            t.lost.to_string(),
            format!("{:.4} %", t.loss_ratio() * 100.0),
            generator_gap,
            generator_off_cpu,
            dut_gap,
            dut_off_cpu,
            if t.host_interference { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}
