//! `nat44` gateway Linux hosts, with curl, iperf3, dig, ping and traceroute.

use crate::common::alone;
use crate::common::gateway::{accounted, dns, example, plug, start};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{Scratch, Summary};

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "iperf3", "traceroute"];

/// Returns true if an HTTP server answers on this port.
fn reachable(client: &Namespace, host: &str) -> bool {
    let url = format!("http://{host}/content");
    let output = client.command("curl").args(["-sS", "-o", "/dev/null", "--max-time", "3", &url]).output().unwrap();
    output.status.success()
}

#[test]
fn home_gateway() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [home, remote, gateway] = ["home", "remote", "m"].map(|n| Namespace::new(&format!("gate-{n}")));
    let bondstone = start(&gateway, &example(&scratch, "home-gateway.toml"));
    plug(&gateway, "lan0", &home, &["192.168.1.10/24", "192.168.1.11/24"]);
    plug(&gateway, "wan0", &remote, &["203.0.113.1/24", "198.51.100.7/32"]);
    home.ip("route add default via 192.168.1.1");

    // outbound sessions and their replies
    for host in ["203.0.113.1", "198.51.100.7"] {
        done(home.command("ping").args(["-n", "-c", "3", "-i", "0.1", "-w", "100", host]));
    }
    let outside = Web::start(&scratch, &remote, "outside", 5 << 20);
    outside.fetch(&home, "198.51.100.7:8080");
    let flows = iperf3(&home, &remote, "-c 198.51.100.7 -t 2 -P 4", "/end/sum_received/bytes");
    let back = iperf3(&home, &remote, "-c 203.0.113.1 -t 1 -u -b 5M -R", "/end/sum/packets");
    let back = Summary(back["end"]["sum"].clone());
    // queues overflow on a busy machine
    assert!(back.number("/lost_packets") < back.number("/packets"), "UDP from outside: {}", back.0);
    // no inside address is visible outside
    let server = remote.command("sh").args(["-c", "ss -tnH | grep -c 192.168 ; true"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&server.stdout).trim(), "0");
    // ICMP errors reach the sender: port unreachable, and traceroute
    let refused = home.command("curl").args(["-sS", "--max-time", "60", "http://198.51.100.7:9/"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refused") || refused.status.code() == Some(7));
    let route = done(home.command("traceroute").args(["-n", "-q", "1", "-w", "60", "-m", "4", "198.51.100.7"]));
    let route = String::from_utf8_lossy(&route.stdout).into_owned();
    assert!(
        route.contains("192.168.1.1 ") && route.lines().last().is_some_and(|l| l.contains("198.51.100.7")),
        "{route}"
    );
    // packets longer than the MTU are fragmented in both directions
    done(home.command("ping").args(["-n", "-c", "3", "-i", "0.1", "-w", "100", "-s", "4000", "198.51.100.7"]));
    if possible(&["dnsmasq"]) && possible(&["dig"]) {
        let _server = dns(&remote, "198.51.100.7");
        let reply = home
            .command("dig")
            .args(["+short", "+tries=30", "+time=2", "@203.0.113.1", "www.example"])
            .output()
            .unwrap();
        // the server may not have been ready for the first attempts
        assert_eq!(String::from_utf8_lossy(&reply.stdout).lines().last(), Some("198.51.100.7"));
    }

    // inbound sessions only through port forwards; the address itself answers echoes
    let inside = Web::start(&scratch, &home, "inside", 1 << 20);
    inside.fetch(&remote, "203.0.113.2:8080");
    assert!(!reachable(&remote, "203.0.113.2:8081"), "the port is not forwarded");
    done(remote.command("ping").args(["-n", "-c", "2", "-i", "0.1", "-w", "100", "203.0.113.2"]));

    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    let nat = summary.nf("nat");
    assert!(nat.number("/counters/created") > 10 && nat.number("/counters/fragments") > 0, "{}", nat.0);
    let vanished = ["vanished", "no_edge", "nf_panic", "malformed_ip", "bad_icmp_error"];
    assert!(vanished.iter().all(|reason| nat.0["drops"].get(reason).is_none()), "{}", nat.0);
    eprintln!("4 TCP flows carried {} bytes in 2 s", flows["end"]["sum_received"]["bytes"]);
}

#[test]
fn carrier_nat_with_port_blocks() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let [homes, remote, gateway] = ["homes", "remote", "m"].map(|n| Namespace::new(&format!("carrier-{n}")));
    let bondstone = start(&gateway, &example(&scratch, "carrier-nat.toml"));
    let subscribers = ["100.64.0.10", "100.64.0.11", "100.64.7.12", "100.71.0.13"];
    let addresses = subscribers.map(|a| format!("{a}/10"));
    plug(&gateway, "inside0", &homes, &addresses.each_ref().map(String::as_str));
    plug(&gateway, "outside0", &remote, &["192.0.2.1/24", "198.51.100.7/32"]);
    homes.ip("route add default via 100.64.0.1");
    remote.ip("route add 203.0.113.0/28 via 192.0.2.2");

    let web = Web::start(&scratch, &remote, "web", 1 << 20);
    for subscriber in subscribers {
        let got = web.fetched(&homes, "198.51.100.7:8080", &["--interface", subscriber]);
        assert_eq!(got.len(), 1 << 20);
        done(homes.command("ping").args(["-n", "-c", "2", "-i", "0.1", "-w", "100", "-I", subscriber, "198.51.100.7"]));
    }
    let words = "-c 198.51.100.7 -t 1 -P 8 -B 100.64.0.11";
    iperf3(&homes, &remote, words, "/end/sum_received/bytes");
    let summary = bondstone.terminate().summary(130);
    accounted(&summary);
    let nat = summary.nf("nat");
    assert_eq!(nat.number("/counters/subscribers"), 4, "{}", nat.0);
    assert!(nat.number("/counters/blocks") >= 4 && nat.number("/counters/created") >= 4 * 2 + 9, "{}", nat.0);
}

/// A log of translations is a legal record: what no server received is counted.
#[test]
fn counts_log_records_that_a_closed_server_did_not_receive() {
    const SESSIONS: u16 = 500;
    let _one = alone();
    let scratch = Scratch::new();
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for port in 0..SESSIONS {
        let frame = wire::build::udp4([10, 0, 0, 1], [198, 51, 100, 1], 2000 + port, 53).pad_to(60).to_vec();
        writer.write(u64::from(port) * 100_000, 60, &frame).unwrap();
    }
    writer.finish().unwrap();
    // a port that is free now
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let file = |log: &str| {
        scratch.write(
            "nat.toml",
            format!(
                "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\ntimed = true\n[port.out]\ndevice = \"null\"\n\
                 [nf.nat]\nkind = \"nat44\"\nexternal = [\"203.0.113.1\"]\nlog = \"{log}\"\n\
                 [[chain]]\npath = [\"in\", \"nat\", \"out\"]\n"
            ),
        )
    };
    let logs = [address.to_string(), format!("ipfix://{address}")];
    let lost = |log: &str| {
        let summary = crate::common::sandboxed_run::run(&file(log)).summary(0);
        let nat = summary.nf("nat");
        assert_eq!(nat.number("/counters/sessions"), u64::from(SESSIONS), "{}", summary.0);
        nat.number("/counters/log_lost")
    };
    assert_eq!(logs.each_ref().map(|log| lost(log)), [0u64, 0], "to a server");
    drop(server);
    assert_eq!(logs.each_ref().map(|log| lost(log)), [u64::from(SESSIONS); 2], "to a closed server");
}
