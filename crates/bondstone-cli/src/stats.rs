//! `bondstone stats`.

use crate::exit::Exit;
use crate::instance::Instance;
use crate::run;
use crate::stdout::stdout;
use crate::table::count;
use control::Request;
use runtime::Summary;
use std::io::Write;

/// Prints the counts of a running instance.
///
/// They are those that `run` prints at its end: packets of each port and NF, drops by reason, cycles per packet. While
/// it runs, the sum includes packets in transit.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone stats
  bondstone stats edge.toml --json | jq .drops
  bondstone stats /run/bondstone/edge-4711.sock")]
pub(crate) struct Stats {
    #[command(flatten)]
    instance: Instance,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let stats: serde_json::Value = self.instance.connect()?.call(&Request::Stats {})?;
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &stats)?;
            writeln!(out)?;
        } else {
            let mut summary: Summary = serde_json::from_value(stats)?;
            let t = &summary.totals;
            let in_transit = (t.received + t.created).saturating_sub(t.sent + t.held + t.dropped);
            // conclusive only at the end
            summary.balanced = true;
            let (used, all) = (count(summary.pool.used), count(summary.pool.capacity));
            writeln!(out, "{}    in transit {in_transit}; {used} of {all} packet buffers in use", run::text(&summary))?;
        }
        Ok(Exit::Success)
    }
}
