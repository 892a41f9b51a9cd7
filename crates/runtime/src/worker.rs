//! The packet loop of one core.

mod busy;
mod capture_clock;
pub(crate) mod command;
pub(crate) mod exchange;
mod idle;
mod idle_policy;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod rebuild;
pub(crate) mod schedule;

use crate::cpu::OffCpuMeter;
use crate::faults::run_errors::RunErrors;
use crate::faults::watchdog::WatchedWorker;
use crate::observe::{Tap, TapSet, WorkerNames};
use crate::ports::io::{NextFrame, PortDrop, Receive, Transmit};
use busy::BusyMeter;
use capture_clock::CaptureClock;
use command::Command;
use exchange::Exchange;
use graph::{Counter, Graph, Named as _, Sink, Target, panics};
pub use idle_policy::IdlePolicy;
pub use input::{DrainPolicy, Input};
pub use output::Output;
use packet::{Batch, Packet, clock};
use rebuild::RebuildClient;
use schedule::Schedule;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Every n-th batch of a worker is timed; reading the time-stamp counter costs as much as forwarding one or two
/// packets.
const TIMING_INTERVAL: u32 = 128;
const _: () = assert!(TIMING_INTERVAL.is_power_of_two());
/// Most polls between two reads of the clock.
const MAX_CLOCK_STRIDE: u32 = 32;
/// Empty polls in a row after which a worker sleeps between polls.
const IDLE_POLLS: u32 = 1 << 14;
/// The same under [`IdlePolicy::Sleep`].
const IDLE_POLLS_SLEEP: u32 = 1 << 6;
/// Sleep between polls of an idle worker.
const IDLE_SLEEP: Duration = Duration::from_micros(50);
/// Longest such sleep that is not reported as a poll gap.
const IDLE_SLEEP_MAX: Duration = Duration::from_micros(200);
/// Longest wait for an rx interrupt: the interval at which timers run.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(1);
/// Longest time that a stopped worker polls its remaining inputs.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);
/// The same for inputs that drain [until released](DrainPolicy::UntilReleased).
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for which a batch is offered to a full port under backpressure.
const BACKPRESSURE_TIMEOUT: Duration = Duration::from_millis(100);

/// Times between two polls of a worker, in cycles. A reader may reset the values to 0.
#[derive(Debug, Default)]
pub struct PollGaps {
    /// The longest gap, caused by a long batch or by preemption, with a resolution of about 50 µs.
    pub longest: AtomicU64,
    /// Sum of the gaps longer than 100 µs.
    pub sum: AtomicU64,
    /// Time during which the worker did not run although it did not sleep.
    pub off_cpu: AtomicU64,
    /// The longest such time within one gap.
    pub off_cpu_longest: AtomicU64,
}

/// Longest times of a polling thread: of one that does not poll in time, and of one that could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollTimes {
    /// Longest time between two polls, caused by a long batch or by preemption; 0 if unknown.
    pub gap_max: Duration,
    /// Sum of the gaps that are longer than a batch takes: 50 µs for the generator, 100 µs for a worker.
    pub gap_sum: Duration,
    /// Time during which the thread was preempted, by the kernel or the hypervisor.
    pub off_cpu: Duration,
    /// Longest such time within one gap.
    pub off_cpu_max: Duration,
}

/// The inputs, graph and outputs of one core. The loop takes a batch from each input in turn and runs it to completion.
pub struct Worker {
    inputs: Vec<Input>,
    graph: Graph,
    outputs: Outputs,
    batch: Batch,
    sampling: Sampling,
    started: Instant,
    /// Time at which timers last ran, in cycles.
    last_timer: u64,
    /// Shortest interval of timers in cycles, if it is less than a millisecond.
    short_interval: Option<u64>,
    /// Time at which timers with short intervals ran last, in cycles.
    last_short_timer: u64,
    cycles_per_ms: u64,
    /// Time at which the clock was last read, in cycles.
    last_clock: u64,
    /// Polls until the next read of the clock.
    polls_to_clock: u32,
    /// Polls between two reads of the clock.
    clock_stride: u32,
    /// Empty polls after which the worker sleeps.
    idle_polls: u32,
    idle: IdlePolicy,
    poll_gaps: Arc<PollGaps>,
    busy: BusyMeter,
    /// Read after gaps and sleeps.
    off_cpu: OffCpuMeter,
    /// Set when no more packets can arrive except from other cores and rings in the process.
    drained: Arc<AtomicBool>,
    rebuild: Option<RebuildClient>,
    order: ServiceOrder,
    /// Time of the last read of the clock, in cycles.
    heartbeat: Arc<AtomicU64>,
    drain: Arc<DrainControl>,
    drain_progress: Arc<DrainProgress>,
    commands: Option<Receiver<Command>>,
    /// The one that replaces the graph before the next batch.
    exchange: Option<Box<Exchange>>,
    /// True once inputs with [`DrainPolicy::Stop`] are not polled any more.
    inputs_closed: bool,
    /// True if the worker has not got chains yet, which is no end of its inputs.
    awaits_chains: bool,
    /// State that its nodes have saved, once the worker has ended.
    saved: Vec<Option<Vec<u8>>>,
}

