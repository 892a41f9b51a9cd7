//! Sandboxes at the sockets of an external switch.

use crate::error::environment_error;
use crate::sandboxes::Sandboxes;
use config::ChainFile;
use diagnostics::Diagnostics;
use graph::Registry;
use logger::eprintln;
use runtime::Error;
use serde::{Deserialize, Serialize};
use std::io::{Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Task of an external switch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SwitchSpec {
    /// Folder for further sockets, which is removed at the end.
    pub folder: PathBuf,
    /// Ports of the file, and sandbox crossings with the sockets on which the switch listens.
    pub ports: Vec<(String, Option<PathBuf>)>,
    /// Pairs of port indices: packets of the first port are forwarded to the second.
    pub pairs: Vec<(usize, usize)>,
}

/// Line that the switch sends when it listens.
pub const LISTENING: &str = "listening";
/// Line that is sent when all sandboxes are ready.
pub const READY: &str = "ready";

/// Prints the task of an external switch for a chain file as a line of JSON ([`SwitchSpec`]), starts the sandboxes
/// after the line [`LISTENING`], prints [`READY`], and stops the sandboxes at the end of standard input.
pub fn serve_external_switch(registry: &Registry, file: &Path) -> ExitCode {
    match run(registry, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(if matches!(e, Error::Input(_)) { 2 } else { 3 })
        }
    }
}

fn run(registry: &Registry, file: &Path) -> Result<(), Error> {
    let file = ChainFile::read(file, registry).map_err(Diagnostics)?;
    file.check_external_switch().map_err(|d| Error::Input(Diagnostics(vec![d])))?;
    // the file needs at least one sandbox
    let none = || environment_error("the file has no sandbox", "give an NF isolation = \"process\"");
    let sandboxes = Sandboxes::build(&file, registry, 0)?.ok_or_else(none)?;
    sandboxes.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let spec = switch_spec(&file, &sandboxes)?;
    let mut lines = stdin().lines();
    let print = |line: &str| {
        let printed = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
        printed.map_err(|e| environment_error(format!("standard output: {e}"), "this command is for bondstone bench"))
    };
    print(&serde_json::to_string(&spec).unwrap_or_default())?;
    if !lines.next().is_some_and(|line| line.is_ok_and(|line| line == LISTENING)) {
        return Ok(());
    }
    sandboxes.start()?;
    print(READY)?;
    // until the end of the input
    lines.for_each(drop);
    Ok(())
}

fn switch_spec(file: &ChainFile, sandboxes: &Sandboxes) -> Result<SwitchSpec, Error> {
    let side = sandboxes.host_side();
    let mut ports: Vec<(String, Option<PathBuf>)> = file.ports.iter().map(|port| (port.name.clone(), None)).collect();
    ports.extend(sandboxes.sockets().map(|(port, socket)| (port, Some(socket))));
    let number = |name: &str| ports.iter().position(|(port, _)| port == name);
    let all = side.port_pairs().map_err(|d| Error::Input(Diagnostics(vec![d])))?;
    let hops = all.into_iter().map(|(from, to)| Some((number(from)?, number(to)?))).collect::<Option<_>>();
    let hops = hops.ok_or_else(|| environment_error("a chain leads to no port", "report this bug in Bondstone"))?;
    let folder = sandboxes
        .make_switch_folder()
        .map_err(|e| environment_error(format!("cannot create a folder for sockets: {e}"), "check its permissions"))?;
    Ok(SwitchSpec { folder, ports, pairs: hops })
}
