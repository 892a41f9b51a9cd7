//! The generator: the thread that runs trials sends into one end of a device, or into several at once, each a stream of its
//! own, and takes back what comes out of any.

use crate::bed::{Ask, Losses, Phase, Seen, Variation, Way};
use crate::source::{Buffers, Kind, Load, Source};
use crate::tally::Plain;
use crate::trial::{PollGaps, Trial};
use crate::when::When;
use dpdk::Mempool;
use packet::{Batch, Packet, clock};
use report::hdr;
use runtime::End;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::probe::Reading;
use traffic::receive::Arrival;
use traffic::{Delays, Pace, PaceError, Pacer, Probe, Receiver, Sequence, pace};

mod streams;

/// When nothing has come for so long, it is looked whether the path is empty: what an NF keeps for a while has come as well.
const QUIET: Duration = Duration::from_millis(5);
/// Packets before a trial, 5 µs apart, and their stream, which no receiver of a trial knows.
const PRELUDE: u64 = 200;
const PRELUDE_STREAM: u8 = 255;
/// Packets without a number have to be through before a trial: within so long, or a worker may sleep again; and how often
/// that is tried.
const THROUGH: Duration = Duration::from_micros(500);
const WAKES: u32 = 5;
/// Parts into which loss is told apart at least, to know when the last packet was lost.
const FINE: usize = 1 << 16;
/// Packets that leave together at high rates, as [`Pace::new`] has it.
const BURST: f64 = 8.0;
/// What the clock of a worker's gap cannot tell, ns.
const GRAIN_NS: u64 = 60_000;

/// What is between the ends of a station, as far as it can be asked.
pub(crate) trait Middle {
    /// Packets that it has made itself so far.
    fn created(&self) -> u64;

    /// Whether nothing is under way any more.
    fn is_through(&self, way: &Underway) -> bool;

    /// Packets that come later than this after the last was sent are lost.
    fn drain(&self) -> Duration;

    /// The longest time that one of its workers was away since last asked, and the sum of such times; zero where that
    /// cannot be known.
    fn gaps(&self) -> (Duration, Duration);

    /// Packets that it can hold before it loses some while it is away; none where that is not known.
    fn depth(&self) -> u32;
}

/// What is known of packets under way by who sends and receives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Underway {
    /// Packets that the device's ports have taken so far.
    pub(crate) handed: u64,
    /// Packets that have come from them.
    pub(crate) taken: u64,
    /// Packets handed since shortly before the trial, less those that came.
    pub(crate) outstanding: u64,
    /// For so long none has come.
    pub(crate) quiet: Duration,
    /// Length of the trial, seconds.
    pub(crate) trial_s: f64,
}

/// The ends of a device, and who sends and receives there.
pub(crate) struct Station {
    ends: Vec<End>,
    /// By stream.
    lanes: Vec<Lane>,
    buffers: Buffers,
    /// Packets that the wire has taken so far, and packets that have come.
    handed: u64,
    taken: u64,
    /// Both, shortly before the trial.
    before: (u64, u64),
    /// For each end what came last, and when.
    arrived: Vec<(Batch, u64)>,
    stop: Arc<AtomicBool>,
    /// How far the trial has come.
    course: Arc<Course>,
}

/// How far a trial has come, for whoever does something meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The first packet is due.
    pub(crate) begun: AtomicBool,
    /// The last has been sent.
    pub(crate) over: AtomicBool,
}

/// Where a stream's packets go.
struct Lane {
    /// The end that they are sent into.
    into: usize,
    /// Whether anything takes them there.
    taken: bool,
    /// The next one's number.
    sequence: u64,
}

/// How long a thread that looks at the clock all the time was away, ticks.
struct Away {
    /// From here on it was away.
    long: u64,
    looked: u64,
    sum: u64,
}

impl Away {
    fn new() -> Away {
        Away { long: clock::hz() / 20_000, looked: clock::cycles(), sum: 0 }
    }

    #[inline(always)]
    fn look(&mut self, now: u64) {
        if now - self.looked > self.long {
            self.sum += now - self.looked;
        }
        self.looked = now;
    }
}

/// Which packets are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Those that wake the workers.
    Prelude(u64),
    /// Those that count.
    Trial,
}

