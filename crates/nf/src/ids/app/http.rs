//! Messages of HTTP/1.x.
//!
//! Heads are split as lenient servers do it, because a message that a strict parser refuses is inspected nowhere.

use super::{AppOptions, MAX_HEAD, MAX_READY, Message, uri};
use crate::dpi::protocol::Verdict;
use crate::ids::rule::app::{AppProtocol, Field};
use std::collections::{HashMap, VecDeque};

/// Longest method in bytes.
const MAX_METHOD: usize = 64;
/// Largest number of fields of a head; further ones are in `http.header.raw` only.
const MAX_FIELDS: usize = 1024;
/// Longest line with the length of a chunk in bytes.
const MAX_CHUNK_LINE: usize = MAX_TRAILER_LINE;
/// Longest line of a trailer in bytes.
const MAX_TRAILER_LINE: usize = 8 << 10;
/// Largest number of requests whose methods are remembered for their responses.
const MAX_REQUESTS: usize = 1024;

/// Properties of a request that its response depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

/// Requests without a response.
#[derive(Debug, Default)]
pub(super) struct Requests {
    methods: VecDeque<Method>,
    /// True once the connection carries another protocol.
    pub(super) tunnel: bool,
}

/// Part of a message that is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// A body of so many further bytes.
    Body(u64),
    ChunkLength,
    /// A chunk of so many further bytes.
    Chunk(u64),
    ChunkEnd,
    /// Fields behind the last chunk.
    Trailer,
    UntilEnd,
    /// Bytes are not parsed any more.
    Stopped,
}

/// Parser of one direction.
#[derive(Debug, Default)]
pub(super) struct Parser {
    state: State,
    /// Bytes of an incomplete head in which its end has been searched.
    searched: usize,
    /// True once the first line has been checked.
    has_line: bool,
    /// Length of the trailer so far.
    trailer: usize,
    /// True if the body exceeds its limit.
    truncated: bool,
}

/// Recognises a request line or status line.
pub(super) fn recognise(payload: &[u8], verdict: Verdict) -> Verdict {
    if verdict == Verdict::Match {
        return verdict;
    }
    let start = payload.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(payload.len());
    let line = payload.get(start..).unwrap_or_default();
    let is_token = |word: &[u8]| word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        // a long request line
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let is_request = line.len() >= MAX_METHOD
            && words.next().is_some_and(|word| {
                is_token(word) && word.len() <= MAX_METHOD && !word.iter().any(u8::is_ascii_lowercase)
            })
            && words.next().is_some_and(|word| word.starts_with(b"/") || word.starts_with(b"http"));
        return if is_request { Verdict::Match } else { verdict };
    };
    let words: Vec<&[u8]> =
        line.get(..end).unwrap_or_default().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    let is_version =
        |word: &[u8]| word.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/1.")) || word == b"HTTP/0.9";
    match words[..] {
        [version, code, ..] if is_version(version) && code.iter().all(u8::is_ascii_digit) => Verdict::Match,
        [method, _, .., version] if is_version(version) && is_token(method) => Verdict::Match,
        _ => verdict,
    }
}

/// Returns true if the bytes begin with the status line of a response.
pub(super) fn is_response(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/"))
}

/// Returns true if a line may be the first of a message.
fn is_first_line(line: &[u8], to_client: bool) -> bool {
    let line = line.trim_ascii_start();
    let method = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let is_token = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
    match to_client {
        true => is_response(line),
        false => (1..=MAX_METHOD).contains(&method) && line.iter().take(method).all(is_token),
    }
}

