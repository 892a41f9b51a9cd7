//! Tenants of a router with FRR in namespaces that Bondstone makes.

use crate::common::frr::{self, Frr};
use crate::common::gateway::accounted;
use crate::common::instance::command;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::page::page;
use crate::common::tenants::{Site, has_routes, process, runs, start, supervisor, tenant, until};
use crate::common::{LIMIT, Scratch, alone};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Configuration of the tenants' FRR, with different numbers of the autonomous systems.
const TEMPLATE: &str = "\
hostname @tenant@
router bgp @as@
 no bgp ebgp-requires-policy
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart select-defer-time 5
 neighbor 10.9.0.2 remote-as 65100
 neighbor 10.9.0.2 timers connect 1
";

impl Site {
    /// Returns ports, interfaces and settings of the tenant.
    fn settings(&self, number: u16, limits: &str) -> String {
        let Site { name, control, host, peer } = self;
        format!(
            "port.{name}-lan = {{ device = \"tap:{name}-h0\", namespace = \"{}\" }}\n\
             port.{name}-wan = {{ device = \"tap:{name}-p0\", namespace = \"{}\" }}\n\
             nf.router.interface.{name}-lan = {{ addresses = [\"10.8.0.1/24\"], tenant = \"{name}\" }}\n\
             nf.router.interface.{name}-wan = {{ addresses = [\"10.9.0.1/24\"], tenant = \"{name}\" }}\n\
             nf.router.tenant.{name} = {{ namespace = \"{control}\", frr = {{ daemons = [\"bgpd\"], \
             config = \"frr.conf\", values.as = \"{number}\" }}, fpm = {{ {limits} }} }}\n",
            host.0, peer.0
        )
    }

    /// Configures host and neighbor; the latter announces prefixes.
    fn connect<'a>(&'a self, scratch: &Scratch, prefixes: &[&str]) -> Frr<'a> {
        self.configure();
        let mut bgpd =
            "router bgp 65100\n bgp router-id 10.9.0.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
             neighbor 10.9.0.1 remote-as external\n neighbor 10.9.0.1 timers connect 1\n address-family ipv4 unicast\n"
                .to_owned();
        for prefix in prefixes {
            self.peer.ip(&format!("addr add {} dev lo", prefix.replace(".0/24", ".1/32")));
            bgpd += &format!("  network {prefix}\n");
        }
        Frr::start(scratch, &self.peer, &[("bgpd", &bgpd)])
    }

    /// Configures the taps of a run.
    fn configure(&self) {
        let Site { name, host, peer, .. } = self;
        host.configure(&format!("{name}-h0"), &["10.8.0.2/24"]);
        host.ip("route add default via 10.8.0.1");
        peer.configure(&format!("{name}-p0"), &["10.9.0.2/24"]);
        peer.ip("route add default via 10.9.0.1");
    }
}