impl Station {
    /// At these ends; packets of stream `n` are sent into the one of the port of number `into[n]`. Where `own` says so,
    /// packets that come back are those that were sent, and are sent again with what they hold.
    pub(crate) fn new(ends: Vec<End>, into: &[usize], pool: Arc<Mempool>, own: bool) -> Station {
        let end = |port: &usize| ends.iter().position(|end| end.port == *port).unwrap_or_default();
        let lanes = into.iter().map(|port| Lane { into: end(port), taken: true, sequence: 0 }).collect();
        let arrived = ends.iter().map(|_| (Batch::new(), 0)).collect();
        let buffers = Buffers::new(pool, own);
        Station {
            ends,
            lanes,
            buffers,
            handed: 0,
            taken: 0,
            before: (0, 0),
            arrived,
            stop: Arc::default(),
            course: Arc::default(),
        }
    }

    /// Says that nothing takes packets of a stream at the other side: they are sent and lost, and stay in no queue.
    pub(crate) fn leave_untaken(&mut self, stream: usize) {
        self.lanes[stream].taken = false;
    }

    /// Streams that it can send at most.
    pub(crate) fn streams(&self) -> usize {
        self.lanes.len()
    }

    /// Has trials end when this is set.
    pub(crate) fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// How far a trial has come.
    pub(crate) fn course(&self) -> Arc<Course> {
        self.course.clone()
    }

    /// Offers what is asked for, waits until all is through, and counts.
    ///
    /// # Errors
    /// A load or a length that cannot be kept.
    pub(crate) fn trial(&mut self, middle: &impl Middle, load: &mut Load<'_>, ask: &Ask) -> Result<Seen, PaceError> {
        if ask.profile {
            return self.play(middle, load, ask);
        }
        let hz = clock::hz();
        let made_before = if load.is_replay() { middle.created() } else { 0 };
        let streams = load.streams.len();
        // one that cannot be kept is refused before anything is sent
        let mut pacers = vec![];
        for stream in 0..streams {
            pacers.push(schedule(load, stream, &ask.phases, hz)?);
        }
        self.before = (self.handed, self.taken);
        load.restart();
        let mut plain = self.wake(middle, load);
        let start = clock::cycles() + hz / 10_000;
        for (stream, all) in pacers.iter_mut().enumerate() {
            // what own gaps say when to send has no place to be put between
            let apart = if load.gaps(stream).is_some() { 0 } else { apart(&ask.phases, stream, streams, hz) };
            all.iter_mut().for_each(|pacer| pacer.put_off(start + apart));
        }
        let firsts: Vec<u64> = self.lanes.iter().map(|lane| lane.sequence).collect();
        let mut receiver = Receiver::new(load.probe_at(), firsts[0], load.most(0, intended(&pacers[0])), hz);
        for stream in 1..streams {
            let most = load.most(stream, intended(&pacers[stream]));
            receiver.set_stream(stream as u8, Sequence::new(firsts[stream], most));
        }
        // about a million latencies a second
        let highest = ask.phases.iter().map(|p| p.load_pps).fold(0.0, f64::max);
        receiver.sample((highest * streams as f64 / load.numbered_every() as f64 / 1e6) as u64);
        // bins and tag are of numbers, and where not every packet has one they say nothing of packets
        let whole = load.numbered_every() == 1;
        let bins = if whole { ask.loss_bins } else { 0 };
        if bins != 0 {
            receiver.watch_losses(bins.max(FINE));
        }
        if ask.variation {
            receiver.watch_variation();
        }
        if ask.order && whole {
            receiver.watch_density();
        }
        let payload = ask.payload && load.has_pattern();
        if payload {
            receiver.check_payload();
        }
        if let Some(at) = ask.tag_s {
            receiver.watch_tag(firsts[0] + number_at(&ask.phases, at));
        }
        middle.gaps();
        self.course.begun.store(true, Ordering::Release);
        let own = match &mut pacers[..] {
            [only] => self.run(load, only, &mut receiver),
            all => self.run_all(load, all, &mut receiver),
        };
        self.course.over.store(true, Ordering::Release);
        self.drain(middle, &mut receiver, ask.duration_s());
        let mut totals = pace::Totals::default();
        let (mut lateness, mut gap, mut gap_limit) = (Delays::new(), 0, u64::MAX);
        for pacer in pacers.iter_mut().flatten() {
            pacer.stop();
            let did = pacer.totals();
            totals.intended += did.intended;
            totals.sent += did.sent;
            totals.unsent += did.unsent;
            lateness.add(pacer.lateness());
            gap = gap.max(pacer.poll_gap_max_ns());
            gap_limit = gap_limit.min(pacer.gap_limit_ns());
        }
        let (mut numbered, mut ways) = (0, vec![]);
        for (stream, pacers) in pacers.iter().enumerate() {
            let lane = &mut self.lanes[stream];
            let sent = lane.sequence - firsts[stream];
            lane.sequence = firsts[stream] + intended(pacers);
            numbered += sent;
            let received = receiver.stream(stream as u8).map_or(0, |seen| seen.received);
            ways.push(Way { sent, received });
        }
        if streams == 1 {
            ways.clear();
        }
        let mut seen = receiver.totals(numbered);
        if load.is_replay() {
            plain.sent = totals.sent - numbered;
            plain.created = middle.created() - made_before;
            seen = plain.add_to(seen);
        }
        let (longest, sum) = middle.gaps();
        let gaps = PollGaps { generator: gap, worker: longest.as_nanos() as u64 };
        let away = Duration::from_secs_f64(own as f64 / hz as f64) + sum;
        let first = ask.phases.first().copied().unwrap_or(Phase { load_pps: 0.0, duration_s: 0.0 });
        let mut trial = Trial::new(first.load_pps, ask.duration_s(), totals, seen);
        trial.directions = streams as u8;
        if ask.phases.len() > 1 {
            trial.phases = ask.phases.clone();
        }
        trial.machine = was_away(&trial, highest, middle.depth(), gaps, gap_limit, away);
        trial.poll_gap_max_ns = gaps;
        trial.late_hdr = hdr::encode(lateness.histogram()).ok();
        trial.latency_hdr = hdr::encode(receiver.latency().histogram()).ok();
        let delays = (receiver.latency().count() != 0).then(|| receiver.latency().clone());
        let losses = losses(&receiver, ask, &pacers).filter(|_| bins != 0);
        let variation = variation(&receiver, streams);
        let tag_ns = receiver.tag_ns().map(|ns| ns as f64);
        let order = (0..streams).filter_map(|stream| receiver.displacements(stream as u8)).collect();
        Ok(Seen { trial, delays, losses, variation, order, payload, tag_ns, ways, ..Seen::default() })
    }

