//! `bondstone run`.

use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use crate::kept;
use crate::table::{Table, count, rate};
use bytesize::ByteSize;
use config::ChainFile;
use diagnostics::Diagnostics;
use graph::Registry;
use runtime::{Cycles, Name, Options, PortSummary, Summary};
use sandbox::Walled;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Runs a chain file: opens its ports, takes packets along its chains, counts every one of them.
///
/// Counts appear each second; a summary follows when all captures are read, when the time given is over, or on Ctrl-C.
#[derive(clap::Args)]
#[command(after_help = "\
Ports (device = \"...\" in the file; what follows a comma goes to DPDK's driver):
  pcap:FILE           a capture, read (pcap, pcapng, gzipped) or written; repeat = N reads it N times (0: until stopped),
                      timed = true keeps its gaps
  null                blank 64-byte frames in, nothing out        ring:NAME         a queue in memory, out and in
  tap:NAME            a new kernel interface                      af_packet:IF      a kernel interface
  af_xdp:IF           the same, by AF_XDP                         memif:SOCKET      shared memory with one trusted process
  vhost:SOCKET        the switch's side of a VM or container      virtio-user:SOCKET  the other side
  0000:01:00.0        a NIC by PCI address                        sriov:IF          a virtual function of a NIC
  net_null0,size=9    any device that DPDK has a driver for

Examples:
  bondstone run examples/demo.toml
  bondstone run edge.toml --for 10s --json > result.json
  bondstone run edge.toml --restart")]
pub(crate) struct Run {
    /// The chain file.
    chain: PathBuf,
    /// Stops after this long, such as 10s, 500ms or 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Ends the run, and names the NF that has most, when the process has more memory than this, such as 2GiB; huge pages do
    /// not count [default: four fifths of the machine's, or the container's].
    #[arg(long, value_name = "BYTES")]
    memory: Option<ByteSize>,
    #[command(flatten)]
    placing: crate::plan::Placing,
    /// Runs in a process of its own, and starts that again when it is killed or crashes: after 10 ms, and after twice as long
    /// each time that it ends again, up to 5 s.
    #[arg(long, conflicts_with = "time")]
    restart: bool,
    /// In that process: who keeps it.
    #[arg(long, hide = true, requires = "restart")]
    kept: Option<i32>,
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
}

enum Event {
    Interrupt,
}

impl Run {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<ExitCode> {
        match (self.restart, self.kept) {
            (true, None) => kept::keep(),
            (false, None) => self.here(registry).map(Into::into),
            (_, Some(keeper)) => kept::end_with(keeper).and_then(|()| self.here(registry)).map(kept::ended),
        }
    }

    fn here(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let file = ChainFile::read(&self.chain, registry).map_err(Diagnostics)?;
        for warning in &file.warnings {
            eprintln!("warning: {warning}");
        }
        let (interrupt, events) = channel();
        on_interrupt(move || drop(interrupt.send(Event::Interrupt)))?;
        let memory = self.memory.map(|bytes| bytes.as_u64());
        let options = Options { strategy: self.placing.strategy(), memory, ..Options::default() };
        let chains = Walled::start(&file, registry, options)?;
        for note in chains.notes() {
            eprintln!("note: {note}");
        }
        let mut before = chains.snapshot();
        for wall in &before.walls {
            let idle = if wall.sleeps { ", sleeps while nothing comes" } else { "" };
            let runtime::WallSummary { name, isolation, by, transport, began_ms, .. } = wall;
            eprintln!("wall {name}: a {isolation} ({by}) by {transport}, ready after {began_ms:.0} ms{idle}");
        }
        for (cpu, chains) in &before.workers {
            eprintln!("CPU {cpu} runs {}", chains.join(", "));
        }
        let start = Instant::now();
        let mut next = Duration::from_secs(1);
        let mut interrupted = false;
        // packets may have moved before the first look, so the first line counts from none
        let mut counted = false;
        while !chains.is_finished() {
            let elapsed = start.elapsed();
            if self.time.is_some_and(|t| elapsed >= t) {
                break;
            }
            if elapsed >= next {
                let now = chains.snapshot();
                eprintln!("{}", live(counted.then_some(&before), &now));
                counted = true;
                tell_links(&before, &now);
                tell_walls(&before, &now);
                let told = |fault: &&String| before.faults.iter().any(|old| once(old) == once(fault));
                let new = now.faults.iter().filter(|fault| !told(fault));
                new.for_each(|fault| eprintln!("warning: {fault}"));
                before = now;
                next += Duration::from_secs(1);
            }
            let due = self.time.map_or(next, |t| t.min(next)).saturating_sub(start.elapsed());
            match events.recv_timeout(due.min(Duration::from_millis(20))) {
                Ok(Event::Interrupt) => {
                    interrupted = true;
                    break;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        let summary = chains.stop();
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &summary)?;
            writeln!(out)?;
        } else {
            write!(out, "{}", text(&summary))?;
        }
        for fault in &summary.faults {
            eprintln!("error: {fault}");
        }
        Ok(match () {
            () if !summary.balanced && summary.stuck.is_empty() => {
                eprintln!("error: the counts of packets do not add up; this is a bug in Bondstone");
                Exit::Failed
            }
            () if !summary.faults.is_empty() => Exit::Failed,
            () if interrupted => Exit::Interrupted,
            () => Exit::Done,
        })
    }
}

/// Rows of an NF's table that are printed.
const SHOWN: usize = 20;

/// The time since `before`, or since the start, in one line.
fn live(before: Option<&Summary>, now: &Summary) -> String {
    let seconds = (now.seconds - before.map_or(0.0, |b| b.seconds)).max(1e-9);
    let per_second = |of: &dyn Fn(&Summary) -> u64| rate(of(now).saturating_sub(before.map_or(0, of)) as f64 / seconds);
    let port = |(n, port): (usize, &PortSummary)| {
        let (received, sent) = (per_second(&|s| s.ports[n].received), per_second(&|s| s.ports[n].sent));
        format!("{} in {received}pps out {sent}pps", port.name)
    };
    let ports: Vec<String> = now.ports.iter().enumerate().map(port).collect();
    let dropped = per_second(&|s| s.totals.dropped);
    format!("{:>5.0} s  {}  dropped {dropped}pps", now.seconds, ports.join("  "))
}

/// Says when a port's other side comes or goes.
fn tell_links(before: &Summary, now: &Summary) {
    for (b, n) in before.ports.iter().zip(&now.ports) {
        match (b.link, n.link) {
            (Some(true), Some(false)) => eprintln!("warning: port {:?} ({}) has lost its link", n.name, n.device),
            (Some(false), Some(true)) => eprintln!("note: port {:?} ({}) has its link", n.name, n.device),
            _ => {}
        }
    }
}

/// A fault without how often it came.
fn once(fault: &str) -> &str {
    fault.strip_suffix(" times)").and_then(|rest| rest.rsplit_once(" (")).map_or(fault, |(once, _)| once)
}

/// Says when what is behind a wall comes or goes.
fn tell_walls(before: &Summary, now: &Summary) {
    for (b, n) in before.walls.iter().zip(&now.walls) {
        if n.up && (!b.up || n.starts != b.starts) {
            eprintln!("note: wall {:?}: its process runs again, {:.0} ms after its start", n.name, n.began_ms);
        }
    }
}

/// The summary for people.
fn text(s: &Summary) -> String {
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

    let mut chains = Table::new(&["chain", "packets", "cycles per packet", "share of cycles", "put off"]);
    let all: u64 = s.chains.iter().map(|c| c.cycles).sum();
    for c in &s.chains {
        chains.row([
            c.name.clone(),
            count(c.packets),
            if c.packets == 0 { "-".to_owned() } else { format!("{:.1}", c.cycles as f64 / c.packets as f64) },
            format!("{:.0} %", 100.0 * c.cycles as f64 / all.max(1) as f64),
            count(c.put_off),
        ]);
    }
    if !chains.is_empty() {
        out += &format!("{chains}\n");
    }

    let mut links = Table::new(&["to other cores", "handed", "taken", "cycles in", "cycles out", "dropped"]);
    for l in &s.links {
        let cycles = |c: &Cycles| c.per_packet().map_or("-".to_owned(), |c| format!("{c:.1}"));
        links.row([
            l.name.clone(),
            count(l.handed),
            count(l.taken),
            cycles(&l.hand),
            cycles(&l.take),
            reasons(&l.drops),
        ]);
    }
    if !links.is_empty() {
        out += &format!("{links}\n");
    }

    let mut walls = Table::new(&[
        "wall",
        "isolation",
        "CPUs",
        "starts",
        "handed",
        "returned",
        "cycles in",
        "cycles out",
        "dropped",
    ]);
    for w in &s.walls {
        let cycles = |c: &Cycles| c.per_packet().map_or("-".to_owned(), |c| format!("{c:.1}"));
        walls.row([
            w.name.clone(),
            w.isolation.to_string(),
            w.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            count(w.starts),
            count(w.handed),
            count(w.returned),
            cycles(&w.hand),
            cycles(&w.take),
            reasons(&w.drops),
        ]);
    }
    if !walls.is_empty() {
        out += &format!("{walls}\n");
    }

    let mut nfs = Table::new(&["nf", "kind", "packets", "per batch", "created", "dropped", "counts"]);
    for n in &s.nfs {
        let restarts = (n.restarts != 0).then(|| format!("built anew {}", count(n.restarts)));
        let counters = n.counters.iter().filter(|(_, c)| **c != 0).map(|(name, c)| format!("{name} {}", count(*c)));
        let memory = (n.memory >= 1 << 20).then(|| format!("memory {} MiB", count(n.memory >> 20)));
        let counters: Vec<_> = restarts.into_iter().chain(memory).chain(counters).collect();
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
        if let Some(shown) = n.table.as_ref().filter(|t| !t.rows.is_empty()) {
            let columns: Vec<&str> = shown.columns.iter().map(AsRef::as_ref).collect();
            let mut table = Table::new(&columns);
            shown.rows.iter().take(SHOWN).for_each(|row| table.row(row.clone()));
            out += &format!("{table}\n");
        }
    }

    let mut cycles = Table::new(&["cycles per packet", "", "share"]);
    let node = |name: String, c: &Cycles| c.per_packet().map(|p| (name, p));
    let nodes: Vec<(String, f64)> = s
        .ports
        .iter()
        .filter_map(|p| node(format!("receive {}", p.name), &p.receive))
        .chain(s.nfs.iter().filter_map(|n| node(n.name.clone(), &n.cycles)))
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
        if s.balanced { "" } else { "   (DOES NOT ADD UP)" }
    );
    for (reason, n) in &s.drops {
        out += &format!("    {reason} {}\n", count(*n));
    }
    for p in s.ports.iter().filter(|p| p.held + p.missed + p.send_errors != 0) {
        out += &format!(
            "  port {}: {} left in its queue, {} missed by the device, {} not sent by it\n",
            p.name, p.held, p.missed, p.send_errors
        );
    }
    out
}

fn reasons(drops: &BTreeMap<Name, u64>) -> String {
    if drops.is_empty() {
        return "0".to_owned();
    }
    drops.iter().map(|(reason, n)| format!("{} {reason}", count(*n))).collect::<Vec<_>>().join(", ")
}
