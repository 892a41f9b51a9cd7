//! A control plane in a namespace of its own, which uses the interfaces of a router by representors.

use crate::common::frr::{self, Frr};
use crate::common::instance::command;
use crate::common::lab::{LAN_MAC, Lab};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::{LIMIT, Running, Summary, alone};
use serde_json::Value;
use std::time::{Duration, Instant};

fn is_answered(from: &Namespace, args: &str) -> (bool, String) {
    let output = from.command("ping").args(["-n", "-c", "3", "-i", "0.1"]).args(args.split(' ')).output().unwrap();
    (output.status.success(), [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat())
}

/// Asserts that three pings are answered.
#[track_caller]
pub(crate) fn ping(from: &Namespace, to: &str) {
    let (all, output) = is_answered(from, &format!("-w 100 {to}"));
    assert!(all, "{to}: {output}");
}

/// Transfers some bytes by TCP to a server.
#[track_caller]
fn transfer(client: &Namespace, server: &Namespace, address: &str, port: &str) {
    let running = Running::start(server.command("iperf3").args(["-s", "-1", "-p", port]));
    server.wait_for_listener(port.parse().unwrap());
    let output = done(client.command("iperf3").args(["-J", "-n", "200K", "-b", "4M", "-p", port, "-c", address]));
    let report = Summary(serde_json::from_slice(&output.stdout).unwrap());
    // the client ends when all is sent, and has then received the count of a part
    assert!(report.number("/end/sum_received/bytes") >= 50_000, "{}", report.0);
    running.end();
}

#[test]
fn a_control_plane_reaches_hosts_and_is_reached() {
    let _one = alone();
    if !possible(&["ping", "iperf3"]) {
        return;
    }
    let lab = Lab::start("reach", "punt = { other = \"20 kpps\" }\n");
    let Lab { a, b, control, .. } = &lab;
    let shown: Value = serde_json::from_str(&control.ip("-j addr show dev lan")).unwrap();
    assert_eq!((&shown[0]["address"], &shown[0]["mtu"]), (&LAN_MAC.into(), &1400.into()), "{shown}");
    let mut addresses: Vec<_> = shown[0]["addr_info"].as_array().unwrap().iter().map(|a| &a["local"]).collect();
    addresses.sort_by_key(|address| address.to_string());
    assert_eq!(addresses, ["10.1.0.1", "fd01::1", "fe80::ff:fe00:100"], "{shown}");
    for host in ["10.1.0.2", "fd01::2", "10.2.0.2", "fd02::2"] {
        ping(control, host);
    }
    // own addresses, also those of the other interface, and datagrams in fragments
    for own in ["10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1"] {
        ping(a, own);
        ping(b, own);
        ping(a, &format!("-s 4000 {own}"));
    }
    ping(a, "fe80::ff:fe00:100%a0");
    ping(control, "-s 4000 10.1.0.2");
    ping(a, "10.2.0.2");
    ping(b, "fd01::2");
    transfer(a, control, "10.1.0.1", "5201");
    transfer(b, control, "fd02::1", "5201");
    transfer(control, a, "10.1.0.2", "5201");
    transfer(control, b, "fd02::2", "5201");
    let router = lab.stop(&[]);
    let count = |name: &str| router.number(&format!("/counters/{name}"));
    let counted = ["punted_arp", "punted_nd", "punted_icmp", "punted_other", "injected"].map(count);
    assert!(counted.iter().all(|n| *n > 0), "{}", router.0);
    assert_eq!(router.number("/drops/punt_exceeded"), 0, "{}", router.0);
}

#[test]
fn a_flood_of_one_class_does_not_take_the_rate_of_others() {
    let _one = alone();
    if !possible(&["ping", "iperf3"]) {
        return;
    }
    let lab = Lab::start("flood", "punt = { icmp = \"100 pps\" }\n");
    let Lab { a, b, control, .. } = &lab;
    ping(a, "10.1.0.1");
    let flood = Running::start(a.command("ping").args(["-n", "-q", "-f", "-l", "64", "10.1.0.1"]));
    transfer(a, control, "10.1.0.1", "179");
    // the other interface has a rate of its own, as have forwarded packets
    ping(b, "10.2.0.1");
    ping(a, "10.2.0.2");
    flood.interrupt();
    let router = lab.stop(&[]);
    let count = |name: &str| router.number(&format!("/counters/{name}"));
    assert!(count("punt_exceeded_icmp") > 100, "{}", router.0);
    assert_eq!(count("punt_exceeded_icmp"), router.number("/drops/punt_exceeded"), "{}", router.0);
    assert!(count("punted_bgp") > 100 && count("punt_exceeded_bgp") == 0, "{}", router.0);
}

#[test]
fn forwarding_continues_without_the_control_plane() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let lab = Lab::start("down", "reachable_time = 1\n");
    let Lab { a, b, control, .. } = &lab;
    ping(a, "10.1.0.1");
    for interface in ["lan", "wan"] {
        control.ip(&format!("link set {interface} down"));
    }
    for _ in 0..3 {
        ping(a, "10.2.0.2");
        ping(b, "fd01::2");
        // hosts resolve the router, which answers itself
        a.ip("neigh flush dev a0");
        std::thread::sleep(Duration::from_millis(700));
    }
    let (any, output) = is_answered(a, "-W 1 10.1.0.1");
    assert!(!any, "{output}");
    control.ip("link set lan up");
    ping(a, "10.1.0.1");
    ping(control, "10.1.0.2");
    lab.stop(&[]);
}

