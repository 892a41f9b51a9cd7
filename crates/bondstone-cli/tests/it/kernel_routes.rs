//! Routes that BIRD, and commands, add to the kernel of a tenant's namespace.

use crate::common::flows::{json, until};
use crate::common::gateway::accounted;
use crate::common::instance::command;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::tenants::start;
use crate::common::{LIMIT, Running, Scratch, alone};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// A router with the tenant `blue` between the hosts `a` and `b`, 10.1.0.2 and 10.2.0.2.
struct Lab {
    scratch: Scratch,
    sockets: PathBuf,
    a: Namespace,
    b: Namespace,
    _own: Namespace,
    running: Running,
    /// Namespace of the tenant's control plane, which the run makes.
    control: Namespace,
}

impl Lab {
    fn start(name: &str, limits: &str) -> Lab {
        let [a, b, own] = ["a", "b", "own"].map(|of| Namespace::new(&format!("{name}-{of}")));
        let control = Namespace(format!("bs-{}-{name}-c", std::process::id()));
        let scratch = Scratch::new();
        let text = format!(
            "bondstone = 1\nport.lan = {{ device = \"tap:a0\", namespace = \"{}\" }}\n\
             port.wan = {{ device = \"tap:b0\", namespace = \"{}\" }}\n\
             chain = [{{ path = [\"lan\", \"router\"] }}, {{ path = [\"wan\", \"router\"] }}]\n\
             [nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"10.1.0.1/24\", \"fd01::1/64\"], tenant = \"blue\" }}\n\
             interface.wan = {{ addresses = [\"10.2.0.1/24\", \"fd02::1/64\"], tenant = \"blue\" }}\n\
             tenant.blue = {{ namespace = \"{}\", kernel_routes = {{ {limits} }} }}\n",
            a.0, b.0, control.0
        );
        let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
        let running = start(&own, &file, &sockets);
        for (n, host, interface) in [(1, &a, "a0"), (2, &b, "b0")] {
            host.configure(interface, &[&format!("10.{n}.0.2/24"), &format!("fd0{n}::2/64")]);
            host.ip(&format!("route add default via 10.{n}.0.1"));
            host.ip(&format!("route add default via fd0{n}::1"));
        }
        Lab { scratch, sockets, a, b, _own: own, running, control }
    }

    /// Returns the targets of the routes from the kernel by prefix, with next hops and weights in order.
    fn routes(&self) -> BTreeMap<String, String> {
        let list = json(&self.sockets, &["routes", "list", "--tenant", "blue", "--json", "--limit", "0"]);
        let routes = list["routes"].as_array().unwrap().iter().filter(|route| route["source"] == "kernel");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let target = |route: &Value| {
            let hops = route["via"].as_array().into_iter().flatten();
            let hops = hops.map(|hop| format!("{}*{}", text(&hop["address"]), hop["weight"]));
            described(text(&route["target"]), hops)
        };
        routes.map(|route| (text(&route["prefix"]), target(route))).collect()
    }

    /// Returns the same of the kernel: the first route to each prefix, without those that it has made itself.
    fn kernel_routes(&self) -> BTreeMap<String, String> {
        let mut all: Vec<Value> = vec![];
        for family in ["-4", "-6"] {
            let shown = self.control.ip(&format!("-j {family} route show table main"));
            all.extend(serde_json::from_str::<Vec<Value>>(&shown).unwrap());
        }
        let metric = |route: &Value| route["metric"].as_u64().unwrap_or(0);
        all.sort_by_key(metric);
        let mut routes = BTreeMap::new();
        for route in all.iter().filter(|route| route["protocol"] != "kernel" && route["tos"].is_null()) {
            let dst = route["dst"].as_str().unwrap();
            let length = if dst.contains(':') { "/128" } else { "/32" };
            let prefix = if dst.contains('/') { dst.to_owned() } else { format!("{dst}{length}") };
            let hop = |hop: &Value| {
                let address = hop["gateway"].as_str().or(hop["via"]["host"].as_str()).unwrap();
                format!("{address}*{}", hop["weight"].as_u64().unwrap_or(1))
            };
            let target = match (route["type"].as_str().filter(|of| *of != "unicast"), route["nexthops"].as_array()) {
                (Some(other), _) => other.to_owned(),
                (None, Some(hops)) => described("via".to_owned(), hops.iter().map(hop)),
                (None, None) => described("via".to_owned(), [hop(route)].into_iter()),
            };
            routes.entry(prefix).or_insert(target);
        }
        routes
    }

