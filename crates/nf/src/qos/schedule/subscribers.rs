//! The hierarchy of port, subscribers and classes.

use crate::qos::pacer::{NextAt, Pacer};
use crate::qos::queue::{ClassQueue, DropReason, Host, Largest, Parameters};
use crate::qos::subscriber::SubscriberKey;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, TryReserveError, VecDeque};
use tables::prefetch_value;

/// Time in nanoseconds for which a queue or a subscriber is kept after its last packet.
const IDLE: u64 = 1_000_000_000;
/// Largest number of packets that a packet makes the scheduler drop.
const DROP_BATCH: usize = 64;
/// Number of steps in which the memory of a packet is prefetched.
const STEPS: usize = 4;

/// Limits of a subscriber.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubscriberLimits {
    /// Rate and burst; `None` without a limit.
    pub(super) pacer: Option<Pacer>,
    /// Bytes that a subscriber may send in its turn.
    pub(super) quantum: u32,
}

/// Place of a class in the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    /// Classes with smaller numbers are served first.
    pub(super) priority: u8,
    /// Bytes that a class may send in its turn among those of its priority.
    pub(super) quantum: u32,
}

/// Classes of one priority, of all subscribers.
#[derive(Debug)]
struct Level {
    /// Numbers of the classes.
    classes: Box<[u8]>,
}

/// A class of a subscriber.
struct Class {
    /// Its queue, allocated when first used.
    queue: Option<Box<ClassQueue>>,
    /// Bytes that it may still send in its turn.
    credit: i64,
    /// Time of the last packet in nanoseconds.
    used: u64,
}

/// Reason for which a subscriber sends or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has no packets.
    Idle,
    /// It takes part in the round robin.
    Ready,
    /// It has packets and waits for its rate limit.
    Waiting,
}

/// A subscriber: what a packet needs, in one cache line, and the rest.
#[repr(C, align(64))]
struct Subscriber {
    /// State of its rate limit.
    next_at: NextAt,
    /// Bytes that it may still send in its turn.
    credit: i64,
    /// Time of the last packet in nanoseconds.
    used: u64,
    classes: Box<[Class]>,
    /// Packets in all queues.
    packets: u32,
    state: State,
    key: SubscriberKey,
    /// Position in each level of the class that is served next.
    turns: Box<[u8]>,
}

/// Port, subscribers and classes: queues packets, and returns them in the order and at the times at which they are sent.
///
/// Time is virtual: a call of [`pop`](Self::pop) performs, at their nominal times, all transmissions that were due until
/// now, so that rates and shares do not depend on how often it is called.
pub(super) struct Scheduler {
    /// Rate of the port; `None` without a limit.
    port: Option<Pacer>,
    /// Maximum number of packets in all queues.
    limit: usize,
    limits: SubscriberLimits,
    ranks: Box<[Rank]>,
    /// By priority.
    levels: Box<[Level]>,
    subscribers: Vec<Option<Subscriber>>,
    /// Unused numbers of subscribers.
    free: Vec<u32>,
    /// Ready subscribers in the order of service.
    ready: VecDeque<u32>,
    /// Waiting subscribers with the times from which they may send.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Nominal time of the last transmission.
    clock: u64,
    packets: usize,
    /// The subscriber with most packets, while there are as many as there may be.
    largest: Largest,
    /// Subscriber at which the search for idle ones continues.
    sweep: usize,
}