impl Parser {
    /// Parses the bytes that are there, removes them from the input, and returns the number of heads and bodies that
    /// exceeded their limits.
    pub(super) fn parse(
        &mut self,
        input: &mut Vec<u8>,
        messages: &mut VecDeque<Message>,
        to_client: bool,
        ended: bool,
        requests: &mut Requests,
        options: AppOptions,
    ) -> u64 {
        let (mut at, mut truncated) = (0, 0);
        while messages.len() < MAX_READY && !requests.tunnel {
            let rest = input.get(at..).unwrap_or_default();
            let used = match self.state {
                State::Head => self.head(rest, messages, to_client, ended, requests, options, &mut truncated),
                State::Body(left) | State::Chunk(left) => {
                    let part = rest.get(..usize::try_from(left).unwrap_or(usize::MAX).min(rest.len())).unwrap_or(rest);
                    truncated += self.add(part, messages, options);
                    let left = left - part.len() as u64;
                    match self.state {
                        State::Body(_) if left == 0 => self.complete(messages),
                        State::Chunk(_) if left == 0 => self.state = State::ChunkEnd,
                        State::Body(_) => self.state = State::Body(left),
                        _ => self.state = State::Chunk(left),
                    }
                    part.len()
                }
                State::ChunkLength => self.chunk_length(rest),
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => self.enter(State::ChunkLength, 2),
                    [b'\n', ..] => self.enter(State::ChunkLength, 1),
                    [b'\r'] | [] => 0,
                    _ => self.enter(State::UntilEnd, 0),
                },
                State::Trailer => self.trailer(rest, messages),
                State::UntilEnd => {
                    truncated += self.add(rest, messages, options);
                    rest.len()
                }
                State::Stopped => rest.len(),
            };
            at += used;
            let blocked = used == 0 && !matches!(self.state, State::UntilEnd | State::Stopped);
            let waits = matches!(self.state, State::Body(1..) | State::Chunk(1..)) && at == input.len();
            if blocked || waits || at >= input.len() {
                break;
            }
        }
        input.drain(..at.min(input.len()));
        if ended && messages.len() < MAX_READY && self.state != State::Head && self.state != State::Stopped {
            self.complete(messages);
            self.state = State::Stopped;
        }
        truncated
    }

    fn enter(&mut self, state: State, used: usize) -> usize {
        self.state = state;
        used
    }

    fn complete(&mut self, messages: &mut VecDeque<Message>) {
        if let Some(message) = messages.back_mut() {
            message.complete();
        }
        *self = Parser::default();
    }

    /// Adds bytes to the body; returns 1 if it exceeds its limit for the first time.
    fn add(&mut self, bytes: &[u8], messages: &mut VecDeque<Message>, options: AppOptions) -> u64 {
        // a message whose body is full may have been inspected and removed
        let fits = bytes.is_empty() || messages.back_mut().is_some_and(|message| message.grow(bytes, options.inline));
        u64::from(!fits && !std::mem::replace(&mut self.truncated, true))
    }

    /// Parses the line with the length of a chunk; returns its length, or 0 if it is not complete.
    fn chunk_length(&mut self, rest: &[u8]) -> usize {
        let Some(end) = rest.iter().take(MAX_CHUNK_LINE).position(|byte| *byte == b'\n') else {
            // not a chunk: servers read to the end of the connection
            return if rest.len() >= MAX_CHUNK_LINE { self.enter(State::UntilEnd, 0) } else { 0 };
        };
        let line = rest.get(..end).unwrap_or_default().trim_ascii();
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let text = std::str::from_utf8(line.get(..digits).unwrap_or_default()).unwrap_or("");
        match u64::from_str_radix(text, 16) {
            Ok(0) => self.enter(State::Trailer, end + 1),
            Ok(len) => self.enter(State::Chunk(len), end + 1),
            Err(_) => self.enter(State::UntilEnd, 0),
        }
    }

    /// Skips a line of the trailer; returns its length, or 0 if it is not complete.
    fn trailer(&mut self, rest: &[u8], messages: &mut VecDeque<Message>) -> usize {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            if rest.len() > MAX_TRAILER_LINE {
                self.complete(messages);
                self.state = State::Stopped;
            }
            return 0;
        };
        self.trailer += end + 1;
        if rest.get(..end).is_some_and(|line| line.trim_ascii().is_empty()) {
            self.complete(messages);
        } else if self.trailer > MAX_HEAD {
            self.complete(messages);
            self.state = State::Stopped;
        }
        end + 1
    }

    /// Parses a head; returns its length, or 0 if it is not complete.
    #[expect(clippy::too_many_arguments, reason = "the state of the flow, of which the parser has one direction")]
    fn head(
        &mut self,
        rest: &[u8],
        messages: &mut VecDeque<Message>,
        to_client: bool,
        ended: bool,
        requests: &mut Requests,
        options: AppOptions,
        truncated: &mut u64,
    ) -> usize {
        // empty lines may precede a message (RFC 9112 §2.2)
        let start = rest.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
        if start > 0 {
            self.searched = 0;
            return start;
        }
        let limited = rest.get(..MAX_HEAD).unwrap_or(rest);
        if !self.has_line
            && let Some(end) =
                limited.iter().skip(self.searched).position(|byte| *byte == b'\n').map(|at| self.searched + at)
        {
            self.has_line = true;
            if !is_first_line(&limited[..end], to_client) {
                // the connection carries something else
                self.state = State::Stopped;
                return rest.len();
            }
        }
        let end = end_of_head(limited, self.searched);
        self.searched = limited.len().saturating_sub(3);
        let has_line = || limited.contains(&b'\n');
        let (head, cut) = match end {
            Some(end) => (limited.get(..end).unwrap_or(limited), false),
            None if rest.len() >= MAX_HEAD => (limited, true),
            None if ended && has_line() => (limited, true),
            None => return 0,
        };
        (self.searched, self.has_line) = (0, false);
        let parsed = Head::parse(head);
        let mut message = Message::new(AppProtocol::Http, to_client);
        parsed.fill(&mut message, options);
        let next = parsed.body(to_client, requests);
        if cut {
            *truncated += u64::from(!ended);
            message.complete = true;
            self.state = State::Stopped;
        } else if let Some(state) = next {
            self.state = state;
        } else {
            message.complete = true;
        }
        messages.push_back(message);
        head.len()
    }
}

