//! The client: opens connections, and keeps their state.

use super::Transmit;
use super::segment::Segment;
use super::timers::Timers;
use crate::address::AddressRange;
use crate::latency::Delays;
use crate::random::scramble;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use wire::{MacAddr, TcpFlags};

/// Most pairs of client address and port, and so most connections open at a time.
pub const MAX_CONNECTIONS: u32 = 1 << 24;
/// Most bytes of a request: one segment.
pub const MAX_REQUEST: usize = super::segment::MSS as usize;

/// Settings of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    /// Addresses of the clients.
    pub src: AddressRange,
    /// Ports of the clients.
    pub src_ports: RangeInclusive<u16>,
    /// Pairs of client address and port that take turns, up to [`MAX_CONNECTIONS`]; addresses change first.
    pub pairs: u32,
    /// Addresses of the servers, of the same IP version: ranges take turns, and the addresses of each. At least one.
    pub dst: Arc<[AddressRange]>,
    /// Port of the servers.
    pub dst_port: u16,
    /// Source and destination of the frames.
    pub macs: (MacAddr, MacAddr),
    /// The request, 1 to [`MAX_REQUEST`] bytes.
    pub request: Arc<[u8]>,
    /// Bytes of each response; none to read until the server closes.
    pub response: Option<u32>,
    /// Requests of each connection; 0 opens and closes it only.
    pub transactions: u32,
    /// Time between the last response and the close, nanoseconds.
    pub hold_ns: u64,
    /// Time after which something unanswered is sent again, doubled each time (RFC 6298 §2.1: 1 s), nanoseconds.
    pub timeout_ns: u64,
    /// Times that it is sent again.
    pub retries: u8,
    /// For initial sequence numbers.
    pub seed: u64,
}

/// Failed connections by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// No answer to the SYN.
    pub no_syn_ack: u64,
    /// The SYN was answered with a reset.
    pub refused: u64,
    /// No response, or not all of it.
    pub no_response: u64,
    /// Reset after it was established.
    pub reset: u64,
    /// The server closed it before the last response.
    pub closed_early: u64,
    /// No answer to the FIN.
    pub not_closed: u64,
}

/// Counts of a client: opened = completed + failed + open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// SYNs sent for the first time.
    pub opened: u64,
    /// Connections whose SYN was answered.
    pub established: u64,
    /// Connections closed by both sides after all responses.
    pub completed: u64,
    /// Failed ones.
    pub failed: Failures,
    /// Responses received whole.
    pub transactions: u64,
    /// Segments sent again.
    pub repeated: u64,
    /// Segments sent and received.
    pub segments: (u64, u64),
    /// Payload sent and received in order, bytes.
    pub bytes: (u64, u64),
    /// Segments of no open connection, out of order, or repeated by the server.
    pub unexpected: u64,
    /// Frames not sent for lack of a buffer.
    pub no_buffer: u64,
}

impl Failures {
    fn add(&mut self, other: &Failures) {
        self.no_syn_ack += other.no_syn_ack;
        self.refused += other.refused;
        self.no_response += other.no_response;
        self.reset += other.reset;
        self.closed_early += other.closed_early;
        self.not_closed += other.not_closed;
    }

    /// Returns the sum.
    pub fn sum(&self) -> u64 {
        self.no_syn_ack + self.refused + self.no_response + self.reset + self.closed_early + self.not_closed
    }
}

impl ConnectionCounts {
    /// Adds the counts of another client, or of another time.
    pub fn add(&mut self, other: &ConnectionCounts) {
        self.opened += other.opened;
        self.established += other.established;
        self.completed += other.completed;
        self.failed.add(&other.failed);
        self.transactions += other.transactions;
        self.repeated += other.repeated;
        self.segments = (self.segments.0 + other.segments.0, self.segments.1 + other.segments.1);
        self.bytes = (self.bytes.0 + other.bytes.0, self.bytes.1 + other.bytes.1);
        self.unexpected += other.unexpected;
        self.no_buffer += other.no_buffer;
    }

