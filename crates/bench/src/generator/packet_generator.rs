//! The built-in packet generator. One thread sends one stream into each of one or more ports of a device, and receives
//! from all of its ports. With further cores, each has a thread, a pair of queues of every port, and streams of its own.

use crate::generator::packet_source::{Buffers, PacketSource, Source, StreamSource};
use crate::generator::schedule::DepartureTimes;
use crate::generator::unnumbered::UnnumberedCounts;
use crate::trial::{DelayVariationOutput, DirectionCounts, LossTimes, Phase, Trial, TrialInput, TrialOutput};
use dpdk::{Eal, Mempool, TxQueue};
use packet::{Batch, Packet, clock};
use report::hdr;
use runtime::{PollTimes, PortQueues};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::probe::{Reading, Sample};
use traffic::receiver::Arrival;
use traffic::{Delays, Pace, PaceError, Pacer, Probe, Receiver, Sequence, neighbors, pacer, sequence};
use wire::MacAddr;

mod connections;
mod cores;
mod exchange;
mod preemption;
mod probe_log;
mod progress;
mod share;
mod streams;

pub(crate) use probe_log::ProbeTimes;
pub(crate) use progress::{LiveCounts, TrialProgress};

use exchange::Exchange;
use preemption::{PreemptionMeter, loss_is_host_interference};
use probe_log::ProbeLog;
use share::BURST;

/// Time without a received packet before the device is asked whether it is drained; covers packets that an NF holds.
const QUIET_TIME: Duration = Duration::from_millis(5);
/// Warm-up packets of a stream before a trial, sent 5 µs apart.
const WARM_UP_PACKETS: u64 = 200;
/// Stream number of warm-up packets, which the receiver of a trial ignores.
const WARM_UP_STREAM: u8 = 255;
/// Time limit for warm-up packets without a sequence number to leave the device; after that a worker may sleep again.
const WARM_UP_TIMEOUT: Duration = Duration::from_micros(500);
/// Attempts of the warm-up.
const WARM_UP_ATTEMPTS: u32 = 5;
/// Lowest number of loss bins of the receiver, which bounds the error of the time of the last loss.
const MIN_LOSS_BINS: usize = 1 << 16;

/// State of a device that the generator reads.
pub(crate) trait DutStatus {
    /// Returns the number of packets that the device has created so far.
    fn created_packets(&self) -> u64;

    /// Returns true if no packet is inside the device.
    fn is_drained(&self, in_flight: &InFlight) -> bool;

    /// Returns the time after the last sent packet until which packets are received.
    fn drain_timeout(&self) -> Duration;

    /// Returns the poll gaps and the preemption of the device's threads since the last call, the longest of any; zero
    /// if unknown.
    fn take_poll_times(&self) -> PollTimes;

    /// Returns the number of packets that NFs of the device have dropped so far; 0 if unknown.
    fn dropped_by_nfs(&self) -> u64;

    /// Returns the number of packets that a queue holds while a worker does not poll.
    fn queue_size(&self) -> u32;

    /// Returns true if the device may work in the generator's thread, such as the kernel in a system call that sends.
    fn works_in_generator(&self) -> bool;
}

/// Packet counts of the generator's ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Packets sent to the device so far.
    pub(crate) sent: u64,
    /// Packets received from the device so far.
    pub(crate) received: u64,
    /// Packets sent since shortly before the trial, less those received.
    pub(crate) outstanding: u64,
    /// Time since the last received packet.
    pub(crate) quiet: Duration,
    /// Length of the trial, seconds.
    pub(crate) trial_s: f64,
}

/// A packet generator at the ports of a device.
pub(crate) struct PacketGenerator {
    ports: Vec<PortQueues>,
    /// By stream.
    tx: Vec<TxStream>,
    buffers: Buffers,
    /// Time of the trial in which packets were due and the pool was empty, ticks.
    no_buffer_ticks: u64,
    /// Packets of the trial that did not fit into the queue to the device.
    tx_full: u64,
    /// Packets sent and received so far.
    sent: u64,
    received: u64,
    /// Both, shortly before the trial.
    before: (u64, u64),
    /// The last received batch of each port, and when it was received.
    arrived: Vec<(Batch, u64)>,
    stop: Arc<AtomicBool>,
    /// Stream number of the first stream.
    first_stream: u8,
    further: Vec<FurtherCore>,
    /// Probes of other cores' streams, during a trial on several cores.
    exchange: Option<Exchange>,
    progress: Arc<TrialProgress>,
    /// Time at which the progress is published again, ticks.
    publish_at: u64,
    /// MAC address that requests for neighbours are answered with; none if they are not.
    mac: Option<MacAddr>,
    /// Requests answered so far.
    answers: u64,
    /// Departures of traced probes, during a trial that traces some.
    probe_log: Option<Box<ProbeLog>>,
    /// Times of the traced probes of the last trial.
    probe_times: Vec<ProbeTimes>,
}

