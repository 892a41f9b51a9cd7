//! `bondstone run`.

mod daemon_routes;
mod drain;
mod fpm_servers;
mod hand_over;
mod kernel_routes;
pub(crate) mod log;
mod operations;
mod reloader;
mod route_sources;
mod streams;
mod successor;
mod taps;
mod upgrade;

pub(crate) use reloader::describe_times;
pub(crate) use successor::describe_pause;

use crate::control_planes::ControlPlanes;
use crate::exit::Exit;
use crate::hosts;
use crate::interrupt::{Signal, on_signals};
use crate::metrics::{self, rule_number};
use crate::notify::ServiceManager;
use crate::stdout::stdout;
use crate::table::{Table, count, rate};
use bytesize::ByteSize;
use config::{ChainFile, Hosts};
use control::{Group, Hello, Refusal, Reply, Request, Server};
use diagnostics::{Diagnostic, Diagnostics};
use dpdk::{Memory, PacketSocket};
use drain::Drain;
use graph::{FileVersion, Registry};
use reloader::Reloader;
use route_sources::RouteSources;
use runtime::{Cycles, IdlePolicy, LiveNfs, Name, Options, PortSummary, Predecessor, Summary};
use sandbox::SandboxedEngine;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use successor::Successor;
use upgrade::Upgrade;

/// Runs a chain file: opens its ports, forwards packets along its chains, and counts every packet.
///
/// Prints a summary when all captures are read, after the given time, or on Ctrl-C; on a terminal also rates every second.
#[derive(clap::Args)]
#[command(after_help = "\
Ports (device = \"...\" in the file; text after a comma is passed to the DPDK driver):
  pcap:FILE           a capture, read (pcap, pcapng, gzipped) or written; repeat = N reads it N times (0: no limit),
                      timed = true retains its gaps
  null                receives blank frames, drops sent ones  ring:NAME           an in-memory queue
  tap:NAME            a new kernel interface                  af_packet:IF        a kernel interface
  af_xdp:IF           the same, through AF_XDP                memif:SOCKET        memory shared with a trusted process
  vhost:SOCKET        the switch side of a VM or container    virtio-user:SOCKET  the other side
  0000:01:00.0        a NIC by PCI address                    sriov:IF            a virtual function of a NIC
  net_null0,size=9    any other DPDK device

Examples:
  bondstone run examples/demo.toml
  bondstone run edge.toml --for 10s --json > result.json
  bondstone run edge.toml --watch
  bondstone run examples/hosts.toml")]
pub(crate) struct Run {
    /// Chain file.
    chain: PathBuf,
    /// Stops after this time, such as 10s, 500ms or 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Stops when the process uses more memory than this, such as 2GiB, and names the NF that uses most; huge pages do
    /// not count [default: 80 % of the memory of the machine or container].
    #[arg(long, value_name = "BYTES")]
    memory: Option<ByteSize>,
    /// Runs the part of this host, on this machine, of a chain file that describes several hosts; without it all of
    /// them are started by ssh.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    placing: crate::plan::Placing,
    /// Control socket for `bondstone stats`, `top` and `stop` [default: a file in /run/bondstone or
    /// $XDG_RUNTIME_DIR/bondstone, where they look for it].
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Opens the control socket to the users of this group as well: its mode is then 0660, and the directory of sockets
    /// is passable for them.
    #[arg(long, value_name = "GROUP")]
    control_group: Option<String>,
    /// Reloads the chain file when it changes, or a file that its settings name; `bondstone reload` and SIGHUP do so on
    /// request.
    #[arg(long)]
    watch: bool,
    /// Serves the counts for Prometheus at http://ADDRESS:PORT/metrics, such as 127.0.0.1:9464, to everyone who can
    /// connect there.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: log::LogArgs,
}

/// Most names that a message lists.
const NAMES_MAX: usize = 10;

/// Returns names as text, of many the first and the number of the others.
fn some_of(names: &[String]) -> String {
    match names.len().saturating_sub(NAMES_MAX) {
        0 => names.join(", "),
        others => format!("{} and {others} others", names[..NAMES_MAX].join(", ")),
    }
}

/// Describes what a worker does while no packets arrive.
fn idle_description(idle: IdlePolicy) -> &'static str {
    match idle {
        IdlePolicy::Poll => "polls without pauses",
        IdlePolicy::Pause => "polls, with pauses when idle",
        IdlePolicy::Yield => "polls, and yields the CPU to sandboxes",
        IdlePolicy::Sleep => "sleeps when idle",
    }
}

