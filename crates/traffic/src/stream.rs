//! Captures larger than memory: a thread reads ahead into a bounded ring of buffers, the sender never waits for it.
//!
//! The sender asks for the [`next frame`](Stream::next_turn). If none is there, because the disk or the unpacking is slower
//! than the load, it gets none: it counts that packet as unsent, and [`Stream::starved`] counts it as well. At most
//! [`StreamSettings::chunks`] buffers of [`StreamSettings::chunk_bytes`] are in use, whatever the file's size.
//!
//! ```no_run
//! use traffic::{Departures, Pace, Pacer, Probe, Stream, StreamSettings};
//!
//! // With the capture's own gaps, twice as fast.
//! let mut stream = Stream::start("lunch.pcapng.gz", StreamSettings::default());
//! stream.wait(std::time::Duration::from_secs(1));
//! let mut pacer = Pacer::follow(Departures::fed(2.0)?, Pace::new(1.0, 60.0, 1_000_000_000), 0)?;
//! # let (clock, mut frame) = (|| 0, [0; 2048]);
//! while !pacer.is_finished() {
//!     stream.feed(&mut pacer);
//!     let unsent = pacer.totals().unsent;
//!     let now = clock();
//!     let due = pacer.due(now);
//!     stream.skip(pacer.totals().unsent - unsent);
//!     for _ in 0..due {
//!         if let Some(turn) = stream.next_turn() {
//!             let len = stream.fill(turn, turn.probe.then_some(Probe::default()), &mut frame);
//!             // send frame[..len]
//!         }
//!     }
//!     pacer.sent(due, now);
//! }
//! # Ok::<(), traffic::pace::PaceError>(())
//! ```

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::Duration;

use pcap::Reader;

use crate::capture::{Admitted, Capture, CaptureError, CaptureSettings, NextFrame, PROBE_EVERY, Skipped};
use crate::pacer::Pacer;
use crate::probe::Probe;
use crate::random::Random;

/// Departures that [`Stream::feed`] tells ahead.
const AHEAD: u64 = 256;

/// Settings of reading and sending a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamSettings {
    /// Changes, and the longest frame; its `max_bytes` is ignored.
    pub capture: CaptureSettings,
    /// Bytes of a buffer, 64 KiB to 64 MiB.
    pub chunk_bytes: usize,
    /// Buffers, 2 to 1024.
    pub chunks: usize,
    /// Number of times that the file is read; unlimited if none.
    pub rounds: Option<u64>,
    /// For the places of probes.
    pub seed: u64,
    /// When the first frame is due, nanoseconds from the beginning; where another capture began before.
    pub start_ns: u64,
    /// After how long the file is sent again, nanoseconds; if none, or shorter than it takes, behind the mean gap.
    pub period_ns: Option<u64>,
}

impl Default for StreamSettings {
    /// 16 buffers of a MiB, over and over.
    fn default() -> Self {
        Self {
            capture: CaptureSettings::default(),
            chunk_bytes: 1 << 20,
            chunks: 16,
            rounds: None,
            seed: 0,
            start_ns: 0,
            period_ns: None,
        }
    }
}

/// Frames in a row.
struct Chunk {
    frames: Capture,
    /// Offset between the capture's clock and the schedule.
    first: u64,
    start: u64,
    /// Counts of skipped records since the start of the file.
    skipped: Skipped,
    round: u64,
}

enum Message {
    Chunk(Chunk),
    Failed(CaptureError),
}

/// A capture being read; see the [module](self).
pub struct Stream {
    full: Receiver<Message>,
    empty: Sender<Capture>,
    current: Option<Chunk>,
    next: usize,
    /// Packets of the current chunk that a pacer was told of.
    fed: usize,
    random: Random,
    /// Frames until one is to carry a probe.
    until: u64,
    starved: u64,
    last_ns: u64,
    skipped: Skipped,
    ended: bool,
    failed: Option<CaptureError>,
}

impl Stream {
    /// Starts to read a file. Whether that works shows later: [`wait`](Self::wait) and [`failed`](Self::failed).
    pub fn start(path: impl AsRef<Path>, settings: StreamSettings) -> Self {
        Self::start_with(path, settings, || {})
    }

