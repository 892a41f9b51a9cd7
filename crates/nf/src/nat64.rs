//! Translation between IPv6 hosts and the IPv4 world.
//!
//! Sessions, ports, timers, fragments and logs are those of [`nat44`](crate::nat44): a host inside has a number, which stands
//! where the address of a subscriber stands there. What is new are the headers.

mod errors;
mod hosts;
mod icmp;
mod look;
mod node;
mod plain;
mod prefix;
mod refuse;
mod settings;
mod translate;

use crate::nat44::ports::NoPort;
use crate::nat44::sessions::Refused;
use diagnostics::Diagnostic;
use graph::{BuildContext, Lane, Nf, Node, Spread};
use look::{Body, Head, Seen, body, look, quoted};
use node::Translating;
use settings::{Config, Settings};
use std::sync::Arc;

/// `nat64`: translates between IPv6 and IPv4 (RFC 6146, RFC 7915, RFC 6052).
pub struct Nat64;

/// Names of drop reasons, in the order of [`Reason`].
const DROPS: [&str; 22] = [
    "no_session",
    "filtered",
    "not_syn",
    "no_port",
    "too_many_sessions",
    "too_many_subscribers",
    "table_full",
    "no_hairpin",
    "malformed_ip",
    "tiny_fragment",
    "unknown_fragment",
    "other_protocol",
    "bad_icmp_error",
    "unknown_icmp_error",
    "spoofed",
    "not_inside",
    "no_host",
    "ttl_expired",
    "too_big",
    "no_checksum",
    "routed",
    "no_room",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Reason {
    NoSession,
    Filtered,
    NotSyn,
    NoPort,
    Sessions,
    Subscribers,
    Full,
    NoHairpin,
    Malformed,
    Tiny,
    Fragment,
    Protocol,
    BadError,
    UnknownError,
    Spoofed,
    NotInside,
    NoHost,
    Expired,
    TooBig,
    NoChecksum,
    Routed,
    NoRoom,
}

impl From<Refused> for Reason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unknown => Reason::NoSession,
            Refused::Filtered => Reason::Filtered,
            Refused::NotSyn => Reason::NotSyn,
            Refused::Full => Reason::Full,
            Refused::NoPort(NoPort::Ports) => Reason::NoPort,
            Refused::NoPort(NoPort::Sessions) => Reason::Sessions,
            Refused::NoPort(NoPort::Subscribers) => Reason::Subscribers,
        }
    }
}

/// Inputs.
const INSIDE: u8 = 0;
const OUTSIDE: u8 = 1;

impl Nf for Nat64 {
    type Settings = Settings;
    const KIND: &'static str = "nat64";
    const ABOUT: &'static str = "Translates between hosts of IPv6 (input inside) and the world of IPv4 (input outside): TCP, UDP, ICMP with its \
         errors, fragments, port blocks, forwards.";
    const SPREAD: Spread = Spread::Custom;
    const INPUTS: &'static [&'static str] = &["inside", "outside"];
    const EXAMPLE: &'static str = "prefix = \"64:ff9b::/96\"\nexternal = [\"203.0.113.1\"]\ninside = [\"2001:db8::/32\"]\n\
         forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"]";

    fn lane(settings: &Settings, copies: usize) -> Option<Lane> {
        let config = Config::new(settings).ok()?;
        Some(Arc::new(move |input, frame| match look(frame) {
            Seen::Ip(head) if input == INSIDE && head.six => config.lane_inside(of(frame, &head), copies),
            Seen::Ip(head) if input == OUTSIDE && !head.six => config.lane_outside(head.dst as u32, copies),
            _ => 0,
        }))
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = cx.common(|| Config::new(settings))?;
        Translating::new(config, cx)
    }
}

/// Whose packet from inside this is: of an error the host's that the packet it quotes was for.
fn of(frame: &[u8], head: &Head) -> u128 {
    let upper = &frame[head.upper..head.end];
    match body(head, upper, false) {
        Body::Error => icmp::quote(true, upper).and_then(|bytes| quoted(true, bytes)).map_or(head.src, |q| q.dst),
        _ => head.src,
    }
}

#[cfg(test)]
mod tests;
