//! Replacing the process of a run by one of the program that is installed now.

use super::hand_over::{Order, Stopped, VARIABLE, read_frame, receive_prepared, write_frame};
use crate::notify::ServiceManager;
use control::{Refusal, Reply, Upgraded};
use diagnostics::Diagnostic;
use dpdk::PacketSocket;
use runtime::{SavedState, Summary, monotonic_nanos};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sandbox::SandboxedEngine;
use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time in which the new process builds the NFs.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest time in which it opens the ports.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the service manager is notified meanwhile.
const ALIVE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time in which it ends once it has closed its socket.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time for packets in the rings of packet sockets to be received, and again for all to be forwarded.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Interval of checks meanwhile, and checks in a row that find no packet.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
const CHECKS: u32 = 2;

/// An upgrade that is under way: the new process prepares itself.
pub(super) struct Upgrade {
    child: Child,
    socket: UnixStream,
    /// Packet sockets of this process.
    own: Vec<PacketSocket>,
    order: Order,
    /// Text of the chain file that runs.
    text: String,
    started: Instant,
    /// Receives the result.
    result: Sender<Result<Reply, Refusal>>,
}

impl Upgrade {
    /// Starts the new process, of the program with the path of this one.
    pub(super) fn start(
        chains: &SandboxedEngine,
        ((chain, text), elapsed): ((&Path, &str), Duration),
        result: Sender<Result<Reply, Refusal>>,
    ) -> Option<Upgrade> {
        let started = chains.engine().check_hand_over().and_then(|()| {
            let order = Order {
                pid: std::process::id(),
                chain: chain.to_owned(),
                cpus: chains.engine().allowed_cpus().to_vec(),
                elapsed,
                resumes: false,
            };
            let program = installed_program().map_err(|e| Diagnostic::new(format!("the path of the program: {e}")))?;
            let (socket, of_child) = UnixStream::pair().map_err(|e| Diagnostic::new(e.to_string()))?;
            let child = successor(&program, &order, OwnedFd::from(of_child).into()).and_then(|mut c| c.spawn());
            let child =
                child.map_err(|e| Diagnostic::new(format!("cannot be started: {e}")).value(program.display()))?;
            tracing::info!(
                target: "upgrade",
                pid = child.id(),
                "{} prepares to continue the chains as process {}",
                program.display(),
                child.id()
            );
            Ok((child, socket, order))
        });
        match started {
            Ok((child, socket, order)) => {
                let own = chains.engine().packet_sockets();
                Some(Upgrade { child, socket, own, order, text: text.to_owned(), started: Instant::now(), result })
            }
            Err(d) => {
                refuse(&result, d.into());
                None
            }
        }
    }

    /// Returns the packet sockets of the new process once it is prepared; `None` before.
    ///
    /// # Errors
    /// It has failed; the client has been told.
    pub(super) fn poll(&mut self) -> Result<Option<Vec<PacketSocket>>, ()> {
        let failed = match receive_prepared(&self.socket) {
            Ok(None) if self.started.elapsed() > PREPARE_TIMEOUT => {
                // ignore errors: it has ended
                let _ = self.child.kill();
                self.end();
                format!("was not prepared after {} s", PREPARE_TIMEOUT.as_secs())
            }
            Ok(prepared) => return Ok(prepared),
            Err(_) => {
                format!("ended before it was prepared ({}); its messages are among those of the run", self.end())
            }
        };
        refuse(&self.result, Refusal::new(format!("the new process {failed}; nothing has changed")));
        Err(())
    }

    /// Ends an upgrade before the hand-over.
    pub(super) fn cancel(mut self, why: &str) {
        // ignore errors: it has ended
        let _ = self.child.kill();
        self.end();
        refuse(&self.result, Refusal::new(why));
    }

