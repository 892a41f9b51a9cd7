//! `bondstone upgrade`.

use crate::exit::Exit;
use crate::instance::Instance;
use crate::run::describe_pause;
use crate::stdout::stdout;
use control::{Request, Upgraded};
use std::io::Write;

/// Replaces the program of a running instance by the one that is installed now, with the state of its NFs.
///
/// The instance starts the file that is now at the path of its program, with its own arguments. The new process reads the
/// chain file and builds the NFs while the old one forwards; then the old one stops, hands over connections, sessions and
/// learned addresses, and ends with its summary. If the new process fails, the old one runs on.
///
/// For some milliseconds nothing is forwarded. Packets that arrive then wait in the rings of packet sockets
/// (af_packet); other ports are closed and opened again. Taps, captures and af_xdp cannot be handed over.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bondstone upgrade                  # after a new version was installed
  bondstone upgrade edge.toml --json")]
pub(crate) struct Upgrade {
    #[command(flatten)]
    instance: Instance,
    /// Prints the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Upgrade {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let upgraded: Upgraded = self.instance.connect()?.call(&Request::Upgrade {})?;
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &upgraded)?;
            writeln!(out)?;
        } else {
            let Upgraded { pid, version, prepare_ms, notes, .. } = &upgraded;
            let pause = describe_pause(&upgraded);
            writeln!(out, "process {pid}, version {version}: prepared in {prepare_ms:.0} ms; {pause}")?;
            notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
        }
        Ok(Exit::Success)
    }
}