    /// Sends one stream, its phases one after the other; ticks that this thread was away.
    fn run(&mut self, load: &mut Load<'_>, pacers: &mut [Pacer], receiver: &mut Receiver) -> u64 {
        let mut away = Away::new();
        for pacer in pacers {
            while !pacer.is_finished() && !self.stop.load(Ordering::Relaxed) {
                self.turn(load, 0, pacer, receiver, &mut away);
            }
        }
        away.sum
    }

    /// Sends several streams in turn, each by its own schedule; ticks that this thread was away.
    fn run_all(&mut self, load: &mut Load<'_>, pacers: &mut [Vec<Pacer>], receiver: &mut Receiver) -> u64 {
        let mut away = Away::new();
        let phases = pacers.iter().map(Vec::len).min().unwrap_or(0);
        for phase in 0..phases {
            while pacers.iter().any(|all| !all[phase].is_finished()) && !self.stop.load(Ordering::Relaxed) {
                for (stream, all) in pacers.iter_mut().enumerate() {
                    self.turn(load, stream, &mut all[phase], receiver, &mut away);
                }
            }
        }
        away.sum
    }

    /// Sends what is due of a stream and takes what has come.
    #[inline(always)]
    fn turn(
        &mut self,
        load: &mut Load<'_>,
        stream: usize,
        pacer: &mut Pacer,
        receiver: &mut Receiver,
        away: &mut Away,
    ) {
        let now = clock::cycles();
        away.look(now);
        let due = load.due(stream, pacer, now);
        if due != 0 {
            let sent = self.send(load, stream, due, Part::Trial);
            pacer.sent(sent, now);
        }
        self.receive(receiver);
    }

