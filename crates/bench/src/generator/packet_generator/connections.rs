//! Trials of TCP connections: the generator is client and server. A connection counts with all frames that its client
//! sends if nothing is lost: intended if it is scheduled, sent if it is opened, received if it is completed.

use super::preemption::PreemptionMeter;
use super::{Departures, DutStatus, PacketGenerator, QUIET_TIME, answer_requests, ticks};
use crate::generator::packet_source::{Buffers, Endpoints};
use crate::trial::{ConnectionsOutput, Phase, Trial, TrialInput, TrialOutput};
use packet::{Batch, Packet, clock};
use report::hdr;
use runtime::PortQueues;
use std::sync::atomic::Ordering;
use std::time::Duration;
use traffic::latency::Scale;
use traffic::tcp::{NotSegment, Segment, Transmit};
use traffic::{Pace, PaceError, Pacer, pacer, receiver};

/// Delay after which a connection that is due is not opened any more. Longer than that of packets, as the clients also
/// answer segments.
const LATE_LIMIT_NS: u64 = 2_000_000;
/// Connections of the warm-up, their interval, and the time limit until all are established.
const WARM_UP_CONNECTIONS: u64 = 64;
const WARM_UP_INTERVAL: Duration = Duration::from_micros(5);
const WARM_UP_TIMEOUT: Duration = Duration::from_millis(100);

/// State of a trial.
struct Connections<'a> {
    endpoints: &'a mut Endpoints,
    /// Index of the clients' port.
    client_port: usize,
    scale: Scale,
    /// Frames to be sent, of each port.
    batches: Vec<Batch>,
    /// Frames of servers that answer directly.
    direct: Vec<Packet>,
    /// Frames with a wrong checksum or length.
    corrupt: u64,
    /// True if a port had a full batch, and more may wait.
    has_backlog: bool,
    /// True if no pair of client address and port was left when a connection was due.
    exhausted: bool,
}

/// Destination of frames.
#[derive(Clone, Copy)]
enum Destination {
    /// The port with this index.
    Port(usize),
    /// The clients.
    Clients,
}

/// Sends frames.
struct Sender<'a> {
    ports: &'a mut [PortQueues],
    batches: &'a mut [Batch],
    direct: &'a mut Vec<Packet>,
    buffers: &'a mut Buffers,
    sent: &'a mut u64,
    tx_full: &'a mut u64,
    destination: Destination,
    /// The frame that is being written.
    pending: Option<Packet>,
}

impl Sender<'_> {
    /// Sends the queued frames of a port.
    fn send_queued(&mut self, port: usize) {
        let batch = &mut self.batches[port];
        if !batch.is_empty() {
            *self.sent += self.ports[port].tx.send(batch) as u64;
            *self.tx_full += batch.len() as u64;
            batch.clear();
        }
    }

    fn queue_pending(&mut self) {
        let Some(packet) = self.pending.take().filter(|packet| packet.len() != 0) else { return };
        match self.destination {
            Destination::Clients => self.direct.push(packet),
            Destination::Port(port) => {
                if let Err(packet) = self.batches[port].push(packet) {
                    self.send_queued(port);
                    self.batches[port].push(packet).unwrap_or_else(drop);
                }
            }
        }
    }
}

impl Transmit for Sender<'_> {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.queue_pending();
        self.pending.insert(self.buffers.empty_packet()?).append(len)
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        self.queue_pending();
    }
}

impl PacketGenerator {
    /// Opens connections at the rate of the load, waits until all are closed or failed, and counts.
    ///
    /// # Errors
    /// If the load or the duration is out of range.
    pub(super) fn run_connections(
        &mut self,
        dut: &impl DutStatus,
        endpoints: &mut Endpoints,
        input: &TrialInput,
    ) -> Result<TrialOutput, PaceError> {
        let hz = clock::hz();
        let frames = u64::from(endpoints.settings.client_frames());
        let mut at_s = 0.0;
        let pacer = |phase: &Phase| {
            let at = (at_s * hz as f64) as u64;
            at_s += phase.duration_s;
            // one connection at least
            let per_second = (phase.load_pps / frames as f64).max(1.0 / phase.duration_s);
            let pace = Pace::new(per_second, phase.duration_s, hz);
            Pacer::new(Pace { late_limit_ns: LATE_LIMIT_NS, ..pace }, at)
        };
        let mut pacers = input.phases.iter().map(pacer).collect::<Result<Vec<_>, _>>()?;
        self.before = (self.sent, self.received);
        self.mac = Some(endpoints.host_mac);
        let mut state = Connections {
            endpoints,
            client_port: self.tx.first().map_or(0, |tx| tx.port),
            scale: Scale::new(hz),
            batches: self.ports.iter().map(|_| Batch::new()).collect(),
            direct: vec![],
            corrupt: 0,
            has_backlog: false,
            exhausted: false,
        };
        dut.take_poll_times();
        // where connections are held, the room for them is measured, and those of a warm-up would take some
        match input.hold_s {
            None => self.warm_up_connections(&mut state),
            Some(_) => state.endpoints.reset_counts(),
        }
        let hold = input.hold_s.map_or(state.endpoints.settings.hold, Duration::from_secs_f64);
        state.endpoints.client.set_hold_ns(hold.as_nanos() as u64);
        let drops_before = dut.dropped_by_nfs();
        let start = clock::cycles() + hz / 10_000;
        pacers.iter_mut().for_each(|pacer| pacer.put_off(start));
        self.no_buffer_ticks = 0;
        self.take_tx_full();
        self.publish_at = 0;
        self.publish_latencies(clock::cycles(), || (0, 0));
        self.progress.start();
        let preemption = self.open_connections(&mut state, &mut pacers);
        self.progress.end();
        self.close_connections(dut, &mut state, hold, input.duration_s());
        let departures = Departures::of(pacers.iter_mut());
        let mut output = connections_output(&state, &departures, &preemption, input);
        let highest = input.phases.iter().map(|phase| phase.load_pps).fold(0.0, f64::max);
        self.attribute_loss(dut, &mut output.trial, highest, drops_before, departures.gap_limit_ns);
        Ok(output)
    }

