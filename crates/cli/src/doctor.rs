//! `bondstone doctor`.

use crate::exit::Exit;

/// Looks at this machine and user: what is there, what each thing that is missing would add, and how to get it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  bondstone doctor")]
pub(crate) struct Doctor {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        Ok(Exit::Done)
    }
}
