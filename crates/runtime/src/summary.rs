//! The summary of a run: packet counts that balance.

use crate::occupancy::Occupancy;
use crate::ports::io::{LinkStats, PortDrop};
use crate::worker::schedule::ChainUsage;
use graph::{BoundedTable, Named, NodeStats, StatsTable};
use packet::clock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A name: static in this process, owned if it was received from another one.
pub type Name = Cow<'static, str>;

/// The counts of a run so far. During the run `received + created` includes packets in transit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Chain file.
    pub file: String,
    /// Seconds since the start.
    pub seconds: f64,
    /// Memory of the packet pool: `huge pages` or `ordinary pages`.
    pub memory: Name,
    /// Buffers of the packet pool in use: in queues, batches and NFs.
    #[serde(default)]
    pub pool: Occupancy,
    /// Frequency of the time-stamp counter, in which all cycles are given.
    pub cycles_per_second: u64,
    /// Sums over all ports, NFs and sandboxes.
    pub totals: Totals,
    /// True if `received + created = sent + held + dropped`; conclusive only at the end.
    pub balanced: bool,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Ports, ordered by name.
    pub ports: Vec<PortSummary>,
    /// Links between chains, named after the output at which a chain begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkSummary>,
    /// Chains, if they are scheduled and not served in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<ChainSummary>,
    /// NFs, ordered by name.
    pub nfs: Vec<NfSummary>,
    /// Sandboxes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandboxes: Vec<SandboxSummary>,
    /// Workers, by CPU.
    pub workers: BTreeMap<usize, WorkerSummary>,
    /// Errors that occurred during the run.
    pub errors: Vec<String>,
    /// NFs that did not finish their batch; packets held by their workers are not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<String>,
    /// True if a worker did not stop and was abandoned.
    #[serde(skip)]
    pub abandoned: bool,
}

/// One CPU that runs a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerSummary {
    /// Names of its chains, and of sandboxes on this CPU, which count their packets themselves.
    pub chains: Vec<String>,
    /// Packets that it processed of those received by ports: without those that it passed to other CPUs on their
    /// behalf, and with those passed to it.
    pub received: u64,
    /// Packets received from links between chains.
    pub received_from_links: u64,
    /// Packets accepted by ports for sending.
    pub sent: u64,
    /// Packets sent into links between chains.
    pub sent_to_links: u64,
    /// Packets dropped, by its NFs and at its ports and links.
    pub dropped: u64,
    /// Cycles in which it had packets or timers to process: all but those of empty polls and sleeps. Their
    /// share of an interval is [`Summary::busy_share`]. Absent if a sandbox on the CPU does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_cycles: Option<u64>,
}

impl WorkerSummary {
    /// Adds the counts of another one, which may be negative (two's complement).
    pub(crate) fn add_wrapping(&mut self, other: &WorkerSummary) {
        for (own, other) in self.counts().into_iter().zip(other.clone().counts()) {
            *own = own.wrapping_add(*other);
        }
    }

    /// Subtracts the counts of another one, below 0 in two's complement.
    pub(crate) fn subtract_wrapping(&mut self, other: &WorkerSummary) {
        for (own, other) in self.counts().into_iter().zip(other.clone().counts()) {
            *own = own.wrapping_sub(*other);
        }
    }

    fn counts(&mut self) -> [&mut u64; 5] {
        [&mut self.received, &mut self.received_from_links, &mut self.sent, &mut self.sent_to_links, &mut self.dropped]
    }

    pub(crate) fn add_received(&mut self, stats: &LinkStats, is_link: bool) {
        *(if is_link { &mut self.received_from_links } else { &mut self.received }) += stats.packets.get();
        self.dropped += stats.drops.iter().map(graph::Counter::get).sum::<u64>();
    }