/// A further core of the generator.
pub(super) struct FurtherCore {
    cpu: usize,
    eal: Eal,
    generator: PacketGenerator,
}

/// Transmit state of a stream.
struct TxStream {
    /// Index of the port.
    port: usize,
    /// True if the device receives from this port.
    is_connected: bool,
    /// Next sequence number.
    sequence: u64,
}

/// Purpose of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Warm-up, with this sequence number.
    WarmUp(u64),
    /// Part of the trial.
    Trial,
}

impl PacketGenerator {
    /// Creates a generator that sends stream `n` into the port of number `entries[n]`. If `recycle` is true, received
    /// packets are the buffers that were sent, and are sent again with their payload.
    pub(crate) fn new(ports: Vec<PortQueues>, entries: &[usize], pool: Arc<Mempool>, recycle: bool) -> PacketGenerator {
        let index = |port: &usize| ports.iter().position(|queues| queues.port == *port).unwrap_or_default();
        let stream = |port: &usize| TxStream { port: index(port), is_connected: true, sequence: 0 };
        let tx = entries.iter().map(stream).collect();
        let arrived = ports.iter().map(|_| (Batch::new(), 0)).collect();
        let buffers = Buffers::new(pool, recycle);
        PacketGenerator {
            ports,
            tx,
            buffers,
            no_buffer_ticks: 0,
            tx_full: 0,
            sent: 0,
            received: 0,
            before: (0, 0),
            arrived,
            stop: Arc::default(),
            first_stream: 0,
            further: vec![],
            exchange: None,
            progress: Arc::default(),
            publish_at: 0,
            mac: None,
            answers: 0,
            probe_log: None,
            probe_times: vec![],
        }
    }

