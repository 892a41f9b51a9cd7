//! Errors of rules.

use super::MAX_RULES;
use thiserror::Error;

/// Error of building a classifier.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// More rules than a classifier takes.
    #[error("{given} rules are more than the {MAX_RULES} a classifier takes: merge or split them")]
    TooMany {
        /// Number given.
        given: usize,
    },
    /// A rule that means nothing, or that no packet can match.
    #[error("rule {rule}: {fault}")]
    Rule {
        /// Its index in the list.
        rule: usize,
        /// Problem of the rule.
        fault: Fault,
    },
}

/// Problem of a rule.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A prefix longer than the address.
    #[error("a prefix length of {len} is more than {most}")]
    Length {
        /// The length.
        len: u8,
        /// Bits in an address.
        most: u8,
    },
    /// A range that ends before it begins.
    #[error("the range {from} to {to} is empty: write the smaller end first")]
    EmptyRange {
        /// First value.
        from: u32,
        /// Last value.
        to: u32,
    },
    /// Ports asked of a protocol without.
    #[error(
        "protocol {protocol} has no ports: ask for TCP (6), UDP (17), DCCP (33), SCTP (132), UDP-Lite (136) or any"
    )]
    NoPorts {
        /// The protocol.
        protocol: u8,
    },
    /// ICMP type and code asked of another protocol.
    #[error("protocol {protocol} has no ICMP type: ask for {icmp} or any")]
    NotIcmp {
        /// The protocol.
        protocol: u8,
        /// The ICMP of the rule's IP version.
        icmp: u8,
    },
    /// A protocol number for an ICMP rule of both IP versions.
    #[error("ICMP has another protocol number in each IP version: leave the protocol open or name the addresses")]
    IcmpOfBoth,
    /// TCP flags asked of another protocol.
    #[error("protocol {protocol} has no TCP flags: ask for 6 or any")]
    NotTcp {
        /// The protocol.
        protocol: u8,
    },
    /// A flag that must be set and does not matter.
    #[error("TCP flags {value:#04x} are not within their mask {mask:#04x}")]
    Flags {
        /// Flags that matter.
        mask: u8,
        /// Required bits.
        value: u8,
    },
    /// Conditions on a header that later fragments do not carry.
    #[error("a later fragment has no ports, ICMP type or TCP flags: ask for `any` upper header or another fragment")]
    LaterFragment,
}
