//! One core's loop.

mod rest;

use crate::engine::Idle;
use crate::faults::Faults;
use crate::renew::Renewals;
use crate::schedule::Schedule;
use crate::{LinkStats, Receive, Transmit};
use dpdk::{RxQueue, TxQueue};
use graph::{Graph, Sink, Target, caught};
use packet::{BURST, Batch, clock};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One batch in so many is timed, per worker: a time-stamp costs as much as forwarding a packet or two.
const TIMED: u32 = 128;
/// Rounds after which a busy worker looks at the clock, at the latest.
const ROUNDS: u32 = 32;
/// Polls in vain after which a worker begins to sleep between polls: about a millisecond.
const PATIENCE: u32 = 1 << 14;
/// The same of one that is to give its CPU away: about a microsecond.
const SLEEPY: u32 = 1 << 6;
/// How long it then sleeps, and may have slept when it comes back: what is more is the system's doing.
const NAP: Duration = Duration::from_micros(50);
const NAPPED: Duration = Duration::from_micros(200);
/// And at the most where somebody wakes it: as often it tells the graph the time.
const SLEEP: Duration = Duration::from_millis(1);
/// How long a stopped worker lets run out what is inside, and what is behind walls.
const DRAIN: Duration = Duration::from_millis(300);
pub(crate) const RETURN: Duration = Duration::from_secs(3);
/// How long a batch from a source that can wait is offered to a port that takes none of it.
const OFFER: Duration = Duration::from_millis(100);

/// A port that a worker polls.
pub struct Input {
    /// Where packets come from.
    pub from: Source,
    /// Where they go.
    pub entry: Target,
    /// What has come.
    pub stats: Arc<LinkStats>,
    /// Whether the source can wait: then a full port is waited for, and nothing is dropped as `tx_full`.
    pub patient: bool,
    /// Whose packets they are, for a stop to know what to wait for.
    pub origin: Origin,
}

/// Where an input's packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From outside: polling ends with a stop.
    Outside,
    /// From a ring in memory: what is in it when stopped is let run out, unless it goes round.
    Ring,
    /// From another core of the same chain: polled until that core has ended.
    Core,
    /// Back from behind a wall: polled until nothing is there any more.
    Wall,
    /// From before a wall, on the other side of it: the same, and there is always more to come.
    Switch,
}

impl Origin {
    fn is_wall(self) -> bool {
        matches!(self, Origin::Wall | Origin::Switch)
    }
}

/// A port that a worker sends to.
pub struct Output {
    /// Where packets go.
    pub to: Drain,
    /// What has gone.
    pub stats: Arc<LinkStats>,
    /// Packets that had gone when it last took nothing for a whole [`OFFER`].
    gave_up: Option<u64>,
    /// Whether it leads to a ring that the same worker empties: waiting for room there would be for ever.
    pub(crate) own: bool,
    /// Whether it leads behind a wall.
    pub(crate) wall: bool,
    /// Where packets go on that stay on this core.
    pub(crate) local: Option<Local>,
}

/// The part of a link that stays on its core.
pub(crate) struct Local {
    /// Where they enter the graph again.
    pub(crate) entry: Target,
    /// What has entered.
    pub(crate) stats: Arc<LinkStats>,
}

impl Output {
    /// An output that has not sent anything yet.
    pub fn new(to: Drain) -> Self {
        Output { to, stats: Arc::default(), gave_up: None, own: false, wall: false, local: None }
    }
}

/// What an input polls. A device's queue, the common case, costs no dynamic call.
pub enum Source {
    /// A device's queue.
    Queue(RxQueue),
    /// Anything else.
    Other(Box<dyn Receive>),
}

/// What an output sends to.
pub enum Drain {
    /// A device's queue.
    Queue(TxQueue),
    /// Anything else.
    Other(Box<dyn Transmit>),
}

impl Receive for Source {
    #[inline(always)]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        match self {
            Source::Queue(queue) => queue.receive(batch),
            Source::Other(other) => other.receive(batch),
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            Source::Queue(queue) => queue.bytes(),
            Source::Other(other) => other.bytes(),
        }
    }
    fn dropped(&self, each: &mut dyn FnMut(&'static str, u64)) {
        match self {
            Source::Queue(queue) => {
                each("too_long", queue.too_long());
                each("rx_unusable", queue.unusable());
            }
            Source::Other(other) => other.dropped(each),
        }
    }
    fn idle(&self) -> bool {
        match self {
            Source::Queue(_) => true,
            Source::Other(other) => other.idle(),
        }
    }
    fn finished(&self) -> bool {
        match self {
            Source::Queue(_) => false,
            Source::Other(other) => other.finished(),
        }
    }
    fn close(&mut self) {
        if let Source::Other(other) = self {
            other.close();
        }
    }
}

