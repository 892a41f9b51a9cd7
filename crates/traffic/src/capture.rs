//! Frames of a capture, to be sent as traffic.
//!
//! The capture is held in memory, up to a limit, and its frames are sent over and over as they are, but for what is asked to
//! be changed; a [`Stream`](crate::Stream) sends those that memory does not hold. Of those that carry UDP or TCP with 18 bytes of payload or more, one now and then is sent with a
//! [`Probe`] in place of the first 18: what comes back of the others is known from counts alone, of these also order,
//! copies and latency. Most payloads so stay what they were, for functions that look into them.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use pcap::{LinkType, Reader, Record};
use wire::checksum::Pseudo;
use wire::flow::FiveTuple;
use wire::{IpProtocol, MacAddr, ipv4, ipv6};

use crate::departures::Departures;
use crate::pace::PaceError;
use crate::probe::{self, Payload, Probe, Reading};
use crate::random::Random;
use crate::rewrite::Rewrite;
use crate::size::{FCS, FrameSize};

/// Memory for a capture unless told otherwise, bytes: 900,000 of the smallest frames.
pub const MAX_BYTES: usize = 64 << 20;
/// Of so many frames, one carries a probe, on average.
pub const PROBE_EVERY: u64 = 32;
/// A probe goes no further behind than this, so that it is found also behind what functions add.
const DEEPEST: usize = 200;

/// Settings of a capture as traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureSettings {
    /// Most memory to use, bytes, at most 4 GiB. The first frames that fit are taken.
    pub max_bytes: usize,
    /// Longest frame that is taken, bytes without frame check sequence.
    pub max_frame: usize,
    /// Source address for all frames; else their own.
    pub src_mac: Option<MacAddr>,
    /// Destination address for all frames; else their own.
    pub dst_mac: Option<MacAddr>,
    /// Further changes.
    pub rewrite: Rewrite,
    /// True if frames beyond the limit are read and counted.
    pub count_all: bool,
}

impl Default for CaptureSettings {
    /// 64 MiB, frames of every size, the capture's own addresses.
    fn default() -> Self {
        Self {
            max_bytes: MAX_BYTES,
            max_frame: FrameSize::MAX.without_fcs(),
            src_mac: None,
            dst_mac: None,
            rewrite: Rewrite::default(),
            count_all: false,
        }
    }
}

/// Error of a capture as traffic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] pcap::Error),
    /// None of its frames can be sent.
    #[error("no frame of {} can be sent{}; capture on an Ethernet interface with whole frames (-s 0)", .0.records, .0)]
    Empty(Skipped),
    /// There is no thread to read it.
    #[error("no thread to read the capture: {0}")]
    Thread(std::io::Error),
    /// The limit does not even hold the first frame.
    #[error("a limit of {0} bytes holds no frame; raise it")]
    Limit(usize),
}

/// Records that were left out, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Skipped {
    /// All records read, whether left out or not.
    pub records: u64,
    /// Of another link type than Ethernet.
    pub not_ethernet: u64,
    /// With fewer bytes captured than the frame had.
    pub cut: u64,
    /// Longer than a frame may be.
    pub long: u64,
    /// Shorter than an Ethernet header.
    pub short: u64,
    /// With a probe in a place where none can be written: what comes back could not be told from what is sent.
    pub probes: u64,
}

impl Skipped {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            not_ethernet: self.not_ethernet + other.not_ethernet,
            cut: self.cut + other.cut,
            long: self.long + other.long,
            short: self.short + other.short,
            probes: self.probes + other.probes,
        }
    }

    /// Returns the number of skipped records.
    pub fn sum(&self) -> u64 {
        self.not_ethernet + self.cut + self.long + self.short + self.probes
    }
}

