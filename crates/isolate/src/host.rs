//! The process behind a wall.

use crate::order::{Order, REPORT, Word};
use crate::{HOST, cage, calls};
use chain::ChainFile;
use graph::{Diagnostics, Registry};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use runtime::{Engine, Options, confine};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How often it says what it has done, if nobody asks.
const OFTEN: Duration = Duration::from_millis(50);

/// Runs as a process behind a wall, as a file says; standard input is a socket to whoever has started it. The first of two
/// such processes makes the namespaces that the second, `inner`, begins in.
pub fn host(registry: &Registry, order: &Path, inner: bool) -> ExitCode {
    let run = || -> Result<u8, String> {
        // what whoever has started it has open, such as memory shared with others
        dpdk::close_inherited().map_err(|e| format!("closing what is not its own (Linux 5.9 or newer?): {e}"))?;
        end_with_parent()?;
        let text = std::fs::read_to_string(order).map_err(|e| format!("{}: {e}", order.display()))?;
        let told: Order = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", order.display()))?;
        if inner { behind(registry, &told) } else { outside(&told, order) }
    };
    match run() {
        Ok(status) => ExitCode::from(status),
        Err(fault) => {
            // errors: nobody listens
            let _ = stream().and_then(|mut to| say(&mut to, &Word::Fault(fault)));
            ExitCode::from(3)
        }
    }
}

/// The kernel ends this process with the one that started it.
fn end_with_parent() -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("ending with its parent: {e}"))
}

fn stream() -> io::Result<UnixStream> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

fn say(to: &mut UnixStream, word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Waits until it may begin, makes namespaces, and starts the process that is in them.
fn outside(order: &Order, path: &Path) -> Result<u8, String> {
    let mut from: File = io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?.into();
    from.read_exact(&mut [0]).map_err(|e| format!("nobody says that it may begin: {e}"))?;
    confine(&order.cpus).map_err(|e| format!("CPUs {:?}: {e}", order.cpus))?;
    cage::leave()?;
    let mut own = Command::new("/proc/self/exe");
    let mut child = own.arg(HOST).arg(path).arg("--inner").spawn().map_err(|e| format!("its process: {e}"))?;
    let status = child.wait().map_err(|e| e.to_string())?;
    match std::os::unix::process::ExitStatusExt::signal(&status) {
        // 31 is SIGSYS
        Some(31) => Err("it asked the system for something that NFs may not".to_owned()),
        Some(signal) => Err(format!("it was ended by signal {signal}")),
        None => Ok(status.code().unwrap_or(4) as u8),
    }
}

/// Forwards until told to stop.
fn behind(registry: &Registry, order: &Order) -> Result<u8, String> {
    // what is read of files is read while they can be seen
    let all = |faults| Diagnostics(faults).to_string();
    let whole = ChainFile::parse(&order.text, &order.file, registry).map_err(all)?;
    let wall = whole.walls.iter().find(|wall| wall.name == order.wall);
    let wall = wall.ok_or_else(|| format!("no wall is called {:?}", order.wall))?;
    let file = whole.host(wall, &order.folder, registry).map_err(all)?;
    cage::enter(order)?;
    cage::give_up(order)?;
    // whoever becomes another user is asked again
    end_with_parent()?;
    let mut to = stream().map_err(|e| e.to_string())?;
    to.set_read_timeout(Some(OFTEN)).map_err(|e| e.to_string())?;
    let mut from = BufReader::new(to.try_clone().map_err(|e| e.to_string())?);
    let forbids = |e| format!("forbidding system calls: {e}");
    calls::confine().map_err(forbids)?;
    // NFs are built and ports are open, and no packet has moved
    let shut = || calls::restrict().map_err(|e| crate::lacks(forbids(e), "use a kernel with seccomp"));
    let engine = Engine::start_around(&file, Options::default(), shut).map_err(|e| e.to_string())?;
    // one that hangs cannot be dropped
    let engine = std::mem::ManuallyDrop::new(engine);
    let mut line = String::new();
    let mut said = say(&mut to, &Word::Ready);
    while said.is_ok() && !engine.is_finished() {
        line.clear();
        match from.read_line(&mut line) {
            Ok(_) if line.trim_end() != REPORT => break,
            Err(e) if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => break,
            _ => said = say(&mut to, &Word::Report(Box::new(engine.snapshot()))),
        }
        if engine.hangs() {
            // it would be waited for in vain; whoever hears this starts another
            return Err("an NF does not give a batch back".to_owned());
        }
    }
    let last = std::mem::ManuallyDrop::into_inner(engine).stop();
    // errors: who would have listened is gone
    let _ = say(&mut to, &Word::Last(Box::new(last)));
    Ok(0)
}
