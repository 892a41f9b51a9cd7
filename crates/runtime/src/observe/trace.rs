//! Traces: what happens to single packets, step by step.

use super::names::{EndName, HopNames, WorkerNames};
use super::traced_packet::{Step, StepKind, TracedPacket};
use bpf::Program;
use graph::{Counter, Hop, NodeStats, OperatorStep, Point};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Largest number of packets that are traced at the same time, with those that NFs create of them.
const MAX_TRACED: usize = 64;
/// Steps that wait for the reader.
const QUEUE: usize = 4096;
/// Bytes of a packet that a step shows.
const SHOWN: usize = 128;
/// Time after its last step in which the steps of other workers arrive.
const SETTLE: Duration = Duration::from_millis(5);
/// Time after which a packet is reported although an NF holds it, or it was lost in a panic.
const HELD: Duration = Duration::from_secs(1);

/// Number of a traced packet, and of the packet created of it.
type Id = (u32, u32);

/// A step of a packet, on its way to the reader.
struct Event {
    id: Id,
    time: SystemTime,
    step: Step,
}

/// State that the workers and the reader of a trace share.
struct Shared {
    filter: Option<Program>,
    limit: u32,
    /// Packets traced so far.
    begun: AtomicU32,
    /// Packets created of traced ones so far.
    created: AtomicU32,
    slots: [Slot; MAX_TRACED],
    /// Steps for which the queue had no room.
    lost: AtomicU64,
    ended: AtomicBool,
}

/// A packet that is traced: the address of its buffer, by which all workers recognize it.
#[derive(Default)]
struct Slot {
    /// 0: free.
    buffer: AtomicUsize,
    number: AtomicU32,
    copy: AtomicU32,
}

impl Shared {
    fn slot(&self, packet: &Packet) -> Option<&Slot> {
        let own = packet.address();
        self.slots.iter().find(|slot| slot.buffer.load(Ordering::Acquire) == own)
    }

    fn id(&self, packet: &Packet) -> Option<Id> {
        self.slot(packet).map(|slot| (slot.number.load(Ordering::Relaxed), slot.copy.load(Ordering::Relaxed)))
    }

    /// Follows a packet from now on; returns false if as many as possible are followed.
    fn follow(&self, packet: &Packet, (number, copy): Id) -> bool {
        /// Address of no buffer, while a slot is filled.
        const FILLING: usize = 1;
        let free =
            |slot: &&Slot| slot.buffer.compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let Some(slot) = self.slots.iter().find(free) else { return false };
        slot.number.store(number, Ordering::Relaxed);
        slot.copy.store(copy, Ordering::Relaxed);
        slot.buffer.store(packet.address(), Ordering::Release);
        true
    }

    /// Ends following a packet: its buffer may become another one.
    fn release(&self, packet: &Packet) {
        if let Some(slot) = self.slot(packet) {
            slot.buffer.store(0, Ordering::Release);
        }
    }
}

/// The end of a trace at a worker.
pub(crate) struct TraceTap {
    shared: Arc<Shared>,
    events: SyncSender<Event>,
    /// The packet that is processed now, if it is the only one.
    current: Option<Id>,
    /// Counters of the NF before it processes that packet.
    before: Vec<(String, Arc<Counter>, u64)>,
    /// Cycles of the operators that have processed that packet.
    operator_cycles: Option<u64>,
    /// The packet that was offered to a port last.
    sent: Option<(usize, Id)>,
}