impl std::fmt::Display for Skipped {
    /// `: 3 not Ethernet, 1 too long`; nothing where none was left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            (self.not_ethernet, "not Ethernet"),
            (self.cut, "cut short in capturing"),
            (self.long, "too long"),
            (self.short, "without an Ethernet header"),
            (self.probes, "with a probe of another generator"),
        ];
        for (n, (count, why)) in all.into_iter().filter(|(count, _)| *count != 0).enumerate() {
            write!(f, "{} {count} {why}", if n == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    offset: u32,
    len: u16,
    /// Offset of the probe; 0 for none.
    probe: u16,
    /// Offset of the checksum that covers it.
    checksum: u16,
    /// Sum of the bytes other than the probe that this checksum covers, native order.
    sum: u16,
    /// Kind of checksum over the probe.
    summed: Summed,
    /// True if it always carries a probe, because it was captured with a foreign one.
    always: bool,
}

/// A checksum over a probe.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Summed {
    /// Left out: UDP over IPv4 (RFC 768 allows 0).
    #[default]
    Never,
    /// UDP's, of which 0 would mean none.
    Udp,
    /// TCP's.
    Tcp,
}

/// Frames of a capture in their order.
#[derive(Clone, Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// For each frame when it was captured, nanoseconds, never before the one in front of it.
    times: Vec<u64>,
    skipped: Skipped,
    end: End,
    flows: usize,
    /// Records and bytes of frames behind those that are held.
    beyond: (u64, u64),
    /// The latest of their times, by the capture's clock.
    latest: u64,
    /// Frames held that a rewriting has changed.
    rewritten: u64,
    /// Bytes of the longest frame without FCS, with frames that are counted only.
    longest: usize,
}

/// Result of adding a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    Taken,
    LeftOut,
    Full,
}

/// Reason for the end of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With the file.
    Whole,
    /// The next frame exceeds the limit.
    Full,
    /// The file is truncated.
    BreaksOff,
}

impl Capture {
    /// Reads a capture file: pcap or pcapng, plain or gzipped.
    ///
    /// # Errors
    /// See [`CaptureError`]. A file that breaks off is no error if some frames could be read.
    pub fn open(path: impl AsRef<Path>, settings: CaptureSettings) -> Result<Self, CaptureError> {
        Self::read(Reader::open(path)?, settings)
    }