impl Transmit for Drain {
    #[inline(always)]
    fn send(&mut self, batch: &mut Batch) -> usize {
        match self {
            Drain::Queue(queue) => queue.send(batch),
            Drain::Other(other) => other.send(batch),
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            Drain::Queue(queue) => queue.bytes(),
            Drain::Other(other) => other.bytes(),
        }
    }
    fn refusal(&self) -> &'static str {
        match self {
            Drain::Queue(_) => "tx_full",
            Drain::Other(other) => other.refusal(),
        }
    }
    fn close(&mut self) {
        if let Drain::Other(other) = self {
            other.close();
        }
    }
    fn take_kept(&mut self, batch: &mut Batch) {
        if let Drain::Other(other) = self {
            other.take_kept(batch);
        }
    }
    fn tend(&mut self) {
        if let Drain::Other(other) = self {
            other.tend();
        }
    }
}

/// Times that a worker was away from its ports, cycles: because the system gave its core to others, or a batch took long.
/// Whoever reads them may begin anew at 0.
#[derive(Debug, Default)]
pub struct Gaps {
    /// The longest, to about 50 µs.
    pub longest: AtomicU64,
    /// Sum of those longer than 100 µs.
    pub sum: AtomicU64,
}

/// One core's inputs, graph and outputs. Its loop takes a batch from each input in turn and runs it to completion.
pub struct Worker {
    inputs: Vec<Input>,
    graph: Graph,
    outputs: Outputs,
    batch: Batch,
    tick: u32,
    began: Instant,
    woken: u64,
    /// Cycles in one.
    millisecond: u64,
    /// When it last looked at the clock.
    looked: u64,
    /// From one look to the next, on average, in cycles.
    usual: u64,
    /// Polls until the next look, and from one to the next.
    rounds: u32,
    stride: u32,
    /// Polls in vain before it sleeps.
    patience: u32,
    /// Whether others on its CPU go first meanwhile.
    yields: bool,
    gaps: Arc<Gaps>,
    dry: Arc<AtomicBool>,
    renewals: Option<Renewals>,
    scheduled: Option<Scheduled>,
    /// Counts on with every look at the clock.
    beat: Arc<AtomicU64>,
    /// Set once nothing comes back from behind walls any more.
    returned: Arc<AtomicBool>,
}

/// The order in which chains are served, where it is not simply in turn.
struct Scheduled {
    schedule: Schedule,
    /// Numbers of each chain's inputs, the next one first.
    inputs: Vec<Vec<usize>>,
}

struct Outputs {
    ports: Vec<Option<Output>>,
    stop: Arc<AtomicBool>,
    patient: bool,
    /// Whether a link may have kept packets for this core.
    kept: bool,
    /// Batches of such packets, of which some are timed.
    tick: u32,
}

impl Worker {
    /// A worker. `outputs` are indexed by port number, as the graph's targets are; `stop` ends its loop.
    pub fn new(inputs: Vec<Input>, graph: Graph, outputs: Vec<Option<Output>>, stop: Arc<AtomicBool>) -> Self {
        let outputs = Outputs { ports: outputs, stop, patient: false, kept: false, tick: 0 };
        Worker {
            inputs,
            graph,
            outputs,
            batch: Batch::new(),
            tick: 0,
            began: Instant::now(),
            woken: 0,
            millisecond: clock::hz() / 1000,
            looked: clock::cycles(),
            usual: 0,
            rounds: ROUNDS,
            stride: ROUNDS,
            patience: PATIENCE,
            yields: false,
            gaps: Arc::default(),
            dry: Arc::default(),
            renewals: None,
            scheduled: None,
            beat: Arc::default(),
            returned: Arc::default(),
        }
    }

    /// What counts on while it is alive.
    pub(crate) fn beat(&self) -> Arc<AtomicU64> {
        self.beat.clone()
    }

    /// Once it is stopped, it waits for this if something is behind walls.
    pub(crate) fn wait_for(&mut self, returned: Arc<AtomicBool>) {
        self.returned = returned;
    }

    /// What it does while nothing comes.
    pub(crate) fn set_idle(&mut self, idle: Idle) {
        self.patience = if idle == Idle::Sleep { SLEEPY } else { PATIENCE };
        self.yields = idle == Idle::Yield;
    }

