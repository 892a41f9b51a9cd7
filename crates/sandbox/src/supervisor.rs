//! Supervision of sandboxed processes: starts them, receives their reports, restarts them when they end.

use crate::confinement::cgroup::{ControlGroups, Limits};
use crate::launch::{CLOSE, MAX_MESSAGE, Message, REPORT, STOP};
use crate::line_limit::LineLimit;
use crate::starvation::CpuTimes;
use nix::sys::signal::Signal;
use runtime::{MAX_PROBE_RECORDS, Name, NfSummary, Occupancy, PortSummary, ProbePoint, ProbeRecord, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::Level;

/// Interval at which processes are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Shortest delay before a process is restarted; it doubles with each failure.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Longest delay before a process is restarted.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Run time after which the delay is [`BACKOFF_MIN`] again.
const BACKOFF_RESET: Duration = Duration::from_secs(10);
/// Time for a process to end after a request.
const STOP_TIMEOUT: Duration = Duration::from_secs(6);
/// Time without a report after which a running process, which reports every 50 ms, is restarted. Time in which others
/// use its CPU does not count.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Multiple of a timeout after which a process is restarted although others use its CPU.
const STARVATION_FACTOR: u32 = 10;
/// Time without a report after which the CPU times of a process are read.
const SAMPLING_DELAY: Duration = Duration::from_millis(500);
/// Largest time that a check adds: while the machine is paused, a process is not silent.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(30);
/// Text before the delay in the error of a process that is restarted.
const RESTART_NOTE: &str = "; restart after ";
/// Errors of a sandbox that are stored.
const MAX_ERRORS: usize = 100;
/// Time for a process to start: building an NF with many routes takes long.
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest count that is accepted.
const MAX_COUNT: u64 = 1 << 48;
/// Longest name that is accepted, in characters.
const MAX_NAME: usize = 64;
/// Longest line of output, in bytes; the rest of a longer one is another line.
const MAX_LINE: usize = 2000;
/// Interval at which output is read while it is suppressed, and most bytes that are read then: a process that prints
/// more waits, and takes no time from the host side.
const SUPPRESSED_READ: (Duration, usize) = (Duration::from_millis(20), 1 << 16);

/// State of a sandbox's process, and totals of the processes before it.
pub(crate) struct ProcessState {
    /// Number of starts.
    pub(crate) starts: u64,
    /// True while the process forwards packets.
    pub(crate) ready: bool,
    /// Start time of the process.
    started: Option<Instant>,
    /// Time that the last start took.
    pub(crate) startup_time: Duration,
    /// True once the final report was received.
    pub(crate) finished: bool,
    /// Last report of the process.
    pub(crate) report: Option<Summary>,
    /// Packets that ended processes created.
    pub(crate) created: u64,
    /// Packets that ended processes dropped.
    pub(crate) dropped: u64,
    /// Drops of ended processes at the crossing ports, by reason.
    pub(crate) drops: BTreeMap<Name, u64>,
    /// Statistics of NFs of ended processes.
    pub(crate) nf_totals: BTreeMap<String, NfSummary>,
    /// Statistics of passthrough ports of ended processes.
    port_totals: BTreeMap<String, PortSummary>,
    /// Number of processes that ended without a request.
    pub(crate) failures: u64,
    pub(crate) errors: Vec<String>,
    /// Reason why the process cannot run.
    failure: Option<String>,
    /// Last line that the process printed.
    last_line: String,
    /// Limit of the output of all processes.
    pub(crate) line_limit: LineLimit,
    /// Connection for requests.
    control: Option<UnixStream>,
    /// True if a message was received since the last check.
    heard: bool,
    /// True once the host side stops, about which QEMU prints warnings.
    pub(crate) stopping: bool,
    passthrough: PassthroughState,
    /// True if a report was requested and not received.
    report_requested: bool,
    /// Number of reports received, from all processes.
    pub(crate) reports: u64,
    /// True once a reload has ended the process.
    pub(crate) ended: bool,
    pub(crate) probes: ReceivedProbes,
}

/// Records of traced probes that a process has sent.
#[derive(Default)]
pub(crate) struct ReceivedProbes {
    pub(crate) records: Vec<ProbeRecord>,
    /// True once the last was received.
    pub(crate) is_complete: bool,
}

/// State of the passthrough ports of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PassthroughState {
    Open,
    /// The process was requested to close them.
    Closing,
    /// The process has closed them.
    Closed,
    /// A report was received after they were closed.
    Counted,
}

