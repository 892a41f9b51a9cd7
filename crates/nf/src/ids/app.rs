//! Application protocols of flows: detection, and messages with the buffers that rules inspect.

pub(super) mod body;
mod dns;
mod http;
mod tls;
pub(super) mod uri;

use super::rule::app::{AppProtocol, Field, Fields, NumberField};
use crate::dpi::Application;
use crate::dpi::protocol::{Transport, Verdict, recognise};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Longest head of an HTTP message in bytes; a longer one is inspected up to there, and the rest of the flow is not parsed.
const MAX_HEAD: usize = 64 << 10;
/// Largest number of inspected bytes of a body, as sent and decoded.
const MAX_BODY: usize = 100 << 10;
/// Largest number of bytes that are kept while the protocol is not known.
const MAX_UNKNOWN: usize = 4 << 10;
/// Largest number of messages that wait for inspection.
const MAX_READY: usize = 256;
/// Largest number of bytes of all parsers of a core.
const MAX_MEMORY: usize = 64 << 20;
/// Length up to which a body that grows is inspected with each packet in prevent mode; from there on, with each quarter.
const SMALL_BODY: usize = 16 << 10;

/// Numbers of an engine's parsers.
#[derive(Debug, Default)]
pub(super) struct AppStatistics {
    /// Bytes that the parsers hold.
    memory: AtomicUsize,
    /// Heads and bodies that exceed their limits.
    truncated: AtomicU64,
    /// Flows that are not parsed any further.
    abandoned: AtomicU64,
}

impl AppStatistics {
    /// Sets the counts to 0.
    pub(super) fn restart(&self) {
        self.truncated.store(0, Ordering::Relaxed);
        self.abandoned.store(0, Ordering::Relaxed);
    }

    pub(super) fn truncated(&self) -> u64 {
        self.truncated.load(Ordering::Relaxed)
    }

    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// Properties of a parser that all flows of an engine have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AppOptions {
    /// Buffers that rules inspect.
    pub(super) fields: Fields,
    /// True if bodies are inspected while they grow.
    pub(super) inline: bool,
    /// True if rules inspect the bytes of messages without naming a buffer.
    pub(super) raw: bool,
    /// True if rules compare the dates of certificates.
    pub(super) validity: bool,
}

/// A request or response, or the messages of one direction of a handshake.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) protocol: AppProtocol,
    pub(super) to_client: bool,
    /// False while more bytes of the message follow.
    pub(super) complete: bool,
    /// True if the message has changed since it was inspected.
    pub(super) fresh: bool,
    values: Vec<(Field, Vec<u8>)>,
    numbers: Vec<(NumberField, u64)>,
    /// Bytes of the message, without its body.
    raw: Vec<u8>,
    body: Vec<u8>,
    /// Value of `Content-Encoding`.
    codings: Vec<u8>,
    /// The decoded body; `None` if it has no coding.
    decoded: Option<Vec<u8>>,
    /// True if a receiver may use the body as it is.
    doubtful: bool,
    /// Length of the body when it was inspected.
    inspected: usize,
    /// Rules that have matched the message.
    pub(super) matched: Vec<u32>,
}

impl Message {
    fn new(protocol: AppProtocol, to_client: bool) -> Self {
        Message {
            protocol,
            to_client,
            complete: false,
            fresh: true,
            values: vec![],
            numbers: vec![],
            raw: vec![],
            body: vec![],
            codings: vec![],
            decoded: None,
            doubtful: false,
            inspected: 0,
            matched: vec![],
        }
    }

    /// Adds a buffer if rules inspect it.
    fn put(&mut self, fields: Fields, field: Field, value: impl FnOnce() -> Vec<u8>) {
        if fields.contains(field) {
            self.values.push((field, value()));
        }
    }

    /// Appends bytes to the body, up to its limit, and returns false if they exceed it.
    fn grow(&mut self, bytes: &[u8], inline: bool) -> bool {
        let room = MAX_BODY - self.body.len().min(MAX_BODY);
        let Some(fitting) = bytes.get(..room.min(bytes.len())).filter(|fitting| !fitting.is_empty()) else {
            return bytes.is_empty();
        };
        self.body.extend_from_slice(fitting);
        let len = self.body.len();
        let shown = self.decoded.as_ref().map_or(len, |decoded| decoded.len().max(len));
        let due = shown <= SMALL_BODY || len >= self.inspected + self.inspected / 4;
        self.fresh |= inline && due;
        if len == MAX_BODY {
            self.complete();
        }
        fitting.len() == bytes.len()
    }

    /// Marks the message as complete.
    fn complete(&mut self) {
        (self.complete, self.fresh) = (true, true);
    }