enum Event {
    Interrupt,
    /// SIGHUP.
    Reload,
    /// A request of the control socket, with the channel for its result.
    Request(Request, Sender<Result<Reply, Refusal>>),
}

impl Run {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        self.log.init(&self.chain)?;
        let mut successor = Successor::of_this_process()?;
        let chain = successor.as_ref().map_or(&*self.chain, Successor::chain).to_owned();
        let before_this = successor.as_ref().map_or(Duration::ZERO, Successor::elapsed);
        let version = FileVersion::of(&chain);
        let text = match successor.as_ref().and_then(Successor::text) {
            Some(text) => text.to_owned(),
            None => config::read(&chain, "chain file").map_err(|d| Diagnostics(vec![d]))?,
        };
        if self.host.is_none()
            && let Some(hosts) = Hosts::parse(&text, &chain, registry).map_err(Diagnostics)?
        {
            return self.run_hosts(&text, &hosts);
        }
        let file = ChainFile::parse_for(&text, &chain, self.host.as_deref(), registry).map_err(Diagnostics)?;
        for warning in &file.warnings {
            let warning = warning.to_string();
            tracing::warn!(target: "run", cause = warning, "{warning}");
        }
        let (sender, events) = channel();
        let interrupt = sender.clone();
        on_signals(move |signal| {
            let event = if signal == Signal::Interrupt { Event::Interrupt } else { Event::Reload };
            // ignore errors: the run has ended
            let _ = interrupt.send(event);
        })?;
        if let Some(socket) = &self.control {
            control::socket::check(socket).map_err(|e| Diagnostics(vec![e]))?;
        }
        let group = self.control_group()?;
        let memory = self.memory.map(|bytes| bytes.as_u64());
        for sandbox in &file.sandboxes {
            let (name, isolation) = (sandbox.name.as_str(), sandbox.isolation.name());
            tracing::info!(target: "sandbox", sandbox = name, isolation, "starting sandbox {name}: {isolation}");
        }
        let idle = match file.idle {
            config::Idle::Poll => IdlePolicy::Poll,
            config::Idle::Sleep => IdlePolicy::Sleep,
        };
        let options = Options { strategy: self.placing.strategy(), memory_limit: memory, idle };
        let predecessor =
            successor.as_mut().map(|successor| -> Predecessor<'_> { Box::new(|sockets| successor.take_over(sockets)) });
        let mut planes = ControlPlanes::default();
        planes.prepare(&file.control_planes()).map_err(|problem| {
            let remedy = "run as root; bondstone check examines the file".to_owned();
            runtime::Error::Environment { problem, remedy }
        })?;
        let mut chains =
            SandboxedEngine::start_successor(&file, registry, options, predecessor).map_err(|e| match e {
                // the start ends at the first NF with an error
                runtime::Error::Input(first) => match file.build_errors() {
                    all if all.len() > first.0.len() => runtime::Error::Input(Diagnostics(all)),
                    _ => runtime::Error::Input(first),
                },
                runtime::Error::HugePages { problem } => {
                    // the namespaces are free for the next start
                    drop(std::mem::take(&mut planes));
                    restart_on_ordinary_pages(problem)
                }
                e => e,
            })?;
        successor.iter_mut().for_each(|successor| successor.await_links(&chains));
        for note in chains.notes() {
            tracing::info!(target: "run", cause = %note, "{note}");
        }
        chains.engine().leave_worker_cpus();
        let mut before = chains.snapshot();
        for sandbox in &before.sandboxes {
            let idle = if sandbox.sleeps { ", sleeps when idle" } else { "" };
            let runtime::SandboxSummary { name, isolation, runtime, transport, startup_ms, .. } = sandbox;
            tracing::info!(
                target: "sandbox",
                sandbox = name,
                startup_ms,
                "sandbox {name}: {isolation} ({runtime}), transport {transport}, ready after {startup_ms:.0} ms{idle}"
            );
        }
        for port in before.ports.iter().filter(|port| port.link == Some(false)) {
            let event = match port.device.split(':').next() {
                Some("vhost" | "virtio-user" | "memif") => "the other side to connect",
                _ => "the link to come up",
            };
            let (name, device) = (port.name.as_str(), port.device.as_str());
            tracing::info!(target: "run", port = name, device, "port {name:?} ({device}): waiting for {event}");
        }
        let metrics = self.metrics.map(|address| serve_metrics(address, sender.clone())).transpose()?;
        let server = self.serve(sender, chains.engine().live_nfs().clone(), group)?;
        for (cpu, worker) in &before.workers {
            let (chains, idle) = (some_of(&worker.chains), idle_description(chains.idle()));
            tracing::info!(target: "run", cpu, "CPU {cpu} runs {chains}, {idle}");
        }
        let mut routes = RouteSources::default();
        routes.update(&chains);
        let mut reloader = Reloader::new((&file, version), registry, self.watch, &chains, planes);
        reloader.run_control_planes(&chains);
        let mut manager = match successor {
            Some(successor) => {
                successor.report(chains.engine().not_restored());
                ServiceManager::of_successor()
            }
            None => ServiceManager::ready(),
        };
        let limit = self.time.map(|limit| limit.saturating_sub(before_this));
        let start = Instant::now();
        let mut next = Duration::from_secs(1);
        let mut interrupted = false;
        // packets may have moved before the first snapshot, so the first line counts from the start
        let mut has_printed = false;
        let mut drain: Option<Drain> = None;
        let mut upgrade: Option<Upgrade> = None;
        let mut prepared = None;
        while !chains.is_finished() {
            manager.alive();
            let elapsed = start.elapsed();
            if limit.is_some_and(|t| elapsed >= t) {
                break;
            }
            if reloader.take_reloaded() {
                routes.reloaded(&chains);
                // other ports and sandboxes
                before = Summary { errors: std::mem::take(&mut before.errors), ..chains.snapshot() };
            }
            if elapsed >= next {
                reloader.check_control_planes(&chains);
                chains.engine().retry_representors();
                routes.update(&chains);
                let now = chains.snapshot();
                log_rates(has_printed.then_some(&before), &now);
                has_printed = true;
                log_link_changes(&before, &now);
                log_restarts(&before, &now);
                let is_known =
                    |error: &&String| before.errors.iter().any(|old| without_count(old) == without_count(error));
                let new = now.errors.iter().filter(|error| !is_known(error));
                new.for_each(|error| tracing::warn!(target: "run", cause = without_count(error), "{error}"));
                before = now;
                next += Duration::from_secs(1);
            }
            if upgrade.is_none() {
                reloader.watch(&mut chains, &mut manager);
            }
            match upgrade.as_mut().map(Upgrade::poll) {
                Some(Ok(Some(sockets))) => {
                    prepared = Some(sockets);
                    break;
                }
                Some(Err(())) => upgrade = None,
                Some(Ok(None)) | None => {}
            }
            if drain.as_mut().is_some_and(|drain| drain.is_over(&chains)) {
                break;
            }
            let due = limit.map_or(next, |t| t.min(next)).saturating_sub(start.elapsed());
            match events.recv_timeout(due.min(Duration::from_millis(20))) {
                Ok(Event::Interrupt) => {
                    interrupted = true;
                    break;
                }
                Ok(Event::Request(Request::Reload { .. } | Request::Upgrade {}, result)) if upgrade.is_some() => {
                    drop(result.send(Err(Refusal::new("the run is being upgraded"))));
                }
                // the agent would take the end of this process for that of the run
                Ok(Event::Request(Request::Upgrade {}, result)) if self.host.is_some() => {
                    drop(result.send(Err(Refusal::new("the run is the part of a host; stop and start all hosts"))));
                }
                Ok(Event::Request(Request::Upgrade {}, result)) => {
                    let elapsed = before_this + start.elapsed();
                    upgrade = Upgrade::start(&chains, (reloader.running(), elapsed), result);
                }
                Ok(Event::Reload) if upgrade.is_some() => {}
                // its result has been printed
                Ok(Event::Reload) => drop(reloader.reload(None, &mut chains, &mut manager)),
                // ignore errors: the client is gone
                Ok(Event::Request(Request::Stats {}, result)) => {
                    drop(result.send(Ok(serde_json::to_value(chains.snapshot())?.into())));
                }
                Ok(Event::Request(Request::Tenants { nf }, result)) => {
                    let daemons = reloader.control_planes().states();
                    let file = std::path::absolute(reloader.running().0).unwrap_or_default();
                    let live = chains.engine().live_nfs();
                    let listed = operations::tenants(live, nf.as_deref(), &file, &routes.fpm, &daemons);
                    drop(result.send(listed.map(Reply::from)));
                }
                Ok(Event::Request(Request::Reload { file }, result)) => {
                    drop(result.send(reloader.reload(file, &mut chains, &mut manager).map(Reply::from)));
                }
                Ok(Event::Request(Request::Capture(capture), result)) => {
                    drop(result.send(streams::capture(chains.engine(), capture)));
                }
                Ok(Event::Request(Request::Trace { filter, packets }, result)) => {
                    drop(result.send(streams::trace(chains.engine(), filter, packets)));
                }
                Ok(Event::Request(Request::Stop { drain: Some(_) }, result)) if drain.is_some() => {
                    drop(result.send(Err(Refusal::new("the run is stopping already"))));
                }
                Ok(Event::Request(Request::Stop { drain: Some(seconds) }, result)) => {
                    tracing::info!(
                        target: "run",
                        "receiving no more packets; stops once all are forwarded, or after {seconds} s"
                    );
                    drain = Some(Drain::start(&chains, seconds, result));
                }
                Ok(Event::Request(Request::Stop { drain: None }, result)) => {
                    drop(result.send(Ok(serde_json::Value::Null.into())));
                    tracing::info!(target: "run", "stopped through the control socket");
                    break;
                }
                // executed by the thread of the client
                Ok(Event::Request(..)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        // first the receiver, so that no client waits for a result
        drop(events);
        drop(metrics);
        // routing daemons tell their neighbors that they end while packets are forwarded
        let mut planes = reloader.take_control_planes();
        planes.end_daemons();
        // its addresses are free for the next process
        drop(routes);
        if let (Some(upgrade), Some(sockets)) = (upgrade.take(), &prepared) {
            server.iter().for_each(Server::release_path);
            return self.hand_over(upgrade, (chains, sockets), server, manager);
        }
        upgrade.into_iter().for_each(|upgrade| upgrade.cancel("the run is ending"));
        drop(manager);
        // a client that waits for the end gets its summary
        let server = server.filter(|_| drain.is_some());
        let summary = chains.stop();
        // with the taps in them, which the ports have closed
        drop(planes);
        drain.into_iter().for_each(|drain| drain.end(&summary));
        drop(server);
        self.end(&summary, interrupted)
    }

    /// Runs a chain file on its hosts.
    fn run_hosts(&self, text: &str, hosts: &Hosts) -> anyhow::Result<Exit> {
        let is_set = [
            ("--control", self.control.is_some()),
            ("--control-group", self.control_group.is_some()),
            ("--watch", self.watch),
            ("--metrics", self.metrics.is_some()),
        ];
        if let Some((option, _)) = is_set.into_iter().find(|(_, is_set)| *is_set) {
            let d = Diagnostic::new("is for one instance, and the file describes several hosts").value(option);
            let remedy = "remove it, or run each part on its host: bondstone run FILE --host NAME";
            return Err(Diagnostics(vec![d.remedy(remedy)]).into());
        }
        for warning in hosts.hosts.iter().flat_map(|host| &host.part.warnings).map(ToString::to_string) {
            tracing::warn!(target: "run", cause = warning, "{warning}");
        }
        let memory = self.memory.map(|bytes| ["--memory".to_owned(), bytes.as_u64().to_string()]);
        let arguments: Vec<String> = self.placing.arguments().into_iter().chain(memory.into_iter().flatten()).collect();
        let (summary, exit) = hosts::run((&self.chain, text), hosts, &arguments, self.time)?;
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &summary)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", summary.text(self::text))?;
        }
        Ok(exit)
    }

    /// Hands the chains over to the new process.
    fn hand_over(
        &self,
        upgrade: Upgrade,
        (chains, sockets): (SandboxedEngine, &[PacketSocket]),
        server: Option<Server>,
        mut manager: ServiceManager,
    ) -> anyhow::Result<Exit> {
        let (summary, end) = upgrade.hand_over(chains, sockets, &mut manager);
        match end {
            Ok(upgraded) => {
                manager.replaced_by(upgraded.pid);
                // its client has the result
                drop(server);
                tracing::info!(
                    target: "upgrade",
                    pid = upgraded.pid,
                    "handed over to process {}: this one ends",
                    upgraded.pid
                );
                self.end(&summary, false)
            }
            Err(resume) => {
                manager.replaced_by(std::process::id());
                drop(server);
                self.print(&summary)?;
                Err(resume.exec().into())
            }
        }
    }

    /// Prints the summary, and returns the status.
    fn end(&self, summary: &Summary, interrupted: bool) -> anyhow::Result<Exit> {
        let printed = self.print(summary);
        for error in &summary.errors {
            tracing::error!(target: "run", cause = without_count(error), "{error}");
        }
        let exit = match () {
            () if !summary.balanced && summary.stuck.is_empty() => {
                tracing::error!(target: "run", "packet counts do not add up: this is a bug in Bondstone");
                Exit::Failed
            }
            () if !summary.errors.is_empty() => Exit::Failed,
            () if interrupted => Exit::Interrupted,
            () => Exit::Success,
        };
        printed.map(|()| exit)
    }

    /// Returns the group of the control socket.
    fn control_group(&self) -> anyhow::Result<Option<Group>> {
        let Some(name) = &self.control_group else { return Ok(None) };
        let group = Group::named(name)
            .and_then(|group| self.control.iter().try_for_each(|socket| group.check_directory(socket)).map(|()| group));
        Ok(Some(group.map_err(|e| Diagnostics(vec![e]))?))
    }

    /// Serves the control socket. Without `--control`, a socket that cannot be created is only reported.
    fn serve(&self, events: Sender<Event>, nfs: LiveNfs, group: Option<Group>) -> anyhow::Result<Option<Server>> {
        let socket = match (&self.control, control::runtime_directory()) {
            (Some(socket), _) => socket.clone(),
            (None, None) => return Ok(None),
            (None, Some(dir)) => match control::own_socket(&dir, &self.chain, group) {
                Ok(socket) => socket,
                Err(e) => {
                    tracing::warn!(target: "control", "no control socket in {}: {e}", dir.display());
                    return Ok(None);
                }
            },
        };
        // the main thread has the counts; results take it less than an interval of its events
        let events = Mutex::new(events);
        let handle = move |request, counters: &control::Counters| {
            if let Some(result) = operations::execute(&request, &nfs) {
                return result.map(Reply::from);
            }
            let (result, results) = channel();
            let timeout = RESULT_TIMEOUT + request.extra_time();
            let sent = events.lock().unwrap_or_else(PoisonError::into_inner).send(Event::Request(request, result));
            let ended = || Refusal::new("the run is ending, or builds the NFs of a new chain file");
            sent.map_err(|_| ended())?;
            let mut reply = results.recv_timeout(timeout).map_err(|_| ended())??;
            if let Some(fields) = reply.value.as_object_mut() {
                fields.insert("control".to_owned(), counters.to_json());
            }
            Ok(reply)
        };
        let hello = Hello::new(self.chain.display().to_string());
        match Server::start_for_group(&socket, group, hello, handle) {
            Ok(server) => Ok(Some(server)),
            Err(e) if self.control.is_none() => {
                tracing::warn!(target: "control", "no control socket {}: {e}", socket.display());
                Ok(None)
            }
            Err(e) => Err(runtime::Error::Environment {
                problem: format!("control socket {}: {e}", socket.display()),
                remedy: "name another path, or stop the process that uses it".to_owned(),
            }
            .into()),
        }
    }

    fn print(&self, summary: &Summary) -> anyhow::Result<()> {
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, summary)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", text(summary))?;
        }
        Ok(())
    }
}

