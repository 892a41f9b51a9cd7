//! `bondstone stop`.

use crate::exit::Exit;
use crate::instance::Instance;
use crate::run;
use crate::stdout::stdout;
use control::Request;
use runtime::Summary;
use serde::Deserialize as _;
use std::io::Write;

/// Stops a running instance: it forwards what is in its queues, prints its summary and ends with status 0.
///
/// Packets that NFs hold, such as those of a delay or for an unresolved neighbour, are left and counted as held; with
/// --drain they are forwarded as well.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone stop
  bondstone stop edge.toml
  bondstone stop --drain             # waits up to 10 s for packets that NFs hold
  bondstone stop edge --drain 60")]
pub(crate) struct Stop {
    #[command(flatten)]
    instance: Instance,
    /// Receives no more packets from ports, forwards those that are queued or held by NFs, waits for that at most this
    /// time, 1 to 3600 [default: 10], and prints the final summary. Exit status 1 if packets were left.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=control::DRAIN_MAX.as_secs()))]
    drain: Option<u64>,
    /// Prints the final summary as JSON.
    #[arg(long, requires = "drain")]
    json: bool,
}

impl Stop {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut client = self.instance.connect()?;
        let request = Request::Stop { drain: self.drain };
        if self.drain.is_none() {
            client.call::<()>(&request)?;
            return Ok(Exit::Success);
        }
        let end: serde_json::Value = client.call(&request)?;
        let summary = Summary::deserialize(&end)?;
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &end)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}    left {}", run::text(&summary), summary.totals.held)?;
        }
        Ok(if summary.totals.held == 0 { Exit::Success } else { Exit::NotMet })
    }
}
