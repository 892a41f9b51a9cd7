//! Trials on several cores: one schedule, of which every core sends every n-th burst, and one accounting.

use super::exchange::{Exchange, SharedTrial};
use super::preemption::PreemptionMeter;
use super::{DutStatus, FurtherCore, PacketGenerator, TxStream};
use crate::generator::packet_source::PacketSource;
use dpdk::{Eal, Mempool};
use packet::clock;
use runtime::{PollTimes, PortQueues};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use traffic::{Pacer, Receiver};

impl PacketGenerator {
    /// Creates a generator on this thread and on one for each CPU of `further`, to which it is pinned in trials. The
    /// ports have as many pairs of queues. The other arguments are those of [`new`](Self::new).
    pub(crate) fn on_cores(
        ports: Vec<PortQueues>,
        entries: &[usize],
        pool: &Arc<Mempool>,
        recycle: bool,
        further: &[usize],
        eal: Eal,
    ) -> PacketGenerator {
        let mut ports = ports;
        let mut of_core = |core| {
            let queues = ports.extract_if(.., |queues| queues.queue == core).collect();
            PacketGenerator::new(queues, entries, pool.clone(), recycle)
        };
        let mut first = of_core(0);
        let core = |(n, cpu): (usize, &usize)| FurtherCore { cpu: *cpu, eal, generator: of_core(n + 1) };
        first.further = further.iter().enumerate().map(core).collect();
        first
    }

    /// Returns the transmit state of the streams of a trial, by stream number; each core has `per_core` of them.
    pub(super) fn all_tx(&self, per_core: usize) -> impl Iterator<Item = &TxStream> {
        let further = self.further.iter().flat_map(move |core| core.generator.tx.iter().take(per_core));
        self.tx.iter().take(per_core).chain(further)
    }

    /// As [`all_tx`](Self::all_tx), to change it.
    pub(super) fn all_tx_mut(&mut self, per_core: usize) -> impl Iterator<Item = &mut TxStream> {
        let further = self.further.iter_mut().flat_map(move |core| core.generator.tx.iter_mut().take(per_core));
        self.tx.iter_mut().take(per_core).chain(further)
    }

    /// Returns the packets that all cores have sent and received so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        let (sent, received) = match &self.exchange {
            Some(exchange) => exchange.shared.further_counts(),
            None => self
                .further
                .iter()
                .map(|core| &core.generator)
                .fold((0, 0), |(sent, received), generator| (sent + generator.sent, received + generator.received)),
        };
        (self.sent + sent, self.received + received)
    }

    /// Sends the streams of all cores, waits until the device is drained, and adds the counts of the further cores to
    /// `receiver`. Schedules are relative to the start. Returns the preemption of the threads, the longest of any.
    pub(super) fn run_cores(
        &mut self,
        dut: &impl DutStatus,
        (source, further_sources): (&mut PacketSource<'_>, &mut [PacketSource<'_>]),
        pacers: &mut [Vec<Pacer>],
        (receiver, further_receivers): (&mut Receiver, Vec<Receiver>),
        trial_s: f64,
    ) -> PollTimes {
        let streams = source.streams.len();
        let mut further = std::mem::take(&mut self.further);
        let shared = Arc::new(SharedTrial::new(1 + further.len(), streams));
        for (n, core) in further.iter_mut().enumerate() {
            core.generator.first_stream = ((n + 1) * streams) as u8;
            core.generator.no_buffer_ticks = 0;
            shared.set_counts(n + 1, core.generator.sent, core.generator.received);
        }
        let (own, others) = pacers.split_at_mut(streams);
        let times = std::thread::scope(|scope| {
            let inputs = further_sources.iter_mut().zip(others.chunks_mut(streams)).zip(further_receivers);
            let threads: Vec<_> = further
                .iter_mut()
                .zip(inputs)
                .enumerate()
                .map(|(n, (core, ((source, pacers), receiver)))| {
                    let exchange = Exchange::new(n + 1, shared.clone());
                    scope.spawn(move || core.run(exchange, source, pacers, receiver))
                })
                .collect();
            while shared.ready.load(Ordering::Acquire) < threads.len() {
                std::thread::yield_now();
            }
            self.exchange = Some(Exchange::new(0, shared.clone()));
            let start = clock::cycles() + clock::hz() / 10_000;
            own.iter_mut().flatten().for_each(|pacer| pacer.put_off(start));
            shared.start.store(start, Ordering::Release);
            self.start_progress(receiver);
            let preemption: PreemptionMeter = self.send_all(source, own, receiver);
            while shared.done.load(Ordering::Acquire) < threads.len() {
                self.receive(receiver);
            }
            self.progress.end();
            self.drain(dut, receiver, trial_s);
            shared.drained.store(true, Ordering::Release);
            while self.receive(receiver) != 0 {}
            if let Some(mut exchange) = self.exchange.take() {
                exchange.finish(receiver);
            }
            let mut all = preemption.times(0);
            for thread in threads {
                let (of_core, times) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                receiver.absorb(of_core);
                all = longest(all, times);
            }
            all
        });
        let cores = 1 + further.len() as u64;
        let no_buffer: u64 = further.iter().map(|core| core.generator.no_buffer_ticks).sum();
        // each core sends its share of the load
        self.no_buffer_ticks = (self.no_buffer_ticks + no_buffer) / cores;
        self.further = further;
        times
    }
}

impl FurtherCore {
    /// Sends the streams of this core from the common start on and receives until the device is drained.
    fn run(
        &mut self,
        exchange: Exchange,
        source: &mut PacketSource<'_>,
        pacers: &mut [Vec<Pacer>],
        mut receiver: Receiver,
    ) -> (Receiver, PollTimes) {
        // the session has checked that it may use this CPU
        let _ = runtime::pin(self.cpu);
        // optional: a thread that is no lcore works, slower
        let _lcore = self.eal.register_thread().ok();
        let shared = exchange.shared.clone();
        let generator = &mut self.generator;
        generator.exchange = Some(exchange);
        shared.ready.fetch_add(1, Ordering::AcqRel);
        let mut start = 0;
        while start == 0 {
            start = shared.start.load(Ordering::Acquire);
            std::hint::spin_loop();
        }
        pacers.iter_mut().flatten().for_each(|pacer| pacer.put_off(start));
        let preemption = generator.send_all(source, pacers, &mut receiver);
        shared.done.fetch_add(1, Ordering::AcqRel);
        while !shared.drained.load(Ordering::Acquire) {
            generator.receive(&mut receiver);
        }
        while generator.receive(&mut receiver) != 0 {}
        if let Some(mut exchange) = generator.exchange.take() {
            exchange.finish(&mut receiver);
        }
        (receiver, preemption.times(0))
    }
}

/// Returns the longer of each of the times of two threads.
fn longest(a: PollTimes, b: PollTimes) -> PollTimes {
    PollTimes {
        gap_max: a.gap_max.max(b.gap_max),
        gap_sum: a.gap_sum.max(b.gap_sum),
        off_cpu: a.off_cpu.max(b.off_cpu),
        off_cpu_max: a.off_cpu_max.max(b.off_cpu_max),
    }
}
