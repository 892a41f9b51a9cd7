//! A learning bridge.

use super::output_split::OutputSplit;
use crate::saved_flows;
use crate::settings::port_list;
use diagnostics::Diagnostic;
use graph::{
    BoundedTable, BuildContext, Context, Counter, Counters, InvalidState, Named, Nf, Node, Spread, StateReader,
    StateWriter, TakeOver,
};
use packet::{BURST, Batch, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tables::flow::{FlowTable, Lookup, Prepared, Settings as TableSettings};

/// `bridge`: learns the port of each MAC address and forwards frames by destination (IEEE 802.1D-2004 §7.7 to §7.9).
pub struct Bridge;

/// Settings of [`Bridge`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Names of 2 to 30 ports of the chain file.
    ports: Vec<String>,
    /// Maximum number of learned MAC addresses. Frames from other addresses are forwarded, frames to them are flooded.
    mac_entries: usize,
    /// Seconds after which a MAC address that sends nothing is removed, 1 to 4000 (IEEE 802.1D-2004 §7.9.2).
    ageing_time: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { ports: vec![], mac_entries: 16_384, ageing_time: 300 }
    }
}

graph::named_enum! {
    /// Drop reasons.
    enum DropReason {
        /// The destination is at the port that the frame was received from.
        SamePort = "same_port",
        /// The source is a group address.
        SourceGroup = "source_group",
        /// The frame is shorter than an Ethernet header.
        MalformedEthernet = "malformed_ethernet",
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        /// MAC addresses in the table.
        MacEntries = "mac_entries",
        Learned = "learned",
        /// Addresses that changed their port.
        Moved = "moved",
        AgedOut = "aged_out",
        /// Frames whose source was not learned.
        TableFull = "table_full",
        Flooded = "flooded",
        /// Copies that were not sent because the buffer pool was empty.
        NotCopied = "not_copied",
    }
}

/// Maximum number of ports: a flooded packet is copied for each.
const MAX_PORTS: usize = 30;
/// Unit of the table's time, as a power of two of milliseconds.
const TIME_UNIT: u32 = 4;
/// Interval at which a part of the table is searched for old entries.
const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Time in which the whole table is searched for old entries.
const AGEING_ROUND: Duration = Duration::from_secs(4);
/// Capacity of the update log. A copy that falls further behind misses updates and learns from its own frames.
const UPDATES_MAX: usize = 4096;

/// Addresses that a bridge does not forward (IEEE 802.1D-2004 §7.12.6), without the last half byte.
const RESERVED: u64 = 0x0180_c200_0000;

/// A number that is not a MAC address.
const NO_ADDRESS: u64 = u64::MAX;

/// Value of the MAC table; with address and time of the last frame an entry takes 16 bytes.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MacEntry {
    port: u8,
    /// Low bytes of the time at which the entry was last published to the other copies.
    published: [u8; 3],
}

impl MacEntry {
    fn new(port: u8, now: u32) -> MacEntry {
        let [a, b, c, _] = now.to_le_bytes();
        MacEntry { port, published: [a, b, c] }
    }

    /// Returns the time since the entry was last published.
    fn since_published(self, now: u32) -> u32 {
        let [a, b, c] = self.published;
        now.wrapping_sub(u32::from_le_bytes([a, b, c, 0])) & 0x00ff_ffff
    }
}

/// Log of learned addresses, shared by the copies of a bridge, each of which receives only some of the frames.
#[derive(Default)]
struct UpdateLog {
    /// Sequence number of the newest update.
    newest: AtomicU64,
    /// Addresses and their ports, oldest first.
    updates: Mutex<VecDeque<(u64, u8)>>,
}

struct BridgeNode {
    ports: u8,
    /// True if the bridge has several copies.
    has_copies: bool,
    /// Ageing time in units of the table.
    ageing_time: u32,
    table: FlowTable<u64, MacEntry>,
    /// Prepared keys of a burst.
    sources: [Prepared<u64>; BURST],
    destinations: [Prepared<u64>; BURST],
    log: Arc<UpdateLog>,
    /// Sequence number of the last update of the log that this copy applied.
    applied: u64,
    /// Time of the last search, `None` if another process has done it.
    last_ageing: Option<Duration>,
    counters: Counters<CounterId>,
}