    pub(crate) fn add_sent(&mut self, stats: &LinkStats, is_link: bool) {
        *(if is_link { &mut self.sent_to_links } else { &mut self.sent }) += stats.packets.get();
        self.dropped += stats.drops.iter().map(graph::Counter::get).sum::<u64>();
    }
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets received by ports.
    pub received: u64,
    /// Packets created by NFs.
    pub created: u64,
    /// Packets accepted by ports for sending.
    pub sent: u64,
    /// Packets left in rings, between cores, and in NFs.
    pub held: u64,
    /// Packets dropped.
    pub dropped: u64,
}

impl Totals {
    /// Returns true if every packet is accounted for.
    pub fn balanced(&self) -> bool {
        self.received + self.created == self.sent + self.held + self.dropped
    }
}

/// Cycles spent on timed batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycles {
    /// Cycles spent.
    pub cycles: u64,
    /// Packets in these batches.
    pub packets: u64,
    /// Number of batches; counted for NFs only.
    pub batches: u64,
}

impl Cycles {
    /// Returns the cycles per packet, if any packet was timed.
    pub fn per_packet(&self) -> Option<f64> {
        (self.packets != 0).then(|| self.cycles as f64 / self.packets as f64)
    }

    fn add(&mut self, cycles: &graph::Counter, packets: &graph::Counter) {
        self.cycles += cycles.get();
        self.packets += packets.get();
    }

    /// Adds other cycles.
    pub fn merge(&mut self, other: Cycles) {
        self.cycles = self.cycles.saturating_add(other.cycles);
        self.packets = self.packets.saturating_add(other.packets);
        self.batches = self.batches.saturating_add(other.batches);
    }
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortSummary {
    /// Name of the port.
    pub name: String,
    /// Device of the port.
    pub device: String,
    /// Packets received.
    pub received: u64,
    /// Bytes received, without FCS; 0 for rings.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent, without FCS; 0 for rings.
    pub sent_bytes: u64,
    /// Packets left in the queue at the end; included in `received`.
    pub held: u64,
    /// Packets dropped at the port, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Packets that the device dropped before they were received; not part of the totals.
    pub missed: u64,
    /// Packets received in several segments or in a shared buffer and copied into one buffer; included in `received`.
    pub copied: u64,
    /// Packets that the device accepted and did not send.
    pub send_errors: u64,
    /// Cycles spent receiving.
    pub receive: Cycles,
    /// Cycles spent sending.
    pub send: Cycles,
    /// Link state, if the device reports it.
    pub link: Option<bool>,
    /// Packets in the receive queues, and in those from the CPUs that poll the port to others, at most a millisecond
    /// ago. Absent if the device does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Occupancy>,
}

/// One chain, on workers that schedule their chains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChainSummary {
    /// Name of the chain.
    pub name: String,
    /// Packets received for the chain.
    pub packets: u64,
    /// Cycles spent on these packets.
    pub cycles: u64,
    /// Number of visits postponed because of the rate.
    pub throttled: u64,
}

impl ChainSummary {
    pub(crate) fn of(name: &str, usage: &ChainUsage) -> Self {
        let mut of = ChainSummary { name: name.to_owned(), ..Default::default() };
        of.add(usage);
        of
    }

    pub(crate) fn add(&mut self, usage: &ChainUsage) {
        self.packets += usage.packets.get();
        self.cycles += usage.cycles.get();
        self.throttled += usage.throttled.get();
    }
}

/// One link between chains: the rings from an output to the cores of the next chain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Name of the link, `NF.OUTPUT`.
    pub name: String,
    /// Packets sent into the rings.
    pub sent: u64,
    /// Packets received from the rings; the others are held.
    pub received: u64,
    /// Packets dropped because a ring was full, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Cycles spent sending.
    pub send: Cycles,
    /// Cycles spent receiving.
    pub receive: Cycles,
    /// Packets in the rings; absent if the link stays on its CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Occupancy>,
}

impl LinkSummary {
    pub(crate) fn add_sent(&mut self, stats: &LinkStats) {
        self.sent += stats.packets.get();
        self.send.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, PortDrop::NAMES, &stats.drops);
    }

    pub(crate) fn add_received(&mut self, stats: &LinkStats) {
        self.received += stats.packets.get();
        self.receive.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, PortDrop::NAMES, &stats.drops);
        add_queue(&mut self.queue, stats);
    }
}

