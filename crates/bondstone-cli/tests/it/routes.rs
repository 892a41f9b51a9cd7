//! `bondstone routes`: the routes of a router change while it forwards.

use crate::common::gateway::accounted;
use crate::common::instance::{command, start};
use crate::common::{LIMIT, Scratch, Summary, alone};
use std::path::Path;
use std::time::Instant;
use wire::MacAddr;

/// Packets to two networks in turn, without an end, of which the router has a route to the first.
fn chain(scratch: &Scratch, more: &str) -> String {
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for net in [100, 101] {
        let frame = wire::build::udp4([10, 1, 0, 2], [198, 51, net, 1], 1, 2).dst_mac(MacAddr([2, 0, 0, 0, 1, 0]));
        writer.write(0, 60, &frame.pad_to(60).to_vec()).unwrap();
    }
    writer.finish().unwrap();
    format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.lan]\ndevice = \"null\"\n\
         [port.wan]\ndevice = \"null\"\n[nf.router]\nkind = \"l3fwd\"\n\
         interface.lan = {{ addresses = [\"10.1.0.1/24\"], mac = \"02:00:00:00:01:00\" }}\n\
         interface.wan = {{ addresses = [\"10.2.0.1/24\", \"2001:db8::1/64\"] }}\n\
         neighbour = {{ \"10.1.0.2\" = \"02:00:00:00:01:02\", \"10.2.0.2\" = \"02:00:00:00:02:02\" }}\n\
         route = [{{ prefix = \"198.51.100.0/24\", via = [\"10.2.0.2\"] }}{more}]\n\
         [[chain]]\npath = [\"in\", \"router:lan\"]\n"
    )
}

fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let said = command(dir, arguments);
    assert_eq!(said.status, Some(0), "{arguments:?}: {}", said.err);
    serde_json::from_str(&said.out).unwrap()
}

/// Returns the prefixes and targets of all routes.
fn routes(dir: &Path) -> Vec<(String, String)> {
    let list = json(dir, &["routes", "list", "router", "--json", "--limit", "0"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let route = |route: &serde_json::Value| (text(&route["prefix"]), text(&route["target"]));
    let mut all: Vec<_> = list["routes"].as_array().unwrap().iter().map(route).collect();
    all.sort();
    all
}

fn of_router(dir: &Path, pointer: &str) -> u64 {
    let stats = json(dir, &["stats", "--json"]);
    stats["nfs"][0].pointer(pointer).and_then(serde_json::Value::as_u64).unwrap_or_default()
}

/// Waits until a count has grown since now.
#[track_caller]
fn grows(dir: &Path, pointer: &str) {
    let (from, deadline) = (of_router(dir, pointer), Instant::now() + LIMIT);
    while of_router(dir, pointer) == from {
        assert!(Instant::now() < deadline, "{pointer} stays {from}");
    }
}

#[test]
fn a_route_takes_effect_and_other_flows_lose_no_packet() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", chain(&scratch, "")));
    let running = start(&dir, &edge, &[]);
    let own = [("10.1.0.0/24", "connected"), ("10.2.0.0/24", "connected"), ("198.51.100.0/24", "via")];
    let with = |more: &[(&str, &str)]| {
        let own = own.iter().chain(&[("2001:db8::/64", "connected")]).chain(more);
        let mut all: Vec<_> = own.map(|(prefix, target)| ((*prefix).to_owned(), (*target).to_owned())).collect();
        all.sort();
        all
    };
    assert_eq!(routes(&dir), with(&[]));
    let text = command(&dir, &["routes", "list"]).out;
    assert!(text.contains("via 10.2.0.2  static     wan        permanent  02:00:00:00:02:02"), "{text}");
    grows(&dir, "/drops/no_route");
    // an error changes nothing, and names value and remedy
    for (arguments, value) in [
        (&["add", "198.51.101.0/33", "via", "10.2.0.2"][..], "198.51.101.0/33"),
        (&["add", "198.51.101.0/24", "via", "10.3.0.2"], "10.3.0.2, which is not on a network"),
        (&["add", "198.51.101.0/24", "via", "2001:db8::2"], "of the other IP version"),
        (&["add", "198.51.101.0/24"], "has no next hop"),
        (&["add", "10.2.0.0/24", "blackhole"], "\"10.2.0.0/24\": is a network"),
        (&["remove", "198.51.100.0/24", "198.51.101.0/24"], "\"198.51.101.0/24\": has no route"),
        (&["remove", "10.2.0.0/24"], "\"10.2.0.0/24\""),
        (&["remove", "10.2.0.2"], "is a neighbour"),
        (&["remove", "224.0.0.0/4"], "of the router itself"),
    ] {
        let said = command(&dir, &[&["routes"], arguments].concat());
        assert_eq!(said.status, Some(2), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(value) && said.err.contains("help: "), "{}", said.err);
        assert_eq!(routes(&dir), with(&[]));
    }
    let said = command(&dir, &["routes", "add", "198.51.101.0/24", "blackhole", "--nf", "router"]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "router: 1 added, 0 removed\n"), "{}", said.err);
    assert_eq!(routes(&dir), with(&[("198.51.101.0/24", "blackhole")]));
    grows(&dir, "/drops/blackhole");
    // a group of next hops, of which flows use one
    for hops in [&["10.2.0.2"][..], &["10.2.0.2", "10.2.0.2"]] {
        let said = command(&dir, &[&["routes", "add", "198.51.101.0/24", "via"], hops].concat());
        assert_eq!(said.status, Some(0), "{}", said.err);
        assert_eq!(routes(&dir), with(&[("198.51.101.0/24", "via")]));
    }
    let blackholed = of_router(&dir, "/drops/blackhole");
    grows(&dir, "/packets");
    assert_eq!(of_router(&dir, "/drops/blackhole"), blackholed);
    assert_eq!(command(&dir, &["routes", "add", "0.0.0.0/0", "unreachable"]).status, Some(0));
    assert_eq!(command(&dir, &["routes", "remove", "198.51.101.0/24"]).status, Some(0));
    grows(&dir, "/drops/unreachable");
    assert_eq!(routes(&dir), with(&[("0.0.0.0/0", "unreachable")]));

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let summary = Summary(serde_json::from_str(&running.end().out).unwrap());
    accounted(&summary);
    // only packets to the second network were dropped
    let lost: u64 = summary.0["drops"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, n)| {
            assert!(["no_route", "blackhole", "unreachable"].contains(&name.as_str()), "{name}");
            n.as_u64().unwrap()
        })
        .sum();
    let received = summary.number("/totals/received");
    assert!(lost > 0 && lost <= received.div_ceil(2), "{}", summary.0);
    assert!(summary.port("wan").number("/sent") >= received / 2, "{}", summary.0);
}

#[test]
fn a_reload_restores_the_routes_of_changed_settings() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", chain(&scratch, "")));
    let running = start(&dir, &edge, &[]);
    assert_eq!(command(&dir, &["routes", "add", "198.51.101.0/24", "blackhole"]).status, Some(0));
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    assert_eq!(routes(&dir).len(), 5);
    scratch.write("edge.toml", chain(&scratch, ", { prefix = \"203.0.113.0/24\", to = \"unreachable\" }"));
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    let all = routes(&dir);
    assert!(all.len() == 5 && all.iter().all(|(prefix, _)| prefix != "198.51.101.0/24"), "{all:?}");
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    accounted(&Summary(serde_json::from_str(&running.end().out).unwrap()));
}
