//! `bondstone results rm`.

use super::select::select_all;
use super::{Db, SELECTION, input_error, short};
use crate::exit::Exit;
use crate::stdout::stdout;
use std::io::Write;

/// Deletes results.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results rm 3fa85f
  bondstone results rm until=2025-12-31 --yes"))]
pub(crate) struct Rm {
    /// Results to select.
    #[arg(value_name = "SELECTION", required = true)]
    selection: Vec<String>,
    /// Confirms the deletion of more than one result.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    db: Db,
    /// Prints the deleted ids as JSON.
    #[arg(long)]
    json: bool,
}

impl Rm {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let mut store = self.db.open()?;
        let entries = select_all(&store, &self.selection)?;
        if entries.len() > 1 && !self.yes {
            let (first, last) = (&entries[entries.len() - 1].date, &entries[0].date);
            return Err(input_error(format_args!(
                "{} results from {first} to {last} selected; nothing was deleted; confirm with --yes",
                entries.len()
            )));
        }
        let mut deleted = vec![];
        for entry in &entries {
            if store.delete(&entry.id)? {
                deleted.push(entry.id.clone());
            }
        }
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &deleted)?;
            writeln!(out)?;
        } else {
            deleted.iter().try_for_each(|id| writeln!(out, "deleted {}", short(id)))?;
        }
        Ok(Exit::Success)
    }
}
