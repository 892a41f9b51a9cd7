//! A sandboxed process.

use crate::confinement::{namespaces, seccomp};
use crate::error::environment_error;
use crate::launch::{
    CLOSE, END_PROBES, LaunchSpec, Message, PROBES_PER_MESSAGE, PROCESS_COMMAND, REPORT, TRACE_PROBES,
};
use crate::vm;
use config::Isolation;
use diagnostics::Diagnostics;
use graph::{Registry, SettingFiles};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use runtime::{Engine, IdlePolicy, MAX_PROBE_RECORDS, Options, ProbeTrace, set_affinity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Interval of reports without a request.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for workers to stop receiving from passthrough ports.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs as a sandboxed process with the launch spec in a file; standard input is a socket to the supervisor. The outer
/// process creates the namespaces in which the `inner` one runs, or executes the program that runs a guest.
///
/// Must be called before the process opens files or starts threads: files that it has inherited are closed.
pub fn run_process(registry: &Registry, spec_file: &Path, inner: bool) -> ExitCode {
    let spec = std::fs::read_to_string(spec_file).map_err(|e| e.to_string());
    let spec = spec.and_then(|text| serde_json::from_str::<LaunchSpec>(&text).map_err(|e| e.to_string()));
    let spec = spec.map_err(|e| format!("{}: {e}", spec_file.display()));
    let contained = inner && spec.as_ref().is_ok_and(|spec| spec.isolation == Isolation::Container);
    let done = control_channel(contained).map_err(|e| e.to_string()).and_then(|(from, mut to)| {
        let run = || {
            let (spec, to) = (spec?, to.try_clone().map_err(|e| e.to_string())?);
            // in a container the end of the input ends it, because its parent does not stay
            if !contained {
                die_with_parent()?;
            }
            if inner { run_inner(registry, &spec, (from, to)) } else { run_outer(&spec, spec_file, from) }
        };
        // errors: the supervisor is gone
        run().inspect_err(|error| drop(send(&mut to, &Message::Error(error.clone()))))
    });
    done.map_or(ExitCode::from(3), ExitCode::from)
}

/// Lets the kernel kill this process when its parent ends.
fn die_with_parent() -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(|e| format!("parent-death signal: {e}"))
}

/// Returns the input and output of the control channel: standard input and output in a container, else one socket.
/// Closes all other inherited files, such as memory that the parent shares with other processes.
fn control_channel(contained: bool) -> io::Result<(File, File)> {
    // SAFETY: the process has opened no file.
    #[expect(unsafe_code, reason = "closes files that others may own")]
    unsafe {
        dpdk::close_inherited_fds()?;
    }
    let from: File = io::stdin().as_fd().try_clone_to_owned()?.into();
    if !contained {
        return Ok((from.try_clone()?, from));
    }
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    // output of NFs must not mix with messages
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok((from, out.into()))
}