    /// As [`open`](Self::open), from a reader.
    ///
    /// # Errors
    /// See [`CaptureError`].
    pub fn read<R: Read>(mut reader: Reader<R>, settings: CaptureSettings) -> Result<Self, CaptureError> {
        let mut capture = Self::empty();
        let mut flows = HashSet::new();
        loop {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(pcap::Error::Truncated { .. }) if !capture.entries.is_empty() => {
                    capture.end = End::BreaksOff;
                    break;
                }
                Err(why) => return Err(why.into()),
            };
            match capture.admit(&record, &settings) {
                // as it is sent: rewriting may make one flow of several
                Admitted::Taken => {
                    flows.extend(capture.entries.last().and_then(|e| FiveTuple::of_frame(capture.stored(e))))
                }
                Admitted::LeftOut => {}
                Admitted::Full => {
                    capture.end = End::Full;
                    capture.count(&record, &settings);
                    break;
                }
            }
        }
        while settings.count_all && capture.end == End::Full {
            match reader.next() {
                Ok(Some(record)) => {
                    capture.count(&record, &settings);
                }
                Ok(None) | Err(pcap::Error::Truncated { .. }) => break,
                Err(why) => return Err(why.into()),
            }
        }
        capture.flows = flows.len();
        match (capture.entries.is_empty(), capture.end) {
            (true, End::Full) => Err(CaptureError::Limit(settings.max_bytes)),
            (true, _) => Err(CaptureError::Empty(capture.skipped)),
            _ => Ok(capture),
        }
    }

    /// Creates an empty capture.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            times: Vec::new(),
            skipped: Skipped::default(),
            end: End::Whole,
            flows: 0,
            beyond: (0, 0),
            latest: 0,
            rewritten: 0,
            longest: 0,
        }
    }

    /// Counts a record whose frame is not held.
    fn count(&mut self, record: &Record<'_>, settings: &CaptureSettings) {
        let len = record.frame.len();
        self.beyond = (self.beyond.0 + 1, self.beyond.1 + len as u64);
        self.latest = self.latest.max(record.timestamp_ns);
        if len <= settings.max_frame {
            self.longest = self.longest.max(len);
        }
    }

    /// Takes its frames out and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.times.clear();
        self.skipped = Skipped::default();
        self.rewritten = 0;
    }

    /// Takes a record's frame in, if it can be sent and there is room.
    pub(crate) fn admit(&mut self, record: &Record<'_>, settings: &CaptureSettings) -> Admitted {
        let limit = settings.max_bytes.min(u32::MAX as usize);
        let longest = settings.max_frame.min(FrameSize::MAX.without_fcs());
        let rewritten = (!settings.rewrite.is_nothing() && record.frame.len() <= longest).then(|| {
            let mut frame = record.frame.to_vec();
            settings.rewrite.apply(&mut frame);
            frame
        });
        let frame = rewritten.as_deref().unwrap_or(record.frame);
        let len = frame.len().max(FrameSize::MIN.without_fcs());
        let reason = if record.link_type != LinkType::ETHERNET {
            &mut self.skipped.not_ethernet
        } else if (record.original_len as usize) > record.frame.len() {
            &mut self.skipped.cut
        } else if len > longest {
            &mut self.skipped.long
        } else if frame.len() < 14 {
            &mut self.skipped.short
        } else {
            if self.memory() + len + size_of::<Entry>() + size_of::<u64>() > limit {
                return Admitted::Full;
            }
            self.skipped.records += 1;
            if self.push(frame, settings) {
                let before = self.times.last().copied().unwrap_or(0);
                self.times.push(record.timestamp_ns.max(before));
                self.rewritten += u64::from(rewritten.as_ref().is_some_and(|now| **now != *record.frame));
                return Admitted::Taken;
            }
            self.skipped.probes += 1;
            return Admitted::LeftOut;
        };
        *reason += 1;
        self.skipped.records += 1;
        Admitted::LeftOut
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.entries.len() * (size_of::<Entry>() + size_of::<u64>())
    }

    /// Adds a frame, unless it carries a probe that cannot be replaced.
    fn push(&mut self, frame: &[u8], settings: &CaptureSettings) -> bool {
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.bytes.resize(offset + frame.len().max(FrameSize::MIN.without_fcs()), 0);
        let stored = &mut self.bytes[offset..];
        if let Some(mac) = settings.dst_mac {
            stored[..6].copy_from_slice(&mac.0);
        }
        if let Some(mac) = settings.src_mac {
            stored[6..12].copy_from_slice(&mac.0);
        }
        self.longest = self.longest.max(stored.len());
        let mut entry = Entry { offset: offset as u32, len: stored.len() as u16, ..Entry::default() };
        entry.always = Probe::read_at(frame, usize::MAX).0 != Reading::Foreign;
        prepare(&stored[..frame.len()], &mut entry);
        if entry.always && entry.probe == 0 {
            self.bytes.truncate(offset);
            return false;
        }
        self.entries.push(entry);
        true
    }

    /// Returns the number of frames; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a capture without frames is refused")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Frames of the file behind those that are held: 0 or, unless they were to be counted, 1 if there are any.
    pub fn beyond(&self) -> u64 {
        self.beyond.0
    }

    /// Returns the reason why it ends.
    pub fn end(&self) -> End {
        self.end
    }

    /// Returns the counts of skipped records.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Returns the different five-tuples among the frames, in one direction each.
    pub fn flows(&self) -> usize {
        self.flows
    }

    /// Frame number `frame` as it is sent without a probe: without frame check sequence, padded to 60 bytes. Empty if
    /// there is no such frame.
    #[inline(always)]
    pub fn frame(&self, frame: usize) -> &[u8] {
        self.entries.get(frame).map_or(&[], |entry| self.stored(entry))
    }

    #[inline(always)]
    fn stored(&self, entry: &Entry) -> &[u8] {
        let start = entry.offset as usize;
        self.bytes.get(start..start + usize::from(entry.len)).unwrap_or(&[])
    }

    /// Returns true if frame number `frame` has room for a probe.
    #[inline(always)]
    pub fn has_room(&self, frame: usize) -> bool {
        self.entries.get(frame).is_some_and(|entry| entry.probe != 0)
    }

    /// Returns true if frame number `frame` is sent with a probe every time.
    #[inline(always)]
    pub(crate) fn is_always(&self, frame: usize) -> bool {
        self.entries.get(frame).is_some_and(|entry| entry.always)
    }

    pub(crate) fn is_without_frames(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the first frame with room for a probe.
    pub fn first_with_room(&self) -> Option<usize> {
        self.entries.iter().position(|entry| entry.probe != 0)
    }

    /// Returns the bytes of the longest frame without FCS; of all of the file if its frames were to be counted.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Mean size of a frame in bytes, frame check sequence included; of all of the file if they were to be counted.
    pub fn mean_size(&self) -> f64 {
        let (frames, bytes) = self.beyond;
        (self.bytes.len() as u64 + bytes) as f64 / (self.entries.len() as u64 + frames) as f64 + f64::from(FCS)
    }

    /// When frame number `frame` was captured, nanoseconds since the first; never before the one in front of it.
    pub fn time_ns(&self, frame: usize) -> Option<u64> {
        Some(self.times.get(frame)? - self.times.first()?)
    }

    /// Returns the time of frame number `frame` by the capture's clock.
    pub(crate) fn stamp(&self, frame: usize) -> Option<u64> {
        self.times.get(frame).copied()
    }

    /// Returns the frames held that the rewriting has changed.
    pub fn rewritten(&self) -> u64 {
        self.rewritten
    }

    /// Returns the time of the first frame in nanoseconds by the capture's clock.
    pub fn first_ns(&self) -> u64 {
        self.times.first().copied().unwrap_or(0)
    }

    /// Returns the time of the last frame by the same clock; of the whole file if it was counted.
    pub fn last_ns(&self) -> u64 {
        self.times.last().copied().unwrap_or(0).max(self.latest)
    }

    /// The gaps with which the frames were captured, over and over and `speed` times as fast; between the last and the first
    /// is their mean.
    ///
    /// # Errors
    /// [`PaceError::Departures`] if `speed` is not from 10⁻⁶ to 10¹², or the capture took more than 100 days.
    pub fn departures(&self, speed: f64) -> Result<Departures, PaceError> {
        let last = self.times.last().copied().unwrap_or(0) - self.first_ns();
        let mean = last.checked_div(self.len() as u64 - 1).unwrap_or(0).max(1);
        self.departures_from(0, last.saturating_add(mean), speed)
    }

    /// As [`departures`](Self::departures), the first frame `start_ns` after the beginning and all of it again every `period_ns`,
    /// to go with another capture.
    ///
    /// # Errors
    /// [`PaceError::Departures`], also where the period is shorter than the capture.
    pub fn departures_from(&self, start_ns: u64, period_ns: u64, speed: f64) -> Result<Departures, PaceError> {
        let first = self.first_ns();
        let at: Vec<u64> = self.times.iter().map(|ns| (ns - first).saturating_add(start_ns)).collect();
        Departures::looped(&at, period_ns, speed)
    }

    /// Its frames one after the other, without end; probes come at random by `seed`, so that no pattern of the capture
    /// meets theirs (RFC 2330 §11.1).
    pub fn turns(&self, seed: u64) -> FrameSequence<'_> {
        let mut turns = FrameSequence { capture: self, next: 0, random: Random::new(seed), until: 0 };
        turns.until = turns.gap();
        turns
    }

    /// Writes frame number `frame` to the front of `out`, with `probe` if there is one and room for it.
    ///
    /// Returns its length; 0, and nothing is written, if there is no such frame or `out` is shorter.
    #[inline(always)]
    pub fn fill(&self, frame: usize, probe: Option<Probe>, out: &mut [u8]) -> usize {
        let Some(entry) = self.entries.get(frame) else { return 0 };
        let stored = self.stored(entry);
        let Some(out) = out.get_mut(..stored.len()) else { return 0 };
        out.copy_from_slice(stored);
        if let Some(probe) = probe.filter(|_| entry.probe != 0) {
            put_probe(entry, probe, out);
        }
        stored.len()
    }
}