    /// Waits until both have the same routes.
    #[track_caller]
    fn until_same(&self) -> BTreeMap<String, String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let (own, kernel) = (self.routes(), self.kernel_routes());
            if own == kernel {
                return own;
            }
            let different = kernel.iter().filter(|(prefix, target)| own.get(*prefix) != Some(target));
            let more = own.keys().filter(|prefix| !kernel.contains_key(*prefix));
            assert!(
                Instant::now() < deadline,
                "kernel: {:?}, which is different; {:?} here only; {} of {} routes",
                different.take(10).map(|(prefix, target)| (prefix, target, own.get(prefix))).collect::<Vec<_>>(),
                more.take(10).collect::<Vec<_>>(),
                own.len(),
                kernel.len()
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Waits until the route to a prefix is this.
    #[track_caller]
    fn until_route(&self, prefix: &str, expected: Option<&str>) {
        let mut found = None;
        until(&format!("{prefix}: {expected:?}"), || {
            found = self.routes().remove(prefix);
            found.as_deref() == expected
        });
    }

    /// Executes lines of `ip`, of which some may be refused, in the namespace of the control plane.
    fn batch(&self, lines: &str) {
        let file = self.scratch.write("batch", lines);
        // ignore errors: of routes that exist already, or do not
        let _ = Command::new("ip").args(["-n", &self.control.0, "-force", "-batch"]).arg(file).output().unwrap();
    }

    #[track_caller]
    fn stop(self) {
        accounted(&self.running.terminate().summary(130));
    }
}

/// Returns a target with its next hops in order.
fn described(target: String, hops: impl Iterator<Item = String>) -> String {
    let mut hops: Vec<String> = hops.collect();
    hops.sort_unstable();
    [vec![target], hops].concat().join(" ")
}

/// BIRD in a namespace, with a configuration; it ends when this is dropped.
fn bird(scratch: &Scratch, namespace: &Namespace, name: &str, configuration: &str) -> Running {
    let file = scratch.write(format!("{name}.conf"), configuration);
    let socket = scratch.path(format!("{name}.ctl"));
    Running::start(namespace.command("bird").arg("-f").arg("-c").arg(file).arg("-s").arg(socket))
}

/// Has BIRD execute a command.
#[track_caller]
fn birdc(scratch: &Scratch, name: &str, words: &str) {
    let mut birdc = Command::new("birdc");
    done(birdc.arg("-s").arg(scratch.path(format!("{name}.ctl"))).args(words.split(' ')));
}

/// BGP of a tenant whose BIRD has its routes in the kernel; BGP packets and ARP arrive by the representors.
#[test]
fn packets_follow_routes_that_bird_has_in_the_kernel() {
    let _one = alone();
    if !possible(&["ping", "bird", "nsenter"]) {
        return;
    }
    let lab = Lab::start("bird", "routes_max = 100, prefixes = [\"198.51.0.0/16\", \"2001:db8::/32\"]");
    let Lab { scratch, sockets, b, control, .. } = &lab;
    for address in ["10.2.0.3/24 dev b0", "198.51.2.1/32 dev lo", "2001:db8:2::1/128 dev lo"] {
        b.ip(&format!("addr add {address}"));
    }
    let neighbor = |n: u8| {
        format!(
            "router id 10.2.0.{n};\nprotocol device {{}}\n\
             protocol static nets4 {{ ipv4; route 198.51.2.0/24 blackhole; route 203.0.113.0/24 blackhole; }}\n\
             protocol static nets6 {{ ipv6; route 2001:db8:2::/48 blackhole; }}\n\
             protocol bgp customer {{ strict bind; local 10.2.0.{n} as 6500{n}; neighbor 10.2.0.1 as 65001; connect retry time 1; connect delay time 1; error wait time 1, 2;\n\
             ipv4 {{ import none; export all; next hop self; }};\n\
             ipv6 {{ import none; export all; next hop address fd02::{n}; }}; }}\n"
        )
    };
    b.ip("addr add fd02::3/64 dev b0 nodad");
    let session = |n: u8| {
        format!(
            "protocol bgp peer{n} {{ local 10.2.0.1 as 65001; neighbor 10.2.0.{n} as 6500{n}; connect retry time 1; connect delay time 1; error wait time 1, 2;\n\
             ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
        )
    };
    let router = format!(
        "router id 10.2.0.1;\nprotocol device {{}}\n\
         protocol kernel {{ merge paths yes; ipv4 {{ import none; export all; }}; }}\n\
         protocol kernel {{ merge paths yes; ipv6 {{ import none; export all; }}; }}\n{}{}",
        session(2),
        session(3)
    );
    let bird_of_router = bird(scratch, control, "router", &router);
    let _second = bird(scratch, b, "b2", &neighbor(2));
    lab.until_route("198.51.2.0/24", Some("via 10.2.0.2*1"));
    lab.until_route("2001:db8:2::/48", Some("via fd02::2*1"));
    assert!(lab.a.reaches("198.51.2.1") && lab.a.reaches("2001:db8:2::1"));
    // the kernel has it, and the settings do not allow it
    assert!(lab.kernel_routes().contains_key("203.0.113.0/24") && !lab.routes().contains_key("203.0.113.0/24"));
    let shown = command(sockets, &["tenant", "show", "blue"]).out;
    assert!(shown.contains("source         kernel") && !shown.contains("routing daemon"), "{shown}");
    assert!(shown.contains("routes         2 of at most 100"), "{shown}");
    assert!(command(sockets, &["tenant", "list"]).out.contains(" kernel "));

    // a second neighbor: BIRD appends IPv6 next hops one by one
    let third = bird(scratch, b, "b3", &neighbor(3));
    lab.until_route("198.51.2.0/24", Some("via 10.2.0.2*1 10.2.0.3*1"));
    lab.until_route("2001:db8:2::/48", Some("via fd02::2*1 fd02::3*1"));
    assert!(lab.a.reaches("198.51.2.1") && lab.a.reaches("2001:db8:2::1"));
    drop(third);
    lab.until_route("198.51.2.0/24", Some("via 10.2.0.2*1"));
    lab.until_route("2001:db8:2::/48", Some("via fd02::2*1"));

    birdc(scratch, "b2", "disable nets4");
    lab.until_route("198.51.2.0/24", None);
    assert!(!lab.a.reaches("198.51.2.1") && lab.a.reaches("2001:db8:2::1"));
    birdc(scratch, "b2", "enable nets4");
    lab.until_route("198.51.2.0/24", Some("via 10.2.0.2*1"));
    // the routes of a BIRD that ends are removed from the kernel by it
    assert_eq!(bird_of_router.terminate().status, Some(0));
    lab.until_route("198.51.2.0/24", None);
    lab.until_route("2001:db8:2::/48", None);
    lab.stop();
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        all[(self.0 % all.len() as u64) as usize]
    }
}

