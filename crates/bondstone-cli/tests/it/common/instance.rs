//! Instances of `bondstone run`, and commands that use their control sockets.

use super::{Running, Said, Summary};
use std::path::Path;
use std::process::Command;

/// A chain that forwards blank frames.
pub(crate) const CHAIN: &str = "bondstone = 1\n\
     [port.in]\ndevice = \"null\"\n[port.out]\ndevice = \"null\"\n\
     [nf.hops]\nkind = \"ttl\"\n\
     [[chain]]\npath = [\"in\", \"hops\", \"out\"]\n";

/// Runs a command with the sockets in `dir`.
pub(crate) fn command(dir: &Path, arguments: &[&str]) -> Said {
    program(dir).args(arguments).output().unwrap().into()
}

/// The program with the sockets in `dir`.
pub(crate) fn program(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.env("BONDSTONE_RUNTIME_DIR", dir);
    command
}

/// Starts a chain file, with further arguments of `run`.
pub(crate) fn start(dir: &Path, file: &Path, more: &[&str]) -> Running {
    let mut running = Running::start(program(dir).arg("run").arg(file).arg("--json").args(more));
    running.started();
    running
}

/// Returns the statistics of a run.
pub(crate) fn statistics(sockets: &Path) -> Summary {
    let said = command(sockets, &["stats", "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    Summary(serde_json::from_str(&said.out).unwrap())
}