impl TraceTap {
    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Returns true while a traced packet is processed alone.
    pub(super) fn follows_one(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn received(&mut self, names: &WorkerNames, input: usize, packets: &[Packet]) -> u64 {
        let end = names.inputs.get(input).cloned().unwrap_or_default();
        let mut alone = 0;
        for (n, packet) in packets.iter().enumerate() {
            let id = match self.shared.id(packet) {
                Some(id) if end.is_link => Some(id),
                known => {
                    if known.is_some() {
                        // it was lost in a panic, and its buffer is a new packet
                        self.shared.release(packet);
                    }
                    self.begin(&end, packet)
                }
            };
            if let Some(id) = id {
                alone |= 1 << n;
                self.step(names, id, StepKind::Received { from: end.name.clone() }, Some(packet.data()));
            }
        }
        alone
    }

    /// Begins to trace a packet that was received, if it is one to trace.
    fn begin(&self, end: &EndName, packet: &Packet) -> Option<Id> {
        let Shared { filter, limit, begun, .. } = &*self.shared;
        let is_selected = !end.is_link
            && begun.load(Ordering::Relaxed) < *limit
            && filter.as_ref().is_none_or(|filter| filter.accepts(packet.data()));
        if !is_selected {
            return None;
        }
        let next = |n| (n < *limit).then_some(n + 1);
        let number = begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()? + 1;
        self.shared.follow(packet, (number, 0)).then_some((number, 0))
    }

    pub(super) fn sees(&mut self, names: &WorkerNames, at: Point, packets: &[Packet]) {
        if let Point::Enter(_) = at {
            self.current = if let [one] = packets { self.shared.id(one) } else { None };
        }
        for packet in packets {
            let id = match at {
                Point::Create(_) => self.created(packet),
                Point::Refuse(..) => self.sent.take().filter(|(sent, _)| *sent == packet.address()).map(|(_, id)| id),
                _ => self.shared.id(packet),
            };
            if let Some(id) = id {
                self.record(names, at, id, packet);
            }
        }
    }

    /// Follows a packet that an NF creates while it processes a traced one.
    fn created(&self, packet: &Packet) -> Option<Id> {
        let (number, _) = self.current?;
        let id = (number, self.shared.created.fetch_add(1, Ordering::Relaxed) + 1);
        self.shared.follow(packet, id).then_some(id)
    }

    fn record(&mut self, names: &WorkerNames, at: Point, id: Id, packet: &Packet) {
        let hop = |hop: Hop| names.hops.get(usize::from(hop.0)).cloned().unwrap_or_default();
        let port = |port: u16| names.outputs.get(usize::from(port)).cloned().unwrap_or_default();
        let (kind, shown) = match at {
            Point::Enter(at) => {
                let HopNames { nf, input, .. } = hop(at);
                (StepKind::Enters { nf, input }, None)
            }
            Point::Leave(at, output) => {
                let hop = hop(at);
                (StepKind::Leaves { output: hop.output(output).to_owned(), nf: hop.nf }, Some(packet))
            }
            Point::Drop(at, reason) => {
                self.shared.release(packet);
                (StepKind::Dropped { nf: names.nf(at), reason: reason.to_owned() }, Some(packet))
            }
            Point::Create(at) => (StepKind::Created { nf: names.nf(at) }, None),
            Point::Hold(at) => (StepKind::Held { nf: names.nf(at) }, None),
            Point::Send(to) => {
                let end = port(to);
                // a link passes the buffer on
                if !end.is_link {
                    self.shared.release(packet);
                }
                self.sent = Some((packet.address(), id));
                (StepKind::Sent { to: end.name }, Some(packet))
            }
            Point::Refuse(to, reason) => {
                self.shared.release(packet);
                (StepKind::Refused { by: port(to).name, reason: reason.to_owned() }, None)
            }
        };
        self.step(names, id, kind, shown.map(Packet::data));
    }

    pub(super) fn starts(&mut self, stats: &NodeStats) {
        self.before.clear();
        self.operator_cycles = None;
        if self.current.is_some() {
            let with_count = |(name, counter): (String, Arc<Counter>)| {
                let count = counter.get();
                (name, counter, count)
            };
            self.before.extend(stats.counters().into_iter().map(with_count));
        }
    }

    pub(super) fn processed(&mut self, names: &WorkerNames, hop: Hop, cycles: u64) {
        let Some(id) = self.current.take() else { return };
        let changed =
            self.before.drain(..).filter_map(|(name, counter, before)| match counter.get() as i64 - before as i64 {
                0 => None,
                change => Some(format!("{name} {change:+}")),
            });
        let counters = changed.collect();
        // without the time of showing them
        let cycles = self.operator_cycles.take().unwrap_or(cycles);
        self.step(names, id, StepKind::Processed { nf: names.nf(hop), cycles, counters }, None);
    }

    pub(super) fn explained(&mut self, names: &WorkerNames, hop: Hop, text: &str) {
        if let Some(id) = self.current {
            self.step(names, id, StepKind::Explains { nf: names.nf(hop), text: text.to_owned() }, None);
        }
    }

    pub(super) fn operator(&mut self, names: &WorkerNames, hop: Hop, step: &OperatorStep) {
        let Some(id) = self.current else { return };
        *self.operator_cycles.get_or_insert_default() += step.cycles;
        let operator = [Some(step.operator), step.name].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let (nf, result, cycles) = (names.nf(hop), step.result.to_string(), step.cycles);
        self.step(names, id, StepKind::Operator { nf, operator, result, cycles }, step.bytes.as_deref());
    }

    /// Passes a step to the reader.
    fn step(&self, names: &WorkerNames, id: Id, kind: StepKind, bytes: Option<&[u8]>) {
        let hex = |bytes: &[u8]| bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
        let step = Step { copy: id.1, cpu: names.cpu, kind, len: bytes.map(<[u8]>::len), bytes: bytes.map(hex) };
        if self.events.try_send(Event { id, time: SystemTime::now(), step }).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A running trace, read by another thread than the workers'. Dropping it ends the trace.
pub struct Trace {
    shared: Arc<Shared>,
    events: Receiver<Event>,
    /// Packets with steps that were not returned.
    open: BTreeMap<u32, Open>,
    returned: u32,
    /// Time of the last step.
    last: Instant,
}

/// A packet whose steps are collected.
struct Open {
    packet: TracedPacket,
    /// Packets that were received or created and neither sent nor dropped.
    left: i64,
    last: Instant,
}

/// Starts a trace of the first `limit` packets that the filter accepts; returns its end at each of so many workers.
pub(crate) fn start(filter: Option<Program>, limit: u32, workers: usize) -> (Trace, Vec<TraceTap>) {
    let shared = Arc::new(Shared {
        filter,
        limit,
        begun: AtomicU32::new(0),
        created: AtomicU32::new(0),
        slots: [const { Slot { buffer: AtomicUsize::new(0), number: AtomicU32::new(0), copy: AtomicU32::new(0) } };
            MAX_TRACED],
        lost: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    });
    let (sender, events) = sync_channel(QUEUE);
    let tap = |_| TraceTap {
        shared: shared.clone(),
        events: sender.clone(),
        current: None,
        before: vec![],
        operator_cycles: None,
        sent: None,
    };
    let taps = (0..workers).map(tap).collect();
    (Trace { shared, events, open: BTreeMap::new(), returned: 0, last: Instant::now() }, taps)
}

impl Trace {
    /// Returns the packets whose steps are complete, or of which nothing was seen for a second.
    pub fn read(&mut self) -> Vec<TracedPacket> {
        let now = Instant::now();
        while let Ok(Event { id: (number, _), time, step }) = self.events.try_recv() {
            let timestamp_ns = || time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
            let open = self.open.entry(number).or_insert_with(|| Open {
                packet: TracedPacket { number, timestamp_ns: timestamp_ns(), steps: vec![], is_held: false },
                left: 0,
                last: now,
            });
            (open.last, self.last) = (now, now);
            open.left += match &step.kind {
                StepKind::Received { .. } | StepKind::Created { .. } => 1,
                StepKind::Sent { .. } | StepKind::Dropped { .. } => -1,
                _ => 0,
            };
            open.packet.steps.push(step);
        }
        let is_complete = |open: &Open| {
            let age = now.duration_since(open.last);
            open.left <= 0 && age >= SETTLE || age >= HELD
        };
        let complete: Vec<u32> = self.open.iter().filter(|(_, open)| is_complete(open)).map(|(n, _)| *n).collect();
        let packets = complete.iter().filter_map(|number| {
            let open = self.open.remove(number)?;
            Some(TracedPacket { is_held: open.left > 0, ..open.packet })
        });
        let packets: Vec<_> = packets.collect();
        self.returned += packets.len() as u32;
        packets
    }

    /// Returns true if as many packets as were asked for have been returned, except those of which all steps are missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let begun = self.shared.begun.load(Ordering::Relaxed);
        let is_over = || begun >= self.shared.limit && self.open.is_empty() && self.last.elapsed() >= HELD;
        self.returned >= self.shared.limit || is_over()
    }

    /// Returns the number of steps for which the queue had no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}
