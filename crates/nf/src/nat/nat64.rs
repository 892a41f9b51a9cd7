//! NAT64: translation between IPv6 hosts and the IPv4 network.
//!
//! Sessions, port allocation, timeouts, fragments and logs are those of `nat44`: each inside host has a number that
//! takes the place of a subscriber's IPv4 address.

mod error_reply;
mod fast_path;
mod headers;
mod hosts;
mod icmp;
mod icmp_errors;
mod node;
mod parse;
mod prefix;
mod settings;

use super::flow::{INSIDE, OUTSIDE};
use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Spread, SteerFn, Steering, TakeOver};
use node::Nat64Node;
use parse::{Frame, L4, PacketInfo, parse, parse_l4, parse_quoted};
use settings::{Config, Settings};
use std::sync::Arc;

/// `nat64`: translates between IPv6 and IPv4 (RFC 6146, RFC 7915, RFC 6052).
pub struct Nat64;

impl Nf for Nat64 {
    type Settings = Settings;
    const KIND: &'static str = "nat64";
    const ABOUT: &'static str = "Translates between IPv6 hosts (input inside) and the IPv4 network (input outside): TCP, UDP, ICMP and \
         its errors, fragments, port blocks, static forwards, hairpinning.";
    const SPREAD: Spread = Spread::Custom;
    const STEERING: Steering =
        Steering { key: "the host from inside and the external address from outside", keeps: Spread::Hosts };
    const TAKES_OVER: Option<TakeOver> = Some(TakeOver {
        state: "sessions",
        unless: &[
            "prefix",
            "external",
            "mapping",
            "filtering",
            "allocation",
            "block_size",
            "max_blocks",
            "first_port",
            "sessions",
            "subscribers",
            // the numbers of hosts depend on it
            "forward",
            "log",
        ],
        format: Some(1),
    });
    const INPUTS: &'static [&'static str] = &["inside", "outside"];
    const EXAMPLE: &'static str = "prefix = \"64:ff9b::/96\"\nexternal = [\"203.0.113.1\"]\ninside = [\"2001:db8::/32\"]\n\
         forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"]";

    fn steering(settings: &Settings, copies: usize) -> Option<SteerFn> {
        let config = Config::new(settings).ok()?;
        Some(Arc::new(move |input, frame| match parse(frame) {
            Frame::Ip(info) if input == INSIDE && info.is_ipv6 => {
                config.copy_for_inside(steering_host(frame, &info), copies)
            }
            Frame::Ip(info) if input == OUTSIDE && !info.is_ipv6 => config.copy_for_outside(info.dst as u32, copies),
            // passes unmodified, on the core of its other direction
            Frame::Ip(info) if input == OUTSIDE => config.copy_for_inside(info.dst, copies),
            _ => 0,
        }))
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = cx.shared(|| Config::new(settings))?;
        Nat64Node::new(config, cx)
    }
}

/// Returns the inside host that selects the copy for a packet from inside; for an ICMP error the destination of the
/// quoted packet.
fn steering_host(frame: &[u8], info: &PacketInfo) -> u128 {
    let l4 = &frame[info.l4..info.end];
    match parse_l4(info, l4, false) {
        L4::IcmpError => {
            icmp::quoted_packet(true, l4).and_then(|bytes| parse_quoted(true, bytes)).map_or(info.src, |q| q.dst)
        }
        _ => info.src,
    }
}

#[cfg(test)]
mod tests;
