//! Messages of the kernel, in the order in which it sends them.

use super::*;
use crate::run::daemon_routes::testing::{DELETE_ROUTE, NEW_ROUTE, attribute, message_with_flags};
use fpm::Message;

const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x500;
const APPEND: u16 = 0xc00;

const V4: bool = true;
const V6: bool = false;

fn gateway(is_ipv4: bool, host: u8) -> Vec<u8> {
    match is_ipv4 {
        true => attribute(5, &[10, 0, 0, host]),
        false => attribute(5, &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]),
    }
}

/// `struct rtnexthop` with flags, and a weight of 1.
fn hop(is_ipv4: bool, flags: u8, host: u8) -> Vec<u8> {
    let gateway = gateway(is_ipv4, host);
    [&(8 + gateway.len() as u16).to_ne_bytes()[..], &[flags, 0], &3u32.to_ne_bytes(), &gateway].concat()
}

/// A route of 10.5.0.0/16 or fd05::/16 with a metric; `RTA_MULTIPATH` of several hosts, `RTA_GATEWAY` of one, a blackhole of
/// none.
fn route(kind: u16, flags: u16, is_ipv4: bool, metric: u32, hosts: &[u8]) -> Vec<u8> {
    let (family, destination) =
        if is_ipv4 { (2, vec![10, 5, 0, 0]) } else { (10, [&[0xfd, 5][..], &[0; 14]].concat()) };
    let rtmsg = vec![family, 16, 0, 0, 254, 3, 0, if hosts.is_empty() { 6 } else { 1 }, 0, 0, 0, 0];
    let mut parts = vec![rtmsg, attribute(1, &destination), attribute(6, &metric.to_ne_bytes())];
    match hosts {
        [] => {}
        [host] => parts.extend([gateway(is_ipv4, *host), attribute(4, &3u32.to_ne_bytes())]),
        _ => parts.push(attribute(9, &hosts.iter().flat_map(|host| hop(is_ipv4, 0, *host)).collect::<Vec<_>>())),
    }
    message_with_flags(kind, flags, &parts)
}

fn apply(table: &mut KernelTable, message: &[u8]) -> Effect {
    let Some(Ok(Message::Route(route))) = fpm::messages(message).next() else { panic!("{message:?}") };
    table.apply(&route)
}

/// Returns the last bytes of the next hops that packets to the prefix use; none for a blackhole.
fn used(table: &KernelTable, is_ipv4: bool) -> Option<Vec<u8>> {
    let prefix = if is_ipv4 { "10.5.0.0/16" } else { "fd05::/16" };
    let host = |hop: &Hop| match hop.gateway.unwrap() {
        std::net::IpAddr::V4(v4) => v4.octets()[3],
        std::net::IpAddr::V6(v6) => v6.octets()[15],
    };
    match table.used(prefix.parse().unwrap())? {
        Target::Hops(hops) => Some(hops.iter().map(host).collect()),
        _ => Some(vec![]),
    }
}

/// As Linux 6.18 sends them for `ip route add`, `append`, `prepend`, `replace` and `del`.
#[test]
fn ipv4_routes_of_a_metric_are_in_order() {
    let mut table = KernelTable::new(10);
    for (kind, flags, host, expected, effect) in [
        (NEW_ROUTE, CREATE, 2, 2, Effect::Used),
        (NEW_ROUTE, APPEND, 3, 2, Effect::Nothing),
        (NEW_ROUTE, CREATE, 4, 4, Effect::Used),
        (NEW_ROUTE, REPLACE, 5, 5, Effect::Used),
        (DELETE_ROUTE, 0, 3, 5, Effect::Nothing),
        // again, as it was lost or read before
        (DELETE_ROUTE, 0, 3, 5, Effect::Unclear),
        (NEW_ROUTE, REPLACE, 5, 5, Effect::Nothing),
        (DELETE_ROUTE, 0, 5, 2, Effect::Used),
    ] {
        assert_eq!(apply(&mut table, &route(kind, flags, V4, 0, &[host])), effect, "{kind} {flags:x} {host}");
        assert_eq!(used(&table, V4), Some(vec![expected]), "{kind} {flags:x} {host}");
    }
    // the only one of its metric, whose other next hop was dead
    assert_eq!(apply(&mut table, &route(DELETE_ROUTE, 0, V4, 0, &[2, 9])), Effect::Used);
    assert_eq!((used(&table, V4), table.len), (None, 0));
    assert_eq!(apply(&mut table, &route(DELETE_ROUTE, 0, V4, 0, &[2, 9])), Effect::Nothing);
}

