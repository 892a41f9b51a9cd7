//! Capture files as ports.

use super::PortMonitor;
use super::io::{NextFrame, PortDrop, Receive, Transmit};
use crate::faults::run_errors::RunErrors;
use dpdk::Mempool;
use packet::{Batch, CaptureInfo, Packet, Pool};
use pcap::{LinkType, Reader, Writer};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most bytes of a capture that are cached in memory for repeated reading.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Interval between checks of ports without a link.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Latest timestamp of a capture file in ns since the Unix epoch, as its seconds have 32 bits.
const MAX_TIMESTAMP_NS: u64 = u32::MAX as u64 * 1_000_000_000 + 999_999_999;

/// Returns the link type of the first frame of a capture, or `None` if it has no frames.
///
/// # Errors
/// The file is not a capture.
pub(crate) fn first_link_type(path: &Path) -> Result<Option<LinkType>, pcap::Error> {
    match Reader::open(path)?.next() {
        Ok(record) => Ok(record.map(|r| r.link_type)),
        // errors behind the header are reported when they are reached
        Err(_) => Ok(None),
    }
}

/// A capture that is read, as fast as packets are polled or with its own timing.
pub(crate) struct CaptureReader {
    path: PathBuf,
    pool: Arc<Mempool>,
    /// Empty packets, which are allocated in bursts.
    empty: Batch,
    errors: RunErrors,
    /// Reachable ports that have no link yet; nothing is read before all have.
    unlinked: Vec<PortMonitor>,
    links_checked: Option<Instant>,
    source: ReadState,
    link_type: Option<LinkType>,
    /// Number of further repetitions; `None` means until stopped.
    repeats: Option<u64>,
    /// Filled during the first reading if the capture is read again.
    cache: Option<Cache>,
    pace: Option<Pace>,
    time: CaptureTime,
    /// Time in ns of the last frames to receive ([`Receive::receive_until`]).
    until: u64,
    /// A packet that was read and is not yet due.
    staged: Option<Packet>,
    bytes: u64,
    too_long: u64,
    link_type_mismatch: u64,
    /// True if this reading returned a packet; a capture without packets is not read again.
    read_any: bool,
}

enum ReadState {
    File(Reader<File>),
    /// Index of the next frame in the cache.
    Memory(usize),
    Done,
}

#[derive(Default)]
struct Cache {
    bytes: Vec<u8>,
    /// End of each frame in `bytes`, and its capture information.
    frames: Vec<(usize, CaptureInfo)>,
    /// Frames of the capture that are not cached: too long, and of another link type.
    dropped: (u64, u64),
}

/// The timing of a capture, which is reproduced.
#[derive(Default)]
struct Pace {
    /// The time at which the first frame was sent, and its timestamp in ns.
    origin: Option<(Instant, u64)>,
}

impl Pace {
    /// Returns true if a frame with this timestamp is due; a frame that is out of order is due at once.
    fn due(&mut self, ns: u64) -> bool {
        let (start, first) = *self.origin.get_or_insert_with(|| (Instant::now(), ns));
        start.elapsed().as_nanos() >= u128::from(ns.saturating_sub(first))
    }
}

/// The time that a capture gives: its timestamps, which do not go back, and continue when it is read again.
#[derive(Default)]
struct CaptureTime {
    /// Timestamp of the first frame of this repetition, and its time, both in ns.
    origin: Option<(u64, u64)>,
    /// Latest time so far, in ns.
    latest: u64,
}

impl CaptureTime {
    /// Returns the time of the next frame, which has this timestamp. May be called again for the same frame.
    fn of(&mut self, ns: u64) -> u64 {
        let start = if self.latest == 0 { ns } else { self.latest };
        let (first, start) = *self.origin.get_or_insert((ns, start));
        self.latest = self.latest.max(start.saturating_add(ns.saturating_sub(first)));
        self.latest
    }
}