/// Serves the metrics. The main thread has the counts, as for the control socket.
fn serve_metrics(address: SocketAddr, events: Sender<Event>) -> Result<metrics::Server, runtime::Error> {
    let snapshot = move || {
        let (result, results) = channel();
        events.send(Event::Request(Request::Stats {}, result)).ok()?;
        serde_json::from_value(results.recv_timeout(RESULT_TIMEOUT).ok()?.ok()?.value).ok()
    };
    let server = metrics::Server::start(address, snapshot).map_err(|e| runtime::Error::Environment {
        problem: format!("metrics at {address}: {e}"),
        remedy: "name an address of this machine and a port that no other process uses".to_owned(),
    })?;
    tracing::info!(target: "metrics", "metrics at http://{}/metrics", server.address());
    Ok(server)
}

/// Executes this program again with the same arguments, on ordinary pages: DPDK cannot be started again in a process.
/// Returns the error if that fails.
fn restart_on_ordinary_pages(problem: String) -> runtime::Error {
    tracing::info!(target: "run", "{problem}; starting again on ordinary pages");
    logger::flush();
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(Memory::VARIABLE, Memory::ORDINARY);
    // returns only if it fails
    let _ = command.exec();
    runtime::Error::HugePages { problem }
}

/// Longest wait for the main thread, which stops chains at the end.
const RESULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of rows that are printed of an NF's table.
const MAX_ROWS: usize = 20;