impl ProcessState {
    /// Returns the state before the first process; `ports` are the passthrough ports and their devices.
    pub(crate) fn new<'a>(ports: impl Iterator<Item = (&'a str, &'a str)>) -> ProcessState {
        let port = |(name, device): (&str, &str)| {
            let port = PortSummary { name: name.to_owned(), device: device.to_owned(), ..Default::default() };
            (name.to_owned(), port)
        };
        ProcessState {
            starts: 0,
            ready: false,
            started: None,
            startup_time: Duration::ZERO,
            finished: false,
            report: None,
            created: 0,
            dropped: 0,
            drops: BTreeMap::new(),
            nf_totals: BTreeMap::new(),
            port_totals: ports.map(port).collect(),
            failures: 0,
            errors: vec![],
            failure: None,
            last_line: String::new(),
            line_limit: LineLimit::new(Instant::now()),
            control: None,
            heard: false,
            stopping: false,
            passthrough: PassthroughState::Open,
            report_requested: false,
            reports: 0,
            ended: false,
            probes: ReceivedProbes::default(),
        }
    }

    /// Records that a reload has ended the process; packets that its NFs held are lost.
    pub(crate) fn retire(&mut self) {
        (self.ready, self.ended) = (false, true);
        self.reap();
    }

    /// Adds the last report of an ended process to the totals.
    fn reap(&mut self) {
        let Some(report) = self.report.take() else { return };
        let [created, dropped, _] = totals(&report);
        self.created = self.created.saturating_add(created);
        self.dropped = self.dropped.saturating_add(dropped);
        let is_passthrough = |port: &&PortSummary| self.port_totals.contains_key(&port.name);
        add_crossing_drops(&mut self.drops, report.ports.iter().filter(|port| !is_passthrough(port)));
        add_ports(&mut self.port_totals, &report.ports);
        self.port_totals.values_mut().for_each(|port| truncate(&mut port.drops));
        // packets that NFs held are lost and counted as such at the boundary
        add_nfs(&mut self.nf_totals, report.nfs.into_iter().map(NfSummary::without_gauges));
        truncate(&mut self.drops);
        self.errors.extend(report.errors);
        self.errors.truncate(MAX_ERRORS);
    }

    /// Returns the statistics of the passthrough ports.
    pub(crate) fn passthrough_ports(&self) -> BTreeMap<String, PortSummary> {
        let mut ports = self.port_totals.clone();
        add_ports(&mut ports, self.report.iter().flat_map(|report| &report.ports));
        ports
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, line: &str) {
        if let Some(to) = &mut self.control {
            // errors: the process has ended, which is noticed soon
            let _ = to.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The command that starts a sandboxed process.
pub(crate) struct LaunchCommand {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// True if messages come from standard output instead of the socket of the requests.
    pub(crate) reports_on_stdout: bool,
    /// Limits of the control groups, if the program joins them and removes them when it ends.
    pub(crate) limits: Option<Limits>,
    /// Command that removes what the kernel does not remove when the process ends; may be empty.
    pub(crate) cleanup: Vec<String>,
}

/// Returns the command for a program and arguments.
pub(crate) fn command(argv: &[String]) -> Command {
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.iter().skip(1));
    command
}

impl LaunchCommand {
    fn run_cleanup(&self) {
        if !self.cleanup.is_empty() {
            // errors: nothing is left to remove
            let _ = command(&self.cleanup).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// A sandboxed process that is restarted when it ends.
pub(crate) struct SupervisedProcess {
    /// Name of the sandbox.
    pub(crate) sandbox: String,
    /// Names of the NFs.
    pub(crate) nfs: Vec<String>,
    /// Names of the crossing ports.
    pub(crate) crossing_ports: Vec<String>,
    /// Names of the passthrough ports.
    pub(crate) passthrough: Vec<String>,
    pub(crate) command: LaunchCommand,
    pub(crate) groups: ControlGroups,
    /// User ID of the process if it is started as root.
    pub(crate) user: Option<u32>,
    pub(crate) state: Mutex<ProcessState>,
}

impl SupervisedProcess {
    pub(crate) fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a sanitised report: known NFs and ports, bounded numbers, printable text, bounded sizes.
    fn sanitised(&self, mut report: Summary) -> Summary {
        retain_known(&mut report.nfs, &self.nfs, |nf| &nf.name);
        for nf in &mut report.nfs {
            nf.kind = printable(&nf.kind).into();
            let numbers = [&mut nf.packets, &mut nf.created, &mut nf.held, &mut nf.restarts, &mut nf.memory];
            let of_cycles = [&mut nf.cycles.cycles, &mut nf.cycles.packets, &mut nf.cycles.batches];
            numbers.into_iter().chain(of_cycles).for_each(|n| *n = (*n).min(MAX_COUNT));
            nf.drops = sanitised_counts(&nf.drops, |name| name.into());
            nf.counters = sanitised_counts(&nf.counters, |name| name);
            let names = nf
                .occupancy
                .iter()
                .map(|(name, of)| (printable(name).chars().take(MAX_NAME).collect::<String>().into(), *of));
            nf.occupancy = names.collect();
            truncate(&mut nf.occupancy);
            nf.occupancy.values_mut().for_each(sanitise_occupancy);
            if let Some(table) = &mut nf.table {
                table.rows.iter_mut().flatten().for_each(|cell| *cell = printable(cell));
                table.columns.iter_mut().for_each(|title| *title = printable(title).into());
            }
        }
        let ports: Vec<String> = self.crossing_ports.iter().chain(&self.passthrough).cloned().collect();
        retain_known(&mut report.ports, &ports, |port| &port.name);
        for port in &mut report.ports {
            port.drops = sanitised_counts(&port.drops, |name| name.into());
            let numbers = [&mut port.received, &mut port.received_bytes, &mut port.sent, &mut port.sent_bytes];
            port.queue.iter_mut().for_each(sanitise_occupancy);
            let more = [&mut port.held, &mut port.missed, &mut port.copied, &mut port.send_errors];
            numbers.into_iter().chain(more).for_each(|n| *n = (*n).min(MAX_COUNT));
            let of_cycles =
                [&mut port.receive, &mut port.send].map(|of| [&mut of.cycles, &mut of.packets, &mut of.batches]);
            of_cycles.into_iter().flatten().for_each(|n| *n = (*n).min(MAX_COUNT));
        }
        report.workers.values_mut().flat_map(|w| &mut w.busy_cycles).for_each(|n| *n = (*n).min(MAX_COUNT));
        report.errors.truncate(MAX_ERRORS);
        report.errors.iter_mut().for_each(|error| *error = format!("sandbox {:?}: {}", self.sandbox, printable(error)));
        report
    }

    /// Returns a record with the name of a known NF, or without the name of the port or link.
    fn sanitised_record(&self, record: ProbeRecord) -> Option<ProbeRecord> {
        match record.point {
            ProbePoint::Entered | ProbePoint::Left => self.nfs.contains(&record.name).then_some(record),
            ProbePoint::Received | ProbePoint::Sent => Some(ProbeRecord { name: String::new(), ..record }),
        }
    }

    /// Requests the process to close its passthrough ports, if it has some.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if state.ready && !self.passthrough.is_empty() && state.passthrough == PassthroughState::Open {
            state.passthrough = PassthroughState::Closing;
            state.send(CLOSE);
        }
    }

    /// Returns true if the passthrough ports are closed and a report with all their packets was received.
    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state();
        self.passthrough.is_empty() || !state.ready || state.passthrough == PassthroughState::Counted
    }

    /// Requests a report, unless one was requested already.
    pub(crate) fn request_report(&self) {
        let mut state = self.state();
        if state.ready && !std::mem::replace(&mut state.report_requested, true) {
            state.send(REPORT);
        }
    }
}

/// The thread that supervises a process. The kernel kills the process when it ends, so no other thread starts it.
pub(crate) struct Supervisor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    pub(crate) fn start(process: Arc<SupervisedProcess>) -> std::io::Result<Supervisor> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread =
            std::thread::Builder::new().name("sandboxes".into()).spawn(move || supervise(&process, &stopped))?;
        Ok(Supervisor { stop, thread: Some(thread) })
    }

    /// Requests the end of the process, for which dropping the supervisor waits.
    pub(crate) fn request_end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.request_end();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A running process.
