//! What a run has done, in numbers that add up.

use crate::LinkStats;
use crate::schedule::Served;
use graph::{StatsTable, NodeStats};
use packet::clock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A name that is known at build time, unless it comes from another process.
pub type Name = Cow<'static, str>;

/// What a run has done so far. While it runs, packets on their way make `received + created` run ahead.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Chain file.
    pub file: String,
    /// Seconds since the start.
    pub seconds: f64,
    /// Where packets are kept: `huge pages` or `ordinary pages`.
    pub memory: Name,
    /// Cycles of the time-stamp counter in a second; all cycles here are of this counter.
    pub cycles_per_second: u64,
    /// All packets.
    pub totals: Totals,
    /// Whether `received + created = sent + held + dropped`. Certain only at the end.
    pub balanced: bool,
    /// Packets dropped, by reason, everywhere.
    pub drops: BTreeMap<Name, u64>,
    /// By port, in the order of their names.
    pub ports: Vec<PortSummary>,
    /// By output with which a chain begins: what went to other cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkSummary>,
    /// By chain, where they are not simply served in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainSummary>,
    /// By NF, in the order of their names.
    pub nfs: Vec<NfSummary>,
    /// By wall.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walls: Vec<WallSummary>,
    /// CPUs with a worker, and the chains on each.
    pub workers: BTreeMap<usize, Vec<String>>,
    /// What went wrong while running.
    pub faults: Vec<String>,
    /// NFs that never gave their batch back: what their workers hold is in no count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<String>,
    /// Whether a worker was left to itself, with all that it has.
    #[serde(skip)]
    pub left: bool,
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Came in by a port.
    pub received: u64,
    /// Were made by NFs.
    pub created: u64,
    /// Were accepted by a port.
    pub sent: u64,
    /// Were left in queues: in rings in memory, between cores, and in NFs.
    pub held: u64,
    /// Were dropped.
    pub dropped: u64,
}

impl Totals {
    /// Whether every packet is accounted for.
    pub fn balanced(&self) -> bool {
        self.received + self.created == self.sent + self.held + self.dropped
    }
}

/// Cycles on the batches that were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycles {
    /// Cycles spent.
    pub cycles: u64,
    /// Packets that they were spent on.
    pub packets: u64,
    /// Batches that these came in; counted for NFs.
    pub batches: u64,
}

impl Cycles {
    /// Cycles per packet, when any was timed.
    pub fn per_packet(&self) -> Option<f64> {
        (self.packets != 0).then(|| self.cycles as f64 / self.packets as f64)
    }

    fn add(&mut self, cycles: &graph::Counter, packets: &graph::Counter) {
        self.cycles += cycles.get();
        self.packets += packets.get();
    }

    /// Adds others.
    pub fn join(&mut self, more: Cycles) {
        self.cycles += more.cycles;
        self.packets += more.packets;
        self.batches += more.batches;
    }
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortSummary {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// Packets received.
    pub received: u64,
    /// Bytes received, without FCS; 0 for rings.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent, without FCS; 0 for rings.
    pub sent_bytes: u64,
    /// Packets left in its queue at the end; counted as received.
    pub held: u64,
    /// Packets dropped at it, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Packets that the device lost before anybody received them; outside the totals.
    pub missed: u64,
    /// Packets that came in several segments, or in a borrowed buffer, and were copied into one buffer; received like others.
    pub copied: u64,
    /// Packets that the device accepted and failed to send.
    pub send_errors: u64,
    /// Cycles spent receiving.
    pub receive: Cycles,
    /// Cycles spent sending.
    pub send: Cycles,
    /// Whether the other side is there, for devices that can tell.
    pub link: Option<bool>,
}

/// One chain on workers that have a choice of which to serve.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChainSummary {
    /// Its name.
    pub name: String,
    /// Packets that were taken for it.
    pub packets: u64,
    /// Cycles that they took.
    pub cycles: u64,
    /// Times that its rate had it wait.
    pub put_off: u64,
}

impl ChainSummary {
    pub(crate) fn of(name: &str, served: &Served) -> Self {
        let mut of = ChainSummary { name: name.to_owned(), ..Default::default() };
        of.add(served);
        of
    }

    pub(crate) fn add(&mut self, served: &Served) {
        self.packets += served.packets.get();
        self.cycles += served.cycles.get();
        self.put_off += served.put_off.get();
    }
}