/// One sandbox, without the NFs in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxSummary {
    /// Name of the sandbox.
    pub name: String,
    /// Kind of isolation.
    pub isolation: Name,
    /// Container runtime or hypervisor that runs it, with its version.
    pub runtime: Name,
    /// Transport of packets across the sandbox boundary.
    pub transport: Name,
    /// CPUs of the sandboxed process.
    pub cpus: Vec<usize>,
    /// True if the process sleeps while no packets arrive, and is woken by rx interrupts.
    pub sleeps: bool,
    /// Number of starts of the process.
    pub starts: u64,
    /// Milliseconds from the last start of the process until it was ready to forward.
    pub startup_ms: f64,
    /// True if the process is running.
    pub up: bool,
    /// Packets sent into the sandbox.
    pub sent: u64,
    /// Packets received from the sandbox.
    pub received: u64,
    /// Packets received in excess of those sent: created by NFs whose process ended before it reported them.
    pub created: u64,
    /// Packets dropped at the boundary, by reason: `sandbox_full` if the process accepted no more or was not running,
    /// `sandbox_return_full` if the host side accepted no more, `sandbox_lost` if the process ended with them.
    pub drops: BTreeMap<Name, u64>,
    /// True if the counts that the sandbox reported cannot be true, compared with the packets that crossed its boundary
    /// and with the speed of a CPU; they are then not part of the totals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub implausible: bool,
    /// Lines of output that were not printed because the sandbox exceeded its limit.
    #[serde(default)]
    pub suppressed_lines: u64,
    /// Cycles spent sending into the sandbox.
    pub send: Cycles,
    /// Cycles spent receiving from the sandbox.
    pub receive: Cycles,
    /// Cycles that the process reports for receiving.
    pub inner_receive: Cycles,
    /// Cycles that the process reports for sending.
    pub inner_send: Cycles,
}

impl SandboxSummary {
    /// Adds packets dropped at the boundary.
    pub fn add_drops(&mut self, reason: &str, packets: u64) {
        if packets != 0 {
            *self.drops.entry(reason.to_owned().into()).or_default() += packets;
        }
    }
}

/// One NF.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NfSummary {
    /// Name of the NF.
    pub name: String,
    /// Kind of the NF.
    pub kind: Name,
    /// Packets processed.
    pub packets: u64,
    /// Packets created.
    pub created: u64,
    /// Packets held for later.
    pub held: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<Name, u64>,
    /// Number of rebuilds after a panic.
    pub restarts: u64,
    /// Peak memory of all copies in bytes, with a resolution of 64 KiB per thread; 0 unless `bondstone::Memory` is the
    /// global allocator.
    pub memory: u64,
    /// The NF's own counters; those of a rebuilt copy start at 0.
    pub counters: BTreeMap<String, u64>,
    /// Names of those counters that are present values, such as a number of sessions.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gauges: BTreeSet<String>,
    /// Entries of the tables that packets fill, by table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub occupancy: BTreeMap<Name, Occupancy>,
    /// True if the NF is in a sandbox whose counts cannot be true; they are then not part of the totals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub implausible: bool,
    /// The NF's statistics table, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableSnapshot>,
    /// Cycles spent in the NF, and in those of `fused`.
    pub cycles: Cycles,
    /// Names of NFs that are fused with this one into one loop, so that their cycles are counted here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub fused: BTreeSet<String>,
}

/// The statistics table of an NF, with the largest rows of all copies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TableSnapshot {
    /// Names of the columns.
    pub columns: Vec<Name>,
    /// Rows, largest first.
    pub rows: Vec<Vec<String>>,
    #[serde(skip)]
    weights: Vec<u64>,
}

