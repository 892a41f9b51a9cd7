//! `nat64` gateway Linux hosts, with ping, curl, dig, iperf3 and traceroute.

use crate::common::alone;
use crate::common::gateway::{accounted, dns, example, plug, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Running, Scratch, Summary};

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "iperf3", "traceroute"];
/// 198.51.100.7, embedded in the well-known prefix.
const SERVER: &str = "64:ff9b::c633:6407";
/// 192.0.2.1, embedded in the well-known prefix.
const NEAR: &str = "64:ff9b::c000:201";

/// The example gateway IPv6-only hosts and an IPv4-only server.
struct Lab {
    home: Namespace,
    remote: Namespace,
    _gateway: Namespace,
    bondstone: Running,
    scratch: Scratch,
}

impl Lab {
    /// Starts the example after applying `change` to its text.
    fn start(name: &str, change: impl Fn(String) -> String) -> Lab {
        let scratch = Scratch::new();
        let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("{name}-{n}")));
        let file = example(&scratch, "nat64.toml");
        std::fs::write(&file, change(std::fs::read_to_string(&file).unwrap())).unwrap();
        remote.mute();
        let bondstone = start(&gateway, &file);
        plug(&gateway, "lan0", &home, &["2001:db8:1::10/64", "2001:db8:1::11/64"]);
        plug(&gateway, "wan0", &remote, &["192.0.2.1/24", "198.51.100.7/32"]);
        home.ip("-6 route add default via 2001:db8:1::1");
        remote.ip("route add 203.0.113.16/28 via 192.0.2.2");
        assert_eq!(home.ip("-4 addr show dev lan0"), "", "an IPv6-only host");
        Lab { home, remote, _gateway: gateway, bondstone, scratch }
    }

    /// Stops the program, checks that every packet is accounted for and none was dropped by a fault, and returns the
    /// summary.
    fn end(self) -> Summary {
        let summary = self.bondstone.terminate().summary(130);
        accounted(&summary);
        let nat = summary.nf("nat");
        let faults = ["vanished", "no_edge", "nf_panic", "malformed_ip", "bad_icmp_error", "no_buffer", "no_checksum"];
        assert!(faults.iter().all(|reason| nat.0["drops"].get(reason).is_none()), "{}", nat.0);
        summary
    }
}

#[test]
fn ipv6_hosts_reach_ipv4_servers() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let lab = Lab::start("nat64", |text| text);
    let (home, remote) = (&lab.home, &lab.remote);
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", SERVER]));
    let outside = Web::start(&lab.scratch, remote, "outside", 5 << 20);
    outside.fetch(home, &format!("[{SERVER}]:8080"));
    let flows = iperf3(home, remote, &format!("-c {SERVER} -t 2 -P 4"), "/end/sum_received/bytes");
    iperf3(home, remote, &format!("-c {SERVER} -t 2 -R"), "/end/sum_received/bytes");
    // the server answers UDP from this address
    let back = iperf3(home, remote, &format!("-c {NEAR} -t 1 -u -b 5M -R"), "/end/sum/packets");
    assert_eq!(back["end"]["sum"]["lost_packets"], 0, "UDP from outside");
    // ICMP errors reach the sender: port unreachable, and traceroute
    let refused =
        home.command("curl").args(["-sS", "--max-time", "5", &format!("http://[{SERVER}]:9/")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
    let route = done(home.command("traceroute").args(["-6", "-n", "-q", "1", "-w", "5", "-m", "6", SERVER]));
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    // router, translator, router, server
    let hops: Vec<_> = route.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, ["2001:db8:1::1", "64:ff9b::cb00:7110", "64:ff9b::c0a8:4002", SERVER], "{route}");
    // packets longer than the MTU are fragmented in both directions
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", "-s", "4000", SERVER]));
    if possible(&["dnsmasq"]) && possible(&["dig"]) {
        let _server = dns(remote, "198.51.100.7");
        let reply = home
            .command("dig")
            .args(["+short", "+tries=10", "+time=1", &format!("@{NEAR}"), "www.example"])
            .output()
            .unwrap();
        // the server may not have been ready for the first attempts
        assert_eq!(String::from_utf8_lossy(&reply.stdout).lines().last(), Some("198.51.100.7"));
    }
    // inbound sessions only through port forwards, also from another inside host through the external address
    let inside = Web::start(&lab.scratch, home, "inside", 1 << 20);
    inside.fetch(remote, "203.0.113.16:8080");
    let got = inside.fetched(home, "[64:ff9b::203.0.113.16]:8080", &["--interface", "2001:db8:1::11"]);
    assert_eq!(got.len(), 1 << 20);
    let closed = remote.command("curl").args(["-sS", "--max-time", "2", "http://203.0.113.16:8081/"]).output().unwrap();
    assert!(!closed.status.success(), "the port is not forwarded");

    let summary = lab.end();
    let nat = summary.nf("nat");
    let count = |name: &str| nat.number(&format!("/counters/{name}"));
    assert!(
        count("created") > 10 && count("fragments") > 0 && count("fragmented") > 0 && count("hairpinned") > 10,
        "{}",
        nat.0
    );
    assert!(count("icmp_sent") >= 1, "{}", nat.0);
    eprintln!("4 TCP flows carried {} bytes in 2 s", flows["end"]["sum_received"]["bytes"]);
}

#[test]
fn path_mtu_discovery() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let wan = "interface.wan = { addresses = [\"192.0.2.2/24\"],";
    let lab = Lab::start("pmtu", |text| {
        assert!(text.contains(wan));
        text.replace(wan, &format!("{wan} mtu = 1400,"))
    });
    let (home, remote) = (&lab.home, &lab.remote);
    // the first packets have 1500 bytes and are too big
    iperf3(home, remote, &format!("-c {SERVER} -t 2"), "/end/sum_received/bytes");
    let route = home.ip(&format!("-6 route get {SERVER}"));
    assert!(route.contains("mtu 1420"), "20 bytes more than 1400: {route}");
    let outside = Web::start(&lab.scratch, remote, "outside", 1 << 20);
    outside.fetch(home, &format!("[{SERVER}]:8080"));
    done(home.command("ping").args(["-6", "-n", "-c", "3", "-i", "0.1", "-w", "20", "-s", "3000", SERVER]));
    lab.end();
}