impl CaptureReader {
    /// Opens a capture to be read `repeat` times (0: until stopped), once all of `reachable` ports have a link.
    pub(crate) fn open(
        path: &Path,
        repeat: u64,
        timed: bool,
        reachable: Vec<PortMonitor>,
        pool: Arc<Mempool>,
        errors: RunErrors,
    ) -> Result<Self, pcap::Error> {
        Ok(CaptureReader {
            path: path.to_owned(),
            source: ReadState::File(Reader::open(path)?),
            pool,
            empty: Batch::new(),
            errors,
            unlinked: reachable,
            links_checked: None,
            link_type: None,
            repeats: repeat.checked_sub(1),
            cache: (repeat != 1).then(Cache::default),
            pace: timed.then(Pace::default),
            time: CaptureTime::default(),
            until: u64::MAX,
            staged: None,
            bytes: 0,
            too_long: 0,
            link_type_mismatch: 0,
            read_any: false,
        })
    }

    /// Returns true once every reachable port has had a link.
    #[cold]
    fn links_up(&mut self) -> bool {
        if self.links_checked.is_none_or(|at| at.elapsed() >= LINK_POLL_INTERVAL) {
            self.unlinked.retain(|port| port.link() == Some(false));
            self.links_checked = Some(Instant::now());
        }
        self.unlinked.is_empty()
    }

    /// Returns an empty packet; `None` while the pool has none.
    #[inline(always)]
    fn empty_packet(&mut self) -> Option<Packet> {
        if self.empty.is_empty() && !self.pool.fill(&mut self.empty) {
            return self.pool.alloc();
        }
        self.empty.pop()
    }

    /// Returns the next packet; `None` at the end, or while the pool is empty.
    #[inline]
    fn next_packet(&mut self) -> Option<Packet> {
        loop {
            let mut packet = self.empty_packet()?;
            match &mut self.source {
                ReadState::Done => return None,
                ReadState::Memory(at) => {
                    let cache = self.cache.as_ref().expect("only complete caches are read");
                    if let Some(&(end, info)) = cache.frames.get(*at) {
                        let start = at.checked_sub(1).map_or(0, |previous| cache.frames[previous].0);
                        *at += 1;
                        packet.append(end - start)?.copy_from_slice(&cache.bytes[start..end]);
                        packet.meta_mut().set_capture_info(info);
                        return Some(packet);
                    }
                }
                ReadState::File(reader) => match reader.next() {
                    Err(e) => {
                        self.errors.report(e.to_string());
                        self.source = ReadState::Done;
                        return None;
                    }
                    Ok(Some(record)) => {
                        if *self.link_type.get_or_insert(record.link_type) != record.link_type {
                            self.link_type_mismatch += 1;
                            continue;
                        }
                        let Some(data) = packet.append(record.frame.len()) else {
                            self.too_long += 1;
                            continue;
                        };
                        data.copy_from_slice(record.frame);
                        let truncated = record.original_len.saturating_sub(record.frame.len() as u32);
                        let info = CaptureInfo { ns: record.timestamp_ns, truncated };
                        packet.meta_mut().set_capture_info(info);
                        if let Some(cache) = &mut self.cache {
                            cache.bytes.extend_from_slice(record.frame);
                            cache.frames.push((cache.bytes.len(), info));
                            if cache.bytes.len() + cache.frames.len() * size_of::<(usize, CaptureInfo)>()
                                > MAX_CACHE_BYTES
                            {
                                self.cache = None;
                            }
                        }
                        self.read_any = true;
                        return Some(packet);
                    }
                    Ok(None) => {}
                },
            }
            self.rewind();
        }
    }

    /// Starts the next repetition at the end of the capture, if there is one.
    #[cold]
    fn rewind(&mut self) {
        if let (ReadState::File(_), Some(cache)) = (&self.source, &mut self.cache) {
            cache.dropped = (self.too_long, self.link_type_mismatch);
        }
        let more = self.read_any && self.repeats != Some(0);
        self.repeats = self.repeats.map(|n| n.saturating_sub(1));
        self.pace = self.pace.take().map(|_| Pace::default());
        self.time.origin = None;
        self.source = match (more, &self.cache) {
            (false, _) => ReadState::Done,
            (true, Some(cache)) => {
                self.too_long += cache.dropped.0;
                self.link_type_mismatch += cache.dropped.1;
                ReadState::Memory(0)
            }
            (true, None) => match Reader::open(&self.path) {
                Ok(reader) => ReadState::File(reader),
                Err(e) => {
                    self.errors.report(e.to_string());
                    ReadState::Done
                }
            },
        };
    }
}

