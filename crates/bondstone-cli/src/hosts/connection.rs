//! The connection to the agent on a host.

use super::message::{AGENT_COMMAND, Event, Failure, MAX_RESPONSE_BYTES, Request, Response};
use crate::exit::Exit;
use config::Host;
use remote::{RemoteHost, SAME_VERSION, read_line, write_message};
use runtime::Summary;
use sandbox::{LineLimit, printable};
use std::io::{BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of messages of a host; each is sent once.
const MAX_MESSAGES: usize = 4;
/// Longest line of output in bytes.
const MAX_LINE_BYTES: u64 = 2000;
/// Time for ssh to end after its standard input is closed, in which the agent stops the run.
const END_TIMEOUT: Duration = Duration::from_secs(45);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// State of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Connected,
    Starting,
    Running,
    Stopping,
    Ended,
}

impl State {
    /// Changes to the state in which the end is waited for, if the run has been started.
    pub(super) fn stop(&mut self) {
        *self = match self {
            State::Starting | State::Running | State::Stopping => State::Stopping,
            State::Connecting | State::Connected | State::Ended => State::Ended,
        };
    }
}

/// A connection to an agent. Dropping it stops the run there and waits for that.
pub(super) struct Connection {
    name: String,
    remote: RemoteHost,
    pub(super) state: State,
    /// Summary, once the run has ended.
    pub(super) summary: Option<Box<Summary>>,
    ssh: Child,
    to: Option<ChildStdin>,
    /// Last line of standard error.
    last_line: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Connection {
    /// Starts ssh for the host with the index `n`; its messages are sent as events.
    ///
    /// # Errors
    /// ssh cannot be run.
    pub(super) fn open(n: usize, host: &Host, events: Sender<Event>) -> Result<Connection, runtime::Error> {
        let Host { name, remote, .. } = host;
        let failed = |e| runtime::Error::Environment {
            problem: format!("ssh cannot be run: {e}"),
            remedy: "install the package openssh-client".to_owned(),
        };
        let mut command = Command::new("ssh");
        // signals of a terminal are for this process
        command.args(remote.ssh_arguments(AGENT_COMMAND)).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut ssh = command.spawn().map_err(failed)?;
        let (to, out, err) = (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take());
        let last_line: Arc<Mutex<String>> = Arc::default();
        let (own_name, last) = (name.clone(), Arc::clone(&last_line));
        let forward = move || err.into_iter().for_each(|err| forward_output(&own_name, err, &last));
        let receive = move || {
            let mut from = out.map(BufReader::new);
            let next = || serde_json::from_slice(&read_line(from.as_mut()?, MAX_RESPONSE_BYTES)?).ok();
            let messages = std::iter::from_fn(next).take(MAX_MESSAGES).map(|message| Event::Message(n, message));
            for event in messages.chain([Event::Lost(n)]) {
                // ignore errors: the run has ended
                let _ = events.send(event);
            }
        };
        let readers = vec![std::thread::spawn(forward), std::thread::spawn(receive)];
        let (name, remote) = (name.clone(), remote.clone());
        Ok(Connection { name, remote, state: State::Connecting, summary: None, ssh, to, last_line, readers })
    }

    /// Sends a request. An error is reported as the end of the connection.
    pub(super) fn send(&mut self, request: &Request) {
        // ignore errors: the connection has ended
        let _ = self.to.as_mut().map(|to| write_message(to, request));
    }

    /// Handles a message.
    ///
    /// # Errors
    /// The host cannot run its part, or has ended.
    pub(super) fn receive(&mut self, message: Response) -> Result<(), Failure> {
        let name = &self.name;
        match (message, self.state) {
            (Response::Hello(hello), State::Connecting) => {
                self.state = State::Connected;
                let named = format!("host {name}");
                let other = |problem| Failure::Error(problem, SAME_VERSION.to_owned(), Exit::Environment);
                hello.check(&named).map_err(other)
            }
            (Response::Ready, State::Starting) => {
                self.state = State::Running;
                Ok(())
            }
            (Response::Ready, State::Stopping) | (_, State::Ended) => Ok(()),
            (Response::Ended { status, summary }, State::Starting | State::Running | State::Stopping) => {
                let (was_starting, was_running) = (self.state == State::Starting, self.state == State::Running);
                (self.state, self.summary) = (State::Ended, summary);
                match status {
                    Some(0) if !was_starting => Ok(()),
                    // a run that is stopped was interrupted
                    Some(130) if !was_starting && !was_running => Ok(()),
                    status => {
                        let exits = [Exit::Input, Exit::Environment];
                        let exit = exits.into_iter().find(|exit| status == Some(*exit as i32)).unwrap_or(Exit::Failed);
                        let how = status.map_or("by a signal".to_owned(), |status| format!("with status {status}"));
                        let problem = format!("host {name}: the run has ended {how}");
                        Err(Failure::Error(problem, format!("see the messages of {name} above"), exit))
                    }
                }
            }
            (Response::Failed(problem), _) => {
                self.state = State::Ended;
                let problem = format!("host {name}: the run cannot be started: {}", printable(&problem));
                Err(Failure::Error(problem, format!("check the host: {}", self.remote.host), Exit::Environment))
            }
            (_, state) => {
                self.state = State::Ended;
                let problem = format!("host {name}: unexpected message in state {state:?}");
                Err(Failure::Error(problem, SAME_VERSION.to_owned(), Exit::Failed))
            }
        }
    }

    /// Handles the end of the connection.
    ///
    /// # Errors
    /// The run had not ended.
    pub(super) fn lost(&mut self) -> Result<(), Failure> {
        match self.state {
            State::Ended => Ok(()),
            _ => {
                let failure = self.failure();
                self.state = State::Ended;
                Err(failure)
            }
        }
    }

    /// Returns the error of a host that cannot be reached or started, or whose connection is lost.
    pub(super) fn failure(&self) -> Failure {
        let (name, host) = (&self.name, &self.remote.host);
        if self.state == State::Connecting {
            // the error output of ssh may arrive after the end of its standard output
            std::thread::sleep(Duration::from_millis(100));
            let last = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
            let problem = format!("host {name}: Bondstone cannot be run on {host}: {last}");
            return Failure::Error(problem, self.remote.start_remedy(), Exit::Environment);
        }
        if self.state == State::Starting {
            let problem = format!("host {name}: not ready in time, or the connection to {host} is lost");
            return Failure::Error(problem, format!("see the messages of {name} above"), Exit::Failed);
        }
        let problem = format!("host {name}: lost the connection to {host}");
        Failure::Error(problem, "check that host and the network; its run stops by itself".to_owned(), Exit::Failed)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.to.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.ssh.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        // ignore errors: it has ended
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
    }
}

/// Logs the output of a host line by line with its name, within a limit.
fn forward_output(name: &str, from: impl Read, last: &Mutex<String>) {
    let (mut from, mut limit) = (BufReader::new(from), LineLimit::new(Instant::now()));
    let report = |suppressed: u64| tracing::warn!(target: "output", "{name}: {suppressed} lines were suppressed");
    while let Some(line) = read_line(&mut from, MAX_LINE_BYTES) {
        let (now, bytes) = (Instant::now(), line.len());
        let line = printable(String::from_utf8_lossy(&line).trim_end());
        if limit.allows(bytes, now) {
            log_line(name, &line);
        }
        *last.lock().unwrap_or_else(PoisonError::into_inner) = line;
        limit.due_report(now, false).into_iter().for_each(report);
    }
    limit.due_report(Instant::now(), true).into_iter().for_each(report);
}

/// Logs a line with the level that its beginning names.
fn log_line(host: &str, line: &str) {
    use tracing::{Level, debug, error, info, warn};
    match logger::level_of(line) {
        Level::ERROR => error!(target: "output", host, "{host}: {line}"),
        Level::WARN => warn!(target: "output", host, "{host}: {line}"),
        Level::INFO => info!(target: "output", host, "{host}: {line}"),
        _ => debug!(target: "output", host, "{host}: {line}"),
    }
}