impl Scheduler {
    /// Creates a scheduler without subscribers. `limit` is the maximum number of packets in all queues.
    pub(super) fn new(port: Option<Pacer>, limits: SubscriberLimits, ranks: Box<[Rank]>, limit: usize) -> Self {
        let mut priorities: Vec<_> = ranks.iter().map(|rank| rank.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let level = |priority: u8| {
            let own = (0_u8..).zip(&ranks).filter(|(_, rank)| rank.priority == priority);
            Level { classes: own.map(|(class, _)| class).collect() }
        };
        let levels = priorities.into_iter().map(level).collect();
        Scheduler {
            port,
            limit,
            limits,
            ranks,
            levels,
            subscribers: vec![],
            free: vec![],
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            clock: 0,
            packets: 0,
            largest: Largest::default(),
            sweep: 0,
        }
    }

    /// Returns the scheduler and leaves one without subscribers.
    pub(super) fn take(&mut self) -> Self {
        let empty = Scheduler::new(self.port, self.limits, self.ranks.clone(), self.limit);
        core::mem::replace(self, empty)
    }

    /// Reserves address space for this number of subscribers, so that none are copied when there are more.
    pub(super) fn reserve(&mut self, subscribers: usize) -> Result<(), TryReserveError> {
        self.subscribers.try_reserve_exact(subscribers)
    }

    /// Takes the packets and subscribers of another scheduler whose classes have the same priorities.
    pub(super) fn take_over(&mut self, old: &mut Self) {
        core::mem::swap(self, old);
        let resumed = |new: Pacer, before: Option<Pacer>| before.map_or(new, |before| new.resume(before.next_at()));
        self.port = old.port.map(|port| resumed(port, self.port));
        (self.limit, self.limits) = (old.limit, old.limits);
        core::mem::swap(&mut self.ranks, &mut old.ranks);
        core::mem::swap(&mut self.levels, &mut old.levels);
    }

    /// Drops up to `most` packets. Returns true if none is left.
    pub(super) fn drop_all<H: Host>(&mut self, host: &mut H, reason: DropReason, most: usize) -> bool {
        for _ in 0..most {
            if self.packets == 0 || !self.drop_from_largest(host, reason) {
                return true;
            }
        }
        self.packets == 0
    }

    /// Drops the oldest packet of the longest queue of the subscriber with most packets. Returns false if there is
    /// none.
    #[cold]
    fn drop_from_largest<H: Host>(&mut self, host: &mut H, reason: DropReason) -> bool {
        let (subscribers, ready, waiting) = (&self.subscribers, &self.ready, &self.waiting);
        let size = |number: u32| {
            let subscriber = subscribers.get(number as usize)?.as_ref()?;
            Some((subscriber.packets.into(), number))
        };
        let active = || ready.iter().copied().chain(waiting.iter().map(|Reverse((_, number))| *number));
        let number = self.largest.find(|| active().filter_map(size));
        let Some(number) = number else { return false };
        let Some(Some(subscriber)) = self.subscribers.get_mut(number as usize) else { return false };
        let queues = subscriber.classes.iter_mut().filter_map(|class| class.queue.as_mut());
        let Some(queue) = queues.max_by_key(|queue| queue.len()) else { return false };
        let before = queue.len();
        queue.drop_oldest(host, reason);
        let dropped = before - queue.len();
        let left = subscriber.packets - dropped as u32;
        self.largest.update(number, subscriber.packets.into(), left.into());
        subscriber.packets = left;
        self.packets -= dropped;
        dropped != 0
    }

    /// Returns the number of packets in all queues.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// Returns the number of subscribers, with those whose number is free.
    pub(super) fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    /// Prefetches what pushing packets of these subscribers, classes and flows needs, in steps: each of them reads what the
    /// one before has prefetched for all packets.
    pub(super) fn prefetch<H: Host>(
        &self,
        host: &mut H,
        parameters: &[Parameters],
        packets: impl Iterator<Item = (u32, usize, u64)> + Clone,
    ) {
        for step in 0..STEPS {
            for (number, class, flow) in packets.clone() {
                self.prefetch_step(host, parameters, step, number, class, flow);
            }
        }
    }

    /// Prefetches a subscriber, the state of a class, its queue, or the packets next to which one of a flow is queued.
    #[inline(always)]
    fn prefetch_step<H: Host>(
        &self,
        host: &mut H,
        parameters: &[Parameters],
        step: usize,
        number: u32,
        class: usize,
        flow: u64,
    ) {
        let Some(subscriber) = self.subscribers.get(number as usize) else { return };
        if step == 0 {
            return prefetch_value(subscriber);
        }
        let Some(state) = subscriber.as_ref().and_then(|subscriber| subscriber.classes.get(class)) else { return };
        if step == 1 {
            return prefetch_value(state);
        }
        let Some(queue) = &state.queue else { return };
        if step == 2 {
            return prefetch_value(&**queue);
        }
        if let Some(parameters) = parameters.get(class) {
            queue.prefetch(host, parameters, flow);
        }
    }

    /// Prefetches what the next calls of [`pop`](Self::pop) need, if there is one class: of later subscribers the first
    /// steps.
    #[inline(always)]
    fn prefetch_next<H: Host>(&self, host: &mut H, parameters: &[Parameters]) {
        if self.ranks.len() != 1 {
            return;
        }
        for (step, ahead) in [(0, 8), (1, 6), (2, 4), (3, 2)] {
            if let Some(number) = self.ready.get(ahead) {
                self.prefetch_step(host, parameters, step, *number, 0, 0);
            }
        }
        // the next ones to become ready are at the top of the heap
        let soon = self.waiting.as_slice().iter().take(3);
        for (at, Reverse((_, number))) in soon.enumerate() {
            let steps = if at == 0 { [2, 3] } else { [0, 1] };
            steps.into_iter().for_each(|step| self.prefetch_step(host, parameters, step, *number, 0, 0));
        }
    }

    /// Adds a subscriber and returns its number.
    pub(super) fn add(&mut self, key: SubscriberKey, now: u64) -> u32 {
        let class = |rank: &Rank| Class { queue: None, credit: rank.quantum.into(), used: now };
        let subscriber = Some(Subscriber {
            next_at: NextAt::default(),
            credit: self.limits.quantum.into(),
            used: now,
            classes: self.ranks.iter().map(class).collect(),
            packets: 0,
            state: State::Idle,
            key,
            turns: self.levels.iter().map(|_| 0).collect(),
        });
        match self.free.pop() {
            Some(number) => {
                if let Some(slot) = self.subscribers.get_mut(number as usize) {
                    *slot = subscriber;
                }
                number
            }
            None => {
                self.subscribers.push(subscriber);
                (self.subscribers.len() - 1) as u32
            }
        }
    }

    /// Queues a packet of a class that arrives now; all transmissions due before must have been performed. `random` is a
    /// hash of its flow and a uniform number.
    #[allow(clippy::too_many_arguments, reason = "they are the properties of a packet")]
    pub(super) fn push<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &[Parameters],
        number: u32,
        class: usize,
        item: H::Item,
        bytes: u32,
        now: u64,
        random: (u64, u32),
    ) {
        let subscriber = self.subscribers.get_mut(number as usize).and_then(Option::as_mut);
        let (Some(subscriber), Some(parameters)) = (subscriber, parameters.get(class)) else {
            return host.drop(DropReason::SubscribersFull, item);
        };
        let Some(class) = subscriber.classes.get_mut(class) else {
            return host.drop(DropReason::QueueFull, item);
        };
        let queue = class.queue.get_or_insert_with(|| Box::new(ClassQueue::new(parameters)));
        let before = queue.len();
        queue.push(host, parameters, item, bytes, now, random);
        let after = queue.len();
        (class.used, subscriber.used) = (now, now);
        let changed = (subscriber.packets as usize + after - before) as u32;
        self.largest.update(number, subscriber.packets.into(), changed.into());
        subscriber.packets = changed;
        self.packets = self.packets + after - before;
        if subscriber.state == State::Idle && subscriber.packets != 0 {
            self.clock = self.clock.max(now);
            let pacer = self.limits.pacer.map(|pacer| pacer.resume(subscriber.next_at));
            subscriber.state = match pacer.map(|pacer| pacer.next()) {
                Some(next) if next > now => {
                    self.waiting.push(Reverse((next, number)));
                    State::Waiting
                }
                _ => {
                    self.ready.push_back(number);
                    State::Ready
                }
            };
        }
        // more than one only after a reload with a lower limit
        for _ in 0..DROP_BATCH {
            if self.packets <= self.limit || !self.drop_from_largest(host, DropReason::BufferFull) {
                break;
            }
        }
        if self.packets <= self.limit / 2 {
            self.largest.forget();
        }
    }