#[test]
fn the_lowest_metric_is_used() {
    for family in [V4, V6] {
        let mut table = KernelTable::new(10);
        assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, family, 100, &[2])), Effect::Used);
        assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, family, 300, &[3])), Effect::Nothing);
        assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, family, 20, &[])), Effect::Used);
        assert_eq!(used(&table, family), Some(vec![]));
        assert_eq!(apply(&mut table, &route(DELETE_ROUTE, 0, family, 20, &[])), Effect::Used);
        assert_eq!(apply(&mut table, &route(DELETE_ROUTE, 0, family, 100, &[2])), Effect::Used);
        assert_eq!(used(&table, family), Some(vec![3]));
        // another family's
        assert_eq!(used(&table, !family), None);
    }
}

/// An addition has all next hops, a removal those that are removed.
#[test]
fn ipv6_next_hops_are_added_and_removed_one_by_one() {
    let mut table = KernelTable::new(10);
    let mut expect = |kind, flags, hosts: &[u8], expected: Option<&[u8]>| {
        apply(&mut table, &route(kind, flags, V6, 1024, hosts));
        assert_eq!(used(&table, V6).as_deref(), expected, "{kind} {hosts:?}");
    };
    expect(NEW_ROUTE, CREATE, &[2], Some(&[2]));
    expect(NEW_ROUTE, APPEND, &[3, 2], Some(&[3, 2]));
    expect(NEW_ROUTE, APPEND, &[4, 2, 3], Some(&[4, 2, 3]));
    expect(DELETE_ROUTE, 0, &[3], Some(&[4, 2]));
    // again, as it was read before
    expect(DELETE_ROUTE, 0, &[3], Some(&[4, 2]));
    expect(NEW_ROUTE, REPLACE, &[7, 8, 9], Some(&[7, 8, 9]));
    expect(DELETE_ROUTE, 0, &[7], Some(&[8, 9]));
    expect(DELETE_ROUTE, 0, &[8, 9], None);
    expect(NEW_ROUTE, CREATE, &[2], Some(&[2]));
    // another type with the same metric is behind it, and replaced by its like
    expect(NEW_ROUTE, APPEND, &[], Some(&[2]));
    expect(NEW_ROUTE, REPLACE, &[], Some(&[2]));
    expect(DELETE_ROUTE, 0, &[2], Some(&[]));
    expect(NEW_ROUTE, REPLACE, &[2, 3], Some(&[2, 3]));
    expect(DELETE_ROUTE, 0, &[3, 2], None);
    assert_eq!(table.len, 0);
}

#[test]
fn the_number_of_routes_is_limited() {
    let mut table = KernelTable::new(2);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, V4, 1, &[2])), Effect::Used);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, V4, 2, &[2])), Effect::Nothing);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, V4, 3, &[2])), Effect::Full);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, V6, 3, &[2])), Effect::Full);
    assert_eq!(table.routes.len(), 1);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, REPLACE, V4, 1, &[3])), Effect::Used);
    assert_eq!(apply(&mut table, &route(DELETE_ROUTE, 0, V4, 1, &[3])), Effect::Used);
    assert_eq!(apply(&mut table, &route(NEW_ROUTE, CREATE, V6, 3, &[2])), Effect::Used);
}