struct RunningProcess {
    child: Child,
    started: Instant,
    silence: Silence,
    /// Threads that receive messages and output.
    readers: [JoinHandle<()>; 2],
}

/// Time since the last message of a process.
struct Silence {
    last_check: Instant,
    total: Duration,
    /// The part in which the process could run.
    able_to_run: Duration,
    cpu_times: CpuTimes,
}

impl Silence {
    fn new() -> Silence {
        Silence {
            last_check: Instant::now(),
            total: Duration::ZERO,
            able_to_run: Duration::ZERO,
            cpu_times: CpuTimes::default(),
        }
    }

    /// Adds the time since the last check.
    fn check(&mut self, process: u32) {
        let interval = self.last_check.elapsed().min(MAX_POLL_INTERVAL);
        self.last_check = Instant::now();
        self.total += interval;
        if self.total < SAMPLING_DELAY || !self.cpu_times.is_starved(process) {
            self.able_to_run += interval;
        }
    }

    fn exceeds(&self, timeout: Duration) -> bool {
        self.able_to_run > timeout || self.total > timeout * STARVATION_FACTOR
    }
}

/// A process and its restart schedule.
struct Slot {
    process: Arc<SupervisedProcess>,
    running: Option<RunningProcess>,
    restart_at: Instant,
    backoff: Duration,
}