    /// Serves chains as `schedule` says, each with the inputs of these numbers.
    pub(crate) fn schedule(&mut self, schedule: Schedule, inputs: Vec<Vec<usize>>) {
        self.scheduled = Some(Scheduled { schedule, inputs });
    }

    /// The graph that it runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Set once nothing will ever come from outside again: what may still come is in rings, or with other cores.
    pub fn dry(&self) -> Arc<AtomicBool> {
        self.dry.clone()
    }

    /// Takes one batch from each input to its end, and looks at the clock now and then; how many packets came.
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.rounds -= 1;
        if self.rounds == 0 {
            self.wake();
        }
        if self.scheduled.is_some() {
            return self.serve();
        }
        self.round(|_| true)
    }

    /// Takes one batch of the chain that is next, or finds that none has any; how many packets came.
    #[inline(never)]
    fn serve(&mut self) -> usize {
        let Some(Scheduled { schedule, inputs }) = &mut self.scheduled else { return 0 };
        schedule.begin();
        let mut now = clock::cycles();
        while let Some(chain) = schedule.next(now) {
            let (mut n, mut bytes) = (0, schedule.weighs(chain).then_some(0));
            let own = &mut inputs[chain];
            for _ in 0..own.len() {
                let input = &mut self.inputs[own[0]];
                own.rotate_left(1);
                n = input.take(&mut self.tick, &mut self.graph, &mut self.outputs, &mut self.batch, &mut bytes);
                if n != 0 {
                    break;
                }
            }
            let end = clock::cycles();
            schedule.visited(chain, n as u64, bytes.unwrap_or_default(), end.wrapping_sub(now));
            now = end;
            if n != 0 {
                return n;
            }
        }
        0
    }

    #[inline(always)]
    fn round(&mut self, which: impl Fn(&Input) -> bool) -> usize {
        let mut all = 0;
        for input in &mut self.inputs {
            if !which(input) {
                continue;
            }
            all += input.take(&mut self.tick, &mut self.graph, &mut self.outputs, &mut self.batch, &mut None);
        }
        all
    }

    /// Polls until stopped or until no input will ever bring anything more, then lets run out what is inside, and drops the
    /// NFs. One that panics is taken out, and put in again by `renewals`.
    ///
    /// # Errors
    /// What was said by a panic that was no NF's: nothing runs any more then.
    pub(crate) fn run(&mut self, renewals: Renewals, faults: &Faults) -> Result<(), String> {
        self.renewals = Some(renewals);
        while let Err(thrown) = catch_unwind(AssertUnwindSafe(|| self.spin())) {
            match (self.graph.contain(&mut self.batch, thrown), &mut self.renewals) {
                (Ok(panicked), Some(renewals)) => renewals.ask(panicked),
                (Ok(panicked), None) => return Err(panicked.message),
                // no NF's doing, so nothing that another copy would mend
                (Err(thrown), _) => return Err(caught::message(thrown)),
            }
            // it looks for the new copy with every poll
            self.rounds = 1;
        }
        let told = self.finish().into_iter().map(|(nf, what)| (nf, "ended", what));
        for (nf, when, what) in told.chain(self.graph.retire().into_iter().map(|(nf, what)| (nf, "was dropped", what)))
        {
            faults.report(format!("nf {nf:?} panicked when it {when}: {what}"));
        }
        Ok(())
    }

    /// Asks for no new copies any more.
    pub(crate) fn part(&mut self) {
        self.renewals = None;
    }

    /// Settles the counts, closes what it takes from, and tells the NFs that nothing more will come; the names of those that
    /// panicked at that, and what they said.
    pub fn finish(&mut self) -> Vec<(String, String)> {
        self.inputs.iter_mut().for_each(Input::settle);
        self.outputs.ports.iter_mut().flatten().for_each(Output::settle);
        self.inputs.iter_mut().for_each(|input| input.from.close());
        self.outputs.ports.iter_mut().flatten().for_each(|output| output.to.close());
        self.graph.finish()
    }

    /// Takes out and counts what is left in rings in memory and in queues from other cores; by number of the input.
    pub fn empty_queues(&mut self) -> Vec<(usize, u64)> {
        let mut found = vec![];
        for (n, input) in self.inputs.iter_mut().enumerate().filter(|(_, i)| i.origin != Origin::Outside) {
            let mut held = 0;
            while input.from.receive(&mut self.batch) != 0 {
                held += self.batch.len() as u64;
                self.batch.clear();
            }
            found.push((n, held));
        }
        found
    }

    /// How long it was away from its ports.
    pub fn gaps(&self) -> Arc<Gaps> {
        self.gaps.clone()
    }

    /// Looks at the clock, and tells the graph the time, once a millisecond.
    fn wake(&mut self) {
        let now = clock::cycles();
        self.beat.store(now, Ordering::Relaxed);
        let away = now.wrapping_sub(core::mem::replace(&mut self.looked, now));
        // work takes its time as well, and much the same each time
        // who shares its CPU cannot tell what the others took from what the machine did
        let known = !self.yields;
        if known && away > self.millisecond / 10 && away > 4 * self.usual {
            self.gaps.sum.fetch_add(away, Ordering::Relaxed);
        }
        self.usual = (15 * self.usual + away.min(4 * self.usual + self.millisecond / 100)) / 16;
        self.gaps.longest.fetch_max(if known { away } else { 0 }, Ordering::Relaxed);
        // often enough to tell it from the work in between
        if away > self.millisecond / 40 {
            self.stride = (self.stride / 2).max(1);
        } else if away < self.millisecond / 160 {
            self.stride = (self.stride * 2).min(ROUNDS);
        }
        self.rounds = self.stride;
        if let Some(renewals) = self.renewals.as_mut().filter(|r| r.is_pending()) {
            renewals.settle(&mut self.graph);
            self.rounds = if renewals.is_pending() { 1 } else { self.stride };
        }
        if now.wrapping_sub(self.woken) >= self.millisecond {
            self.woken = now;
            self.outputs.patient = false;
            self.outputs.ports.iter_mut().flatten().for_each(|output| output.to.tend());
            self.graph.wake(self.began.elapsed(), &mut self.outputs);
            self.outputs.go_on(&mut self.graph);
            // what NFs do now is no absence
            self.looked = clock::cycles();
        }
    }

    fn spin(&mut self) {
        let (mut idle, patience) = (0u32, self.patience);
        self.looked = clock::cycles();
        while !self.outputs.stop.load(Ordering::Relaxed) {
            if idle >= patience {
                self.wake();
            }
            if self.poll() != 0 || !self.inputs.iter().all(|i| i.from.idle()) {
                idle = 0;
                continue;
            }
            if self.inputs.iter().all(|i| i.from.finished()) {
                break;
            }
            let goes_on = |i: &Input| matches!(i.origin, Origin::Outside | Origin::Switch) && !i.from.finished();
            if idle == patience && !self.inputs.iter().any(goes_on) {
                self.dry.store(true, Ordering::Relaxed);
            }
            idle += 1;
            if idle < patience {
                if self.yields {
                    idle = (idle + self.give_way()).min(patience);
                }
                core::hint::spin_loop();
            } else {
                idle = patience;
                self.inputs.iter_mut().for_each(Input::settle);
                self.outputs.ports.iter_mut().flatten().for_each(Output::settle);
                let from = clock::cycles();
                let most = if self.wait_for_bells() { SLEEP } else { Duration::ZERO } + NAPPED;
                // it went of its own will, but not for longer than that
                self.looked = clock::cycles().min(from + self.millisecond * most.as_micros() as u64 / 1000);
            }
        }
        // what other cores and memory rings still bring, unless it goes round for ever
        let walls = self.inputs.iter().any(|i| i.origin.is_wall());
        let deadline = Instant::now() + if walls { RETURN } else { DRAIN };
        let mut quiet = 0;
        let returned = self.returned.clone();
        let open = |i: &Input| match i.origin {
            Origin::Core => !i.from.finished(),
            Origin::Wall | Origin::Switch => !returned.load(Ordering::Relaxed),
            Origin::Outside | Origin::Ring => false,
        };
        while (quiet < 1000 || self.inputs.iter().any(open)) && Instant::now() < deadline {
            self.beat.store(clock::cycles(), Ordering::Relaxed);
            quiet = if self.round(|input| input.origin != Origin::Outside) == 0 { quiet + 1 } else { 0 };
        }
    }
}

