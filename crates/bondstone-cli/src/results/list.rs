//! `bondstone results list`.

use super::select::select_all;
use super::{Db, SELECTION, short, with_unit};
use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use results::{Entry, Filter};
use std::io::Write;

/// Lists results, the newest first.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results list
  bondstone results list dut=bondstone,since=2026-01-01 --limit 20
  bondstone results list nightly --json
  bondstone results list --db postgres://lab@results.example/bench"))]
pub(crate) struct List {
    /// Results to select; all by default.
    #[arg(value_name = "SELECTION")]
    selection: Vec<String>,
    /// Maximum number of results to list.
    #[arg(long, default_value_t = 200)]
    limit: usize,
    #[command(flatten)]
    db: Db,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let store = self.db.open()?;
        let mut entries = if self.selection.is_empty() {
            store.list(&Filter { limit: Some(self.limit.saturating_add(1)), ..Filter::default() })?
        } else {
            select_all(&store, &self.selection)?
        };
        let more = entries.len() > self.limit;
        entries.truncate(self.limit);
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &entries)?;
            writeln!(out)?;
            return Ok(Exit::Success);
        }
        if entries.is_empty() {
            writeln!(out, "no results in {}; `bondstone bench` adds results", store.location())?;
            return Ok(Exit::Success);
        }
        write!(out, "{}", table(&entries))?;
        if more {
            writeln!(out, "\n  more results exist; use --limit {}", self.limit * 2)?;
        }
        Ok(Exit::Success)
    }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&[
        "id",
        "date",
        "study",
        "dut",
        "version",
        "cell",
        "frame",
        "method",
        "goal",
        "throughput",
        "upper",
        "limited by",
        "tags",
    ]);
    for e in entries {
        let cell: Vec<String> = e.cell.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let met = e.lower_pps > 0.0 || e.upper_pps.is_some();
        table.row(
            [
                short(&e.id),
                e.date.chars().take(16).collect(),
                e.study.clone(),
                e.dut.clone(),
                e.version.clone().unwrap_or_default(),
                cell.join(" "),
                e.frame.clone(),
                e.method.clone(),
                e.goal.clone().unwrap_or_default(),
                if met { with_unit(e.lower_pps, "pps") } else { "-".to_owned() },
                e.upper_pps.map_or("-".to_owned(), |upper| with_unit(upper, "pps")),
                e.limited_by.clone(),
                e.tags.join(" "),
            ]
            .map(plain),
        );
    }
    table
}

/// Truncates text of a document to 40 characters and replaces control characters.
pub(super) fn plain(text: String) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().count() <= 40 {
        return text;
    }
    text.chars().take(39).chain(['…']).collect()
}
