//! `bondstone results rm`.

use super::pick::pick_all;
use super::{Db, SELECTION, short, wrong};
use crate::exit::Exit;
use std::io::Write;

/// Deletes results.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results rm 3fa85f
  bondstone results rm until=2025-12-31 --yes"))]
pub(crate) struct Rm {
    /// Which.
    #[arg(value_name = "WHICH", required = true)]
    which: Vec<String>,
    /// Deletes more than one.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    db: Db,
    /// Prints the ids as JSON.
    #[arg(long)]
    json: bool,
}

impl Rm {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let mut store = self.db.open()?;
        let entries = pick_all(&store, &self.which)?;
        if entries.len() > 1 && !self.yes {
            let (first, last) = (&entries[entries.len() - 1].date, &entries[0].date);
            return Err(wrong(format_args!(
                "these are {} results, of {first} to {last}; nothing was deleted; say --yes to delete them all",
                entries.len()
            )));
        }
        let mut gone = vec![];
        for entry in &entries {
            if store.delete(&entry.id)? {
                gone.push(entry.id.clone());
            }
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &gone)?;
            writeln!(out)?;
        } else {
            gone.iter().try_for_each(|id| writeln!(out, "deleted {}", short(id)))?;
        }
        Ok(Exit::Done)
    }
}