impl Input {
    /// Takes a batch to its end, timed where `tick`, which counts batches, says so; how many packets came.
    #[inline(always)]
    fn take(
        &mut self,
        tick: &mut u32,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        let n = if tick.is_multiple_of(TIMED) {
            self.visit_timed(graph, outputs, batch, bytes)
        } else {
            self.visit::<false>(graph, outputs, batch, bytes)
        };
        *tick = tick.wrapping_add(u32::from(n != 0));
        n
    }

    /// Takes a batch to its end; how many packets came. Their bytes are added up where they are asked for.
    #[inline(always)]
    fn visit<const TIMED: bool>(
        &mut self,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        let from = if TIMED { clock::cycles() } else { 0 };
        let n = self.from.receive(batch);
        if n == 0 {
            return 0;
        }
        batch.prefetch();
        self.stats.packets.add(n as u64);
        if let Some(bytes) = bytes {
            *bytes += batch.iter().map(|p| p.len() as u64).sum::<u64>();
        }
        if TIMED {
            self.stats.timed_cycles.add(clock::cycles() - from);
            self.stats.timed_packets.add(n as u64);
            self.settle();
        }
        outputs.patient = self.patient;
        graph.run::<TIMED>(self.entry, batch, outputs);
        if outputs.kept {
            outputs.go_on(graph);
        }
        n
    }

