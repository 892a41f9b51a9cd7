//! Translation between IPv6 hosts and the IPv4 world, between real kernels: what ping, curl, dig, iperf3, traceroute say of it.

use crate::common::alone;
use crate::common::gateway::{accounted, dns, example, plug, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Running, Scratch, Summary};

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "iperf3", "traceroute"];
/// 198.51.100.7, as hosts of IPv6 see it.
const SERVER: &str = "64:ff9b::c633:6407";
/// 192.0.2.1, as hosts of IPv6 see it.
const NEAR: &str = "64:ff9b::c000:201";

/// The example between hosts that have IPv6 alone and a server that has IPv4 alone.
struct Lab {
    home: Namespace,
    world: Namespace,
    _between: Namespace,
    bondstone: Running,
    scratch: Scratch,
}

impl Lab {
    /// `change` is done to the example's file before.
    fn start(name: &str, change: impl Fn(String) -> String) -> Lab {
        let scratch = Scratch::new();
        let [home, world, between] = ["home", "world", "m"].map(|n| Namespace::new(&format!("{name}-{n}")));
        let file = example(&scratch, "nat64.toml");
        std::fs::write(&file, change(std::fs::read_to_string(&file).unwrap())).unwrap();
        world.mute();
        let bondstone = start(&between, &file);
        plug(&between, "lan0", &home, &["2001:db8:1::10/64", "2001:db8:1::11/64"]);
        plug(&between, "wan0", &world, &["192.0.2.1/24", "198.51.100.7/32"]);
        home.ip("-6 route add default via 2001:db8:1::1");
        world.ip("route add 203.0.113.16/28 via 192.0.2.2");
        assert_eq!(home.ip("-4 addr show dev lan0"), "", "it has IPv6 alone");
        Lab { home, world, _between: between, bondstone, scratch }
    }

    /// What the program did: every packet is accounted for, and none was lost by a fault.
    fn end(self) -> Summary {
        let did = self.bondstone.terminate().summary(130);
        accounted(&did);
        let nat = did.nf("nat");
        let faults = ["vanished", "no_edge", "nf_panic", "malformed_ip", "bad_icmp_error", "no_room", "no_checksum"];
        assert!(faults.iter().all(|reason| nat.0["drops"].get(reason).is_none()), "{}", nat.0);
        did
    }
}

#[test]
fn hosts_of_ipv6_reach_the_world_of_ipv4() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let lab = Lab::start("nat64", |text| text);
    let (home, world) = (&lab.home, &lab.world);
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", SERVER]));
    let outside = Web::start(&lab.scratch, world, "outside", 5 << 20);
    outside.fetch(home, &format!("[{SERVER}]:8080"));
    let flows = iperf3(home, world, &format!("-c {SERVER} -t 2 -P 4"), "/end/sum_received/bytes");
    iperf3(home, world, &format!("-c {SERVER} -t 2 -R"), "/end/sum_received/bytes");
    // by the address from which the server answers UDP
    let back = iperf3(home, world, &format!("-c {NEAR} -t 1 -u -b 5M -R"), "/end/sum/packets");
    assert_eq!(back["end"]["sum"]["lost_packets"], 0, "UDP from the world");
    // errors about what was sent find who has sent it: nobody listens there, and the way is shown
    let refused =
        home.command("curl").args(["-sS", "--max-time", "5", &format!("http://[{SERVER}]:9/")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    let way = done(home.command("traceroute").args(["-6", "-n", "-q", "1", "-w", "5", "-m", "6", SERVER]));
    let way = String::from_utf8_lossy(&way.stdout).into_owned();
    // router, translation, router, server
    let hops: Vec<_> = way.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, ["2001:db8:1::1", "64:ff9b::cb00:7110", "64:ff9b::c0a8:4002", SERVER], "{way}");
    // what is longer than a frame goes in fragments, both ways
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", "-s", "4000", SERVER]));
    if possible(&["dnsmasq"]) && possible(&["dig"]) {
        let _server = dns(world, "198.51.100.7");
        let asked = home
            .command("dig")
            .args(["+short", "+tries=10", "+time=1", &format!("@{NEAR}"), "www.example"])
            .output()
            .unwrap();
        // the first times may have been too early
        assert_eq!(String::from_utf8_lossy(&asked.stdout).lines().last(), Some("198.51.100.7"));
    }
    // in only by what is forwarded, also from a neighbour by the external address
    let inside = Web::start(&lab.scratch, home, "inside", 1 << 20);
    inside.fetch(world, "203.0.113.16:8080");
    let got = inside.fetched(home, "[64:ff9b::203.0.113.16]:8080", &["--interface", "2001:db8:1::11"]);
    assert_eq!(got.len(), 1 << 20);
    let closed = world.command("curl").args(["-sS", "--max-time", "2", "http://203.0.113.16:8081/"]).output().unwrap();
    assert!(!closed.status.success(), "nobody has forwarded this");

    let did = lab.end();
    let nat = did.nf("nat");
    let count = |name: &str| nat.number(&format!("/counters/{name}"));
    assert!(count("begun") > 10 && count("fragments") > 0 && count("cut") > 0 && count("hairpinned") > 10, "{}", nat.0);
    assert!(count("icmp_sent") >= 1, "{}", nat.0);
    eprintln!("4 TCP flows carried {} bytes in 2 s", flows["end"]["sum_received"]["bytes"]);
}

#[test]
fn the_length_of_a_path_is_learnt_through_it() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let wan = "interface.wan = { addresses = [\"192.0.2.2/24\"],";
    let lab = Lab::start("pmtu", |text| {
        assert!(text.contains(wan));
        text.replace(wan, &format!("{wan} mtu = 1400,"))
    });
    let (home, world) = (&lab.home, &lab.world);
    // whole packets of 1500 bytes leave home first, and are refused
    iperf3(home, world, &format!("-c {SERVER} -t 2"), "/end/sum_received/bytes");
    let route = home.ip(&format!("-6 route get {SERVER}"));
    assert!(route.contains("mtu 1420"), "20 bytes more than 1400: {route}");
    let outside = Web::start(&lab.scratch, world, "outside", 1 << 20);
    outside.fetch(home, &format!("[{SERVER}]:8080"));
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", "-s", "3000", SERVER]));
    lab.end();
}
