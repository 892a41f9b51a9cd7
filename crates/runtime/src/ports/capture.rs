//! Capture files as ports.

use super::Watch;
use crate::faults::Faults;
use crate::{Receive, Transmit};
use dpdk::Mempool;
use packet::{Batch, Packet, Pool, Stamp};
use pcap::{LinkType, Reader, Writer};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of memory up to which a capture that is read more than once stays there.
const CACHE: usize = 64 << 20;
/// How often a port without a link is asked again.
const ASK: Duration = Duration::from_millis(1);

/// Latest time that a capture file can hold, ns since the Unix epoch: its seconds have 32 bits.
const LATEST: u64 = u32::MAX as u64 * 1_000_000_000 + 999_999_999;

/// The link type of a capture's first frame, or `None` when it has none.
///
/// # Errors
/// When the file is no capture.
pub(crate) fn first_link_type(path: &Path) -> Result<Option<LinkType>, pcap::Error> {
    match Reader::open(path)?.next() {
        Ok(record) => Ok(record.map(|r| r.link_type)),
        // whatever is wrong behind the header is told when it is reached
        Err(_) => Ok(None),
    }
}

/// A capture that is read: as fast as packets are taken, or at the pace at which they were captured.
pub(crate) struct CaptureReader {
    path: PathBuf,
    pool: Arc<Mempool>,
    faults: Faults,
    /// Ports that it leads to and that had no link when last asked: before they have, nothing is read.
    unlinked: Vec<Watch>,
    asked: Option<Instant>,
    source: Source,
    link_type: Option<LinkType>,
    /// Times that it is still to be read after this; `None`: until stopped.
    repeats: Option<u64>,
    /// Grows during the first reading when there will be another.
    cache: Option<Cache>,
    pace: Option<Pace>,
    /// Read, but not due yet.
    staged: Option<Packet>,
    bytes: u64,
    too_long: u64,
    other_link_type: u64,
    /// Whether this reading has brought anything: an empty capture is not read for ever.
    any: bool,
}

enum Source {
    File(Reader<File>),
    /// Number of the next frame in the cache.
    Memory(usize),
    Done,
}

#[derive(Default)]
struct Cache {
    bytes: Vec<u8>,
    /// Where each frame ends in `bytes`, and its stamp.
    frames: Vec<(usize, Stamp)>,
    /// Frames of the capture that are not here: too long, and of another link type.
    dropped: (u64, u64),
}

/// Keeps the gaps between frames.
#[derive(Default)]
struct Pace {
    /// When the first frame left, and its time in the capture.
    origin: Option<(Instant, u64)>,
}

impl Pace {
    /// Whether a frame of this time is due; one that is out of order is due at once.
    fn due(&mut self, ns: u64) -> bool {
        let (start, first) = *self.origin.get_or_insert_with(|| (Instant::now(), ns));
        start.elapsed().as_nanos() >= u128::from(ns.saturating_sub(first))
    }
}

impl CaptureReader {
    /// Opens a capture to be read `repeat` times (0: until stopped), once each of the ports that it leads to has a link.
    pub(crate) fn open(
        path: &Path,
        repeat: u64,
        timed: bool,
        leads_to: Vec<Watch>,
        pool: Arc<Mempool>,
        faults: Faults,
    ) -> Result<Self, pcap::Error> {
        Ok(CaptureReader {
            path: path.to_owned(),
            source: Source::File(Reader::open(path)?),
            pool,
            faults,
            unlinked: leads_to,
            asked: None,
            link_type: None,
            repeats: repeat.checked_sub(1),
            cache: (repeat != 1).then(Cache::default),
            pace: timed.then(Pace::default),
            staged: None,
            bytes: 0,
            too_long: 0,
            other_link_type: 0,
            any: false,
        })
    }

    /// Whether every port that it leads to has had its link.
    #[cold]
    fn linked(&mut self) -> bool {
        if self.asked.is_none_or(|at| at.elapsed() >= ASK) {
            self.unlinked.retain(|port| port.link() == Some(false));
            self.asked = Some(Instant::now());
        }
        self.unlinked.is_empty()
    }