fn supervise(process: &Arc<SupervisedProcess>, stop: &AtomicBool) {
    let mut slot = Slot { process: process.clone(), running: None, restart_at: Instant::now(), backoff: BACKOFF_MIN };
    while !stop.load(Ordering::Relaxed) {
        slot.poll();
        std::thread::sleep(POLL_INTERVAL);
    }
    let Some(mut running) = slot.running.take() else { return };
    let timeout = {
        let mut state = process.state();
        state.send(STOP);
        // a process that has not started may not read requests
        if state.ready { STOP_TIMEOUT } else { Duration::ZERO }
    };
    let now = Instant::now();
    // a process has nothing to do after its final report
    let mut is_ended = || matches!(running.child.try_wait(), Ok(Some(_))) || process.state().finished;
    while !is_ended() && now.elapsed() < timeout {
        std::thread::sleep(POLL_INTERVAL);
    }
    let ended = is_ended() || timeout.is_zero();
    running.kill(process);
    if !ended {
        let error =
            format!("sandbox {:?}: the process did not end within {STOP_TIMEOUT:?} and was killed", process.sandbox);
        process.state().errors.push(error);
    }
}

impl RunningProcess {
    /// Returns true if no message was received in time.
    fn is_silent(&mut self, process: &SupervisedProcess) -> bool {
        let mut state = process.state();
        if std::mem::take(&mut state.heard) {
            self.silence = Silence::new();
        }
        self.silence.check(self.child.id());
        // there is no reason to wait for a process that cannot run
        let timeout = if state.ready { REPORT_TIMEOUT } else { STARTUP_TIMEOUT };
        state.failure.is_some() || self.silence.exceeds(timeout)
    }

    /// Kills the process if it has not ended, and receives its remaining messages.
    fn kill(mut self, process: &SupervisedProcess) {
        // errors: the process has ended
        let _ = self.child.kill();
        let _ = self.child.wait();
        process.command.run_cleanup();
        // the kernel kills all processes in its namespaces; their messages and output remain readable
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        // errors: the socket is closed
        let _ = process.state().control.take().map(|control| control.shutdown(std::net::Shutdown::Both));
    }
}

