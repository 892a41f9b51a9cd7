//! Control planes of tenants: their network namespaces, and the daemons of FRR in them.
//!
//! A process of its own, the supervisor, creates the namespaces and runs the daemons. It ends them, and removes the
//! namespaces that it has created, when its standard input ends: also when the run is killed.

mod frr;
mod lock;
mod messages;
mod namespace;
mod supervisor;

pub(crate) use messages::DaemonState;
use messages::{Order, Said};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub(crate) use supervisor::supervise;

/// Name of the hidden command that runs the supervisor.
pub(crate) const COMMAND: &str = "control-planes";
/// Longest time for which an order is waited for: daemons get 5 s to end. A service manager waits for 10 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time for which the namespaces are waited for, which may be those of a run that ends.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for which the states of the daemons are waited for.
const STATES_TIMEOUT: Duration = Duration::from_millis(200);
/// Longest time for which the end of the supervisor is waited for.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The control planes of a run; dropping this ends them.
#[derive(Default)]
pub(crate) struct ControlPlanes(Option<Supervisor>);

/// The supervisor has ended, or does not reply.
struct Unanswered;

struct Supervisor {
    child: Child,
    orders: Option<ChildStdin>,
    replies: Receiver<Result<Vec<DaemonState>, String>>,
    /// Number of replies that have not been received.
    awaited: usize,
    /// States of the daemons with the last reply.
    states: Vec<DaemonState>,
    reader: Option<JoinHandle<()>>,
}

impl ControlPlanes {
    /// Creates the namespaces of control planes that do not exist. Must precede the ports of a file.
    ///
    /// # Errors
    /// A namespace cannot be created, or is that of another run.
    pub(crate) fn prepare(&mut self, planes: &[graph::ControlPlane]) -> Result<(), String> {
        if planes.is_empty() {
            return Ok(());
        }
        if !self.is_alive() {
            self.0 = Some(Supervisor::start()?);
        }
        self.order(Order::Prepare(planes.to_vec()))
    }

    /// Runs the daemons of these control planes on the CPUs of this thread, and ends all others.
    ///
    /// # Errors
    /// The supervisor has ended.
    pub(crate) fn run(&mut self, planes: Vec<graph::ControlPlane>) -> Result<(), String> {
        match self.0 {
            None if planes.is_empty() => Ok(()),
            _ => self.order(Order::Run(planes, runtime::allowed_cpus())),
        }
    }

    /// Returns true if the supervisor runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.as_mut().is_some_and(Supervisor::is_alive)
    }

    /// Ends the daemons; the namespaces stay until this is dropped.
    pub(crate) fn end_daemons(&mut self) {
        // ignore errors: without a supervisor there are none
        let _ = self.order(Order::EndDaemons);
    }

    /// Returns the states of the daemons; none if the supervisor has ended. While it starts many daemons, they are those of
    /// before.
    pub(crate) fn states(&mut self) -> Vec<DaemonState> {
        let Some(supervisor) = &mut self.0 else { return vec![] };
        if !supervisor.is_alive() {
            return vec![];
        }
        // ignore errors: a supervisor that has ended is replaced
        let _ = supervisor.ask_for_states();
        supervisor.states.clone()
    }

    fn order(&mut self, order: Order) -> Result<(), String> {
        let Some(supervisor) = &mut self.0 else { return Ok(()) };
        let timeout = if matches!(order, Order::Prepare(_)) { PREPARE_TIMEOUT } else { REPLY_TIMEOUT };
        let reply = supervisor.send(&order).and_then(|()| supervisor.receive(timeout));
        reply.unwrap_or_else(|Unanswered| {
            self.0 = None;
            Err("the process for control planes does not answer".to_owned())
        })
    }
}

impl Supervisor {
    fn start() -> Result<Supervisor, String> {
        let mut command = Command::new("/proc/self/exe");
        // signals of a terminal are for the run
        command.arg(COMMAND).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|e| format!("the process for control planes cannot be started: {e}"))?;
        let orders = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        let (sender, replies) = channel();
        let read = move || {
            for said in output.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
                match said {
                    Said::Reply(reply) => drop(sender.send(reply)),
                    Said::Info { cause, text } => tracing::info!(target: "tenant", cause, "{text}"),
                    Said::Warning { cause, text } => tracing::warn!(target: "tenant", cause, "{text}"),
                }
            }
        };
        let reader = std::thread::Builder::new().name("control-planes".to_owned()).spawn(read);
        let reader = Some(reader.map_err(|e| format!("no thread: {e}"))?);
        Ok(Supervisor { child, orders, replies, awaited: 0, states: vec![], reader })
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn send(&mut self, order: &Order) -> Result<(), Unanswered> {
        let mut line = serde_json::to_vec(order).map_err(|_| Unanswered)?;
        line.push(b'\n');
        self.orders.as_mut().ok_or(Unanswered)?.write_all(&line).map_err(|_| Unanswered)?;
        self.awaited += 1;
        Ok(())
    }

    /// Returns the result of the last order; those of orders before are late, and were not waited for.
    fn receive(&mut self, timeout: Duration) -> Result<Result<(), String>, Unanswered> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let reply = self.replies.recv_timeout(left).map_err(|_| Unanswered)?;
            self.awaited -= 1;
            let result = reply.map(|states| self.states = states);
            if self.awaited == 0 {
                return Ok(result);
            }
        }
    }

    /// Receives the states of the daemons, if they arrive soon.
    fn ask_for_states(&mut self) -> Result<(), Unanswered> {
        if self.awaited == 0 {
            self.send(&Order::States)?;
        }
        // a reply of an error has no states
        self.receive(STATES_TIMEOUT).map(drop)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.orders.take());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        // ignore errors: it has ended
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            // ignore errors: the thread has panicked
            let _ = reader.join();
        }
    }
}
