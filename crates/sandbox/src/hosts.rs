//! What is behind the walls of a chain file, at the sockets of a switch that is another program.

use crate::Walls;
use config::ChainFile;
use diagnostics::Diagnostics;
use graph::Registry;
use runtime::Error;
use serde::{Deserialize, Serialize};
use std::io::{Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What that switch has to do.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hops {
    /// A folder where it may have more of them, which is removed at the end.
    pub folder: PathBuf,
    /// The ports of the file, and the ways through its walls with the sockets at which the switch has to listen.
    pub ports: Vec<(String, Option<PathBuf>)>,
    /// From which port to which it hands packets, by their numbers.
    pub hops: Vec<(usize, usize)>,
}

/// A line that it is told once the switch listens.
pub const LISTENS: &str = "listens";
/// A line that it says when all is there.
pub const READY: &str = "ready";

/// Says what a switch has to do for the chains of a file, a line of JSON ([`Hops`]); starts what is behind its walls once it
/// is told that the switch listens, says that it is ready, and ends it with its standard input.
pub fn hosts(registry: &Registry, file: &Path) -> ExitCode {
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
    file.for_any_switch().map_err(|d| Error::Input(Diagnostics(vec![d])))?;
    // there is no wall that such a file cannot have, but one it must
    let none = || crate::lacks("no NF of it is behind a wall", "give one isolation = \"process\"");
    let walls = Walls::build(&file, registry, 0)?.ok_or_else(none)?;
    walls.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let told = hops(&file, &walls)?;
    let mut lines = stdin().lines();
    let say = |line: &str| {
        let said = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
        said.map_err(|e| crate::lacks(format!("nobody listens: {e}"), "this is run by bondstone bench"))
    };
    say(&serde_json::to_string(&told).unwrap_or_default())?;
    if !lines.next().is_some_and(|line| line.is_ok_and(|line| line == LISTENS)) {
        return Ok(());
    }
    walls.start()?;
    say(READY)?;
    // whoever started it says nothing more, and ends it so
    lines.for_each(drop);
    Ok(())
}

fn hops(file: &ChainFile, walls: &Walls) -> Result<Hops, Error> {
    let side = walls.switch();
    let mut ports: Vec<(String, Option<PathBuf>)> = file.ports.iter().map(|port| (port.name.clone(), None)).collect();
    ports.extend(walls.sockets().map(|(port, socket)| (port, Some(socket))));
    let number = |name: &str| ports.iter().position(|(port, _)| port == name);
    let all = side.hops().map_err(|d| Error::Input(Diagnostics(vec![d])))?;
    let hops = all.into_iter().map(|(from, to)| Some((number(from)?, number(to)?))).collect::<Option<_>>();
    let hops = hops.ok_or_else(|| crate::lacks("a chain leads to no port", "this is a bug in Bondstone"))?;
    let folder = walls.of_switch().map_err(|e| crate::lacks(format!("its folder: {e}"), "look at the rights there"))?;
    Ok(Hops { folder, ports, hops })
}
