//! `bondstone reload`.

use crate::exit::Exit;
use crate::instance::Instance;
use crate::run::describe_times;
use crate::stdout::stdout;
use control::{Client, Request};
use runtime::Reloaded;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Replaces the chain file of a running instance, without losing a packet.
///
/// The new graph is built beside the running one, and each worker changes to it between two batches. NFs with the same
/// settings keep their state; those whose settings differ take it over where that is possible (`bondstone diff` tells
/// which). An error in the new file changes nothing. SIGHUP to the process, or `run --watch`, reload the same file.
///
/// Ports, CPUs, links and sandboxes change as well. `clock`, `max_frame` and `idle` stay as they are until the next
/// start.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone reload                             # read the chain file again
  bondstone reload edge-new.toml               # run another one
  bondstone reload edge.toml --instance 4711   # in one of several instances")]
pub(crate) struct Reload {
    /// New chain file; by default the instance reads its own again.
    chain: Option<PathBuf>,
    /// Control socket, chain file, name of the chain file, or number of the process [default: the only instance, or
    /// that which runs CHAIN].
    #[arg(long, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Prints the differences as JSON.
    #[arg(long)]
    json: bool,
}

impl Reload {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let file = self.chain.as_deref().map(std::path::absolute).transpose()?;
        let reloaded: Reloaded = self.connect()?.call(&Request::Reload { file })?;
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &reloaded)?;
            writeln!(out)?;
        } else {
            let times = describe_times(&reloaded);
            writeln!(out, "{}{times}", reloaded.changes)?;
            reloaded.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
        }
        Ok(Exit::Success)
    }

    fn connect(&self) -> anyhow::Result<Client> {
        let only = Instance::named(self.instance.clone()).connect();
        match self.chain.as_deref().map(Path::to_string_lossy).filter(|_| self.instance.is_none()) {
            Some(chain) if only.is_err() => Instance::named(Some(chain.into_owned())).connect(),
            _ => only,
        }
    }
}
