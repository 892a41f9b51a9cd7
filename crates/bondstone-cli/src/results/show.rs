//! `bondstone results show`.

use super::list::plain;
use super::pick::{pick_all, whole};
use super::{Db, SELECTION, human};
use crate::exit::Exit;
use crate::table::Table;
use std::io::Write;

/// Shows results whole: what was reached, every number, where and how it was measured.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results show 3fa85f
  bondstone results show 3fa85f --trials
  bondstone results show study=netbricks/lpm,frame=64
  bondstone results show 3fa85f --json > result.json"))]
pub(crate) struct Show {
    /// Which.
    #[arg(value_name = "WHICH", required = true)]
    which: Vec<String>,
    /// Shows every trial as well.
    #[arg(long)]
    trials: bool,
    #[command(flatten)]
    db: Db,
    /// Prints the documents as JSON, as they were added.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let entries = pick_all(&store, &self.which)?;
        let mut out = std::io::stdout().lock();
        if self.json {
            for entry in &entries {
                if let Some(document) = store.document(&entry.id)? {
                    writeln!(out, "{}", document.text())?;
                }
            }
            return Ok(Exit::Done);
        }
        let all = whole(&store, &entries)?;
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
                    // as a text, that it stands left
                    facts.row([format!("{name}:"), plain(value)]);
                }
            }
            for line in facts.to_string().lines().skip(1) {
                writeln!(out, "{line}")?;
            }
            let mut numbers = Table::new(&["metric", "value"]);
            for m in results::metric::metrics(r) {
                numbers.row([plain(m.label()), human(m.value, &m.unit)]);
            }
            if !numbers.is_empty() {
                write!(out, "\n{numbers}")?;
            }
            if self.trials {
                write!(out, "\n{}", trials(r))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn trials(r: &report::Result) -> Table {
    let mut table = Table::new(&["load", "s", "sent", "unsent", "received", "lost", "loss", "machine"]);
    for t in &r.trials {
        table.row([
            human(t.load_pps, "pps"),
            t.duration_s.to_string(),
            t.sent.to_string(),
            t.unsent.to_string(),
            t.received.to_string(),
            t.lost.to_string(),
            format!("{:.4} %", t.loss_ratio() * 100.0),
            if t.machine { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}