impl Slot {
    fn poll(&mut self) {
        match &mut self.running {
            None if Instant::now() >= self.restart_at => match self.spawn() {
                Ok(running) => self.running = Some(running),
                Err(e) => self.record_failure(format!("the process cannot be started: {e}")),
            },
            None => {}
            Some(running) => {
                let problem = match running.child.try_wait() {
                    Ok(Some(status)) => exit_text(status),
                    _ if running.is_silent(&self.process) => {
                        format!("the process sent no report for {REPORT_TIMEOUT:?}")
                    }
                    _ => {
                        if running.started.elapsed() > BACKOFF_RESET {
                            self.backoff = BACKOFF_MIN;
                        }
                        return;
                    }
                };
                if let Some(running) = self.running.take() {
                    running.kill(&self.process);
                }
                self.record_failure(problem);
            }
        }
    }

    /// Records that a process failed and schedules the next one.
    fn record_failure(&mut self, problem: String) {
        self.restart_at = Instant::now() + self.backoff;
        let mut state = self.process.state();
        (state.ready, state.control) = (false, None);
        state.failures += 1;
        state.reap();
        let mut problem = state.failure.take().unwrap_or(problem);
        if self.process.groups.had_oom_kill() {
            problem += "; it exceeded its memory limit";
        }
        let last_line = std::mem::take(&mut state.last_line);
        let output = if last_line.is_empty() || problem.contains(&last_line) {
            String::new()
        } else {
            format!("; its last output: {last_line}")
        };
        // repeated failures are much alike
        if state.errors.len() < MAX_ERRORS {
            let name = &self.process.sandbox;
            let error = format!("sandbox {name:?}: {problem}{output}{RESTART_NOTE}{:?}", self.backoff);
            state.errors.push(error);
        }
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    /// Starts the process.
    fn spawn(&self) -> std::io::Result<RunningProcess> {
        let (ours, its) = UnixStream::pair()?;
        // a process that reads no requests must not block the supervisor
        ours.set_write_timeout(Some(POLL_INTERVAL))?;
        let launch = &self.process.command;
        let mut command = command(&launch.argv);
        let out = if launch.reports_on_stdout { OwnedFd::from(its.try_clone()?).into() } else { Stdio::null() };
        // a Ctrl-C of the terminal must not reach it
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env(logger::LEVEL_VARIABLE, logger::directives().to_string());
        command.process_group(0).stdin(OwnedFd::from(its)).stdout(out).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = child.stderr.take();
        drop(command);
        let grouped = match &launch.limits {
            Some(limits) if !self.process.groups.is_empty() => {
                self.process.groups.create(limits).map(|()| self.process.groups.set_weight())
            }
            Some(_) => Ok(()),
            None => self.process.groups.add(child.id()),
        };
        let messages = ours.try_clone()?;
        {
            let mut state = self.process.state();
            state.starts += 1;
            state.started = Some(Instant::now());
            (state.finished, state.passthrough) = (false, PassthroughState::Open);
            state.control = Some(ours);
            match grouped {
                // a line end lets the process begin
                Ok(()) => state.send(""),
                Err(e) => state.failure = Some(format!("the process cannot join its control group: {e}")),
            }
            if state.failure.is_some() {
                state.control = None;
            }
        }
        let (receiver, printer) = (self.process.clone(), self.process.clone());
        let thread = || std::thread::Builder::new().name("sandbox".into());
        let readers = [
            thread().spawn(move || receive_messages(&receiver, messages))?,
            thread().spawn(move || stderr.into_iter().for_each(|pipe| forward_stderr(&printer, pipe)))?,
        ];
        Ok(RunningProcess { child, started: Instant::now(), silence: Silence::new(), readers })
    }
}

/// Returns counts with bounded values and printable names.
fn sanitise_occupancy(of: &mut Occupancy) {
    *of = Occupancy { used: of.used.min(MAX_COUNT), capacity: of.capacity.min(MAX_COUNT) };
}

fn sanitised_counts<K: AsRef<str> + Ord + Clone>(
    counts: &BTreeMap<K, u64>,
    name: impl Fn(String) -> K,
) -> BTreeMap<K, u64> {
    let sanitised =
        |(key, n): (&K, &u64)| (name(printable(key.as_ref()).chars().take(MAX_NAME).collect()), (*n).min(MAX_COUNT));
    let mut sanitised = counts.iter().map(sanitised).collect();
    truncate(&mut sanitised);
    sanitised
}

/// Retains the first item of each known name.
fn retain_known<T>(all: &mut Vec<T>, known: &[String], name: impl Fn(&T) -> &String) {
    let mut known: BTreeSet<&String> = known.iter().collect();
    all.retain(|one| known.remove(name(one)));
}

/// Removes entries beyond the maximum.
fn truncate<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    const MAX_ENTRIES: usize = 256;
    while map.len() > MAX_ENTRIES {
        map.pop_last();
    }
}