    #[cold]
    #[inline(never)]
    fn visit_timed(
        &mut self,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        self.visit::<true>(graph, outputs, batch, bytes)
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.from {
            Source::Queue(queue) => queue.bell(),
            Source::Other(_) => None,
        }
    }

    fn ring(&mut self, on: bool) {
        if let Source::Queue(queue) = &mut self.from {
            queue.ring(on);
        }
    }

    /// Books what the source counts itself.
    fn settle(&mut self) {
        self.stats.bytes.add(self.from.bytes() - self.stats.bytes.get());
        let stats = &self.stats;
        self.from.dropped(&mut |reason, n| {
            // it was received, and goes no further
            let new = n - stats.count(reason).get();
            stats.count(reason).add(new);
            stats.packets.add(new);
        });
    }
}

impl Output {
    fn settle(&mut self) {
        self.stats.bytes.add(self.to.bytes() - self.stats.bytes.get());
    }
}

impl Outputs {
    /// Takes packets that links have kept through the chains behind them.
    #[inline(never)]
    fn go_on(&mut self, graph: &mut Graph) {
        while core::mem::take(&mut self.kept) {
            for at in 0..self.ports.len() {
                while let Some(output) = &mut self.ports[at]
                    && let Some(local) = &output.local
                {
                    let mut batch = Batch::new();
                    output.to.take_kept(&mut batch);
                    if batch.is_empty() {
                        break;
                    }
                    local.stats.packets.add(batch.len() as u64);
                    // should it panic, the others are still to be taken on
                    self.kept = true;
                    self.tick = self.tick.wrapping_add(1);
                    if self.tick.is_multiple_of(TIMED) {
                        graph.run::<true>(local.entry, &mut batch, self);
                    } else {
                        graph.run::<false>(local.entry, &mut batch, self);
                    }
                }
            }
        }
    }
}

impl Sink for Outputs {
    #[inline(always)]
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        let Some(Some(output)) = self.ports.get_mut(port as usize) else {
            unreachable!("the plan gives every target a port");
        };
        let from = if TIMED { clock::cycles() } else { 0 };
        let n = output.to.send(batch);
        output.stats.packets.add(n as u64);
        self.kept |= output.local.is_some();
        if TIMED {
            output.stats.timed_cycles.add(clock::cycles() - from);
            output.stats.timed_packets.add(n as u64);
            output.settle();
        }
        if !batch.is_empty() {
            refused(output, batch, self.patient, &self.stop);
        }
    }
}

/// Offers the rest again where the source can wait, and drops what is left. A port that took nothing for as long as that
/// is not waited for again until it has taken something.
#[cold]
#[inline(never)]
fn refused(output: &mut Output, batch: &mut Batch, patient: bool, stop: &AtomicBool) {
    if output.wall && output.gave_up != Some(output.stats.packets.get()) {
        // who is behind it may wait for this CPU
        std::thread::yield_now();
        output.stats.packets.add(output.to.send(batch) as u64);
    }
    let mut until = Instant::now() + OFFER;
    let taken = output.stats.packets.get();
    let offer = patient && !output.own && output.gave_up != Some(taken);
    while offer && !batch.is_empty() && Instant::now() < until && !stop.load(Ordering::Relaxed) {
        let n = output.to.send(batch);
        if n == 0 {
            std::thread::yield_now();
        } else {
            output.stats.packets.add(n as u64);
            until = Instant::now() + OFFER;
        }
    }
    if !batch.is_empty() {
        output.gave_up = Some(output.stats.packets.get());
    }
    output.stats.count(output.to.refusal()).add(batch.len() as u64);
    batch.clear();
}

const _: () = assert!(BURST <= u32::BITS as usize, "Batch::extract_if marks packets in a u32");