    /// Removes the next packet that is due until now, and returns it with its class.
    pub(super) fn pop<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &[Parameters],
        now: u64,
    ) -> Option<(usize, H::Item)> {
        loop {
            let mut time = self.clock.max(self.port.map_or(0, |port| port.next()));
            if self.ready.is_empty() {
                let Reverse((next, _)) = self.waiting.peek()?;
                time = time.max(*next);
            }
            if time > now {
                return None;
            }
            self.clock = time;
            while let Some(Reverse((next, number))) =
                self.waiting.peek().copied().filter(|Reverse((at, _))| *at <= time)
            {
                debug_assert!(next <= time);
                self.waiting.pop();
                if let Some(Some(subscriber)) = self.subscribers.get_mut(number as usize) {
                    subscriber.state = State::Ready;
                    self.ready.push_back(number);
                }
            }
            self.prefetch_next(host, parameters);
            let number = *self.ready.front()?;
            let Some(Some(subscriber)) = self.subscribers.get_mut(number as usize) else {
                self.ready.pop_front();
                continue;
            };
            if subscriber.credit <= 0 {
                subscriber.credit += i64::from(self.limits.quantum);
                self.ready.rotate_left(1);
                continue;
            }
            let before = subscriber.packets;
            let sent = subscriber.pop(host, parameters, &self.levels, &self.ranks, time);
            self.largest.update(number, before.into(), subscriber.packets.into());
            self.packets -= (before - subscriber.packets) as usize;
            let mut pacer = self.limits.pacer.map(|pacer| pacer.resume(subscriber.next_at));
            if let Some((_, _, bytes)) = sent {
                subscriber.credit -= i64::from(bytes);
                subscriber.used = time;
                if let Some(pacer) = &mut pacer {
                    pacer.send(time, bytes.into());
                    subscriber.next_at = pacer.next_at();
                }
                if let Some(port) = &mut self.port {
                    port.send(time, bytes.into());
                }
            }
            if subscriber.packets == 0 {
                subscriber.state = State::Idle;
                subscriber.credit = subscriber.credit.min(0) + i64::from(self.limits.quantum);
                self.ready.pop_front();
            } else if let Some(next) = pacer.map(|pacer| pacer.next()).filter(|next| *next > time) {
                subscriber.state = State::Waiting;
                // it continues at the end of the round, with the next turn if this one is over
                if subscriber.credit <= 0 {
                    subscriber.credit += i64::from(self.limits.quantum);
                }
                self.ready.pop_front();
                self.waiting.push(Reverse((next, number)));
            }
            if let Some((class, item, _)) = sent {
                return Some((class, item));
            }
        }
    }

    /// Frees queues, and subscribers with their keys, that have been idle for a second, among the next `n` subscribers.
    pub(super) fn remove_idle(&mut self, n: usize, now: u64, mut removed: impl FnMut(&SubscriberKey)) {
        let limit = self.limits.pacer;
        for _ in 0..n.min(self.subscribers.len()) {
            let number = if self.sweep < self.subscribers.len() { self.sweep } else { 0 };
            self.sweep = number + 1;
            let Some(slot) = self.subscribers.get_mut(number) else { return };
            let Some(subscriber) = slot else { continue };
            let is_idle = |used: u64| now.saturating_sub(used) >= IDLE;
            if subscriber.state == State::Idle
                && is_idle(subscriber.used)
                && limit.is_none_or(|pacer| pacer.resume(subscriber.next_at).is_full(now))
            {
                removed(&subscriber.key);
                *slot = None;
                self.free.push(number as u32);
                continue;
            }
            for Class { queue, used, .. } in &mut subscriber.classes {
                if queue.as_ref().is_some_and(|queue| queue.is_empty()) && is_idle(*used) {
                    *queue = None;
                }
            }
        }
    }
}

