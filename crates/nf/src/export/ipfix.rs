//! IPFIX over UDP (RFC 7011).

use super::Exporter;
use std::net::UdpSocket;
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
/// Set IDs of template sets and of options template sets (RFC 7011 §3.3.2).
const TEMPLATE_SET_ID: u16 = 2;
const OPTIONS_TEMPLATE_SET_ID: u16 = 3;
/// Bit of an Information Element that an enterprise number follows (RFC 7011 §3.2).
const ENTERPRISE_BIT: u16 = 0x8000;
/// Enterprise number of the elements of the reverse direction (RFC 5103 §6.1).
const REVERSE: u32 = 29_305;

/// A field of a record: Information Element (IANA IPFIX registry) and length in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    id: u16,
    len: u16,
    enterprise: Option<u32>,
}

impl Field {
    /// Returns the field with an Information Element of IANA.
    pub(crate) const fn new(id: u16, len: u16) -> Field {
        Field { id, len, enterprise: None }
    }

    /// Returns the field with an element that an enterprise has defined.
    pub(crate) const fn of_enterprise(self, number: u32) -> Field {
        Field { enterprise: Some(number), ..self }
    }

    /// Returns the same element of the reverse direction of a biflow (RFC 5103 §6.1).
    pub(crate) const fn reverse(self) -> Field {
        self.of_enterprise(REVERSE)
    }

    fn write(self, out: &mut Vec<u8>) {
        let id = self.id | if self.enterprise.is_some() { ENTERPRISE_BIT } else { 0 };
        out.extend(id.to_be_bytes());
        out.extend(self.len.to_be_bytes());
        out.extend(self.enterprise.iter().flat_map(|number| number.to_be_bytes()));
    }
}

/// A template.
#[derive(Clone)]
pub(crate) struct Template {
    /// Template ID, 256 or more.
    pub(crate) id: u16,
    pub(crate) fields: Vec<Field>,
    /// Number of the first fields that are the scope of an options template; 0 for templates of other records.
    pub(crate) scope: u16,
}

impl Template {
    /// Returns the length of a record in bytes.
    fn record_len(&self) -> usize {
        self.fields.iter().map(|field| usize::from(field.len)).sum()
    }
}

/// Records of a kind and their templates.
pub(crate) trait Records: Send + 'static {
    type Record: Send;

    /// Returns the templates.
    fn templates(&self) -> Vec<Template>;

    /// Appends a record and returns the index of its template.
    fn encode(&self, record: &Self::Record, out: &mut Vec<u8>) -> usize;

    /// Returns records of options templates, with the indices of the templates. They are sent with the templates.
    fn options(&self) -> Vec<(usize, Vec<u8>)> {
        vec![]
    }
}

/// A message and its number of records.
type Message = (Vec<u8>, u32);

/// Records that wait for others with the same template.
#[derive(Default)]
struct Pending {
    records: Vec<u8>,
    count: u32,
}

/// Assembles records into messages.
struct Messages<R> {
    records: R,
    templates: Vec<Template>,
    /// Observation domain.
    domain: u32,
    /// Number of records sent so far.
    sequence: u32,
    /// Records by index of the template.
    pending: Vec<Pending>,
    /// The record that is encoded.
    record: Vec<u8>,
}

