//! Captures: copies of packets, through one bounded queue per worker.

use super::names::WorkerNames;
use super::place::{CaptureSpec, Place, Selection, places};
use bpf::Program;
use config::ChainFile;
use diagnostics::Diagnostic;
use graph::Point;
use packet::Packet;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes of the queue of a worker.
const QUEUE: usize = 4 << 20;
/// Bytes before the comment and the frame of a record: lengths, interface, time.
const HEADER: usize = 24;
/// Largest number of packets that are read at once: workers may be faster than the reader.
const READ_MAX: usize = 4096;
/// Longest wait for the workers when a capture ends.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a capture at a worker.
pub(crate) struct CaptureTap {
    shared: Arc<Shared>,
    selection: Selection,
    queue: Producer<u8>,
}

/// State that the workers and the reader of a capture share.
struct Shared {
    places: Vec<Place>,
    reason: Option<String>,
    filter: Option<Program>,
    snaplen: usize,
    /// By place.
    counts: Box<[Counts]>,
    ended: AtomicBool,
}

#[derive(Default)]
struct Counts {
    matched: AtomicU64,
    lost: AtomicU64,
}

/// Counts of one interface of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets that the capture selects.
    pub matched: u64,
    /// Those of them for which there was no room in the queue.
    pub lost: u64,
}

/// A running capture, read by another thread than the workers'. Dropping it ends the capture.
pub struct Capture {
    shared: Arc<Shared>,
    queues: Vec<Consumer<u8>>,
}

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Index of the interface.
    pub interface: usize,
    /// Nanoseconds since the Unix epoch.
    pub timestamp_ns: u64,
    /// Length of the frame before it was cut, in bytes.
    pub original_len: u32,
    /// The reason for which it was dropped.
    pub reason: Option<&'a str>,
    /// The frame, without FCS.
    pub frame: &'a [u8],
}

/// Starts a capture of a file that runs on so many workers; returns its end at each of them.
///
/// # Errors
/// A place that the file does not have.
pub(crate) fn start(
    spec: &CaptureSpec,
    file: &ChainFile,
    workers: usize,
) -> Result<(Capture, Vec<CaptureTap>), Diagnostic> {
    let places = places(spec, file)?;
    let shared = Arc::new(Shared {
        counts: places.iter().map(|_| Counts::default()).collect(),
        places,
        reason: spec.reason.clone(),
        filter: spec.filter.clone(),
        snaplen: spec.snaplen as usize,
        ended: AtomicBool::new(false),
    });
    let ends = (0..workers).map(|_| {
        let (queue, consumer) = RingBuffer::new(QUEUE);
        (CaptureTap { shared: shared.clone(), selection: Selection::default(), queue }, consumer)
    });
    let (taps, queues) = ends.unzip();
    Ok((Capture { shared, queues }, taps))
}

impl CaptureTap {
    /// Finds the places in the graph of the worker.
    pub(super) fn select(&mut self, names: &WorkerNames) {
        self.selection = Selection::new(&self.shared.places, names);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    pub(super) fn received(&mut self, input: usize, packets: &[Packet]) {
        if let Some(&Some(interface)) = self.selection.received.get(input) {
            self.capture(interface, packets, "");
        }
    }

    pub(super) fn sees(&mut self, at: Point, packets: &[Packet]) {
        let Selection { entered, left, dropped, sent, refused, .. } = &self.selection;
        let (interface, reason) = match at {
            Point::Enter(hop) => (entered.get(usize::from(hop.0)), ""),
            Point::Leave(hop, output) => {
                (left.get(usize::from(hop.0)).and_then(|outputs| outputs.get(usize::from(output))), "")
            }
            Point::Drop(hop, reason) => (dropped.get(usize::from(hop.0)), reason),
            Point::Send(port) => (sent.get(usize::from(port)), ""),
            Point::Refuse(port, reason) => (refused.get(usize::from(port)), reason),
            Point::Create(_) | Point::Hold(_) => (None, ""),
        };
        let is_selected = self.shared.reason.as_ref().is_none_or(|wanted| wanted == reason);
        if let Some(&Some(interface)) = interface.filter(|_| is_selected) {
            self.capture(interface, packets, reason);
        }
    }

    /// Copies the packets that the filter accepts to the queue.
    fn capture(&mut self, interface: u16, packets: &[Packet], reason: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let Shared { filter, snaplen, counts, .. } = &*self.shared;
        let counts = &counts[usize::from(interface)];
        let (mut matched, mut lost) = (0, 0);
        for frame in packets.iter().map(Packet::data) {
            if filter.as_ref().is_some_and(|filter| !filter.accepts(frame)) {
                continue;
            }
            matched += 1;
            let copied = &frame[..frame.len().min(*snaplen)];
            let Ok(mut chunk) = self.queue.write_chunk(HEADER + reason.len() + copied.len()) else {
                lost += 1;
                continue;
            };
            let mut header = [0; HEADER];
            header[0..4].copy_from_slice(&(copied.len() as u32).to_ne_bytes());
            header[4..8].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
            header[8..12].copy_from_slice(&u32::from(interface).to_ne_bytes());
            header[12..16].copy_from_slice(&(reason.len() as u32).to_ne_bytes());
            header[16..24].copy_from_slice(&now.to_ne_bytes());
            let (mut first, mut second) = chunk.as_mut_slices();
            for bytes in [&header[..], reason.as_bytes(), copied] {
                let (here, there) = bytes.split_at(bytes.len().min(first.len()));
                first.split_off_mut(..here.len()).unwrap_or_default().copy_from_slice(here);
                second.split_off_mut(..there.len()).unwrap_or_default().copy_from_slice(there);
            }
            chunk.commit_all();
        }
        counts.matched.fetch_add(matched, Ordering::Relaxed);
        counts.lost.fetch_add(lost, Ordering::Relaxed);
    }
}

impl Capture {
    /// Returns the names of the interfaces, such as `lan rx`, `nat.out` and `fw drops`.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        self.shared.places.iter().map(Place::name).collect()
    }