    /// Decodes the body for an inspection.
    pub(super) fn prepare(&mut self) {
        self.fresh = false;
        if self.inspected != self.body.len() && !self.codings.is_empty() {
            let decoded = body::decode(&self.body, &self.codings, MAX_BODY);
            (self.decoded, self.doubtful) = (decoded.bytes, decoded.doubtful);
        }
        self.inspected = self.body.len();
    }

    /// Returns the buffers of a kind.
    pub(super) fn values(&self, field: Field) -> impl Iterator<Item = &[u8]> {
        let is_body = match field {
            Field::FileData => true,
            Field::HttpRequestBody => !self.to_client,
            Field::HttpResponseBody => self.to_client,
            _ => false,
        };
        let is_sent = self.doubtful || self.decoded.is_none();
        let bodies = [self.decoded.as_deref(), is_sent.then_some(&self.body[..])];
        let bodies = bodies.into_iter().flatten().filter(move |body| is_body && !body.is_empty());
        let values = self.values.iter().filter(move |(known, _)| *known == field).map(|(_, value)| &value[..]);
        values.chain(bodies)
    }

    /// Returns the numbers of a kind.
    pub(super) fn numbers(&self, field: NumberField) -> impl Iterator<Item = u64> {
        self.numbers.iter().filter(move |(known, _)| *known == field).map(|(_, number)| *number)
    }

    /// Returns the bytes of the message, and of its body, that rules without a buffer inspect.
    pub(super) fn raw(&self) -> [&[u8]; 2] {
        [&self.raw, &self.body]
    }

    /// Returns true if the buffers of a kind are complete.
    pub(super) fn has_whole(&self, field: Field) -> bool {
        let has = |number| self.numbers(number).next().is_some();
        self.complete
            || match self.protocol {
                AppProtocol::Http => !field.is_body(),
                AppProtocol::Tls if field.is_of_certificate() => has(NumberField::TlsChainLength),
                AppProtocol::Tls => has(NumberField::TlsVersion),
                AppProtocol::Dns => false,
            }
    }

    /// Returns the bytes that the message holds beside itself.
    fn held(&self) -> usize {
        let decoded = self.decoded.as_ref().map_or(0, Vec::capacity);
        let values: usize = self.values.iter().map(|(_, value)| value.capacity()).sum();
        let lists = self.values.capacity() * size_of::<(Field, Vec<u8>)>()
            + self.numbers.capacity() * size_of::<(NumberField, u64)>()
            + self.matched.capacity() * size_of::<u32>();
        values + lists + self.raw.capacity() + self.body.capacity() + self.codings.capacity() + decoded
    }
}

/// Parser of one direction.
#[derive(Debug, Default)]
struct Half {
    /// Bytes that are not parsed yet.
    input: Vec<u8>,
    /// Messages in order; the last may be incomplete.
    messages: VecDeque<Message>,
    http: http::Parser,
    tls: tls::Parser,
    /// True once no more bytes follow.
    ended: bool,
    /// True if bytes are not parsed because too many messages wait.
    waits: bool,
}

/// Progress of the detection of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detection {
    Running,
    Known(AppProtocol),
    /// The flow is not parsed.
    Failed,
}

/// Parsers of a flow.
#[derive(Debug)]
pub(super) struct AppFlow {
    detection: Detection,
    ports: [u16; 2],
    halves: [Half; 2],
    requests: http::Requests,
    /// True if the side that the flow has as its client is the server, as its first packet is not the first of the
    /// connection.
    reversed: bool,
    /// True once bytes are not parsed any more.
    stopped: bool,
    held: usize,
    statistics: Arc<AppStatistics>,
}