impl TableSnapshot {
    fn add(&mut self, table: &StatsTable) {
        let own = self.weights.drain(..).zip(self.rows.drain(..));
        let mut all: Vec<_> = own.chain(table.rows()).collect();
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(table.max_rows());
        self.columns = table.columns().iter().map(|column| Cow::Borrowed(*column)).collect();
        (self.weights, self.rows) = all.into_iter().unzip();
    }
}

impl PortSummary {
    /// Returns false if the port is a ring from which not all packets were received.
    pub(crate) fn ring_balanced(&self) -> bool {
        !self.device.starts_with("ring") || self.sent == self.received
    }

    /// Adds the counts of another process for the same port.
    pub fn merge(&mut self, other: &PortSummary) {
        let pairs = [
            (&mut self.received, other.received),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.sent, other.sent),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.held, other.held),
            (&mut self.missed, other.missed),
            (&mut self.copied, other.copied),
            (&mut self.send_errors, other.send_errors),
        ];
        pairs.into_iter().for_each(|(to, n)| *to = to.saturating_add(n));
        for (reason, n) in &other.drops {
            let all = self.drops.entry(reason.clone()).or_default();
            *all = all.saturating_add(*n);
        }
        self.receive.merge(other.receive);
        self.send.merge(other.send);
        self.link = other.link;
        self.queue = other.queue;
    }

    /// Counts packets as dropped that were accepted for sending and then lost, with this number of bytes.
    pub(crate) fn drop_sent(&mut self, reason: &'static str, (n, bytes): (u64, u64)) {
        if n != 0 {
            // a worker may not have counted them as sent yet
            let n = n.min(self.sent);
            self.sent -= n;
            self.sent_bytes = self.sent_bytes.saturating_sub(bytes);
            *self.drops.entry(Cow::Borrowed(reason)).or_default() += n;
        }
    }

    /// Adds packets that were received and dropped by the driver.
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
        add_drops(&mut self.drops, PortDrop::NAMES, &stats.drops);
        add_queue(&mut self.queue, stats);
    }

    pub(crate) fn add_sent(&mut self, stats: &LinkStats) {
        self.sent += stats.packets.get();
        self.sent_bytes += stats.bytes.get();
        self.send.add(&stats.timed_cycles, &stats.timed_packets);
        add_drops(&mut self.drops, PortDrop::NAMES, &stats.drops);
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
        if let Some(table) = stats.table() {
            self.table.get_or_insert_default().add(&table);
        }
        self.restarts += stats.restarts.get();
        self.fused.extend(stats.fused());
        for BoundedTable { name, entries, capacity } in stats.bounded_tables() {
            let occupancy = Occupancy { used: entries.get(), capacity };
            self.occupancy.entry(Cow::Borrowed(name)).or_default().add(occupancy);
        }
        self.gauges.extend(stats.gauges().iter().map(|name| (*name).to_owned()));
        for (name, count) in stats.counters() {
            *self.counters.entry(name).or_default() += count.get();
        }
    }
}

impl NfSummary {
    /// Adds the counts of another process of the same NF.
    pub fn merge(&mut self, other: &NfSummary) {
        let pairs = [
            (&mut self.packets, other.packets),
            (&mut self.created, other.created),
            (&mut self.restarts, other.restarts),
        ];
        pairs.into_iter().for_each(|(to, n)| *to = to.saturating_add(n));
        self.memory = self.memory.max(other.memory);
        self.cycles.merge(other.cycles);
        for (reason, n) in &other.drops {
            let all = self.drops.entry(reason.clone()).or_default();
            *all = all.saturating_add(*n);
        }
        for (name, n) in &other.counters {
            let all = self.counters.entry(name.clone()).or_default();
            *all = all.saturating_add(*n);
        }
        for (name, occupancy) in &other.occupancy {
            self.occupancy.entry(name.clone()).or_default().add(*occupancy);
        }
        self.gauges.extend(other.gauges.iter().cloned());
        self.fused.extend(other.fused.iter().cloned());
    }