    /// Returns the number of ARP requests and neighbor solicitations answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers + self.further.iter().map(|core| core.generator.answers).sum::<u64>()
    }

    /// Marks a stream as one that the device does not receive: its packets are freed and count as lost.
    pub(crate) fn disconnect(&mut self, stream: usize) {
        self.tx[stream].is_connected = false;
        self.further.iter_mut().for_each(|core| core.generator.disconnect(stream));
    }

    /// Returns true if the device receives from the port of a stream.
    pub(crate) fn is_connected(&self, stream: usize) -> bool {
        self.tx.get(stream).is_some_and(|tx| tx.is_connected)
    }

    /// Returns the times of the traced probes of the last trial, and forgets them.
    pub(crate) fn take_probe_times(&mut self) -> Vec<ProbeTimes> {
        std::mem::take(&mut self.probe_times)
    }

    /// Returns the number of cores.
    pub(crate) fn core_count(&self) -> usize {
        1 + self.further.len()
    }

    /// Returns the highest number of streams.
    pub(crate) fn stream_count(&self) -> usize {
        self.tx.len()
    }

    /// Sets the flag that ends trials early.
    pub(crate) fn set_stop_flag(&mut self, stop: Arc<AtomicBool>) {
        self.further.iter_mut().for_each(|core| core.generator.set_stop_flag(stop.clone()));
        self.stop = stop;
    }

    /// Returns the progress of the trial.
    pub(crate) fn progress(&self) -> Arc<TrialProgress> {
        self.progress.clone()
    }

    /// Sends the load of a trial, waits until the device is drained, and counts. `further` has the source of each
    /// further core.
    ///
    /// # Errors
    /// If the load or the duration is out of range.
    pub(crate) fn trial(
        &mut self,
        dut: &impl DutStatus,
        source: &mut PacketSource<'_>,
        further: &mut [PacketSource<'_>],
        input: &TrialInput,
    ) -> Result<TrialOutput, PaceError> {
        if input.profile {
            return self.run_profile(dut, source, input);
        }
        if let [StreamSource::Tcp(endpoints)] = &mut source.streams[..] {
            return self.run_connections(dut, endpoints, input);
        }
        let hz = clock::hz();
        let created_before = if source.has_unnumbered_packets() { dut.created_packets() } else { 0 };
        let (per_core, cores) = (source.streams.len(), self.core_count());
        let streams = per_core * cores;
        // invalid loads are rejected before anything is sent
        let mut pacers = vec![];
        for stream in 0..streams {
            pacers.push(schedule(source, stream % per_core, &input.phases, (stream / per_core, cores), hz)?);
        }
        self.before = self.counts();
        self.mac = source.host_mac();
        let mac = self.mac;
        self.further.iter_mut().for_each(|core| core.generator.mac = mac);
        source.restart();
        // takes longer than a packet may be late, so not after the start
        dut.take_poll_times();
        // a switch would learn the addresses of a warm-up
        let mut unnumbered = if input.macs.is_none() { self.warm_up(dut, source) } else { UnnumberedCounts::default() };
        let drops_before = dut.dropped_by_nfs();
        let firsts: Vec<u64> = self.all_tx(per_core).map(|tx| tx.sequence).collect();
        // record about a million latencies per second
        let highest = input.phases.iter().map(|p| p.load_pps).fold(0.0, f64::max);
        let sampled = (highest * per_core as f64 / source.probe_interval() as f64 / 1e6) as u64;
        // loss times and displacement need a sequence number in every packet
        let all_numbered = source.probe_interval() == 1;
        let bins = if all_numbered { input.loss_bins } else { 0 };
        let payload = input.verify_payload && source.has_pattern();
        let window = if cores == 1 { sequence::WINDOW } else { share::WINDOW };
        let receiver_of = |core: usize| {
            let mut receiver = Receiver::without_streams(source.probe_offset(), hz);
            for stream in core * per_core..(core + 1) * per_core {
                let max_packets = source.max_packets(stream % per_core, intended(&pacers[stream]));
                receiver.set_stream(stream as u8, Sequence::with_window(firsts[stream], max_packets, window));
            }
            receiver.sample(sampled);
            if bins != 0 {
                receiver.watch_losses(bins.max(MIN_LOSS_BINS));
            }
            if input.delay_variation {
                receiver.watch_variation();
            }
            if input.displacement && all_numbered {
                receiver.watch_density();
            }
            if payload {
                receiver.check_payload();
            }
            for stream in (0..per_core).filter(|_| input.vnfs) {
                let vnfs = if core == 0 { source.vnfs(stream) } else { further[core - 1].vnfs(stream) };
                if let Some((turns, count)) = vnfs {
                    receiver.watch_groups((core * per_core + stream) as u8, turns, count);
                }
            }
            receiver
        };
        let mut receiver = receiver_of(0);
        let further_receivers: Vec<Receiver> = (1..cores).map(receiver_of).collect();
        if let Some(at) = input.tagged_at_s {
            receiver.watch_tag(firsts[0] + packet_number_at(&input.phases, at) / cores as u64);
        }
        if let Some(sample) = input.trace_one_in.map(Sample::one_in) {
            receiver.trace(sample);
            self.probe_log = Some(Box::new(ProbeLog::new(sample)));
        }
        let start = clock::cycles() + hz / 10_000;
        for (stream, all) in pacers.iter_mut().enumerate() {
            let (core, stream) = (stream / per_core, stream % per_core);
            // a capture's own timing is not shifted
            let offset =
                if source.timing(stream).is_some() { 0 } else { stream_offset(&input.phases, stream, per_core, hz) };
            let offset = offset + share::core_offset(&input.phases, core, cores, hz);
            // further cores are started later
            let start = if cores == 1 { start } else { 0 };
            all.iter_mut().for_each(|pacer| pacer.put_off(start + offset));
        }
        self.no_buffer_ticks = 0;
        self.take_tx_full();
        let preempted = match cores {
            1 => {
                self.start_progress(&receiver);
                let preemption = self.send_all(source, &mut pacers, &mut receiver);
                self.progress.end();
                self.drain(dut, &mut receiver, input.duration_s());
                preemption.times(0)
            }
            _ => self.run_cores(
                dut,
                (source, further),
                &mut pacers,
                (&mut receiver, further_receivers),
                input.duration_s(),
            ),
        };
        self.probe_times = self.probe_log.take().map_or(vec![], |log| log.times(receiver.traced()));
        let Departures { totals, lateness, gap_ns, gap_limit_ns } = Departures::of(pacers.iter_mut().flatten());
        let (mut numbered, mut directions) = (0, vec![]);
        for ((stream, pacers), tx) in pacers.iter().enumerate().zip(self.all_tx_mut(per_core)) {
            let sent = tx.sequence - firsts[stream];
            tx.sequence = firsts[stream] + intended(pacers);
            numbered += sent;
            let received = receiver.stream(stream as u8).map_or(0, |totals| totals.received);
            match directions.get_mut(stream % per_core) {
                Some(DirectionCounts { sent: all_sent, received: all_received }) if stream >= per_core => {
                    *all_sent += sent;
                    *all_received += received;
                }
                _ => directions.push(DirectionCounts { sent, received }),
            }
        }
        if per_core == 1 {
            directions.clear();
        }
        let mut received = receiver.totals(numbered);
        if source.has_unnumbered_packets() {
            unnumbered.sent = totals.sent - numbered;
            unnumbered.created = dut.created_packets() - created_before;
            received = unnumbered.add_to(received);
        }
        let first = input.phases.first().copied().unwrap_or(Phase { load_pps: 0.0, duration_s: 0.0 });
        let mut trial = Trial::new(first.load_pps, input.duration_s(), totals, received);
        trial.directions = per_core as u8;
        if input.phases.len() > 1 {
            trial.phases = input.phases.clone();
        }
        trial.generator = PollTimes { gap_max: Duration::from_nanos(gap_ns), ..preempted };
        self.attribute_loss(dut, &mut trial, highest, drops_before, gap_limit_ns);
        trial.lateness_hdr = hdr::encode(lateness.histogram()).ok();
        trial.latency_hdr = hdr::encode(receiver.latency().histogram()).ok();
        let delays = (receiver.latency().count() != 0).then(|| receiver.latency().clone());
        let losses = loss_times(&receiver, input, &pacers).filter(|_| bins != 0);
        let variation = delay_variation(&receiver, streams);
        let tag_ns = receiver.tag_ns().map(|ns| ns as f64);
        let order = (0..streams).filter_map(|stream| receiver.displacements(stream as u8)).collect();
        Ok(TrialOutput {
            trial,
            delays,
            losses,
            delay_variation: variation,
            displacements: order,
            payload_verified: payload,
            tagged_latency_ns: tag_ns,
            directions,
            vnfs: receiver.groups(),
            ..TrialOutput::default()
        })
    }

    /// Sends the phases of all streams of this core and returns the preemption of this thread.
    fn send_all(
        &mut self,
        source: &mut PacketSource<'_>,
        pacers: &mut [Vec<Pacer>],
        receiver: &mut Receiver,
    ) -> PreemptionMeter {
        match pacers {
            [only] => self.send_stream(source, only, receiver),
            all => self.send_streams(source, all, receiver),
        }
    }

    /// Sends the phases of one stream and returns the preemption of this thread.
    fn send_stream(
        &mut self,
        source: &mut PacketSource<'_>,
        pacers: &mut [Pacer],
        receiver: &mut Receiver,
    ) -> PreemptionMeter {
        let mut preemption = PreemptionMeter::new();
        for pacer in pacers {
            while !pacer.is_finished() && !self.stop.load(Ordering::Relaxed) {
                self.poll_stream(source, 0, pacer, receiver, &mut preemption);
            }
        }
        preemption
    }

    /// Sends the phases of several streams in turn and returns the preemption of this thread.
    fn send_streams(
        &mut self,
        source: &mut PacketSource<'_>,
        pacers: &mut [Vec<Pacer>],
        receiver: &mut Receiver,
    ) -> PreemptionMeter {
        let mut preemption = PreemptionMeter::new();
        let phases = pacers.iter().map(Vec::len).min().unwrap_or(0);
        for phase in 0..phases {
            while pacers.iter().any(|all| !all[phase].is_finished()) && !self.stop.load(Ordering::Relaxed) {
                for (stream, all) in pacers.iter_mut().enumerate() {
                    self.poll_stream(source, stream, &mut all[phase], receiver, &mut preemption);
                }
            }
        }
        preemption
    }

    /// Sends the packets of a stream that are due and receives.
    #[inline(always)]
    fn poll_stream(
        &mut self,
        source: &mut PacketSource<'_>,
        stream: usize,
        pacer: &mut Pacer,
        receiver: &mut Receiver,
        preemption: &mut PreemptionMeter,
    ) {
        let (now, before) = (clock::cycles(), preemption.last);
        preemption.update(now);
        let due = source.due(stream, pacer, now);
        if due != 0 {
            if let Some(log) = &mut self.probe_log {
                log.due = pacer.next_due().map_or(now, |due| due.min(now));
            }
            let sent = self.send(source, stream, due, Purpose::Trial);
            pacer.sent(sent, now);
            if sent < due {
                self.record_no_buffer(now - before);
            }
        }
        self.receive(receiver);
        self.publish(receiver, now);
    }

    /// Publishes the start of a trial.
    fn start_progress(&mut self, receiver: &Receiver) {
        self.publish_at = 0;
        self.publish(receiver, clock::cycles());
        self.progress.start();
    }

    /// Publishes the progress if it is time to.
    #[inline(always)]
    fn publish(&mut self, receiver: &Receiver, now: u64) {
        self.publish_latencies(now, || (receiver.latency().count(), receiver.latency_sum_ns()));
    }

    /// Publishes the progress with the number of latencies and their sum if it is time to.
    #[inline(always)]
    fn publish_latencies(&mut self, now: u64, latencies: impl FnOnce() -> (u64, u64)) {
        if now >= self.publish_at {
            let (latencies, latency_sum_ns) = latencies();
            let (sent, received) = self.counts();
            let counts = LiveCounts { sent, received, latencies, latency_sum_ns, at: now };
            self.publish_at = self.progress.publish(counts);
        }
    }

    /// Adds the time since the last poll if the pool is empty.
    #[cold]
    fn record_no_buffer(&mut self, ticks: u64) {
        if self.buffers.take_exhausted() {
            self.no_buffer_ticks += ticks;
        }
    }

    /// Adds what is known of the device after a trial with the highest load `load_pps`, and whether the host caused the
    /// loss. `drops_before` are the packets that NFs had dropped before.
    fn attribute_loss(
        &mut self,
        dut: &impl DutStatus,
        trial: &mut Trial,
        load_pps: f64,
        drops_before: u64,
        generator_limit_ns: u64,
    ) {
        trial.dut = dut.take_poll_times();
        trial.dropped_by_nfs = dut.dropped_by_nfs().saturating_sub(drops_before);
        trial.tx_full = self.take_tx_full();
        let no_buffer_s = core::mem::take(&mut self.no_buffer_ticks) as f64 / clock::hz() as f64;
        trial.unsent_no_buffer = trial.unsent.min((no_buffer_s * load_pps).round() as u64);
        trial.host_interference =
            loss_is_host_interference(trial, load_pps, dut.queue_size(), dut.works_in_generator(), generator_limit_ns);
    }

    /// Returns the packets of all cores that did not fit into the queue to the device since the last call.
    fn take_tx_full(&mut self) -> u64 {
        let further: u64 = self.further.iter_mut().map(|core| core.generator.take_tx_full()).sum();
        std::mem::take(&mut self.tx_full) + further
    }

    fn in_flight(&self, quiet: Duration, trial_s: f64) -> InFlight {
        let (sent, received) = self.counts();
        let outstanding = (sent - self.before.0).saturating_sub(received - self.before.1);
        InFlight { sent, received, outstanding, quiet, trial_s }
    }

    /// Receives until the device is drained or the time limit is exceeded.
    fn drain(&mut self, dut: &impl DutStatus, receiver: &mut Receiver, trial_s: f64) {
        let ended = clock::cycles();
        let (mut last, mut checked) = (ended, ended);
        let mut received = self.counts().1;
        loop {
            let now = clock::cycles();
            self.receive(receiver);
            let received_before = std::mem::replace(&mut received, self.counts().1);
            if received != received_before {
                last = now;
            }
            if now - ended > ticks(dut.drain_timeout()) {
                break;
            }
            if now - checked > ticks(QUIET_TIME) && now - last > ticks(QUIET_TIME) {
                let quiet = Duration::from_secs_f64((now - last) as f64 / clock::hz() as f64);
                if dut.is_drained(&self.in_flight(quiet, trial_s)) {
                    break;
                }
                checked = now;
            }
        }
    }

    /// Sends warm-up packets at a low rate, so that no worker sleeps when the trial starts. They are not counted in the
    /// trial; returns their counts for the accounting of unnumbered packets.
    fn warm_up(&mut self, dut: &impl DutStatus, source: &mut PacketSource<'_>) -> UnnumberedCounts {
        let mut unnumbered = UnnumberedCounts::default();
        for _ in 0..WARM_UP_ATTEMPTS {
            let (hz, from) = (clock::hz(), clock::cycles());
            let streams = source.streams.len() as u64;
            let mut before = Receiver::new(source.probe_offset(), 0, 0, hz);
            before.set_stream(WARM_UP_STREAM, Sequence::new(0, WARM_UP_PACKETS * streams));
            let sequences: Vec<u64> = self.tx.iter().map(|tx| tx.sequence).collect();
            let mut sent = 0;
            for n in 0..WARM_UP_PACKETS {
                while clock::cycles() < from + n * hz / 200_000 {
                    self.receive(&mut before);
                }
                for stream in 0..streams {
                    sent += self.send(source, stream as usize, 1, Purpose::WarmUp(n * streams + stream)) as u64;
                }
            }
            let mut numbered = 0;
            for (tx, sequence) in self.tx.iter_mut().zip(sequences) {
                numbered += tx.sequence - sequence;
                tx.sequence = sequence;
            }
            unnumbered.warm_up += sent - numbered;
            // packets without a number must not be counted in the trial
            let awake = !source.has_unnumbered_packets() || self.drain_warm_up(dut, &mut before);
            let received = before.totals(numbered);
            unnumbered.before.foreign += received.foreign;
            unnumbered.before.duplicate += received.duplicate;
            if awake {
                break;
            }
        }
        unnumbered
    }

    /// Waits until all warm-up packets are received or lost. Returns true if that was short enough for the workers to
    /// stay awake.
    fn drain_warm_up(&mut self, dut: &impl DutStatus, before: &mut Receiver) -> bool {
        let ended = clock::cycles();
        while clock::cycles() - ended < ticks(WARM_UP_TIMEOUT) {
            self.receive(before);
            if dut.is_drained(&self.in_flight(Duration::ZERO, 0.0)) {
                // processes the batch that was received last
                self.receive(before);
                return true;
            }
        }
        self.drain(dut, before, 0.0);
        false
    }

    /// Sends up to `due` packets of a stream and returns how many; fewer if the buffer pool is empty. Packets that do
    /// not fit into the device's queue are lost, as in a NIC.
    #[inline(always)]
    fn send(&mut self, source: &mut PacketSource<'_>, stream: usize, due: usize, purpose: Purpose) -> usize {
        match &mut source.streams[stream] {
            StreamSource::Synthetic(synthetic) => self.send_from(synthetic, stream, due, purpose),
            StreamSource::Replay(replay) => self.send_from(replay, stream, due, purpose),
            StreamSource::Tcp(_) => 0,
        }
    }

    #[inline(always)]
    fn send_from(&mut self, source: &mut impl Source, stream: usize, due: usize, purpose: Purpose) -> usize {
        let PacketGenerator { tx, ports, buffers, sent, tx_full, first_stream, probe_log, .. } = self;
        let tx = &mut tx[stream];
        let port = &mut ports[tx.port];
        let (number, is_connected) = (*first_stream + stream as u8, tx.is_connected);
        let mut transmit = |burst: &mut Batch| match is_connected {
            true => {
                *sent += port.tx.send(burst) as u64;
                *tx_full += burst.len() as u64;
            }
            false => burst.clear(),
        };
        let (mut left, mut is_exhausted) = (due, false);
        while left != 0 && !is_exhausted {
            let mut burst = Batch::new();
            let (stamp, first) = (clock::cycles(), tx.sequence);
            while left != 0 && !burst.is_full() {
                let next = match purpose {
                    Purpose::Trial => source.packet(Probe { stream: number, sequence: tx.sequence, stamp }, buffers),
                    Purpose::WarmUp(sequence) => {
                        source.warm_up_packet(Probe { stream: WARM_UP_STREAM, sequence, stamp }, buffers)
                    }
                };
                let Some((packet, numbered)) = next else {
                    is_exhausted = true;
                    break;
                };
                tx.sequence += u64::from(numbered);
                left -= 1;
                burst.push(packet).unwrap_or_else(drop);
            }
            if let Some(log) = probe_log {
                log.departs(number, first..tx.sequence);
            }
            transmit(&mut burst);
        }
        due - left
    }

    /// Frees the packets that are kept for sending again; their payload belongs to other frames.
    pub(crate) fn free_recycled(&mut self) {
        self.buffers.free_recycled();
        self.further.iter_mut().for_each(|core| core.generator.free_recycled());
    }

    /// Processes the batches received by the last call, whose bytes were prefetched from the other core's cache in the
    /// meantime, and receives the next ones. Returns the number of packets received.
    fn receive(&mut self, receiver: &mut Receiver) -> usize {
        let mut all = 0;
        for (port, (arrived, at)) in self.ports.iter_mut().zip(&mut self.arrived) {
            if !arrived.is_empty() {
                let (mut damaged, mut foreign) = (false, false);
                let mut note = |arrival: Arrival| {
                    damaged |= arrival == Arrival::Corrupt;
                    foreign |= arrival == Arrival::Foreign;
                };
                match &mut self.exchange {
                    None => arrived.for_each(|packet| note(receiver.take(packet.data(), *at))),
                    Some(exchange) => arrived.for_each(|packet| {
                        note(receiver.take_or(packet.data(), *at, |probe| exchange.forward(probe, *at)));
                    }),
                }
                if foreign && let Some(mac) = self.mac {
                    let answers = answer_requests(arrived, mac, &mut self.buffers, &mut port.tx);
                    self.answers += answers;
                    self.sent += answers;
                }
                if damaged {
                    // a recycled packet would be sent with the damaged payload
                    arrived.clear();
                }
                self.buffers.recycle(arrived);
            }
            let n = port.rx.receive(arrived);
            if n != 0 {
                all += n;
                self.received += n as u64;
                *at = clock::cycles();
                arrived.prefetch();
            }
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.poll(receiver);
            exchange.shared.set_counts(exchange.core, self.sent, self.received);
        }
        all
    }

    /// Sends packets of a stream at an interval and compares each received packet with the one sent. Returns the number
    /// of packets that were not received within `timeout`, and the first error of `compare`.
    pub(crate) fn check_forwarding(
        &mut self,
        source: &mut PacketSource<'_>,
        stream: usize,
        packets: u64,
        interval: Duration,
        timeout: Duration,
        compare: impl Fn(&[u8], &[u8]) -> Result<(), String>,
    ) -> (u64, Option<String>) {
        self.mac = source.host_mac();
        let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut error = None;
        let (first, start) = (self.tx[stream].sequence, clock::cycles());
        let mut count = 0;
        let mut buffers = Batch::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now = clock::cycles();
            if count < packets && now >= start + count * ticks(interval) {
                let before = self.tx[stream].sequence;
                if let Some(packet) = self.next_packet(source, stream) {
                    let tx = &self.tx[stream];
                    if tx.sequence > before {
                        sent.insert(before, packet.data().to_vec());
                    }
                    if buffers.push(packet).is_ok() {
                        self.sent += self.ports[tx.port].tx.send(&mut buffers) as u64;
                        buffers.clear();
                    }
                }
                count += 1;
            }
            let own = self.ports.iter_mut().zip(&mut self.arrived);
            // the device may distribute packets to the queues of all cores
            let others = self.further.iter_mut().map(|core| &mut core.generator);
            let others = others.flat_map(|generator| generator.ports.iter_mut().zip(&mut generator.arrived));
            for (port, (arrived, _)) in own.chain(others) {
                self.received += port.rx.receive(arrived) as u64;
                if let Some(mac) = self.mac {
                    let answers = answer_requests(arrived, mac, &mut self.buffers, &mut port.tx);
                    self.answers += answers;
                    self.sent += answers;
                }
                arrived.for_each(|packet| {
                    let (Reading::Probe(probe), _) = Probe::read_at(packet.data(), usize::MAX) else { return };
                    let Some(original) = sent.remove(&probe.sequence) else { return };
                    if let Err(problem) = compare(&original, packet.data()) {
                        error.get_or_insert(problem);
                    }
                });
                self.buffers.recycle(arrived);
            }
            let end = start + packets * ticks(interval);
            if count >= packets && (sent.is_empty() || now > end + ticks(timeout)) {
                break;
            }
        }
        let tx = &mut self.tx[stream];
        tx.sequence = tx.sequence.max(first + packets);
        (sent.len() as u64, error)
    }

    /// Returns the next packet of a stream, numbered if it has room; none if the buffer pool is empty.
    fn next_packet(&mut self, source: &mut PacketSource<'_>, stream: usize) -> Option<Packet> {
        let tx = &mut self.tx[stream];
        let probe = Probe { stream: stream as u8, sequence: tx.sequence, stamp: clock::cycles() };
        let (packet, numbered) = match &mut source.streams[stream] {
            StreamSource::Synthetic(synthetic) => synthetic.packet(probe, &mut self.buffers),
            StreamSource::Replay(replay) => replay.packet(probe, &mut self.buffers),
            StreamSource::Tcp(_) => None,
        }?;
        tx.sequence += u64::from(numbered);
        Some(packet)
    }
}

