//! Requests and responses.

mod log;
mod maglev;
mod nat;
mod routes;
mod rules;
mod tenants;
mod upgrade;

pub use log::LogLevels;
pub use maglev::{MaglevBackend, MaglevBackends, MaglevDrained};
pub use nat::{NatClosed, NatSession, NatSessions};
pub use routes::{NextHop, Route, RouteChange, RoutesChanged, RoutesPage};
pub use rules::{RuleChange, RuleEntry, RulesChanged, RulesPage};
pub use tenants::{Tenant, TenantDaemon, TenantInterface, Tenants};
pub use upgrade::Upgraded;

use bpf::Program;
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Version of the protocol. It changes when a request or a response loses a field, or a field changes its meaning.
pub const VERSION: u32 = 1;

/// Longest request in bytes, its line feed included.
pub const MAX_LINE_LEN: usize = 1 << 20;

/// Longest time in which a server answers a reload: it builds NFs.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest time for which a stopped run forwards queued and held packets.
pub const DRAIN_MAX: Duration = Duration::from_secs(3600);

/// Longest time in which a run ends after that.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The first line that a server sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Version of the protocol.
    pub protocol: u32,
    /// Version of the program.
    pub version: String,
    /// Process of the server.
    pub pid: u32,
    /// Chain file that it runs.
    pub file: String,
}

impl Hello {
    /// Returns the greeting of this process, which runs `file`.
    pub fn new(file: String) -> Self {
        Hello { protocol: VERSION, version: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id(), file }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Returns the counts so far, as `run --json` prints them at the end.
    Stats {},
    /// Replaces the chain file; returns the differences.
    Reload {
        /// Absolute path of the new one; by default the present one is read again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
    },
    /// Copies packets. The result has the names of the interfaces; a stream in the format pcapng follows, with the
    /// interfaces in this order, until the client closes its side of the connection for writing.
    Capture(Capture),
    /// Follows single packets. A stream of JSON follows the result, one line per packet, and ends after the last one, or
    /// when the client closes its side of the connection for writing.
    Trace {
        /// Packets to follow: classic BPF for Ethernet frames; by default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<Program>,
        /// Number of packets.
        packets: u32,
    },
    /// Replaces the process by one of the program that is installed now, which continues the chains with the state of
    /// their NFs; returns [`Upgraded`]. If that fails, the process runs on.
    Upgrade {},
    /// Stops the run as Ctrl-C does.
    Stop {
        /// Seconds, at most 3,600. The run then receives no more packets from ports, forwards those that are queued or
        /// held, at most for this time, and stops. The response is the final summary. Without it, the response is `null`
        /// and precedes the stop.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drain: Option<u64>,
    },
    /// Returns rules of a firewall, a [page](RulesPage) of them.
    Rules {
        /// Name of the NF; it may be omitted if there is only one firewall.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Number of the first rule to return, from 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<usize>,
    },
    /// Changes rules of a firewall, all of them at once or, if one is invalid, none; returns [`RulesChanged`].
    ChangeRules {
        /// Name of the NF; it may be omitted if there is only one firewall.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Changes, each of the list that the previous one makes.
        changes: Vec<RuleChange>,
    },
    /// Returns sessions of an address translator, a [part](NatSessions) of them.
    NatSessions {
        /// Name of the NF; it may be omitted if there is only one translator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Conditions that sessions meet all: `tcp`, `udp`, `icmp`, an address, a network, `ADDRESS:PORT` or `:PORT`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        filter: Vec<String>,
        /// `next` of the previous response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// Closes sessions of an address translator; returns their [number](NatClosed).
    NatClose {
        /// Name of the NF; it may be omitted if there is only one translator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Conditions, as for `nat-sessions`; without any, all sessions are closed.
        filter: Vec<String>,
        /// `next` of the previous response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// Returns the [backends](MaglevBackends) of a load balancer.
    MaglevBackends {
        /// Name of the NF; it may be omitted if there is only one load balancer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
    },
    /// Drains a backend of a load balancer: it receives no new connections, present ones continue. Returns
    /// [`MaglevDrained`].
    MaglevDrain {
        /// Name of the NF; it may be omitted if there is only one load balancer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Name of the backend, or `SERVICE/BACKEND`.
        backend: String,
        /// False to let it receive new connections again.
        drain: bool,
    },
    /// Returns routes of a router, a [page](RoutesPage) of them.
    Routes {
        /// Name of the NF; it may be omitted if there is only one router.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Name of a tenant of the router; without it, the routes are those of the router itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
        /// `next` of the previous response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// Changes routes of a router: all of them or, if one is invalid, none; returns [`RoutesChanged`].
    ChangeRoutes {
        /// Name of the NF; it may be omitted if there is only one router.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
        /// Name of a tenant of the router; without it, the routes are those of the router itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<String>,
        /// Changes, in order.
        changes: Vec<RouteChange>,
    },
    /// Returns the [tenants](Tenants) of routers.
    Tenants {
        /// Name of the NF; by default all routers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nf: Option<String>,
    },
    /// Returns or changes the levels of log messages; returns [`LogLevels`].
    LogLevel {
        /// Levels from now on, such as `warn` or `info,nf=debug`, or with `target` its level; by default they stay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set: Option<String>,
        /// Target of messages, such as `nf`; by default all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
    },
}

impl Request {
    /// Returns the time that a server may need to answer beyond that for other requests.
    pub fn extra_time(&self) -> Duration {
        match self {
            Request::Reload { .. } | Request::Upgrade {} => RELOAD_TIMEOUT + END_TIMEOUT,
            Request::Stop { drain: Some(seconds) } => Duration::from_secs(*seconds).min(DRAIN_MAX) + END_TIMEOUT,
            _ => Duration::ZERO,
        }
    }
}

/// The packets that a capture copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Capture {
    /// Names of ports and NFs, `NF:INPUT` and `NF.OUTPUT`; all ports if there is none.
    pub places: Vec<String>,
    /// Direction in which packets pass ports and NFs; both by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Only packets that are dropped, of all NFs and ports if there are no places.
    pub drops: bool,
    /// Only packets dropped for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Packets to copy: classic BPF for Ethernet frames; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Program>,
    /// Largest number of bytes that are copied of a packet; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
}

/// Direction in which packets pass a port or an NF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Received by a port, entering an NF.
    In,
    /// Sent to a port, leaving an NF.
    Out,
}

/// The result of [`Request::Capture`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureStarted {
    /// Names of the interfaces, such as `lan rx`, `nat.out` and `fw drops`.
    pub interfaces: Vec<String>,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The problem.
    pub problem: String,
    /// The invalid value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Remedy, addressed to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Refusal {
    /// Creates a refusal without value and remedy.
    pub fn new(problem: impl Into<String>) -> Self {
        Diagnostic::new(problem).into()
    }
}

impl From<Diagnostic> for Refusal {
    fn from(Diagnostic { problem, value, remedy, .. }: Diagnostic) -> Self {
        Refusal { problem, value, remedy }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{value:?}: {}", self.problem)?,
            None => f.write_str(&self.problem)?,
        }
        self.remedy.iter().try_for_each(|remedy| write!(f, "\n  help: {remedy}"))
    }
}

