//! Routes of a real zebra, and its reaction to answers.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

mod namespace;
mod zebra;

use std::collections::BTreeMap;
use std::net::IpAddr;

use fpm::{Hop, Target};
use zebra::{Connection, Frr, Routes, possible, until};

const KERNEL: u8 = 2;
const STATIC: u8 = 196;
const MAIN: u32 = 254;

/// Commands that add the routes of [`added`].
const COMMANDS: [&str; 12] = [
    "ip route 10.1.0.0/16 192.0.2.1",
    "ip route 10.2.0.0/16 192.0.2.1",
    "ip route 10.2.0.0/16 192.0.2.2",
    "ip route 10.3.0.0/16 blackhole",
    "ip route 10.4.0.0/16 reject",
    "ip route 10.5.0.0/16 near",
    "ip route 10.6.0.0/16 192.0.2.1 table 1000",
    "ipv6 route 2001:db8:1::/48 2001:db8::1",
    "ipv6 route 2001:db8:2::/48 2001:db8::1",
    "ipv6 route 2001:db8:2::/48 2001:db8::2",
    "ipv6 route 2001:db8:3::/48 fe80::1 near",
    "ipv6 route 2001:db8:4::/48 blackhole",
];

/// Returns a hop of weight 1 over `near`.
fn hop(frr: &Frr, gateway: &str) -> Hop {
    let gateway = Some(gateway).filter(|g| !g.is_empty()).map(|g| g.parse::<IpAddr>().unwrap());
    Hop { gateway, interface: frr.namespace.interface("near"), weight: 1 }
}

/// Returns what zebra must send for the routes that [`add`] adds.
fn added(frr: &Frr) -> Routes {
    let hops = |gateways: &[&str]| Target::Hops(gateways.iter().map(|gateway| hop(frr, gateway)).collect());
    let weighted = [("192.0.2.1", 3), ("192.0.2.2", 200)].map(|(gateway, weight)| Hop { weight, ..hop(frr, gateway) });
    [
        (MAIN, "10.1.0.0/16", STATIC, hops(&["192.0.2.1"])),
        (MAIN, "10.2.0.0/16", STATIC, hops(&["192.0.2.1", "192.0.2.2"])),
        (MAIN, "10.3.0.0/16", STATIC, Target::Blackhole),
        (MAIN, "10.4.0.0/16", STATIC, Target::Unreachable),
        (MAIN, "10.5.0.0/16", STATIC, hops(&[""])),
        (1000, "10.6.0.0/16", STATIC, hops(&["192.0.2.1"])),
        (MAIN, "10.9.0.0/16", KERNEL, Target::Hops(weighted.into())),
        (MAIN, "2001:db8:1::/48", STATIC, hops(&["2001:db8::1"])),
        (MAIN, "2001:db8:2::/48", STATIC, hops(&["2001:db8::1", "2001:db8::2"])),
        (MAIN, "2001:db8:3::/48", STATIC, hops(&["fe80::1"])),
        (MAIN, "2001:db8:4::/48", STATIC, Target::Blackhole),
    ]
    .into_iter()
    .map(|(table, prefix, protocol, target)| ((table, prefix.parse().unwrap()), (protocol, target)))
    .collect()
}

/// Adds routes of staticd, and one of the kernel, because staticd has no weights.
fn add(frr: &Frr) {
    frr.namespace.ip("route add 10.9.0.0/16 nexthop via 192.0.2.1 weight 3 nexthop via 192.0.2.2 weight 200");
    frr.configure(&COMMANDS);
}

/// Checks that routes are received, changed, removed, and sent again over a new connection.
fn routes_are_received(frr: &Frr) -> Connection {
    let mut connection = frr.accept();
    let mut expected = connection.connected();
    assert_eq!(expected.len(), 2, "{expected:?}");
    add(frr);
    expected.extend(added(frr));
    connection.expect(&expected);

    frr.configure(&[
        "no ip route 10.1.0.0/16 192.0.2.1",
        "no ip route 10.2.0.0/16 192.0.2.1",
        "no ipv6 route 2001:db8:4::/48 blackhole",
        "ipv6 route 2001:db8:1::/48 2001:db8::2",
    ]);
    for (prefix, gateways) in
        [("10.2.0.0/16", &["192.0.2.2"][..]), ("2001:db8:1::/48", &["2001:db8::1", "2001:db8::2"])]
    {
        let hops = gateways.iter().map(|gateway| hop(frr, gateway)).collect();
        expected.insert((MAIN, prefix.parse().unwrap()), (STATIC, Target::Hops(hops)));
    }
    for prefix in ["10.1.0.0/16", "2001:db8:4::/48"] {
        expected.remove(&(MAIN, prefix.parse().unwrap()));
    }
    connection.expect(&expected);

    drop(connection);
    // zebra sends routes of tables without a VRF only once
    expected.retain(|(table, _), _| *table == MAIN);
    let mut connection = frr.accept();
    connection.expect(&expected);
    connection
}

#[test]
fn routes_with_next_hop_objects() {
    if possible() {
        let frr = Frr::start("objects", "");
        let connection = routes_are_received(&frr);
        assert!(!connection.next_hops.is_empty());
    }
}

#[test]
fn routes_without_next_hop_objects() {
    if possible() {
        let frr = Frr::start("plain", "no fpm use-next-hop-groups");
        let connection = routes_are_received(&frr);
        assert!(connection.next_hops.is_empty());
    }
}

#[test]
fn a_thousand_routes() {
    if !possible() {
        return;
    }
    let frr = Frr::start("many", "");
    let mut connection = frr.accept();
    let mut expected = connection.connected();
    let prefixes = (0..1000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect::<Vec<_>>();
    let target = Target::Hops(vec![hop(&frr, "192.0.2.1")]);
    expected.extend(prefixes.iter().map(|p| ((MAIN, p.parse().unwrap()), (STATIC, target.clone()))));
    frr.configure(&prefixes.iter().map(|p| format!("ip route {p} 192.0.2.1")).collect::<Vec<_>>());
    connection.expect(&expected);
    // all routes have the same object
    frr.namespace.ip("link set near down");
    connection.expect(&BTreeMap::new());
    assert!(connection.next_hops.len() < 10);
}

#[test]
fn answers_mark_routes() {
    if !possible() {
        return;
    }
    let frr = Frr::start("answers", "");
    let mut connection = frr.accept();
    let mut expected = connection.connected();
    add(&frr);
    expected.extend(added(&frr));
    connection.expect(&expected);
    if !frr.reads_answers() {
        // the connection remains
        connection.answer(false);
        frr.configure(&["no ip route 10.1.0.0/16 192.0.2.1"]);
        expected.remove(&(MAIN, "10.1.0.0/16".parse().unwrap()));
        connection.expect(&expected);
        eprintln!("skipped: this zebra ignores answers (FRR before 8.5, and 10.3)");
        return;
    }
    for failed in [false, true, false] {
        connection.answer(failed);
        for ((_, prefix), _) in
            added(&frr).iter().filter(|((table, _), (protocol, _))| (*table, *protocol) == (MAIN, STATIC))
        {
            let prefix = prefix.to_string();
            until(&format!("{prefix} with offloaded = {}", !failed), || {
                (frr.shown(&prefix)["offloaded"] == !failed).then_some(())
            });
        }
    }
}
