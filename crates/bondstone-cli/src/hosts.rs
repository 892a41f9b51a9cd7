//! Runs of chain files that describe several hosts: Bondstone starts itself on each of them by ssh.

mod agent;
mod connection;
mod message;
mod summary;

pub(crate) use agent::agent;
pub(crate) use message::AGENT_COMMAND;

use crate::exit::Exit;
use crate::table::Table;
use config::Hosts;
use connection::{Connection, State};
use message::{Event, Failure, Request, Start};
use remote::{CONNECT_TIMEOUT, Files, KEEP_ALIVE_INTERVAL};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use summary::HostsSummary;

/// Longest time for which the start of a host is waited for.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest time for which the end of a host is waited for.
const STOP_TIMEOUT: Duration = Duration::from_secs(45);
/// Time for packets on links to arrive and to be forwarded, before the hosts behind them stop.
const LINK_DRAIN_TIME: Duration = Duration::from_millis(200);

/// A run on several hosts.
struct Session<'a> {
    hosts: &'a Hosts,
    connections: Vec<Connection>,
    events: Receiver<Event>,
    kept_alive: Instant,
}

/// Runs all hosts of a file with these arguments for `run`, until one ends, the time is over or this process is
/// interrupted. Returns the summary and the exit status.
///
/// # Errors
/// A host cannot be reached.
pub(crate) fn run<'a>(
    (file, text): (&'a Path, &str),
    hosts: &'a Hosts,
    arguments: &[String],
    time: Option<Duration>,
) -> anyhow::Result<(HostsSummary<'a>, Exit)> {
    let (sender, events) = events()?;
    let start = |host: &config::Host| -> Result<Start, runtime::Error> {
        let files = Files::read(host.part.folder(), host.part.setting_files(|_| true));
        let remedy = "name fewer files, or absolute paths of files on the host".to_owned();
        let files = files.map_err(|problem| runtime::Error::Environment { problem, remedy })?;
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Start { host: host.name.clone(), file, text: text.to_owned(), files, arguments: arguments.to_vec() })
    };
    let starts = hosts.hosts.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let connect = |(n, host)| Connection::open(n, host, sender.clone());
    let connections = hosts.hosts.iter().enumerate().map(connect).collect::<Result<Vec<_>, _>>()?;
    let mut session = Session { hosts, connections, events, kept_alive: Instant::now() };
    let mut errors = vec![];
    let mut exit = Exit::Success;
    if let Err(failure) = session.start(starts).and_then(|()| session.wait_for_end(time)) {
        exit = session.report(failure, &mut errors);
    }
    session.stop(&mut errors);
    let summaries: Vec<_> = session.connections.iter_mut().map(|host| host.summary.take()).collect();
    // waits until nothing is left on the hosts
    drop(session);
    let summary = HostsSummary::of(file, hosts, summaries, errors);
    let is_sound = summary.is_sound() || exit != Exit::Success && exit != Exit::Interrupted;
    Ok((summary, if is_sound { exit } else { Exit::Failed }))
}

