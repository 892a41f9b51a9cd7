//! `bondstone results tag`.

use super::select::select_all;
use super::{Db, SELECTION, input_error, short};
use crate::exit::Exit;
use crate::stdout::stdout;
use std::io::Write;

/// Adds tags to results and removes them. Documents do not change.
///
/// A tag consists of up to 64 letters, digits and . _ - / : + @; a result has up to 64 tags.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results tag 3fa85f --add baseline
  bondstone results tag since=2026-03-01,dut=bondstone --add nightly --add v0.2
  bondstone results tag nightly --remove nightly"))]
pub(crate) struct Tag {
    /// Results to select.
    #[arg(value_name = "SELECTION", required = true)]
    selection: Vec<String>,
    /// Tag to add.
    #[arg(long, value_name = "TAG")]
    add: Vec<String>,
    /// Tag to remove.
    #[arg(long, value_name = "TAG")]
    remove: Vec<String>,
    #[command(flatten)]
    db: Db,
    /// Prints the resulting tags as JSON.
    #[arg(long)]
    json: bool,
}

impl Tag {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        if self.add.is_empty() && self.remove.is_empty() {
            return Err(input_error("no tags: use --add TAG or --remove TAG"));
        }
        let mut store = self.db.open()?;
        let mut json = serde_json::Map::new();
        let mut out = stdout();
        for entry in select_all(&store, &self.selection)? {
            for tag in &self.remove {
                store.untag(&entry.id, tag)?;
            }
            for tag in &self.add {
                store.tag(&entry.id, tag)?;
            }
            let tags = store.tags(&entry.id)?;
            if self.json {
                json.insert(entry.id, tags.into());
            } else {
                writeln!(out, "{}  {}", short(&entry.id), tags.join(" "))?;
            }
        }
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json)?;
            writeln!(out)?;
        }
        Ok(Exit::Success)
    }
}