impl Subscriber {
    /// Removes the next packet and returns it with its class and bytes.
    fn pop<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &[Parameters],
        levels: &[Level],
        ranks: &[Rank],
        now: u64,
    ) -> Option<(usize, H::Item, u32)> {
        for (level, turn) in levels.iter().zip(&mut self.turns) {
            let classes = &level.classes;
            let mut empty = 0;
            while empty < classes.len() {
                let class = usize::from(*classes.get(usize::from(*turn) % classes.len())?);
                let (Class { queue, credit, used }, rank, parameters) =
                    (self.classes.get_mut(class)?, ranks.get(class)?, parameters.get(class)?);
                let Some(queue) = queue.as_mut().filter(|queue| !queue.is_empty()) else {
                    *credit = (*credit).min(0) + i64::from(rank.quantum);
                    *turn = (*turn + 1) % classes.len() as u8;
                    empty += 1;
                    continue;
                };
                empty = 0;
                if *credit <= 0 {
                    *credit += i64::from(rank.quantum);
                    if *credit <= 0 || classes.len() > 1 {
                        *turn = (*turn + 1) % classes.len() as u8;
                        continue;
                    }
                }
                let before = queue.len();
                let popped = queue.pop(host, parameters, now);
                *used = now;
                self.packets -= (before - queue.len()) as u32;
                if let Some((item, bytes)) = popped {
                    *credit -= i64::from(bytes);
                    return Some((class, item, bytes));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::queue::test_host::{TestHost, TestPacket};
    use crate::qos::queue::{CoDelParameters, Discipline, FqCoDelParameters, TailDrop};
    use packet::clock;

    const CODEL: CoDelParameters = CoDelParameters { target: 5_000_000, interval: 100_000_000, ecn: false };
    const FQ_CODEL: Discipline = Discipline::FqCoDel(FqCoDelParameters { codel: CODEL, flows: 1024, quantum: 1514 });
    /// Bytes of a packet, and packets per second of all subscribers.
    const BYTES: u32 = 1000;
    const RATE: u64 = 1_250_000;

    /// Returns the memory of this process in bytes.
    fn resident() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    }

    /// Prints the cost of a packet, and the memory of a subscriber, while a number of subscribers have packets and wait
    /// for their rate limits in turn.
    #[test]
    #[ignore = "prints costs, for which the machine must be idle"]
    fn costs_by_number_of_active_subscribers() {
        println!("| queue | subscribers | cycles per packet | bytes per subscriber |\n|---|---:|---:|---:|");
        for (name, discipline) in [("tail_drop", Discipline::TailDrop), ("fq_codel", FQ_CODEL)] {
            for n in [1_u32, 10_000, 65_536] {
                let before = resident();
                let limit = TailDrop { packets: 1024, bytes: 4 << 20 };
                let parameters = [Parameters { discipline, limit }];
                let own = Pacer::new(RATE * u64::from(BYTES) * 8 / u64::from(n), 1500);
                let limits = SubscriberLimits { pacer: Some(own), quantum: 1514 };
                let ranks = [Rank { priority: 0, quantum: 1514 }];
                let mut scheduler = Scheduler::new(None, limits, ranks.into(), 1 << 20);
                let (mut host, mut now, mut random) = (TestHost::default(), 1_000_000_000, 1_u64);
                for number in 0..n {
                    assert_eq!(scheduler.add(SubscriberKey::default(), now), number);
                }
                let mut push = |scheduler: &mut Scheduler, host: &mut TestHost, number: u32, now: u64| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let flow = u64::from(number) << 2 | random >> 62;
                    let packet = TestPacket::new(number);
                    scheduler.push(host, &parameters, number, 0, packet, BYTES, now, (flow, 0));
                };
                (0..3).for_each(|_| (0..n).for_each(|number| push(&mut scheduler, &mut host, number, now)));
                let memory = (resident().saturating_sub(before)) / u64::from(n);
                let mut costs = vec![];
                for _ in 0..200 {
                    let (start, mut packets) = (clock::cycles(), 0);
                    for _ in 0..200 {
                        now += 20_000;
                        while let Some((_, packet)) = scheduler.pop(&mut host, &parameters, now) {
                            push(&mut scheduler, &mut host, packet.number, now);
                            packets += 1;
                        }
                    }
                    costs.push((clock::cycles() - start) / packets.max(1));
                }
                costs.sort_unstable();
                println!("| {name} | {n} | {} | {memory} |", costs[costs.len() / 2]);
                assert!(n < 10_000 || memory < 4096, "{memory} bytes");
            }
        }
    }
}
