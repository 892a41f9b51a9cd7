//! Routers and firewalls between Linux network stacks, tested with ping, traceroute, curl and iperf3.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::traffic::{Web, iperf3};
use crate::common::{LIMIT, Running, Scratch, Summary};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Instant;
use wire::{EtherType, IpProtocol, MacAddr, build, ethernet, ipv4, ipv6};

const TOOLS: [&str; 5] = ["ping", "curl", "nginx", "iperf3", "traceroute"];
/// MAC address of the router's interface that hosts in the namespace `a` see.
const LAN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
/// MAC address of the router's interface that hosts in the namespace `b` see.
const WAN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 2, 0]);
/// Addresses of the host `a`.
const A: [&str; 2] = ["10.1.0.2", "fd01::2"];
/// Addresses of the host `b`.
const B: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// Addresses of the host `b` in URLs.
const B_URL: [&str; 2] = ["10.2.0.2", "[fd02::2]"];

/// Two hosts in namespaces: `a` with 10.1.0.2 and fd01::2, `b` with 10.2.0.2 and fd02::2.
struct Hosts {
    a: Namespace,
    b: Namespace,
}

impl Hosts {
    fn new(name: &str) -> Self {
        let [a, b] = ["a", "b"].map(|side| Namespace::new(&format!("{name}-{side}")));
        Hosts { a, b }
    }

    /// Configures the addresses of existing interfaces, and default routes via the router.
    fn configure(&self) {
        for (n, host, interface) in [(1, &self.a, "a0"), (2, &self.b, "b0")] {
            host.configure(interface, &[&format!("10.{n}.0.2/24"), &format!("fd0{n}::2/64")]);
            host.ip(&format!("route add default via 10.{n}.0.1"));
            host.ip(&format!("route add default via fd0{n}::1"));
        }
    }
}

/// Returns a namespace whose kernel sends no packets of its own.
fn silent_namespace(name: &str) -> Namespace {
    let namespace = Namespace::new(name);
    namespace.mute();
    namespace
}

/// Starts Bondstone in a namespace.
fn start(namespace: &Namespace, file: PathBuf) -> Running {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut running = Running::start(command.arg("run").arg(file).arg("--json"));
    running.started();
    running
}

/// Stops Bondstone and returns its summary.
#[track_caller]
fn stop(bondstone: Running) -> Summary {
    bondstone.terminate().summary(130)
}

/// Returns the settings of the router's interfaces.
fn interfaces() -> String {
    format!(
        "interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], mac = \"{LAN_MAC}\" }}\n\
         interface.wan = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], mac = \"{WAN_MAC}\" }}\n"
    )
}

/// Ports of the router.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortKind {
    /// Veth pairs, by AF_PACKET.
    AfPacket,
    /// TAP interfaces, moved into the namespaces of the hosts.
    Tap,
}

/// A router between two hosts.
struct SingleRouter {
    hosts: Hosts,
    _namespace: Namespace,
    bondstone: Running,
}

impl SingleRouter {
    /// Starts a router with these paths; `more` is appended to its settings.
    fn start(scratch: &Scratch, name: &str, kind: PortKind, paths: [&str; 2], more: &str) -> SingleRouter {
        let hosts = Hosts::new(name);
        let namespace = silent_namespace(&format!("{name}-r"));
        if kind == PortKind::AfPacket {
            for (near, there, far) in [("lan", &hosts.a, "a0"), ("wan", &hosts.b, "b0")] {
                namespace.link(near, there, far);
                namespace.raise(near);
            }
        }
        let (devices, cores) = match kind {
            PortKind::AfPacket => (["af_packet:lan", "af_packet:wan"], [0, 1]),
            PortKind::Tap => (["tap:a0", "tap:b0"], [0, 0]),
        };
        let text = format!(
            "bondstone = 1\nport.lan.device = {:?}\nport.wan.device = {:?}\n\
             chain = [{{ path = {}, cores = [{}] }}, {{ path = {}, cores = [{}] }}]\n\
             [nf.router]\nkind = \"l3fwd\"\n{}{more}",
            devices[0],
            devices[1],
            paths[0],
            cores[0],
            paths[1],
            cores[1],
            interfaces()
        );
        let bondstone = start(&namespace, scratch.write("router.toml", text));
        if kind == PortKind::Tap {
            for (interface, host) in [("a0", &hosts.a), ("b0", &hosts.b)] {
                namespace.ip(&format!("link set {interface} netns {}", host.0));
            }
        }
        hosts.configure();
        SingleRouter { hosts, _namespace: namespace, bondstone }
    }
}