/// Describes how a process ended. The exit status of a parent may contain the signal of its child.
fn exit_text(status: ExitStatus) -> String {
    let signal = status.signal().or(status.code().and_then(|code| code.checked_sub(128)).filter(|signal| *signal > 0));
    match signal.and_then(|signal| Signal::try_from(signal).ok()) {
        Some(Signal::SIGSYS) => "the process made a system call that NFs may not make".to_owned(),
        Some(signal) => format!("the process was killed by signal {}", signal as i32),
        None => format!("the process ended ({status})"),
    }
}

/// The output of a process, read slowly while it is suppressed.
struct Output<R> {
    from: R,
    suppressed: bool,
}

impl<R: Read> Read for Output<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.suppressed {
            std::thread::sleep(SUPPRESSED_READ.0);
        }
        self.from.read(buffer)
    }
}

/// Prints the output of a process line by line, within a limit, until the pipe is closed.
fn forward_stderr(process: &SupervisedProcess, from: impl Read) {
    let mut from = BufReader::with_capacity(SUPPRESSED_READ.1, Output { from, suppressed: false });
    let (mut bytes, mut last) = (vec![], vec![]);
    let report = |suppressed: u64| {
        let sandbox = process.sandbox.as_str();
        tracing::warn!(
            target: "sandbox", sandbox, suppressed, "sandbox {sandbox:?}: {suppressed} lines of its output were suppressed"
        );
    };
    loop {
        bytes.clear();
        let is_end = !matches!(from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut bytes), Ok(1..));
        let mut state = process.state();
        let now = Instant::now();
        if is_end {
            if !last.is_empty() {
                state.last_line = printable(String::from_utf8_lossy(&last).trim_end());
            }
            let suppressed = state.line_limit.due_report(now, true);
            drop(state);
            return suppressed.into_iter().for_each(report);
        }
        // an indented line belongs to the line before; the kernel prints last
        let continues = bytes.starts_with(b" ") || bytes.starts_with(b"[") || bytes.trim_ascii().is_empty();
        // QEMU and the guest's kernel print messages about a requested end
        let is_expected = bytes.starts_with(b"qemu-system") || bytes.trim_ascii_end().ends_with(b"reboot: Power down");
        if is_expected && state.stopping {
            continue;
        }
        let allowed = state.line_limit.allows(bytes.len(), now);
        let suppressed = state.line_limit.due_report(now, false);
        drop(state);
        from.get_mut().suppressed = !allowed;
        suppressed.into_iter().for_each(report);
        if allowed {
            let line = String::from_utf8_lossy(&bytes);
            log_output(&process.sandbox, &printable(line.trim_end()));
        }
        if !continues {
            std::mem::swap(&mut last, &mut bytes);
        }
    }
}

/// Logs a line of output with the level that its beginning names.
fn log_output(sandbox: &str, line: &str) {
    use tracing::{debug, error, info, warn};
    match logger::level_of(line) {
        Level::ERROR => error!(target: "output", sandbox, "sandbox {sandbox}: {line}"),
        Level::WARN => warn!(target: "output", sandbox, "sandbox {sandbox}: {line}"),
        Level::INFO => info!(target: "output", sandbox, "sandbox {sandbox}: {line}"),
        _ => debug!(target: "output", sandbox, "sandbox {sandbox}: {line}"),
    }
}