impl Nf for Bridge {
    type Settings = Settings;
    const KIND: &'static str = "bridge";
    const ABOUT: &'static str = "Learns the port of each MAC address and forwards frames by destination; floods frames \
         to unknown destinations and groups, and sends frames to reserved bridge addresses to its output \"control\".";
    const SPREAD: Spread = Spread::Any;
    const TAKES_OVER: Option<TakeOver> =
        Some(TakeOver { state: "MAC addresses", unless: &["ports", "mac_entries"], format: Some(1) });
    const INPUTS: &'static [&'static str] = &[];
    const OUTPUTS: &'static [&'static str] = &["control"];
    const EXAMPLE: &'static str = "ports = [\"lan\", \"wan\"]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports.clone()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { ports, mac_entries, ageing_time } = settings;
        port_list::check(ports, 2..=MAX_PORTS, "a bridge has 2 to 30 ports")?;
        if !(1..=4000).contains(ageing_time) {
            let d = Diagnostic::new("ageing time is out of range").key("ageing_time").value(ageing_time);
            return Err(d.remedy("write 1 to 4000 seconds"));
        }
        let table = FlowTable::new(&TableSettings::new(*mac_entries)).map_err(|e| {
            let d = Diagnostic::new(e.to_string()).key("mac_entries").value(mac_entries);
            d.remedy("write a smaller number, 1 or more")
        })?;
        let log = cx.shared(|| Ok(UpdateLog::default()))?;
        Ok(BridgeNode {
            ports: ports.len() as u8,
            has_copies: cx.copy.1 > 1,
            ageing_time: (ageing_time * 1000) >> TIME_UNIT,
            sources: [table.prepare(0); BURST],
            destinations: [table.prepare(0); BURST],
            table,
            applied: log.newest.load(Ordering::Acquire),
            log,
            last_ageing: Some(Duration::ZERO),
            counters: Counters::default(),
        })
    }
}

/// Returns the time in units of the table.
fn clock(now: Duration) -> u32 {
    (now.as_millis() >> TIME_UNIT) as u32
}

/// Returns destination and source, the first byte of each being the highest.
#[inline(always)]
fn addresses(frame: &[u8]) -> Option<(u64, u64)> {
    let header = frame.first_chunk::<14>()?;
    let (dst, src) = (header.first_chunk()?, header.last_chunk()?);
    Some((u64::from_be_bytes(*dst) >> 16, u64::from_be_bytes(*src) >> 16))
}

#[inline(always)]
fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}

/// Forwarding decision for a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Send to this port.
    Port(u8),
    /// Send to all ports but the one that the frame was received from.
    Flood,
    /// Send to the output for bridge protocols.
    Control,
    /// Drop: the destination is at the port that the frame was received from.
    SamePort,
}

impl BridgeNode {
    /// Learns that the first `count` addresses of `sources` are at a port.
    #[inline(always)]
    fn learn(&mut self, count: usize, port: u8, now: u32) {
        let BridgeNode { table, sources, counters, log, ageing_time, has_copies, applied, .. } = self;
        let sources = &sources[..count];
        let mut publish = |address: u64| {
            let mut updates = log.updates.lock().unwrap_or_else(PoisonError::into_inner);
            if updates.len() == UPDATES_MAX {
                updates.pop_front();
            }
            updates.push_back((address, port));
            let number = log.newest.load(Ordering::Relaxed) + 1;
            log.newest.store(number, Ordering::Release);
            // skip the own update, unless another copy has published meanwhile
            if *applied + 1 == number {
                *applied = number;
            }
        };
        table.look_up_or_insert(
            sources,
            now,
            |_, _| {},
            #[inline(always)]
            |n, found| {
                let (entry, changed) = match found {
                    Lookup::Known(entry) if entry.port == port && !*has_copies => return,
                    Lookup::Known(entry) if entry.port == port => (entry, false),
                    Lookup::Known(entry) => {
                        counters[CounterId::Moved].add(1);
                        (entry, true)
                    }
                    Lookup::New(entry) => {
                        counters[CounterId::Learned].add(1);
                        (entry, true)
                    }
                    Lookup::Refused => return counters[CounterId::TableFull].add(1),
                };
                entry.port = port;
                if *has_copies && (changed || entry.since_published(now) > *ageing_time / 2) {
                    *entry = MacEntry::new(port, now);
                    publish(sources[n].key());
                }
            },
        );
    }

    /// Applies the updates that the other copies have published.
    #[cold]
    fn apply_updates(&mut self, now: u32) {
        let (updates, newest) = {
            let updates = self.log.updates.lock().unwrap_or_else(PoisonError::into_inner);
            let newest = self.log.newest.load(Ordering::Relaxed);
            let count = ((newest - self.applied) as usize).min(updates.len());
            (updates.range(updates.len() - count..).copied().collect::<Vec<_>>(), newest)
        };
        self.applied = newest;
        for (address, port) in updates {
            let key = [self.table.prepare(address)];
            self.table.look_up_or_insert(
                &key,
                now,
                |_, _| {},
                |_, found| {
                    if let Lookup::Known(entry) | Lookup::New(entry) = found {
                        *entry = MacEntry::new(port, now);
                    }
                },
            );
        }
    }

    #[inline(always)]
    fn verdict(&self, input: u8, to: &Prepared<u64>) -> Verdict {
        if is_group(to.key()) {
            return if to.key() & !0xf == RESERVED { Verdict::Control } else { Verdict::Flood };
        }
        match self.table.read(to) {
            Some(entry) if entry.port == input => Verdict::SamePort,
            Some(entry) => Verdict::Port(entry.port),
            None => Verdict::Flood,
        }
    }