    /// Establishes a few connections at a low rate, so that no worker sleeps when the trial starts. They are not counted.
    fn warm_up_connections(&mut self, state: &mut Connections<'_>) {
        state.endpoints.reset_counts();
        let from = clock::cycles();
        let mut opened = 0;
        loop {
            let now = clock::cycles();
            if opened < WARM_UP_CONNECTIONS && now >= from + opened * ticks(WARM_UP_INTERVAL) {
                self.open_connection(state, now);
                opened += 1;
            }
            self.poll_connections(state, now);
            let counts = state.endpoints.client.counts();
            let are_established = opened == WARM_UP_CONNECTIONS && counts.established + counts.failed.sum() >= opened;
            if are_established || now - from > ticks(WARM_UP_TIMEOUT) || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        // those without hold time close meanwhile
        let until = clock::cycles() + ticks(QUIET_TIME);
        while state.endpoints.client.counts().open() != 0 && clock::cycles() < until {
            self.poll_connections(state, clock::cycles());
        }
        state.endpoints.client.abandon();
        state.endpoints.reset_counts();
        (state.corrupt, state.exhausted) = (0, false);
    }

    /// Opens the connections that are due and keeps up with those that are open. Returns the preemption of this thread.
    fn open_connections(&mut self, state: &mut Connections<'_>, pacers: &mut [Pacer]) -> PreemptionMeter {
        let mut preemption = PreemptionMeter::new();
        for pacer in pacers {
            while !pacer.is_finished() && !self.stop.load(Ordering::Relaxed) {
                let (now, before) = (clock::cycles(), preemption.last);
                preemption.update(now);
                let due = pacer.due(now);
                // open connections come first: their segments would be lost if a queue overflowed
                if !state.has_backlog {
                    let opened = (0..due).take_while(|_| self.open_connection(state, now)).count();
                    pacer.sent(opened, now);
                    if opened < due {
                        state.exhausted = true;
                    }
                }
                self.poll_connections(state, now);
                if self.buffers.take_exhausted() {
                    self.no_buffer_ticks += now - before;
                }
                let client = &state.endpoints.client;
                self.publish_latencies(now, || (client.delays()[0].count(), client.setup_sum_ns()));
            }
        }
        preemption
    }

    /// Waits until all connections are closed or failed, and gives up the others when nothing is left to wait for.
    fn close_connections(&mut self, dut: &impl DutStatus, state: &mut Connections<'_>, hold: Duration, trial_s: f64) {
        let settings = state.endpoints.settings;
        let attempts = (2_u32 << settings.retries) - 1;
        let limit = ticks(hold + settings.timeout * attempts + dut.drain_timeout());
        let ended = clock::cycles();
        let (mut last, mut checked, mut received) = (ended, ended, self.received);
        while state.endpoints.client.counts().open() != 0 && !self.stop.load(Ordering::Relaxed) {
            let now = clock::cycles();
            self.poll_connections(state, now);
            if std::mem::replace(&mut received, self.received) != self.received {
                last = now;
            }
            if now - ended > limit {
                break;
            }
            let may_be_drained = settings.retries == 0 && now - ended > ticks(hold + QUIET_TIME);
            if may_be_drained && now - checked > ticks(QUIET_TIME) && now - last > ticks(QUIET_TIME) {
                let quiet = Duration::from_secs_f64((now - last) as f64 / clock::hz() as f64);
                if dut.is_drained(&self.in_flight(quiet, trial_s)) {
                    break;
                }
                checked = now;
            }
        }
        state.endpoints.client.abandon();
    }

    /// Opens a connection; false if no pair of address and port is left.
    fn open_connection(&mut self, state: &mut Connections<'_>, now: u64) -> bool {
        let now_ns = state.scale.ns(now.saturating_sub(state.endpoints.created));
        let mut sender = Sender {
            ports: &mut self.ports,
            batches: &mut state.batches,
            direct: &mut state.direct,
            buffers: &mut self.buffers,
            sent: &mut self.sent,
            tx_full: &mut self.tx_full,
            destination: Destination::Port(state.client_port),
            pending: None,
        };
        state.endpoints.client.open(now_ns, &mut sender)
    }

    /// Receives from all ports, answers, and closes or gives up the connections whose time has come.
    fn poll_connections(&mut self, state: &mut Connections<'_>, now: u64) {
        state.has_backlog = false;
        for port in 0..self.ports.len() {
            let mut arrived = std::mem::take(&mut self.arrived[port].0);
            // left from trials of packets
            arrived.clear();
            let n = self.ports[port].rx.receive(&mut arrived);
            if n != 0 {
                self.received += n as u64;
                state.has_backlog |= arrived.is_full();
                arrived.prefetch();
                self.take_segments(state, port, &mut arrived);
            }
            self.arrived[port].0 = arrived;
        }
        let PacketGenerator { ports, buffers, sent, tx_full, .. } = self;
        let Connections { endpoints, client_port, scale, batches, direct, .. } = state;
        let now_ns = scale.ns(now.saturating_sub(endpoints.created));
        let destination = Destination::Port(*client_port);
        let mut sender = Sender { ports, batches, direct, buffers, sent, tx_full, destination, pending: None };
        endpoints.client.poll(now_ns, &mut sender);
        sender.queue_pending();
        for port in 0..sender.ports.len() {
            sender.send_queued(port);
        }
    }

    /// Passes the segments of a batch to clients and servers.
    fn take_segments(&mut self, state: &mut Connections<'_>, port: usize, arrived: &mut Batch) {
        let PacketGenerator { ports, buffers, sent, tx_full, .. } = self;
        let Connections { endpoints, client_port, scale, batches, direct, corrupt, .. } = state;
        let now_ns = scale.ns(clock::cycles().saturating_sub(endpoints.created));
        let (to_servers, to_clients) = match endpoints.settings.dsr {
            true => (Destination::Port(*client_port), Destination::Clients),
            false => (Destination::Port(*client_port), Destination::Port(port)),
        };
        let Endpoints { client, server, .. } = &mut **endpoints;
        let mut has_foreign = false;
        let mut sender =
            Sender { ports, batches, direct, buffers, sent, tx_full, destination: to_servers, pending: None };
        arrived.for_each(|packet| match Segment::parse(packet.data()) {
            Ok(segment) if client.is_destination(&segment) => {
                sender.queue_pending();
                sender.destination = to_servers;
                client.receive(&segment, now_ns, &mut sender);
            }
            Ok(segment) => {
                sender.queue_pending();
                sender.destination = to_clients;
                server.receive(&segment, &mut sender);
            }
            Err(NotSegment::Corrupt) => *corrupt += 1,
            Err(NotSegment::Foreign) => has_foreign = true,
        });
        sender.queue_pending();
        sender.destination = to_servers;
        for packet in std::mem::take(sender.direct) {
            if let Ok(segment) = Segment::parse(packet.data()) {
                client.receive(&segment, now_ns, &mut sender);
            }
        }
        drop(sender);
        if has_foreign && let Some(mac) = self.mac {
            let answers = answer_requests(arrived, mac, &mut self.buffers, &mut self.ports[port].tx);
            self.answers += answers;
            self.sent += answers;
        }
        self.buffers.recycle(arrived);
    }
}

/// Returns the output of a trial, without what the device knows.
fn connections_output(
    state: &Connections<'_>,
    departures: &Departures,
    preemption: &PreemptionMeter,
    input: &TrialInput,
) -> TrialOutput {
    let Endpoints { client, server, settings, .. } = &*state.endpoints;
    let frames = u64::from(settings.client_frames());
    let Departures { totals, lateness, gap_ns, .. } = departures;
    let [intended, sent, unsent] =
        [totals.intended, totals.sent, totals.unsent].map(|connections| connections * frames);
    let schedule = pacer::Totals { intended, sent, unsent };
    let counts = client.counts();
    let received = receiver::Totals {
        sent: schedule.sent,
        received: counts.completed * frames,
        lost: schedule.sent - counts.completed * frames,
        corrupt: state.corrupt,
        ..receiver::Totals::default()
    };
    let load_pps = input.phases.first().map_or(0.0, |phase| phase.load_pps);
    let mut trial = Trial::new(load_pps, input.duration_s(), schedule, received);
    trial.directions = 1;
    if input.phases.len() > 1 {
        trial.phases = input.phases.clone();
    }
    trial.generator = preemption.times(*gap_ns);
    let [setup, first_byte, transaction] = client.delays().map(Clone::clone);
    trial.lateness_hdr = hdr::encode(lateness.histogram()).ok();
    trial.latency_hdr = hdr::encode(setup.histogram()).ok();
    let connections = ConnectionsOutput {
        client: counts,
        server: server.counts(),
        exhausted: state.exhausted,
        most_open: client.most_open(),
        setup,
        first_byte,
        transaction,
    };
    trial.connections = Some(connections.document());
    let delays = (connections.setup.count() != 0).then(|| connections.setup.clone());
    TrialOutput { trial, delays, connections: Some(connections), ..TrialOutput::default() }
}