    /// Waits for the end of the new process, which has closed its socket; returns its status.
    fn end(&mut self) -> String {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < deadline => sleep(CHECK_INTERVAL),
                Ok(None) => drop(self.child.kill()),
                Err(e) => return e.to_string(),
            }
        }
    }

    /// Waits until the new process reports that the chains run.
    fn await_report(&self, manager: &mut ServiceManager) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        self.socket.set_read_timeout(Some(ALIVE_INTERVAL))?;
        loop {
            match recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK) {
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => manager.alive(),
                Err(e) => return Err(e.into()),
                Ok(_) => return self.socket.set_read_timeout(Some(START_TIMEOUT)),
            }
        }
    }

    /// Stops the chains and has the new process continue them. Tells the manager meanwhile that the run is not hung.
    ///
    /// # Errors
    /// The new process does not run them: what this program goes on with.
    pub(super) fn hand_over(
        mut self,
        chains: SandboxedEngine,
        sockets: &[PacketSocket],
        manager: &mut ServiceManager,
    ) -> (Summary, Result<Upgraded, Resume>) {
        let prepare_ms = self.started.elapsed().as_secs_f64() * 1e3;
        let ports = chains.snapshot().ports.into_iter().filter(|port| port.link == Some(true));
        let linked = ports.map(|port| port.name).collect();
        let nanos = stop_receiving(&chains, &self.own, sockets);
        let (sender, saved) = channel();
        let socket = self.socket.try_clone();
        let summary = chains.hand_over(move |state: SavedState| {
            let Ok(frame) = Stopped { nanos, linked, state }.to_bytes() else { return };
            // ignore errors: the new process has ended, which its missing report shows
            let _ = socket.and_then(|mut socket| write_frame(&mut socket, &frame));
            let _ = sender.send(frame);
        });
        let report = self.await_report(manager).and_then(|()| read_frame(&mut self.socket));
        match report.and_then(|report| Ok(Upgraded { prepare_ms, ..serde_json::from_slice(&report)? })) {
            Ok(upgraded) => {
                // ignore errors: the client is gone
                let _ = self
                    .result
                    .send(serde_json::to_value(&upgraded).map(Reply::from).map_err(|e| Refusal::new(e.to_string())));
                (summary, Ok(upgraded))
            }
            Err(e) => {
                let status = self.end();
                let why = if e.kind() == io::ErrorKind::UnexpectedEof { String::new() } else { format!("{e}; ") };
                let problem = format!(
                    "the new process has not opened the ports ({why}{status}); this program opens them again, with the \
                     state that was saved"
                );
                refuse(&self.result, Refusal::new(problem));
                let order = Order { resumes: true, ..self.order };
                (summary, Err(Resume { order, text: self.text, state: saved.try_recv().unwrap_or_default() }))
            }
        }
    }
}

/// The state of stopped chains that this program goes on with.
pub(super) struct Resume {
    order: Order,
    text: String,
    state: Vec<u8>,
}

impl Resume {
    /// Executes this program again. Returns the error if that fails.
    pub(super) fn exec(self) -> io::Error {
        let command = || {
            let mut file = File::from(memfd_create("state", MemfdFlags::CLOEXEC)?);
            write_frame(&mut file, self.text.as_bytes())?;
            write_frame(&mut file, &self.state)?;
            file.rewind()?;
            successor(Path::new("/proc/self/exe"), &self.order, file.into())
        };
        logger::flush();
        match command() {
            Ok(mut command) => command.exec(),
            Err(e) => e,
        }
    }
}

fn refuse(result: &Sender<Result<Reply, Refusal>>, refusal: Refusal) {
    tracing::error!(target: "upgrade", "{refusal}");
    // ignore errors: the client is gone
    let _ = result.send(Err(refusal));
}

/// Returns the command that runs `program` with the arguments of this process.
fn successor(program: &Path, order: &Order, input: Stdio) -> io::Result<Command> {
    dpdk::close_files_on_exec()?;
    let mut command = Command::new(program);
    // the watchdog of the service manager is that of its main process, which the new one becomes
    command.args(std::env::args_os().skip(1)).env_remove("WATCHDOG_PID").env(VARIABLE, serde_json::to_string(order)?);
    command.stdin(input);
    Ok(command)
}

/// Returns the path of this program, which may be another file by now.
fn installed_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string().into_vec();
    // the kernel adds this to the path of a file that was replaced
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    Ok(std::ffi::OsStr::from_bytes(path).into())
}

/// Lets the packet sockets of the new process receive instead of those of this one, and forwards what was received.
/// Returns the time at which receiving ended.
fn stop_receiving(chains: &SandboxedEngine, own: &[PacketSocket], sockets: &[PacketSocket]) -> u64 {
    let nanos = monotonic_nanos();
    // ignore errors: both would receive packets until this process stops
    own.iter().for_each(|socket| _ = socket.close_input());
    sockets.iter().for_each(|socket| _ = socket.open_input());
    let wait = |is_over: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let mut holds = 0;
        while holds < CHECKS && Instant::now() < deadline {
            sleep(CHECK_INTERVAL);
            holds = if is_over() { holds + 1 } else { 0 };
        }
    };
    if !own.is_empty() {
        // the counts of the kernel have 32 bits
        let mut in_rings = 0_u32;
        wait(&mut || {
            let new = own.iter().filter_map(|socket| socket.take_counts().ok());
            in_rings = new.fold(in_rings, |sum, (packets, _)| sum.wrapping_add(packets));
            let received = chains.engine().received_from_packet_sockets() as u32;
            received.wrapping_sub(in_rings).cast_signed() >= 0
        });
    }
    chains.engine().close_inputs();
    wait(&mut || {
        let now = chains.request_snapshot().totals;
        (now.received + now.created).saturating_sub(now.sent + now.dropped) == 0
    });
    nanos
}