/// Selects the batches that are timed.
struct Sampling {
    /// Batches processed.
    batches: u32,
    /// A batch is timed if its number has none of these bits.
    untimed: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { batches: 0, untimed: TIMING_INTERVAL - 1 }
    }
}

impl Sampling {
    #[inline(always)]
    fn is_timed(&self) -> bool {
        self.batches & self.untimed == 0
    }

    /// Has all batches timed, as long as the graph is observed.
    fn set_observed(&mut self, observed: bool) {
        self.untimed = if observed { 0 } else { TIMING_INTERVAL - 1 };
    }
}

/// The end of [`Worker::run`].
pub(crate) enum RunEnd {
    /// The worker was stopped, or all its inputs have finished.
    Finished,
    /// Its graph was replaced; it is to run again as this worker.
    Replaced(WatchedWorker),
}

/// Coordinates stopped workers that still receive packets from each other, from rings and from sandboxes.
#[derive(Debug, Default)]
pub(crate) struct DrainControl {
    /// Set to end [`DrainPolicy::UntilReleased`].
    pub(crate) released: AtomicBool,
    /// Number of the current round, from 1.
    pub(crate) round: AtomicU64,
    /// Set to have nodes save their state when workers end.
    pub(crate) saves: AtomicBool,
}

/// The progress of one worker after the stop.
#[derive(Debug, Default)]
pub(crate) struct DrainProgress {
    /// Set when the worker receives no more from inputs with [`DrainPolicy::Stop`].
    pub(crate) stopped: AtomicBool,
    /// The last round of [`DrainControl`] in which the worker polled all its remaining inputs and received nothing.
    pub(crate) empty_round: AtomicU64,
}

/// The order in which a worker serves its inputs.
enum ServiceOrder {
    /// A batch of each in turn.
    RoundRobin,
    /// By the service classes of the chains.
    Scheduled(Scheduled),
    /// By the timestamps of captures, which are also the time of the graph.
    Timestamps(CaptureClock),
}

/// The schedule of chains that are not served in turn.
struct Scheduled {
    schedule: Schedule,
    /// Indices of the inputs of each chain, the next one first.
    inputs: Vec<Vec<usize>>,
}

struct Outputs {
    ports: Vec<Option<Output>>,
    stop: Arc<AtomicBool>,
    backpressure: bool,
    /// True if a link may have packets for this core.
    local_pending: bool,
    /// Batches of such packets, of which every [`TIMING_INTERVAL`]-th is timed.
    local_batches: u32,
}

impl Worker {
    /// Creates a worker. `outputs` are indexed by port number, as the targets of the graph are; `stop` ends its loop.
    pub fn new(inputs: Vec<Input>, graph: Graph, outputs: Vec<Option<Output>>, stop: Arc<AtomicBool>) -> Self {
        let outputs = Outputs { ports: outputs, stop, backpressure: false, local_pending: false, local_batches: 0 };
        Worker {
            inputs,
            graph,
            outputs,
            batch: Batch::new(),
            sampling: Sampling::default(),
            started: Instant::now(),
            last_timer: 0,
            short_interval: None,
            last_short_timer: 0,
            cycles_per_ms: clock::hz() / 1000,
            last_clock: clock::cycles(),
            polls_to_clock: MAX_CLOCK_STRIDE,
            clock_stride: MAX_CLOCK_STRIDE,
            idle_polls: IDLE_POLLS,
            idle: IdlePolicy::default(),
            poll_gaps: Arc::default(),
            busy: BusyMeter::default(),
            off_cpu: OffCpuMeter::start(),
            drained: Arc::default(),
            rebuild: None,
            order: ServiceOrder::RoundRobin,
            heartbeat: Arc::default(),
            drain: Arc::default(),
            drain_progress: Arc::default(),
            commands: None,
            exchange: None,
            inputs_closed: false,
            awaits_chains: false,
            saved: vec![],
        }
    }