/// Logs the rates since `before`, or since the start.
fn log_rates(before: Option<&Summary>, now: &Summary) {
    if !tracing::enabled!(target: "rates", tracing::Level::DEBUG) {
        return;
    }
    let seconds = (now.seconds - before.map_or(0.0, |b| b.seconds)).max(1e-9);
    let pps = |of: &dyn Fn(&Summary) -> u64| of(now).saturating_sub(before.map_or(0, of)) as f64 / seconds;
    let port = |(n, port): (usize, &PortSummary)| {
        let (received, sent) = (rate(pps(&|s| s.ports[n].received)), rate(pps(&|s| s.ports[n].sent)));
        format!("{} rx {received}pps tx {sent}pps", port.name)
    };
    let ports: Vec<String> = now.ports.iter().enumerate().map(port).collect();
    let [received, sent, dropped] =
        [pps(&|s| s.totals.received), pps(&|s| s.totals.sent), pps(&|s| s.totals.dropped)].map(f64::round);
    let (elapsed, ports) = (now.seconds, ports.join("  "));
    tracing::debug!(
        target: "rates",
        received_pps = received,
        sent_pps = sent,
        dropped_pps = dropped,
        "{elapsed:>5.0} s  {ports}  dropped {}pps",
        rate(dropped)
    );
}

