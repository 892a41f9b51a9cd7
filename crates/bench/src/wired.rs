//! A chain in this process as the device under test: wires in memory stand in the place of its ports, and the thread that
//! runs trials sends and receives at their far ends.

use crate::source::{Buffers, Kind, Load, Source};
use crate::tally::Plain;
use crate::trial::{PollGaps, Trial};
use chain::ChainFile;
use packet::{Batch, clock};
use report::hdr;
use runtime::{End, Engine, Summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::{Pace, PaceError, Pacer, Probe, Receiver, Sequence};

/// Packets that may be under way in each direction of a wire: the descriptors of a common NIC queue.
pub const DEPTH: u32 = 1024;
/// When nothing has come for so long, it is looked whether the path is empty: what an NF keeps for a while has come as well.
const QUIET: Duration = Duration::from_millis(5);
/// Packets that come later than this after the last was sent are lost.
const DRAIN: Duration = Duration::from_millis(500);
/// Packets before a trial, 5 µs apart, and their stream, which no receiver of a trial knows.
const PRELUDE: u64 = 200;
const PRELUDE_STREAM: u8 = 255;
/// Packets without a number have to be through before a trial: within so long, or a worker may sleep again; and how often
/// that is tried.
const THROUGH: Duration = Duration::from_micros(500);
const WAKES: u32 = 5;
/// What the clock of a worker's gap cannot tell, ns.
const GRAIN_NS: u64 = 60_000;

/// A chain on wires.
pub struct Wired {
    engine: Engine,
    ends: Vec<End>,
    /// The end that packets are sent into.
    into: usize,
    buffers: Buffers,
    /// Packets that the wire has taken so far, and packets that have come.
    handed: u64,
    taken: u64,
    /// For each end what came last, and when.
    arrived: Vec<(Batch, u64)>,
    sequence: u64,
    stop: Arc<AtomicBool>,
}

/// Which packets are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Those that wake the workers.
    Prelude(u64),
    /// Those that count.
    Trial,
}

