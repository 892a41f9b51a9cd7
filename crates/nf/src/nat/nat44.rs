//! NAT44: translation between inside and outside IPv4 addresses and ports.

mod node;
mod parse;
mod rewrite;

use super::config::Config;
use super::flow::{Direction, Flow, INSIDE};
use super::settings::Settings;
use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Spread, SteerFn, Steering, TakeOver};
use node::Nat44Node;
use parse::{NatPacket, parse};
use std::sync::Arc;

/// `nat44`: translates addresses and ports between an inside and an outside network (RFC 3022, RFC 4787, RFC 5382, RFC
/// 5508).
pub struct Nat44;

impl Nf for Nat44 {
    type Settings = Settings;
    const KIND: &'static str = "nat44";
    const ABOUT: &'static str = "Translates IPv4 addresses and ports between subscribers (input inside) and the outside network \
         (input outside): TCP, UDP, ICMP and its errors, fragments, port blocks, static forwards, hairpinning.";
    const SPREAD: Spread = Spread::Custom;
    const STEERING: Steering =
        Steering { key: "the subscriber from inside and the external address from outside", keeps: Spread::Hosts };
    const TAKES_OVER: Option<TakeOver> = Some(TakeOver {
        state: "sessions",
        unless: &[
            "external",
            "mapping",
            "filtering",
            "allocation",
            "block_size",
            "max_blocks",
            "first_port",
            "sessions",
            "subscribers",
            "log",
        ],
        format: Some(1),
    });
    const INPUTS: &'static [&'static str] = &["inside", "outside"];
    const EXAMPLE: &'static str =
        "external = [\"203.0.113.1\"]\ninside = [\"10.0.0.0/8\"]\nforward = [\"tcp 203.0.113.1:8080 -> 10.0.0.5:80\"]";

    fn steering(settings: &Settings, copies: usize) -> Option<SteerFn> {
        let config = Config::new(settings).ok()?;
        Some(Arc::new(move |input, frame| {
            let direction = if input == INSIDE { Direction::Outbound } else { Direction::Inbound };
            steering_flow(frame, direction)
                .map_or(0, |flow| config.copy_of(direction == Direction::Outbound, &flow, copies))
        }))
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = cx.shared(|| Config::new(settings))?;
        Nat44Node::new(config, cx)
    }
}

/// Returns the flow that selects the copy for a packet; for an ICMP error the reverse of the quoted flow.
fn steering_flow(frame: &[u8], direction: Direction) -> Option<Flow> {
    match parse(frame).0 {
        NatPacket::Session(packet) => Some(packet.flow),
        NatPacket::LaterFragment(_, d) => {
            Some(Flow { src: d.src, dst: d.dst, src_port: 0, dst_port: 0, protocol: d.protocol })
        }
        NatPacket::IcmpError(_, outer, quoted) => match direction {
            Direction::Outbound => Some(quoted.reversed()),
            Direction::Inbound => Some(Flow { dst: outer.dst, ..quoted.reversed() }),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