impl Session<'_> {
    /// Starts the hosts: those that receive packets before those that send to them.
    fn start(&mut self, starts: Vec<Start>) -> Result<(), Failure> {
        self.wait(CONNECT_TIMEOUT, |session| session.connections.iter().all(|host| host.state != State::Connecting))?;
        if let Some(n) = self.connections.iter().position(|host| host.state == State::Connecting) {
            return Err(self.connections[n].failure());
        }
        for (n, start) in starts.into_iter().enumerate().rev() {
            let began = Instant::now();
            self.connections[n].send(&Request::Start(Box::new(start)));
            self.connections[n].state = State::Starting;
            self.wait(START_TIMEOUT, |session| session.connections[n].state != State::Starting)?;
            if self.connections[n].state == State::Starting {
                return Err(self.connections[n].failure());
            }
            let (host, ms) = (&self.hosts.hosts[n].name, began.elapsed().as_millis());
            tracing::info!(target: "run", "host {host}: ready after {ms} ms");
        }
        tracing::info!(target: "run", "all {} hosts are ready", self.connections.len());
        Ok(())
    }

    /// Waits until a host has ended, or the time is over.
    fn wait_for_end(&mut self, time: Option<Duration>) -> Result<(), Failure> {
        let limit = time.unwrap_or(Duration::MAX);
        self.wait(limit, |session| session.connections.iter().any(|host| host.state == State::Ended))
    }

    /// Handles events until `done` or the limit.
    ///
    /// # Errors
    /// An interrupt, or a host that has failed.
    fn wait(&mut self, limit: Duration, done: impl Fn(&Session<'_>) -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        while !done(self) {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            self.handle_event(left)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, limit: Duration) -> Result<(), Failure> {
        let left = KEEP_ALIVE_INTERVAL.saturating_sub(self.kept_alive.elapsed());
        if left.is_zero() {
            self.connections.iter_mut().for_each(|host| host.send(&Request::KeepAlive));
            self.kept_alive = Instant::now();
        }
        match self.events.recv_timeout(limit.min(left)) {
            Ok(Event::Interrupt) => Err(Failure::Interrupted),
            Ok(Event::Message(n, message)) => self.connections[n].receive(*message),
            Ok(Event::Lost(n)) => self.connections[n].lost(),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
        }
    }

    /// Stops the hosts: those that send packets before those that receive them.
    fn stop(&mut self, errors: &mut Vec<String>) {
        let was_running = self.connections.iter().any(|host| host.state == State::Running);
        for n in 0..self.connections.len() {
            if was_running && n != 0 {
                std::thread::sleep(LINK_DRAIN_TIME);
            }
            if matches!(self.connections[n].state, State::Starting | State::Running) {
                self.connections[n].send(&Request::Stop);
            }
            self.connections[n].state.stop();
            let deadline = Instant::now() + STOP_TIMEOUT;
            while self.connections[n].state == State::Stopping && Instant::now() < deadline {
                if let Err(failure) = self.handle_event(deadline.saturating_duration_since(Instant::now())) {
                    self.report(failure, errors);
                }
            }
            if self.connections[n].state == State::Stopping {
                self.report(self.connections[n].failure(), errors);
            } else if was_running && errors.is_empty() && self.connections[n].summary.is_none() {
                errors.push(format!("host {}: the run has ended without a summary", self.hosts.hosts[n].name));
            }
        }
    }

    /// Logs and records a failure; returns the exit status.
    fn report(&self, failure: Failure, errors: &mut Vec<String>) -> Exit {
        match failure {
            Failure::Interrupted => Exit::Interrupted,
            Failure::Error(problem, remedy, exit) => {
                tracing::error!(target: "run", "{problem}\n  help: {remedy}");
                errors.push(problem);
                exit
            }
        }
    }
}

/// Describes the part of each host and the links between them.
pub(crate) fn partition(hosts: &Hosts) -> String {
    let mut chains = Table::new(&["host", "chain", "path", "CPU"]);
    for config::Host { name, part, .. } in &hosts.hosts {
        for chain in &part.chains {
            let cpus: Vec<_> = chain.cores.iter().map(ToString::to_string).collect();
            let cpus = if cpus.is_empty() { "chosen there".to_owned() } else { cpus.join(", ") };
            chains.row([name.clone(), chain.name.clone(), chain.path.join(" -> "), cpus]);
        }
    }
    let mut links = Table::new(&["link", "from", "device", "to", "device"]);
    for link in &hosts.links {
        let device = |host: &str| {
            let part = hosts.hosts.iter().find(|of| of.name == host).map(|host| &host.part);
            let port = part.and_then(|part| part.ports.iter().find(|port| port.name == link.name));
            port.map_or_else(String::new, |port| port.device.to_string())
        };
        for (from, to) in link.crossings() {
            links.row([link.name.clone(), from.to_owned(), device(from), to.to_owned(), device(to)]);
        }
    }
    let links = if links.is_empty() { String::new() } else { format!("{links}\n") };
    format!("\n{chains}\n{links}")
}

/// Returns the channel of events, and sends the interrupts of this process to it.
///
/// # Errors
/// Signals cannot be handled.
fn events() -> anyhow::Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, events) = channel();
    let interrupt = sender.clone();
    crate::interrupt::on_interrupt(move || {
        // ignore errors: the run has ended
        let _ = interrupt.send(Event::Interrupt);
    })?;
    Ok((sender, events))
}