/// Sends a message to the supervisor.
pub(crate) fn send(to: &mut File, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Waits for the supervisor, creates namespaces, and starts the inner process in them.
fn run_outer(spec: &LaunchSpec, path: &Path, mut from: File) -> Result<u8, String> {
    from.read_exact(&mut [0]).map_err(|e| format!("waiting for the supervisor: {e}"))?;
    set_affinity(&spec.cpus).map_err(|e| format!("CPUs {:?}: {e}", spec.cpus))?;
    // runc creates namespaces itself
    if spec.isolation == Isolation::Container {
        return Err(exec(&spec.program));
    }
    namespaces::unshare_namespaces()?;
    let mut own = Command::new("/proc/self/exe");
    let mut child = own
        .arg(PROCESS_COMMAND)
        .arg(path)
        .arg("--inner")
        .spawn()
        .map_err(|e| format!("starting the inner process: {e}"))?;
    let status = child.wait().map_err(|e| e.to_string())?;
    Ok(status.signal().map_or_else(|| status.code().unwrap_or(4), |signal| 128 + signal) as u8)
}

/// Executes another program in place of this one; returns only with an error.
fn exec(argv: &[String]) -> String {
    let Some((program, arguments)) = argv.split_first() else { return "the launch spec names no program".to_owned() };
    let name = Path::new(program).file_name().unwrap_or_default();
    format!("{program}: {}", Command::new(program).arg0(name).args(arguments).exec())
}

/// Runs a guest or NFs, in namespaces and without privileges.
fn run_inner(registry: &Registry, spec: &LaunchSpec, channel: (File, File)) -> Result<u8, String> {
    let mut files = SettingFiles::default();
    match spec.isolation {
        Isolation::Vm => {
            // for the console of the guest's kernel
            let console = fcntl(io::stderr(), FcntlArg::F_DUPFD(vm::CONSOLE_FD));
            if console != Ok(vm::CONSOLE_FD) {
                return Err(format!("console: {console:?}"));
            }
            namespaces::enter_root(spec)?;
            namespaces::drop_privileges(spec)?;
        }
        Isolation::Process => {
            files = SettingFiles::open_all(&spec.files);
            spec.partition.kinds(registry).for_each(|kind| (kind.preload)());
            namespaces::enter_root(spec)?;
            namespaces::drop_privileges(spec)?;
        }
        Isolation::Container => files = SettingFiles::open_all(&spec.files),
        Isolation::Inproc => {}
    }
    if spec.isolation != Isolation::Container {
        // changing the user clears the parent-death signal, and the parent may have ended meanwhile
        die_with_parent()?;
        let mut hangup = [PollFd::new(&channel.0, PollFlags::empty())];
        let now = Timespec::default();
        if poll(&mut hangup, Some(&now)).is_ok_and(|n| n > 0) {
            return Err("the supervisor has ended".to_owned());
        }
    }
    let failed = |e| format!("seccomp: {e}");
    if spec.isolation == Isolation::Vm {
        seccomp::install_vm_filter().map_err(failed)?;
        return Err(exec(&spec.program));
    }
    let has_devices = !spec.devices.is_empty();
    seccomp::install_setup_filter(has_devices).map_err(failed)?;
    // called when the ports are open, before NFs are built
    let confine = || {
        // no core dump, no access of other processes of its user
        let dumpable = nix::sys::prctl::set_dumpable(false).map_err(|e| format!("dumpable: {e}"));
        let installed = dumpable.and_then(|()| seccomp::install_nf_filter(has_devices).map_err(failed));
        installed.map_err(|e| environment_error(e, "use a kernel with seccomp"))
    };
    serve(registry, spec, files, channel, REPORT_INTERVAL, confine)?;
    Ok(0)
}

/// Forwards until it is stopped; `confine` is called before an NF is built. Reports on request, and at an interval
/// without requests.
pub(crate) fn serve(
    registry: &Registry,
    spec: &LaunchSpec,
    files: SettingFiles,
    (from, mut to): (File, File),
    interval: Duration,
    confine: impl FnOnce() -> Result<(), runtime::Error>,
) -> Result<(), String> {
    let bytes = Some(spec.heap_mib << 20);
    let limit = Rlimit { current: bytes, maximum: bytes };
    setrlimit(Resource::Data, limit).map_err(|e| format!("memory limit: {e}"))?;
    let file = spec.partition.plan(&spec.file, registry).map_err(|errors| Diagnostics(errors).to_string())?;
    let options = Options {
        idle: if spec.sleep_when_idle { IdlePolicy::Sleep } else { IdlePolicy::Pause },
        ..Options::default()
    };
    let engine = Engine::start_confined(&file, options, files, confine).map_err(|e| e.to_string())?;
    // a hung engine must not be dropped
    let engine = std::mem::ManuallyDrop::new(engine);
    let mut from = BufReader::new(from);
    let wait = Timespec::try_from(interval).map_err(|e| e.to_string())?;
    let mut line = String::new();
    // the first report lists the NFs
    let mut sent =
        send(&mut to, &Message::Report(Box::new(engine.snapshot()))).and_then(|()| send(&mut to, &Message::Ready));
    let mut closing = false;
    let mut probes: Option<ProbeTrace> = None;
    while sent.is_ok() && (closing || !engine.is_finished()) {
        line.clear();
        let is_requested = !from.buffer().is_empty()
            || poll(&mut [PollFd::new(from.get_ref(), PollFlags::IN)], Some(&wait)).is_ok_and(|n| n > 0);
        // lines arrive as a whole
        if is_requested {
            match from.read_line(&mut line).map(|_| line.trim_end()) {
                Ok(REPORT) => {}
                Ok(line) if line.starts_with(TRACE_PROBES) => {
                    let every = line[TRACE_PROBES.len()..].parse().map_err(|e| format!("{line:?}: {e}"))?;
                    probes = Some(engine.trace_probes(every));
                }
                Ok(END_PROBES) => {
                    if send_probes(&mut to, probes.take()).is_err() {
                        break;
                    }
                }
                Ok(CLOSE) => {
                    engine.stop_receiving();
                    closing = true;
                    // a stuck worker is reported below
                    let deadline = Instant::now() + CLOSE_TIMEOUT;
                    while !engine.has_stopped_receiving() && Instant::now() < deadline {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    if send(&mut to, &Message::Closed).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        sent = send(&mut to, &Message::Report(Box::new(engine.snapshot())));
        if engine.is_stuck() {
            // it would not stop; the supervisor starts another
            return Err("an NF does not return a batch".to_owned());
        }
    }
    let summary = std::mem::ManuallyDrop::into_inner(engine).stop();
    // errors: the supervisor is gone
    let _ = send(&mut to, &Message::FinalReport(Box::new(summary)));
    Ok(())
}

/// Ends a trace of probes and sends its records.
fn send_probes(to: &mut File, trace: Option<ProbeTrace>) -> io::Result<()> {
    let mut records = trace.map_or(vec![], |mut trace| trace.read());
    records.truncate(MAX_PROBE_RECORDS);
    for chunk in records.chunks(PROBES_PER_MESSAGE) {
        send(to, &Message::Probes(chunk.to_vec(), false))?;
    }
    send(to, &Message::Probes(vec![], true))
}
