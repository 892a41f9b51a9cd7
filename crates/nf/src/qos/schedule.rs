//! Scheduling: sharing the rate of a port between subscribers and classes.

mod hold;
mod settings;
mod subscribers;

use super::class::Classes;
use super::headers::Headers;
use super::queue::{DropReason, Parameters, Stamp};
use super::subscriber::{Grouping, SubscriberKey};
use crate::random;
use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, HoldSlab, Named, Nf, Node, Spread, TakeOver};
use hold::HoldHost;
use packet::{BURST, Batch};
use settings::{Settings, Structure};
use std::any::Any;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use subscribers::Scheduler;
use tables::flow::{CAPACITY_MOST, FlowTable, Lookup, Prepared, Settings as TableSettings};

/// `schedule`: shares the rate of a port between subscribers and their classes.
pub struct Schedule;

graph::named_enum! {
    /// Counters.
    enum CounterId {
        /// Subscribers with state.
        Subscribers = "subscribers",
        /// Packets that wait.
        Queued = "queued",
        /// Packets marked as having experienced congestion.
        Marked = "ecn_marked",
    }
}

/// Interval at which packets that are due are sent.
const INTERVAL: Duration = Duration::from_micros(20);
/// Number of calls of the timer in which all subscribers are searched for idle ones: about a second.
const SWEEP_CALLS: usize = 50_000;
/// Maximum number of packets of a replaced node that are dropped at once.
const DROP_BATCH: usize = 1024;

impl Nf for Schedule {
    type Settings = Settings;
    const KIND: &'static str = "schedule";
    const ABOUT: &'static str = "Shares the rate of a port between subscribers and their classes, with priorities, \
        weights and active queue management.";
    const SPREAD: Spread = Spread::Flow;
    const TAKES_OVER: Option<TakeOver> =
        Some(TakeOver { state: "waiting packets of unchanged classes", unless: &[], format: None });
    const EXAMPLE: &'static str = "rate = \"1 Gbps\"\nper = \"destination\"\nsubscriber_rate = \"50 Mbps\"\n\
        classes = [{ name = \"voice\", match = [{ dscp = [\"ef\"] }], priority = 0, queue = { discipline = \"tail_drop\", \
        packets = 50 } }, { name = \"rest\", priority = 1 }]";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let plan = settings.plan()?;
        let matches = Classes::new(settings.classes().iter().map(|class| (class.name(), class.matches())))?;
        let capacity = plan.subscribers;
        let invalid = |e: &dyn std::error::Error| {
            let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
            Diagnostic::new(e.to_string()).key("subscribers").value(capacity).remedy(remedy)
        };
        let table = FlowTable::new(&TableSettings::new(capacity as usize)).map_err(|e| invalid(&e))?;
        let mut scheduler = Scheduler::new(plan.port, plan.limits, plan.ranks, plan.packets);
        scheduler.reserve(capacity as usize).map_err(|e| invalid(&e))?;
        Ok(ScheduleNode {
            matches,
            last_class: plan.queues.len().saturating_sub(1),
            queues: plan.queues,
            sent: plan.names.iter().map(|name| (name.clone(), Arc::default())).collect(),
            scheduler,
            held: HoldSlab::default(),
            structure: plan.structure,
            replaced: vec![],
            grouping: plan.grouping,
            packets: plan.packets,
            overhead: plan.overhead,
            table,
            hasher: foldhash::fast::RandomState::default(),
            random: 0x9e37_79b9_7f4a_7c15 ^ cx.copy.0 as u64,
            counters: Counters::default(),
            bounded: [
                BoundedTable::new("subscribers", capacity.into()),
                BoundedTable::new("packets", plan.packets as u64),
            ],
        })
    }
}

struct ScheduleNode {
    matches: Classes,
    /// Class of packets that match none.
    last_class: usize,
    queues: Box<[Parameters]>,
    /// Packets sent of each class.
    sent: Box<[(String, Arc<Counter>)]>,
    scheduler: Scheduler,
    /// Packets of the scheduler.
    held: HoldSlab<Stamp>,
    /// Settings on which the state depends.
    structure: Structure,
    /// Schedulers of nodes with other classes, whose packets are to be dropped, and these packets.
    replaced: Vec<(Scheduler, HoldSlab<Stamp>)>,
    grouping: Grouping,
    /// Maximum number of packets in all queues.
    packets: usize,
    overhead: u32,
    /// Numbers of subscribers in the scheduler.
    table: FlowTable<SubscriberKey, u32>,
    hasher: foldhash::fast::RandomState,
    random: u64,
    counters: Counters<CounterId>,
    bounded: [BoundedTable; 2],
}

/// Class, hash of the flow, and number of the subscriber of a packet.
#[derive(Clone, Copy, Default)]
struct Classified {
    class: usize,
    flow: u64,
    /// `None` if there is no room for the subscriber.
    subscriber: Option<u32>,
}

impl ScheduleNode {
    /// Returns a uniform random number.
    fn random(&mut self) -> u32 {
        (random::next(&mut self.random) >> 32) as u32
    }