/// One output with which a chain begins, and the rings from it to the chain's cores.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its name, `NF.OUTPUT`.
    pub name: String,
    /// Packets that were put into the rings.
    pub handed: u64,
    /// Packets that were taken out; the others are held.
    pub taken: u64,
    /// Packets dropped because a ring had no room, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Cycles spent putting in.
    pub hand: Cycles,
    /// Cycles spent taking out.
    pub take: Cycles,
}

impl LinkSummary {
    pub(crate) fn add_handed(&mut self, stats: &LinkStats) {
        self.handed += stats.packets.get();
        self.hand.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, &LinkStats::REASONS, &stats.drops);
    }

    pub(crate) fn add_taken(&mut self, stats: &LinkStats) {
        self.taken += stats.packets.get();
        self.take.add(&stats.timed_cycles, &stats.timed_packets);
    }
}

/// One wall, and what it did with packets besides the NFs behind it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WallSummary {
    /// Its name.
    pub name: String,
    /// What it is made of.
    pub isolation: Name,
    /// What runs it, with its version.
    pub by: Name,
    /// By what packets go through it.
    pub transport: Name,
    /// CPUs of its process.
    pub cpus: Vec<usize>,
    /// Whether its process sleeps while nothing comes, and is woken by who sends.
    pub sleeps: bool,
    /// Times that its process was started.
    pub starts: u64,
    /// Milliseconds from its process's start, the last one, until it was ready to forward.
    pub began_ms: f64,
    /// Whether its process is there and runs.
    pub up: bool,
    /// Packets that went behind it, and that came back.
    pub handed: u64,
    /// Packets that came back.
    pub returned: u64,
    /// Packets that came back and never went: those that NFs made whose process ended before it said so.
    pub created: u64,
    /// Packets dropped at it, by reason: `wall_full` if its process took no more, or was not there; `return_full` if nobody
    /// took them back; `wall_lost` if its process has ended with them.
    pub drops: BTreeMap<Name, u64>,
    /// Cycles spent on packets that went behind it.
    pub hand: Cycles,
    /// Cycles spent on packets that came back.
    pub take: Cycles,
    /// Cycles that its process has spent on packets that came to it, by what it says.
    pub inner_take: Cycles,
    /// Cycles that its process has spent on packets that it gave back, by what it says.
    pub inner_hand: Cycles,
}

impl WallSummary {
    /// Counts packets that were dropped at it.
    pub fn drop_as(&mut self, reason: &str, packets: u64) {
        if packets != 0 {
            *self.drops.entry(reason.to_owned().into()).or_default() += packets;
        }
    }
}

/// One NF.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NfSummary {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Name,
    /// Packets that came in.
    pub packets: u64,
    /// Packets that it made.
    pub created: u64,
    /// Packets that it keeps for later.
    pub held: u64,
    /// Packets that it dropped, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Times that it was built anew, after a panic.
    pub restarts: u64,
    /// Most bytes of memory that it has had, in all its copies, to 64 KiB for each thread; 0 where the program's allocator
    /// does not count (`bondstone::Memory` does).
    pub memory: u64,
    /// Its own counts; those of a copy that was built anew begin at 0.
    pub counters: BTreeMap<String, u64>,
    /// Its table, if it shows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Shown>,
    /// Cycles spent in it.
    pub cycles: Cycles,
}

/// The table that an NF shows; of several copies, the largest rows of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Names of the columns.
    pub columns: Vec<Name>,
    /// Rows, largest first.
    pub rows: Vec<Vec<String>>,
    #[serde(skip)]
    weights: Vec<u64>,
}

impl Shown {
    fn add(&mut self, board: &StatsTable) {
        let own = self.weights.drain(..).zip(self.rows.drain(..));
        let mut all: Vec<_> = own.chain(board.rows()).collect();
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(board.most());
        self.columns = board.columns().iter().map(|column| Cow::Borrowed(*column)).collect();
        (self.weights, self.rows) = all.into_iter().unzip();
    }
}

impl PortSummary {
    /// Whether all that was sent to a ring came out of it, as it has to be at the end; true for other ports.
    pub(crate) fn ring_is_whole(&self) -> bool {
        !self.device.starts_with("ring") || self.sent == self.received
    }

