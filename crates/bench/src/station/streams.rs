//! Several streams, each with a rate of its own in every second.

use super::{Away, Lane, Middle, Part, Station, was_away};
use crate::bed::{Ask, Second, Seen, StreamSeen};
use crate::profile::{Entry, StreamPlan, Timetable};
use crate::source::{Load, Made};
use crate::trial::{PollGaps, Trial};
use packet::clock;
use report::hdr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use traffic::{Delays, Pace, PaceError, Pacer, Receiver, Sequence, pace};

/// A stream under way.
struct Voice<'a> {
    plan: &'a StreamPlan,
    /// Its place among all of them, and their number: streams of one rate leave evenly between each other.
    place: (usize, usize),
    /// The second that comes next.
    next: usize,
    /// The schedule of the second before that.
    pacer: Pacer,
    /// Whether that is under way.
    sends: bool,
    seconds: Vec<Second>,
}

impl<'a> Voice<'a> {
    fn new(plan: &'a StreamPlan, place: (usize, usize), hz: u64) -> Result<Voice<'a>, PaceError> {
        // of nothing yet: its histogram is made before the first packet is due
        let pacer = Pacer::new(Pace::new(1.0, 1.0, hz), 0)?;
        let of = |entry: &Entry| Second { intended: entry.intended(), ..Second::default() };
        let seconds = plan.seconds.iter().map(of).collect();
        Ok(Voice { plan, place, next: 0, pacer, sends: false, seconds })
    }

    /// Whether no second is left.
    fn is_over(&self) -> bool {
        !self.sends && self.next == self.seconds.len()
    }

    /// Begins the next second in which it sends something; `start` is the tick of second 0. Whether there is one.
    fn begin(&mut self, start: u64, hz: u64) -> Result<bool, PaceError> {
        while let Some(entry) = self.plan.seconds.get(self.next) {
            let second = self.next as u64;
            self.next += 1;
            if entry.intended() == 0 {
                continue;
            }
            let (n, all) = self.place;
            let apart = (hz as f64 / entry.pps * n as f64 / all as f64) as u64;
            let (pace, at) = (Pace::new(entry.pps, 1.0, hz), start + second * hz + apart);
            self.pacer.go_on(pace, at)?;
            self.sends = true;
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes down what became of the second under way.
    fn end(&mut self) {
        if !self.sends {
            return;
        }
        self.pacer.stop();
        let did = self.pacer.totals();
        let second = &mut self.seconds[self.next - 1];
        (second.sent, second.unsent) = (did.sent, did.unsent);
        self.sends = false;
    }

    /// What was never begun has stayed unsent.
    fn close(&mut self) {
        self.end();
        for second in &mut self.seconds {
            second.unsent = second.intended - second.sent;
        }
    }
}

impl Station {
    /// Offers what the timetable of the load says, waits until all is through, and counts.
    ///
    /// # Errors
    /// A rate that cannot be kept.
    pub(super) fn play(&mut self, middle: &impl Middle, load: &mut Load<'_>, ask: &Ask) -> Result<Seen, PaceError> {
        let hz = clock::hz();
        let Some(timetable) = load.timetable else {
            return Err(PaceError::Duration { seconds: ask.duration_s(), rate_pps: 0.0 });
        };
        let first = self.lanes.iter().map(|lane| lane.sequence).max().unwrap_or(0);
        let plans = timetable.streams();
        let mut receiver = Receiver::new(load.probe_at(), first, plans[0].intended(), hz);
        for (stream, plan) in plans.iter().enumerate().skip(1) {
            receiver.set_stream(stream as u8, Sequence::new(first, plan.intended()));
        }
        // about a million latencies a second
        receiver.sample((timetable.highest_pps() / 1e6) as u64);
        receiver.watch_parts();
        let voice = |(n, plan)| Voice::new(plan, (n, plans.len()), hz);
        let mut voices = plans.iter().enumerate().map(voice).collect::<Result<Vec<_>, _>>()?;
        self.before = (self.handed, self.taken);
        self.wake(middle, load);
        let start = clock::cycles() + hz / 10_000;
        for (stream, voice) in voices.iter_mut().enumerate() {
            if voice.begin(start, hz)? {
                receiver.begin_part(stream as u8, first);
            }
        }
        let base = self.open(timetable, first);
        middle.gaps();
        self.course.begun.store(true, Ordering::Release);
        let played =
            self.run_voices(&mut load.parts, &mut voices, &mut receiver, start, u64::from(timetable.seconds()));
        self.course.over.store(true, Ordering::Release);
        self.drain(middle, &mut receiver, ask.duration_s());
        self.lanes = base;
        let last = first + plans.iter().map(StreamPlan::intended).max().unwrap_or(0);
        self.lanes.iter_mut().for_each(|lane| lane.sequence = last);
        let away = played?;
        Ok(self.heard(middle, &mut voices, &receiver, timetable, ask, away))
    }

    /// A lane for each stream, whose packets are numbered from `first`; the lanes there were.
    fn open(&mut self, timetable: &Timetable, first: u64) -> Vec<Lane> {
        let lane = |stream: &StreamPlan| {
            let of = &self.lanes[usize::from(stream.port).min(self.lanes.len() - 1)];
            Lane { into: of.into, taken: of.taken, sequence: first }
        };
        let lanes = timetable.streams().iter().map(lane).collect();
        std::mem::replace(&mut self.lanes, lanes)
    }

    /// Sends all streams in turn until the last second is over; ticks that this thread was away.
    fn run_voices(
        &mut self,
        parts: &mut [Vec<Made<'_>>],
        voices: &mut [Voice<'_>],
        receiver: &mut Receiver,
        start: u64,
        seconds: u64,
    ) -> Result<u64, PaceError> {
        let (hz, mut away) = (clock::hz(), Away::new());
        let over = start + seconds * hz;
        while !self.stop.load(Ordering::Relaxed) {
            let mut now = clock::cycles();
            away.look(now);
            if now >= over && voices.iter().all(Voice::is_over) {
                break;
            }
            for (stream, voice) in voices.iter_mut().enumerate() {
                if !voice.sends {
                    continue;
                }
                let due = voice.pacer.due(now);
                if due != 0 {
                    let part = voice.plan.seconds[voice.next - 1].part;
                    let sent = self.send_from(&mut parts[stream][part], stream, due, Part::Trial);
                    voice.pacer.sent(sent, now);
                    self.receive(receiver);
                    now = clock::cycles();
                    away.look(now);
                }
                if voice.pacer.is_finished() {
                    voice.end();
                    let from = voice.next;
                    if voice.begin(start, hz)? {
                        // parts and seconds are one to one, also those in which nothing was sent
                        (from..voice.next).for_each(|_| receiver.begin_part(stream as u8, self.lanes[stream].sequence));
                    }
                }
            }
            self.receive(receiver);
        }
        Ok(away.sum)
    }

    /// What came of it.
    fn heard(
        &self,
        middle: &impl Middle,
        voices: &mut [Voice<'_>],
        receiver: &Receiver,
        timetable: &Timetable,
        ask: &Ask,
        away: u64,
    ) -> Seen {
        let hz = clock::hz();
        let mut totals = pace::Totals::default();
        let (mut lateness, mut gap, mut gap_limit) = (Delays::new(), 0, u64::MAX);
        let mut streams = vec![];
        for (stream, voice) in voices.iter_mut().enumerate() {
            voice.close();
            let quiet = voice.seconds.iter().take_while(|second| second.intended == 0).count();
            for (second, received) in voice.seconds[quiet..].iter_mut().zip(receiver.parts(stream as u8)) {
                second.received = received;
            }
            for second in &voice.seconds {
                totals.intended += second.intended;
                totals.sent += second.sent;
                totals.unsent += second.unsent;
            }
            lateness.add(voice.pacer.lateness());
            gap = gap.max(voice.pacer.poll_gap_max_ns());
            gap_limit = gap_limit.min(voice.pacer.gap_limit_ns());
            let delays = receiver.stream_latency(stream as u8).filter(|delays| delays.count() != 0).cloned();
            streams.push(StreamSeen { seconds: std::mem::take(&mut voice.seconds), delays });
        }
        let (longest, sum) = middle.gaps();
        let gaps = PollGaps { generator: gap, worker: longest.as_nanos() as u64 };
        let away = Duration::from_secs_f64(away as f64 / hz as f64) + sum;
        let load_pps = ask.phases.first().map_or(0.0, |phase| phase.load_pps);
        let mut trial = Trial::new(load_pps, ask.duration_s(), totals, receiver.totals(totals.sent));
        trial.directions = 1;
        trial.machine = was_away(&trial, timetable.highest_pps(), middle.depth(), gaps, gap_limit, away);
        trial.poll_gap_max_ns = gaps;
        trial.late_hdr = hdr::encode(lateness.histogram()).ok();
        trial.latency_hdr = hdr::encode(receiver.latency().histogram()).ok();
        let delays = (receiver.latency().count() != 0).then(|| receiver.latency().clone());
        Seen { trial, delays, streams, ..Seen::default() }
    }
}
