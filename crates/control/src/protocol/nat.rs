//! Sessions of address translators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatSession {
    /// `tcp`, `udp`, `icmp`, or the number of the protocol.
    pub protocol: String,
    /// Address and port of the inside host; for ICMP the identifier takes the place of the port.
    pub inside: String,
    /// External address and port that take their place.
    pub outside: String,
    /// Address and port of the other host.
    pub peer: String,
    /// `opening`, `established` or `closing` for TCP, otherwise `active`.
    pub state: String,
    /// Seconds until it expires if no more packets arrive.
    pub expires_s: u64,
}

/// A part of the sessions of a translator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatSessions {
    /// Name of the NF.
    pub nf: String,
    /// At most 1,000 sessions. Sessions that are created or end between two requests may be missing.
    pub sessions: Vec<NatSession>,
    /// Position of the next session, if there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The result of closing sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatClosed {
    /// Name of the NF.
    pub nf: String,
    /// Number of sessions that were closed.
    pub closed: usize,
    /// Position of the next session, if there may be more to close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