/// Logs changes of link states.
fn log_link_changes(before: &Summary, now: &Summary) {
    for (b, n) in before.ports.iter().zip(&now.ports) {
        let (port, device) = (n.name.as_str(), n.device.as_str());
        match (b.link, n.link) {
            (Some(true), Some(false)) => {
                tracing::warn!(target: "run", port, device, "port {port:?} ({device}): link down")
            }
            (Some(false), Some(true)) => {
                tracing::info!(target: "run", port, device, "port {port:?} ({device}): link up")
            }
            _ => {}
        }
    }
}

/// Returns an error without the number of its occurrences.
fn without_count(error: &str) -> &str {
    error.strip_suffix(" times)").and_then(|rest| rest.rsplit_once(" (")).map_or(error, |(text, _)| text)
}

/// Logs restarts of sandboxes.
fn log_restarts(before: &Summary, now: &Summary) {
    for (b, n) in before.sandboxes.iter().zip(&now.sandboxes) {
        if n.up && (!b.up || n.starts != b.starts) {
            let (sandbox, ms) = (n.name.as_str(), n.startup_ms);
            tracing::info!(target: "sandbox", sandbox, startup_ms = ms, "sandbox {sandbox:?}: restarted in {ms:.0} ms");
        }
    }
}

/// Returns a table with the first rows, and the number of the others.
fn first_rows(columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new(columns);
    let others = rows.len().saturating_sub(MAX_ROWS);
    rows.iter().take(MAX_ROWS).for_each(|row| table.row(row.clone()));
    match (table.is_empty(), others) {
        (true, _) => String::new(),
        (false, 0) => format!("{table}\n"),
        (false, others) => format!("{table}  {} more rows: --json\n\n", count(others as u64)),
    }
}

