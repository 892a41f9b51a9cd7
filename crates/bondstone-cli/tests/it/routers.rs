//! Routers and firewalls between real kernels: what ping, traceroute, curl and iperf3 say of them.

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
/// Addresses of the hosts in `a` and in `b`.
const A: [&str; 2] = ["10.1.0.2", "fd01::2"];
const B: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// The latter as URLs have them.
const AT_B: [&str; 2] = ["10.2.0.2", "[fd02::2]"];

/// Two hosts in namespaces of their own, `a` at 10.1.0.2 and fd01::2, `b` at 10.2.0.2 and fd02::2.
struct Hosts {
    a: Namespace,
    b: Namespace,
}

impl Hosts {
    fn new(name: &str) -> Self {
        let [a, b] = ["a", "b"].map(|side| Namespace::new(&format!("{name}-{side}")));
        Hosts { a, b }
    }

    /// Gives them their addresses and the router as the way to everywhere, once their interfaces are there.
    fn configure(&self) {
        for (n, host, interface) in [(1, &self.a, "a0"), (2, &self.b, "b0")] {
            host.configure(interface, &[&format!("10.{n}.0.2/24"), &format!("fd0{n}::2/64")]);
            host.ip(&format!("route add default via 10.{n}.0.1"));
            host.ip(&format!("route add default via fd0{n}::1"));
        }
    }
}

/// A namespace whose kernel sends nothing by itself.
fn silent(name: &str) -> Namespace {
    let namespace = Namespace::new(name);
    namespace.mute();
    namespace
}

/// Starts the program in a namespace.
fn start(namespace: &Namespace, file: PathBuf) -> Running {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut running = Running::start(command.arg("run").arg(file).arg("--json"));
    running.started();
    running
}

/// Stops it; what it did.
#[track_caller]
fn stop(bondstone: Running) -> Summary {
    bondstone.terminate().summary(130)
}

/// The router's two interfaces towards the hosts.
fn faces() -> String {
    format!(
        "interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], mac = \"{LAN_MAC}\" }}\n\
         interface.wan = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], mac = \"{WAN_MAC}\" }}\n"
    )
}

/// How the router reaches the hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Veth pairs.
    Packet,
    /// Interfaces that the program makes, moved into the hosts' namespaces.
    Tap,
}

/// One router between two hosts, with the path's NFs in front of it and `more` as the router's further settings.
struct One {
    hosts: Hosts,
    _between: Namespace,
    bondstone: Running,
}

impl One {
    fn start(scratch: &Scratch, name: &str, by: By, paths: [&str; 2], more: &str) -> One {
        let hosts = Hosts::new(name);
        let between = silent(&format!("{name}-r"));
        if by == By::Packet {
            for (near, there, far) in [("lan", &hosts.a, "a0"), ("wan", &hosts.b, "b0")] {
                between.link(near, there, far);
                between.raise(near);
            }
        }
        let (devices, cores) = match by {
            By::Packet => (["af_packet:lan", "af_packet:wan"], [0, 1]),
            By::Tap => (["tap:a0", "tap:b0"], [0, 0]),
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
            faces()
        );
        let bondstone = start(&between, scratch.write("router.toml", text));
        if by == By::Tap {
            for (interface, host) in [("a0", &hosts.a), ("b0", &hosts.b)] {
                between.ip(&format!("link set {interface} netns {}", host.0));
            }
        }
        hosts.configure();
        One { hosts, _between: between, bondstone }
    }
}

