//! `bondstone results tag`.

use super::pick::pick_all;
use super::{Db, SELECTION, short, wrong};
use crate::exit::Exit;
use std::io::Write;

/// Gives tags to results, and takes them away. Documents stay as they are.
///
/// A tag has letters, digits, and . _ - / : + @, at most 64 of them; a result has at most 64 tags.
#[derive(clap::Args)]
#[command(after_help = format!("{SELECTION}

Examples:
  bondstone results tag 3fa85f --add baseline
  bondstone results tag since=2026-03-01,dut=bondstone --add nightly --add v0.2
  bondstone results tag nightly --remove nightly"))]
pub(crate) struct Tag {
    /// Which.
    #[arg(value_name = "WHICH", required = true)]
    which: Vec<String>,
    /// A tag to give.
    #[arg(long, value_name = "TAG")]
    add: Vec<String>,
    /// A tag to take away.
    #[arg(long, value_name = "TAG")]
    remove: Vec<String>,
    #[command(flatten)]
    db: Db,
    /// Prints the tags that each has now, as JSON.
    #[arg(long)]
    json: bool,
}

impl Tag {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        if self.add.is_empty() && self.remove.is_empty() {
            return Err(wrong("say which tags: --add TAG, --remove TAG"));
        }
        let mut store = self.db.open()?;
        let mut json = serde_json::Map::new();
        let mut out = std::io::stdout().lock();
        for entry in pick_all(&store, &self.which)? {
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
        Ok(Exit::Done)
    }
}