/// A response.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    /// The result of the request.
    Ok(serde_json::Value),
    /// The request was refused.
    Error(Refusal),
}

/// Returns the JSON Schema of the greeting, requests and responses.
pub fn schema() -> serde_json::Value {
    /// Lines of the control socket.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "describes the protocol")]
    struct Protocol {
        hello: Hello,
        request: Request,
        response: Response,
        results: Results,
    }
    /// Results of requests in responses, by the name of the request.
    #[derive(JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code, reason = "describes the protocol")]
    struct Results {
        capture: CaptureStarted,
        rules: RulesPage,
        change_rules: RulesChanged,
        nat_sessions: NatSessions,
        nat_close: NatClosed,
        maglev_backends: MaglevBackends,
        maglev_drain: MaglevDrained,
        routes: RoutesPage,
        change_routes: RoutesChanged,
        tenants: Tenants,
        log_level: LogLevels,
        upgrade: Upgraded,
    }
    serde_json::to_value(schemars::schema_for!(Protocol)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_tagged_objects() {
        assert_eq!(serde_json::to_string(&Request::Stats {}).unwrap(), r#"{"request":"stats"}"#);
        assert_eq!(serde_json::to_string(&Request::Reload { file: None }).unwrap(), r#"{"request":"reload"}"#);
        let capture = Request::Capture(Capture { places: vec!["lan".into()], ..Capture::default() });
        let text = serde_json::to_string(&capture).unwrap();
        assert_eq!(text, r#"{"request":"capture","places":["lan"],"drops":false}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), capture);
        let endless = r#"{"request":"trace","packets":1,"filter":[{"code":5,"jt":0,"jf":0,"k":0}]}"#;
        let removal = Request::ChangeRules { nf: None, changes: vec![RuleChange::Remove(3)] };
        let text = r#"{"request":"change-rules","changes":[{"remove":3}]}"#;
        assert_eq!(serde_json::to_string(&removal).unwrap(), text);
        for invalid in [
            endless,
            r#"{"request":"capture","snaplen":-1}"#,
            r#"{"request":"stats","of":1}"#,
            r#"{"request":"start"}"#,
            r#"{"request":"rules","from":-1}"#,
            r#"{"request":"change-rules"}"#,
            r#"{"request":"change-rules","changes":[{"add":{"rule":"drop","at":1}}]}"#,
            r#"{"request":"change-rules","changes":[{"add":"drop","remove":1}]}"#,
            r#"{"request":"change-routes","changes":[{"replace":"10.0.0.0/8"}]}"#,
            r#"{"request":"nat-close","nf":"nat"}"#,
            r#"{"request":"nat-sessions","filter":"tcp"}"#,
            r#"{"request":"maglev-drain","backend":"a"}"#,
            r#"{"request":"log-level","set":7}"#,
            "{}",
            "[]",
            "7",
        ] {
            assert!(serde_json::from_str::<Request>(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_schema_is_the_published_one() {
        let published = include_str!("../schema/control-1.json");
        assert_eq!(format!("{:#}\n", schema()), published, "cargo run -p bondstone-control --example control_schema");
    }
}
