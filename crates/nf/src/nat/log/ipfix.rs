//! IPFIX over UDP (RFC 7011) with the events and fields of RFC 8158.

use super::exporter::Exporter;
use super::record::{Event, Record, RecordKind};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

/// Largest message in bytes; it fits into 1280 bytes, the smallest MTU of IPv6.
const MAX_MESSAGE: usize = 1232;
/// Length in bytes of the message header and of a set header.
const MESSAGE_HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// Offset of the sequence number in the message header.
const SEQUENCE_AT: usize = 8;
/// Longest time that a record waits for others.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which templates are sent again (RFC 7011 §8.4).
const TEMPLATE_INTERVAL: Duration = Duration::from_secs(60);
/// Set ID of a template set (RFC 7011 §3.3.2).
const TEMPLATE_SET_ID: u16 = 2;

/// Fields of a record: Information Element (IANA IPFIX registry) and length in bytes.
type Fields = &'static [(u16, u16)];

const TIME: (u16, u16) = (323, 8);
const EVENT: (u16, u16) = (230, 1);
const PROTOCOL: (u16, u16) = (4, 1);
const INSIDE4: (u16, u16) = (8, 4);
const INSIDE6: (u16, u16) = (27, 16);
const INSIDE_PORT: (u16, u16) = (7, 2);
const EXTERNAL: (u16, u16) = (225, 4);
const EXTERNAL_PORT: (u16, u16) = (227, 2);
/// Destination address: before translation if that is IPv4, after translation if the subscriber has IPv6.
const OUTSIDE: (u16, u16) = (12, 4);
const POST_NAT_OUTSIDE: (u16, u16) = (226, 4);
const OUTSIDE_PORT: (u16, u16) = (11, 2);
const FIRST_PORT: (u16, u16) = (361, 2);
const LAST_PORT: (u16, u16) = (362, 2);

impl RecordKind {
    fn template(self) -> u16 {
        256 + u16::from(self.ipv6) + 2 * u16::from(self.blocks)
    }

    fn fields(self) -> Fields {
        match (self.blocks, self.ipv6) {
            (false, false) => {
                &[TIME, EVENT, PROTOCOL, INSIDE4, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, OUTSIDE, OUTSIDE_PORT]
            }
            (false, true) => {
                &[TIME, EVENT, PROTOCOL, INSIDE6, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, POST_NAT_OUTSIDE, OUTSIDE_PORT]
            }
            (true, false) => &[TIME, EVENT, INSIDE4, EXTERNAL, FIRST_PORT, LAST_PORT],
            (true, true) => &[TIME, EVENT, INSIDE6, EXTERNAL, FIRST_PORT, LAST_PORT],
        }
    }

    /// Returns the value of natEvent (RFC 8158 §4.2).
    fn event(self, started: bool) -> u8 {
        let begin = match (self.blocks, self.ipv6) {
            (false, false) => 4,
            (false, true) => 6,
            (true, _) => 16,
        };
        begin + u8::from(!started)
    }
}

/// Assembles records into messages.
struct Messages {
    kind: RecordKind,
    /// Observation domain: the number of the copy, from 1.
    domain: u32,
    /// Number of records sent so far.
    sequence: u32,
    records: Vec<u8>,
    count: u32,
}

impl Messages {
    fn new(kind: RecordKind, domain: u32) -> Self {
        Messages { kind, domain, sequence: 0, records: vec![], count: 0 }
    }

