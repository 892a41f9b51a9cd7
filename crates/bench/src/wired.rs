//! A chain in this process as the device under test: wires in memory stand in the place of its ports, and the thread that
//! runs trials sends and receives at their far ends.

use crate::trial::{PollGaps, Trial};
use chain::ChainFile;
use packet::{Batch, Packet, clock};
use runtime::{End, Engine, Summary};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::{Mix, Pace, PaceError, Pacer, Picker, Probe, Receiver, Template};

/// Packets that may be under way in each direction of a wire: the descriptors of a common NIC queue.
pub const DEPTH: u32 = 1024;
/// Nothing has come for so long: the path is empty.
const QUIET: Duration = Duration::from_millis(5);
/// Packets that come later than this after the last was sent are lost.
const DRAIN: Duration = Duration::from_millis(500);
/// Packets that are kept to be sent again.
const SPARE: usize = 4096;
/// Packets before a trial, 5 µs apart, and the stream that no receiver knows.
const PRELUDE: u64 = 200;
const PRELUDE_STREAM: u8 = 255;
/// What the clock of a worker's gap cannot tell, ns.
const GRAIN_NS: u64 = 60_000;

/// A chain on wires.
pub struct Wired {
    engine: Engine,
    ends: Vec<End>,
    /// The end that packets are sent into.
    into: usize,
    /// Packets that have come back, to be sent again.
    spare: Vec<Packet>,
    /// New buffers.
    ready: Batch,
    /// For each end what came last, and when.
    arrived: Vec<(Batch, u64)>,
    sequence: u64,
    stop: Arc<AtomicBool>,
}

/// What is sent.
pub struct Load<'a> {
    /// The frames.
    pub template: &'a Template,
    /// Their sizes.
    pub mix: &'a Mix,
    /// Their flows, in turn.
    pub picker: Picker,
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
        Ok(Wired { engine, ends, into, spare: vec![], ready: Batch::new(), arrived, sequence: 0, stop: Arc::default() })
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
        self.wake(load);
        let mut pacer = Pacer::new(Pace::new(load_pps, duration_s, hz), clock::cycles() + hz / 10_000)?;
        let probe_at = load.template.probe_at();
        let first = self.sequence;
        let mut receiver = Receiver::new(probe_at, first, pacer.totals().intended, hz);
        // about a million latencies a second
        receiver.sample((load_pps / 1e6) as u64);
        let mut sizes = load.mix.cycle();
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
                let sent = self.send(load, &mut sizes, due, 0);
                pacer.sent(sent, now);
            }
            self.receive(&mut receiver);
        }
        let ticks = |time: Duration| (time.as_secs_f64() * hz as f64) as u64;
        let ended = clock::cycles();
        let mut last = ended;
        loop {
            let now = clock::cycles();
            if self.receive(&mut receiver) != 0 {
                last = now;
            }
            if now - last > ticks(QUIET) || now - ended > ticks(DRAIN) {
                break;
            }
        }
        pacer.stop();
        let totals = pacer.totals();
        self.sequence = first + totals.intended;
        let (longest, sum) = self.engine.gaps();
        let gaps = PollGaps { generator: pacer.poll_gap_max_ns(), worker: longest.as_nanos() as u64 };
        let away = Duration::from_secs_f64(own as f64 / hz as f64) + sum;
        let mut trial = Trial::new(load_pps, duration_s, totals, receiver.totals(totals.sent));
        trial.machine = was_away(&trial, gaps, pacer.gap_limit_ns(), away);
        trial.poll_gap_max_ns = gaps;
        trial.late_hdr = pacer.lateness().to_base64().ok();
        trial.latency_hdr = receiver.latency().to_base64().ok();
        Ok((trial, receiver))
    }

    /// Sends a packet now and then for a while, so that no worker sleeps when the trial begins. They count nowhere.
    fn wake(&mut self, load: &mut Load<'_>) {
        let (hz, from) = (clock::hz(), clock::cycles());
        let mut nobody = Receiver::new(load.template.probe_at(), 0, 0, hz);
        let mut sizes = load.mix.cycle();
        for n in 0..PRELUDE {
            while clock::cycles() < from + n * hz / 200_000 {
                self.receive(&mut nobody);
            }
            self.send(load, &mut sizes, 1, PRELUDE_STREAM);
        }
    }

    /// Puts packets on the wire, as many as are due and there are buffers for; how many. What the chain's queue has no room
    /// for is lost there, as in a NIC.
    fn send(&mut self, load: &mut Load<'_>, sizes: &mut traffic::size::Cycle, due: usize, stream: u8) -> usize {
        let mut left = due;
        while left != 0 {
            let mut burst = Batch::new();
            let stamp = clock::cycles();
            while left != 0 && !burst.is_full() {
                let size = sizes.next_index();
                let probe = Probe { stream, sequence: self.sequence, stamp };
                let flow = load.picker.next_flow();
                let Some(packet) = self.packet(load.template, (size, flow, probe)) else {
                    self.ends[self.into].tx.send(&mut burst);
                    return due - left;
                };
                self.sequence += u64::from(stream == 0);
                left -= 1;
                burst.push(packet).unwrap_or_else(drop);
            }
            self.ends[self.into].tx.send(&mut burst);
        }
        due
    }

    /// A packet with its bytes: one that has come back, if it has the length, or a new one. One that has come back keeps
    /// its buffer's header, which both cores then only read, and its payload.
    #[inline(always)]
    fn packet(&mut self, template: &Template, (size, flow, probe): (usize, u32, Probe)) -> Option<Packet> {
        let len = template.frame_len(size);
        if let Some(mut packet) = self.spare.pop()
            && packet.len() == len
        {
            template.fill_head(size, flow, probe, packet.data_mut());
            return Some(packet);
        }
        if self.ready.is_empty() && !self.engine.pool().fill(&mut self.ready) {
            return None;
        }
        let mut packet = self.ready.pop()?;
        template.fill(size, flow, probe, packet.append(len)?);
        Some(packet)
    }

    /// Forgets the packets that have come back: their payload is another template's.
    pub fn forget(&mut self) {
        self.spare.clear();
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
                while self.spare.len() < SPARE
                    && let Some(packet) = arrived.pop()
                {
                    self.spare.push(packet);
                }
                arrived.clear();
            }
            let n = end.rx.receive(arrived);
            if n != 0 {
                all += n;
                *at = clock::cycles();
                arrived.fetch();
            }
        }
        all
    }

    /// Stops the chains; what they have done.
    pub fn stop(mut self) -> Summary {
        self.ready.clear();
        let mut foreign = Receiver::new(0, 0, 0, clock::hz());
        while self.receive(&mut foreign) != 0 {}
        self.receive(&mut foreign);
        self.spare.clear();
        drop((self.ends, self.arrived));
        self.engine.stop()
    }
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
