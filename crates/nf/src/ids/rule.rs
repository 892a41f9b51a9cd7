//! Rules of the Snort and Suricata language.

pub(super) mod address;
pub(super) mod app;
mod bit_numbers;
pub(super) mod bytes;
pub(super) mod content;
pub(super) mod header;
pub(super) mod number;
pub(super) mod operand;
pub(super) mod parser;
pub(super) mod state;
mod text;
pub(super) mod transform;

use address::{Addresses, Ports};
use app::AppRule;
pub(super) use bit_numbers::BitNumbers;
use header::HeaderCheck;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use state::{BitCommand, BitScope, FlowCheck, FlowOption, IntegerOption, StateOption, Threshold};

/// Action of a rule, in the default order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// Packets pass without further inspection.
    Pass,
    /// Packets are dropped in prevent mode, with an alert.
    Drop,
    /// As drop, with replies: resets for TCP, ICMP errors for other protocols.
    Reject,
    /// An alert is logged.
    Alert,
}

impl Action {
    /// All actions in the default order of evaluation.
    pub(super) const ALL: [Action; 4] = [Action::Pass, Action::Drop, Action::Reject, Action::Alert];
}

/// Ends to which a rule with reject replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RejectTo {
    #[default]
    Source,
    Destination,
    Both,
}

/// Protocol of a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Ip,
    Ipv4,
    Ipv6,
    Tcp,
    /// TCP, packets only.
    TcpPacket,
    /// TCP, reassembled streams only.
    TcpStream,
    Udp,
    /// ICMP of both IP versions.
    Icmp,
    Icmpv4,
    Icmpv6,
    Igmp,
    Sctp,
}

/// Bytes that a list of payload options is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    Payload,
    Ipv4Header,
    Ipv6Header,
    TcpHeader,
    UdpHeader,
    Icmpv4Header,
    Icmpv6Header,
}

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// Identifier, which stays the same when rules are replaced. A [set of rules](super::engine::RuleSet) assigns it.
    pub id: u32,
    pub action: Action,
    pub reject_to: RejectTo,
    pub protocol: Protocol,
    pub src: Addresses,
    pub dst: Addresses,
    pub src_ports: Ports,
    pub dst_ports: Ports,
    pub both_directions: bool,
    pub msg: String,
    pub sid: u32,
    pub gid: u32,
    pub rev: u32,
    pub classtype: String,
    pub priority: u8,
    pub checks: Vec<HeaderCheck>,
    pub flow: Vec<FlowOption>,
    pub flow_checks: Vec<FlowCheck>,
    pub states: Vec<StateOption>,
    pub integers: Vec<IntegerOption>,
    pub noalert: bool,
    pub threshold: Option<Threshold>,
    /// Options of each buffer, in the order of the rule.
    pub buffers: Vec<(Buffer, Vec<bytes::Match>)>,
    /// Conditions on the application protocol.
    pub app: AppRule,
    /// Number of variables of byte_extract and byte_math.
    pub variables: usize,
}

impl Rule {
    /// Returns true if the rule only has addresses, ports and a protocol: it is matched once per flow and direction.
    pub(super) fn is_ip_only(&self) -> bool {
        self.has_only_addresses() && !self.src.has_negation() && !self.dst.has_negation()
    }

    /// Returns true if the rule tests the state or a property of a flow.
    pub(super) fn tests_flow(&self) -> bool {
        !self.flow_checks.is_empty()
            || self.integers.iter().any(IntegerOption::reads)
            || self.states.iter().any(|state| state.scope == BitScope::Flow && state.reads())
    }

    /// Returns true if the rule has no option that depends on a packet. Bits of hosts are tested with the first packet.
    pub(super) fn has_only_addresses(&self) -> bool {
        self.buffers.is_empty()
            && self.app.is_empty()
            && self.checks.iter().all(|check| matches!(check, HeaderCheck::IpProtocol(_)))
            && self.flow.is_empty()
            && !matches!(self.protocol, Protocol::TcpPacket | Protocol::TcpStream)
            && self.flow_checks.is_empty()
            && self.integers.is_empty()
            && self.states.iter().all(|s| s.scope != BitScope::Flow || s.command == BitCommand::Set)
    }

    /// Returns true if the rule depends on bits, numbers or properties that change with each packet.
    pub(super) fn reads_flow(&self) -> bool {
        !self.flow_checks.is_empty()
            || self.states.iter().any(StateOption::reads)
            || self.integers.iter().any(IntegerOption::reads)
    }

    /// Returns true if the payload options are applied to reassembled streams.
    pub(super) fn uses_stream(&self) -> bool {
        let tcp = matches!(
            self.protocol,
            Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::Tcp | Protocol::TcpStream
        );
        tcp && self.checks.is_empty()
            && !self.buffers.is_empty()
            && self.buffers.iter().all(|(buffer, _)| *buffer == Buffer::Payload)
            && !self.flow.contains(&FlowOption::NoStream)
    }

    /// Returns true if a match may begin in bytes of a stream that have been inspected before and end in later ones.
    pub(super) fn spans_chunks(&self) -> bool {
        let mut options = self.buffers.iter().flat_map(|(_, list)| list);
        options.clone().any(bytes::Match::finds) && !options.any(bytes::Match::is_absolute)
    }

    /// Returns true if the payload options are applied to packets, although their bytes are part of a stream.
    pub(super) fn uses_packets(&self) -> bool {
        let stream_only = self.protocol == Protocol::TcpStream || self.flow.contains(&FlowOption::OnlyStream);
        let positioned = self.buffers.iter().flat_map(|(_, list)| list).any(bytes::Match::is_positioned);
        !stream_only && (!self.uses_stream() || positioned)
    }
}