    /// The next packet; `None` at the end, or while the pool is empty.
    #[inline]
    fn fetch(&mut self) -> Option<Packet> {
        loop {
            let mut packet = self.pool.alloc()?;
            match &mut self.source {
                Source::Done => return None,
                Source::Memory(at) => {
                    let cache = self.cache.as_ref().expect("frames come from memory once they are there");
                    if let Some(&(end, stamp)) = cache.frames.get(*at) {
                        let start = at.checked_sub(1).map_or(0, |before| cache.frames[before].0);
                        *at += 1;
                        packet.append(end - start)?.copy_from_slice(&cache.bytes[start..end]);
                        packet.meta_mut().set_stamp(stamp);
                        return Some(packet);
                    }
                }
                Source::File(reader) => match reader.next() {
                    Err(e) => {
                        self.faults.report(e.to_string());
                        self.source = Source::Done;
                        return None;
                    }
                    Ok(Some(record)) => {
                        if *self.link_type.get_or_insert(record.link_type) != record.link_type {
                            self.other_link_type += 1;
                            continue;
                        }
                        let Some(room) = packet.append(record.frame.len()) else {
                            self.too_long += 1;
                            continue;
                        };
                        room.copy_from_slice(record.frame);
                        let cut = record.original_len.saturating_sub(record.frame.len() as u32);
                        let stamp = Stamp { ns: record.timestamp_ns, cut };
                        packet.meta_mut().set_stamp(stamp);
                        if let Some(cache) = &mut self.cache {
                            cache.bytes.extend_from_slice(record.frame);
                            cache.frames.push((cache.bytes.len(), stamp));
                            if cache.bytes.len() + cache.frames.len() * size_of::<(usize, Stamp)>() > CACHE {
                                self.cache = None;
                            }
                        }
                        self.any = true;
                        return Some(packet);
                    }
                    Ok(None) => {}
                },
            }
            self.again();
        }
    }

    /// At the end of the capture: begins anew, or ends for good.
    #[cold]
    fn again(&mut self) {
        if let (Source::File(_), Some(cache)) = (&self.source, &mut self.cache) {
            cache.dropped = (self.too_long, self.other_link_type);
        }
        let more = self.any && self.repeats != Some(0);
        self.repeats = self.repeats.map(|n| n.saturating_sub(1));
        self.pace = self.pace.take().map(|_| Pace::default());
        self.source = match (more, &self.cache) {
            (false, _) => Source::Done,
            (true, Some(cache)) => {
                self.too_long += cache.dropped.0;
                self.other_link_type += cache.dropped.1;
                Source::Memory(0)
            }
            (true, None) => match Reader::open(&self.path) {
                Ok(reader) => Source::File(reader),
                Err(e) => {
                    self.faults.report(e.to_string());
                    Source::Done
                }
            },
        };
    }
}

impl Receive for CaptureReader {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        if !self.unlinked.is_empty() && !self.linked() {
            return 0;
        }
        let before = batch.len();
        while !batch.is_full() {
            let Some(packet) = self.staged.take().or_else(|| self.fetch()) else { break };
            let ns = packet.meta().stamp().map_or(0, |s| s.ns);
            if self.pace.as_mut().is_some_and(|p| !p.due(ns)) {
                self.staged = Some(packet);
                break;
            }
            self.bytes += packet.len() as u64;
            batch.push(packet).expect("it has room");
        }
        batch.len() - before
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn dropped(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("too_long", self.too_long);
        each("other_link_type", self.other_link_type);
    }

    fn finished(&self) -> bool {
        matches!(self.source, Source::Done) && self.staged.is_none()
    }
}

/// A capture that is written, by any number of workers.
#[derive(Clone)]
pub(crate) struct CaptureWriter {
    file: Arc<Mutex<Option<Writer<File>>>>,
    faults: Faults,
    bytes: u64,
}

impl CaptureWriter {
    /// Creates a capture file; one that is there is replaced.
    pub(crate) fn create(path: &Path, link_type: LinkType, faults: Faults) -> Result<Self, pcap::Error> {
        let file = Arc::new(Mutex::new(Some(Writer::create(path, link_type)?)));
        Ok(CaptureWriter { file, faults, bytes: 0 })
    }

    /// Writes out what is still in memory and closes the file.
    pub(crate) fn finish(&self) {
        let writer = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(e)) = writer.map(Writer::finish) {
            self.faults.report(e.to_string());
        }
    }
}

impl Transmit for CaptureWriter {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writer) = &mut *file else { return 0 };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let mut sent = 0;
        for packet in batch.iter() {
            let stamp = packet.meta().stamp().unwrap_or(Stamp { ns: now, cut: 0 });
            let length = (packet.len() as u32).saturating_add(stamp.cut);
            if let Err(e) = writer.write(stamp.ns.min(LATEST), length, packet.data()) {
                self.faults.report(e.to_string());
                // what is in its buffer cannot be written either; told once is enough
                *file = None;
                break;
            }
            self.bytes += packet.len() as u64;
            sent += 1;
        }
        // written packets go home; the others stay, in order
        let mut n = 0;
        batch.extract_if(
            |_| {
                n += 1;
                (n <= sent).then_some(())
            },
            |(), packet| drop(packet),
        );
        sent
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn refusal(&self) -> &'static str {
        "write_failed"
    }
}