    /// As [`start`](Self::start); the thread calls `first` before all else. A thread inherits the CPU that its maker is kept
    /// on: `first` can move it away from the sender.
    pub fn start_with(path: impl AsRef<Path>, settings: StreamSettings, first: impl FnOnce() + Send + 'static) -> Self {
        let chunks = settings.chunks.clamp(2, 1024);
        let capture = CaptureSettings { max_bytes: settings.chunk_bytes.clamp(64 << 10, 64 << 20), ..settings.capture };
        let (full_in, full) = sync_channel(chunks);
        let (empty, empty_out) = channel();
        for _ in 0..chunks {
            let _ = empty.send(Capture::empty());
        }
        let (path, refused) = (path.as_ref().to_owned(), full_in.clone());
        let rounds = Rounds { most: settings.rounds, start_ns: settings.start_ns, period_ns: settings.period_ns };
        let work = move || {
            first();
            read(path, &capture, rounds, &full_in, &empty_out);
        };
        if let Err(why) = thread::Builder::new().name("capture".to_owned()).spawn(work) {
            let _ = refused.try_send(Message::Failed(CaptureError::Thread(why)));
        }
        let mut random = Random::new(settings.seed);
        let until = 1 + random.below(2 * PROBE_EVERY - 1);
        Self {
            full,
            empty,
            current: None,
            next: 0,
            fed: 0,
            random,
            until,
            starved: 0,
            last_ns: 0,
            skipped: Skipped::default(),
            ended: false,
            failed: None,
        }
    }

    /// Waits until the first frame is there, reading has failed, or `at_most` is over; whether a frame is there. For the time
    /// before a trial.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        if !self.is_ready() && !self.ended {
            match self.full.recv_timeout(at_most) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        self.is_ready()
    }

    /// Returns true if a frame is available, without waiting.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        if self.current.as_ref().is_some_and(|chunk| self.next < chunk.frames.len()) {
            return true;
        }
        self.refill()
    }

    #[cold]
    fn refill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        match self.full.try_recv() {
            Ok(message) => self.take(message),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.ended = true,
        }
        self.current.as_ref().is_some_and(|chunk| self.next < chunk.frames.len())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Chunk(chunk) => {
                self.skipped = chunk.skipped;
                (self.next, self.fed) = (0, 0);
                if let Some(done) = self.current.replace(chunk) {
                    // Without a reader it is not needed any more.
                    let _ = self.empty.send(done.frames);
                }
            }
            Message::Failed(why) => {
                self.failed = Some(why);
                self.ended = true;
            }
        }
    }

    /// The next frame; none if it has not been read yet, which counts as [`starved`](Self::starved), or at the end. Its number
    /// is good until the next call. A probe whose turn it is waits for a frame that has room.
    #[inline]
    pub fn next_turn(&mut self) -> Option<NextFrame> {
        if !self.is_ready() {
            self.starved += u64::from(!self.ended);
            return None;
        }
        let (frame, frames) = (self.next, &self.current.as_ref()?.frames);
        let (room, always) = (frames.has_room(frame), frames.is_always(frame));
        self.next += 1;
        self.fed = self.fed.max(self.next);
        self.until = self.until.saturating_sub(1);
        let due = self.until == 0 && room;
        if due {
            self.until = 1 + self.random.below(2 * PROBE_EVERY - 1);
        }
        Some(NextFrame { frame, probe: due || always })
    }

    /// Leaves out frames that were to be sent and came too late.
    pub fn skip(&mut self, frames: u64) {
        for _ in 0..frames {
            if self.next_turn().is_none() {
                break;
            }
        }
    }

    /// Tells a pacer when the next frames are due, as far as they are there, and at the end that no more come.
    pub fn feed(&mut self, pacer: &mut Pacer) {
        let totals = pacer.totals();
        let waiting = totals.intended - totals.sent - totals.unsent;
        if !self.is_ready() {
            if self.ended && waiting == 0 {
                pacer.close();
            }
            return;
        }
        for _ in waiting..AHEAD {
            let Some(ns) = self.due_ns(self.fed) else { break };
            self.last_ns = self.last_ns.max(ns);
            if !pacer.feed(self.last_ns) {
                break;
            }
            self.fed += 1;
        }
    }

    fn due_ns(&self, frame: usize) -> Option<u64> {
        let chunk = self.current.as_ref()?;
        Some(chunk.start + chunk.frames.stamp(frame)?.saturating_sub(chunk.first))
    }

    /// When a frame was captured, nanoseconds since the first; rounds follow one another after the mean gap.
    pub fn time_ns(&self, turn: NextFrame) -> Option<u64> {
        self.due_ns(turn.frame)
    }

    /// Returns the bytes of a frame, without frame check sequence.
    #[inline]
    pub fn frame_len(&self, turn: NextFrame) -> usize {
        self.current.as_ref().map_or(0, |chunk| chunk.frames.frame(turn.frame).len())
    }

    /// As [`Capture::fill`].
    #[inline]
    pub fn fill(&self, turn: NextFrame, probe: Option<Probe>, out: &mut [u8]) -> usize {
        self.current.as_ref().map_or(0, |chunk| chunk.frames.fill(turn.frame, probe, out))
    }

    /// Returns the number of times that no frame was available when one was due.
    pub fn starved(&self) -> u64 {
        self.starved
    }

    /// Times that the file has been read to its end, up to the frames at hand.
    pub fn rounds(&self) -> u64 {
        self.current.as_ref().map_or(0, |chunk| chunk.round)
    }

    /// Returns the counts of skipped records of the current round.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns true if no more frames will come.
    pub fn is_ended(&mut self) -> bool {
        !self.is_ready() && self.ended
    }

    /// Returns the error that ended reading.
    pub fn failed(&self) -> Option<&CaptureError> {
        self.failed.as_ref()
    }
}