/// Returns the position behind the empty line at the end of a head; bytes before `from` have been searched.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let ends = |at: &usize| match bytes.get(at + 1..) {
        Some([b'\n', ..]) => Some(at + 2),
        Some([b'\r', b'\n', ..]) => Some(at + 3),
        _ => None,
    };
    let lines = (from..bytes.len()).filter(|at| bytes.get(*at) == Some(&b'\n'));
    lines.filter_map(|at| ends(&at)).next()
}

/// Parts of a head.
struct Head<'a> {
    bytes: &'a [u8],
    /// First line without its end.
    line: &'a [u8],
    /// Lines of the fields, with the empty line at the end.
    lines: &'a [u8],
    /// Names and values; fields of one name are joined.
    fields: Vec<(&'a [u8], Vec<u8>)>,
}

/// Splits at the end of the first line; returns the line without its end, and the rest.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let line = bytes.get(..end).unwrap_or_default();
    (line.strip_suffix(b"\r").unwrap_or(line), bytes.get(end + 1..).unwrap_or_default())
}

impl<'a> Head<'a> {
    fn parse(bytes: &'a [u8]) -> Head<'a> {
        let (line, lines) = first_line(bytes);
        let mut fields: Vec<(&[u8], Vec<u8>)> = vec![];
        let (mut rest, mut last) = (lines, None);
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        while !rest.is_empty() {
            let (line, behind) = first_line(rest);
            rest = behind;
            if let [b' ' | b'\t', ..] = line {
                // a value that continues (RFC 9112 §5.2)
                if let Some((_, value)) = last.and_then(|n: usize| fields.get_mut(n)) {
                    value.push(b' ');
                    value.extend_from_slice(line.trim_ascii());
                }
                continue;
            }
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            let key = name.to_ascii_lowercase();
            last = places.get(&key).copied();
            if let Some((_, known)) = last.and_then(|n| fields.get_mut(n)) {
                known.extend_from_slice(b", ");
                known.extend_from_slice(value);
            } else if fields.len() < MAX_FIELDS {
                last = Some(fields.len());
                places.insert(key, fields.len());
                fields.push((name, value.to_vec()));
            }
        }
        Head { bytes, line, lines, fields }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| &value[..])
    }

