//! What is told of blocks and sessions as IPFIX over UDP (RFC 7011), with the events and fields of RFC 8158.

use super::log::{self, Entry, Event};
use std::net::{IpAddr, UdpSocket};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

/// Bytes of a message at most: no link of either IP version cuts it.
const LARGEST: usize = 1232;
/// Of the header of a message, and of a set.
const HEADER: usize = 16;
const SET: usize = 4;
/// How long a record waits for others.
const WAITS: Duration = Duration::from_millis(500);
/// How often templates are told again, for whoever has missed them (RFC 7011 §8.4).
const TEMPLATES: Duration = Duration::from_secs(60);
/// The set in which templates are.
const TEMPLATE_SET: u16 = 2;

/// What records hold: number (IANA, IPFIX Information Elements) and bytes of each field.
type Fields = &'static [(u16, u16)];

const TIME: (u16, u16) = (323, 8);
const EVENT: (u16, u16) = (230, 1);
const PROTOCOL: (u16, u16) = (4, 1);
const INSIDE4: (u16, u16) = (8, 4);
const INSIDE6: (u16, u16) = (27, 16);
const INSIDE_PORT: (u16, u16) = (7, 2);
const EXTERNAL: (u16, u16) = (225, 4);
const EXTERNAL_PORT: (u16, u16) = (227, 2);
/// Of the destination: as it is before the translation, where that is IPv4, and as it is behind.
const OUTSIDE: (u16, u16) = (12, 4);
const OUTSIDE_BEHIND: (u16, u16) = (226, 4);
const OUTSIDE_PORT: (u16, u16) = (11, 2);
const FIRST_PORT: (u16, u16) = (361, 2);
const LAST_PORT: (u16, u16) = (362, 2);

/// What one translation tells of: sessions or blocks, of subscribers of one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) six: bool,
    pub(crate) blocks: bool,
}

impl Kind {
    fn template(self) -> u16 {
        256 + u16::from(self.six) + 2 * u16::from(self.blocks)
    }

    fn fields(self) -> Fields {
        match (self.blocks, self.six) {
            (false, false) => {
                &[TIME, EVENT, PROTOCOL, INSIDE4, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, OUTSIDE, OUTSIDE_PORT]
            }
            (false, true) => {
                &[TIME, EVENT, PROTOCOL, INSIDE6, INSIDE_PORT, EXTERNAL, EXTERNAL_PORT, OUTSIDE_BEHIND, OUTSIDE_PORT]
            }
            (true, false) => &[TIME, EVENT, INSIDE4, EXTERNAL, FIRST_PORT, LAST_PORT],
            (true, true) => &[TIME, EVENT, INSIDE6, EXTERNAL, FIRST_PORT, LAST_PORT],
        }
    }

    /// The value of natEvent (RFC 8158 §4.2).
    fn event(self, begins: bool) -> u8 {
        let begin = match (self.blocks, self.six) {
            (false, false) => 4,
            (false, true) => 6,
            (true, _) => 16,
        };
        begin + u8::from(!begins)
    }
}

/// Puts records into messages.
struct Exporter {
    kind: Kind,
    /// The observation domain: the copy of the translation.
    domain: u32,
    /// Records that were sent before.
    sequence: u32,
    records: Vec<u8>,
    count: u32,
}

impl Exporter {
    fn new(kind: Kind, domain: u32) -> Self {
        Exporter { kind, domain, sequence: 0, records: vec![], count: 0 }
    }

    fn message(&self, set: u16, body: &[u8]) -> Vec<u8> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut message = vec![];
        message.extend(10u16.to_be_bytes());
        message.extend(((HEADER + SET + body.len()) as u16).to_be_bytes());
        message.extend((seconds as u32).to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.domain.to_be_bytes());
        message.extend(set.to_be_bytes());
        message.extend(((SET + body.len()) as u16).to_be_bytes());
        message.extend(body);
        message
    }

    /// The message that says what records hold.
    fn templates(&self) -> Vec<u8> {
        let fields = self.kind.fields();
        let numbers = [self.kind.template(), fields.len() as u16];
        let numbers = numbers.into_iter().chain(fields.iter().flat_map(|(id, len)| [*id, *len]));
        self.message(TEMPLATE_SET, &numbers.flat_map(u16::to_be_bytes).collect::<Vec<_>>())
    }

    /// Adds a record; a message if it is full now.
    fn add(&mut self, entry: &Entry) -> Option<Vec<u8>> {
        let before = self.records.len();
        let millis = entry.at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let r = &mut self.records;
        r.extend(millis.to_be_bytes());
        let inside = |r: &mut Vec<u8>| match entry.inside {
            IpAddr::V4(a) => r.extend(a.octets()),
            IpAddr::V6(a) => r.extend(a.octets()),
        };
        match &entry.event {
            Event::Session(s) => {
                r.extend([self.kind.event(s.begins), s.flow.protocol]);
                inside(r);
                r.extend(s.flow.src_port.to_be_bytes());
                r.extend(s.external.0.to_be_bytes());
                r.extend(s.external.1.to_be_bytes());
                r.extend(s.flow.dst.to_be_bytes());
                r.extend(s.flow.dst_port.to_be_bytes());
            }
            Event::Block(b) => {
                r.push(self.kind.event(b.begins));
                inside(r);
                r.extend(b.external.to_be_bytes());
                r.extend(b.ports.0.to_be_bytes());
                r.extend(b.ports.1.to_be_bytes());
            }
        }
        let len = self.records.len() - before;
        debug_assert_eq!(len, self.kind.fields().iter().map(|(_, len)| usize::from(*len)).sum::<usize>());
        self.count += 1;
        (HEADER + SET + self.records.len() + len > LARGEST).then(|| self.take()).flatten()
    }

    /// The message with all records that wait, if any do.
    fn take(&mut self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let message = self.message(self.kind.template(), &self.records);
        self.sequence = self.sequence.wrapping_add(self.count);
        self.records.clear();
        self.count = 0;
        Some(message)
    }
}

/// Tells until nobody is left who adds to `events`.
pub(super) fn tell(socket: &UdpSocket, kind: Kind, domain: u32, events: &Receiver<Entry>) {
    let mut exporter = Exporter::new(kind, domain);
    let send = |message: Option<Vec<u8>>| message.into_iter().for_each(|message| log::send(socket, &message));
    let (mut templates, mut flush) = (Instant::now(), None::<Instant>);
    loop {
        let now = Instant::now();
        if now >= templates {
            send(Some(exporter.templates()));
            templates = now + TEMPLATES;
        }
        if flush.is_some_and(|at| now >= at) {
            send(exporter.take());
            flush = None;
        }
        let next = flush.map_or(templates, |at| at.min(templates));
        match events.recv_timeout(next.saturating_duration_since(now)) {
            Ok(entry) => {
                send(exporter.add(&entry));
                flush = (exporter.count > 0).then(|| flush.unwrap_or(Instant::now() + WAITS));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                send(exporter.take());
                return;
            }
        }
    }
}
