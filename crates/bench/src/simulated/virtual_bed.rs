//! A device packet by packet, in virtual time, between the real schedule and the real receiver.

use std::collections::VecDeque;

use super::bed::check;
use crate::bed::{Ask, Bed, BedError, Losses, Seen, Variation};
use crate::trial::Trial;
use report::hdr;
use traffic::sequence::Arrival as Number;
use traffic::{Delays, FlowSettings, Flows, Mix, Pace, Pacer, Probe, Receiver, Template, pace, receive};

/// Ticks of the virtual clock a second.
const HZ: u64 = 1_000_000_000;

/// What a [`Virtual`] device does wrong. Packets of a trial are counted from 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// Every packet of so many is dropped.
    Drop {
        /// How many.
        every: u64,
    },
    /// Every packet of so many comes twice.
    Duplicate {
        /// How many.
        every: u64,
    },
    /// Every packet of so many comes behind the one that follows it.
    Reorder {
        /// How many, more than 1.
        every: u64,
    },
    /// Every packet of so many comes damaged.
    Corrupt {
        /// How many.
        every: u64,
    },
    /// It forwards nothing for a while; what its queue does not hold is lost.
    Stall {
        /// From then on, seconds after the start of the trial.
        at_s: f64,
        /// Seconds.
        for_s: f64,
    },
}

/// The device, with a generator and a receiver that share its clock.
#[derive(Debug)]
pub struct Virtual {
    template: Template,
    mix: Mix,
    capacity_pps: f64,
    queue: usize,
    latency_ns: u64,
    faults: Vec<Fault>,
    now: u64,
    sequence: u64,
}

/// A trial under way.
struct Run {
    receiver: Receiver,
    first: u64,
    start: u64,
    /// Whether each packet came.
    came: Vec<bool>,
    /// When the packets in the queue will have left, nanoseconds.
    leaving: VecDeque<f64>,
    left_at: f64,
    /// A packet that waits for the one behind it, and when it would have come.
    held: Option<(Vec<u8>, u64)>,
    /// The packet whose latency is wanted, and that.
    tag: Option<(u64, Option<f64>)>,
    wobble: Option<Wobble>,
}

/// Variation of delay under way.
struct Wobble {
    before: Option<(u64, u64)>,
    variation: Variation,
}

impl Virtual {
    /// A device that forwards `capacity_pps` frames a second, holds `queue` of them, and takes `latency_ns` for each beside
    /// that; frames are of 64 bytes, or of the sizes of `mix`, of a hundred flows.
    ///
    /// # Errors
    /// Words, if frames of these sizes cannot be made.
    pub fn new(capacity_pps: f64, queue: usize, latency_ns: u64, mix: &Mix) -> Result<Virtual, String> {
        let flows = Flows::new(FlowSettings { count: 100, ..FlowSettings::v4() }).map_err(|e| e.to_string())?;
        let template = Template::new(&flows, mix, true).map_err(|e| e.to_string())?;
        let capacity_pps = capacity_pps.clamp(1.0, 1e9);
        Ok(Virtual { template, mix: mix.clone(), capacity_pps, queue, latency_ns, faults: vec![], now: 0, sequence: 0 })
    }

    /// With a fault more.
    pub fn with(mut self, fault: Fault) -> Virtual {
        self.faults.push(fault);
        self
    }

    /// How often one of the faults of a sort strikes packet number `n`, counted from 1.
    fn strikes(&self, n: u64, sort: impl Fn(&Fault) -> Option<u64>) -> bool {
        self.faults.iter().filter_map(sort).any(|every| every != 0 && n.is_multiple_of(every))
    }

    /// When a packet that is first served at `at` is served, nanoseconds since the start of the trial.
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

    /// A packet comes to the device at `now`.
    fn forward(&self, run: &mut Run, frame: &mut [u8], now: u64) {
        let number = self.sequence - run.first + 1;
        let since = (now - run.start) as f64;
        while run.leaving.front().is_some_and(|left| *left <= since) {
            run.leaving.pop_front();
        }
        let dropped = self.strikes(number, |fault| if let Fault::Drop { every } = fault { Some(*every) } else { None });
        if dropped || run.leaving.len() >= self.queue.max(1) {
            return;
        }
        run.left_at = self.served(since.max(run.left_at)) + 1e9 / self.capacity_pps;
        run.leaving.push_back(run.left_at);
        let at = run.start + run.left_at as u64 + self.latency_ns;
        if self.strikes(number, |fault| if let Fault::Corrupt { every } = fault { Some(*every) } else { None }) {
            frame[self.template.probe_at() + 9] ^= 0x10;
        }
        if self.strikes(number, |fault| if let Fault::Reorder { every } = fault { Some(*every) } else { None }) {
            run.held = Some((frame.to_vec(), at));
            return;
        }
        run.arrive(frame, at);
        if self.strikes(number, |fault| if let Fault::Duplicate { every } = fault { Some(*every) } else { None }) {
            run.arrive(frame, at);
        }
        if let Some((held, _)) = run.held.take() {
            run.arrive(&held, at);
        }
    }
}