/// Returns a line of another program without control characters, at most 2000 characters long.
#[must_use]
pub fn printable(text: &str) -> String {
    text.replace("\n  ", "; ").chars().take(MAX_LINE).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Receives the messages of a process until the connection ends.
fn receive_messages(process: &SupervisedProcess, from: UnixStream) {
    let mut from = BufReader::new(from);
    let mut line = String::new();
    loop {
        line.clear();
        match from.by_ref().take(MAX_MESSAGE).read_line(&mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let message = serde_json::from_str(&line);
        let mut state = process.state();
        (state.heard, state.report_requested) = (true, false);
        match message {
            Ok(Message::Ready) => {
                state.ready = true;
                state.startup_time = state.started.map_or(Duration::ZERO, |started| started.elapsed());
            }
            Ok(Message::Report(summary)) => {
                state.report = Some(process.sanitised(*summary));
                state.reports += 1;
                if state.passthrough == PassthroughState::Closed {
                    state.passthrough = PassthroughState::Counted;
                }
            }
            Ok(Message::Closed) if state.passthrough == PassthroughState::Closing => {
                state.passthrough = PassthroughState::Closed
            }
            // not requested
            Ok(Message::Closed) => {}
            Ok(Message::FinalReport(summary)) => {
                state.report = Some(process.sanitised(*summary));
                state.finished = true;
            }
            Ok(Message::Probes(records, is_last)) => {
                let room = MAX_PROBE_RECORDS.saturating_sub(state.probes.records.len());
                let known = records.into_iter().filter_map(|record| process.sanitised_record(record));
                state.probes.records.extend(known.take(room));
                state.probes.is_complete = is_last;
            }
            Ok(Message::Error(problem)) => state.failure = Some(printable(&problem)),
            Err(e) => {
                state.failure = Some(format!("the process sent an invalid message: {e}"));
                return;
            }
        }
    }
}

/// Returns the packets that a process created, dropped, and holds.
pub(crate) fn totals(report: &Summary) -> [u64; 3] {
    let add = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let drops = report.nfs.iter().map(|nf| &nf.drops).chain(report.ports.iter().map(|port| &port.drops));
    [
        add(&mut report.nfs.iter().map(|nf| nf.created)),
        add(&mut drops.flat_map(|drops| drops.values().copied())),
        add(&mut report.nfs.iter().map(|nf| nf.held)),
    ]
}

/// Adds drops at the crossing ports in a sandbox, under the reasons of the host side.
pub(crate) fn add_crossing_drops<'a>(to: &mut BTreeMap<Name, u64>, ports: impl IntoIterator<Item = &'a PortSummary>) {
    for (reason, n) in ports.into_iter().flat_map(|port| &port.drops) {
        let reason = if reason == "tx_full" { "sandbox_return_full".into() } else { reason.clone() };
        add_drop(to, reason, *n);
    }
}

/// Adds drops by reason.
pub(crate) fn add_drops(to: &mut BTreeMap<Name, u64>, drops: &BTreeMap<Name, u64>) {
    drops.iter().for_each(|(reason, n)| add_drop(to, reason.clone(), *n));
}

fn add_drop(to: &mut BTreeMap<Name, u64>, reason: Name, n: u64) {
    let sum = to.entry(reason).or_default();
    *sum = sum.saturating_add(n);
}

/// Adds the statistics of known ports.
fn add_ports<'a>(to: &mut BTreeMap<String, PortSummary>, ports: impl IntoIterator<Item = &'a PortSummary>) {
    for port in ports {
        if let Some(known) = to.get_mut(&port.name) {
            known.merge(port);
        }
    }
}

/// Adds the statistics of NFs by name.
pub(crate) fn add_nfs(to: &mut BTreeMap<String, NfSummary>, nfs: impl IntoIterator<Item = NfSummary>) {
    for nf in nfs {
        match to.get_mut(&nf.name) {
            Some(earlier) => {
                earlier.merge(&nf);
                (earlier.held, earlier.table) = (nf.held, nf.table);
            }
            None => drop(to.insert(nf.name.clone(), nf)),
        }
    }
}

/// Returns the reason why a process could not start, if it failed.
pub(crate) fn startup_failure(process: &SupervisedProcess) -> Option<String> {
    let state = process.state();
    let first = state.errors.first().filter(|_| state.failures > 0)?;
    Some(first.split(RESTART_NOTE).next().unwrap_or(first).to_owned())
}