impl Drop for PacketGenerator {
    /// Receives and frees the remaining packets.
    fn drop(&mut self) {
        let mut receiver = Receiver::new(0, 0, 0, clock::hz());
        while self.receive(&mut receiver) != 0 {}
        self.receive(&mut receiver);
        self.buffers.clear();
    }
}

/// Answers the ARP requests and neighbor solicitations among received packets; returns how many.
#[cold]
fn answer_requests(arrived: &mut Batch, mac: MacAddr, buffers: &mut Buffers, tx: &mut TxQueue) -> u64 {
    let mut answers = Batch::new();
    arrived.for_each(|packet| {
        if let Some(frame) = neighbors::answer(packet.data(), mac)
            && let Some(mut answer) = buffers.empty_packet()
            && let Some(room) = answer.append(frame.len())
        {
            room.copy_from_slice(&frame);
            // as large as a batch of requests
            let _ = answers.push(answer);
        }
    });
    tx.send(&mut answers) as u64
}

/// Departures of the packets of several schedules.
struct Departures {
    totals: pacer::Totals,
    lateness: Delays,
    /// Longest time between two polls, nanoseconds, and the shortest that leaves packets unsent.
    gap_ns: u64,
    gap_limit_ns: u64,
}

impl Departures {
    /// Ends schedules and adds up their counts.
    fn of<'a>(pacers: impl Iterator<Item = &'a mut Pacer>) -> Departures {
        let (totals, lateness) = (pacer::Totals::default(), Delays::new());
        let mut all = Departures { totals, lateness, gap_ns: 0, gap_limit_ns: u64::MAX };
        for pacer in pacers {
            pacer.stop();
            let counts = pacer.totals();
            all.totals.intended += counts.intended;
            all.totals.sent += counts.sent;
            all.totals.unsent += counts.unsent;
            all.lateness.add(pacer.lateness());
            all.gap_ns = all.gap_ns.max(pacer.poll_gap_max_ns());
            all.gap_limit_ns = all.gap_limit_ns.min(pacer.gap_limit_ns());
        }
        all
    }
}