impl Receive for CaptureReader {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        if !self.unlinked.is_empty() && !self.links_up() {
            return 0;
        }
        let before = batch.len();
        while !batch.is_full() {
            let Some(packet) = self.staged.take().or_else(|| self.next_packet()) else { break };
            let ns = packet.meta().capture_info().map_or(0, |s| s.ns);
            let not_yet = match &mut self.pace {
                Some(pace) => !pace.due(ns),
                None => self.time.of(ns) > self.until,
            };
            if not_yet {
                self.staged = Some(packet);
                break;
            }
            self.bytes += packet.len() as u64;
            batch.push(packet).expect("the batch is not full");
        }
        batch.len() - before
    }

    fn next_frame(&mut self) -> NextFrame {
        if !self.unlinked.is_empty() && !self.links_up() {
            return NextFrame::Pending;
        }
        self.staged = self.staged.take().or_else(|| self.next_packet());
        match &self.staged {
            Some(packet) => NextFrame::At(self.time.of(packet.meta().capture_info().map_or(0, |info| info.ns))),
            None if matches!(self.source, ReadState::Done) => NextFrame::End,
            None => NextFrame::NoBuffer,
        }
    }

    fn receive_until(&mut self, ns: u64) {
        self.until = ns;
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn for_each_drop(&self, each: &mut dyn FnMut(PortDrop, u64)) {
        each(PortDrop::TooLong, self.too_long);
        each(PortDrop::LinkTypeMismatch, self.link_type_mismatch);
    }

    fn finished(&self) -> bool {
        matches!(self.source, ReadState::Done) && self.staged.is_none()
    }
}

/// A capture that is written, by one or more workers.
#[derive(Clone)]
pub(crate) struct CaptureWriter {
    file: Arc<CaptureFile>,
    errors: RunErrors,
    bytes: u64,
}

struct CaptureFile {
    /// `None` after an error and at the end.
    writer: Mutex<Option<Writer<File>>>,
    /// Packets that were accepted and not stored, and their bytes. Read without the lock, which waits for the disk.
    lost: (AtomicU64, AtomicU64),
}

impl CaptureFile {
    fn writer(&self) -> MutexGuard<'_, Option<Writer<File>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_lost(&self, (packets, bytes): (u64, u64)) {
        self.lost.0.store(packets, Ordering::Relaxed);
        self.lost.1.store(bytes, Ordering::Relaxed);
    }
}

impl CaptureWriter {
    /// Creates a capture file, replacing an existing one.
    pub(crate) fn create(path: &Path, link_type: LinkType, errors: RunErrors) -> Result<Self, pcap::Error> {
        let writer = Mutex::new(Some(Writer::create(path, link_type)?));
        Ok(CaptureWriter { file: Arc::new(CaptureFile { writer, lost: Default::default() }), errors, bytes: 0 })
    }

    /// Writes buffered packets and closes the file.
    pub(crate) fn finish(&self) {
        let Some(mut writer) = self.file.writer().take() else { return };
        let flushed = writer.flush();
        self.file.count_lost(writer.lost());
        if let Err(e) = flushed.and_then(|()| writer.finish().map(drop)) {
            self.errors.report(e.to_string());
        }
    }

    /// Returns the number of packets that were accepted and then lost because writing failed, and their bytes.
    pub(crate) fn lost(&self) -> (u64, u64) {
        (self.file.lost.0.load(Ordering::Relaxed), self.file.lost.1.load(Ordering::Relaxed))
    }
}

impl Transmit for CaptureWriter {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let mut open = self.file.writer();
        let Some(writer) = &mut *open else { return 0 };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let mut sent = 0;
        for packet in batch.iter() {
            let info = packet.meta().capture_info().unwrap_or(CaptureInfo { ns: now, truncated: 0 });
            let length = (packet.len() as u32).saturating_add(info.truncated);
            if let Err(e) = writer.write(info.ns.min(MAX_TIMESTAMP_NS), length, packet.data()) {
                self.errors.report(e.to_string());
                // the buffered packets are lost, too; report the error once
                self.file.count_lost(writer.lost());
                *open = None;
                break;
            }
            self.bytes += packet.len() as u64;
            sent += 1;
        }
        // free the packets that were written; the others stay, in order
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

    fn drop_reason(&self) -> PortDrop {
        PortDrop::WriteFailed
    }
}