/// Paths of a router without other NFs.
const ROUTER_ONLY: [&str; 2] = [r#"["lan", "router"]"#, r#"["wan", "router"]"#];

/// Runs ping and returns true if a reply was received, and its output.
fn ping(from: &Namespace, args: &str) -> (bool, String) {
    let output = from.command("ping").arg("-n").args(args.split(' ')).output().unwrap();
    (output.status.success(), [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat())
}

/// Asserts that five pings are answered.
#[track_caller]
fn ping_succeeds(from: &Namespace, args: &str) {
    ping_five(from, args);
}

/// Asserts that five pings are answered, and returns the number of requests sent, which is larger if replies are late.
#[track_caller]
fn ping_five(from: &Namespace, args: &str) -> u64 {
    let (all, output) = ping(from, &format!("-c 5 -i 0.1 -w 100 {args}"));
    assert!(all, "{args}: {output}");
    let sent = output.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse().ok());
    sent.unwrap_or_else(|| panic!("{args}: {output}"))
}

/// Asserts that a ping fails with this message.
#[track_caller]
fn ping_fails(from: &Namespace, args: &str, message: &str) {
    let (any, output) = ping(from, &format!("-c 1 -W 60 {args}"));
    assert!(!any && output.contains(message), "{args}: {output}");
}

/// Asserts that three pings are neither answered nor rejected by an ICMP error.
#[track_caller]
fn ping_times_out(from: &Namespace, args: &str) {
    let (_, output) = ping(from, &format!("-c 3 -i 0.1 -W 1 {args}"));
    assert!(output.contains("3 packets transmitted, 0 received, 100% packet loss"), "{args}: {output}");
}

/// Asserts that connections to a host and port, such as `10.2.0.2:8081`, time out.
#[track_caller]
fn connect_times_out(client: &Namespace, host: &str) {
    /// Exit status of curl on a timeout.
    const TIMED_OUT: i32 = 28;
    let url = format!("http://{host}/content");
    let output = client.command("curl").args(["-sS", "-o", "/dev/null", "--max-time", "2", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(TIMED_OUT), "{host}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the packets of each rule of a firewall.
fn rule_counters(firewall: &Summary, rules: &[&str]) -> Vec<u64> {
    let count = |(n, rule)| firewall.0["counters"][format!("{} {rule}", n + 1)].as_u64();
    (0..).zip(rules).map(|rule| count(rule).unwrap_or_else(|| panic!("{rule:?}: {}", firewall.0))).collect()
}

/// Returns the hops that traceroute prints.
fn hops(from: &Namespace, args: &str) -> Vec<String> {
    let mut command = from.command("traceroute");
    let output = done(command.args(["-n", "-q", "1", "-N", "1", "-w", "60", "-m", "6"]).args(args.split(' ')));
    let output = String::from_utf8(output.stdout).unwrap();
    output.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// Returns an IPv6 counter of a namespace, such as `Ip6InMcastPkts`.
fn snmp6(namespace: &Namespace, name: &str) -> u64 {
    let text = String::from_utf8(done(namespace.command("cat").arg("/proc/net/snmp6")).stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

/// Returns the packets from `a` to `b` that the kernel dropped in full queues of CPUs, interfaces and IPv6 sockets.
fn lost_in_kernel(Hosts { a, b }: &Hosts) -> u64 {
    let queues = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let interface = |host: &Namespace, count: &str| {
        let text = done(host.command("cat").arg(format!("/sys/class/net/{count}"))).stdout;
        String::from_utf8(text).unwrap().trim().parse::<u64>().unwrap()
    };
    queues.lines().map(dropped).sum::<u64>()
        + interface(a, "a0/statistics/tx_dropped")
        + interface(b, "b0/statistics/rx_dropped")
        + snmp6(b, "Udp6RcvbufErrors")
}

/// Asserts that a router dropped packets for no other reasons.
#[track_caller]
fn assert_only_drops(router: &Summary, reasons: &[&str]) {
    let dropped: Vec<_> = router.0["drops"].as_object().map_or(vec![], |d| d.keys().collect());
    assert!(dropped.iter().all(|r| reasons.contains(&r.as_str())), "{}", router.0);
}

/// Tests forwarding, ICMP and the counters of a router between two hosts.
fn test_router(name: &str, kind: PortKind, table: &str) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let SingleRouter { hosts, _namespace, bondstone } =
        SingleRouter::start(&scratch, name, kind, ROUTER_ONLY, &format!("table = {table:?}\n"));
    let Hosts { a, b } = &hosts;
    for family in [0, 1] {
        ping_succeeds(a, B[family]);
        ping_succeeds(b, A[family]);
    }
    // own addresses, also those of the other interface
    for own in ["10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1", "fe80::ff:fe00:100%a0"] {
        ping_succeeds(a, own);
    }
    assert!(a.ip("neigh show 10.1.0.1").contains(&LAN_MAC.to_string()));
    assert!(b.ip("neigh show fd02::1").contains(&WAN_MAC.to_string()));

    let web = Web::start(&scratch, b, "nginx", 4 << 20);
    for host in B_URL {
        web.fetch(a, &format!("{host}:8080"));
    }
    let tcp = iperf3(a, b, "-c 10.2.0.2 -t 1", "/end/sum_received/bytes");
    // so few packets that no queue fills, even on a busy machine
    let before = lost_in_kernel(&hosts);
    let udp = iperf3(a, b, "-c fd02::2 -u -b 10M -t 2", "/end/sum/packets");
    let kernel = lost_in_kernel(&hosts) - before;
    let udp = Summary(udp["end"]["sum"].clone());
    let (sent, lost) = (udp.number("/packets"), udp.number("/lost_packets"));

    assert_eq!(hops(a, "10.2.0.2"), ["10.1.0.1", "10.2.0.2"]);
    assert_eq!(hops(b, "-I 10.1.0.2"), ["10.2.0.1", "10.1.0.2"]);
    assert_eq!(hops(a, "fd02::2"), ["fd01::1", "fd02::2"]);

    ping_fails(a, "192.0.2.9", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable");
    ping_fails(a, "2001:db8::9", "From fd01::1 icmp_seq=1 Destination unreachable: No route");
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| ping_fails(a, "fd02::99", "From fd01::1 icmp_seq=1 Destination unreachable: Address unreachable"));
        ping_fails(a, "10.2.0.99", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable");
    });
    let waited = start.elapsed();
    ping_fails(a, "-t 1 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Time to live exceeded");
    ping_fails(a, "-t 1 fd02::2", "From fd01::1 icmp_seq=1 Time exceeded: Hop limit");

    let summary = stop(bondstone);
    let router = summary.nf("router");
    assert_only_drops(&router, &["consumed", "multicast", "no_route", "neighbour_unresolved", "ttl_expired"]);
    assert_eq!(
        (router.number("/drops/no_route"), router.number("/drops/neighbour_unresolved")),
        (2, 2),
        "{}",
        summary.0
    );
    // three traceroutes and two pings
    assert_eq!(router.number("/drops/ttl_expired"), 5, "{}", summary.0);
    assert_eq!(
        (router.number("/counters/icmp_sent"), router.number("/counters/icmp_rate_limited")),
        (9, 0),
        "{}",
        summary.0
    );
    // host routes of own addresses and neighbours are in the exact-match table
    assert_eq!(router.number("/counters/host_routes") > 8, table == "exact", "{}", summary.0);
    // three requests for each of the two unreachable hosts
    assert!(router.number("/counters/neighbour_requests") >= 6, "{}", summary.0);
    let ports = [summary.port("lan"), summary.port("wan")];
    let sum = |of: &dyn Fn(&Summary) -> u64| ports.iter().map(of).sum::<u64>();
    let received = sum(&|p| p.number("/received"));
    assert_eq!(received, router.number("/packets"), "{}", summary.0);
    // all received and created packets are accounted for
    let (sent_packets, held) = (sum(&|p| p.number("/sent")), router.number("/held"));
    let dropped_by_ports = sum(&|p| p.dropped());
    assert_eq!(
        received + router.number("/created"),
        sent_packets + held + router.dropped() + dropped_by_ports,
        "{}",
        summary.0
    );
    // the drops of the router are all checked above and include no datagrams: those were lost at its ports or in the
    // kernel
    let counted = kernel + dropped_by_ports + sum(&|p| p.number("/missed") + p.number("/send_errors"));
    assert!(sent > 100 && lost <= counted, "{lost} of {sent} datagrams lost, {counted} counted: {}", summary.0);
    eprintln!(
        "{name}: {received} packets, {} bytes of TCP in 1 s, {lost} of {sent} UDP datagrams lost, unreachable after {waited:.1?}",
        tcp["end"]["sum_received"]["bytes"],
    );
}

#[test]
fn routes_between_veth_pairs() {
    test_router("veth", PortKind::AfPacket, "lpm");
}

#[test]
fn routes_between_taps() {
    test_router("tap", PortKind::Tap, "exact");
}

#[test]
fn neighbours_that_answer_probes_are_kept_and_new_mac_addresses_are_learned() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let lab = SingleRouter::start(
        &scratch,
        "age",
        PortKind::AfPacket,
        ROUTER_ONLY,
        "reachable_time = 1\ntable = \"exact\"\n",
    );
    let SingleRouter { hosts: Hosts { a, b }, _namespace, bondstone } = lab;
    B.iter().for_each(|host| ping_succeeds(&a, host));
    let counts = || ["Ip6InMcastPkts", "Icmp6InNeighborSolicits"].map(|name| snmp6(&b, name));
    // repeated, as an answer may be late on a busy machine
    let probed_by_unicast = (0..5).any(|_| {
        let before = counts();
        std::thread::scope(|s| {
            for host in B {
                let a = &a;
                s.spawn(move || {
                    let (all, output) = ping(a, &format!("-q -c 50 -i 0.1 -w 100 {host}"));
                    assert!(all, "{output}");
                });
            }
        });
        let after = counts();
        assert!(after[1] > before[1], "the neighbour is probed");
        after[0] == before[0]
    });
    assert!(probed_by_unicast, "a neighbour that answers is not resolved again");

    b.ip("link set b0 address 02:00:00:00:02:77");
    let deadline = Instant::now() + LIMIT;
    for host in B {
        while !ping(&a, &format!("-c 1 -W 1 {host}")).0 {
            assert!(Instant::now() < deadline, "{host} is not reachable at its new MAC address");
        }
    }
    let summary = stop(bondstone);
    assert_only_drops(&summary.nf("router"), &["consumed", "multicast", "neighbour_unresolved"]);
}

/// Two routers in a row between two hosts, each in a process of its own.
struct TwoRouters {
    hosts: Hosts,
    _namespaces: [Namespace; 2],
    near: Running,
    far: Running,
}

impl TwoRouters {
    /// Starts the routers with ports of a kind; `mtu` is that of the link between them.
    fn start(scratch: &Scratch, name: &str, kind: &str, mtu: u16) -> TwoRouters {
        let hosts = Hosts::new(name);
        let namespaces = ["r1", "r2"].map(|side| silent_namespace(&format!("{name}-{side}")));
        let [near, far] = &namespaces;
        near.link("lan", &hosts.a, "a0");
        near.link("mid", far, "mid");
        far.link("wan", &hosts.b, "b0");
        for (namespace, edge) in [(near, "lan"), (far, "wan")] {
            namespace.raise(edge);
            namespace.raise("mid");
            namespace.ip(&format!("link set mid mtu {mtu}"));
        }
        let run = |namespace: &Namespace, edge: &str, own: u8, away: u8| {
            let text = format!(
                "bondstone = 1\nport.{edge}.device = \"{kind}:{edge}\"\nport.mid.device = \"{kind}:mid\"\n\
                 chain = [{{ path = [\"{edge}\", \"router\"], cores = [{core}] }}, {{ path = [\"mid\", \"router\"], cores = [{core}] }}]\n\
                 [nf.router]\nkind = \"l3fwd\"\n\
                 interface.{edge} = {{ addresses = [\"10.{own}.0.1/24\", \"fd0{own}::1/64\"] }}\n\
                 interface.mid = {{ addresses = [\"10.12.0.{own}/30\", \"fd12::{own}/64\"], mtu = {mtu} }}\n\
                 route = [{{ prefix = \"10.{away}.0.0/24\", via = [\"10.12.0.{away}\"] }}, \
                 {{ prefix = \"fd0{away}::/64\", via = [\"fd12::{away}\"] }}]\n",
                core = own - 1,
            );
            start(namespace, scratch.write(format!("{edge}.toml"), text))
        };
        let (near, far) = (run(near, "lan", 1, 2), run(far, "wan", 2, 1));
        hosts.configure();
        TwoRouters { hosts, _namespaces: namespaces, near, far }
    }
}

#[test]
fn two_routers_in_a_row_are_two_hops() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let TwoRouters { hosts: Hosts { a, b }, _namespaces, near, far } =
        TwoRouters::start(&scratch, "row", "af_packet", 1500);
    for family in [0, 1] {
        ping_succeeds(&a, B[family]);
        ping_succeeds(&b, A[family]);
    }
    for own in ["10.12.0.1", "10.12.0.2", "10.2.0.1", "fd12::1", "fd12::2", "fd02::1"] {
        ping_succeeds(&a, own);
    }
    let web = Web::start(&scratch, &b, "nginx", 4 << 20);
    B_URL.iter().for_each(|host| web.fetch(&a, &format!("{host}:8080")));
    assert_eq!(hops(&a, "10.2.0.2"), ["10.1.0.1", "10.12.0.2", "10.2.0.2"]);
    assert_eq!(hops(&b, "10.1.0.2"), ["10.2.0.1", "10.12.0.1", "10.1.0.2"]);
    assert_eq!(hops(&a, "fd02::2"), ["fd01::1", "fd12::2", "fd02::2"]);
    ping_fails(&a, "-t 2 10.2.0.2", "From 10.12.0.2 icmp_seq=1 Time to live exceeded");
    ping_fails(&a, "10.2.0.99", "From 10.12.0.2 icmp_seq=1 Destination Host Unreachable");
    ping_fails(&a, "10.3.0.1", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable");

    let [near, far] = [near, far].map(stop);
    let routers = [near.nf("router"), far.nf("router")];
    for router in &routers {
        assert_only_drops(router, &["consumed", "multicast", "no_route", "neighbour_unresolved", "ttl_expired"]);
    }
    let drops = |reason: &str| routers.each_ref().map(|r| r.number(&format!("/drops/{reason}")));
    assert_eq!(drops("ttl_expired"), [3, 4], "{}", far.0);
    assert_eq!((drops("no_route"), drops("neighbour_unresolved")), ([1, 0], [0, 1]));
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (sent, received) = (from.port("mid").number("/sent"), to.port("mid").number("/received"));
        assert!(sent >= received && received > 0, "{sent} sent, {received} received");
    }
    eprintln!("row: {} and {} packets", near.number("/totals/received"), far.number("/totals/received"));
}

#[test]
fn senders_learn_the_path_mtu() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    // AF_PACKET would reassemble fragments
    let TwoRouters { hosts: Hosts { a, b }, _namespaces, near, far } =
        TwoRouters::start(&scratch, "mtu", "af_xdp", 1300);
    // replies are fragmented as well
    let requests = ping_five(&a, "-M dont -s 1400 10.2.0.2");
    let web = Web::start(&scratch, &b, "nginx", 4 << 20);
    B_URL.iter().for_each(|host| web.fetch(&a, &format!("{host}:8080")));
    for host in A {
        let learned = b.ip(&format!("route get {host}"));
        assert!(learned.contains(" mtu 1300"), "{learned}");
    }
    ping_succeeds(&a, "-M do -s 1272 10.2.0.2");
    ping_fails(&a, "-M do -s 1273 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1300)");
    ping_fails(&a, "-M do -s 1400 fd02::2", "From fd01::1 icmp_seq=1 Packet too big: mtu=1300");
    // hosts that know the MTU fragment packets themselves
    ping_succeeds(&a, "-s 4000 10.2.0.2");
    ping_succeeds(&a, "-s 4000 fd02::2");

    let [near, far] = [near, far].map(stop);
    for summary in [&near, &far] {
        let router = summary.nf("router");
        assert_only_drops(&router, &["consumed", "multicast", "too_big", "fragmented"]);
        assert!(router.number("/drops/too_big") >= 2, "one of each IP version: {}", summary.0);
        assert!((5..=requests).contains(&router.number("/drops/fragmented")), "{}", summary.0);
        assert_eq!(summary.port("mid").dropped(), 0, "the link drops no packets: {}", summary.0);
    }
    let too_big = [&near, &far].map(|summary| summary.nf("router").number("/drops/too_big"));
    eprintln!("mtu: {too_big:?} packets were too big");
}

#[test]
fn a_firewall_that_accepts_by_default_drops_packets_by_rule() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let rules = [
        "drop src 10.1.0.66",
        "drop proto tcp dport 8081",
        "drop proto icmp type 8",
        "drop proto icmpv6 type 128",
        "accept proto tcp dport 8080",
        "accept proto icmpv6 type 135-136",
    ];
    let paths = [r#"["lan", "fw", "router"]"#, r#"["wan", "router"]"#];
    let more = format!("[nf.fw]\nkind = \"firewall\"\nrules = {rules:?}\ndefault = \"accept\"\n");
    let SingleRouter { hosts: Hosts { a, b }, _namespace, bondstone } =
        SingleRouter::start(&scratch, "fw", PortKind::AfPacket, paths, &more);
    a.ip("addr add 10.1.0.66/24 dev a0");
    let at_a = Web::start(&scratch, &a, "at-a", 1 << 20);
    let at_b = Web::start(&scratch, &b, "at-b", 1 << 20);
    for host in B_URL {
        at_b.fetch(&a, &format!("{host}:8080"));
        connect_times_out(&a, &format!("{host}:8081"));
    }
    // packets from the port are not packets to it
    at_a.fetch(&b, "10.1.0.2:8081");
    at_a.fetch(&b, "[fd01::2]:8081");
    for (family, to) in [(0, "10.2.0.2"), (1, "fd02::2")] {
        ping_succeeds(&b, A[family]);
        ping_times_out(&a, to);
    }
    ping_times_out(&a, "-I 10.1.0.66 10.2.0.2");
    ping_times_out(&b, "10.1.0.66");

    let summary = stop(bondstone);
    let (fw, router) = (summary.nf("fw"), summary.nf("router"));
    let mut counts = rule_counters(&fw, &rules);
    counts.push(fw.number("/counters/default"));
    // replies of the denied address are dropped as well
    assert_eq!((counts[0], counts[2], counts[3]), (6, 3, 3), "{}", summary.0);
    assert!(counts[1] >= 2 && counts[4] > 0 && counts[5] > 0 && counts[6] > 0, "{}", summary.0);
    let denied: u64 = counts[..4].iter().sum();
    assert_eq!((fw.number("/drops/denied"), fw.dropped()), (denied, denied), "{}", summary.0);
    let (lan, wan) = (summary.port("lan").number("/received"), summary.port("wan").number("/received"));
    assert_eq!((fw.number("/packets"), router.number("/packets")), (lan, lan - denied + wan), "{}", summary.0);
    assert!(counts.iter().sum::<u64>() < lan, "the others are ARP: {}", summary.0);
    assert_only_drops(&router, &["consumed", "multicast"]);
    eprintln!("fw: packets by rule {counts:?} of {lan}");
}

#[test]
fn a_firewall_that_drops_by_default_accepts_packets_by_rule() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    // hosts behind the firewall may send requests, others may not
    let rules = [
        "accept proto tcp dst 10.1.0.0/24 sport 8080 flags ack",
        "accept proto tcp dst fd01::/64 sport 8080 flags ack",
        "accept proto icmp type 0",
        "accept proto icmpv6 type 129",
        "accept proto icmpv6 type 135-136",
    ];
    let paths = [r#"["lan", "router"]"#, r#"["wan", "guard", "router"]"#];
    let more = format!("[nf.guard]\nkind = \"firewall\"\nrules = {rules:?}\n");
    let SingleRouter { hosts: Hosts { a, b }, _namespace, bondstone } =
        SingleRouter::start(&scratch, "guard", PortKind::AfPacket, paths, &more);
    let at_a = Web::start(&scratch, &a, "at-a", 1 << 20);
    let at_b = Web::start(&scratch, &b, "at-b", 1 << 20);
    for (family, host) in B_URL.iter().enumerate() {
        at_b.fetch(&a, &format!("{host}:8080"));
        connect_times_out(&a, &format!("{host}:8081"));
        ping_succeeds(&a, B[family]);
        ping_times_out(&b, A[family]);
    }
    at_a.fetch(&a, "10.1.0.2:8080");
    connect_times_out(&b, "10.1.0.2:8080");

    let summary = stop(bondstone);
    let guard = summary.nf("guard");
    let counts = rule_counters(&guard, &rules);
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}: {}", summary.0);
    // three pings of each IP version, and at least one attempt of each of three connections
    let denied = guard.number("/drops/denied_by_default");
    assert!(denied >= 9 && guard.dropped() == denied, "{}", summary.0);
    assert_eq!(guard.number("/counters/default"), denied, "{}", summary.0);
    eprintln!("guard: {denied} of {} packets denied", guard.number("/packets"));
}

/// Returns frames that hosts do not send, with the reason for which a router drops them.
fn invalid_frames() -> Vec<(&'static str, Vec<u8>)> {
    let four = |src: [u8; 4], dst: [u8; 4]| build::udp4(src, dst, 1000, 9).dst_mac(LAN_MAC).pad_to(60);
    let six = |src: &str, dst: &str| {
        let [src, dst] = [src, dst].map(|a| a.parse::<Ipv6Addr>().unwrap());
        build::udp6(src, dst, 1000, 9).dst_mac(LAN_MAC).to_vec()
    };
    let (a, b) = ([10, 1, 0, 2], [10, 2, 0, 2]);
    let routed = wire::options::OptionBytes::new(&[131, 7, 4, 10, 2, 0, 2, 0]).unwrap();
    let mut bad_checksum = four(a, b).to_vec();
    bad_checksum[24] ^= 1;
    let mut all = vec![
        ("directed_broadcast", four(a, [10, 2, 0, 255]).to_vec()),
        ("directed_broadcast", four(a, [10, 2, 0, 0]).to_vec()),
        ("directed_broadcast", four(a, [10, 1, 0, 255]).to_vec()),
        ("link_broadcast", four(a, b).dst_mac(MacAddr::BROADCAST).to_vec()),
        ("source_route", four(a, b).ip_options(routed).to_vec()),
        ("other_mac", four(a, b).dst_mac(WAN_MAC).to_vec()),
        ("bad_checksum", bad_checksum),
    ];
    for src in [[127, 0, 0, 1], [0, 0, 0, 0], [0, 1, 2, 3], [224, 0, 0, 1], [240, 0, 0, 1], [255, 255, 255, 255]] {
        all.push(("martian", four(src, b).to_vec()));
    }
    for dst in [[127, 0, 0, 1], [0, 0, 0, 0], [240, 0, 0, 1]] {
        all.push(("martian", four(a, dst).to_vec()));
    }
    for src in ["::", "::1", "ff02::1", "fe80::5"] {
        all.push(("martian", six(src, B[1])));
    }
    for dst in ["::1", "::", "fe80::9"] {
        all.push(("martian", six(A[1], dst)));
    }
    all
}

#[test]
fn drops_and_counts_invalid_frames() {
    const TIMES: u32 = 20;
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let invalid = invalid_frames();
    let mut writer = pcap::Writer::create(scratch.path("odd"), pcap::LinkType::ETHERNET).unwrap();
    for (n, (_, frame)) in (0..).zip(&invalid) {
        writer.write(n, frame.len() as u32, frame).unwrap();
    }
    writer.finish().unwrap();

    let SingleRouter { hosts: Hosts { a, b }, _namespace, bondstone } =
        SingleRouter::start(&scratch, "odd", PortKind::AfPacket, ROUTER_ONLY, "");
    let see = "bondstone = 1\nport.b.device = \"af_packet:b0\"\nport.seen.device = \"pcap:seen\"\n\
               chain = [{ path = [\"b\", \"seen\"], cores = [1] }]\n";
    let witness = start(&b, scratch.write("see.toml", see));
    let send = format!(
        "bondstone = 1\nport.odd.device = \"pcap:odd\"\nport.odd.repeat = {TIMES}\nport.a.device = \"af_packet:a0\"\n\
         chain = [{{ path = [\"odd\", \"a\"], cores = [0] }}]\n"
    );
    let sent = start(&a, scratch.write("send.toml", send)).end().summary(0);
    assert_eq!(sent.port("a").number("/sent"), u64::from(TIMES) * invalid.len() as u64);
    // all earlier frames have been processed
    B.iter().for_each(|host| ping_succeeds(&a, host));

    let summary = stop(bondstone);
    let router = summary.nf("router");
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, _) in &invalid {
        *expected.entry(*reason).or_default() += u64::from(TIMES);
    }
    for (reason, n) in &expected {
        assert_eq!(router.number(&format!("/drops/{reason}")), *n, "{reason}: {}", summary.0);
    }
    assert_only_drops(&router, &expected.into_keys().chain(["consumed", "multicast"]).collect::<Vec<_>>());
    assert_eq!(router.number("/counters/icmp_sent"), 0, "no errors are sent: {}", summary.0);

    witness.terminate().summary(130);
    let mut reader = pcap::Reader::open(scratch.path("seen")).unwrap();
    let mut pings = 0;
    while let Some(record) = reader.next().unwrap() {
        let frame = ethernet::Frame::new(record.frame).unwrap();
        if frame.header().src() != WAN_MAC {
            continue;
        }
        match frame.header().ether_type() {
            EtherType::IPV4 => {
                let ip = ipv4::Packet::new(frame.payload()).unwrap();
                assert_eq!((ip.header().src(), ip.header().protocol()), ([10, 1, 0, 2].into(), IpProtocol::ICMPV4));
                pings += 1;
            }
            // pings, replies and neighbor discovery
            EtherType::IPV6 => {
                let ip = ipv6::Packet::new(frame.payload()).unwrap();
                assert_eq!(ip.header().next_header(), IpProtocol::ICMPV6);
            }
            other => assert_eq!(other, EtherType::ARP),
        }
    }
    assert!(pings >= 5, "{pings}");
    eprintln!("odd: {} packets dropped, {pings} pings forwarded", sent.port("a").number("/sent"));
}