    /// Returns the connections that are open.
    pub fn open(&self) -> u64 {
        self.opened - self.completed - self.failed.sum()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// The SYN was sent.
    Opening,
    /// A request was sent.
    Waiting,
    /// All responses were received.
    Holding,
    /// The FIN was sent.
    Closing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    state: State,
    retries: u8,
    /// True if the server's FIN was received.
    is_closed_by_server: bool,
    /// True if the first byte of the response was received.
    has_first_byte: bool,
    /// Number of the server.
    server: u32,
    /// Next sequence number to send; what was sent last and is not acknowledged stands before it.
    sent: u32,
    /// Next sequence number to receive.
    received: u32,
    /// Bytes missing of the response.
    missing: u32,
    /// Requests left, the current one included.
    transactions: u32,
    /// Times of the SYN and of the last request, nanoseconds.
    opened_at: u64,
    asked_at: u64,
}

/// Clients of all addresses and ports.
pub struct Client {
    settings: ClientSettings,
    /// Client addresses in use.
    addresses: u32,
    connections: Box<[Connection]>,
    /// Connections that are not open, the one closed longest ago first.
    free: VecDeque<u32>,
    timers: Timers,
    counts: ConnectionCounts,
    setup: Delays,
    setup_sum_ns: u64,
    first_byte: Delays,
    transaction: Delays,
    most_open: u64,
    next_server: u32,
    /// Kept for its memory.
    expired: Vec<u32>,
}

impl Client {
    /// Creates a client without connections at time `now`, nanoseconds. Settings out of range are clamped.
    pub fn new(settings: ClientSettings, now: u64) -> Self {
        let request = match settings.request.len() {
            0 => Arc::from([b'.']),
            len if len > MAX_REQUEST => Arc::from(&settings.request[..MAX_REQUEST]),
            _ => settings.request.clone(),
        };
        let settings = ClientSettings { request, ..settings };
        let ports = u32::from(settings.src_ports.end().saturating_sub(*settings.src_ports.start())) + 1;
        let pairs = settings.pairs.clamp(1, MAX_CONNECTIONS);
        let addresses = settings.src.len().min(pairs.into()) as u32;
        let count = pairs.min(addresses.saturating_mul(ports));
        Self {
            addresses,
            connections: vec![Connection::default(); count as usize].into(),
            free: (0..count).collect(),
            timers: Timers::new(count as usize, now),
            counts: ConnectionCounts::default(),
            setup: Delays::new(),
            setup_sum_ns: 0,
            first_byte: Delays::new(),
            transaction: Delays::new(),
            most_open: 0,
            next_server: 0,
            expired: vec![],
            settings,
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> ConnectionCounts {
        self.counts
    }

    /// Returns the most connections that were open at a time.
    pub fn most_open(&self) -> u64 {
        self.most_open
    }

    /// Returns the times from the SYN to its answer, from a request to the first byte of its response, and to the last.
    pub fn delays(&self) -> [&Delays; 3] {
        [&self.setup, &self.first_byte, &self.transaction]
    }

    /// Sets counts and delays to zero; connections stay open, and count as opened.
    pub fn reset_counts(&mut self) {
        let open = self.counts.open();
        self.counts = ConnectionCounts { opened: open, ..ConnectionCounts::default() };
        self.most_open = open;
        self.setup_sum_ns = 0;
        for delays in [&mut self.setup, &mut self.first_byte, &mut self.transaction] {
            *delays = Delays::new();
        }
    }

    /// Returns the sum of the times from a SYN to its answer, nanoseconds.
    pub fn setup_sum_ns(&self) -> u64 {
        self.setup_sum_ns
    }

    /// Sets the time between the last response and the close, nanoseconds, of connections that have not got it yet.
    pub fn set_hold_ns(&mut self, ns: u64) {
        self.settings.hold_ns = ns;
    }

    /// Opens a connection; returns false if all pairs of address and port are in use.
    pub fn open(&mut self, now: u64, out: &mut impl Transmit) -> bool {
        let Some(index) = self.free.pop_front() else { return false };
        // grows for each address and port, so that servers accept it although they remember the last connection
        // (RFC 9293 §3.4.1)
        let first = (scramble(self.settings.seed ^ u64::from(index)) as u32).wrapping_add((now >> 12) as u32);
        let server = self.next_server;
        self.next_server = server.wrapping_add(1);
        self.connections[index as usize] = Connection {
            state: State::Opening,
            server,
            sent: first.wrapping_add(1),
            transactions: self.settings.transactions,
            opened_at: now,
            ..Connection::default()
        };
        self.counts.opened += 1;
        self.most_open = self.most_open.max(self.counts.open());
        self.send(index, first, TcpFlags::SYN, false, out);
        self.timers.set(index, now + self.settings.timeout_ns);
        true
    }

    /// Returns true if a segment is addressed to a client, and not to a server.
    pub fn is_destination(&self, segment: &Segment<'_>) -> bool {
        self.settings.src.position(segment.dst.ip()).is_some()
    }

    /// Takes in a segment and sends what it makes due.
    pub fn receive(&mut self, segment: &Segment<'_>, now: u64, out: &mut impl Transmit) {
        self.counts.segments.1 += 1;
        let is_expected = match self.index_of(segment) {
            Some(index) => self.take(index, segment, now, out),
            None => false,
        };
        self.counts.unexpected += u64::from(!is_expected);
    }

    /// Gives up all open connections, as if nothing more were answered.
    pub fn abandon(&mut self) {
        for index in 0..self.connections.len() as u32 {
            self.fail(index);
        }
    }

    /// Sends again what was not answered in time, closes connections that were held, and gives up others.
    pub fn poll(&mut self, now: u64, out: &mut impl Transmit) {
        let mut expired = std::mem::take(&mut self.expired);
        self.timers.poll(now, &mut expired);
        for index in expired.drain(..) {
            self.expire(index, now, out);
        }
        self.expired = expired;
    }

    fn expire(&mut self, index: u32, now: u64, out: &mut impl Transmit) {
        let connection = self.connections[index as usize];
        let (sent, request) = (connection.sent, self.settings.request.len() as u32);
        let (seq, flags, has_request) = match connection.state {
            State::Free => return,
            State::Holding => return self.close(index, now, out),
            State::Opening => (sent.wrapping_sub(1), TcpFlags::SYN, false),
            State::Waiting => (sent.wrapping_sub(request), TcpFlags::ACK.union(TcpFlags::PSH), true),
            State::Closing => (sent.wrapping_sub(1), TcpFlags::ACK.union(TcpFlags::FIN), false),
        };
        if connection.retries >= self.settings.retries {
            return self.fail(index);
        }
        self.connections[index as usize].retries += 1;
        self.counts.repeated += 1;
        self.send(index, seq, flags, has_request, out);
        self.timers.set(index, now + (self.settings.timeout_ns << (connection.retries + 1).min(16)));
    }

    /// Counts a connection that nothing answers as failed, and releases it.
    fn fail(&mut self, index: u32) {
        let failed = &mut self.counts.failed;
        match self.connections[index as usize].state {
            State::Free => return,
            State::Opening => failed.no_syn_ack += 1,
            State::Waiting => failed.no_response += 1,
            State::Holding | State::Closing => failed.not_closed += 1,
        }
        self.release(index);
    }

    /// Takes in a segment of a connection; false if it is not what the connection waits for.
    fn take(&mut self, index: u32, segment: &Segment<'_>, now: u64, out: &mut impl Transmit) -> bool {
        let connection = &mut self.connections[index as usize];
        let flags = segment.flags;
        match connection.state {
            State::Free => false,
            State::Opening if flags.contains(TcpFlags::RST) => {
                let is_for_syn = segment.ack == connection.sent;
                if is_for_syn {
                    self.counts.failed.refused += 1;
                    self.release(index);
                }
                is_for_syn
            }
            State::Opening => {
                if !flags.contains(TcpFlags::SYN_ACK) || segment.ack != connection.sent {
                    return false;
                }
                connection.received = segment.seq.wrapping_add(1);
                self.counts.established += 1;
                let setup_ns = now.saturating_sub(connection.opened_at);
                self.setup.record(setup_ns);
                self.setup_sum_ns = self.setup_sum_ns.wrapping_add(setup_ns);
                let sent = connection.sent;
                self.send(index, sent, TcpFlags::ACK, false, out);
                self.proceed(index, now, out);
                true
            }
            _ if flags.contains(TcpFlags::RST) => {
                // RFC 9293 §3.10.7.4: exactly the next sequence number
                let is_valid = segment.seq == connection.received;
                if is_valid {
                    self.counts.failed.reset += 1;
                    self.release(index);
                }
                is_valid
            }
            _ if segment.seq != connection.received || flags.contains(TcpFlags::SYN) => {
                // RFC 9293 §3.10.7.4: answered with an acknowledgment
                if segment.end() != segment.seq {
                    let sent = connection.sent;
                    self.send(index, sent, TcpFlags::ACK, false, out);
                }
                false
            }
            _ => self.take_in_order(index, segment, now, out),
        }
    }

    fn take_in_order(&mut self, index: u32, segment: &Segment<'_>, now: u64, out: &mut impl Transmit) -> bool {
        let connection = &mut self.connections[index as usize];
        let (len, finishes) = (segment.payload.len() as u32, segment.flags.contains(TcpFlags::FIN));
        connection.received = segment.end();
        connection.is_closed_by_server |= finishes;
        self.counts.bytes.1 += u64::from(len);
        let (sent, acknowledges_all) = (connection.sent, segment.ack == connection.sent);
        match connection.state {
            State::Waiting => {
                if len != 0 && !connection.has_first_byte {
                    connection.has_first_byte = true;
                    self.first_byte.record(now.saturating_sub(connection.asked_at));
                }
                let is_expected = len <= connection.missing;
                connection.missing = connection.missing.saturating_sub(len);
                let is_whole = match self.settings.response {
                    Some(_) => connection.missing == 0,
                    None => finishes,
                };
                if is_whole {
                    self.transaction.record(now.saturating_sub(connection.asked_at));
                    connection.transactions = connection.transactions.saturating_sub(1);
                    self.counts.transactions += 1;
                    self.proceed(index, now, out);
                } else if finishes {
                    self.counts.failed.closed_early += 1;
                    self.send(index, sent, TcpFlags::ACK.union(TcpFlags::RST), false, out);
                    self.release(index);
                } else if len != 0 {
                    connection.retries = 0;
                    self.send(index, sent, TcpFlags::ACK, false, out);
                    self.timers.set(index, now + self.settings.timeout_ns);
                }
                is_expected
            }
            State::Closing => {
                if len != 0 || finishes {
                    self.send(index, sent, TcpFlags::ACK, false, out);
                }
                if acknowledges_all && self.connections[index as usize].is_closed_by_server {
                    self.counts.completed += 1;
                    self.release(index);
                }
                len == 0
            }
            _ => {
                if finishes {
                    self.close(index, now, out);
                } else if len != 0 {
                    self.send(index, sent, TcpFlags::ACK, false, out);
                }
                len == 0
            }
        }
    }

    /// Sends the next request, or holds or closes the connection.
    fn proceed(&mut self, index: u32, now: u64, out: &mut impl Transmit) {
        let request = self.settings.request.len() as u32;
        let connection = &mut self.connections[index as usize];
        connection.retries = 0;
        if connection.transactions != 0 && !connection.is_closed_by_server {
            let seq = connection.sent;
            connection.state = State::Waiting;
            connection.sent = seq.wrapping_add(request);
            connection.missing = self.settings.response.unwrap_or(u32::MAX);
            connection.has_first_byte = false;
            connection.asked_at = now;
            self.counts.bytes.0 += u64::from(request);
            self.send(index, seq, TcpFlags::ACK.union(TcpFlags::PSH), true, out);
            self.timers.set(index, now + self.settings.timeout_ns);
        } else if connection.transactions != 0 {
            self.counts.failed.closed_early += 1;
            self.release(index);
        } else if self.settings.hold_ns != 0 && !connection.is_closed_by_server {
            connection.state = State::Holding;
            let sent = connection.sent;
            self.send(index, sent, TcpFlags::ACK, false, out);
            self.timers.set(index, now + self.settings.hold_ns);
        } else {
            self.close(index, now, out);
        }
    }

    fn close(&mut self, index: u32, now: u64, out: &mut impl Transmit) {
        let connection = &mut self.connections[index as usize];
        let seq = connection.sent;
        connection.state = State::Closing;
        connection.retries = 0;
        connection.sent = seq.wrapping_add(1);
        self.send(index, seq, TcpFlags::ACK.union(TcpFlags::FIN), false, out);
        self.timers.set(index, now + self.settings.timeout_ns);
    }

    /// Makes address and port of a connection available.
    fn release(&mut self, index: u32) {
        self.connections[index as usize].state = State::Free;
        self.timers.stop(index);
        self.free.push_back(index);
    }

    fn send(&mut self, index: u32, seq: u32, flags: TcpFlags, has_request: bool, out: &mut impl Transmit) {
        let connection = &self.connections[index as usize];
        let segment = Segment {
            macs: self.settings.macs,
            src: self.address(index),
            dst: self.server(connection.server),
            seq,
            ack: if flags.contains(TcpFlags::ACK) { connection.received } else { 0 },
            flags,
            payload: if has_request { &self.settings.request } else { &[] },
        };
        match segment.send(out) {
            true => self.counts.segments.0 += 1,
            false => self.counts.no_buffer += 1,
        }
    }

    /// Returns address and port of a connection's client.
    fn address(&self, index: u32) -> SocketAddr {
        let port = self.settings.src_ports.start().wrapping_add((index / self.addresses) as u16);
        SocketAddr::new(self.settings.src.nth((index % self.addresses).into()), port)
    }

    fn server(&self, number: u32) -> SocketAddr {
        let ranges = &self.settings.dst;
        let (range, address) = (number as usize % ranges.len(), number as usize / ranges.len());
        SocketAddr::new(ranges[range].nth(address as u128), self.settings.dst_port)
    }

    /// Returns the connection to whose client a segment is addressed by its server.
    fn index_of(&self, segment: &Segment<'_>) -> Option<u32> {
        let address = u32::try_from(self.settings.src.position(segment.dst.ip())?).ok()?;
        let port = segment.dst.port().checked_sub(*self.settings.src_ports.start())?;
        let index = u32::from(port).checked_mul(self.addresses)?.checked_add(address)?;
        let connection = self.connections.get(index as usize).filter(|_| address < self.addresses)?;
        (segment.src == self.server(connection.server)).then_some(index)
    }
}
