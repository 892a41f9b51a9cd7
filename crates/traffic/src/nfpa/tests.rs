use std::collections::HashSet;
use std::net::IpAddr;
use std::process::Command;

use super::*;
use tables::{bridge_batch, ip_batch, neighbours, openflow, routes, rules};

const ALL: [&str; 12] =
    ["simple", "tr2e", "tr2i", "tr3e", "tr3i", "tr4e", "tr5ul", "tr5dl", "l2-1000", "l3-1000", "lb-1000", "gw-1000"];

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn different<T: std::hash::Hash + Eq>(list: &[Flow], what: impl Fn(&Flow) -> T) -> usize {
    list.iter().map(what).collect::<HashSet<_>>().len()
}

#[test]
fn names() {
    for text in ALL {
        assert_eq!(name(text).to_string(), text);
    }
    for text in ["", "tr1e", "tr4i", "l2", "l2-", "l2-0", "l2-100001", "l4-10", "l2--1"] {
        let why = text.parse::<Name>().unwrap_err();
        assert!(why.to_string().contains("tr5ul"), "{why}");
    }
}

#[test]
fn as_many_flows_as_nfpa_says() {
    // Flows, and different destination MACs, destination IPs, source IPs, five-tuples.
    let expected = [
        ("simple", [1, 1, 1, 1, 1]),
        ("tr2e", [100, 100, 1, 1, 1]),
        ("tr2i", [100, 1, 100, 1, 100]),
        ("tr3e", [10_000, 10_000, 1, 1, 1]),
        ("tr3i", [10_000, 1, 10_000, 1, 10_000]),
        ("tr4e", [500_000, 500_000, 1, 1, 1]),
        ("tr5ul", [64_500, 1, 6_450, 64_500, 64_500]),
        ("tr5dl", [64_500, 1, 1, 6_450, 64_500]),
        ("l2-1000", [1000, 1000, 1, 1, 1]),
        ("l3-1000", [1000, 1, 1000, 1, 1000]),
        ("lb-1000", [2000, 1, 1000, 2000, 2000]),
    ];
    for (text, counts) in expected {
        for direction in [Direction::Forward, Direction::Reverse] {
            let list = name(text).list(direction, 3);
            let is = [
                list.len(),
                different(&list, |flow| flow.dst_mac),
                different(&list, |flow| flow.tuple.dst),
                different(&list, |flow| flow.tuple.src),
                different(&list, |flow| flow.tuple),
            ];
            assert_eq!(is, counts, "{text} {direction:?}");
            let flows = name(text).flows(direction, 3).unwrap();
            assert_eq!(flows.tuple(flows.count() - 1), list.last().map(|flow| flow.tuple));
        }
    }
    let gateway = name("gw-100000").list(Direction::Forward, 3);
    assert_eq!(different(&gateway, |flow| (flow.src_mac, flow.tuple.src)), 200);
    assert_eq!(different(&gateway, |flow| flow.tuple), 100_000);
}

#[test]
fn the_reverse_swaps_roles() {
    for text in ["simple", "tr2e", "tr2i", "tr5ul", "tr5dl"] {
        let (there, back) = (name(text).list(Direction::Forward, 0), name(text).list(Direction::Reverse, 0));
        let net = |address: IpAddr| address.to_string().split('.').take(2).collect::<Vec<_>>().join(".");
        assert!(
            there.iter().all(|flow| (net(flow.tuple.src), net(flow.tuple.dst)) == ("198.18".into(), "198.19".into()))
        );
        assert!(
            back.iter().all(|flow| (net(flow.tuple.src), net(flow.tuple.dst)) == ("198.19".into(), "198.18".into()))
        );
        let macs: HashSet<_> = there.iter().map(|flow| flow.dst_mac).collect();
        assert!(back.iter().all(|flow| !macs.contains(&flow.dst_mac)), "{text}");
        let tuples: HashSet<_> = there.iter().map(|flow| flow.tuple.reversed()).collect();
        assert!(back.iter().all(|flow| !tuples.contains(&flow.tuple)), "{text}");
    }
}

#[test]
fn a_seed_makes_the_same_again() {
    for text in ALL {
        let hash = |seed| name(text).sha256(Direction::Forward, seed);
        assert_eq!(hash(1), hash(1));
        assert_eq!(hash(1) == hash(2), !text.contains('-'), "{text}");
        assert_ne!(hash(1), name(text).sha256(Direction::Reverse, 1), "{text}");
    }
    // A trace must stay the same, so that results remain comparable.
    let simple = name("simple").sha256(Direction::Forward, 0);
    let bytes = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 198, 18, 0, 1, 198, 19, 0, 1, 0x27, 0x10, 0xc3, 0x50];
    let expected: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(simple, expected);
}

/// Prefixes that hold an address.
fn holding(tables: &Tables, address: IpAddr) -> usize {
    let IpAddr::V4(address) = address else { return 0 };
    let within = |route: &&tables::Route| (address.to_bits() ^ route.prefix.to_bits()) >> (32 - route.len) == 0;
    tables.routes.iter().filter(within).count()
}