/// Changes of few prefixes at random, of which the kernel refuses many, and the ways in which it removes routes without
/// messages: the router has what the kernel has.
#[test]
fn the_router_has_the_routes_of_the_kernel() {
    let _one = alone();
    if !possible(&["ping", "nsenter"]) {
        return;
    }
    let lab = Lab::start("same", "");
    let Lab { b, control, .. } = &lab;
    b.ip("addr add 198.51.7.1/32 dev lo");
    let of = |hosts: &[&str]| hosts.iter().map(|host| format!(" nexthop via {host}")).collect::<String>();
    let hops: [(&[&str], [String; 3]); 2] = [
        (
            &["via 10.2.0.2", "via 10.2.0.3", "via 10.1.0.9"],
            [of(&["10.2.0.2", "10.2.0.3"]), of(&["10.1.0.4 weight 3", "10.2.0.3 weight 5"]), of(&["10.2.0.5"; 1])],
        ),
        (
            &["via fd02::2", "via fd02::3", "via fd01::9"],
            [of(&["fd02::2", "fd02::3"]), of(&["fd01::4 weight 3", "fd02::3 weight 5"]), of(&["fd02::5"; 1])],
        ),
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..8 {
        let mut lines = String::new();
        for _ in 0..150 {
            let family = usize::from(random.one_of(&["4", "6"]) == "6");
            let prefix =
                random.one_of(&[["198.51.7.0/24", "198.51.8.0/24"], ["2001:db8:7::/48", "2001:db8:8::/48"]][family]);
            let verb = random.one_of(&["add", "append", "prepend", "replace", "change", "del", "del"]);
            let metric = random.one_of(&["", "metric 10", "metric 20"]);
            let (single, several) = &hops[family];
            let target = match random.one_of(&["one", "one", "several", "other"]) {
                "one" => random.one_of(single).to_owned(),
                "several" => random.one_of(&several.each_ref().map(String::as_str)).to_owned(),
                _ => String::new(),
            };
            let kind = if target.is_empty() { random.one_of(&["blackhole", "unreachable", "prohibit"]) } else { "" };
            writeln!(lines, "route {verb} {kind} {prefix} {metric} {target}").unwrap();
        }
        lab.batch(&lines);
        let same = lab.until_same();
        assert!(round > 0 || !same.is_empty());
    }
    control.ip("route flush root 198.51.0.0/16");
    control.ip("-6 route flush root 2001:db8::/32");
    assert!(lab.until_same().is_empty());

    // the router does not use other tables, and routes of a TOS or of other interfaces
    control.ip("link add veth0 type veth peer name veth1");
    control.ip("link set veth0 up");
    for other in
        ["198.51.9.0/24 via 10.2.0.2 table 100", "198.51.9.0/24 tos 0x10 via 10.2.0.2", "198.51.9.0/24 dev veth0"]
    {
        control.ip(&format!("route add {other}"));
    }
    control.ip("route add 198.51.7.0/24 via 10.2.0.2 metric 5");
    lab.until_route("198.51.7.0/24", Some("via 10.2.0.2*1"));
    assert!(!lab.routes().contains_key("198.51.9.0/24") && lab.a.reaches("198.51.7.1"));
    for end in ["tos 0x10", "dev veth0"] {
        control.ip(&format!("route del 198.51.9.0/24 {end}"));
    }

    // next-hop objects, in groups and changed; the kernel removes their routes with them
    for words in ["10.2.0.3 dev wan", "10.2.0.4 dev wan", "fd02::3 dev wan"].iter().enumerate() {
        control.ip(&format!("nexthop add id {} via {}", words.0 + 1, words.1));
    }
    control.ip("nexthop add id 9 group 1,3/2,1");
    for route in ["198.51.8.0/24 nhid 9", "198.51.10.0/24 nhid 1", "198.51.11.0/24 nhid 9 metric 7"] {
        control.ip(&format!("route add {route}"));
    }
    control.ip("route add 2001:db8:8::/48 nhid 3");
    lab.until_route("198.51.8.0/24", Some("via 10.2.0.3*3 10.2.0.4*1"));
    lab.until_same();
    control.ip("nexthop replace id 9 group 1/2");
    lab.until_route("198.51.11.0/24", Some("via 10.2.0.3*1 10.2.0.4*1"));
    control.ip("nexthop replace id 1 via 10.2.0.5 dev wan");
    lab.until_route("198.51.8.0/24", Some("via 10.2.0.4*1 10.2.0.5*1"));
    lab.until_same();
    control.ip("nexthop del id 1");
    lab.until_route("198.51.10.0/24", None);
    control.ip("nexthop del id 3");
    lab.until_route("2001:db8:8::/48", None);
    lab.until_same();

    // an address, and an interface of some and of all next hops, are removed with their routes; packets use the others
    control.ip("addr add 10.2.0.9/24 dev wan");
    control.ip("route add 198.51.12.0/24 via 10.2.0.2 src 10.2.0.9");
    control.ip("route add 198.51.13.0/24 nexthop via 10.1.0.2 nexthop via 10.2.0.2");
    lab.until_route("198.51.12.0/24", Some("via 10.2.0.2*1"));
    lab.until_route("198.51.13.0/24", Some("via 10.1.0.2*1 10.2.0.2*1"));
    control.ip("addr del 10.2.0.9/24 dev wan");
    lab.until_route("198.51.12.0/24", None);
    control.ip("link set wan down");
    lab.until_route("198.51.13.0/24", Some("via 10.1.0.2*1"));
    lab.until_route("198.51.7.0/24", None);
    control.ip("link set wan up");
    lab.until_route("198.51.13.0/24", Some("via 10.1.0.2*1 10.2.0.2*1"));
    control.ip("route add 198.51.7.0/24 via 10.2.0.2");
    lab.until_route("198.51.7.0/24", Some("via 10.2.0.2*1"));
    assert!(lab.a.reaches("198.51.7.1"));
    lab.stop();
}

/// More changes than the socket holds while the program does not run: the routes are read again, and no others stay.
#[test]
fn routes_are_read_again_after_changes_were_lost() {
    const ROUTES: u32 = 10_000;
    let _one = alone();
    if !possible(&["ping", "nsenter"]) {
        return;
    }
    let mut lab = Lab::start("lost", &format!("routes_max = {ROUTES}"));
    let prefix = |n: u32| format!("{}/24", std::net::Ipv4Addr::from_bits(0xc612_0000 + (n << 8)));
    let lines = |verb: &str, range: std::ops::Range<u32>, end: &dyn Fn(u32) -> String| {
        range.map(|n| format!("route {verb} {} {}\n", prefix(n), end(n))).collect::<String>()
    };
    lab.batch(&lines("add", 0..1000, &|_| "via 10.2.0.2".to_owned()));
    let before = lab.until_same();
    assert_eq!(before.len(), 1000);
    lab.running.signal(Signal::STOP);
    let hop = |n: u32| format!("via 10.2.0.{}", 2 + n % 50);
    let changes: String = (0..8).map(|round| lines("replace", 0..ROUTES / 2, &|n| hop(n + round))).collect();
    lab.batch(&[changes, lines("del", 0..500, &|_| String::new())].concat());
    lab.running.signal(Signal::CONT);
    lab.running.wait_for("lost changes", |line| line.contains("changes of the kernel's routes were lost"));
    assert_eq!(lab.until_same().len() as u32, ROUTES / 2 - 500);

    // more than `routes_max`: the first are used, and others as soon as there is room
    lab.batch(&lines("replace", 0..ROUTES + 10, &hop));
    until("the maximum of routes", || lab.routes().len() as u32 == ROUTES);
    lab.running.wait_for("refused routes", |line| line.contains("routes are installed, the maximum"));
    lab.batch(&lines("del", 0..10, &|_| String::new()));
    let all = lab.until_same();
    assert_eq!(all.len() as u32, ROUTES);
    lab.stop();
}