    fn underway(&self, quiet: Duration, trial_s: f64) -> Underway {
        let (handed, taken) = (self.handed, self.taken);
        let outstanding = (handed - self.before.0).saturating_sub(taken - self.before.1);
        Underway { handed, taken, outstanding, quiet, trial_s }
    }

    /// Takes in what is under way.
    fn drain(&mut self, middle: &impl Middle, receiver: &mut Receiver, trial_s: f64) {
        let ended = clock::cycles();
        let (mut last, mut looked) = (ended, ended);
        loop {
            let now = clock::cycles();
            if self.receive(receiver) != 0 {
                last = now;
            }
            if now - ended > ticks(middle.drain()) {
                break;
            }
            if now - looked > ticks(QUIET) && now - last > ticks(QUIET) {
                let quiet = Duration::from_secs_f64((now - last) as f64 / clock::hz() as f64);
                if middle.is_through(&self.underway(quiet, trial_s)) {
                    break;
                }
                looked = now;
            }
        }
    }

    /// Sends a packet now and then for a while, so that no worker sleeps when the trial begins. They count nowhere; what
    /// is to be known of them where packets without a number are counted.
    fn wake(&mut self, middle: &impl Middle, load: &mut Load<'_>) -> Plain {
        let mut plain = Plain::default();
        for _ in 0..WAKES {
            let (hz, from) = (clock::hz(), clock::cycles());
            let streams = load.streams.len() as u64;
            let mut before = Receiver::new(load.probe_at(), 0, 0, hz);
            before.set_stream(PRELUDE_STREAM, Sequence::new(0, PRELUDE * streams));
            let numbers: Vec<u64> = self.lanes.iter().map(|lane| lane.sequence).collect();
            let mut sent = 0;
            for n in 0..PRELUDE {
                while clock::cycles() < from + n * hz / 200_000 {
                    self.receive(&mut before);
                }
                for stream in 0..streams {
                    sent += self.send(load, stream as usize, 1, Part::Prelude(n * streams + stream)) as u64;
                }
            }
            let mut numbered = 0;
            for (lane, number) in self.lanes.iter_mut().zip(numbers) {
                numbered += lane.sequence - number;
                lane.sequence = number;
            }
            plain.prelude += sent - numbered;
            // of a capture, what the device makes of the prelude is counted as well
            let awake = !load.is_replay() || self.prelude_is_through(middle, &mut before);
            let seen = before.totals(numbered);
            plain.before.foreign += seen.foreign;
            plain.before.duplicate += seen.duplicate;
            if awake {
                break;
            }
        }
        plain
    }

    /// Waits for packets that would be taken for those of the trial; whether that was short enough for the workers to be
    /// awake still.
    fn prelude_is_through(&mut self, middle: &impl Middle, before: &mut Receiver) -> bool {
        let ended = clock::cycles();
        while clock::cycles() - ended < ticks(THROUGH) {
            self.receive(before);
            if middle.is_through(&self.underway(Duration::ZERO, 0.0)) {
                // what has come last is looked at now
                self.receive(before);
                return true;
            }
        }
        self.drain(middle, before, 0.0);
        false
    }

    /// Puts packets of a stream on the wire, as many as are due and there are buffers for; how many. What the chain's queue
    /// has no room for is lost there, as in a NIC.
    #[inline(always)]
    fn send(&mut self, load: &mut Load<'_>, stream: usize, due: usize, part: Part) -> usize {
        match &mut load.streams[stream] {
            Kind::Made(made) => self.send_from(made, stream, due, part),
            Kind::Replay(replay) => self.send_from(replay, stream, due, part),
        }
    }

    #[inline(always)]
    fn send_from(&mut self, source: &mut impl Source, stream: usize, due: usize, part: Part) -> usize {
        let Station { lanes, ends, buffers, handed, .. } = self;
        let lane = &mut lanes[stream];
        let end = &mut ends[lane.into];
        let (number, taken) = (stream as u8, lane.taken);
        let mut put = |burst: &mut Batch| match taken {
            true => *handed += end.tx.send(burst) as u64,
            false => burst.clear(),
        };
        let mut left = due;
        while left != 0 {
            let mut burst = Batch::new();
            let stamp = clock::cycles();
            while left != 0 && !burst.is_full() {
                let made = match part {
                    Part::Trial => source.packet(Probe { stream: number, sequence: lane.sequence, stamp }, buffers),
                    Part::Prelude(sequence) => {
                        source.prelude(Probe { stream: PRELUDE_STREAM, sequence, stamp }, buffers)
                    }
                };
                let Some((packet, numbered)) = made else {
                    put(&mut burst);
                    return due - left;
                };
                lane.sequence += u64::from(numbered);
                left -= 1;
                burst.push(packet).unwrap_or_else(drop);
            }
            put(&mut burst);
        }
        due
    }