    /// Returns the counts of the interfaces so far.
    #[must_use]
    pub fn counts(&self) -> Vec<CaptureCounts> {
        let count = |counts: &Counts| CaptureCounts {
            matched: counts.matched.load(Ordering::Relaxed),
            lost: counts.lost.load(Ordering::Relaxed),
        };
        self.shared.counts.iter().map(count).collect()
    }

    /// Has the workers capture no more; they do so within milliseconds.
    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }

    /// Calls `f` for packets that the workers have captured, the oldest first, at most 4,096 of them; returns their number.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn read<E>(&mut self, mut f: impl FnMut(Captured<'_>) -> Result<(), E>) -> Result<usize, E> {
        let (mut bytes, mut n) = (vec![], 0);
        let mut times: Vec<Option<u64>> = self.queues.iter_mut().map(next_time).collect();
        while n < READ_MAX
            && let Some((queue, _)) =
                times.iter().enumerate().filter_map(|(n, t)| Some((n, (*t)?))).min_by_key(|(_, t)| *t)
        {
            if take(&mut self.queues[queue], &mut bytes) {
                f(record(&bytes))?;
                n += 1;
            }
            times[queue] = next_time(&mut self.queues[queue]);
        }
        Ok(n)
    }
}

impl Drop for Capture {
    /// Ends the capture, and waits until no worker has its end of a queue: the memory is freed here.
    fn drop(&mut self) {
        self.end();
        let start = std::time::Instant::now();
        while self.queues.iter().any(|queue| !queue.is_abandoned()) && start.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|from| from.first_chunk()).copied().unwrap_or([0; N])
}

fn len(bytes: &[u8], at: usize) -> usize {
    u32::from_ne_bytes(number(bytes, at)) as usize
}

/// Returns the header of the oldest record of a queue.
fn header(queue: &mut Consumer<u8>) -> Option<[u8; HEADER]> {
    let chunk = queue.read_chunk(HEADER).ok()?;
    let (first, second) = chunk.as_slices();
    let mut header = [0; HEADER];
    first.iter().chain(second).zip(&mut header).for_each(|(from, to)| *to = *from);
    Some(header)
}

/// Returns the time of the oldest record of a queue.
fn next_time(queue: &mut Consumer<u8>) -> Option<u64> {
    header(queue).map(|header| u64::from_ne_bytes(number(&header, 16)))
}

/// Moves the oldest record of a queue to `bytes`; returns false if there is none.
fn take(queue: &mut Consumer<u8>, bytes: &mut Vec<u8>) -> bool {
    let Some(header) = header(queue) else { return false };
    let Ok(chunk) = queue.read_chunk(HEADER + len(&header, 12) + len(&header, 0)) else { return false };
    let (first, second) = chunk.as_slices();
    bytes.clear();
    bytes.extend_from_slice(first);
    bytes.extend_from_slice(second);
    chunk.commit_all();
    true
}

fn record(bytes: &[u8]) -> Captured<'_> {
    let (reason, frame) = bytes.get(HEADER..).unwrap_or_default().split_at_checked(len(bytes, 12)).unwrap_or_default();
    Captured {
        interface: len(bytes, 8),
        timestamp_ns: u64::from_ne_bytes(number(bytes, 16)),
        original_len: len(bytes, 4) as u32,
        reason: core::str::from_utf8(reason).ok().filter(|reason| !reason.is_empty()),
        frame,
    }
}