    /// Returns the counts of an ended process: it has no sessions, table or held packets any more.
    #[must_use]
    pub fn without_gauges(mut self) -> NfSummary {
        for (_, count) in self.counters.iter_mut().filter(|(name, _)| self.gauges.contains(*name)) {
            *count = 0;
        }
        NfSummary { held: 0, table: None, occupancy: BTreeMap::new(), ..self }
    }
}

fn add_drops(to: &mut BTreeMap<Name, u64>, reasons: &[&'static str], counts: &[graph::Counter]) {
    for (reason, count) in reasons.iter().zip(counts) {
        if count.get() != 0 {
            *to.entry(Cow::Borrowed(reason)).or_default() += count.get();
        }
    }
}

fn add_queue(to: &mut Option<Occupancy>, stats: &LinkStats) {
    if let Some(queue) = stats.queue() {
        to.get_or_insert_default().add(queue);
    }
}

impl Summary {
    /// Returns the share of time since `before`, of the same run, or since its start, in which the worker on a CPU had
    /// work; `None` if that is not counted.
    #[must_use]
    pub fn busy_share(&self, cpu: usize, before: Option<&Summary>) -> Option<f64> {
        let busy = |summary: &Summary| summary.workers.get(&cpu)?.busy_cycles;
        let cycles = busy(self)?.saturating_sub(before.and_then(busy).unwrap_or(0));
        let seconds = self.seconds - before.map_or(0.0, |before| before.seconds);
        Some((cycles as f64 / (seconds * self.cycles_per_second as f64).max(1.0)).min(1.0))
    }

    /// Adds packets that were left in the queue of a port.
    pub(crate) fn add_held(&mut self, port: usize, n: u64) {
        self.ports[port].held += n;
        self.ports[port].received += n;
        self.totals.held += n;
        self.totals.received += n;
        self.balanced = self.totals.balanced() && self.ports.iter().all(PortSummary::ring_balanced);
    }

    /// Computes the totals over ports, NFs, links and sandboxes.
    pub fn compute_totals(&mut self) {
        self.cycles_per_second = clock::hz();
        self.drops.clear();
        let (ports, links) = (&self.ports, &self.links);
        let nfs = || self.nfs.iter().filter(|nf| !nf.implausible);
        let drops = ports.iter().map(|p| &p.drops).chain(nfs().map(|n| &n.drops));
        for drops in drops.chain(links.iter().map(|l| &l.drops)).chain(self.sandboxes.iter().map(|w| &w.drops)) {
            for (reason, n) in drops {
                *self.drops.entry(reason.clone()).or_default() += n;
            }
        }
        self.totals = Totals {
            received: ports.iter().map(|p| p.received).sum(),
            created: nfs().map(|n| n.created).chain(self.sandboxes.iter().map(|w| w.created)).sum(),
            sent: ports.iter().map(|p| p.sent).sum(),
            held: ports
                .iter()
                .map(|p| p.held)
                .chain(nfs().map(|n| n.held))
                .chain(links.iter().map(|l| l.sent.saturating_sub(l.received)))
                .sum(),
            dropped: self.drops.values().sum(),
        };
        self.balanced = self.totals.balanced();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_that_of_the_interval() {
        let at = |seconds, busy_cycles| Summary {
            seconds,
            cycles_per_second: 1000,
            workers: [(1, WorkerSummary { busy_cycles, ..WorkerSummary::default() })].into(),
            ..Summary::default()
        };
        let (first, second) = (at(2.0, Some(500)), at(4.0, Some(2000)));
        assert_eq!((first.busy_share(1, None), second.busy_share(1, Some(&first))), (Some(0.25), Some(0.75)));
        // a sandbox that was restarted counts from 0, and clocks differ a little
        assert_eq!(at(6.0, Some(0)).busy_share(1, Some(&second)), Some(0.0));
        assert_eq!(at(6.0, Some(9000)).busy_share(1, Some(&second)), Some(1.0));
        assert_eq!((at(6.0, None).busy_share(1, Some(&second)), second.busy_share(2, None)), (None, None));
    }
}