    /// Finds class and subscriber of each packet of a batch, and prefetches the memory that queueing needs.
    fn classify(&mut self, cx: &mut Context<'_>, batch: &mut Batch, now: u64) -> [Classified; BURST] {
        let mut all = [Classified::default(); BURST];
        let (mut keys, mut n) = ([self.table.prepare(SubscriberKey::default()); BURST], 0);
        batch.for_each(|packet| {
            let headers = Headers::of(packet);
            keys[n & (BURST - 1)] = self.table.prepare(self.grouping.key(0, headers.tuple.as_ref()));
            all[n & (BURST - 1)] = Classified {
                class: self.matches.find(&headers).unwrap_or(self.last_class),
                flow: headers.tuple.map_or(0, |tuple| self.hasher.hash_one(tuple)),
                subscriber: None,
            };
            n += 1;
        });
        let (scheduler, keys) = (&mut self.scheduler, &keys[..n.min(BURST)]);
        self.table.look_up_or_insert(
            keys,
            (now / 1_000_000) as u32,
            |_, _| {},
            |at, found| {
                let at = at & (BURST - 1);
                all[at].subscriber = match found {
                    Lookup::Known(number) => Some(*number),
                    Lookup::New(number) => {
                        *number = keys.get(at).map_or(0, |key: &Prepared<_>| scheduler.add(key.key(), now));
                        Some(*number)
                    }
                    Lookup::Refused => None,
                };
            },
        );
        if n > 1 {
            let packets = all.iter().filter_map(|it| Some((it.subscriber?, it.class, it.flow)));
            let mut host = HoldHost { cx, held: &mut self.held, marked: &self.counters[CounterId::Marked] };
            self.scheduler.prefetch(&mut host, &self.queues, packets);
        }
        all
    }

    /// Queues a packet.
    fn put(&mut self, cx: &mut Context<'_>, packet: packet::Packet, classified: &Classified, now: u64) {
        let Classified { class, flow, subscriber } = *classified;
        let Some(number) = subscriber else { return cx.drop(DropReason::SubscribersFull, packet) };
        let bytes = packet.len() as u32 + self.overhead;
        let random = (flow, self.random());
        let path = cx.path();
        let mut host = HoldHost { cx, held: &mut self.held, marked: &self.counters[CounterId::Marked] };
        self.scheduler.push(&mut host, &self.queues, number, class, (path, packet), bytes, now, random);
    }

    /// Drops packets that a node with other classes has queued.
    #[cold]
    fn drop_replaced(&mut self, cx: &mut Context<'_>) {
        let Some((scheduler, held)) = self.replaced.last_mut() else { return };
        let mut host = HoldHost { cx, held, marked: &self.counters[CounterId::Marked] };
        if scheduler.drop_all(&mut host, DropReason::Reload, DROP_BATCH) {
            self.replaced.pop();
        }
    }

    /// Sends the packets that are due.
    fn run(&mut self, cx: &mut Context<'_>, now: u64) {
        loop {
            let marked = &self.counters[CounterId::Marked];
            let mut host = HoldHost { cx: &mut *cx, held: &mut self.held, marked };
            let Some((class, (path, packet))) = self.scheduler.pop(&mut host, &self.queues, now) else { break };
            if let Some((_, sent)) = self.sent.get(class) {
                sent.add(1);
            }
            cx.emit_on_path(path, 0, packet);
        }
    }
}

impl Node for ScheduleNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let mut all = self.counters.named();
        all.extend(self.sent.iter().map(|(name, sent)| (format!("{name}_sent"), sent.clone())));
        all
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::Subscribers.name(), CounterId::Queued.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded.to_vec()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let now = cx.now().as_nanos() as u64;
        self.run(cx, now);
        let classified = self.classify(cx, batch, now);
        for (packet, classified) in batch.drain().zip(&classified) {
            self.put(cx, packet, classified, now);
        }
        self.run(cx, now);
    }

    fn interval(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().as_nanos() as u64;
        self.run(cx, now);
        if !self.replaced.is_empty() {
            self.drop_replaced(cx);
        }
        let n = self.scheduler.subscribers().div_ceil(SWEEP_CALLS);
        let table = &mut self.table;
        self.scheduler.remove_idle(n, now, |key| _ = table.remove(key));
        let (subscribers, packets) = (self.table.len() as u64, self.scheduler.packets() as u64);
        let replaced: usize = self.replaced.iter().map(|(_, held)| held.len()).sum();
        self.counters[CounterId::Subscribers].set(subscribers);
        self.counters[CounterId::Queued].set(packets + replaced as u64);
        self.bounded[0].entries.set(subscribers);
        self.bounded[1].entries.set(packets);
    }

    fn held_max(&self) -> usize {
        self.packets
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        let Some(old) = old.downcast_mut::<ScheduleNode>() else { return };
        self.replaced.append(&mut old.replaced);
        if self.structure == old.structure {
            self.scheduler.take_over(&mut old.scheduler);
            core::mem::swap(&mut self.held, &mut old.held);
            core::mem::swap(&mut self.table, &mut old.table);
            // flows keep their queues
            core::mem::swap(&mut self.hasher, &mut old.hasher);
        } else {
            self.replaced.push((old.scheduler.take(), core::mem::take(&mut old.held)));
        }
    }
}

#[cfg(test)]
mod tests;