impl Drop for AppFlow {
    fn drop(&mut self) {
        self.statistics.memory.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl AppFlow {
    pub(super) fn new(ports: [u16; 2], statistics: Arc<AppStatistics>) -> Self {
        AppFlow {
            detection: Detection::Running,
            ports,
            halves: Default::default(),
            requests: http::Requests::default(),
            reversed: false,
            stopped: false,
            held: 0,
            statistics,
        }
    }

    pub(super) fn protocol(&self) -> Option<AppProtocol> {
        if let Detection::Known(protocol) = self.detection { Some(protocol) } else { None }
    }

    /// Returns true if bytes of the flow are parsed.
    pub(super) fn is_active(&self) -> bool {
        self.detection != Detection::Failed && !self.stopped
    }

    /// Returns true if no message waits.
    pub(super) fn is_idle(&self) -> bool {
        self.halves.iter().all(|half| half.messages.is_empty())
    }

    /// Returns true once the protocol is known, or known not to be one of the supported ones.
    pub(super) fn is_decided(&self) -> bool {
        self.detection != Detection::Running
    }

    /// Parses the next bytes of a direction of a TCP connection.
    pub(super) fn feed(&mut self, direction: usize, bytes: &[u8], options: AppOptions) {
        if !self.is_active() {
            return;
        }
        if let Some(half) = self.halves.get_mut(direction) {
            half.input.extend_from_slice(bytes);
        }
        if self.detection == Detection::Running {
            self.detect();
        }
        self.parse(options);
    }

    /// Marks a direction as ended.
    pub(super) fn end(&mut self, direction: usize, options: AppOptions) {
        if let Some(half) = self.halves.get_mut(direction).filter(|half| !half.ended) {
            half.ended = true;
            self.parse(options);
        }
    }

    /// Ends the parsing of the flow, behind missing bytes.
    pub(super) fn abandon(&mut self) {
        if self.protocol().is_some() && !self.stopped {
            self.statistics.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        self.stop();
    }

    /// Ends the parsing of the flow; messages that wait stay.
    fn stop(&mut self) {
        for half in &mut self.halves {
            half.input = vec![];
            half.messages.iter_mut().filter(|message| !message.complete).for_each(Message::complete);
        }
        if self.detection == Detection::Running {
            self.detection = Detection::Failed;
        }
        self.stopped = true;
        self.account();
    }

    /// Parses a UDP datagram.
    pub(super) fn datagram(&mut self, direction: usize, payload: &[u8], options: AppOptions) {
        if self.detection == Detection::Running {
            self.detection = match recognise(Application::Dns, payload, Transport::Udp, self.ports) {
                Verdict::Match => Detection::Known(AppProtocol::Dns),
                _ if self.ports.contains(&53) => Detection::Running,
                _ => Detection::Failed,
            };
        }
        if self.protocol().is_some()
            && let Some(message) = dns::parse(payload, options)
            && let Some(half) = self.halves.get_mut(direction)
            && half.messages.len() < MAX_READY
        {
            half.messages.push_back(message);
        }
    }

    fn detect(&mut self) {
        let mut no_match = [false; 2];
        for (half, no_match) in self.halves.iter().zip(&mut no_match) {
            if half.input.is_empty() {
                continue;
            }
            let one = |application| recognise(application, &half.input, Transport::Tcp, self.ports);
            let verdicts = [
                (AppProtocol::Http, http::recognise(&half.input, one(Application::Http))),
                (AppProtocol::Tls, tls::recognise(&half.input, one(Application::Tls))),
                (AppProtocol::Dns, one(Application::Dns)),
            ];
            if let Some((protocol, _)) = verdicts.iter().find(|(_, verdict)| *verdict == Verdict::Match) {
                self.detection = Detection::Known(*protocol);
                self.reversed = is_reversed(*protocol, self.halves.each_ref().map(|half| &half.input[..]));
                return;
            }
            let undecided = verdicts.iter().any(|(_, verdict)| *verdict == Verdict::NeedMore);
            *no_match = !undecided || half.input.len() >= MAX_UNKNOWN;
        }
        let too_long = self.halves.iter().any(|half| half.input.len() >= MAX_UNKNOWN);
        if no_match == [true; 2] || too_long {
            self.stop();
        }
    }

    /// Parses as much as there is, requests before responses.
    fn parse(&mut self, options: AppOptions) {
        let Detection::Known(protocol) = self.detection else { return self.account() };
        if self.stopped {
            return;
        }
        let mut truncated = 0;
        let order = if self.reversed { [1, 0] } else { [0, 1] };
        for (direction, to_client) in order.into_iter().zip([false, true]) {
            let Some(half) = self.halves.get_mut(direction) else { continue };
            let Half { input, messages, http, tls, ended, waits } = half;
            match protocol {
                AppProtocol::Http => {
                    truncated += http.parse(input, messages, to_client, *ended, &mut self.requests, options);
                }
                AppProtocol::Tls => tls.parse(input, messages, to_client, *ended, options),
                AppProtocol::Dns => dns::parse_stream(input, messages, options),
            }
            *waits = messages.len() >= MAX_READY;
        }
        self.statistics.truncated.fetch_add(truncated, Ordering::Relaxed);
        let encrypted = protocol == AppProtocol::Tls && self.halves.iter().all(|half| half.tls.is_done());
        if self.requests.tunnel || encrypted {
            self.stop();
        } else {
            self.account();
        }
    }

    /// Adjusts the memory of all parsers, and abandons the flow if it is exceeded.
    fn account(&mut self) {
        for half in &mut self.halves {
            if half.input.is_empty() {
                half.input = vec![];
            }
            if half.messages.is_empty() {
                half.messages = VecDeque::new();
            }
        }
        let held = self.halves.iter().map(|half| {
            let messages = half.messages.iter().map(Message::held).sum::<usize>();
            half.input.capacity() + half.tls.held() + messages + half.messages.capacity() * size_of::<Message>()
        });
        let held: usize = held.sum();
        let before = std::mem::replace(&mut self.held, held);
        self.statistics.memory.fetch_add(held, Ordering::Relaxed);
        let all = self.statistics.memory.fetch_sub(before, Ordering::Relaxed).wrapping_sub(before);
        if all > MAX_MEMORY && held > before && self.is_active() {
            self.statistics.abandoned.fetch_add(1, Ordering::Relaxed);
            self.halves = Default::default();
            if self.detection == Detection::Running {
                self.detection = Detection::Failed;
            }
            self.stopped = true;
            self.account();
        }
    }

    /// Removes and returns the next message of a direction that has to be inspected.
    pub(super) fn next(&mut self, direction: usize, options: AppOptions) -> Option<Message> {
        let half = self.halves.get_mut(direction)?;
        if half.messages.is_empty() && std::mem::take(&mut half.waits) {
            self.parse(options);
        }
        let messages = &mut self.halves.get_mut(direction)?.messages;
        // only the last message is incomplete, so a message without change is the last
        messages.front().is_some_and(|message| message.fresh).then(|| messages.pop_front())?
    }

    /// Returns an inspected message; further bytes are added to it if it is incomplete.
    pub(super) fn put_back(&mut self, direction: usize, message: Message) {
        if !message.complete
            && let Some(half) = self.halves.get_mut(direction)
        {
            half.messages.push_front(message);
        }
    }

    /// Adjusts the memory after inspections.
    pub(super) fn inspected(&mut self) {
        self.account();
    }
}

/// Returns true if the first bytes of client and server are those of a server and client.
fn is_reversed(protocol: AppProtocol, inputs: [&[u8]; 2]) -> bool {
    // true for the bytes of a server, `None` if there are none
    let [client, server] = inputs.map(|input| match protocol {
        AppProtocol::Http if !input.is_empty() => Some(http::is_response(input)),
        AppProtocol::Tls => input.get(5).map(|kind| *kind == tls::SERVER_HELLO),
        _ => None,
    });
    client.or(server.map(|is_server| !is_server)).unwrap_or(false)
}

/// Returns the first record of a client of TLS.
#[cfg(test)]
pub(super) fn client_stream() -> Vec<u8> {
    tls::tests::record(22, &tls::tests::hello())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_bounded_and_freed() {
        let statistics = Arc::<AppStatistics>::default();
        let mut flows = vec![];
        for _ in 0..2000 {
            let mut flow = AppFlow::new([4000, 80], statistics.clone());
            flow.feed(0, b"GET / HTTP/1.1\r\n", AppOptions::default());
            flow.feed(0, &b"Name: value\r\n".repeat(4000), AppOptions::default());
            flows.push(flow);
        }
        let held = statistics.memory.load(Ordering::Relaxed);
        assert!((MAX_MEMORY / 2..=MAX_MEMORY).contains(&held), "{held} bytes");
        assert!(statistics.abandoned() > 500);
        drop(flows);
        assert_eq!(statistics.memory.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bodies_are_inspected_up_to_the_limit() {
        let statistics = Arc::<AppStatistics>::default();
        let options = AppOptions { inline: true, ..AppOptions::default() };
        let mut flow = AppFlow::new([4000, 80], statistics.clone());
        flow.feed(0, b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", options);
        let (mut inspections, mut longest) = (0, 0);
        for _ in 0..1000 {
            flow.feed(0, &[b'x'; 1000], options);
            while let Some(mut message) = flow.next(0, options) {
                message.prepare();
                inspections += 1;
                longest = message.values(Field::HttpRequestBody).map(<[u8]>::len).max().unwrap_or(0);
                flow.put_back(0, message);
            }
        }
        assert_eq!((longest, statistics.truncated(), flow.is_idle()), (MAX_BODY, 1, true));
        assert!((17..40).contains(&inspections), "{inspections}");
    }

    proptest! {
        #[test]
        fn accepts_any_bytes(
            start in prop::sample::select(vec![
                &b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
                b"\x16\x03\x01\0\x50\x01\0\0\x4c",
                b"\0\x1d\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01",
                b"",
            ]),
            parts in prop::collection::vec((0..2usize, prop::collection::vec(any::<u8>(), 0..60)), 0..20),
        ) {
            let statistics = Arc::<AppStatistics>::default();
            let mut flow = AppFlow::new([4000, 53], statistics.clone());
            let options = AppOptions { fields: Fields::all(), inline: true, raw: true, validity: true };
            flow.feed(0, start, options);
            for (direction, bytes) in &parts {
                flow.feed(*direction, bytes, options);
                while let Some(mut message) = flow.next(*direction, options) {
                    message.prepare();
                    flow.put_back(*direction, message);
                }
                let mut datagrams = AppFlow::new([4000, 53], statistics.clone());
                datagrams.datagram(0, bytes, options);
            }
            (0..2).for_each(|direction| flow.end(direction, options));
            drop(flow);
            prop_assert_eq!(statistics.memory.load(Ordering::Relaxed), 0);
        }
    }
}