    /// Adds what another process has done at the same port.
    pub fn join(&mut self, more: &PortSummary) {
        let pairs = [
            (&mut self.received, more.received),
            (&mut self.received_bytes, more.received_bytes),
            (&mut self.sent, more.sent),
            (&mut self.sent_bytes, more.sent_bytes),
            (&mut self.held, more.held),
            (&mut self.missed, more.missed),
            (&mut self.copied, more.copied),
            (&mut self.send_errors, more.send_errors),
        ];
        pairs.into_iter().for_each(|(to, n)| *to = to.saturating_add(n));
        for (reason, n) in &more.drops {
            let all = self.drops.entry(reason.clone()).or_default();
            *all = all.saturating_add(*n);
        }
        self.receive.join(more.receive);
        self.send.join(more.send);
        self.link = more.link;
    }

    /// Books packets that came and were dropped before anybody had them.
    pub(crate) fn drop_received(&mut self, reason: &'static str, n: u64) {
        if n != 0 {
            self.received += n;
            *self.drops.entry(Cow::Borrowed(reason)).or_default() += n;
        }
    }

    pub(crate) fn add_received(&mut self, stats: &LinkStats) {
        self.received += stats.packets.get();
        self.received_bytes += stats.bytes.get();
        self.receive.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, &LinkStats::REASONS, &stats.drops);
    }

    pub(crate) fn add_sent(&mut self, stats: &LinkStats) {
        self.sent += stats.packets.get();
        self.sent_bytes += stats.bytes.get();
        self.send.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, &LinkStats::REASONS, &stats.drops);
    }
}

impl NfSummary {
    pub(crate) fn add(&mut self, stats: &NodeStats) {
        self.packets += stats.packets.get();
        self.cycles.batches += stats.timed_batches.get();
        self.created += stats.created.get();
        self.held += stats.held.get();
        self.cycles.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, &stats.reasons, &stats.drops);
        if let Some(board) = stats.board() {
            self.table.get_or_insert_default().add(&board);
        }
        self.restarts += stats.restarts.get();
        for (name, count) in stats.counters() {
            *self.counters.entry(name).or_default() += count.get();
        }
    }
}

impl NfSummary {
    /// Adds what the same NF did in an earlier process, whose packets are gone that it held.
    pub fn join(&mut self, earlier: &NfSummary) {
        self.packets += earlier.packets;
        self.created += earlier.created;
        self.restarts += earlier.restarts;
        self.memory = self.memory.max(earlier.memory);
        self.cycles.join(earlier.cycles);
        for (reason, n) in &earlier.drops {
            *self.drops.entry(reason.clone()).or_default() += n;
        }
        for (name, n) in &earlier.counters {
            *self.counters.entry(name.clone()).or_default() += n;
        }
    }
}

fn add_drops(to: &mut BTreeMap<Name, u64>, reasons: &[&'static str], counts: &[graph::Counter]) {
    for (reason, count) in reasons.iter().zip(counts) {
        if count.get() != 0 {
            *to.entry(Cow::Borrowed(reason)).or_default() += count.get();
        }
    }
}

impl Summary {
    /// Books packets that were left in the queue of a port.
    pub(crate) fn hold(&mut self, port: usize, n: u64) {
        self.ports[port].held += n;
        self.ports[port].received += n;
        self.totals.held += n;
        self.totals.received += n;
        self.balanced = self.totals.balanced() && self.ports.iter().all(PortSummary::ring_is_whole);
    }

    /// Adds up ports, NFs and walls.
    pub fn total(&mut self) {
        self.cycles_per_second = clock::hz();
        self.drops.clear();
        let (ports, nfs, links) = (&self.ports, &self.nfs, &self.links);
        let drops = ports.iter().map(|p| &p.drops).chain(nfs.iter().map(|n| &n.drops));
        for drops in drops.chain(links.iter().map(|l| &l.drops)).chain(self.walls.iter().map(|w| &w.drops)) {
            for (reason, n) in drops {
                *self.drops.entry(reason.clone()).or_default() += n;
            }
        }
        self.totals = Totals {
            received: ports.iter().map(|p| p.received).sum(),
            created: nfs.iter().map(|n| n.created).chain(self.walls.iter().map(|w| w.created)).sum(),
            sent: ports.iter().map(|p| p.sent).sum(),
            held: ports
                .iter()
                .map(|p| p.held)
                .chain(nfs.iter().map(|n| n.held))
                .chain(links.iter().map(|l| l.handed.saturating_sub(l.taken)))
                .sum(),
            dropped: self.drops.values().sum(),
        };
        self.balanced = self.totals.balanced();
    }
}
