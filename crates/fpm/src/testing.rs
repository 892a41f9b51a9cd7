//! A writer of messages, for the tests.

use std::net::IpAddr;

use crate::attribute::aligned;
use crate::{Hop, NextHop, NextHopValue, Route, Target};

pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_APPEND: u16 = 0x800;

/// Returns a frame with a payload.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + payload.len()).unwrap().to_be_bytes();
    [&[1, 1, len[0], len[1]], payload].concat()
}

/// Returns an attribute with padding.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// Returns a message: `struct nlmsghdr` and these parts.
pub(crate) fn message(kind: u16, flags: u16, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let len = u32::try_from(16 + body.len()).unwrap();
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}

/// Returns `struct rtmsg` without flags, TOS and source.
pub(crate) fn rtmsg(v4: bool, len: u8, table: u8, protocol: u8, kind: u8) -> [u8; 12] {
    [if v4 { 2 } else { 10 }, len, 0, 0, table, protocol, 0, kind, 0, 0, 0, 0]
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// Returns `RTA_GATEWAY`, or `RTA_VIA` if the gateway is of another family than the route.
fn gateway(address: IpAddr, v4: bool) -> Vec<u8> {
    match address {
        _ if address.is_ipv4() == v4 => attribute(5, &octets(address)),
        IpAddr::V4(v4) => attribute(18, &[&2u16.to_ne_bytes()[..], &v4.octets()].concat()),
        IpAddr::V6(v6) => attribute(18, &[&10u16.to_ne_bytes()[..], &v6.octets()].concat()),
    }
}

/// Returns the message of a route as zebra writes it.
pub(crate) fn route(route: &Route<'_>) -> Vec<u8> {
    let v4 = route.prefix.addr().is_ipv4();
    let mut attributes = attribute(1, &octets(route.prefix.addr()));
    attributes.extend(attribute(6, &route.metric.to_ne_bytes()));
    let table = u8::try_from(route.table).unwrap_or(0);
    if table == 0 {
        attributes.extend(attribute(15, &route.table.to_ne_bytes()));
    }
    let kind = match &route.target {
        _ if route.removes => 0,
        Target::Blackhole => 6,
        Target::Unreachable => 7,
        Target::Prohibit => 8,
        Target::Object(id) => {
            attributes.extend(attribute(30, &id.to_ne_bytes()));
            1
        }
        Target::Hops(hops) => {
            attributes.extend(match hops[..] {
                [Hop { gateway: via, interface, weight: 1 }] => {
                    let mut hop = via.map_or(vec![], |via| gateway(via, v4));
                    hop.extend(attribute(4, &interface.to_ne_bytes()));
                    hop
                }
                _ => attribute(9, &hops.iter().flat_map(|hop| rtnexthop(hop, v4)).collect::<Vec<_>>()),
            });
            1
        }
        Target::Unsupported(reason) => panic!("no message for {reason}"),
    };
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let flags = NLM_F_REQUEST | flag(route.replaces, NLM_F_REPLACE) | flag(route.appends, NLM_F_APPEND);
    let rtmsg = rtmsg(v4, route.prefix.prefix_len(), table, route.protocol, kind);
    message(if route.removes { RTM_DELROUTE } else { RTM_NEWROUTE }, flags, &[&rtmsg, &attributes])
}

/// Returns `struct rtnexthop` with its attributes.
fn rtnexthop(hop: &Hop, v4: bool) -> Vec<u8> {
    let attributes = hop.gateway.map_or(vec![], |via| gateway(via, v4));
    let [low, high] = u16::try_from(8 + attributes.len()).unwrap().to_ne_bytes();
    let weight = u8::try_from(hop.weight - 1).unwrap();
    [&[low, high, 0, weight], &hop.interface.to_ne_bytes()[..], &attributes].concat()
}

/// Returns the message of a next-hop object as zebra writes it.
pub(crate) fn next_hop(next_hop: &NextHop) -> Vec<u8> {
    let (NextHop::Add { id, .. } | NextHop::Remove { id }) = next_hop;
    let mut attributes = attribute(1, &id.to_ne_bytes());
    let mut family = 0;
    match next_hop {
        NextHop::Remove { .. } => (),
        NextHop::Add { value: NextHopValue::Hop(hop), .. } => {
            family = if hop.gateway.is_some_and(|via| via.is_ipv6()) { 10 } else { 2 };
            attributes.extend(hop.gateway.map_or(vec![], |via| attribute(6, &octets(via))));
            attributes.extend(attribute(5, &hop.interface.to_ne_bytes()));
        }
        NextHop::Add { value: NextHopValue::Blackhole, .. } => attributes.extend(attribute(4, &[])),
        NextHop::Add { value: NextHopValue::Group(members), .. } => {
            let member = |(id, weight): &(u32, u16)| {
                let [low, high] = (weight - 1).to_le_bytes();
                [&id.to_ne_bytes()[..], &[low, high, 0, 0]].concat()
            };
            attributes.extend(attribute(2, &members.iter().flat_map(member).collect::<Vec<_>>()));
        }
        NextHop::Add { value: NextHopValue::Unsupported(reason), .. } => panic!("no message for {reason}"),
    }
    let kind = if matches!(next_hop, NextHop::Remove { .. }) { RTM_DELNEXTHOP } else { RTM_NEWNEXTHOP };
    message(kind, NLM_F_REQUEST, &[&[family, 0, 0, 0, 0, 0, 0, 0], &attributes])
}
