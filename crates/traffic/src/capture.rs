//! Frames of a capture, to be sent as traffic.
//!
//! The capture is held in memory, up to a limit. Frames can be sent with other MAC addresses, and those that carry UDP
//! or TCP with 18 bytes of payload or more can carry a [`Probe`] in place of the first 18. Without probes a receiver
//! knows loss from counts alone, and nothing of reordering, copies and latency.

use std::io::Read;
use std::path::Path;

use pcap::{LinkType, Reader};
use wire::checksum::Pseudo;
use wire::{EtherType, IpProtocol, MacAddr, ipv4, ipv6};

use crate::flows::native_sum;
use crate::probe::{self, Payload, Probe};
use crate::size::{FCS, FrameSize, WIRE_OVERHEAD};

/// Memory for a capture unless told otherwise, bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// What to do with the frames of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CaptureSettings {
    /// Most memory to use, bytes, at most 4 GiB. The first frames that fit are taken.
    pub max_bytes: usize,
    /// Source address for all frames; else their own.
    pub src_mac: Option<MacAddr>,
    /// Destination address for all frames; else their own.
    pub dst_mac: Option<MacAddr>,
    /// Whether to prepare frames for probes where there is room. Their UDP and TCP checksums become right (for UDP over
    /// IPv4: none), even if those of the capture were not.
    pub probe: bool,
}

impl Default for CaptureSettings {
    /// 64 MiB, the capture's own addresses, no probes.
    fn default() -> Self {
        Self { max_bytes: MAX_BYTES, src_mac: None, dst_mac: None, probe: false }
    }
}

/// Why a capture cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] pcap::Error),
    /// None of its frames can be sent.
    #[error(
        "no frame of {records} can be sent: {not_ethernet} not Ethernet, {cut} cut short in capturing, {long} above \
         {max} bytes, {short} without an Ethernet header; capture on an Ethernet interface with whole frames (-s 0)",
        records = .0.records, not_ethernet = .0.not_ethernet, cut = .0.cut, long = .0.long, short = .0.short,
        max = FrameSize::MAX.without_fcs()
    )]
    Empty(Skipped),
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
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    offset: u32,
    len: u16,
    /// Where the probe goes; 0 for none.
    probe: u16,
    /// Where the checksum goes that covers it; 0 for none.
    checksum: u16,
    /// What that checksum sums beside the probe, native order.
    sum: u16,
}

/// Frames of a capture in their order.
#[derive(Clone, Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    skipped: Skipped,
    complete: bool,
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
        let mut capture = Self { bytes: Vec::new(), entries: Vec::new(), skipped: Skipped::default(), complete: true };
        let limit = settings.max_bytes.min(u32::MAX as usize);
        let mut start_ns = None;
        loop {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(pcap::Error::Truncated { .. }) if !capture.entries.is_empty() => {
                    capture.complete = false;
                    break;
                }
                Err(why) => return Err(why.into()),
            };
            let frame = record.frame;
            let skipped = &mut capture.skipped;
            skipped.records += 1;
            let reason = if record.link_type != LinkType::ETHERNET {
                &mut skipped.not_ethernet
            } else if (record.original_len as usize) > frame.len() {
                &mut skipped.cut
            } else if frame.len() > FrameSize::MAX.without_fcs() {
                &mut skipped.long
            } else if frame.len() < 14 {
                &mut skipped.short
            } else {
                let len = frame.len().max(FrameSize::MIN.without_fcs());
                if capture.memory() + len + size_of::<Entry>() > limit {
                    capture.complete = false;
                    break;
                }
                let start = *start_ns.get_or_insert(record.timestamp_ns);
                capture.push(frame, record.timestamp_ns.saturating_sub(start), &settings);
                continue;
            };
            *reason += 1;
        }
        match (capture.entries.is_empty(), capture.complete) {
            (true, true) => Err(CaptureError::Empty(capture.skipped)),
            (true, false) => Err(CaptureError::Limit(settings.max_bytes)),
            _ => Ok(capture),
        }
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    fn push(&mut self, frame: &[u8], at_ns: u64, settings: &CaptureSettings) {
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
        let mut entry = Entry { at_ns, offset: offset as u32, len: stored.len() as u16, probe: 0, checksum: 0, sum: 0 };
        if settings.probe {
            prepare(stored, frame.len(), &mut entry);
        }
        self.entries.push(entry);
    }

    /// Number of frames; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a capture without frames is refused")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether all of the file was taken: neither the limit nor the end of a file that breaks off was in the way.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// What was left out.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Frame number `frame` as it lies ready, without frame check sequence, padded to 60 bytes: with zeros in place of
    /// probe and checksum if it was prepared for one. Empty if there is no such frame.
    pub fn frame(&self, frame: usize) -> &[u8] {
        self.entries.get(frame).map_or(&[], |entry| self.stored(entry))
    }

    #[inline(always)]
    fn stored(&self, entry: &Entry) -> &[u8] {
        let start = entry.offset as usize;
        self.bytes.get(start..start + usize::from(entry.len)).unwrap_or(&[])
    }

    /// When frame number `frame` was captured, nanoseconds after the first.
    pub fn at_ns(&self, frame: usize) -> Option<u64> {
        self.entries.get(frame).map(|entry| entry.at_ns)
    }

    /// Whether frame number `frame` carries a probe.
    #[inline(always)]
    pub fn has_probe(&self, frame: usize) -> bool {
        self.entries.get(frame).is_some_and(|entry| entry.probe != 0)
    }

    /// Frames that carry a probe.
    pub fn probes(&self) -> usize {
        self.entries.iter().filter(|entry| entry.probe != 0).count()
    }

    /// Mean size of a frame in bytes, frame check sequence included.
    pub fn mean_size(&self) -> f64 {
        self.bytes.len() as f64 / self.entries.len() as f64 + f64::from(FCS)
    }

    /// Most frames a second on a link of `link_bps` when the capture is sent over and over.
    pub fn max_pps(&self, link_bps: u64) -> f64 {
        link_bps as f64 / (8.0 * (self.mean_size() + f64::from(WIRE_OVERHEAD)))
    }

    /// Writes frame number `frame` to the front of `out`, with `probe` if it is prepared for one.
    ///
    /// Returns its length; 0, and nothing is written, if there is no such frame or `out` is shorter.
    #[inline(always)]
    pub fn fill(&self, frame: usize, probe: Probe, out: &mut [u8]) -> usize {
        let Some(entry) = self.entries.get(frame) else { return 0 };
        let stored = self.stored(entry);
        let Some(out) = out.get_mut(..stored.len()) else { return 0 };
        out.copy_from_slice(stored);
        if entry.probe != 0 {
            put_probe(entry, probe, out);
        }
        stored.len()
    }
}