    fn message(&self, sequence: u32, set: u16, body: &[u8]) -> Vec<u8> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut message = vec![];
        message.extend(10u16.to_be_bytes());
        message.extend(((MESSAGE_HEADER + SET_HEADER + body.len()) as u16).to_be_bytes());
        message.extend((seconds as u32).to_be_bytes());
        message.extend(sequence.to_be_bytes());
        message.extend(self.domain.to_be_bytes());
        message.extend(set.to_be_bytes());
        message.extend(((SET_HEADER + body.len()) as u16).to_be_bytes());
        message.extend(body);
        message
    }

    /// Builds the message with the template; `sequence` is the number of records sent before it.
    fn templates(&self, sequence: u32) -> Vec<u8> {
        let fields = self.kind.fields();
        let numbers = [self.kind.template(), fields.len() as u16];
        let numbers = numbers.into_iter().chain(fields.iter().flat_map(|(id, len)| [*id, *len]));
        self.message(sequence, TEMPLATE_SET_ID, &numbers.flat_map(u16::to_be_bytes).collect::<Vec<_>>())
    }

    /// Adds a record and returns a message, and its number of records, if no further record fits.
    fn add(&mut self, record: &Record) -> Option<(Vec<u8>, u32)> {
        let before = self.records.len();
        let millis = record.at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let r = &mut self.records;
        r.extend(millis.to_be_bytes());
        let inside = |r: &mut Vec<u8>| match record.inside {
            IpAddr::V4(a) => r.extend(a.octets()),
            IpAddr::V6(a) => r.extend(a.octets()),
        };
        match &record.event {
            Event::Session(s) => {
                r.extend([self.kind.event(s.created), s.flow.protocol]);
                inside(r);
                r.extend(s.flow.src_port.to_be_bytes());
                r.extend(s.external.0.to_be_bytes());
                r.extend(s.external.1.to_be_bytes());
                r.extend(s.flow.dst.to_be_bytes());
                r.extend(s.flow.dst_port.to_be_bytes());
            }
            Event::Block(b) => {
                r.push(self.kind.event(b.allocated));
                inside(r);
                r.extend(b.external.to_be_bytes());
                r.extend(b.ports.0.to_be_bytes());
                r.extend(b.ports.1.to_be_bytes());
            }
        }
        let len = self.records.len() - before;
        debug_assert_eq!(len, self.kind.fields().iter().map(|(_, len)| usize::from(*len)).sum::<usize>());
        self.count += 1;
        (MESSAGE_HEADER + SET_HEADER + self.records.len() + len > MAX_MESSAGE).then(|| self.take()).flatten()
    }

    /// Returns a message with all pending records, and their number, or `None` without records.
    fn take(&mut self) -> Option<(Vec<u8>, u32)> {
        if self.count == 0 {
            return None;
        }
        let message = self.message(self.sequence, self.kind.template(), &self.records);
        self.sequence = self.sequence.wrapping_add(self.count);
        self.records.clear();
        Some((message, std::mem::take(&mut self.count)))
    }
}

/// Sends records and templates until the channel is closed.
pub(super) fn run(socket: UdpSocket, kind: RecordKind, domain: u32, records: &Receiver<Record>, lost: Arc<AtomicU64>) {
    // a server that was restarted has no template
    let preamble = move |next: &[u8]| {
        let sequence = next.get(SEQUENCE_AT..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
        Messages::new(kind, domain).templates(u32::from_be_bytes(sequence))
    };
    let mut exporter = Exporter::new(socket, Some(Box::new(preamble)), lost);
    let mut messages = Messages::new(kind, domain);
    let send = |exporter: &mut Exporter, message: Option<(Vec<u8>, u32)>| {
        message.into_iter().for_each(|(message, count)| exporter.send(message, count.into()))
    };
    let (mut templates, mut flush) = (Instant::now() + TEMPLATE_INTERVAL, None::<Instant>);
    loop {
        let now = Instant::now();
        if now >= templates {
            exporter.send_unreliably(&messages.templates(messages.sequence));
            templates = now + TEMPLATE_INTERVAL;
        }
        if flush.is_some_and(|at| now >= at) {
            send(&mut exporter, messages.take());
            flush = None;
        }
        let next = flush.map_or(templates, |at| at.min(templates)).saturating_duration_since(now);
        match records.recv_timeout(next.min(exporter.wait())) {
            Ok(record) => {
                send(&mut exporter, messages.add(&record));
                flush = (messages.count > 0).then(|| flush.unwrap_or(Instant::now() + FLUSH_INTERVAL));
            }
            Err(RecvTimeoutError::Timeout) => exporter.advance(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => {
                send(&mut exporter, messages.take());
                return exporter.finish();
            }
        }
    }
}