/// The frames of a [`Capture`], in turn.
#[derive(Clone, Debug)]
pub struct FrameSequence<'a> {
    capture: &'a Capture,
    next: usize,
    random: Random,
    /// Frames until one is to carry a probe.
    until: u64,
}

/// The next frame to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextFrame {
    /// Number of the frame.
    pub frame: usize,
    /// True if it carries a probe; it has room for it.
    pub probe: bool,
}

impl<'a> FrameSequence<'a> {
    /// Returns the capture.
    pub fn capture(&self) -> &'a Capture {
        self.capture
    }

    /// Restarts at the first frame; the choice of frames with a probe stays random.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// 1 to one less than twice [`PROBE_EVERY`], whose mean it is.
    fn gap(&mut self) -> u64 {
        1 + self.random.below(2 * PROBE_EVERY - 1)
    }

    /// Leaves out frames that were to be sent and came too late.
    pub fn skip(&mut self, frames: u64) {
        self.next = ((self.next as u64 + frames) % self.capture.entries.len().max(1) as u64) as usize;
    }

    /// Returns the next frame. A probe whose turn it is waits for a frame that has room.
    #[inline(always)]
    pub fn next_turn(&mut self) -> NextFrame {
        let frame = self.next;
        self.next = if frame + 1 < self.capture.entries.len() { frame + 1 } else { 0 };
        let Some(entry) = self.capture.entries.get(frame) else { return NextFrame { frame, probe: false } };
        self.until = self.until.saturating_sub(1);
        let due = self.until == 0 && entry.probe != 0;
        if due {
            self.until = self.gap();
        }
        NextFrame { frame, probe: due || entry.always }
    }
}