    /// Forgets the packets that have come back: their payload is that of other frames.
    pub(crate) fn forget(&mut self) {
        self.buffers.forget();
    }

    /// Looks at what came the last time, whose bytes have been fetched meanwhile from the other core's cache, and takes what
    /// has come since; how many packets those are.
    fn receive(&mut self, receiver: &mut Receiver) -> usize {
        let mut all = 0;
        for (end, (arrived, at)) in self.ends.iter_mut().zip(&mut self.arrived) {
            if !arrived.is_empty() {
                let mut damaged = false;
                arrived.for_each(|packet| damaged |= receiver.take(packet.data(), *at) == Arrival::Corrupt);
                if damaged {
                    // one that is sent again has the payload that it came back with
                    arrived.clear();
                }
                self.buffers.keep(arrived);
            }
            let n = end.rx.receive(arrived);
            if n != 0 {
                all += n;
                self.taken += n as u64;
                *at = clock::cycles();
                arrived.prefetch();
            }
        }
        all
    }

    /// Sends `packets` of a stream one after the other, so far apart, and compares what comes back within `patience` with what was
    /// sent; `alike` says what is wrong with a pair, if anything is. How many did not come back, and the first complaint.
    pub(crate) fn conform(
        &mut self,
        load: &mut Load<'_>,
        stream: usize,
        packets: u64,
        apart: Duration,
        patience: Duration,
        alike: impl Fn(&[u8], &[u8]) -> Result<(), String>,
    ) -> (u64, Option<String>) {
        let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut complaint = None;
        let (first, from) = (self.lanes[stream].sequence, clock::cycles());
        let mut count = 0;
        let mut buffers = Batch::new();
        while !self.stop.load(Ordering::Relaxed) {
            let now = clock::cycles();
            if count < packets && now >= from + count * ticks(apart) {
                let before = self.lanes[stream].sequence;
                if let Some(packet) = self.one(load, stream) {
                    let lane = &self.lanes[stream];
                    let number = lane.sequence > before;
                    if number {
                        sent.insert(before, packet.data().to_vec());
                    }
                    if buffers.push(packet).is_ok() {
                        self.handed += self.ends[lane.into].tx.send(&mut buffers) as u64;
                        buffers.clear();
                    }
                }
                count += 1;
            }
            for (end, (arrived, _)) in self.ends.iter_mut().zip(&mut self.arrived) {
                self.taken += end.rx.receive(arrived) as u64;
                arrived.for_each(|packet| {
                    let (Reading::Probe(probe), _) = Probe::read_at(packet.data(), usize::MAX) else { return };
                    let Some(original) = sent.remove(&probe.sequence) else { return };
                    if let Err(problem) = alike(&original, packet.data()) {
                        complaint.get_or_insert(problem);
                    }
                });
                self.buffers.keep(arrived);
            }
            let over = from + packets * ticks(apart);
            if count >= packets && (sent.is_empty() || now > over + ticks(patience)) {
                break;
            }
        }
        let lane = &mut self.lanes[stream];
        lane.sequence = lane.sequence.max(first + packets);
        (sent.len() as u64, complaint)
    }

    /// The next packet of a stream, numbered where it has room.
    fn one(&mut self, load: &mut Load<'_>, stream: usize) -> Option<Packet> {
        let lane = &mut self.lanes[stream];
        let probe = Probe { stream: stream as u8, sequence: lane.sequence, stamp: clock::cycles() };
        let (packet, numbered) = match &mut load.streams[stream] {
            Kind::Made(made) => made.packet(probe, &mut self.buffers),
            Kind::Replay(replay) => replay.packet(probe, &mut self.buffers),
        }?;
        lane.sequence += u64::from(numbered);
        Some(packet)
    }
}