    /// Sets the begin of the time of the graph, which nodes keep when they move to another worker.
    pub(crate) fn set_started(&mut self, started: Instant) {
        self.started = started;
    }

    /// Has the worker run until an exchange gives it chains.
    pub(crate) fn await_chains(&mut self) {
        self.awaits_chains = true;
    }

    /// Returns the counter that changes while the worker polls.
    pub(crate) fn heartbeat(&self) -> Arc<AtomicU64> {
        self.heartbeat.clone()
    }

    /// Sets the control of the time after the stop.
    pub(crate) fn set_drain_control(&mut self, drain: Arc<DrainControl>) {
        self.drain = drain;
    }

    /// Returns the progress after the stop.
    pub(crate) fn drain_progress(&self) -> Arc<DrainProgress> {
        self.drain_progress.clone()
    }

    /// Sets the behaviour while no packets arrive.
    pub(crate) fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle_polls = if idle == IdlePolicy::Sleep { IDLE_POLLS_SLEEP } else { IDLE_POLLS };
        self.idle = idle;
    }

    /// Sets a schedule, and for each of its chains the indices of the inputs.
    pub(crate) fn set_schedule(&mut self, schedule: Schedule, inputs: Vec<Vec<usize>>) {
        self.order = ServiceOrder::Scheduled(Scheduled { schedule, inputs });
    }

    /// Makes the captures that are the inputs give the time of the graph: packets are received in the order of their
    /// timestamps, and timers run at every millisecond between them.
    pub(crate) fn set_capture_clock(&mut self) {
        self.order = ServiceOrder::Timestamps(CaptureClock::default());
    }

    /// Sets the connections to the rebuilder and to the engine.
    pub(crate) fn connect(&mut self, rebuild: RebuildClient, commands: Receiver<Command>) {
        (self.rebuild, self.commands) = (Some(rebuild), Some(commands));
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the flag that is set when no more packets can arrive except from other cores and rings in the process.
    pub fn drained(&self) -> Arc<AtomicBool> {
        self.drained.clone()
    }

    /// Processes one batch from each input, and reads the clock at intervals; returns the number of packets received.
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.polls_to_clock -= 1;
        if self.polls_to_clock == 0 {
            self.check_clock();
        }
        match self.order {
            ServiceOrder::RoundRobin => self.poll_inputs(|_| true),
            ServiceOrder::Scheduled(_) => self.poll_scheduled(),
            ServiceOrder::Timestamps(_) => self.poll_timestamps(),
        }
    }

    /// As [`poll`](Self::poll), for inputs that are polled after a stop. Held packets leave by timers.
    #[cold]
    fn poll_open_inputs(&mut self) -> usize {
        self.polls_to_clock -= 1;
        if self.polls_to_clock == 0 {
            self.check_clock();
        }
        if let ServiceOrder::Timestamps(clock) = &self.order {
            let later = clock.next_step();
            self.advance_to(later);
        }
        self.poll_inputs(|input| input.drain != DrainPolicy::Stop)
    }

    /// Advances the time to the earliest packet of all inputs and processes a batch of packets; returns their number.
    #[inline(never)]
    fn poll_timestamps(&mut self) -> usize {
        let ServiceOrder::Timestamps(clock) = &mut self.order else { return 0 };
        let (mut times, mut no_buffer) = (core::mem::take(&mut clock.times), false);
        times.clear();
        for (n, input) in self.inputs.iter_mut().enumerate() {
            match input.rx.next_frame() {
                NextFrame::At(ns) => times.push((n, ns)),
                NextFrame::NoBuffer => no_buffer = true,
                NextFrame::Pending => return 0,
                NextFrame::End => {}
            }
        }
        let next = if no_buffer { None } else { clock.next(&times) };
        clock.times = times;
        if let Some(ns) = clock.origin {
            self.graph.set_capture_start(Duration::from_nanos(ns));
        }
        let Some(packets) = next else {
            if no_buffer {
                // NFs may hold all buffers until a later time
                let later = clock.next_step();
                self.advance_to(later);
            }
            return 0;
        };
        self.advance_to(packets.now);
        let input = &mut self.inputs[packets.input];
        input.rx.receive_until(packets.until);
        input.process_batch(
            packets.input,
            &mut self.sampling,
            &mut self.graph,
            &mut self.outputs,
            &mut self.batch,
            &mut None,
        )
    }

    /// Runs the timers of all milliseconds up to `to`, on the clock of the captures, unless the worker is stopped.
    fn advance_to(&mut self, to: Duration) {
        let ServiceOrder::Timestamps(clock) = &mut self.order else { return };
        let stepped = clock.skip_after(to);
        // captures can wait
        self.outputs.backpressure = true;
        while clock.step(stepped) && !self.outputs.stop.load(Ordering::Relaxed) {
            self.graph.run_timers(clock.now, &mut self.outputs);
        }
        if stepped < to {
            clock.skip(to);
            self.graph.run_timers(to, &mut self.outputs);
        }
    }

    /// Processes one batch of the chain that is due, if any has packets; returns the number of packets received.
    #[inline(never)]
    fn poll_scheduled(&mut self) -> usize {
        let ServiceOrder::Scheduled(Scheduled { schedule, inputs }) = &mut self.order else { return 0 };
        schedule.start_round();
        let mut now = clock::cycles();
        while let Some(chain) = schedule.next(now) {
            let (mut n, mut bytes) = (0, schedule.counts_bytes(chain).then_some(0));
            let own = &mut inputs[chain];
            for _ in 0..own.len() {
                let number = own[0];
                own.rotate_left(1);
                n = self.inputs[number].process_batch(
                    number,
                    &mut self.sampling,
                    &mut self.graph,
                    &mut self.outputs,
                    &mut self.batch,
                    &mut bytes,
                );
                if n != 0 {
                    break;
                }
            }
            let end = clock::cycles();
            schedule.charge(chain, n as u64, bytes.unwrap_or_default(), end.wrapping_sub(now));
            now = end;
            if n != 0 {
                return n;
            }
        }
        0
    }

    #[inline(always)]
    fn poll_inputs(&mut self, selected: impl Fn(&Input) -> bool) -> usize {
        let mut all = 0;
        for (number, input) in self.inputs.iter_mut().enumerate() {
            if !selected(input) {
                continue;
            }
            all += input.process_batch(
                number,
                &mut self.sampling,
                &mut self.graph,
                &mut self.outputs,
                &mut self.batch,
                &mut None,
            );
        }
        all
    }

    /// Polls until the worker is stopped or all inputs have finished, drains the remaining inputs, and drops the NFs.
    /// An NF that panics is quarantined until the rebuilder has built it again. Returns as well after the graph was
    /// replaced.
    ///
    /// # Errors
    /// A panic that no NF caused, which ends the worker.
    pub(crate) fn run(&mut self, errors: &RunErrors) -> Result<RunEnd, String> {
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.poll_loop())) {
            match (self.graph.quarantine(&mut self.batch, payload), &mut self.rebuild) {
                (Ok(panicked), Some(rebuild)) => rebuild.request(panicked),
                (Ok(panicked), None) => return Err(panicked.message),
                // not caused by an NF, so a rebuild would not help
                (Err(payload), _) => return Err(panics::message(payload)),
            }
            // check for the rebuilt NF with every poll
            self.polls_to_clock = 1;
        }
        if let Some(exchange) = self.exchange.take() {
            let ends = exchange.ends;
            let watched = self.replace_graph(*exchange, errors);
            if !ends {
                return Ok(RunEnd::Replaced(watched));
            }
        }
        let saves = self.drain.saves.load(Ordering::Relaxed);
        if saves {
            self.saved = self.graph.save();
        }
        let finishing = self.finish().into_iter().map(|(nf, message)| (nf, "finished", message));
        // another process waits for the state, and freeing large tables takes time: they are dropped with the worker
        let dropped = if saves { vec![] } else { self.graph.drop_nodes() };
        let dropping = dropped.into_iter().map(|(nf, message)| (nf, "was dropped", message));
        for (nf, when, message) in finishing.chain(dropping) {
            errors.report(format!("nf {nf:?} panicked when it {when}: {message}"));
        }
        Ok(RunEnd::Finished)
    }

    /// Returns true if the worker is to replace its graph now, as all workers have arrived that exchange something.
    #[cold]
    fn is_exchange_due(&mut self) -> bool {
        let rebuilding = self.rebuild.as_ref().is_some_and(RebuildClient::is_pending);
        match self.exchange.as_mut().map(|exchange| exchange.is_due(rebuilding)) {
            Some(Some(is_due)) => is_due,
            _ => {
                self.exchange = None;
                false
            }
        }
    }

    /// Exchanges the graph, inputs and outputs between two batches; returns the worker as the watchdog sees it from now
    /// on.
    fn replace_graph(&mut self, exchange: Exchange, errors: &RunErrors) -> WatchedWorker {
        let start = Instant::now();
        let Exchange { meeting, own, replacement, inputs, outputs, schedule, .. } = exchange;
        self.update_counts();
        meeting.release(|parts| {
            core::mem::swap(&mut parts.graphs[own], &mut self.graph);
            parts.inputs[own] = self.inputs.drain(..).map(Some).collect();
            parts.outputs[own] = core::mem::take(&mut self.outputs.ports);
        });
        let mut parts = meeting.parts();
        let (graph, panics) = replacement.install(&mut parts.graphs, own);
        self.graph = graph;
        self.inputs = inputs.into_iter().filter_map(|input| parts.input(input)).collect();
        self.outputs.ports = outputs.into_iter().map(|output| parts.output(output)).collect();
        let first = parts.first(own);
        drop(parts);
        for (nf, message) in panics {
            errors.report(format!("nf {nf:?} panicked when it took over the state before a reload: {message}"));
        }
        if let Some(taps) = self.taps() {
            taps.set_names(exchange.names);
        }
        match (schedule, &self.order) {
            (_, ServiceOrder::Timestamps(_)) => {}
            (Some((schedule, inputs)), _) => self.order = ServiceOrder::Scheduled(Scheduled { schedule, inputs }),
            (None, _) => self.order = ServiceOrder::RoundRobin,
        }
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.set_builders(exchange.builders);
        }
        self.set_idle(exchange.idle);
        self.awaits_chains = false;
        self.drained.store(false, Ordering::Relaxed);
        self.process_first(first);
        // ignore errors: the thread that waited for it has given up
        let _ = exchange.replaced.send(start.elapsed());
        exchange.watched
    }

    /// Processes packets that waited between cores during an exchange.
    fn process_first(&mut self, packets: Vec<(Target, Packet)>) {
        self.outputs.backpressure = false;
        let mut packets = packets.into_iter().peekable();
        while let Some((entry, packet)) = packets.next() {
            self.batch.push(packet).expect("the batch is empty");
            while !self.batch.is_full()
                && let Some((_, packet)) = packets.next_if(|(next, _)| *next == entry)
            {
                self.batch.push(packet).expect("the batch is not full");
            }
            self.graph.run::<false>(entry, &mut self.batch, &mut self.outputs);
            self.outputs.run_local(&mut self.graph);
        }
    }

    /// Begins a capture or trace.
    fn observe(&mut self, tap: Tap, names: Arc<WorkerNames>) {
        if !self.graph.is_observed() {
            self.graph.observe(Some(Box::<TapSet>::default()));
        }
        if let Some(taps) = self.taps() {
            taps.add(tap, names);
        }
        self.sampling.set_observed(true);
    }

    /// Returns the captures and traces.
    fn taps(&mut self) -> Option<&mut TapSet> {
        let observer: &mut dyn Any = self.graph.observer()?;
        observer.downcast_mut()
    }

    /// Ends captures and traces that are no longer read.
    #[cold]
    fn end_observation(&mut self) {
        if self.taps().is_some_and(|taps| !taps.retain_read()) {
            self.graph.observe(None);
            self.sampling.set_observed(false);
        }
    }

    /// Returns what each node has saved.
    pub(crate) fn take_saved(&mut self) -> Vec<Option<Vec<u8>>> {
        core::mem::take(&mut self.saved)
    }

    /// Closes the connection to the rebuilder.
    pub(crate) fn disconnect_rebuilder(&mut self) {
        self.rebuild = None;
    }

    /// Updates the counts that ports keep themselves.
    fn update_counts(&mut self) {
        self.inputs.iter_mut().for_each(Input::update_counts);
        self.outputs.ports.iter_mut().flatten().for_each(Output::update_counts);
    }

    /// Updates the counts, closes inputs and outputs, and finishes the NFs. Returns the names and messages of those
    /// that panicked.
    pub fn finish(&mut self) -> Vec<(String, String)> {
        self.update_counts();
        self.inputs.iter_mut().for_each(|input| input.rx.close());
        self.outputs.ports.iter_mut().flatten().for_each(|output| output.tx.close());
        self.graph.finish()
    }

    /// Discards what is left in rings in the process and in queues from other cores; returns the number of packets by
    /// index of the input.
    pub fn discard_queued(&mut self) -> Vec<(usize, u64)> {
        let mut discarded = vec![];
        for (n, input) in self.inputs.iter_mut().enumerate().filter(|(_, i)| i.drain != DrainPolicy::Stop) {
            let mut packets = 0;
            while input.rx.receive(&mut self.batch) != 0 {
                packets += self.batch.len() as u64;
                self.batch.clear();
            }
            discarded.push((n, packets));
        }
        discarded
    }

    /// Returns the poll gaps.
    pub fn poll_gaps(&self) -> Arc<PollGaps> {
        self.poll_gaps.clone()
    }

    /// Returns the counter of the cycles in which the worker had work: packets, or timers.
    pub(crate) fn busy_cycles(&self) -> Arc<Counter> {
        self.busy.cycles().clone()
    }

    /// Reads the clock, records poll gaps, and runs timers once a millisecond, and those with shorter intervals when they
    /// are due.
    fn check_clock(&mut self) {
        let now = clock::cycles();
        self.heartbeat.store(now, Ordering::Relaxed);
        let gap = now.wrapping_sub(core::mem::replace(&mut self.last_clock, now));
        // a worker that yields its CPU cannot tell preemption from yielding
        if self.idle != IdlePolicy::Yield {
            self.poll_gaps.longest.fetch_max(gap, Ordering::Relaxed);
            if gap > self.cycles_per_ms / 10 {
                self.poll_gaps.sum.fetch_add(gap, Ordering::Relaxed);
                self.record_off_cpu(now, gap);
            }
        }
        self.busy.add_interval(gap);
        // read often enough to tell a gap from the batches between two reads
        if gap > self.cycles_per_ms / 40 {
            self.clock_stride = (self.clock_stride / 2).max(1);
        } else if gap < self.cycles_per_ms / 160 {
            self.clock_stride = (self.clock_stride * 2).min(MAX_CLOCK_STRIDE);
        }
        self.polls_to_clock = self.clock_stride;
        if let Some(rebuild) = self.rebuild.as_mut().filter(|r| r.is_pending()) {
            rebuild.install(&mut self.graph);
            self.polls_to_clock = if rebuild.is_pending() { 1 } else { self.clock_stride };
        }
        if self.exchange.is_none()
            && let Some(commands) = &self.commands
            && let Ok(command) = commands.try_recv()
        {
            match command {
                Command::Replace(exchange) => self.exchange = Some(exchange),
                Command::Observe(tap, names) => self.observe(tap, names),
                Command::CloseInputs => self.inputs_closed = true,
            }
        }
        if now.wrapping_sub(self.last_timer) >= self.cycles_per_ms {
            self.last_timer = now;
            self.inputs.iter_mut().for_each(Input::update_queue);
            self.outputs.ports.iter_mut().flatten().for_each(|output| output.tx.maintain());
            self.run_timers(now);
            if self.graph.is_observed() {
                self.end_observation();
            }
            let interval = self.graph.timer_interval().filter(|_| !matches!(self.order, ServiceOrder::Timestamps(_)));
            let interval = interval.filter(|interval| *interval < Duration::from_millis(1));
            self.short_interval = interval.map(|interval| self.cycles_per_ms * interval.as_micros() as u64 / 1000);
            self.end_timers(now);
        } else if self.short_interval.is_some_and(|cycles| now.wrapping_sub(self.last_short_timer) >= cycles) {
            self.run_timers(now);
            self.end_timers(now);
        }
    }

    /// Runs the timers that are due, except those of captures, whose clock is that of their packets.
    fn run_timers(&mut self, now: u64) {
        self.last_short_timer = now;
        self.outputs.backpressure = false;
        if !matches!(self.order, ServiceOrder::Timestamps(_)) {
            self.graph.run_timers(self.started.elapsed(), &mut self.outputs);
        }
        self.outputs.run_local(&mut self.graph);
    }

    /// Counts the time spent in timers, which is no gap.
    fn end_timers(&mut self, begun: u64) {
        self.last_clock = clock::cycles();
        self.busy.add_timers(self.last_clock.saturating_sub(begun));
    }

    /// Adds the time since the last call during which the worker did not run, at most `longest` of it in one gap.
    #[cold]
    fn record_off_cpu(&mut self, now: u64, longest: u64) {
        let off_cpu = self.off_cpu.lap(now);
        self.poll_gaps.off_cpu.fetch_add(off_cpu, Ordering::Relaxed);
        self.poll_gaps.off_cpu_longest.fetch_max(off_cpu.min(longest), Ordering::Relaxed);
    }

    fn poll_loop(&mut self) {
        let (mut idle, idle_polls) = (0u32, self.idle_polls);
        // of this thread, which may not be the one that created the worker
        self.off_cpu = OffCpuMeter::start();
        self.last_clock = clock::cycles();
        while !self.outputs.stop.load(Ordering::Relaxed) {
            if idle >= idle_polls {
                self.check_clock();
            }
            let received = if self.inputs_closed { self.poll_open_inputs() } else { self.poll() };
            if self.exchange.is_some() && self.is_exchange_due() {
                return;
            }
            if received != 0 || !self.inputs.iter().all(|i| i.rx.idle()) {
                idle = 0;
                self.busy.count_work();
                continue;
            }
            self.busy.count_empty_poll();
            if self.inputs.iter().all(|i| i.rx.finished()) && !self.awaits_chains {
                break;
            }
            let may_receive = |i: &Input| i.drain.is_endless() && !i.rx.finished();
            if idle == idle_polls && !self.awaits_chains && !self.inputs.iter().any(may_receive) {
                self.drained.store(true, Ordering::Relaxed);
            }
            idle += 1;
            if idle < idle_polls {
                if self.idle == IdlePolicy::Yield {
                    idle = (idle + self.yield_cpu()).min(idle_polls);
                }
                core::hint::spin_loop();
            } else {
                idle = idle_polls;
                self.update_counts();
                if self.idle == IdlePolicy::Poll {
                    continue;
                }
                let from = clock::cycles();
                self.record_off_cpu(from, from.saturating_sub(self.last_clock));
                self.busy.add_interval(from.saturating_sub(self.last_clock));
                let limit =
                    if self.wait_for_interrupts() { INTERRUPT_TIMEOUT } else { Duration::ZERO } + IDLE_SLEEP_MAX;
                // a sleep of the worker's own is no gap and not off-CPU time, unless it exceeds the limit
                let now = clock::cycles();
                let allowed = self.cycles_per_ms * limit.as_micros() as u64 / 1000;
                self.last_clock = now.min(from + allowed);
                let excess = self.off_cpu.lap(now).saturating_sub(allowed);
                self.poll_gaps.off_cpu.fetch_add(excess, Ordering::Relaxed);
                self.poll_gaps.off_cpu_longest.fetch_max(excess, Ordering::Relaxed);
            }
        }
        // the others of a meeting that takes place wait for this worker
        if self.exchange.as_ref().is_some_and(|exchange| exchange.has_arrived && !exchange.meeting.cancel()) {
            return;
        }
        self.exchange = None;
        self.drain_progress.stopped.store(true, Ordering::Release);
        // drain the remaining inputs; a time limit, as packets may circulate for ever
        let awaits_release = self.inputs.iter().any(|i| matches!(i.drain, DrainPolicy::UntilReleased { .. }));
        let deadline = Instant::now() + if awaits_release { RELEASE_TIMEOUT } else { DRAIN_TIMEOUT };
        let mut quiet = 0;
        let drain = self.drain.clone();
        let open = |i: &Input| match i.drain {
            DrainPolicy::UntilFinished => !i.rx.finished(),
            DrainPolicy::UntilReleased { .. } => !drain.released.load(Ordering::Relaxed),
            DrainPolicy::Stop | DrainPolicy::UntilQuiet => false,
        };
        while (quiet < 1000 || self.inputs.iter().any(open)) && Instant::now() < deadline {
            self.heartbeat.store(clock::cycles(), Ordering::Relaxed);
            let round = drain.round.load(Ordering::Acquire);
            let drains = |input: &Input| input.drain != DrainPolicy::Stop;
            // an input without own packets may have passed some to other cores
            if self.poll_inputs(drains) == 0 && self.inputs.iter().filter(|i| drains(i)).all(|i| i.rx.idle()) {
                self.drain_progress.empty_round.store(round, Ordering::Release);
                quiet += 1;
            } else {
                quiet = 0;
            }
        }
    }
}

