//! Output of a trial.

use super::counts::Trial;
use crate::anatomy::Anatomy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use traffic::receiver::Group;
use traffic::tcp::{ConnectionCounts, Failures, ServerCounts};
use traffic::{Delays, Displacements};

/// Output of a trial (RFC 9971, Trial Output).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrialOutput {
    /// Counts.
    pub trial: Trial,
    /// Latencies of all directions; none if no packet has a timestamp.
    pub delays: Option<Delays>,
    /// Times of loss in all directions together, if requested.
    pub losses: Option<LossTimes>,
    /// Delay variation, if requested.
    pub delay_variation: Option<DelayVariationOutput>,
    /// Displacements per direction, if requested.
    pub displacements: Vec<Displacements>,
    /// True if payloads were compared.
    pub payload_verified: bool,
    /// Latency of the tagged packet in nanoseconds; none if it was lost.
    pub tagged_latency_ns: Option<f64>,
    /// Report of the disturbance, if one was requested.
    pub disturbance: Option<DisturbanceReport>,
    /// Counts of each node of the DUT, if known.
    pub nodes: Vec<report::Node>,
    /// Packets dropped by the DUT, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Counts per direction, if there are several.
    pub directions: Vec<DirectionCounts>,
    /// Packets of each destination MAC address of the traffic, if requested and there are several.
    pub vnfs: Vec<Group>,
    /// Counts of each stream of a profile, if requested.
    pub streams: Vec<StreamOutput>,
    /// TCP connections, if the traffic consists of them.
    pub connections: Option<ConnectionsOutput>,
    /// Parts of the latency of the traced probes, if requested.
    pub anatomy: Option<Anatomy>,
}

/// TCP connections of a trial.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ConnectionsOutput {
    /// Counts of the clients.
    pub client: ConnectionCounts,
    /// Counts of the servers.
    pub server: ServerCounts,
    /// True if connections were not opened because all pairs of client address and port were in use.
    pub exhausted: bool,
    /// Most connections that were open at a time.
    pub most_open: u64,
    /// Times from a SYN to its answer.
    pub setup: Delays,
    /// Times from a request to the first byte of its response.
    pub first_byte: Delays,
    /// Times from a request to the last byte of its response.
    pub transaction: Delays,
}

impl ConnectionsOutput {
    /// Adds another trial.
    pub(crate) fn add(&mut self, other: &ConnectionsOutput) {
        self.client.add(&other.client);
        self.server.add(&other.server);
        self.exhausted |= other.exhausted;
        self.most_open = self.most_open.max(other.most_open);
        self.setup.add(&other.setup);
        self.first_byte.add(&other.first_byte);
        self.transaction.add(&other.transaction);
    }

    /// Returns the entry of a result document.
    pub fn document(&self) -> report::Connections {
        let ConnectionCounts {
            opened, established, completed, failed, transactions, repeated, segments, bytes, ..
        } = self.client;
        let Failures { no_syn_ack, refused, no_response, reset, closed_early, not_closed } = failed;
        let failed = report::FailedConnections { no_syn_ack, refused, no_response, reset, closed_early, not_closed };
        report::Connections {
            opened,
            established,
            completed,
            failed,
            most_open: self.most_open,
            transactions,
            retransmitted: repeated,
            unexpected: self.client.unexpected,
            segments_sent: segments.0,
            segments_received: segments.1,
            bytes_sent: bytes.0,
            bytes_received: bytes.1,
            no_buffer: self.client.no_buffer + self.server.no_buffer,
        }
    }
}

/// Counts of a stream of a profile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamOutput {
    /// Counts per second.
    pub seconds: Vec<SecondCounts>,
    /// Latencies; none if no packet was received.
    pub delays: Option<Delays>,
}

/// Packets of a stream in one second. `intended = sent + unsent`, and `sent = received + lost`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SecondCounts {
    /// Packets of the schedule.
    pub intended: u64,
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets that were not sent because they would have been too late.
    pub unsent: u64,
    /// Packets received intact at any time, without duplicates.
    pub received: u64,
}

impl SecondCounts {
    /// Returns the packets sent and not received.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: SecondCounts) -> SecondCounts {
        SecondCounts {
            intended: self.intended + other.intended,
            sent: self.sent + other.sent,
            unsent: self.unsent + other.unsent,
            received: self.received + other.received,
        }
    }
}

impl StreamOutput {
    /// Returns the sum of all seconds.
    pub fn sum(&self) -> SecondCounts {
        self.seconds.iter().copied().fold(SecondCounts::default(), SecondCounts::plus)
    }
}

/// Packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectionCounts {
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets received intact, without duplicates.
    pub received: u64,
}

/// Times of loss, by the times at which packets were due.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LossTimes {
    /// Packets lost of those due in each part of the trial, and packets due in it.
    pub bins: Vec<(u64, u64)>,
    /// Time at which the first lost packet was due, seconds after the start.
    pub first_s: Option<f64>,
    /// Time at which the last lost packet was due.
    pub last_s: Option<f64>,
}

impl LossTimes {
    /// Returns the sum of two streams of the same trial with equally many bins.
    #[must_use]
    pub(crate) fn plus(mut self, other: LossTimes) -> LossTimes {
        for ((lost, due), (other_lost, other_due)) in self.bins.iter_mut().zip(other.bins) {
            (*lost, *due) = (*lost + other_lost, *due + other_due);
        }
        let combine = |a: Option<f64>, b: Option<f64>, f: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(f(a, b)),
            (a, b) => a.or(b),
        };
        self.first_s = combine(self.first_s, other.first_s, f64::min);
        self.last_s = combine(self.last_s, other.last_s, f64::max);
        self
    }
}

/// Variation of the delays of consecutive packets of one direction.
#[derive(Clone, PartialEq, Debug)]
pub struct DelayVariationOutput {
    /// Absolute values of `IPDV(i) = D(i) − D(i−1)` of consecutive received packets (RFC 3393, RFC 5481 §4.1).
    pub ipdv: Delays,
    /// Number of positive values.
    pub rising: u64,
    /// Interarrival jitter of the first direction at the end, nanoseconds (RFC 3550 §6.4.1). The first packet has no
    /// difference.
    pub rfc3550_ns: f64,
    /// Highest jitter in any direction, nanoseconds.
    pub rfc3550_max_ns: f64,
}

/// Report of a disturbance.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DisturbanceReport {
    /// Number of changes or resets.
    pub done: u64,
    /// Number of changes that the DUT rejected.
    pub failed: u64,
    /// Start, seconds after the start of the trial.
    pub from_s: f64,
    /// End, seconds after the start of the trial.
    pub to_s: f64,
}