impl Wired {
    /// Starts the chains of a file; packets are sent to its port of number `into`. The calling thread is the one that has
    /// to run the trials.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start(file: &ChainFile, into: usize) -> Result<Wired, runtime::Error> {
        let (engine, ends) = Engine::start_on_wires(file, DEPTH)?;
        let into = ends.iter().position(|end| end.port == into).unwrap_or_default();
        let arrived = ends.iter().map(|_| (Batch::new(), 0)).collect();
        let buffers = Buffers::new(engine.pool().clone());
        Ok(Wired { engine, ends, into, buffers, handed: 0, taken: 0, arrived, sequence: 0, stop: Arc::default() })
    }

    /// Has trials end when this is set.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// The engine, to be asked what it counts.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Offers `load_pps` packets a second for `duration_s` seconds, waits until all is through, and counts.
    ///
    /// # Errors
    /// A load or a length that cannot be kept.
    pub fn trial(
        &mut self,
        load: &mut Load<'_>,
        load_pps: f64,
        duration_s: f64,
    ) -> Result<(Trial, Receiver), PaceError> {
        let hz = clock::hz();
        let made_before = if load.is_replay() { self.created() } else { 0 };
        let mut plain = self.wake(load);
        let mut pacer = Pacer::new(Pace::new(load_pps, duration_s, hz), clock::cycles() + hz / 10_000)?;
        let first = self.sequence;
        let mut receiver = Receiver::new(load.probe_at(), first, pacer.totals().intended, hz);
        // about a million latencies a second
        receiver.sample((load_pps / load.numbered_every() as f64 / 1e6) as u64);
        self.engine.gaps();
        let (mut looked, mut own) = (clock::cycles(), 0);
        while !pacer.is_finished() && !self.stop.load(Ordering::Relaxed) {
            let now = clock::cycles();
            if now - looked > hz / 20_000 {
                own += now - looked;
            }
            looked = now;
            let due = pacer.due(now);
            if due != 0 {
                let sent = self.send(load, due, Part::Trial);
                pacer.sent(sent, now);
            }
            self.receive(&mut receiver);
        }
        self.drain(&mut receiver);
        pacer.stop();
        let totals = pacer.totals();
        let numbered = self.sequence - first;
        self.sequence = first + totals.intended;
        let mut seen = receiver.totals(numbered);
        if load.is_replay() {
            plain.sent = totals.sent - numbered;
            plain.created = self.created() - made_before;
            seen = plain.add_to(seen);
        }
        let (longest, sum) = self.engine.gaps();
        let gaps = PollGaps { generator: pacer.poll_gap_max_ns(), worker: longest.as_nanos() as u64 };
        let away = Duration::from_secs_f64(own as f64 / hz as f64) + sum;
        let mut trial = Trial::new(load_pps, duration_s, totals, seen);
        trial.machine = was_away(&trial, gaps, pacer.gap_limit_ns(), away);
        trial.poll_gap_max_ns = gaps;
        trial.late_hdr = hdr::encode(pacer.lateness().histogram()).ok();
        trial.latency_hdr = hdr::encode(receiver.latency().histogram()).ok();
        Ok((trial, receiver))
    }

    /// Packets that the chain has made itself so far.
    fn created(&self) -> u64 {
        self.engine.snapshot().totals.created
    }

    /// Whether nothing is under way: the chain has received what was handed to the wire, knows what has become of it, and
    /// what it has sent has come. A worker that is away shows here, and not in that nothing comes.
    fn is_through(&self) -> bool {
        let did = self.engine.snapshot();
        did.balanced && did.totals.received == self.handed && did.totals.sent == self.taken
    }

    /// Takes in what is under way.
    fn drain(&mut self, receiver: &mut Receiver) {
        let ended = clock::cycles();
        let mut last = ended;
        loop {
            let now = clock::cycles();
            if self.receive(receiver) != 0 {
                last = now;
            }
            if now - ended > ticks(DRAIN) {
                break;
            }
            if now - last > ticks(QUIET) {
                if self.is_through() {
                    break;
                }
                last = now;
            }
        }
    }

    /// Sends a packet now and then for a while, so that no worker sleeps when the trial begins. They count nowhere; what
    /// is to be known of them where packets without a number are counted.
    fn wake(&mut self, load: &mut Load<'_>) -> Plain {
        let mut plain = Plain::default();
        for _ in 0..WAKES {
            let (hz, from) = (clock::hz(), clock::cycles());
            let mut before = Receiver::new(load.probe_at(), 0, 0, hz);
            before.set_stream(PRELUDE_STREAM, Sequence::new(0, PRELUDE));
            let (mut sent, numbers) = (0, self.sequence);
            for n in 0..PRELUDE {
                while clock::cycles() < from + n * hz / 200_000 {
                    self.receive(&mut before);
                }
                sent += self.send(load, 1, Part::Prelude(n)) as u64;
            }
            let numbered = self.sequence - numbers;
            self.sequence = numbers;
            plain.prelude += sent - numbered;
            let awake = sent == numbered || self.prelude_is_through(&mut before);
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
    fn prelude_is_through(&mut self, before: &mut Receiver) -> bool {
        let ended = clock::cycles();
        while clock::cycles() - ended < ticks(THROUGH) {
            self.receive(before);
            if self.is_through() {
                // what has come last is looked at now
                self.receive(before);
                return true;
            }
        }
        self.drain(before);
        false
    }

    /// Puts packets on the wire, as many as are due and there are buffers for; how many. What the chain's queue has no room
    /// for is lost there, as in a NIC.
    fn send(&mut self, load: &mut Load<'_>, due: usize, part: Part) -> usize {
        match &mut load.0 {
            Kind::Made(made) => self.send_from(made, due, part),
            Kind::Replay(replay) => self.send_from(replay, due, part),
        }
    }

    #[inline(always)]
    fn send_from(&mut self, source: &mut impl Source, due: usize, part: Part) -> usize {
        let mut left = due;
        while left != 0 {
            let mut burst = Batch::new();
            let stamp = clock::cycles();
            while left != 0 && !burst.is_full() {
                let made = match part {
                    Part::Trial => {
                        source.packet(Probe { stream: 0, sequence: self.sequence, stamp }, &mut self.buffers)
                    }
                    Part::Prelude(sequence) => {
                        source.prelude(Probe { stream: PRELUDE_STREAM, sequence, stamp }, &mut self.buffers)
                    }
                };
                let Some((packet, numbered)) = made else {
                    self.handed += self.ends[self.into].tx.send(&mut burst) as u64;
                    return due - left;
                };
                self.sequence += u64::from(numbered);
                left -= 1;
                burst.push(packet).unwrap_or_else(drop);
            }
            self.handed += self.ends[self.into].tx.send(&mut burst) as u64;
        }
        due
    }

    /// Forgets the packets that have come back: their payload is that of other frames.
    pub fn forget(&mut self) {
        self.buffers.forget();
    }

    /// Looks at what came the last time, whose bytes have been fetched meanwhile from the other core's cache, and takes what
    /// has come since; how many packets those are.
    fn receive(&mut self, receiver: &mut Receiver) -> usize {
        let mut all = 0;
        for (end, (arrived, at)) in self.ends.iter_mut().zip(&mut self.arrived) {
            if !arrived.is_empty() {
                arrived.for_each(|packet| {
                    receiver.take(packet.data(), *at);
                });
                self.buffers.keep(arrived);
            }
            let n = end.rx.receive(arrived);
            if n != 0 {
                all += n;
                self.taken += n as u64;
                *at = clock::cycles();
                arrived.fetch();
            }
        }
        all
    }

    /// Stops the chains; what they have done.
    pub fn stop(mut self) -> Summary {
        let mut foreign = Receiver::new(0, 0, 0, clock::hz());
        while self.receive(&mut foreign) != 0 {}
        self.receive(&mut foreign);
        self.buffers.clear();
        drop((self.ends, self.arrived));
        self.engine.stop()
    }
}

fn ticks(time: Duration) -> u64 {
    (time.as_secs_f64() * clock::hz() as f64) as u64
}

/// Whether a loop was away for longer than the packets that stand before it may wait, and the loss is no more than what
/// came in the time that both were `away`.
fn was_away(trial: &Trial, gaps: PollGaps, generator_limit: u64, away: Duration) -> bool {
    let lasts = (f64::from(DEPTH) / trial.load_pps * 1e9) as u64 + GRAIN_NS;
    let missing = trial.lost + trial.unsent;
    // what came while nobody looked has then to be worked off beside what comes
    let explained = 2.0 * trial.load_pps * away.as_secs_f64();
    missing != 0 && missing as f64 <= explained && (gaps.worker > lasts || gaps.generator > generator_limit)
}