impl Input {
    /// Receives a batch from this input, the one of this number, and runs it to completion, timed if it is sampled;
    /// returns the number of packets received.
    #[inline(always)]
    fn process_batch(
        &mut self,
        number: usize,
        sampling: &mut Sampling,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        let n = if sampling.is_timed() {
            self.receive_and_run_timed(number, graph, outputs, batch, bytes)
        } else {
            self.receive_and_run::<false>(number, graph, outputs, batch, bytes)
        };
        sampling.batches = sampling.batches.wrapping_add(u32::from(n != 0));
        n
    }

    /// Receives a batch and runs it to completion; returns the number of packets received. Adds up their bytes if
    /// `bytes` is `Some`.
    #[inline(always)]
    fn receive_and_run<const TIMED: bool>(
        &mut self,
        number: usize,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        let from = if TIMED { clock::cycles() } else { 0 };
        let n = self.rx.receive(batch);
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
            self.update_counts();
        }
        outputs.backpressure = self.backpressure;
        if TIMED && graph.is_observed() {
            graph.run_observed(number, self.entry, batch, outputs);
        } else {
            graph.run::<TIMED>(self.entry, batch, outputs);
        }
        if outputs.local_pending {
            outputs.run_local(graph);
        }
        n
    }

    #[cold]
    #[inline(never)]
    fn receive_and_run_timed(
        &mut self,
        number: usize,
        graph: &mut Graph,
        outputs: &mut Outputs,
        batch: &mut Batch,
        bytes: &mut Option<u64>,
    ) -> usize {
        self.receive_and_run::<true>(number, graph, outputs, batch, bytes)
    }
}