/// Builds a message of sets with their IDs.
fn message(sequence: u32, domain: u32, sets: &[(u16, &[u8])]) -> Vec<u8> {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let len = MESSAGE_HEADER + sets.iter().map(|(_, body)| SET_HEADER + body.len()).sum::<usize>();
    let mut message = vec![];
    message.extend(10u16.to_be_bytes());
    message.extend((len as u16).to_be_bytes());
    message.extend((seconds as u32).to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend(domain.to_be_bytes());
    for (id, body) in sets {
        message.extend(id.to_be_bytes());
        message.extend(((SET_HEADER + body.len()) as u16).to_be_bytes());
        message.extend(*body);
    }
    message
}

/// Builds the message with the templates; `sequence` is the number of records sent before it.
fn template_message(templates: &[Template], domain: u32, sequence: u32) -> Vec<u8> {
    let [mut plain, mut options] = [vec![], vec![]];
    for template in templates {
        let set = if template.scope == 0 { &mut plain } else { &mut options };
        set.extend(template.id.to_be_bytes());
        set.extend((template.fields.len() as u16).to_be_bytes());
        if template.scope != 0 {
            set.extend(template.scope.to_be_bytes());
        }
        template.fields.iter().for_each(|field| field.write(set));
    }
    let sets = [(TEMPLATE_SET_ID, &plain[..]), (OPTIONS_TEMPLATE_SET_ID, &options[..])];
    let sets: Vec<_> = sets.into_iter().filter(|(_, set)| !set.is_empty()).collect();
    message(sequence, domain, &sets)
}

impl<R: Records> Messages<R> {
    fn new(records: R, domain: u32) -> Self {
        let templates = records.templates();
        let pending = templates.iter().map(|_| Pending::default()).collect();
        Messages { records, templates, domain, sequence: 0, pending, record: vec![] }
    }

    fn templates(&self) -> Vec<u8> {
        template_message(&self.templates, self.domain, self.sequence)
    }

    /// Adds a record and returns a message if no further record fits.
    fn add(&mut self, record: &R::Record) -> Option<Message> {
        self.record.clear();
        let template = self.records.encode(record, &mut self.record);
        let record = std::mem::take(&mut self.record);
        let message = self.put(template, &record);
        self.record = record;
        message
    }

    fn put(&mut self, template: usize, record: &[u8]) -> Option<Message> {
        debug_assert_eq!(record.len(), self.templates[template].record_len());
        let pending = &mut self.pending[template];
        pending.records.extend_from_slice(record);
        pending.count += 1;
        let is_full = MESSAGE_HEADER + SET_HEADER + pending.records.len() + record.len() > MAX_MESSAGE;
        if is_full { self.take(template) } else { None }
    }

    /// Returns a message with all pending records of a template.
    fn take(&mut self, template: usize) -> Option<Message> {
        let Pending { records, count } = std::mem::take(&mut self.pending[template]);
        if count == 0 {
            return None;
        }
        let message = message(self.sequence, self.domain, &[(self.templates[template].id, &records)]);
        self.sequence = self.sequence.wrapping_add(count);
        Some((message, count))
    }

    /// Returns messages with all pending records.
    fn take_all(&mut self) -> Vec<Message> {
        (0..self.templates.len()).filter_map(|template| self.take(template)).collect()
    }

    /// Returns messages with the records of options templates.
    fn options(&mut self) -> Vec<Message> {
        let records = self.records.options();
        let mut messages: Vec<Message> =
            records.iter().filter_map(|(template, record)| self.put(*template, record)).collect();
        let templates: Vec<usize> = records.iter().map(|(template, _)| *template).collect();
        messages.extend(templates.into_iter().filter_map(|template| self.take(template)));
        messages
    }
}

/// Sends records and templates until the channel is closed. Observation domain 0 means "none" (RFC 7011 §3.1).
pub(crate) fn run<R: Records>(
    socket: UdpSocket,
    records: R,
    domain: u32,
    queue: &Receiver<R::Record>,
    lost: Arc<AtomicU64>,
) {
    let mut messages = Messages::new(records, domain);
    // a server that was restarted has no template
    let templates = messages.templates.clone();
    let preamble = move |next: &[u8]| {
        let sequence = next.get(SEQUENCE_AT..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
        template_message(&templates, domain, u32::from_be_bytes(sequence))
    };
    let mut exporter = Exporter::new(socket, Some(Box::new(preamble)), lost);
    let send = |exporter: &mut Exporter, messages: Vec<Message>| {
        messages.into_iter().for_each(|(message, count)| exporter.send(message, count.into()))
    };
    // their loss is none of records
    let send_options = |exporter: &mut Exporter, messages: Vec<Message>| {
        messages.into_iter().for_each(|(message, _)| exporter.send(message, 0))
    };
    send_options(&mut exporter, messages.options());
    let (mut templates, mut flush) = (Instant::now() + TEMPLATE_INTERVAL, None::<Instant>);
    loop {
        let now = Instant::now();
        if now >= templates {
            exporter.send(messages.templates(), 0);
            send_options(&mut exporter, messages.options());
            templates = now + TEMPLATE_INTERVAL;
        }
        if flush.is_some_and(|at| now >= at) {
            send(&mut exporter, messages.take_all());
            flush = None;
        }
        let next = flush.map_or(templates, |at| at.min(templates)).saturating_duration_since(now);
        match queue.recv_timeout(next.min(exporter.wait())) {
            Ok(record) => {
                send(&mut exporter, messages.add(&record).into_iter().collect());
                flush = Some(flush.unwrap_or(Instant::now() + FLUSH_INTERVAL));
            }
            Err(RecvTimeoutError::Timeout) => exporter.advance(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => {
                send(&mut exporter, messages.take_all());
                return exporter.finish();
            }
        }
    }
}
