//! Packet-level simulation of a DUT in virtual time, with the real schedule and the real receiver.

use std::collections::VecDeque;

use super::measurer::check;
use crate::trial::Trial;
use crate::trial::{DelayVariationOutput, LossTimes, Measurer, MeasurerError, TrialInput, TrialOutput};
use report::hdr;
use traffic::sequence::Arrival as Number;
use traffic::{Delays, FlowSettings, Flows, Mix, Pace, Pacer, Probe, Receiver, Template, pacer, receiver};

/// Ticks of the virtual clock per second.
const HZ: u64 = 1_000_000_000;

/// Fault of a [`PacketLevelDut`]. Packets of a trial are counted from 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// Drops every n-th packet.
    Drop {
        /// n.
        every: u64,
    },
    /// Duplicates every n-th packet.
    Duplicate {
        /// n.
        every: u64,
    },
    /// Swaps every n-th packet with the next one.
    Reorder {
        /// n, more than 1.
        every: u64,
    },
    /// Corrupts every n-th packet.
    Corrupt {
        /// n.
        every: u64,
    },
    /// Forwards nothing for a time, in which the queue overflows.
    Stall {
        /// Start, seconds after the start of the trial.
        at_s: f64,
        /// Duration in seconds.
        for_s: f64,
    },
}

/// A DUT with a generator and a receiver that share its clock.
#[derive(Debug)]
pub struct PacketLevelDut {
    template: Template,
    mix: Mix,
    capacity_pps: f64,
    queue: usize,
    latency_ns: u64,
    faults: Vec<Fault>,
    now: u64,
    sequence: u64,
}

/// State of a trial.
struct TrialState {
    receiver: Receiver,
    first: u64,
    start: u64,
    /// For each packet, true once it was received.
    received: Vec<bool>,
    /// Departure times of the packets in the queue, nanoseconds.
    leaving: VecDeque<f64>,
    left_at: f64,
    /// Packet that is sent after the next one, and its arrival time.
    held: Option<(Vec<u8>, u64)>,
    /// Number of the tagged packet, and its latency.
    tag: Option<(u64, Option<f64>)>,
    variation_state: Option<VariationState>,
}

/// State of the delay variation.
struct VariationState {
    before: Option<(u64, u64)>,
    variation: DelayVariationOutput,
}

impl PacketLevelDut {
    /// Creates a DUT with a capacity in packets per second, a queue of `queue` packets and an additional latency, and a
    /// generator that sends frames of `mix` in a hundred flows.
    ///
    /// # Errors
    /// A message if frames of these sizes cannot be built.
    pub fn new(capacity_pps: f64, queue: usize, latency_ns: u64, mix: &Mix) -> Result<PacketLevelDut, String> {
        let flows = Flows::new(FlowSettings { count: 100, ..FlowSettings::v4() }).map_err(|e| e.to_string())?;
        let template = Template::new(&flows, mix, true).map_err(|e| e.to_string())?;
        let capacity_pps = capacity_pps.clamp(1.0, 1e9);
        Ok(PacketLevelDut {
            template,
            mix: mix.clone(),
            capacity_pps,
            queue,
            latency_ns,
            faults: vec![],
            now: 0,
            sequence: 0,
        })
    }

    /// Adds a fault.
    pub fn with_fault(mut self, fault: Fault) -> PacketLevelDut {
        self.faults.push(fault);
        self
    }

    /// Returns true if a fault selected by `interval` affects packet number `n`, counted from 1.
    fn is_affected(&self, n: u64, interval: impl Fn(&Fault) -> Option<u64>) -> bool {
        self.faults.iter().filter_map(interval).any(|every| every != 0 && n.is_multiple_of(every))
    }

    /// Returns the time at which a packet is served that could be served at `at`, nanoseconds since the start of the
    /// trial.
    fn served(&self, mut at: f64) -> f64 {
        for fault in &self.faults {
            if let Fault::Stall { at_s, for_s } = fault
                && (at_s * 1e9..(at_s + for_s) * 1e9).contains(&at)
            {
                at = (at_s + for_s) * 1e9;
            }
        }
        at
    }

    /// Processes a packet that arrives at `now`.
    fn forward(&self, run: &mut TrialState, frame: &mut [u8], now: u64) {
        let number = self.sequence - run.first + 1;
        let since = (now - run.start) as f64;
        while run.leaving.front().is_some_and(|left| *left <= since) {
            run.leaving.pop_front();
        }
        let dropped =
            self.is_affected(number, |fault| if let Fault::Drop { every } = fault { Some(*every) } else { None });
        if dropped || run.leaving.len() >= self.queue.max(1) {
            return;
        }
        run.left_at = self.served(since.max(run.left_at)) + 1e9 / self.capacity_pps;
        run.leaving.push_back(run.left_at);
        let at = run.start + run.left_at as u64 + self.latency_ns;
        if self.is_affected(number, |fault| if let Fault::Corrupt { every } = fault { Some(*every) } else { None }) {
            frame[self.template.probe_at() + 9] ^= 0x10;
        }
        if self.is_affected(number, |fault| if let Fault::Reorder { every } = fault { Some(*every) } else { None }) {
            run.held = Some((frame.to_vec(), at));
            return;
        }
        run.arrive(frame, at);
        if self.is_affected(number, |fault| if let Fault::Duplicate { every } = fault { Some(*every) } else { None }) {
            run.arrive(frame, at);
        }
        if let Some((held, _)) = run.held.take() {
            run.arrive(&held, at);
        }
    }
}

