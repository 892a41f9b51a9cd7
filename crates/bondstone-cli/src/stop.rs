//! `bondstone stop`.

use crate::exit::Exit;
use crate::instance::Instance;
use control::Request;

/// Stops a running instance: it forwards what is in its queues, prints its summary and ends with status 0.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone stop
  bondstone stop edge.toml")]
pub(crate) struct Stop {
    #[command(flatten)]
    instance: Instance,
}

impl Stop {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        self.instance.connect()?.call::<()>(&Request::Stop {})?;
        Ok(Exit::Success)
    }
}