#[inline(always)]
fn put_probe(entry: &Entry, probe: Probe, out: &mut [u8]) {
    let (at, checksum) = (usize::from(entry.probe), usize::from(entry.checksum));
    if let Some(place) = out.get_mut(at..at + probe::LEN) {
        place.copy_from_slice(&probe.to_bytes());
    }
    if checksum == 0 {
        return;
    }
    let sum = probe::fold(u64::from(entry.sum) + probe::sum(probe.words()));
    // UDP's checksum stands right before the payload; there 0 would mean none.
    let bytes = if sum == 0 && checksum + 2 == at { [0xff; 2] } else { sum.to_ne_bytes() };
    if let Some(place) = out.get_mut(checksum..checksum + 2) {
        place.copy_from_slice(&bytes);
    }
}

/// Makes room for a probe in the frame of `len` bytes, if it can have one.
fn prepare(stored: &mut [u8], len: usize, entry: &mut Entry) {
    let Some(place) = probe::payload(&stored[..len]).filter(|place| place.end - place.start >= probe::LEN) else {
        return;
    };
    let Some(pseudo) = pseudo(stored, &place) else { return };
    stored[place.start..place.start + probe::LEN].fill(0);
    stored[place.checksum..place.checksum + 2].fill(0);
    entry.probe = place.start as u16;
    let udp = place.checksum + 2 == place.start;
    if !(udp && pseudo.udp_checksum_optional()) {
        entry.checksum = place.checksum as u16;
        entry.sum = probe::partial(pseudo.sum(&stored[place.transport..place.end]));
    }
    debug_assert_eq!(native_sum(&stored[place.start..place.start + probe::LEN]), 0);
}

/// The pseudo header of the packet, unless a routing header hides where it goes (RFC 8200 §8.1).
fn pseudo(stored: &[u8], place: &Payload) -> Option<Pseudo> {
    let packet = stored.get(place.network..place.end)?;
    let field = place.network.checked_sub(2)?;
    match EtherType(u16::from_be_bytes([*stored.get(field)?, *stored.get(field + 1)?])) {
        EtherType::IPV4 => ipv4::Packet::new(packet).ok().map(|packet| packet.pseudo()),
        EtherType::IPV6 => {
            let packet = ipv6::Packet::new(packet).ok()?;
            let routed = packet.extensions().any(|extension| extension.kind == IpProtocol::ROUTING);
            (!routed).then(|| packet.pseudo())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