/// Paths of a router with nothing in front of it.
const PLAIN: [&str; 2] = [r#"["lan", "router"]"#, r#"["wan", "router"]"#];

/// What ping says, with these words as arguments, and whether anything answered.
fn ping(from: &Namespace, words: &str) -> (bool, String) {
    let output = from.command("ping").arg("-n").args(words.split(' ')).output().unwrap();
    (output.status.success(), [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat())
}

/// Five pings are answered.
#[track_caller]
fn answered(from: &Namespace, words: &str) {
    pinged(from, words);
}

/// Five pings are answered. More are sent where an answer comes late, as on a busy machine; how many.
#[track_caller]
fn pinged(from: &Namespace, words: &str) -> u64 {
    let (all, said) = ping(from, &format!("-c 5 -i 0.1 -w 100 {words}"));
    assert!(all, "{words}: {said}");
    let sent = said.lines().find_map(|line| line.split_once(" packets transmitted")?.0.parse().ok());
    sent.unwrap_or_else(|| panic!("{words}: {said}"))
}

/// A ping that nobody answers, and of which ping says this.
#[track_caller]
fn refused(from: &Namespace, words: &str, why: &str) {
    let (any, said) = ping(from, &format!("-c 1 -W 60 {words}"));
    assert!(!any && said.contains(why), "{words}: {said}");
}

/// Three pings that nobody answers, nor says why.
#[track_caller]
fn unanswered(from: &Namespace, words: &str) {
    let (_, said) = ping(from, &format!("-c 3 -i 0.1 -W 1 {words}"));
    assert!(said.contains("3 packets transmitted, 0 received, 100% packet loss"), "{words}: {said}");
}

/// Nobody answers who connects to this host, as in `10.2.0.2:8081`.
#[track_caller]
fn blocked(client: &Namespace, host: &str) {
    /// curl's status when the time is over.
    const TOO_LATE: i32 = 28;
    let url = format!("http://{host}/content");
    let output = client.command("curl").args(["-sS", "-o", "/dev/null", "--max-time", "2", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(TOO_LATE), "{host}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Packets of each rule of a firewall.
fn by_rule(firewall: &Summary, rules: &[&str]) -> Vec<u64> {
    let count = |(n, rule)| firewall.0["counters"][format!("{} {rule}", n + 1)].as_u64();
    (0..).zip(rules).map(|rule| count(rule).unwrap_or_else(|| panic!("{rule:?}: {}", firewall.0))).collect()
}

/// The addresses that traceroute shows on the way.
fn hops(from: &Namespace, words: &str) -> Vec<String> {
    let mut command = from.command("traceroute");
    let output = done(command.args(["-n", "-q", "1", "-N", "1", "-w", "60", "-m", "6"]).args(words.split(' ')));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

/// A count of a namespace's kernel for IPv6, such as `Ip6InMcastPkts`.
fn snmp6(namespace: &Namespace, name: &str) -> u64 {
    let text = String::from_utf8(done(namespace.command("cat").arg("/proc/net/snmp6")).stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

/// Packets from `a` to `b` that their kernel had no room for: in queues of its CPUs, of interfaces, of sockets for IPv6.
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

/// Asserts that a router dropped packets for these reasons and for no other.
#[track_caller]
fn only(router: &Summary, reasons: &[&str]) {
    let had: Vec<_> = router.0["drops"].as_object().map_or(vec![], |d| d.keys().collect());
    assert!(had.iter().all(|r| reasons.contains(&r.as_str())), "{}", router.0);
}

/// A router between two hosts does all that hosts ask of one.
fn routes(name: &str, by: By, table: &str) {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let One { hosts, _between, bondstone } = One::start(&scratch, name, by, PLAIN, &format!("table = {table:?}\n"));
    let Hosts { a, b } = &hosts;
    for family in [0, 1] {
        answered(a, B[family]);
        answered(b, A[family]);
    }
    // its own addresses, the far ones as well
    for own in ["10.1.0.1", "10.2.0.1", "fd01::1", "fd02::1", "fe80::ff:fe00:100%a0"] {
        answered(a, own);
    }
    assert!(a.ip("neigh show 10.1.0.1").contains(&LAN_MAC.to_string()));
    assert!(b.ip("neigh show fd02::1").contains(&WAN_MAC.to_string()));

    let web = Web::start(&scratch, b, "nginx", 4 << 20);
    for host in AT_B {
        web.fetch(a, &format!("{host}:8080"));
    }
    let tcp = iperf3(a, b, "-c 10.2.0.2 -t 1", "/end/sum_received/bytes");
    // so few that no queue on the way is full, even where the machine is busy
    let before = lost_in_kernel(&hosts);
    let udp = iperf3(a, b, "-c fd02::2 -u -b 10M -t 2", "/end/sum/packets");
    let kernel = lost_in_kernel(&hosts) - before;
    let udp = Summary(udp["end"]["sum"].clone());
    let (sent, lost) = (udp.number("/packets"), udp.number("/lost_packets"));

    assert_eq!(hops(a, "10.2.0.2"), ["10.1.0.1", "10.2.0.2"]);
    assert_eq!(hops(b, "-I 10.1.0.2"), ["10.2.0.1", "10.1.0.2"]);
    assert_eq!(hops(a, "fd02::2"), ["fd01::1", "fd02::2"]);

    refused(a, "192.0.2.9", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable");
    refused(a, "2001:db8::9", "From fd01::1 icmp_seq=1 Destination unreachable: No route");
    let began = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| refused(a, "fd02::99", "From fd01::1 icmp_seq=1 Destination unreachable: Address unreachable"));
        refused(a, "10.2.0.99", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable");
    });
    let waited = began.elapsed();
    refused(a, "-t 1 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Time to live exceeded");
    refused(a, "-t 1 fd02::2", "From fd01::1 icmp_seq=1 Time exceeded: Hop limit");

    let did = stop(bondstone);
    let router = did.nf("router");
    only(&router, &["answered", "multicast", "no_route", "neighbour_silent", "ttl_expired"]);
    assert_eq!((router.number("/drops/no_route"), router.number("/drops/neighbour_silent")), (2, 2), "{}", did.0);
    // three traceroutes and two pings
    assert_eq!(router.number("/drops/ttl_expired"), 5, "{}", did.0);
    assert_eq!((router.number("/counters/icmp_sent"), router.number("/counters/icmp_limited")), (9, 0), "{}", did.0);
    // its own addresses and the neighbours, where single addresses have a table of their own
    assert_eq!(router.number("/counters/hosts") > 8, table == "exact", "{}", did.0);
    // three times for each of the two that are not there
    assert!(router.number("/counters/asked") >= 6, "{}", did.0);
    let ports = [did.port("lan"), did.port("wan")];
    let sum = |of: &dyn Fn(&Summary) -> u64| ports.iter().map(of).sum::<u64>();
    let came = sum(&|p| p.number("/received"));
    assert_eq!(came, router.number("/packets"), "{}", did.0);
    // nothing that came or was made is without a count of what became of it
    let (went, kept) = (sum(&|p| p.number("/sent")), router.number("/held"));
    let refused = sum(&|p| p.dropped());
    assert_eq!(came + router.number("/created"), went + kept + router.dropped() + refused, "{}", did.0);
    // the router's own drops are all told above, and no datagram is among them: what was lost was lost at its ports, or by the
    // kernel behind them
    let counted = kernel + refused + sum(&|p| p.number("/missed") + p.number("/send_errors"));
    assert!(sent > 100 && lost <= counted, "{lost} of {sent} datagrams lost, {counted} counted: {}", did.0);
    eprintln!(
        "{name}: {came} packets, TCP carried {} bytes in 1 s, UDP lost {lost} of {sent}, unreachable after {waited:.1?}",
        tcp["end"]["sum_received"]["bytes"],
    );
}

#[test]
fn a_router_serves_hosts_on_veth_pairs() {
    routes("veth", By::Packet, "lpm");
}

#[test]
fn a_router_serves_hosts_on_taps() {
    routes("tap", By::Tap, "exact");
}

#[test]
fn neighbours_that_answer_are_kept_and_found_again_when_they_change() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let lab = One::start(&scratch, "age", By::Packet, PLAIN, "lifetime = 1\ntable = \"exact\"\n");
    let One { hosts: Hosts { a, b }, _between, bondstone } = lab;
    B.iter().for_each(|host| answered(&a, host));
    let counts = || ["Ip6InMcastPkts", "Icmp6InNeighborSolicits"].map(|name| snmp6(&b, name));
    // on a busy machine its answer may come too late for once
    let asked_only = (0..5).any(|_| {
        let before = counts();
        std::thread::scope(|s| {
            for host in B {
                let a = &a;
                s.spawn(move || {
                    let (all, said) = ping(a, &format!("-q -c 50 -i 0.1 -w 100 {host}"));
                    assert!(all, "{said}");
                });
            }
        });
        let after = counts();
        assert!(after[1] > before[1], "it is asked whether it is there");
        after[0] == before[0]
    });
    assert!(asked_only, "who answers is not looked for anew");

    b.ip("link set b0 address 02:00:00:00:02:77");
    let deadline = Instant::now() + LIMIT;
    for host in B {
        while !ping(&a, &format!("-c 1 -W 1 {host}")).0 {
            assert!(Instant::now() < deadline, "{host} is not found at its new address");
        }
    }
    let did = stop(bondstone);
    only(&did.nf("router"), &["answered", "multicast", "neighbour_silent"]);
}

/// Two processes, a router each, one behind the other between two hosts; the link between them takes packets of `mtu`
/// bytes. They reach all links by ports of this kind.
struct Two {
    hosts: Hosts,
    _between: [Namespace; 2],
    near: Running,
    far: Running,
}

impl Two {
    fn start(scratch: &Scratch, name: &str, kind: &str, mtu: u16) -> Two {
        let hosts = Hosts::new(name);
        let between = ["r1", "r2"].map(|side| silent(&format!("{name}-{side}")));
        let [near, far] = &between;
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
        Two { hosts, _between: between, near, far }
    }
}

#[test]
fn two_routers_in_a_row_are_two_hops() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let Two { hosts: Hosts { a, b }, _between, near, far } = Two::start(&scratch, "row", "af_packet", 1500);
    for family in [0, 1] {
        answered(&a, B[family]);
        answered(&b, A[family]);
    }
    for own in ["10.12.0.1", "10.12.0.2", "10.2.0.1", "fd12::1", "fd12::2", "fd02::1"] {
        answered(&a, own);
    }
    let web = Web::start(&scratch, &b, "nginx", 4 << 20);
    AT_B.iter().for_each(|host| web.fetch(&a, &format!("{host}:8080")));
    assert_eq!(hops(&a, "10.2.0.2"), ["10.1.0.1", "10.12.0.2", "10.2.0.2"]);
    assert_eq!(hops(&b, "10.1.0.2"), ["10.2.0.1", "10.12.0.1", "10.1.0.2"]);
    assert_eq!(hops(&a, "fd02::2"), ["fd01::1", "fd12::2", "fd02::2"]);
    refused(&a, "-t 2 10.2.0.2", "From 10.12.0.2 icmp_seq=1 Time to live exceeded");
    refused(&a, "10.2.0.99", "From 10.12.0.2 icmp_seq=1 Destination Host Unreachable");
    refused(&a, "10.3.0.1", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable");

    let [near, far] = [near, far].map(stop);
    let routers = [near.nf("router"), far.nf("router")];
    for router in &routers {
        only(router, &["answered", "multicast", "no_route", "neighbour_silent", "ttl_expired"]);
    }
    let drops = |reason: &str| routers.each_ref().map(|r| r.number(&format!("/drops/{reason}")));
    assert_eq!(drops("ttl_expired"), [3, 4], "{}", far.0);
    assert_eq!((drops("no_route"), drops("neighbour_silent")), ([1, 0], [0, 1]));
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (sent, came) = (from.port("mid").number("/sent"), to.port("mid").number("/received"));
        assert!(sent >= came && came > 0, "{sent} sent, {came} came");
    }
    eprintln!("row: {} and {} packets", near.number("/totals/received"), far.number("/totals/received"));
}

#[test]
fn senders_learn_how_long_packets_may_be() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    // af_packet would hand over fragments put together
    let Two { hosts: Hosts { a, b }, _between, near, far } = Two::start(&scratch, "mtu", "af_xdp", 1300);
    // the answers are cut as well
    let in_parts = pinged(&a, "-M dont -s 1400 10.2.0.2");
    let web = Web::start(&scratch, &b, "nginx", 4 << 20);
    AT_B.iter().for_each(|host| web.fetch(&a, &format!("{host}:8080")));
    for host in A {
        let learned = b.ip(&format!("route get {host}"));
        assert!(learned.contains(" mtu 1300"), "{learned}");
    }
    answered(&a, "-M do -s 1272 10.2.0.2");
    refused(&a, "-M do -s 1273 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1300)");
    refused(&a, "-M do -s 1400 fd02::2", "From fd01::1 icmp_seq=1 Packet too big: mtu=1300");
    // now that they know, they cut themselves
    answered(&a, "-s 4000 10.2.0.2");
    answered(&a, "-s 4000 fd02::2");

    let [near, far] = [near, far].map(stop);
    for did in [&near, &far] {
        let router = did.nf("router");
        only(&router, &["answered", "multicast", "too_big", "fragmented"]);
        assert!(router.number("/drops/too_big") >= 2, "one of each version: {}", did.0);
        assert!((5..=in_parts).contains(&router.number("/drops/fragmented")), "{}", did.0);
        assert_eq!(did.port("mid").dropped(), 0, "the link takes what it is given: {}", did.0);
    }
    let told = [&near, &far].map(|did| did.nf("router").number("/drops/too_big"));
    eprintln!("mtu: {told:?} packets were too big");
}

#[test]
fn a_firewall_refuses_what_its_rules_name_and_nothing_else() {
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
    let One { hosts: Hosts { a, b }, _between, bondstone } = One::start(&scratch, "fw", By::Packet, paths, &more);
    a.ip("addr add 10.1.0.66/24 dev a0");
    let at_a = Web::start(&scratch, &a, "at-a", 1 << 20);
    let at_b = Web::start(&scratch, &b, "at-b", 1 << 20);
    for host in AT_B {
        at_b.fetch(&a, &format!("{host}:8080"));
        blocked(&a, &format!("{host}:8081"));
    }
    // from that port is not to that port
    at_a.fetch(&b, "10.1.0.2:8081");
    at_a.fetch(&b, "[fd01::2]:8081");
    for (family, to) in [(0, "10.2.0.2"), (1, "fd02::2")] {
        answered(&b, A[family]);
        unanswered(&a, to);
    }
    unanswered(&a, "-I 10.1.0.66 10.2.0.2");
    unanswered(&b, "10.1.0.66");

    let did = stop(bondstone);
    let (fw, router) = (did.nf("fw"), did.nf("router"));
    let mut counts = by_rule(&fw, &rules);
    counts.push(fw.number("/counters/default"));
    // the answers to those who ask it are from the refused address as well
    assert_eq!((counts[0], counts[2], counts[3]), (6, 3, 3), "{}", did.0);
    assert!(counts[1] >= 2 && counts[4] > 0 && counts[5] > 0 && counts[6] > 0, "{}", did.0);
    let refused: u64 = counts[..4].iter().sum();
    assert_eq!((fw.number("/drops/refused"), fw.dropped()), (refused, refused), "{}", did.0);
    let (lan, wan) = (did.port("lan").number("/received"), did.port("wan").number("/received"));
    assert_eq!((fw.number("/packets"), router.number("/packets")), (lan, lan - refused + wan), "{}", did.0);
    assert!(counts.iter().sum::<u64>() < lan, "ARP is what is left: {}", did.0);
    only(&router, &["answered", "multicast"]);
    eprintln!("fw: packets by rule {counts:?} of {lan}");
}

#[test]
fn a_firewall_that_refuses_by_default_lets_through_what_its_rules_name() {
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    // whoever stands behind it may ask, and nobody else
    let rules = [
        "accept proto tcp dst 10.1.0.0/24 sport 8080 flags ack",
        "accept proto tcp dst fd01::/64 sport 8080 flags ack",
        "accept proto icmp type 0",
        "accept proto icmpv6 type 129",
        "accept proto icmpv6 type 135-136",
    ];
    let paths = [r#"["lan", "router"]"#, r#"["wan", "guard", "router"]"#];
    let more = format!("[nf.guard]\nkind = \"firewall\"\nrules = {rules:?}\n");
    let One { hosts: Hosts { a, b }, _between, bondstone } = One::start(&scratch, "guard", By::Packet, paths, &more);
    let at_a = Web::start(&scratch, &a, "at-a", 1 << 20);
    let at_b = Web::start(&scratch, &b, "at-b", 1 << 20);
    for (family, host) in AT_B.iter().enumerate() {
        at_b.fetch(&a, &format!("{host}:8080"));
        blocked(&a, &format!("{host}:8081"));
        answered(&a, B[family]);
        unanswered(&b, A[family]);
    }
    at_a.fetch(&a, "10.1.0.2:8080");
    blocked(&b, "10.1.0.2:8080");

    let did = stop(bondstone);
    let guard = did.nf("guard");
    let counts = by_rule(&guard, &rules);
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}: {}", did.0);
    // three pings of each version, and at the least one attempt at each of three connections
    let refused = guard.number("/drops/refused_by_default");
    assert!(refused >= 9 && guard.dropped() == refused, "{}", did.0);
    assert_eq!(guard.number("/counters/default"), refused, "{}", did.0);
    eprintln!("guard: {refused} of {} refused", guard.number("/packets"));
}

/// What hosts never send, by the reason that a router refuses it for.
fn odd_frames() -> Vec<(&'static str, Vec<u8>)> {
    let four = |src: [u8; 4], dst: [u8; 4]| build::udp4(src, dst, 1000, 9).dst_mac(LAN_MAC).pad_to(60);
    let six = |src: &str, dst: &str| {
        let [src, dst] = [src, dst].map(|a| a.parse::<Ipv6Addr>().unwrap());
        build::udp6(src, dst, 1000, 9).dst_mac(LAN_MAC).to_vec()
    };
    let (a, b) = ([10, 1, 0, 2], [10, 2, 0, 2]);
    let routed = wire::options::OptionBytes::new(&[131, 7, 4, 10, 2, 0, 2, 0]).unwrap();
    let mut broken = four(a, b).to_vec();
    broken[24] ^= 1;
    let mut all = vec![
        ("directed_broadcast", four(a, [10, 2, 0, 255]).to_vec()),
        ("directed_broadcast", four(a, [10, 2, 0, 0]).to_vec()),
        ("directed_broadcast", four(a, [10, 1, 0, 255]).to_vec()),
        ("link_broadcast", four(a, b).dst_mac(MacAddr::BROADCAST).to_vec()),
        ("source_route", four(a, b).ip_options(routed).to_vec()),
        ("other_mac", four(a, b).dst_mac(WAN_MAC).to_vec()),
        ("bad_checksum", broken),
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
fn what_no_host_may_send_goes_nowhere_and_is_counted() {
    const TIMES: u32 = 20;
    let _one = alone();
    if !possible(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let odd = odd_frames();
    let mut writer = pcap::Writer::create(scratch.path("odd"), pcap::LinkType::ETHERNET).unwrap();
    for (n, (_, frame)) in (0..).zip(&odd) {
        writer.write(n, frame.len() as u32, frame).unwrap();
    }
    writer.finish().unwrap();

    let One { hosts: Hosts { a, b }, _between, bondstone } = One::start(&scratch, "odd", By::Packet, PLAIN, "");
    let see = "bondstone = 1\nport.b.device = \"af_packet:b0\"\nport.seen.device = \"pcap:seen\"\n\
               chain = [{ path = [\"b\", \"seen\"], cores = [1] }]\n";
    let witness = start(&b, scratch.write("see.toml", see));
    let send = format!(
        "bondstone = 1\nport.odd.device = \"pcap:odd\"\nport.odd.repeat = {TIMES}\nport.a.device = \"af_packet:a0\"\n\
         chain = [{{ path = [\"odd\", \"a\"], cores = [0] }}]\n"
    );
    let sent = start(&a, scratch.write("send.toml", send)).end().summary(0);
    assert_eq!(sent.port("a").number("/sent"), u64::from(TIMES) * odd.len() as u64);
    // all that came before this has been dealt with
    B.iter().for_each(|host| answered(&a, host));

    let did = stop(bondstone);
    let router = did.nf("router");
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, _) in &odd {
        *expected.entry(*reason).or_default() += u64::from(TIMES);
    }
    for (reason, n) in &expected {
        assert_eq!(router.number(&format!("/drops/{reason}")), *n, "{reason}: {}", did.0);
    }
    only(&router, &expected.into_keys().chain(["answered", "multicast"]).collect::<Vec<_>>());
    assert_eq!(router.number("/counters/icmp_sent"), 0, "nobody is told: {}", did.0);

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
            // pings, answers to them and neighbor discovery
            EtherType::IPV6 => {
                let ip = ipv6::Packet::new(frame.payload()).unwrap();
                assert_eq!(ip.header().next_header(), IpProtocol::ICMPV6);
            }
            other => assert_eq!(other, EtherType::ARP),
        }
    }
    assert!(pings >= 5, "{pings}");
    eprintln!("odd: {} packets refused, {pings} pings crossed", sent.port("a").number("/sent"));
}