impl TrialState {
    fn arrive(&mut self, frame: &[u8], at: u64) {
        let receiver::Arrival::Probe(Number::New | Number::Reordered) = self.receiver.take(frame, at) else { return };
        let (traffic::probe::Reading::Probe(probe), _) = Probe::read_at(frame, usize::MAX) else { return };
        let number = probe.sequence - self.first;
        let delay = probe.age(at);
        if let Some(received) = self.received.get_mut(number as usize) {
            *received = true;
        }
        if let Some((wanted, latency)) = &mut self.tag
            && *wanted == number
        {
            *latency = Some(delay as f64);
        }
        if let Some(variation_state) = &mut self.variation_state {
            variation_state.take(number, delay);
        }
    }
}

impl VariationState {
    fn take(&mut self, number: u64, delay: u64) {
        let VariationState { before, variation } = self;
        if let Some((last, of_last)) = before.replace((number, delay)) {
            if last + 1 == number {
                variation.ipdv.record(delay.abs_diff(of_last));
                variation.rising += u64::from(delay > of_last);
            }
            let jump = delay.abs_diff(of_last) as f64;
            variation.rfc3550_ns += (jump - variation.rfc3550_ns) / 16.0;
            variation.rfc3550_max_ns = variation.rfc3550_max_ns.max(variation.rfc3550_ns);
        }
    }
}

impl Measurer for PacketLevelDut {
    fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
        let duration_s = check(input)?;
        if input.disturbance.is_some() {
            let remedy = "input a simulated device that is not virtual";
            return Err(MeasurerError::Unsupported {
                dut: "the virtual device".to_owned(),
                what: "reset or changed",
                remedy,
            });
        }
        let start = self.now + 1000;
        let mut pacers = vec![];
        let mut at = start;
        for phase in &input.phases {
            pacers.push((at, Pacer::new(Pace::new(phase.load_pps, phase.duration_s, HZ), at)?));
            at += (phase.duration_s * HZ as f64) as u64;
        }
        let intended = pacers.iter().map(|(_, pacer)| pacer.totals().intended).sum();
        let mut run = TrialState {
            receiver: Receiver::new(self.template.probe_at(), self.sequence, intended, HZ),
            first: self.sequence,
            start,
            received: vec![false; intended as usize],
            leaving: VecDeque::new(),
            left_at: 0.0,
            held: None,
            tag: input.tagged_at_s.map(|tag_s| ((tag_s * input.phases[0].load_pps) as u64, None)),
            variation_state: input.delay_variation.then(|| VariationState {
                before: None,
                variation: DelayVariationOutput {
                    ipdv: Delays::new(),
                    rising: 0,
                    rfc3550_ns: 0.0,
                    rfc3550_max_ns: 0.0,
                },
            }),
        };
        if input.displacement {
            run.receiver.watch_density();
        }
        if input.verify_payload {
            run.receiver.check_payload();
        }
        let mut totals = pacer::Totals::default();
        let (mut sizes, mut picker) = (self.mix.cycle(), self.template.flows().picker(0, 1));
        let mut frame = vec![0; 9300];
        for (_, pacer) in &mut pacers {
            while let Some(due) = pacer.next_due() {
                // a burst is sent when its first packet is due, so the clock does not go back
                self.now = self.now.max(due);
                let burst = pacer.due(self.now);
                for _ in 0..burst {
                    let probe = Probe { stream: 0, sequence: self.sequence, stamp: self.now };
                    let len = self.template.fill(sizes.next_index(), picker.next_flow(), probe, &mut frame);
                    self.forward(&mut run, &mut frame[..len], self.now);
                    self.sequence += 1;
                }
                pacer.sent(burst, self.now);
                if burst == 0 {
                    self.now += 1;
                }
            }
            let part = pacer.totals();
            totals.intended += part.intended;
            totals.sent += part.sent;
            totals.unsent += part.unsent;
        }
        if let Some((held, at)) = run.held.take() {
            run.arrive(&held, at);
        }
        self.now = self.now.max(start + run.left_at as u64) + self.latency_ns;
        let mut trial = Trial::new(input.phases[0].load_pps, duration_s, totals, run.receiver.totals(totals.sent));
        trial.latency_hdr = hdr::encode(run.receiver.latency().histogram()).ok();
        let losses = (input.loss_bins != 0).then(|| losses(input, &run.received, duration_s));
        let delays = run.receiver.latency();
        let delays = (delays.count() != 0).then(|| delays.clone());
        let variation = run.variation_state.map(|variation_state| variation_state.variation);
        Ok(TrialOutput {
            trial,
            delays,
            losses,
            delay_variation: variation,
            displacements: run.receiver.displacements(0).into_iter().collect(),
            payload_verified: input.verify_payload,
            tagged_latency_ns: run.tag.and_then(|(_, latency)| latency),
            ..TrialOutput::default()
        })
    }
}

/// Returns the times of loss.
fn losses(input: &TrialInput, received: &[bool], duration_s: f64) -> LossTimes {
    let mut losses = LossTimes { bins: vec![(0, 0); input.loss_bins], ..LossTimes::default() };
    let (mut number, mut begin) = (0, 0.0);
    for phase in &input.phases {
        let count = (phase.load_pps * phase.duration_s + 1e-6).floor() as usize;
        for k in 0..count {
            let due_s = begin + k as f64 / phase.load_pps;
            let bin = ((due_s / duration_s * input.loss_bins as f64) as usize).min(input.loss_bins - 1);
            losses.bins[bin].1 += 1;
            if received.get(number) == Some(&false) {
                losses.bins[bin].0 += 1;
                losses.first_s = losses.first_s.or(Some(due_s));
                losses.last_s = Some(due_s);
            }
            number += 1;
        }
        begin += phase.duration_s;
    }
    losses
}
