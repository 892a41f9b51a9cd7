//! Trials of a profile: several streams, each with its own rate in every second.

use super::preemption::PreemptionMeter;
use super::{DutStatus, PacketGenerator, Purpose, TxStream};
use crate::generator::packet_source::{PacketSource, SyntheticFrames};
use crate::traffic_spec::profile::{StreamSecond, StreamTimetable, Timetable};
use crate::trial::{SecondCounts, StreamOutput, Trial, TrialInput, TrialOutput};
use packet::clock;
use report::hdr;
use std::sync::atomic::Ordering;
use traffic::{Delays, Pace, PaceError, Pacer, Receiver, Sequence, pacer};

/// State of a stream.
struct ProfileStream<'a> {
    plan: &'a StreamTimetable,
    /// Its index and the number of streams: streams of equal rate interleave evenly.
    index: (usize, usize),
    /// The next second.
    next: usize,
    /// The schedule of the current second.
    pacer: Pacer,
    /// True while the current second is sent.
    is_sending: bool,
    seconds: Vec<SecondCounts>,
}

impl<'a> ProfileStream<'a> {
    fn new(plan: &'a StreamTimetable, index: (usize, usize), hz: u64) -> Result<ProfileStream<'a>, PaceError> {
        // allocates its histogram before the first packet is due
        let pacer = Pacer::new(Pace::new(1.0, 1.0, hz), 0)?;
        let of = |entry: &StreamSecond| SecondCounts { intended: entry.intended(), ..SecondCounts::default() };
        let seconds = plan.seconds.iter().map(of).collect();
        Ok(ProfileStream { plan, index, next: 0, pacer, is_sending: false, seconds })
    }

    /// Returns true if no second is left.
    fn is_finished(&self) -> bool {
        !self.is_sending && self.next == self.seconds.len()
    }

    /// Starts the next second with packets; `start` is the tick of second 0. Returns false if there is none.
    fn start_next(&mut self, start: u64, hz: u64) -> Result<bool, PaceError> {
        while let Some(entry) = self.plan.seconds.get(self.next) {
            let second = self.next as u64;
            self.next += 1;
            if entry.intended() == 0 {
                continue;
            }
            let (n, all) = self.index;
            let offset = (hz as f64 / entry.pps * n as f64 / all as f64) as u64;
            let (pace, at) = (Pace::new(entry.pps, 1.0, hz), start + second * hz + offset);
            self.pacer.go_on(pace, at)?;
            self.is_sending = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// Records the counts of the current second.
    fn end_second(&mut self) {
        if !self.is_sending {
            return;
        }
        self.pacer.stop();
        let totals = self.pacer.totals();
        let second = &mut self.seconds[self.next - 1];
        (second.sent, second.unsent) = (totals.sent, totals.unsent);
        self.is_sending = false;
    }

    /// Ends the stream; packets of seconds that were not started count as unsent.
    fn close(&mut self) {
        self.end_second();
        for second in &mut self.seconds {
            second.unsent = second.intended - second.sent;
        }
    }
}

impl PacketGenerator {
    /// Sends the streams of a profile, waits until the device is drained, and counts.
    ///
    /// # Errors
    /// If a rate is out of range.
    pub(super) fn run_profile(
        &mut self,
        dut: &impl DutStatus,
        source: &mut PacketSource<'_>,
        input: &TrialInput,
    ) -> Result<TrialOutput, PaceError> {
        let hz = clock::hz();
        let Some(timetable) = source.timetable else {
            return Err(PaceError::Duration { seconds: input.duration_s(), rate_pps: 0.0 });
        };
        let first = self.tx.iter().map(|tx| tx.sequence).max().unwrap_or(0);
        let plans = timetable.streams();
        let mut receiver = Receiver::new(source.probe_offset(), first, plans[0].intended(), hz);
        for (stream, plan) in plans.iter().enumerate().skip(1) {
            receiver.set_stream(stream as u8, Sequence::new(first, plan.intended()));
        }
        // record about a million latencies per second
        receiver.sample((timetable.highest_pps() / 1e6) as u64);
        receiver.watch_parts();
        let stream = |(n, plan)| ProfileStream::new(plan, (n, plans.len()), hz);
        let mut streams = plans.iter().enumerate().map(stream).collect::<Result<Vec<_>, _>>()?;
        self.before = (self.sent, self.received);
        dut.take_poll_times();
        self.warm_up(dut, source);
        let drops_before = dut.dropped_by_nfs();
        let start = clock::cycles() + hz / 10_000;
        for (stream, state) in streams.iter_mut().enumerate() {
            if state.start_next(start, hz)? {
                receiver.begin_part(stream as u8, first);
            }
        }
        let port_streams = self.open_streams(timetable, first);
        self.no_buffer_ticks = 0;
        self.take_tx_full();
        self.start_progress(&receiver);
        let preemption =
            self.send_profile(&mut source.parts, &mut streams, &mut receiver, start, u64::from(timetable.seconds()));
        self.progress.end();
        self.drain(dut, &mut receiver, input.duration_s());
        self.tx = port_streams;
        let last = first + plans.iter().map(StreamTimetable::intended).max().unwrap_or(0);
        self.tx.iter_mut().for_each(|tx| tx.sequence = last);
        let preemption = preemption?;
        let mut output = self.profile_output(&mut streams, &receiver, input, &preemption);
        let gap_limit = streams.iter().map(|state| state.pacer.gap_limit_ns()).min().unwrap_or(u64::MAX);
        self.attribute_loss(dut, &mut output.trial, timetable.highest_pps(), drops_before, gap_limit);
        Ok(output)
    }

    /// Replaces the transmit state by one entry for each stream of the profile, numbered from `first`; returns the
    /// previous state.
    fn open_streams(&mut self, timetable: &Timetable, first: u64) -> Vec<TxStream> {
        let stream = |stream: &StreamTimetable| {
            let of_port = &self.tx[usize::from(stream.port).min(self.tx.len() - 1)];
            TxStream { port: of_port.port, is_connected: of_port.is_connected, sequence: first }
        };
        let streams = timetable.streams().iter().map(stream).collect();
        std::mem::replace(&mut self.tx, streams)
    }

    /// Sends all streams in turn until the last second ends. Returns the preemption of this thread.
    fn send_profile(
        &mut self,
        parts: &mut [Vec<SyntheticFrames<'_>>],
        streams: &mut [ProfileStream<'_>],
        receiver: &mut Receiver,
        start: u64,
        seconds: u64,
    ) -> Result<PreemptionMeter, PaceError> {
        let (hz, mut preemption) = (clock::hz(), PreemptionMeter::new());
        let end = start + seconds * hz;
        while !self.stop.load(Ordering::Relaxed) {
            let (mut now, before) = (clock::cycles(), preemption.last);
            preemption.update(now);
            if now >= end && streams.iter().all(ProfileStream::is_finished) {
                break;
            }
            for (stream, state) in streams.iter_mut().enumerate() {
                if !state.is_sending {
                    continue;
                }
                let due = state.pacer.due(now);
                if due != 0 {
                    let part = state.plan.seconds[state.next - 1].part;
                    let sent = self.send_from(&mut parts[stream][part], stream, due, Purpose::Trial);
                    state.pacer.sent(sent, now);
                    if sent < due {
                        self.record_no_buffer(now - before);
                    }
                    self.receive(receiver);
                    now = clock::cycles();
                    preemption.update(now);
                }
                if state.pacer.is_finished() {
                    state.end_second();
                    let from = state.next;
                    if state.start_next(start, hz)? {
                        // one part for each second, also for seconds without packets
                        (from..state.next).for_each(|_| receiver.begin_part(stream as u8, self.tx[stream].sequence));
                    }
                }
            }
            self.receive(receiver);
            self.publish(receiver, now);
        }
        Ok(preemption)
    }

    /// Returns the output of a trial of a profile, without what the device knows.
    fn profile_output(
        &self,
        streams: &mut [ProfileStream<'_>],
        receiver: &Receiver,
        input: &TrialInput,
        preemption: &PreemptionMeter,
    ) -> TrialOutput {
        let mut totals = pacer::Totals::default();
        let (mut lateness, mut gap) = (Delays::new(), 0);
        let mut outputs = vec![];
        for (stream, state) in streams.iter_mut().enumerate() {
            state.close();
            let quiet = state.seconds.iter().take_while(|second| second.intended == 0).count();
            for (second, received) in state.seconds[quiet..].iter_mut().zip(receiver.parts(stream as u8)) {
                second.received = received;
            }
            for second in &state.seconds {
                totals.intended += second.intended;
                totals.sent += second.sent;
                totals.unsent += second.unsent;
            }
            lateness.add(state.pacer.lateness());
            gap = gap.max(state.pacer.poll_gap_max_ns());
            let delays = receiver.stream_latency(stream as u8).filter(|delays| delays.count() != 0).cloned();
            outputs.push(StreamOutput { seconds: std::mem::take(&mut state.seconds), delays });
        }
        let load_pps = input.phases.first().map_or(0.0, |phase| phase.load_pps);
        let mut trial = Trial::new(load_pps, input.duration_s(), totals, receiver.totals(totals.sent));
        trial.directions = 1;
        trial.generator = preemption.times(gap);
        trial.lateness_hdr = hdr::encode(lateness.histogram()).ok();
        trial.latency_hdr = hdr::encode(receiver.latency().histogram()).ok();
        let delays = (receiver.latency().count() != 0).then(|| receiver.latency().clone());
        TrialOutput { trial, delays, streams: outputs, ..TrialOutput::default() }
    }
}