#[test]
fn every_flow_has_its_entry_and_every_entry_its_flow() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let of = |text: &str| (name(text).list(direction, 9), name(text).tables(direction, 9));
        let (list, tables) = of("l2-500");
        assert!(tables.hosts.iter().zip(&list).all(|(host, flow)| host.mac == flow.dst_mac && host.mac.is_unicast()));
        assert_eq!(tables.entries(), 500);
        let (list, tables) = of("l3-500");
        assert_eq!(tables.entries(), 500);
        assert!(tables.routes.iter().all(|route| (16..=24).contains(&route.len)));
        for (n, flow) in list.iter().enumerate() {
            assert_eq!(holding(&tables, flow.tuple.dst), 1);
            let own = Tables { routes: vec![tables.routes[n]], ..Tables::default() };
            assert_eq!(holding(&own, flow.tuple.dst), 1);
        }
        let (list, tables) = of("lb-300");
        assert_eq!(tables.entries(), 600);
        for (n, flow) in list.iter().enumerate() {
            let IpAddr::V4(src) = flow.tuple.src else { panic!() };
            assert_eq!((src.to_bits() >> 31) as usize, n % 2);
            assert_eq!((flow.tuple.dst, flow.tuple.dst_port), (tables.services[n / 2].address.into(), 80));
        }
        let (list, tables) = of("gw-900");
        assert_eq!((tables.users.len(), tables.routes.len()), (200, 10_000));
        for (n, flow) in list.iter().enumerate() {
            let user = tables.users[n % 200];
            assert_eq!((flow.src_mac, flow.tuple.src), (user.customer, user.private.into()));
            assert_eq!(holding(&tables, flow.tuple.dst), 1);
        }
    }
    assert_eq!(name("tr3e").tables(Direction::Forward, 0), Tables::default());
}

#[test]
fn the_largest_tables_can_be_made() {
    let tables = name("l3-100000").tables(Direction::Forward, 1);
    assert_eq!(different_prefixes(&tables), 100_000);
    for len in 16..=24 {
        assert!(tables.routes.iter().any(|route| route.len == len), "/{len}");
    }
    assert_eq!(name("l2-100000").tables(Direction::Forward, 1).entries(), 100_000);
}

fn different_prefixes(tables: &Tables) -> usize {
    tables.routes.iter().map(|route| (route.prefix, route.len)).collect::<HashSet<_>>().len()
}

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut file = Vec::new();
    write(&mut file).unwrap();
    String::from_utf8(file).unwrap()
}

#[test]
fn files() {
    let of = |text: &str| name(text).tables(Direction::Forward, 0);
    let (l2, l3, lb, gw) = (of("l2-2"), of("l3-1"), of("lb-1"), of("gw-1"));
    let mac = l2.hosts[0].mac;
    let first = |text: String| text.lines().next().unwrap().to_owned();
    assert_eq!(first(text(|f| openflow(&l2, 2, f))), format!("table=0,priority=10,dl_dst={mac},actions=output:2"));
    assert_eq!(first(text(|f| bridge_batch(&l2, "veth1", f))), format!("fdb replace {mac} dev veth1 master static"));
    let tables::Route { prefix, len, via } = l3.routes[0];
    assert_eq!(text(|f| routes(&l3, f)), format!("{prefix}/{len} via {via}\n"));
    let batch = text(|f| ip_batch(&l3, "eth1", f));
    assert!(batch.starts_with("neighbour replace 10.255.0.2 lladdr 02:00:0a:ff:00:02 nud permanent dev eth1\n"));
    assert!(batch.ends_with(&format!("route replace {prefix}/{len} via {via} dev eth1 onlink\n")));
    assert!(text(|f| neighbours(&l3, f)).starts_with("neighbour = { \"10.255.0.2\" = \"02:00:0a:ff:00:02\", "));
    assert_eq!(
        text(|f| rules(&lb, f)),
        "accept proto udp src 0.0.0.0/1 dst 203.0.0.1/32 dport 80\naccept proto udp src 128.0.0.0/1 dst 203.0.0.1/32 dport 80\n"
    );
    assert_eq!(first(text(|f| rules(&gw, f))), "accept src 10.1.0.1/32");
    assert_eq!(text(|f| openflow(&of("simple"), 2, f)), "table=0,priority=1,actions=output:2\n");
}

#[test]
fn open_vswitch_understands_its_flows() {
    let path = std::env::temp_dir().join(format!("bondstone-nfpa-{}.flows", std::process::id()));
    for of in ["simple", "l2-50", "l3-50", "lb-50", "gw-50"] {
        let tables = name(of).tables(Direction::Forward, 0);
        std::fs::write(&path, text(|f| openflow(&tables, 2, f))).unwrap();
        let output = match Command::new("ovs-ofctl").arg("parse-flows").arg(&path).output() {
            Ok(output) => output,
            Err(why) => {
                println!("skipped: ovs-ofctl: {why}");
                break;
            }
        };
        assert!(output.status.success(), "{of}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        let flows = said.lines().filter(|line| line.contains("FLOW_MOD")).count();
        assert_eq!(flows, tables.entries().max(1), "{of}: {said}");
    }
    let _ = std::fs::remove_file(&path);
}
