//! Settings of `nat44`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default lowest port that is allocated: ports below are the well-known ones.
const FIRST_PORT: u16 = 1024;

/// Settings of [`Nat44`](super::Nat44). [`Config`](super::config::Config) is the checked form.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// External addresses, each "203.0.113.1" or "203.0.113.16/28". All sessions of a subscriber use the same one. Each
    /// core has its own addresses, so there must be at least as many addresses as cores.
    pub(crate) external: Vec<String>,
    /// Networks of the subscribers; empty: all. Packets from inside with another source pass untranslated.
    pub(crate) inside: Vec<String>,
    /// Mapping behaviour (RFC 4787 §4.1): endpoint-independent (all sessions of an inside address and port share one
    /// external port) or endpoint-dependent (each session has its own, and one external port serves several
    /// destinations).
    pub(crate) mapping: Mapping,
    /// Filtering behaviour (RFC 4787 §5), that is, which outside endpoints may send to a mapped port:
    /// endpoint-independent (any), address-dependent (addresses that the inside host has sent to) or
    /// address-and-port-dependent (only the endpoint of the session).
    pub(crate) filtering: Filtering,
    /// Port allocation: dynamic (any port of the subscriber's external address), blocks (of block_size ports, up to
    /// max_blocks per subscriber) or deterministic (one block per subscriber, computed from its address; needs inside).
    pub(crate) allocation: Allocation,
    /// Ports per block, 8 to 32768.
    pub(crate) block_size: u16,
    /// Largest number of blocks per subscriber, at least 1.
    pub(crate) max_blocks: u16,
    /// Lowest port that is allocated, at least 1; the highest is 65535.
    pub(crate) first_port: u16,
    /// Largest number of sessions per core, at least 1; each takes about 128 bytes.
    pub(crate) sessions: u32,
    /// Largest number of subscribers per core, at least 1.
    pub(crate) subscribers: u32,
    /// Largest number of sessions per subscriber; 0: unlimited.
    pub(crate) subscriber_sessions: u32,
    /// Idle timeouts of sessions.
    pub(crate) timers: Timers,
    /// Static port forwards, open to all outside hosts: "tcp 203.0.113.1:8080 -> 10.0.0.5:80".
    pub(crate) forward: Vec<String>,
    /// Enables sessions between subscribers through their external addresses.
    pub(crate) hairpin: bool,
    /// Treatment of packets to an external address that match no session: drop, or pass (untranslated).
    pub(crate) unmatched: Unmatched,
    /// Largest number of fragmented datagrams, per core, that are tracked at the same time.
    pub(crate) fragments: u32,
    /// Server that receives the log of sessions, or of port blocks if allocation is blocks: "192.0.2.1:514" for syslog
    /// over UDP, "ipfix://192.0.2.1:4739" for IPFIX over UDP; empty: no log. Deterministic allocation needs no log.
    pub(crate) log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            external: vec![],
            inside: vec![],
            mapping: Mapping::EndpointIndependent,
            filtering: Filtering::AddressAndPortDependent,
            allocation: Allocation::Dynamic,
            block_size: 512,
            max_blocks: 4,
            first_port: FIRST_PORT,
            sessions: 65_536,
            subscribers: 65_536,
            subscriber_sessions: 8192,
            timers: Timers::default(),
            forward: vec![],
            hairpin: true,
            unmatched: Unmatched::Drop,
            fragments: 4096,
            log: String::new(),
        }
    }
}

/// Mapping behaviour (RFC 4787 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mapping {
    /// All sessions of an inside address and port share one external port.
    EndpointIndependent,
    /// Each session has its own external port.
    EndpointDependent,
}

/// Filtering behaviour (RFC 4787 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Filtering {
    /// Any outside host may send to a mapped port.
    EndpointIndependent,
    /// Only addresses that the inside host has sent to.
    AddressDependent,
    /// Only the address and port of the session.
    AddressAndPortDependent,
}

/// Port allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Allocation {
    /// Any port of the external address.
    Dynamic,
    /// Blocks of ports (RFC 6888 REQ-14, RFC 7422).
    Blocks,
    /// One computed block per subscriber (RFC 7422).
    Deterministic,
}

/// Treatment of packets to an external address that match no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unmatched {
    /// They are dropped.
    Drop,
    /// They pass untranslated.
    Pass,
}

/// Idle timeouts of sessions in seconds, 1 to 1000000.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Timers {
    /// UDP (RFC 4787 REQ-5).
    pub(super) udp: u32,
    /// TCP, once both ends have sent a segment other than the SYN (RFC 5382 REQ-5).
    pub(super) tcp_established: u32,
    /// TCP, while a connection opens or closes.
    pub(super) tcp_transitory: u32,
    /// ICMP queries (RFC 5508 REQ-2).
    pub(super) icmp: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { udp: 300, tcp_established: 7440, tcp_transitory: 240, icmp: 60 }
    }
}