impl Outputs {
    /// Runs packets that links between chains keep on this core through the following chains.
    #[inline(never)]
    fn run_local(&mut self, graph: &mut Graph) {
        while core::mem::take(&mut self.local_pending) {
            for at in 0..self.ports.len() {
                while let Some(output) = &mut self.ports[at]
                    && let Some(local) = &output.local
                {
                    let mut batch = Batch::new();
                    output.tx.take_local(&mut batch);
                    if batch.is_empty() {
                        break;
                    }
                    local.stats.packets.add(batch.len() as u64);
                    // set again, so that the other links are still served if this batch panics
                    self.local_pending = true;
                    self.local_batches = self.local_batches.wrapping_add(1);
                    if self.local_batches.is_multiple_of(TIMING_INTERVAL) || graph.is_observed() {
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
    fn drop_reason(&self, port: u16) -> &'static str {
        let output = self.ports.get(usize::from(port)).and_then(Option::as_ref);
        output.map_or(PortDrop::TxFull, |output| output.tx.drop_reason()).name()
    }

    #[inline(always)]
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        let Some(Some(output)) = self.ports.get_mut(port as usize) else {
            unreachable!("the plan has a port for every target");
        };
        let from = if TIMED { clock::cycles() } else { 0 };
        let n = output.tx.send(batch);
        output.stats.packets.add(n as u64);
        self.local_pending |= output.local.is_some();
        if TIMED {
            output.stats.timed_cycles.add(clock::cycles() - from);
            output.stats.timed_packets.add(n as u64);
            output.update_counts();
        }
        if !batch.is_empty() {
            retry_or_count(output, batch, self.backpressure, &self.stop);
        }
    }
}

/// Offers the remaining packets again under backpressure, and counts those as dropped that the port does not accept. A port that accepted
/// nothing for [`BACKPRESSURE_TIMEOUT`] is not waited for until it has accepted packets again.
#[cold]
#[inline(never)]
fn retry_or_count(output: &mut Output, batch: &mut Batch, backpressure: bool, stop: &AtomicBool) {
    if output.yields_when_full && output.gave_up != Some(output.stats.packets.get()) {
        // the receiver may be waiting for this CPU
        std::thread::yield_now();
        output.stats.packets.add(output.tx.send(batch) as u64);
    }
    let mut deadline = Instant::now() + BACKPRESSURE_TIMEOUT;
    let accepted = output.stats.packets.get();
    let retry = backpressure && !output.self_consumed && output.gave_up != Some(accepted);
    while retry && !batch.is_empty() && Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        let n = output.tx.send(batch);
        if n == 0 {
            std::thread::yield_now();
        } else {
            output.stats.packets.add(n as u64);
            deadline = Instant::now() + BACKPRESSURE_TIMEOUT;
        }
    }
    if !batch.is_empty() {
        output.gave_up = Some(output.stats.packets.get());
    }
    output.stats.count(output.tx.drop_reason()).add(batch.len() as u64);
}