    /// Returns method, target and protocol of a request.
    fn request(&self) -> (&'a [u8], &'a [u8], Option<&'a [u8]>) {
        let line = self.line.trim_ascii_start();
        let method = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
        let (method, rest) = line.split_at(method);
        let rest = rest.trim_ascii();
        let last = rest.iter().rposition(|byte| matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
        let (target, protocol) = rest.split_at(last);
        match protocol.get(..5) {
            Some(start) if start.eq_ignore_ascii_case(b"HTTP/") => (method, target.trim_ascii(), Some(protocol)),
            _ => (method, rest, None),
        }
    }

    /// Returns protocol, code and message of a response.
    fn response(&self) -> [&'a [u8]; 3] {
        let word = |text: &'a [u8]| {
            let text = text.trim_ascii_start();
            text.split_at(text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len()))
        };
        let (protocol, rest) = word(self.line);
        let (code, rest) = word(rest);
        [protocol, code, rest.trim_ascii()]
    }

    /// Fills the buffers that rules inspect.
    fn fill(&self, message: &mut Message, options: AppOptions) {
        let (fields, to_client) = (options.fields, message.to_client);
        if options.raw {
            message.raw = self.bytes.to_vec();
        }
        let protocol = if to_client {
            let [protocol, code, text] = self.response();
            message.put(fields, Field::HttpStatusCode, || code.to_vec());
            message.put(fields, Field::HttpStatusMessage, || text.to_vec());
            message.put(fields, Field::HttpResponseLine, || self.line.to_vec());
            Some(protocol)
        } else {
            let (method, target, protocol) = self.request();
            message.put(fields, Field::HttpMethod, || method.to_vec());
            message.put(fields, Field::HttpUri, || uri::normalise(target));
            message.put(fields, Field::HttpUriRaw, || target.to_vec());
            message.put(fields, Field::HttpRequestLine, || self.line.to_vec());
            if let Some(host) = uri::split(target).0.map(without_port).or_else(|| self.field("host")) {
                message.put(fields, Field::HttpHost, || without_port(host).to_ascii_lowercase());
                message.put(fields, Field::HttpHostRaw, || host.to_vec());
            }
            protocol
        };
        if let Some(protocol) = protocol {
            message.put(fields, Field::HttpProtocol, || protocol.to_vec());
        }
        message.put(fields, Field::HttpStart, || self.bytes.to_vec());
        if !self.fields.is_empty() {
            message.put(fields, Field::HttpHeaderRaw, || self.lines.to_vec());
            message.put(fields, Field::HttpHeaderNames, || {
                let names = self.fields.iter().flat_map(|(name, _)| [*name, b"\r\n"]);
                [&b"\r\n"[..]].into_iter().chain(names).chain([&b"\r\n"[..]]).collect::<Vec<_>>().concat()
            });
        }
        let cookie: &[u8] = if to_client { b"set-cookie" } else { b"cookie" };
        let shown = || self.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(cookie));
        if shown().next().is_some() {
            message.put(fields, Field::HttpHeader, || {
                let lines = shown().flat_map(|(name, value)| [*name, b": ", value, b"\r\n"]);
                lines.collect::<Vec<_>>().concat()
            });
        }
        let one = if to_client { Field::HttpResponseHeader } else { Field::HttpRequestHeader };
        if fields.contains(one) {
            for (name, value) in &self.fields {
                message.put(fields, one, || [*name, b": ", value].concat());
            }
        }
        let both = [
            ("content-type", Field::HttpContentType),
            ("content-length", Field::HttpContentLength),
            ("connection", Field::HttpConnection),
        ];
        let named: &[(&str, Field)] = match to_client {
            true => {
                &[("set-cookie", Field::HttpCookie), ("server", Field::HttpServer), ("location", Field::HttpLocation)]
            }
            false => &[
                ("cookie", Field::HttpCookie),
                ("user-agent", Field::HttpUserAgent),
                ("accept", Field::HttpAccept),
                ("accept-language", Field::HttpAcceptLanguage),
                ("accept-encoding", Field::HttpAcceptEncoding),
                ("referer", Field::HttpReferer),
            ],
        };
        for (name, field) in both.iter().chain(named) {
            if let Some(value) = self.field(name) {
                message.put(fields, *field, || value.to_vec());
            }
        }
        message.codings = self.field("content-encoding").unwrap_or_default().to_vec();
    }

    /// Returns the state of the body (RFC 9112 §6.3); `None` if the message has none.
    fn body(&self, to_client: bool, requests: &mut Requests) -> Option<State> {
        if to_client {
            let [_, code, _] = self.response();
            if code == b"101" {
                requests.tunnel = true;
                return None;
            }
            if code.first() == Some(&b'1') {
                return None;
            }
            let method = requests.methods.pop_front().unwrap_or(Method::Other);
            if method == Method::Connect && code.first() == Some(&b'2') {
                requests.tunnel = true;
                return None;
            }
            if method == Method::Head || code == b"204" || code == b"304" {
                return None;
            }
        } else if requests.methods.len() < MAX_REQUESTS {
            let (method, ..) = self.request();
            requests.methods.push_back(match method {
                b"HEAD" => Method::Head,
                b"CONNECT" => Method::Connect,
                _ => Method::Other,
            });
        }
        let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
        if self.field("transfer-encoding").is_some_and(|codings| codings.split(|byte| *byte == b',').any(is_chunked)) {
            return Some(State::ChunkLength);
        }
        let length = self.field("content-length").map(|length| {
            let digits = length.iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&length[..digits]).unwrap_or("").parse::<u64>()
        });
        match length {
            Some(Ok(0)) => None,
            Some(Ok(length)) => Some(State::Body(length)),
            _ if to_client => Some(State::UntilEnd),
            _ => None,
        }
    }
}

/// Removes a port from a host.
fn without_port(host: &[u8]) -> &[u8] {
    let from = host.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    let colon = host.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b':'));
    match colon {
        // several values that are joined
        Some(_) if host.contains(&b',') => host,
        Some(at) => host.get(..from + at).unwrap_or(host),
        None => host,
    }
}

#[cfg(test)]
mod tests;
