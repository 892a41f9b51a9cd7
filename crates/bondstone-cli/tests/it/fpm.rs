//! Routes that a real routing daemon installs over FPM.

use crate::common::frr::{self, Frr};
use crate::common::full_table;
use crate::common::gateway::start;
use crate::common::instance::{command, statistics};
use crate::common::lab::Lab;
use crate::common::namespace::possible;
use crate::common::{LIMIT, Running, alone};
use ipnet::IpNet;
use serde_json::Value;
use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};
use wire::{EtherType, MacAddr, ethernet, ipv4, ipv6};

pub(crate) const ZEBRA: &str = "fpm address 127.0.0.1 port 2620\n";
pub(crate) const MODULE: &[&str] = &["-M", "dplane_fpm_nl"];

/// Configuration of a bgpd at 10.2.0.`own` with a neighbor at 10.2.0.`neighbor`.
pub(crate) fn bgp(own: u16, neighbor: u16, more: &str) -> String {
    format!(
        "router bgp {}\n bgp router-id 10.2.0.{own}\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor 10.2.0.{neighbor} remote-as {}\n neighbor 10.2.0.{neighbor} timers connect 1\n{more}",
        65_000 + own,
        65_000 + neighbor
    )
}

/// Returns the source, target and next hops with weights of a route.
fn route(lab: &Lab, prefix: &str) -> Option<String> {
    let said = command(&lab.scratch.path("sockets"), &["routes", "list", "router", "--json", "--limit", "0"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let list: Value = serde_json::from_str(&said.out).unwrap();
    let route = list["routes"].as_array().unwrap().iter().find(|route| route["prefix"] == prefix)?;
    let hops = route["via"].as_array().into_iter().flatten();
    let hops = hops.map(|hop| format!(" {}*{}", hop["address"].as_str().unwrap(), hop["weight"]));
    let text = |key: &str| route[key].as_str().unwrap().to_owned();
    Some(format!("{} {}{}", text("source"), text("target"), hops.collect::<String>()))
}

/// Waits until a route is this.
#[track_caller]
pub(crate) fn until_route(lab: &Lab, prefix: &str, expected: Option<&str>) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = route(lab, prefix);
        if found.as_deref() == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{prefix}: {found:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn packets_follow_routes_of_bgp_and_survive_its_restart() {
    let _one = alone();
    if !possible(&["ping"]) || !frr::installed() {
        return;
    }
    let lab = Lab::start("fpm", "icmp_rate = 50\nfpm = { namespace = \"CONTROL\", stale_time = 8 }");
    let Lab { scratch, a, b, control, .. } = &lab;
    b.ip("addr add 198.51.2.1/32 dev lo");
    b.ip("addr add 198.51.3.1/32 dev lo");
    let start = || Frr::start_zebra(scratch, control, (ZEBRA, MODULE), &[("bgpd", &bgp(1, 2, ""))]);
    let networks =
        " address-family ipv4 unicast\n  network 198.51.2.0/24\n  network 198.51.3.0/24\n exit-address-family\n";
    let router = start();
    let neighbor = Frr::start(scratch, b, &[("bgpd", &bgp(2, 1, networks))]);
    until_route(&lab, "198.51.2.0/24", Some("fpm via 10.2.0.2*1"));
    until_route(&lab, "198.51.3.0/24", Some("fpm via 10.2.0.2*1"));
    assert!(a.reaches("198.51.2.1") && a.reaches("198.51.3.1"));
    // the neighbor withdraws a route
    neighbor.configure(&["router bgp 65002", "address-family ipv4 unicast", "no network 198.51.3.0/24"]);
    until_route(&lab, "198.51.3.0/24", None);
    assert!(!a.reaches("198.51.3.1") && a.reaches("198.51.2.1"));
    neighbor.configure(&["router bgp 65002", "address-family ipv4 unicast", "network 198.51.3.0/24"]);
    until_route(&lab, "198.51.3.0/24", Some("fpm via 10.2.0.2*1"));
    // a reload keeps the routes; if it changes interfaces, zebra sends them again
    for (from, to) in [("icmp_rate = 50", "icmp_rate = 60"), ("mtu = 1400", "mtu = 1300")] {
        let file = scratch.path("router.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let said = command(&scratch.path("sockets"), &["reload"]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        if from.contains("icmp") {
            assert_eq!(route(&lab, "198.51.2.0/24").as_deref(), Some("fpm via 10.2.0.2*1"));
        }
        until_route(&lab, "198.51.2.0/24", Some("fpm via 10.2.0.2*1"));
        until_route(&lab, "198.51.3.0/24", Some("fpm via 10.2.0.2*1"));
        assert!(a.reaches("198.51.2.1"));
    }
    // zebra and bgpd are killed: packets go on, and the routes stay when they are back
    drop(router);
    assert!(a.reaches("198.51.2.1"));
    let killed = Instant::now();
    neighbor.configure(&["router bgp 65002", "address-family ipv4 unicast", "no network 198.51.3.0/24"]);
    let router = start();
    router
        .wait_for("show bgp summary json", |shown| shown["ipv4Unicast"]["peers"]["10.2.0.2"]["state"] == "Established");
    while killed.elapsed() < Duration::from_secs(8) {
        assert!(a.reaches("198.51.2.1"));
    }
    // the route that was withdrawn meanwhile goes
    until_route(&lab, "198.51.3.0/24", None);
    until_route(&lab, "198.51.2.0/24", Some("fpm via 10.2.0.2*1"));
    // without them all routes go in the end
    drop(router);
    until_route(&lab, "198.51.2.0/24", None);
    assert!(!a.reaches("198.51.2.1"));
    drop(neighbor);
    lab.stop(&["no_route"]);
}

#[test]
fn routes_of_every_type_are_installed_with_and_without_next_hop_objects() {
    let _one = alone();
    if !possible(&["ping"]) || !frr::installed() {
        return;
    }
    let limits = "routes_max = 12, prefixes = [\"203.0.113.0/24\", \"10.0.0.0/8\", \"2001:db8::/32\", \"fd00::/8\", \
         \"192.0.2.0/25\"]";
    let lab = Lab::start("fpm-types", &format!("fpm = {{ namespace = \"CONTROL\", stale_time = 1, {limits} }}"));
    let statics = "ip route 203.0.113.0/28 10.2.0.2\nip route 203.0.113.16/28 10.2.0.2\nip route 203.0.113.16/28 10.2.0.3\n\
         ip route 203.0.113.32/28 blackhole\nip route 203.0.113.48/28 reject\nip route 10.2.0.9/32 10.1.0.2\n\
         ipv6 route 2001:db8:1::/48 fd02::2\nipv6 route 2001:db8:2::/48 fe80::1234 wan\nip route 192.0.2.0/24 10.2.0.2\n";
    for objects in ["", "no fpm use-next-hop-groups\n"] {
        let zebra = format!("{ZEBRA}{objects}");
        let frr = Frr::start_zebra(&lab.scratch, &lab.control, (&zebra, MODULE), &[("staticd", statics)]);
        for (prefix, expected) in [
            ("203.0.113.0/28", "fpm via 10.2.0.2*1"),
            ("203.0.113.16/28", "fpm via 10.2.0.2*1 10.2.0.3*1"),
            ("203.0.113.32/28", "fpm blackhole"),
            ("203.0.113.48/28", "fpm unreachable"),
            ("10.2.0.9/32", "fpm via 10.1.0.2*1"),
            ("2001:db8:1::/48", "fpm via fd02::2*1"),
            ("2001:db8:2::/48", "fpm via fe80::1234*1"),
        ] {
            until_route(&lab, prefix, Some(expected));
        }
        // networks of the router, and those that the settings do not allow
        assert_eq!(route(&lab, "10.2.0.0/24").as_deref(), Some("connected connected"));
        assert_eq!(route(&lab, "192.0.2.0/24"), None);
        frr.configure(&["no ip route 203.0.113.16/28 10.2.0.3"]);
        until_route(&lab, "203.0.113.16/28", Some("fpm via 10.2.0.2*1"));
        // a route of a command precedes it, and it returns
        let change = |words: &[&str]| command(&lab.scratch.path("sockets"), &[&["routes"], words].concat());
        assert_eq!(change(&["add", "203.0.113.0/28", "prohibit"]).status, Some(0));
        until_route(&lab, "203.0.113.0/28", Some("static prohibit"));
        let refused = change(&["remove", "203.0.113.16/28"]);
        assert!(refused.err.contains("routing daemon has installed"), "{}", refused.err);
        assert_eq!(change(&["remove", "203.0.113.0/28"]).status, Some(0));
        until_route(&lab, "203.0.113.0/28", Some("fpm via 10.2.0.2*1"));
        drop(frr);
        until_route(&lab, "203.0.113.0/28", None);
    }
    lab.stop(&[]);
}

/// Returns a count of the router.
pub(crate) fn count(lab: &Lab, name: &str) -> u64 {
    statistics(&lab.scratch.path("sockets")).nf("router").number(&format!("/counters/{name}"))
}

/// Next hops of the full table, each with a MAC address of its own.
const NEXT_HOPS: usize = 80;

/// Returns the addresses of next hop `n`, IPv4 and IPv6, and its MAC address.
fn next_hop(n: usize) -> (String, String, MacAddr) {
    (format!("10.2.0.{}", 10 + n), format!("fd02::1:{n:x}"), MacAddr([2, 0, 0, 0, 9, n as u8]))
}

/// Returns the next hop of an address: that of the longest of the prefixes, which have the next hops in turn.
fn next_hop_of(table: &HashMap<IpNet, usize>, address: IpAddr) -> Option<usize> {
    let lengths = (0..=if address.is_ipv4() { 32 } else { 128 }).rev();
    lengths.filter_map(|len| table.get(&IpNet::new(address, len).unwrap().trunc()).copied()).next()
}

/// Sends packets to prefixes of every next hop, IPv4 and IPv6, and sees that they leave to its MAC address.
fn sample_next_hops(lab: &Lab, prefixes: &[String]) {
    let table: HashMap<IpNet, usize> =
        prefixes.iter().enumerate().map(|(n, prefix)| (prefix.parse().unwrap(), n % NEXT_HOPS)).collect();
    // the same in each run: prefixes from all over the table
    let mut left: HashMap<(bool, usize), u32> =
        (0..NEXT_HOPS).flat_map(|n| [((true, n), 3), ((false, n), 3)]).collect();
    let mut expected: HashMap<IpAddr, usize> = HashMap::new();
    for prefix in prefixes.iter().step_by(997).chain(prefixes.iter().step_by(101)) {
        let net: IpNet = prefix.parse().unwrap();
        let address = net.hosts().next().unwrap_or(net.addr());
        let hop = next_hop_of(&table, address).unwrap();
        let left = left.get_mut(&(address.is_ipv4(), hop)).unwrap();
        if *left > 0 && expected.insert(address, hop).is_none() {
            *left -= 1;
        }
    }
    assert!(left.values().all(|n| *n == 0), "{left:?}");
    // all that leaves, whatever its MAC address
    let see = "bondstone = 1\nport.b.device = \"af_packet:b0\"\nport.seen.device = \"pcap:seen\"\n\
               chain = [{ path = [\"b\", \"seen\"], cores = [1] }]\n";
    let witness = start(&lab.b, &lab.scratch.write("see.toml", see));
    for address in expected.keys() {
        let send =
            || UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?.send_to(b"x", (*address, 9));
        dpdk::netdev::in_namespace(Some(&lab.a.0), send).unwrap();
    }
    // packets are forwarded in order
    assert!(lab.a.reaches("10.2.0.2"));
    witness.terminate().summary(130);
    let mut reader = pcap::Reader::open(lab.scratch.path("seen")).unwrap();
    let mut found = 0;
    while let Some(record) = reader.next().unwrap() {
        let frame = ethernet::Frame::new(record.frame).unwrap();
        let address: Option<IpAddr> = match frame.header().ether_type() {
            EtherType::IPV4 => ipv4::Packet::new(frame.payload()).ok().map(|ip| ip.header().dst().into()),
            EtherType::IPV6 => ipv6::Packet::new(frame.payload()).ok().map(|ip| ip.header().dst().into()),
            _ => None,
        };
        if let Some(hop) = address.and_then(|address| expected.remove(&address)) {
            assert_eq!(frame.header().dst(), next_hop(hop).2, "{address:?}");
            found += 1;
        }
    }
    assert!(expected.is_empty(), "{found} seen, not {expected:?}");
    println!("{found} packets left to {NEXT_HOPS} next hops");
}

/// A table of the Internet, announced by BIRD with many next hops, arrives in the tables of the router by bgpd and zebra.
#[test]
fn a_full_table_is_announced_and_withdrawn() {
    let _one = alone();
    let Some(prefixes) = full_table::prefixes() else { return };
    if !possible(&["ping", "bird"]) || !frr::installed() {
        return;
    }
    let neighbours: String = (0..NEXT_HOPS)
        .map(next_hop)
        .map(|(v4, v6, mac)| format!("neighbour.\"{v4}\" = \"{mac}\"\nneighbour.\"{v6}\" = \"{mac}\"\n"))
        .collect();
    let lab = Lab::start("full", &format!("fpm = {{ namespace = \"CONTROL\", stale_time = 1 }}\n{neighbours}"));
    let Lab { scratch, b, control, .. } = &lab;
    let hops = |n| {
        let (v4, v6, _) = next_hop(n % NEXT_HOPS);
        (v4, v6)
    };
    let file = scratch.write("bird.conf", full_table::bird(&prefixes, "10.2.0", hops));
    let neighbor = " address-family ipv6 unicast\n  neighbor 10.2.0.2 activate\n exit-address-family\n";
    let frr = Frr::start_zebra(scratch, control, (ZEBRA, MODULE), &[("bgpd", &bgp(1, 2, neighbor))]);
    let start = Instant::now();
    let socket = scratch.path("bird.ctl");
    let bird = Running::start(b.command("bird").arg("-f").arg("-c").arg(&file).arg("-s").arg(&socket));
    // and the link-local network
    let until = |expected: std::ops::Range<usize>| {
        let deadline = Instant::now() + 10 * LIMIT;
        while !expected.contains(&(count(&lab, "installed_routes") as usize)) {
            assert!(Instant::now() < deadline, "{} routes, not {expected:?}", count(&lab, "installed_routes"));
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    until(prefixes.len()..prefixes.len() + 5);
    println!("{} routes after {:?}", prefixes.len(), start.elapsed());
    sample_next_hops(&lab, &prefixes);
    let start = Instant::now();
    drop(bird);
    until(0..5);
    println!("withdrawn after {:?}", start.elapsed());
    drop(frr);
    lab.stop(&[]);
}
