//! `bondstone diff`.

use crate::exit::Exit;
use crate::stdout::stdout;
use config::{ChainFile, Changes};
use diagnostics::Diagnostics;
use graph::Registry;
use std::io::Write;
use std::path::PathBuf;

/// Prints what a reload of one chain file by another would do.
///
/// NFs are kept with all their state, reconfigured (a new node takes over the named state), rebuilt without state, added
/// or removed. Sandboxes that differ get another process, in which NFs start without state. Differences that need a
/// restart are named as such. Files that settings name are not compared.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  bondstone diff edge.toml edge-new.toml\n  bondstone diff a.toml b.toml --json")]
pub(crate) struct Diff {
    /// Chain file that runs.
    old: PathBuf,
    /// Chain file that is to run.
    new: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let read = |file| ChainFile::read(file, registry).map_err(Diagnostics);
        let changes = Changes::between(&read(&self.old)?, &read(&self.new)?);
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &changes)?;
            writeln!(out)?;
        } else {
            write!(out, "{changes}")?;
        }
        Ok(Exit::Success)
    }
}