/// Returns the number of the packet that is due `at_s` seconds after the start.
fn packet_number_at(phases: &[Phase], at_s: f64) -> u64 {
    let (mut start_s, mut number) = (0.0, 0.0);
    for phase in phases {
        let within_s = (at_s - start_s).clamp(0.0, phase.duration_s);
        number += within_s * phase.load_pps;
        start_s += phase.duration_s;
    }
    number as u64
}

/// Returns a schedule for each phase, consecutively from tick 0: the share of a core, given by its index and the number of
/// cores.
fn schedule(
    source: &PacketSource<'_>,
    stream: usize,
    phases: &[Phase],
    share: (usize, usize),
    hz: u64,
) -> Result<Vec<Pacer>, PaceError> {
    if let Some(timing) = source.timing(stream) {
        return phases.iter().map(|phase| timing.pacer(phase, hz)).collect();
    }
    let mut start_s = 0.0;
    let pacer = |phase: &Phase| {
        let at = (start_s * hz as f64) as u64;
        start_s += phase.duration_s;
        let Phase { load_pps, duration_s } = share::share_of(phase, share);
        Pacer::new(Pace::new(load_pps, duration_s, hz), at)
    };
    phases.iter().map(pacer).collect()
}

/// Returns the number of scheduled packets of all phases.
fn intended(pacers: &[Pacer]) -> u64 {
    pacers.iter().map(|pacer| pacer.totals().intended).sum()
}