#[test]
fn a_reload_configures_the_control_plane_like_the_interface() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let lab = Lab::start("reload", "");
    let Lab { a, control, .. } = &lab;
    ping(a, "10.1.0.1");
    let reload = |from: &str, to: &str| {
        let said = lab.reload(&[(from, to)]);
        assert_eq!(said.status, Some(0), "{}", said.err);
    };
    reload("\"10.1.0.1/24\", ", "\"10.1.0.77/24\", \"10.7.0.1/24\", ");
    let shown = control.ip("-brief addr show dev lan");
    assert!(["10.1.0.77/24", "10.7.0.1/24", "fd01::1/64"].iter().all(|own| shown.contains(own)), "{shown}");
    assert!(!shown.contains("10.1.0.1/24"), "{shown}");
    ping(a, "10.1.0.77");
    // the kernel derives the link-local address from the MAC address, as the router does
    reload(LAN_MAC, "02:00:00:00:01:09");
    let shown = control.ip("addr show dev lan");
    assert!(
        ["02:00:00:00:01:09", "fe80::ff:fe00:109", "10.7.0.1/24", "fd01::1/64"].iter().all(|own| shown.contains(own)),
        "{shown}"
    );
    a.ip("neigh flush dev a0");
    for own in ["10.1.0.77", "fd01::1", "fe80::ff:fe00:109%a0"] {
        ping(a, own);
    }
    lab.stop(&[]);
}

#[test]
fn an_address_is_reached_by_an_interface_without_a_representor() {
    let _one = alone();
    if !possible(&["ping"]) {
        return;
    }
    let lab = Lab::start("owner", "");
    let Lab { scratch, a, b, control, .. } = &lab;
    let mut text = std::fs::read_to_string(scratch.path("router.toml")).unwrap();
    let port = text.lines().find(|line| line.starts_with("port.wan-host")).unwrap().to_owned();
    for of_wan in [&*port, ", { path = [\"wan-host\", \"router\"], cores = [1] }", ", representor = \"wan-host\""] {
        assert!(text.contains(of_wan), "{text}");
        text = text.replace(of_wan, "");
    }
    let file = scratch.write("router.toml", text);
    let said = command(&scratch.path("sockets"), &["reload", file.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    // the only interface of the control plane is `lan`: its answers take the way by `a`
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
    done(a.command("sh").args(["-c", forward]));
    control.ip("route add 10.2.0.0/24 via 10.1.0.2 dev lan");
    control.ip("route add fd02::/64 via fd01::2 dev lan");
    ping(b, "10.1.0.1");
    ping(b, "fd01::1");
    // the router itself has the addresses of `wan`
    ping(b, "10.2.0.1");
    ping(b, "fd02::1");
    let router = lab.stop(&[]);
    let count = |name: &str| router.number(&format!("/counters/{name}"));
    assert!(count("punted_icmp") >= 6 && count("injected") >= 6, "{}", router.0);
}

/// Configurations of FRR: BGP with BFD and OSPF with a neighbor at `wan`, or `b0`.
fn routing(interface: &str, own: u16, neighbor: u16) -> [(&'static str, String); 3] {
    let peer = format!("10.2.0.{neighbor}");
    let (own_as, peer_as) = (65_000 + own, 65_000 + neighbor);
    let bgp = format!(
        "router bgp {own_as}\n bgp router-id 10.2.0.{own}\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor {peer} remote-as {peer_as}\n neighbor {peer} timers connect 1\n neighbor {peer} bfd\n \
         address-family ipv4 unicast\n  network 198.51.{own}.0/24\n exit-address-family\n"
    );
    let ospf = format!(
        "interface {interface}\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 20\n\
         router ospf\n ospf router-id 10.2.0.{own}\n network 10.2.0.0/24 area 0\n"
    );
    let bfd = format!("bfd\n peer {peer} interface {interface}\n  detect-multiplier 10\n  no shutdown\n");
    [("bgpd", bgp), ("ospfd", ospf), ("bfdd", bfd)]
}

#[test]
fn sessions_of_a_routing_daemon_come_up_through_the_router() {
    let _one = alone();
    if !possible(&["ping"]) || !frr::installed() {
        return;
    }
    let lab = Lab::start("frr", "");
    let Lab { scratch, b, control, .. } = &lab;
    let start = |namespace, daemons: [(&'static str, String); 3]| {
        Frr::start(scratch, namespace, &daemons.each_ref().map(|(daemon, text)| (*daemon, &**text)))
    };
    b.ip("addr add 198.51.2.1/32 dev lo");
    let router = start(control, routing("wan", 1, 2));
    let neighbor = start(b, routing("b0", 2, 1));
    router
        .wait_for("show bgp summary json", |shown| shown["ipv4Unicast"]["peers"]["10.2.0.2"]["state"] == "Established");
    router.wait_for("show ip ospf neighbor json", |shown| {
        shown["neighbors"]["10.2.0.2"][0]["state"].as_str().is_some_and(|state| state.starts_with("Full"))
    });
    router.wait_for("show bfd peers json", |shown| {
        shown.as_array().is_some_and(|peers| peers.iter().any(|peer| peer["status"] == "up"))
    });
    // a route of the neighbor leads the control plane's own packets to it
    let deadline = Instant::now() + LIMIT;
    while !control.ip("route show 198.51.2.0/24").contains("via 10.2.0.2 dev wan") {
        assert!(Instant::now() < deadline, "{}", control.ip("route show"));
        std::thread::sleep(Duration::from_millis(100));
    }
    ping(control, "198.51.2.1");
    drop((router, neighbor));
    let router = lab.stop(&[]);
    let count = |name: &str| router.number(&format!("/counters/{name}"));
    assert!(["bgp", "ospf", "bfd"].iter().all(|class| count(&format!("punted_{class}")) > 0), "{}", router.0);
    assert_eq!(router.number("/drops/punt_exceeded"), 0, "{}", router.0);
}