impl Run {
    fn arrive(&mut self, frame: &[u8], at: u64) {
        let receive::Arrival::Probe(Number::New | Number::Reordered) = self.receiver.take(frame, at) else { return };
        let (traffic::probe::Reading::Probe(probe), _) = Probe::read_at(frame, usize::MAX) else { return };
        let number = probe.sequence - self.first;
        let delay = probe.age(at);
        if let Some(came) = self.came.get_mut(number as usize) {
            *came = true;
        }
        if let Some((wanted, latency)) = &mut self.tag
            && *wanted == number
        {
            *latency = Some(delay as f64);
        }
        if let Some(wobble) = &mut self.wobble {
            wobble.take(number, delay);
        }
    }
}

impl Wobble {
    fn take(&mut self, number: u64, delay: u64) {
        let Wobble { before, variation } = self;
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

impl Bed for Virtual {
    fn trial(&mut self, ask: &Ask) -> Result<Seen, BedError> {
        let duration_s = check(ask)?;
        if ask.act.is_some() {
            let remedy = "ask a simulated device that is not virtual";
            return Err(BedError::Cannot { dut: "the virtual device".to_owned(), what: "reset or changed", remedy });
        }
        let start = self.now + 1000;
        let mut pacers = vec![];
        let mut at = start;
        for phase in &ask.phases {
            pacers.push((at, Pacer::new(Pace::new(phase.load_pps, phase.duration_s, HZ), at)?));
            at += (phase.duration_s * HZ as f64) as u64;
        }
        let intended = pacers.iter().map(|(_, pacer)| pacer.totals().intended).sum();
        let mut run = Run {
            receiver: Receiver::new(self.template.probe_at(), self.sequence, intended, HZ),
            first: self.sequence,
            start,
            came: vec![false; intended as usize],
            leaving: VecDeque::new(),
            left_at: 0.0,
            held: None,
            tag: ask.tag_s.map(|tag_s| ((tag_s * ask.phases[0].load_pps) as u64, None)),
            wobble: ask.variation.then(|| Wobble {
                before: None,
                variation: Variation { ipdv: Delays::new(), rising: 0, rfc3550_ns: 0.0, rfc3550_max_ns: 0.0 },
            }),
        };
        if ask.order {
            run.receiver.watch_density();
        }
        if ask.payload {
            run.receiver.check_payload();
        }
        let mut totals = pace::Totals::default();
        let (mut sizes, mut picker) = (self.mix.cycle(), self.template.flows().picker(0, 1));
        let mut frame = vec![0; 9300];
        for (_, pacer) in &mut pacers {
            while let Some(due) = pacer.next_due() {
                // A burst leaves when its first packet is due, so the clock may stand still, but never goes back.
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
        let mut trial = Trial::new(ask.phases[0].load_pps, duration_s, totals, run.receiver.totals(totals.sent));
        trial.latency_hdr = hdr::encode(run.receiver.latency().histogram()).ok();
        let losses = (ask.loss_bins != 0).then(|| losses(ask, &run.came, duration_s));
        let delays = run.receiver.latency();
        let delays = (delays.count() != 0).then(|| delays.clone());
        let variation = run.wobble.map(|wobble| wobble.variation);
        Ok(Seen {
            trial,
            delays,
            losses,
            variation,
            order: run.receiver.displacements(0).into_iter().collect(),
            payload: ask.payload,
            tag_ns: run.tag.and_then(|(_, latency)| latency),
            ..Seen::default()
        })
    }
}

/// When packets were lost, of whether each came.
fn losses(ask: &Ask, came: &[bool], duration_s: f64) -> Losses {
    let mut losses = Losses { bins: vec![(0, 0); ask.loss_bins], ..Losses::default() };
    let (mut number, mut begin) = (0, 0.0);
    for phase in &ask.phases {
        let count = (phase.load_pps * phase.duration_s + 1e-6).floor() as usize;
        for k in 0..count {
            let due_s = begin + k as f64 / phase.load_pps;
            let bin = ((due_s / duration_s * ask.loss_bins as f64) as usize).min(ask.loss_bins - 1);
            losses.bins[bin].1 += 1;
            if came.get(number) == Some(&false) {
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