/// Returns the ticks by which a stream starts later than the first, so that the bursts of streams interleave; up to 1
/// µs.
fn stream_offset(phases: &[Phase], stream: usize, streams: usize, hz: u64) -> u64 {
    let load_pps = phases.first().map_or(1.0, |phase| phase.load_pps);
    let interval_s = (BURST / load_pps).min(1e-6);
    (interval_s * stream as f64 / streams as f64 * hz as f64) as u64
}

/// Returns the times of lost packets of all streams together.
fn loss_times(receiver: &Receiver, input: &TrialInput, pacers: &[Vec<Pacer>]) -> Option<LossTimes> {
    let of = |(stream, pacers): (usize, &Vec<Pacer>)| {
        let sent: Vec<u64> = pacers.iter().map(|p| p.totals().sent).collect();
        Some(DepartureTimes::new(&input.phases, &sent).loss_times(receiver.losses(stream as u8)?, input.loss_bins))
    };
    pacers.iter().enumerate().filter_map(of).reduce(LossTimes::plus)
}

/// Returns the delay variation: differences between consecutive packets of each stream, of all streams together. The
/// jitter of RFC 3550 is that of stream 0, its highest value that of all streams.
fn delay_variation(receiver: &Receiver, streams: usize) -> Option<DelayVariationOutput> {
    let first = receiver.variation(0)?;
    let mut all = DelayVariationOutput {
        ipdv: first.ipdv().amounts(),
        rising: first.ipdv().above(),
        rfc3550_ns: first.jitter_ns().unwrap_or(0.0),
        rfc3550_max_ns: first.jitter_max_ns().unwrap_or(0.0),
    };
    for other in (1..streams).filter_map(|stream| receiver.variation(stream as u8)) {
        all.ipdv.add(&other.ipdv().amounts());
        all.rising += other.ipdv().above();
        all.rfc3550_max_ns = all.rfc3550_max_ns.max(other.jitter_max_ns().unwrap_or(0.0));
    }
    Some(all)
}

fn ticks(time: Duration) -> u64 {
    (time.as_secs_f64() * clock::hz() as f64) as u64
}