#[test]
fn tenants_have_routes_and_routing_daemons_of_their_own() {
    let _one = alone();
    if !possible(&["ping", "nsenter"]) || !frr::installed() {
        return;
    }
    let (scratch, own) = (Scratch::new(), Namespace::new("own"));
    let (blue, red) = (Site::new("blue"), Site::new("red"));
    scratch.write("frr.conf", TEMPLATE);
    let limits = "stale_time = 20, routes_max = 100, prefixes = [\"198.51.0.0/16\"]";
    let text = format!(
        "bondstone = 1\nnf.router.kind = \"l3fwd\"\n\
         chain = [{}]\n{}{}",
        ["blue-lan", "blue-wan", "red-lan", "red-wan"]
            .map(|port| format!("{{ path = [\"{port}\", \"router\"] }}"))
            .join(", "),
        blue.settings(65001, limits),
        red.settings(65002, limits)
    );
    let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
    let running = start(&own, &file, &sockets);
    // both neighbors announce the first prefix, and one that the tenant may not use
    let _blue_peer = blue.connect(&scratch, &["198.51.1.0/24", "203.0.113.0/24"]);
    let _red_peer = red.connect(&scratch, &["198.51.1.0/24", "198.51.2.0/24", "203.0.113.0/24"]);
    until(&sockets, "blue", has_routes(1));
    until(&sockets, "red", has_routes(2));
    assert!(blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.1.1") && red.host.reaches("198.51.2.1"));
    assert!(!blue.host.reaches("198.51.2.1") && !blue.host.reaches("203.0.113.1"));
    let listed = command(&sockets, &["routes", "list", "--tenant", "red"]);
    assert!(listed.out.contains("198.51.2.0/24") && !listed.out.contains("203.0.113"), "{}", listed.out);
    let listed = command(&sockets, &["tenant", "list"]);
    assert_eq!(listed.out.matches(" connected ").count(), 2, "{}", listed.out);

    // a daemon that is killed is started again; meanwhile packets are forwarded
    let state = tenant(&sockets, "blue");
    let killed = process(&state, "bgpd");
    done(Command::new("kill").args(["-9", &killed.to_string()]));
    assert!(blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.1.1"));
    let state = until(&sockets, "blue", |state| {
        let is_new = |daemon: &Value| daemon["name"] == "bgpd" && daemon["restarts"] == 1;
        state["daemons"].as_array().is_some_and(|all| all.iter().any(is_new)) && has_routes(1)(state)
    });
    assert!(state.to_string().contains("was ended by signal 9"), "{state:#}");
    // so is zebra, which sends the routes again
    done(Command::new("kill").args(["-9", &process(&tenant(&sockets, "red"), "zebra").to_string()]));
    assert!(red.host.reaches("198.51.2.1"));
    until(&sockets, "red", |state| state["peer"].is_null());
    until(&sockets, "red", has_routes(2));

    // the process that starts them is replaced, and ends the daemons that it has left
    let before = process(&tenant(&sockets, "blue"), "bgpd");
    done(Command::new("kill").args(["-9", &supervisor(&blue.control)]));
    until(&sockets, "blue", |state| {
        state["daemons"].as_array().is_some_and(|all| all.len() == 3 && all.iter().all(|one| one["pid"].is_u64()))
            && process(state, "bgpd") != before
            && has_routes(1)(state)
    });
    until(&sockets, "red", has_routes(2));
    assert!(!runs(before) && blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.2.1"));

    // a tenant is added and removed, and the others do not change
    let daemons = || ["blue", "red"].map(|name| process(&tenant(&sockets, name), "bgpd"));
    let before = daemons();
    let green = Site::new("green");
    let device = "green-lan=tap:green-h0";
    let add = ["tenant", "add", "green", "--interface", "green-lan=10.8.0.1/24", "--device", device];
    let said = command(&sockets, &[&add[..], &["--namespace", &green.control, "--frr", "ospfd"]].concat());
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.2.1"));
    until(&sockets, "green", |state| state["peer"].is_string());
    let taps = done(Command::new("ip").args(["-n", &green.control, "-brief", "addr"]));
    assert!(String::from_utf8_lossy(&taps.stdout).contains("10.8.0.1/24"), "{taps:?}");
    let ospfd = process(&tenant(&sockets, "green"), "ospfd");
    let again = command(&sockets, &add);
    assert!(again.status == Some(2) && again.err.contains("has a tenant of this name"), "{}", again.err);
    let said = command(&sockets, &["tenant", "rm", "green"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(!runs(ospfd) && !Path::new("/run/netns").join(&green.control).exists());
    assert!(blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.2.1"));
    assert_eq!(daemons(), before);
    assert!(has_routes(1)(&tenant(&sockets, "blue")) && has_routes(2)(&tenant(&sockets, "red")));

    // a run that is killed leaves nothing
    let daemons: Vec<u64> = ["blue", "red"]
        .iter()
        .flat_map(|name| tenant(&sockets, name)["daemons"].as_array().unwrap().clone())
        .map(|daemon| daemon["pid"].as_u64().unwrap())
        .collect();
    done(Command::new("kill").args(["-9", &running.id().to_string()]));
    drop(running);
    let deadline = Instant::now() + LIMIT;
    let namespaces = || [&blue, &red].map(|site| Path::new("/run/netns").join(&site.control));
    while daemons.iter().any(|pid| runs(*pid)) || namespaces().iter().any(|namespace| namespace.exists()) {
        assert!(Instant::now() < deadline, "{daemons:?}, {:?}", namespaces());
        std::thread::sleep(Duration::from_millis(50));
    }
    // and the next one has the routes again
    let running = start(&own, &file, &sockets);
    blue.configure();
    red.configure();
    until(&sockets, "blue", has_routes(1));
    until(&sockets, "red", has_routes(2));
    assert!(blue.host.reaches("198.51.1.1") && red.host.reaches("198.51.2.1"));
    accounted(&running.terminate().summary(130));
    assert!(namespaces().iter().all(|namespace| !namespace.exists()));
}

/// The commands of the tutorial do what it says.
#[test]
fn the_tutorial_works() {
    let _one = alone();
    if !possible(&["ping", "nsenter"]) || !frr::installed() || !Path::new("/usr/sbin/bird").exists() {
        return;
    }
    let scratch = Scratch::new();
    let (commands, files) = page("tutorials/two-routers.md");
    assert_eq!(
        files.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(),
        ["bgp.conf", "two-routers.toml", "provider.conf"]
    );
    for (name, text) in files {
        scratch.write(&name, text);
    }
    let sockets = scratch.path("sockets");
    let own = Namespace::new("own");
    let mut running = None;
    let (mut pings, mut said_of) = (0, String::new());
    for line in commands.iter().filter(|line| !line.contains("apt-get")) {
        let line = line.trim_start_matches("sudo ");
        if line.starts_with("bondstone run") {
            running = Some(start(&own, &scratch.path("two-routers.toml"), &sockets));
            continue;
        }
        if line == "bondstone tenant list" {
            until(&sockets, "blue", has_routes(2));
            until(&sockets, "red", has_routes(1));
        }
        let line = line.replacen("bondstone ", &format!("{} ", env!("CARGO_BIN_EXE_bondstone")), 1);
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(scratch.path(".")).env("BONDSTONE_RUNTIME_DIR", &sockets);
        let said = done(&mut shell);
        pings += usize::from(line.contains(" ping "));
        said_of += &String::from_utf8_lossy(&said.stdout);
    }
    assert_eq!(pings, 2);
    for expected in ["connected", "203.0.113.0/24", "ospfd", "10.9.0.2"] {
        assert!(said_of.contains(expected), "{expected}: {said_of}");
    }
    accounted(&running.unwrap().end().summary(0));
}

/// As many tenants as a router has, each with FRR, whose routes are apart.
#[test]
#[ignore = "189 processes: make soak"]
fn sixty_three_tenants_have_frr() {
    const TENANTS: usize = 63;
    let _one = alone();
    if !possible(&["nsenter"]) || !frr::installed() {
        return;
    }
    let (scratch, own) = (Scratch::new(), Namespace::new("own"));
    scratch.write("frr.conf", "ip route 198.51.@n@.0/24 10.0.0.9\nip route 203.0.113.0/24 10.0.0.1@n@\n");
    let name = |n: usize| format!("bs-{}-{n}", std::process::id());
    // their networks are captures that are written
    let tenant = |n: usize| {
        format!(
            "port.i{n} = {{ device = \"pcap:{n}.pcap\" }}\n\
             nf.router.interface.i{n} = {{ addresses = [\"10.0.0.1/16\"], tenant = \"t{n}\" }}\n\
             nf.router.tenant.t{n} = {{ namespace = \"{}\", frr = {{ daemons = [\"bgpd\"], config = \"frr.conf\", \
             values.n = \"{n}\" }}, fpm.routes_max = 10 }}\n",
            name(n)
        )
    };
    let text = format!(
        "bondstone = 1\nnf.router.kind = \"l3fwd\"\nport.first = {{ device = \"ring:first\" }}\n\
         chain = [{{ path = [\"first\", \"router\"] }}]\n\
         nf.router.interface.first = {{ addresses = [\"10.0.0.1/16\"] }}\n{}",
        (1..=TENANTS).map(tenant).collect::<String>()
    );
    let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
    let started = Instant::now();
    let running = start(&own, &file, &sockets);
    let all = || {
        // it does not answer while all daemons start
        let said = command(&sockets, &["tenant", "list", "--json"]);
        serde_json::from_str::<Value>(&said.out).map_or(vec![], |list| list["tenants"].as_array().unwrap().clone())
    };
    let deadline = Instant::now() + 4 * LIMIT;
    while all().iter().filter(|tenant| has_routes(2)(tenant)).count() < TENANTS {
        assert!(Instant::now() < deadline, "{:#?}", all().iter().find(|tenant| !has_routes(2)(tenant)));
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("{TENANTS} tenants have their routes after {:.1?}", started.elapsed());
    for n in [1, 7, TENANTS] {
        let listed = command(&sockets, &["routes", "list", "--tenant", &format!("t{n}")]);
        let own = [format!("198.51.{n}.0/24"), format!("via 10.0.0.1{n}")];
        assert!(own.iter().all(|own| listed.out.contains(own)), "{}", listed.out);
        assert_eq!(listed.out.matches(" fpm ").count(), 2, "{}", listed.out);
    }
    accounted(&running.terminate().summary(130));
    assert!((1..=TENANTS).all(|n| !Path::new("/run/netns").join(name(n)).exists()));
}
