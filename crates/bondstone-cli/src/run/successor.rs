//! The process that replaces another one, which has started it for an upgrade.

use super::hand_over::{Order, Stopped, VARIABLE, read_frame, send_prepared, write_frame};
use control::Upgraded;
use dpdk::PacketSocket;
use runtime::{Error, PortSummary, SavedState, monotonic_nanos};
use sandbox::SandboxedEngine;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for links: a vhost-user client connects again after a second.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that continues what another one has run.
pub(super) struct Successor {
    order: Order,
    /// Text of the chain file, if it may have changed since.
    text: Option<String>,
    /// Standard input: a socket to the other process, or a file with the state.
    input: OwnedFd,
    /// Time at which the other process stopped receiving.
    stopped: u64,
    /// Ports that had a link there.
    linked: Vec<String>,
    /// Milliseconds until the workers ran, and until ports that were opened again had a link.
    pause_ms: f64,
    links: BTreeMap<String, Option<f64>>,
    sockets: Vec<(String, PacketSocket)>,
}

impl Successor {
    /// Returns this process as the successor of another one, if it was started as such.
    pub(super) fn of_this_process() -> io::Result<Option<Successor>> {
        let Some(order) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let order: Order = serde_json::from_str(&order.to_string_lossy())?;
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        // that of the other process keeps it off the CPUs of workers; ignore errors: the start checks its CPUs
        let _ = runtime::set_affinity(&order.cpus);
        let text = match order.resumes {
            true => Some(String::from_utf8_lossy(&read_frame(&mut File::from(input.try_clone()?))?).into_owned()),
            false => None,
        };
        Ok(Some(Successor {
            order,
            text,
            input,
            stopped: 0,
            linked: vec![],
            pause_ms: 0.0,
            links: BTreeMap::new(),
            sockets: vec![],
        }))
    }

    /// Returns the chain file that the other process runs.
    pub(super) fn chain(&self) -> &Path {
        &self.order.chain
    }

    /// Returns the text of the chain file, if this process continues what its own program has run.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns the time for which the chains had run.
    pub(super) fn elapsed(&self) -> Duration {
        self.order.elapsed
    }

    /// Tells the other process that this one is prepared, and waits for the state of its NFs.
    pub(super) fn take_over(&mut self, sockets: Vec<(String, PacketSocket)>) -> Result<SavedState, Error> {
        let (names, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
        let stopped = if self.order.resumes {
            // ignore errors: they are open
            sockets.iter().for_each(|socket| _ = socket.open_input());
            self.input.try_clone().and_then(|input| read_frame(&mut File::from(input)))
        } else {
            self.socket().and_then(|mut socket| {
                send_prepared(&socket, &sockets)?;
                read_frame(&mut socket)
            })
        };
        let stopped: Stopped =
            stopped.and_then(|frame| Stopped::from_bytes(&frame)).map_err(|e| Error::Environment {
                problem: format!("process {} has not handed over its chains: {e}", self.order.pid),
                remedy: "see its messages".to_owned(),
            })?;
        (self.stopped, self.linked) = (stopped.nanos, stopped.linked);
        self.sockets = names.into_iter().zip(sockets).collect();
        Ok(stopped.state)
    }

    /// Sets that the workers run, and waits for the links of ports that had one.
    pub(super) fn await_links(&mut self, chains: &SandboxedEngine) {
        let since = |stopped| monotonic_nanos().saturating_sub(stopped) as f64 / 1e6;
        self.pause_ms = since(self.stopped);
        let deadline = Instant::now() + LINK_TIMEOUT;
        let has_no_link = |port: &PortSummary| port.link == Some(false) && self.linked.contains(&port.name);
        let lost = chains.snapshot().ports.into_iter().filter(has_no_link);
        self.links = lost.map(|port| (port.name, None)).collect();
        while self.links.values().any(Option::is_none) && Instant::now() < deadline {
            sleep(Duration::from_millis(1));
            for port in chains.snapshot().ports.iter().filter(|port| port.link == Some(true)) {
                let link = self.links.get_mut(&port.name).filter(|link| link.is_none());
                link.into_iter().for_each(|link| *link = Some(since(self.stopped)));
            }
        }
    }

    /// Tells the other process how the chains continue.
    pub(super) fn report(self, notes: &[String]) {
        let mut missed = BTreeMap::<String, u64>::new();
        for (port, socket) in &self.sockets {
            *missed.entry(port.clone()).or_default() +=
                u64::from(socket.take_counts().map_or(0, |(_, dropped)| dropped));
        }
        let Successor { pause_ms, links, .. } = &self;
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        let upgraded = Upgraded {
            pid,
            version,
            prepare_ms: 0.0,
            pause_ms: *pause_ms,
            links: links.clone(),
            missed,
            notes: notes.to_vec(),
        };
        tracing::info!(
            target: "upgrade",
            "continues the chains of process {}: {}",
            self.order.pid,
            describe_pause(&upgraded)
        );
        for note in notes {
            tracing::warn!(target: "upgrade", cause = note, "{note}");
        }
        if !self.order.resumes {
            let report = serde_json::to_vec(&upgraded).unwrap_or_default();
            // ignore errors: the other process has ended
            let _ = self.socket().and_then(|mut socket| write_frame(&mut socket, &report));
        }
        // standard input holds the state, or the socket
        if let Ok(null) = File::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(null);
        }
    }

    fn socket(&self) -> io::Result<UnixStream> {
        Ok(self.input.try_clone()?.into())
    }
}

/// Describes the interruption by an upgrade.
pub(crate) fn describe_pause(Upgraded { pause_ms, links, missed, .. }: &Upgraded) -> String {
    let mut text = format!("nothing was forwarded for {pause_ms:.1} ms");
    for (port, n) in missed.iter().filter(|(_, n)| **n != 0) {
        text += &format!("; port {port:?} missed {n} packets");
    }
    for (port, link) in links {
        text += &match link {
            Some(ms) => format!("; port {port:?} had no link for {ms:.0} ms"),
            None => format!("; port {port:?} has no link: the other side has to connect again"),
        };
    }
    text
}
