//! The process behind a wall.

use crate::order::{CLOSE, Order, REPORT, Word};
use crate::{HOST, cage, calls, handed, vm};
use config::Isolation;
use diagnostics::Diagnostics;
use graph::Registry;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use runtime::{Engine, Idle, Options, confine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How often it says what it has done, if nobody asks.
const OFTEN: Duration = Duration::from_millis(50);

/// Runs as a process behind a wall, as a file says; standard input is a socket to whoever has started it. The first of two
/// such processes makes the namespaces that the second, `inner`, begins in, or becomes the program that runs a guest.
pub fn host(registry: &Registry, order: &Path, inner: bool) -> ExitCode {
    let told = std::fs::read_to_string(order).map_err(|e| e.to_string());
    let told = told.and_then(|text| serde_json::from_str::<Order>(&text).map_err(|e| e.to_string()));
    let told = told.map_err(|e| format!("{}: {e}", order.display()));
    let contained = inner && told.as_ref().is_ok_and(|told| told.isolation == Isolation::Container);
    let done = ends(contained).map_err(|e| e.to_string()).and_then(|(from, mut to)| {
        let run = || {
            let (told, to) = (told?, to.try_clone().map_err(|e| e.to_string())?);
            // in a container it is told by the end of its input, as what has started it is no parent that stays
            if !contained {
                end_with_parent()?;
            }
            if inner { behind(registry, &told, (from, to)) } else { outside(&told, order, from) }
        };
        // errors: nobody listens
        run().inspect_err(|fault| drop(say(&mut to, &Word::Fault(fault.clone()))))
    });
    done.map_or(ExitCode::from(3), ExitCode::from)
}

/// The kernel ends this process with the one that started it.
fn end_with_parent() -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("ending with its parent: {e}"))
}

/// Where it listens and where it speaks. What runs a container copies what goes in and out, each its own way; others have a
/// socket for both. What else is open is closed, such as memory that whoever has started it shares with others.
fn ends(contained: bool) -> io::Result<(File, File)> {
    dpdk::close_inherited()?;
    let from: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    if !contained {
        return Ok((from.try_clone()?, from));
    }
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    // what NFs print is not what it says
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok((from, out.into()))
}

pub(crate) fn say(to: &mut File, word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Waits until it may begin, makes namespaces, and starts the process that is in them.
fn outside(order: &Order, path: &Path, mut from: File) -> Result<u8, String> {
    from.read_exact(&mut [0]).map_err(|e| format!("nobody says that it may begin: {e}"))?;
    confine(&order.cpus).map_err(|e| format!("CPUs {:?}: {e}", order.cpus))?;
    // what runs containers makes namespaces by itself
    if order.isolation == Isolation::Container {
        return Err(become_program(&order.program));
    }
    cage::leave()?;
    let mut own = Command::new("/proc/self/exe");
    let mut child = own.arg(HOST).arg(path).arg("--inner").spawn().map_err(|e| format!("its process: {e}"))?;
    let status = child.wait().map_err(|e| e.to_string())?;
    Ok(status.signal().map_or_else(|| status.code().unwrap_or(4), |signal| 128 + signal) as u8)
}

/// Takes the place of this program; why it does not.
fn become_program(argv: &[String]) -> String {
    let Some((program, arguments)) = argv.split_first() else { return "there is no program".to_owned() };
    format!("{program}: {}", Command::new(program).args(arguments).exec())
}

/// Runs a guest, or forwards, in namespaces of its own and without rights.
fn behind(registry: &Registry, order: &Order, ends: (File, File)) -> Result<u8, String> {
    match order.isolation {
        Isolation::Vm => {
            // for what the guest's kernel prints
            let console = fcntl(io::stderr(), FcntlArg::F_DUPFD(vm::CONSOLE));
            if console != Ok(vm::CONSOLE) {
                return Err(format!("its console: {console:?}"));
            }
            handed::show(&order.devices, order.user)?;
            cage::become_nobody(order.user, order.group)?;
        }
        Isolation::Process => {
            cage::enter(order)?;
            cage::give_up(order)?;
        }
        _ => {}
    }
    if order.isolation != Isolation::Container {
        // whoever becomes another user is asked again, and may be too late
        end_with_parent()?;
        let mut gone = [PollFd::new(&ends.0, PollFlags::empty())];
        let now = Timespec::default();
        if poll(&mut gone, Some(&now)).is_ok_and(|n| n > 0) {
            return Err("nobody is there any more".to_owned());
        }
    }
    if order.isolation == Isolation::Vm {
        return Err(become_program(&order.program));
    }
    let forbids = |e| format!("forbidding system calls: {e}");
    calls::confine().map_err(forbids)?;
    // NFs are built and ports are open, and no packet has moved
    let shut = || {
        calls::restrict(!order.devices.is_empty()).map_err(|e| crate::lacks(forbids(e), "use a kernel with seccomp"))
    };
    forward(registry, order, ends, OFTEN, shut)?;
    Ok(0)
}

/// Forwards until told to stop; `shut` is called before the first packet moves. Says what it has done when asked, and as often
/// as this if not.
pub(crate) fn forward(
    registry: &Registry,
    order: &Order,
    (from, mut to): (File, File),
    often: Duration,
    shut: impl FnOnce() -> Result<(), runtime::Error>,
) -> Result<(), String> {
    let bytes = Some(order.heap_mib << 20);
    let most = Rlimit { current: bytes, maximum: bytes };
    setrlimit(Resource::Data, most).map_err(|e| format!("a limit of its memory: {e}"))?;
    let file = order.part.read(&order.file, registry).map_err(|faults| Diagnostics(faults).to_string())?;
    let options = Options { idle: if order.sleepy { Idle::Sleep } else { Idle::Poll }, ..Options::default() };
    let engine = Engine::start_around(&file, options, shut).map_err(|e| e.to_string())?;
    // one that hangs cannot be dropped
    let engine = std::mem::ManuallyDrop::new(engine);
    let mut from = BufReader::new(from);
    let wait = Timespec::try_from(often).map_err(|e| e.to_string())?;
    let mut line = String::new();
    // who looks finds its NFs from the beginning
    let mut said = say(&mut to, &Word::Report(Box::new(engine.snapshot()))).and_then(|()| say(&mut to, &Word::Ready));
    let mut closing = false;
    while said.is_ok() && (closing || !engine.is_finished()) {
        line.clear();
        let told = !from.buffer().is_empty()
            || poll(&mut [PollFd::new(from.get_ref(), PollFlags::IN)], Some(&wait)).is_ok_and(|n| n > 0);
        // lines come whole
        if told {
            match from.read_line(&mut line).map(|_| line.trim_end()) {
                Ok(REPORT) => {}
                Ok(CLOSE) => {
                    engine.close();
                    closing = true;
                    // a worker looks before each poll
                    std::thread::sleep(Duration::from_millis(1));
                    if say(&mut to, &Word::Closed).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        said = say(&mut to, &Word::Report(Box::new(engine.snapshot())));
        if engine.hangs() {
            // it would be waited for in vain; whoever hears this starts another
            return Err("an NF does not give a batch back".to_owned());
        }
    }
    let last = std::mem::ManuallyDrop::into_inner(engine).stop();
    // errors: who would have listened is gone
    let _ = say(&mut to, &Word::Last(Box::new(last)));
    Ok(())
}