#[inline(always)]
fn put_probe(entry: &Entry, probe: Probe, out: &mut [u8]) {
    let (at, checksum) = (usize::from(entry.probe), usize::from(entry.checksum));
    if let Some(place) = out.get_mut(at..at + probe::LEN) {
        place.copy_from_slice(&probe.to_bytes());
    }
    let bytes = match entry.summed {
        Summed::Never => [0; 2],
        kind => match probe::fold(u64::from(entry.sum) + probe::sum(probe.words())) {
            0 if kind == Summed::Udp => [0xff; 2],
            sum => sum.to_ne_bytes(),
        },
    };
    if let Some(place) = out.get_mut(checksum..checksum + 2) {
        place.copy_from_slice(&bytes);
    }
}

/// Sees where a probe goes in the frame, if it can have one.
fn prepare(frame: &[u8], entry: &mut Entry) {
    let room = |place: &Payload| place.end - place.start >= probe::LEN && place.start <= DEEPEST;
    let Some(place) = probe::payload(frame).filter(room) else { return };
    let Some(pseudo) = pseudo(frame, &place) else { return };
    // A tunnel's checksum covers the probe as well, and is rare (RFC 7348 §5).
    if place.tunnel.is_some_and(|at| frame.get(at..at + 2) != Some(&[0; 2])) {
        return;
    }
    entry.probe = place.start as u16;
    entry.checksum = place.checksum as u16;
    let udp = place.checksum + 2 == place.start;
    if udp && pseudo.udp_checksum_optional() {
        return;
    }
    let mut covered = frame[place.transport..place.end].to_vec();
    let at = |place_of: usize| place_of - place.transport;
    covered[at(place.checksum)..at(place.checksum) + 2].fill(0);
    covered[at(place.start)..at(place.start) + probe::LEN].fill(0);
    entry.sum = probe::partial(pseudo.sum(&covered));
    entry.summed = if udp { Summed::Udp } else { Summed::Tcp };
}

/// Returns the pseudo header of the packet, unless a routing header hides where it goes (RFC 8200 §8.1).
fn pseudo(frame: &[u8], place: &Payload) -> Option<Pseudo> {
    let packet = frame.get(place.network..place.end)?;
    match packet.first()? >> 4 {
        4 => ipv4::Packet::new(packet).ok().map(|packet| packet.pseudo()),
        6 => {
            let packet = ipv6::Packet::new(packet).ok()?;
            let routed = packet.extensions().any(|extension| extension.kind == IpProtocol::ROUTING);
            (!routed).then(|| packet.pseudo())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
