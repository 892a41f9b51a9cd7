//! The server: a function from segments to segments.

use super::Transmit;
use super::segment::{MSS, Segment};
use crate::random::scramble;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use wire::TcpFlags;

/// Most bytes of a response: what a window without scaling holds.
pub const MAX_RESPONSE: usize = 64_000;

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The response to each request, 1 to [`MAX_RESPONSE`] bytes. A request ends with a segment that has PSH.
    pub response: Arc<[u8]>,
    /// For initial sequence numbers.
    pub seed: u64,
}

/// Counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// SYNs answered, repeated ones included.
    pub syns: u64,
    /// Requests answered, repeated ones included.
    pub requests: u64,
    /// FINs answered, repeated ones included.
    pub fins: u64,
    /// Resets received.
    pub resets: u64,
    /// Frames not sent for lack of a buffer.
    pub no_buffer: u64,
}

impl ServerCounts {
    /// Adds the counts of another server, or of another time.
    pub fn add(&mut self, other: &ServerCounts) {
        self.syns += other.syns;
        self.requests += other.requests;
        self.fins += other.fins;
        self.resets += other.resets;
        self.no_buffer += other.no_buffer;
    }
}

/// A server at all addresses and ports.
#[derive(Clone, Debug)]
pub struct Server {
    settings: ServerSettings,
    counts: ServerCounts,
}

impl Server {
    /// Creates a server; an empty response becomes one byte, a long one is cut off.
    pub fn new(settings: ServerSettings) -> Self {
        let response = match settings.response.len() {
            0 => Arc::from([b'.']),
            len if len > MAX_RESPONSE => Arc::from(&settings.response[..MAX_RESPONSE]),
            _ => settings.response,
        };
        Self { settings: ServerSettings { response, ..settings }, counts: ServerCounts::default() }
    }

    /// Sets the counts to zero.
    pub fn reset_counts(&mut self) {
        self.counts = ServerCounts::default();
    }

    /// Returns the counts.
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    /// Takes in a segment and sends the answers.
    pub fn receive(&mut self, segment: &Segment<'_>, out: &mut impl Transmit) {
        let first = self.first_sequence(segment);
        let flags = segment.flags;
        if flags.contains(TcpFlags::RST) {
            self.counts.resets += 1;
        } else if flags.contains(TcpFlags::SYN) {
            self.counts.syns += u64::from(!flags.contains(TcpFlags::ACK));
            if !flags.contains(TcpFlags::ACK) {
                self.answer(segment, first, TcpFlags::SYN_ACK, &[], out);
            }
        } else if flags.contains(TcpFlags::ACK) {
            self.answer_data(segment, first.wrapping_add(1), out);
        }
    }

    /// Answers a segment of an open connection, whose response begins at `start`.
    fn answer_data(&mut self, segment: &Segment<'_>, start: u32, out: &mut impl Transmit) {
        let (finishes, has_data) = (segment.flags.contains(TcpFlags::FIN), !segment.payload.is_empty());
        let response = self.settings.response.clone();
        if has_data && segment.flags.contains(TcpFlags::PSH) {
            self.counts.requests += 1;
            // the part of the response that the client lacks
            let offset = segment.ack.wrapping_sub(start) as usize % response.len();
            let mut seq = segment.ack;
            for part in response[offset..].chunks(MSS.into()) {
                let is_last = seq.wrapping_sub(segment.ack) as usize + part.len() == response.len() - offset;
                let flags = if is_last { TcpFlags::ACK.union(TcpFlags::PSH) } else { TcpFlags::ACK };
                self.answer(segment, seq, flags, part, out);
                seq = seq.wrapping_add(part.len() as u32);
            }
        } else if finishes {
            self.counts.fins += 1;
            self.answer(segment, segment.ack, TcpFlags::ACK.union(TcpFlags::FIN), &[], out);
        } else if has_data {
            self.answer(segment, segment.ack, TcpFlags::ACK, &[], out);
        }
    }

    fn answer(&mut self, segment: &Segment<'_>, seq: u32, flags: TcpFlags, payload: &[u8], out: &mut impl Transmit) {
        let answer = Segment {
            macs: (segment.macs.1, segment.macs.0),
            src: segment.dst,
            dst: segment.src,
            seq,
            ack: segment.end(),
            flags,
            payload,
        };
        self.counts.no_buffer += u64::from(!answer.send(out));
    }

    /// Returns the server's initial sequence number of a connection.
    fn first_sequence(&self, segment: &Segment<'_>) -> u32 {
        let half = |address: SocketAddr| {
            let bits = match address.ip() {
                IpAddr::V4(ip) => u64::from(ip.to_bits()),
                IpAddr::V6(ip) => {
                    let bits = ip.to_bits();
                    scramble(bits as u64) ^ (bits >> 64) as u64
                }
            };
            bits << 16 ^ u64::from(address.port())
        };
        scramble(half(segment.src) ^ scramble(half(segment.dst) ^ self.settings.seed)) as u32
    }
}