impl Drop for Station {
    /// Takes what is still there and closes the ends.
    fn drop(&mut self) {
        let mut foreign = Receiver::new(0, 0, 0, clock::hz());
        while self.receive(&mut foreign) != 0 {}
        self.receive(&mut foreign);
        self.buffers.clear();
    }
}

/// The number of the packet that is due so many seconds after the start.
fn number_at(phases: &[Phase], at_s: f64) -> u64 {
    let (mut from, mut number) = (0.0, 0.0);
    for phase in phases {
        let within = (at_s - from).clamp(0.0, phase.duration_s);
        number += within * phase.load_pps;
        from += phase.duration_s;
    }
    number as u64
}

/// A schedule for each phase, one after the other from tick 0.
fn schedule(load: &Load<'_>, stream: usize, phases: &[Phase], hz: u64) -> Result<Vec<Pacer>, PaceError> {
    if let Some(gaps) = load.gaps(stream) {
        return phases.iter().map(|phase| gaps.pacer(phase, hz)).collect();
    }
    let mut from = 0.0;
    let pacer = |phase: &Phase| {
        let at = (from * hz as f64) as u64;
        from += phase.duration_s;
        Pacer::new(Pace::new(phase.load_pps, phase.duration_s, hz), at)
    };
    phases.iter().map(pacer).collect()
}

/// Packets on schedule, all phases.
fn intended(pacers: &[Pacer]) -> u64 {
    pacers.iter().map(|pacer| pacer.totals().intended).sum()
}

/// Ticks by which a stream starts later than the first, so that the bursts of one leave between those of the others; a
/// microsecond at most.
fn apart(phases: &[Phase], stream: usize, streams: usize, hz: u64) -> u64 {
    let load_pps = phases.first().map_or(1.0, |phase| phase.load_pps);
    let between_s = (BURST / load_pps).min(1e-6);
    (between_s * stream as f64 / streams as f64 * hz as f64) as u64
}

/// When packets were lost, of all streams together: the sums of packets, the first and the last of all.
fn losses(receiver: &Receiver, ask: &Ask, pacers: &[Vec<Pacer>]) -> Option<Losses> {
    let of = |(stream, pacers): (usize, &Vec<Pacer>)| {
        let sent: Vec<u64> = pacers.iter().map(|p| p.totals().sent).collect();
        Some(When::new(&ask.phases, &sent).losses(receiver.losses(stream as u8)?, ask.loss_bins))
    };
    pacers.iter().enumerate().filter_map(of).reduce(Losses::plus)
}

/// How delays varied: differences of all streams together, each between packets of one stream. The jitter of RFC 3550 is
/// that of stream 0, since that of several has no sum; its highest value is the highest of all.
fn variation(receiver: &Receiver, streams: usize) -> Option<Variation> {
    let first = receiver.variation(0)?;
    let mut all = Variation {
        ipdv: first.ipdv().amounts(),
        rising: first.ipdv().above(),
        rfc3550_ns: first.jitter_ns().unwrap_or(0.0),
        rfc3550_max_ns: first.jitter_max_ns().unwrap_or(0.0),
    };
    for seen in (1..streams).filter_map(|stream| receiver.variation(stream as u8)) {
        all.ipdv.add(&seen.ipdv().amounts());
        all.rising += seen.ipdv().above();
        all.rfc3550_max_ns = all.rfc3550_max_ns.max(seen.jitter_max_ns().unwrap_or(0.0));
    }
    Some(all)
}

fn ticks(time: Duration) -> u64 {
    (time.as_secs_f64() * clock::hz() as f64) as u64
}

/// Whether a loop was away for longer than the packets that stand before it may wait, and the loss is no more than what
/// came in the time that both were `away`.
fn was_away(trial: &Trial, load_pps: f64, depth: u32, gaps: PollGaps, generator_limit: u64, away: Duration) -> bool {
    let lasts = (f64::from(depth) / load_pps * 1e9) as u64 + GRAIN_NS;
    let missing = trial.lost + trial.unsent;
    // what came while nobody looked has then to be worked off beside what comes
    let explained = 2.0 * load_pps * f64::from(trial.directions) * away.as_secs_f64();
    missing != 0 && missing as f64 <= explained && (gaps.worker > lasts || gaps.generator > generator_limit)
}