/// Returns the summary as text.
pub(crate) fn text(s: &Summary) -> String {
    let t = &s.totals;
    let mut out = format!("\n{}: {:.2} s on {}\n\n", s.file, s.seconds, s.memory);

    let mut ports = Table::new(&["port", "device", "received", "bytes", "Mpps", "sent", "bytes", "Mpps", "dropped"]);
    for p in &s.ports {
        let mpps = |n: u64| format!("{:.3}", n as f64 / s.seconds / 1e6);
        let bytes = |packets: u64, bytes: u64| if bytes == 0 && packets != 0 { "-".to_owned() } else { count(bytes) };
        ports.row([
            p.name.clone(),
            p.device.clone(),
            count(p.received),
            bytes(p.received, p.received_bytes),
            mpps(p.received),
            count(p.sent),
            bytes(p.sent, p.sent_bytes),
            mpps(p.sent),
            reasons(&p.drops),
        ]);
    }
    out += &format!("{ports}\n");

    let mut chains = Table::new(&["chain", "packets", "cycles per packet", "share of cycles", "throttled"]);
    let all: u64 = s.chains.iter().map(|c| c.cycles).sum();
    for c in &s.chains {
        chains.row([
            c.name.clone(),
            count(c.packets),
            if c.packets == 0 { "-".to_owned() } else { format!("{:.1}", c.cycles as f64 / c.packets as f64) },
            format!("{:.0} %", 100.0 * c.cycles as f64 / all.max(1) as f64),
            count(c.throttled),
        ]);
    }
    if !chains.is_empty() {
        out += &format!("{chains}\n");
    }

    let mut workers = Table::new(&["CPU", "chains", "received", "from links", "sent", "to links", "dropped"]);
    for (cpu, w) in s.workers.iter().filter(|_| s.workers.len() > 1) {
        workers.row([
            cpu.to_string(),
            w.chains.join(", "),
            count(w.received),
            count(w.received_from_links),
            count(w.sent),
            count(w.sent_to_links),
            count(w.dropped),
        ]);
    }
    if !workers.is_empty() {
        out += &format!("{workers}\n");
    }

    let mut links = Table::new(&["to other cores", "sent", "received", "cycles tx", "cycles rx", "dropped"]);
    for l in &s.links {
        let cycles = |c: &Cycles| c.per_packet().map_or("-".to_owned(), |c| format!("{c:.1}"));
        links.row([
            l.name.clone(),
            count(l.sent),
            count(l.received),
            cycles(&l.send),
            cycles(&l.receive),
            reasons(&l.drops),
        ]);
    }
    if !links.is_empty() {
        out += &format!("{links}\n");
    }

    let mut sandboxes = Table::new(&[
        "sandbox",
        "isolation",
        "CPUs",
        "starts",
        "sent",
        "received",
        "cycles tx",
        "cycles rx",
        "dropped",
    ]);
    for w in &s.sandboxes {
        let cycles = |c: &Cycles| c.per_packet().map_or("-".to_owned(), |c| format!("{c:.1}"));
        sandboxes.row([
            w.name.clone(),
            w.isolation.to_string(),
            w.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            count(w.starts),
            count(w.sent),
            count(w.received),
            cycles(&w.send),
            cycles(&w.receive),
            reasons(&w.drops),
        ]);
    }
    if !sandboxes.is_empty() {
        out += &format!("{sandboxes}\n");
    }

    let mut nfs = Table::new(&["nf", "kind", "packets", "per batch", "created", "dropped", "counters"]);
    for n in &s.nfs {
        let restarts = (n.restarts != 0).then(|| format!("rebuilt {}", count(n.restarts)));
        let shown = n.counters.iter().filter(|(name, c)| **c != 0 && rule_number(name).is_none());
        let counters = shown.map(|(name, c)| format!("{name} {}", count(*c)));
        let memory = (n.memory >= 1 << 20).then(|| format!("memory {} MiB", count(n.memory >> 20)));
        let implausible = n.implausible.then(|| "(these counts cannot be true)".to_owned());
        let counters: Vec<_> = implausible.into_iter().chain(restarts).chain(memory).chain(counters).collect();
        nfs.row([
            n.name.clone(),
            n.kind.to_string(),
            count(n.packets),
            if n.cycles.batches == 0 {
                "-".to_owned()
            } else {
                format!("{:.1}", n.cycles.packets as f64 / n.cycles.batches as f64)
            },
            count(n.created),
            reasons(&n.drops),
            counters.join(", "),
        ]);
    }
    if !nfs.is_empty() {
        out += &format!("{nfs}\n");
    }

    for n in &s.nfs {
        let mut rules: Vec<_> = n.counters.iter().filter_map(|(name, c)| Some((rule_number(name)?, name, c))).collect();
        rules.sort_unstable();
        let rows: Vec<_> = rules.into_iter().map(|(_, name, c)| vec![name.clone(), count(*c)]).collect();
        out += &first_rows(&[&format!("rules of {}", n.name), "packets"], &rows);
        if let Some(shown) = &n.table {
            let columns: Vec<&str> = shown.columns.iter().map(AsRef::as_ref).collect();
            out += &first_rows(&columns, &shown.rows);
        }
    }

    let mut cycles = Table::new(&["cycles per packet", "", "share"]);
    let node = |name: String, c: &Cycles| c.per_packet().map(|p| (name, p));
    let nodes: Vec<(String, f64)> = s
        .ports
        .iter()
        .filter_map(|p| node(format!("receive {}", p.name), &p.receive))
        .chain(s.nfs.iter().filter_map(|n| {
            let names: Vec<&str> = std::iter::once(&n.name).chain(&n.fused).map(String::as_str).collect();
            node(names.join(" + "), &n.cycles)
        }))
        .chain(s.ports.iter().filter_map(|p| node(format!("send {}", p.name), &p.send)))
        .collect();
    let all: f64 = nodes.iter().map(|n| n.1).sum();
    for (name, per_packet) in &nodes {
        cycles.row([name.clone(), format!("{per_packet:.1}"), format!("{:.0} %", per_packet / all * 100.0)]);
    }
    if !cycles.is_empty() {
        out += &format!("{cycles}\n");
    }

    out += &format!(
        "  received {} + created {} = sent {} + held {} + dropped {}{}\n",
        count(t.received),
        count(t.created),
        count(t.sent),
        count(t.held),
        count(t.dropped),
        if s.balanced { "" } else { "   (MISMATCH)" }
    );
    let busy = s.workers.keys().filter_map(|&cpu| Some((cpu, s.busy_share(cpu, None)?)));
    let busy: Vec<_> = busy.map(|(cpu, share)| format!("CPU {cpu} busy {:.0} %", 100.0 * share)).collect();
    if !busy.is_empty() {
        out += &format!("  {}\n", busy.join(", "));
    }
    for (reason, n) in &s.drops {
        out += &format!("    {reason} {}\n", count(*n));
    }
    for w in s.sandboxes.iter().filter(|w| w.implausible) {
        out += &format!("  sandbox {}: its counts cannot be true and are not part of the totals\n", w.name);
    }
    for w in s.sandboxes.iter().filter(|w| w.suppressed_lines != 0) {
        out += &format!("  sandbox {}: {} lines of output suppressed\n", w.name, count(w.suppressed_lines));
    }
    for p in s.ports.iter().filter(|p| p.held + p.missed + p.send_errors != 0) {
        out += &format!(
            "  port {}: {} left in the queue, {} missed by the device, {} send errors\n",
            p.name, p.held, p.missed, p.send_errors
        );
    }
    out
}

/// Returns drop counts as text.
fn reasons(drops: &BTreeMap<Name, u64>) -> String {
    if drops.is_empty() {
        return "0".to_owned();
    }
    drops.iter().map(|(reason, n)| format!("{} {reason}", count(*n))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::NfSummary;

    #[test]
    fn rules_have_a_table_in_their_order() {
        let counters = (1..=25).map(|n| (format!("{n} drop dport {n}"), n % 2));
        let counters = counters.chain([("changed".to_owned(), 3)]).collect();
        let nf = NfSummary { name: "fw".into(), kind: "firewall".into(), counters, ..NfSummary::default() };
        let text = text(&Summary { nfs: vec![nf], balanced: true, ..Summary::default() });
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["fw", "firewall", "0", "-", "0", "0", "changed", "3"]), "{text}");
        let heading = lines.iter().position(|words| *words == ["rules", "of", "fw", "packets"]).unwrap();
        assert_eq!(lines[heading + 2], ["2", "drop", "dport", "2", "0"], "{text}");
        assert_eq!(lines[heading + 10][0], "10", "{text}");
        assert_eq!(lines[heading + 21], ["5", "more", "rows:", "--json"], "{text}");
    }
}
