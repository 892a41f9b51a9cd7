//! Real routing daemons that change many routes, or next hops that packets use.

use crate::common::flows::until;
use crate::common::frr::{self, Frr};
use crate::common::instance::command;
use crate::common::lab::Lab;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::{LIMIT, Running, alone};
use crate::fpm::{MODULE, ZEBRA, bgp, count, until_route};
use dpdk::netdev::in_namespace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns a UDP socket in a namespace.
fn socket(namespace: &Namespace, address: &str) -> UdpSocket {
    let socket = in_namespace(Some(&namespace.0), || UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket
}

/// Neighbors in namespaces of their own, at a bridge behind the port `wan`, which announce the same prefix.
struct Neighbors {
    namespaces: Vec<Namespace>,
    /// At an address of the prefix.
    sockets: Vec<UdpSocket>,
    from: Vec<UdpSocket>,
}

/// Flows of the test, with ports from here on.
const FLOWS: u16 = 600;
const FIRST_PORT: u16 = 20_000;

impl Neighbors {
    fn new(lab: &Lab, name: &str) -> Neighbors {
        lab.b.ip("link add bridge type bridge");
        lab.b.ip("link set bridge up");
        lab.b.ip("link set b0 master bridge");
        let namespaces: Vec<Namespace> = (0..3).map(|n| Namespace::new(&format!("{name}-{n}"))).collect();
        for (n, namespace) in namespaces.iter().enumerate() {
            lab.b.link(&format!("to{n}"), namespace, "n0");
            lab.b.raise(&format!("to{n}"));
            lab.b.ip(&format!("link set to{n} master bridge"));
            namespace.configure("n0", &[&format!("10.2.0.{}/24", 11 + n)]);
            namespace.ip("addr add 198.51.100.1/32 dev lo");
            namespace.ip("route add default via 10.2.0.1");
        }
        let sockets: Vec<UdpSocket> = namespaces.iter().map(|namespace| socket(namespace, "198.51.100.1:9")).collect();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let from = (0..FLOWS).map(|n| socket(&lab.a, &format!("10.1.0.2:{}", FIRST_PORT + n))).collect();
        Neighbors { namespaces, sockets, from }
    }

    /// Sends a packet of each flow; returns the neighbors that receive them. None is lost.
    #[track_caller]
    fn of_flows(&self) -> BTreeMap<u16, usize> {
        let mut found = BTreeMap::new();
        let (mut sent, deadline) = (0, Instant::now() + LIMIT);
        // few at once, for which all queues have room
        for flows in self.from.chunks(64) {
            for flow in flows {
                flow.send_to(b"flow", "198.51.100.1:9").unwrap();
            }
            sent += flows.len();
            while found.len() < sent {
                for (n, socket) in self.sockets.iter().enumerate() {
                    while let Ok((_, from)) = socket.recv_from(&mut [0; 16]) {
                        assert_eq!(found.insert(from.port(), n), None, "packet of port {} twice", from.port());
                    }
                }
                assert!(Instant::now() < deadline, "{} of {sent} packets", found.len());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        found
    }
}

/// Of several next hops one dies: its flows use the others, and most flows of the others stay, as is documented.
#[test]
fn flows_of_a_dead_next_hop_use_the_others() {
    let _one = alone();
    if !possible(&["ping"]) || !frr::installed() {
        return;
    }
    let lab = Lab::start("ecmp", "fpm = { namespace = \"CONTROL\" }");
    let neighbors = Neighbors::new(&lab, "ecmp");
    let peer = |n: usize| format!(" neighbor 10.2.0.{n} remote-as 65002\n neighbor 10.2.0.{n} timers 1 3\n");
    let router = format!("{}{}{}", bgp(1, 11, "").replace("65011", "65002"), peer(12), peer(13));
    let router = router.replace("timers connect 1", "timers 1 3");
    let _router = Frr::start_zebra(&lab.scratch, &lab.control, (ZEBRA, MODULE), &[("bgpd", &router)]);
    let announce = " address-family ipv4 unicast\n  network 198.51.100.0/24\n exit-address-family\n";
    let start = |n: usize| {
        let text = bgp(11 + n as u16, 1, announce).replace(&format!("router bgp {}", 65_011 + n), "router bgp 65002");
        Frr::start(&lab.scratch, &neighbors.namespaces[n], &[("bgpd", &text)])
    };
    let mut daemons: Vec<Option<Frr<'_>>> = (0..3).map(|n| Some(start(n))).collect();
    until_route(&lab, "198.51.100.0/24", Some("fpm via 10.2.0.11*1 10.2.0.12*1 10.2.0.13*1"));
    // so that no packet waits for a MAC address
    assert!(["10.2.0.11", "10.2.0.12", "10.2.0.13"].iter().all(|address| lab.a.reaches(address)));
    let before = neighbors.of_flows();
    let flows_of = |flows: &BTreeMap<u16, usize>, n: usize| flows.values().filter(|owner| **owner == n).count();
    let shares = [0, 1, 2].map(|n| flows_of(&before, n));
    assert!(shares.iter().all(|n| *n > 120), "{shares:?}");
    // those that stay where they are, of the flows of living next hops
    let stay = |now: &BTreeMap<u16, usize>, dead: usize| {
        let alive = before.iter().filter(|(_, owner)| **owner != dead);
        let (mut all, mut same) = (0, 0);
        for (port, owner) in alive {
            all += 1;
            same += usize::from(now[port] == *owner);
        }
        (same, all)
    };

    // its bgpd is killed
    drop(daemons[1].take());
    until_route(&lab, "198.51.100.0/24", Some("fpm via 10.2.0.11*1 10.2.0.13*1"));
    let now = neighbors.of_flows();
    let (same, all) = stay(&now, 1);
    println!(
        "bgpd killed: {shares:?} flows became {:?}; {same} of {all} others stayed",
        [0, 1, 2].map(|n| flows_of(&now, n))
    );
    assert_eq!(flows_of(&now, 1), 0);
    assert!(same * 100 > all * 75 && flows_of(&now, 0) > 180 && flows_of(&now, 2) > 180, "{same} of {all}");
    daemons[1] = Some(start(1));
    until_route(&lab, "198.51.100.0/24", Some("fpm via 10.2.0.11*1 10.2.0.12*1 10.2.0.13*1"));
    let again = neighbors.of_flows();
    assert!(again == before, "flows return to the next hops that they had");

    // its link is lost
    lab.b.ip("link set to2 down");
    until_route(&lab, "198.51.100.0/24", Some("fpm via 10.2.0.11*1 10.2.0.12*1"));
    let now = neighbors.of_flows();
    let (same, all) = stay(&now, 2);
    println!("link lost: {:?}; {same} of {all} others stayed", [0, 1, 2].map(|n| flows_of(&now, n)));
    assert!(flows_of(&now, 2) == 0 && same * 100 > all * 75, "{same} of {all}");
    drop(daemons);
    lab.stop(&["no_route"]);
}

/// Thousands of prefixes are announced and withdrawn again and again, while packets follow others.
#[test]
fn a_storm_of_flaps_loses_no_packets_of_stable_routes() {
    const FLAPPING: u32 = 4000;
    const STABLE: u8 = 16;
    let _one = alone();
    if !possible(&["ping", "bird"]) || !frr::installed() {
        return;
    }
    let lab = Lab::start("storm", "fpm = { namespace = \"CONTROL\" }");
    let Lab { scratch, a, b, control, .. } = &lab;
    // inside of the flapping ones, so that a packet that misses its route is forwarded by one of them to nowhere
    let flapping: Vec<String> =
        (0..FLAPPING).map(|n| format!("{}/28", std::net::Ipv4Addr::from_bits(0xc612_0000 + (n << 4)))).collect();
    let stable: Vec<String> = (0..STABLE).map(|n| format!("198.18.{n}.5")).collect();
    for address in &stable {
        b.ip(&format!("addr add {address}/32 dev lo"));
    }
    let of = |prefixes: &[String], end: &str| {
        prefixes.iter().map(|p| format!("route {p}{end} blackhole;\n")).collect::<String>()
    };
    let configuration = format!(
        "router id 10.2.0.2;\nprotocol device {{}}\nprotocol static stable {{ ipv4; {} }}\n\
         protocol static flapping {{ ipv4; {} }}\n\
         protocol bgp control {{ local 10.2.0.2 as 65002; neighbor 10.2.0.1 as 65001; connect retry time 1;\n\
         ipv4 {{ import none; export all; next hop self; }}; }}\n",
        of(&stable, "/32"),
        of(&flapping, "")
    );
    let (file, ctl) = (scratch.write("bird.conf", configuration), scratch.path("bird.ctl"));
    let _frr = Frr::start_zebra(scratch, control, (ZEBRA, MODULE), &[("bgpd", &bgp(1, 2, ""))]);
    let _bird = Running::start(b.command("bird").arg("-f").arg("-c").arg(&file).arg("-s").arg(&ctl));
    // and the link-local network
    let all = u64::from(FLAPPING) + u64::from(STABLE);
    let installed = || count(&lab, "installed_routes");
    until("all routes", || (all..all + 5).contains(&installed()));
    assert!(stable.iter().all(|address| a.reaches(address)));

    let receivers: Vec<UdpSocket> = stable.iter().map(|address| socket(b, &format!("{address}:9"))).collect();
    let ended = AtomicBool::new(false);
    let (sent, received, counts) = std::thread::scope(|scope| {
        let receive = |receiver: UdpSocket| {
            scope.spawn({
                let ended = &ended;
                move || {
                    let mut received = 0u64;
                    // the timeout of a read after the end is the end of what is on its way
                    loop {
                        let is_last = ended.load(Ordering::Acquire);
                        match receiver.recv_from(&mut [0; 16]) {
                            Ok(_) => received += 1,
                            Err(_) if is_last => return received,
                            Err(_) => {}
                        }
                    }
                }
            })
        };
        let receiving: Vec<_> = receivers.into_iter().map(receive).collect();
        let sending = scope.spawn(|| {
            let sender = socket(a, "10.1.0.2:0");
            let mut sent = 0u64;
            while !ended.load(Ordering::Acquire) {
                for address in &stable {
                    sender.send_to(b"stable", (address.as_str(), 9)).unwrap();
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        let mut counts = vec![];
        for _ in 0..8 {
            for verb in ["disable", "enable"] {
                done(Command::new("birdc").arg("-s").arg(&ctl).args([verb, "flapping"]));
                std::thread::sleep(Duration::from_millis(150));
                counts.push(installed());
            }
        }
        until("all routes again", || (all..all + 5).contains(&installed()));
        ended.store(true, Ordering::Release);
        let received: u64 = receiving.into_iter().map(|thread| thread.join().unwrap()).sum();
        (sending.join().unwrap(), received, counts)
    });
    println!("{sent} packets, {received} received; routes meanwhile: {counts:?}");
    assert!(sent > 1000 && received == sent, "{received} of {sent} received; routes meanwhile: {counts:?}");
    assert!(counts.iter().any(|n| *n < all), "{counts:?}");
    let list = command(&scratch.path("sockets"), &["routes", "list", "router", "--json", "--limit", "0"]);
    let list: Value = serde_json::from_str(&list.out).unwrap();
    let mut found: Vec<&str> = list["routes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|route| route["source"] == "fpm" && route["via"][0]["address"] == "10.2.0.2")
        .map(|route| route["prefix"].as_str().unwrap())
        .collect();
    let hosts: Vec<String> = stable.iter().map(|address| format!("{address}/32")).collect();
    let mut expected: Vec<&str> = flapping.iter().chain(&hosts).map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected, "{} routes, not {}", found.len(), expected.len());
    lab.stop(&[]);
}

/// With `bgp suppress-fib-pending`, a route is announced to others once the router forwards by it, and not while its table
/// is full.
#[test]
fn only_installed_routes_are_announced() {
    let _one = alone();
    if !possible(&["ping"]) || !frr::installed() {
        return;
    }
    let version = frr::version();
    if version < (8, 5) {
        eprintln!("skipped: FRR {}.{} does not read FPM answers", version.0, version.1);
        return;
    }
    // the networks of both interfaces are among zebra's routes
    let lab = Lab::start("pending", "fpm = { namespace = \"CONTROL\", prefixes = [\"198.51.2.0/24\"] }");
    let Lab { scratch, a, b, control, .. } = &lab;
    let third = " neighbor 10.1.0.2 remote-as 65003\n neighbor 10.1.0.2 timers connect 1\n bgp suppress-fib-pending\n";
    let arguments = [MODULE, &["--asic-offload=notify_on_offload"]].concat();
    let router = Frr::start_zebra(scratch, control, (ZEBRA, &arguments), &[("bgpd", &bgp(1, 2, third))]);
    let networks =
        " address-family ipv4 unicast\n  network 198.51.2.0/24\n  network 198.51.3.0/24\n exit-address-family\n";
    let _neighbor = Frr::start(scratch, b, &[("bgpd", &bgp(2, 1, networks))]);
    let other = "router bgp 65003\n bgp router-id 10.1.0.2\n no bgp ebgp-requires-policy\n \
         neighbor 10.1.0.1 remote-as 65001\n neighbor 10.1.0.1 timers connect 1\n";
    let other = Frr::start(scratch, a, &[("bgpd", other)]);
    let has = |frr: &Frr<'_>, prefix: &str| frr.show("show bgp ipv4 unicast json")["routes"].get(prefix).is_some();
    until_route(&lab, "198.51.2.0/24", Some("fpm via 10.2.0.2*1"));
    until("the installed route at the other neighbor", || has(&other, "198.51.2.0/24"));
    // the router has both, of which one is refused
    until("both routes at the router", || has(&router, "198.51.2.0/24") && has(&router, "198.51.3.0/24"));
    let pending = || router.show("show ip route 198.51.3.0/24 json")["198.51.3.0/24"][0].clone();
    until("an answer to the refused route", || pending()["offloaded"] == false || pending()["installed"].is_null());
    for _ in 0..10 {
        assert!(!has(&other, "198.51.3.0/24"), "{}", pending());
        std::thread::sleep(Duration::from_millis(200));
    }
    let said = lab.reload(&[("\"198.51.2.0/24\"", "\"198.51.0.0/16\"")]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    until_route(&lab, "198.51.3.0/24", Some("fpm via 10.2.0.2*1"));
    until("the route that is installed now at the other neighbor", || has(&other, "198.51.3.0/24"));
    drop((router, other));
    lab.stop(&["no_route"]);
}