/// Rounds of reading a file, and their start times.
#[derive(Clone, Copy)]
struct Rounds {
    most: Option<u64>,
    start_ns: u64,
    period_ns: Option<u64>,
}

/// Runs the reader thread, which ends at the next buffer after the stream is dropped.
fn read(
    path: PathBuf,
    settings: &CaptureSettings,
    rounds: Rounds,
    full: &SyncSender<Message>,
    empty: &Receiver<Capture>,
) {
    let mut start = rounds.start_ns;
    for round in 0..rounds.most.unwrap_or(u64::MAX) {
        match read_once(&path, settings, start, round, full, empty) {
            Ok(Some(next)) => start = next.max(start.saturating_add(rounds.period_ns.unwrap_or(0))),
            Ok(None) => return,
            Err(why) => {
                let _ = full.send(Message::Failed(why));
                return;
            }
        }
    }
}

/// Reads one round; returns the start time of the next one unless the stream was dropped.
fn read_once(
    path: &Path,
    settings: &CaptureSettings,
    start: u64,
    round: u64,
    full: &SyncSender<Message>,
    empty: &Receiver<Capture>,
) -> Result<Option<u64>, CaptureError> {
    let mut reader = Reader::open(path)?;
    let (mut skipped, mut first, mut last, mut count) = (Skipped::default(), None, 0, 0_u64);
    let Ok(mut frames) = empty.recv() else { return Ok(None) };
    frames.clear();
    loop {
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(pcap::Error::Truncated { .. }) if count != 0 => break,
            Err(why) => return Err(why.into()),
        };
        let mut admitted = frames.admit(&record, settings);
        if admitted == Admitted::Full {
            if frames.is_without_frames() {
                return Err(CaptureError::Limit(settings.max_bytes));
            }
            skipped = skipped.plus(frames.skipped());
            let done = Chunk { frames, first: first.unwrap_or(0), start, skipped, round };
            if full.send(Message::Chunk(done)).is_err() {
                return Ok(None);
            }
            let Ok(next) = empty.recv() else { return Ok(None) };
            frames = next;
            frames.clear();
            admitted = frames.admit(&record, settings);
        }
        if admitted == Admitted::Taken {
            first.get_or_insert(record.timestamp_ns);
            last = record.timestamp_ns.max(last);
            count += 1;
        }
    }
    skipped = skipped.plus(frames.skipped());
    let Some(first) = first else { return Err(CaptureError::Empty(skipped)) };
    if !frames.is_without_frames() && full.send(Message::Chunk(Chunk { frames, first, start, skipped, round })).is_err()
    {
        return Ok(None);
    }
    let took = last.saturating_sub(first);
    let gap = took.checked_div(count - 1).unwrap_or(0).max(1);
    Ok(Some(start.saturating_add(took).saturating_add(gap)))
}

#[cfg(test)]
mod tests;