    /// Sends a frame to all ports but one.
    fn flood(&self, cx: &mut Context<'_>, input: u8, packet: Packet) {
        self.counters[CounterId::Flooded].add(1);
        let mut others = (0..self.ports).filter(|port| *port != input);
        let Some(first) = others.next() else { return cx.drop(DropReason::SamePort, packet) };
        for port in others {
            match cx.copy(&packet) {
                Some(copy) => cx.emit(port + 1, copy),
                None => self.counters[CounterId::NotCopied].add(1),
            }
        }
        cx.emit(first + 1, packet);
    }
}

impl Node for BridgeNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn outputs(&self) -> &[&'static str] {
        Bridge::OUTPUTS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::MacEntries.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        let entries = self.counters[CounterId::MacEntries].clone();
        vec![BoundedTable { name: CounterId::MacEntries.name(), entries, capacity: self.table.capacity() as u64 }]
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let now = clock(cx.now());
        if self.has_copies && self.log.newest.load(Ordering::Acquire) != self.applied {
            self.apply_updates(now);
        }
        // successive frames often have the same source and destination: each address is looked up once per run of
        // frames
        let BridgeNode { table, sources, destinations, .. } = self;
        let (mut frames, mut runs, mut senders) = (0, 0, 0);
        let (mut run_starts, mut malformed, mut groups) = (0u64, 0u64, 0u64);
        let (mut last_dst, mut last_src) = (NO_ADDRESS, NO_ADDRESS);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let bit = 1 << frames;
                frames += 1;
                match addresses(packet.data()) {
                    Some((dst, src)) if !is_group(src) => {
                        if dst != last_dst {
                            last_dst = dst;
                            destinations[runs & (BURST - 1)] = table.prepare(dst);
                            runs += 1;
                            run_starts |= bit;
                        }
                        if src != last_src {
                            last_src = src;
                            sources[senders & (BURST - 1)] = table.prepare(src);
                            senders += 1;
                        }
                    }
                    Some(_) => groups |= bit,
                    None => malformed |= bit,
                }
            },
        );
        self.learn(senders.min(BURST), input, now);
        let (mut split, mut later_starts) = (OutputSplit::new(malformed | groups), run_starts);
        let mut verdicts = [Verdict::Flood; BURST];
        for (to, verdict) in self.destinations.iter().zip(&mut verdicts).take(runs) {
            let first = later_starts & later_starts.wrapping_neg();
            later_starts ^= first;
            *verdict = self.verdict(input, to);
            let output = match *verdict {
                Verdict::Port(port) => Some(port + 1),
                _ => None,
            };
            // the frames from the first of this run to the first of the next
            split.add((later_starts & later_starts.wrapping_neg()).wrapping_sub(first), output);
        }
        if split.others() != 0 {
            let run = |n: usize| (run_starts & (u64::MAX >> (BURST - 1 - n))).count_ones() as usize;
            batch.extract_mask(split.others(), |n, packet| match verdicts[run(n).wrapping_sub(1) & (BURST - 1)] {
                _ if malformed >> n & 1 != 0 => cx.drop(DropReason::MalformedEthernet, packet),
                _ if groups >> n & 1 != 0 => cx.drop(DropReason::SourceGroup, packet),
                Verdict::Port(port) => cx.emit(port + 1, packet),
                Verdict::Flood => self.flood(cx, input, packet),
                Verdict::Control => cx.emit(0, packet),
                Verdict::SamePort => cx.drop(DropReason::SamePort, packet),
            });
        }
        cx.set_output(split.main());
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        if let Some(old) = old.downcast_mut::<BridgeNode>() {
            core::mem::swap(&mut self.table, &mut old.table);
            self.last_ageing = old.last_ageing;
        }
    }

    fn save(&mut self, state: &mut StateWriter) {
        saved_flows::save(&self.table, state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.last_ageing = None;
        let ports = self.ports;
        saved_flows::restore(&mut self.table, state, |address, entry: MacEntry| {
            let is_valid = *address < 1 << 48 && !is_group(*address) && entry.port < ports;
            if is_valid { Ok(Some(entry)) } else { Err(InvalidState) }
        })
    }

    fn interval(&self) -> Option<Duration> {
        Some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        let since = self.last_ageing.replace(now).unwrap_or(now);
        let elapsed = now.saturating_sub(since).min(AGEING_ROUND);
        let buckets = self.table.buckets() as f64 * elapsed.as_secs_f64() / AGEING_ROUND.as_secs_f64();
        let ageing_time = self.ageing_time;
        let aged_out = self.table.age(clock(now), buckets.ceil() as usize, |_, _, idle| idle >= ageing_time);
        self.counters[CounterId::AgedOut].add(aged_out as u64);
        self.counters[CounterId::MacEntries].set(self.table.len() as u64);
    }
}

#[cfg(test)]
mod tests;
