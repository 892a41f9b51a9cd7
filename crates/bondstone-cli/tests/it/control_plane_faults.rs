//! Processes of control planes, and of the router itself, that are killed while packets are forwarded.

use crate::common::frr::{self, Frr};
use crate::common::instance::statistics;
use crate::common::load::{Datagrams, capture, losses};
use crate::common::namespace::{Namespace, done, possible};
use crate::common::tenants::{Site, has_routes, process, start, supervisor, tenant, until};
use crate::common::{LIMIT, Scratch, Summary, alone};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Packets per second of each tenant, besides a thousand datagrams.
const RATE: u64 = 100_000;
const TEMPLATE: &str = "\
hostname @tenant@
router bgp 65001
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart select-defer-time 5
 neighbor 10.9.0.2 remote-as 65100
 neighbor 10.9.0.2 timers connect 1
 address-family ipv4 unicast
  network 10.8.0.0/24
";
/// The neighbor announces a network of its own, and one behind another next hop.
const NEIGHBOR: &str = "\
router bgp 65100
 bgp router-id 10.9.0.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 bgp graceful-restart
 neighbor 10.9.0.1 remote-as external
 neighbor 10.9.0.1 timers connect 1
 address-family ipv4 unicast
  network 198.51.1.0/24
  network 198.51.100.0/24
  neighbor 10.9.0.1 route-map to-router out
 exit-address-family
ip prefix-list behind permit 198.51.100.0/24
route-map to-router permit 10
 match ip address prefix-list behind
 set ip next-hop 10.6.0.9
route-map to-router permit 20
";

impl Site {
    /// Connects host and neighbor to the namespace of the router.
    fn connect_by_veth<'a>(&'a self, scratch: &Scratch, own: &Namespace) -> Frr<'a> {
        let Site { name, host, peer, .. } = self;
        for (side, far, address) in [("h", host, "10.8.0.2/24"), ("p", peer, "10.9.0.2/24")] {
            own.link(&format!("{name}-{side}"), far, "eth0");
            own.raise(&format!("{name}-{side}"));
            far.configure("eth0", &[address]);
        }
        host.ip("route add default via 10.8.0.1");
        peer.ip("addr add 198.51.1.1/32 dev lo");
        Frr::start(scratch, peer, &[("bgpd", NEIGHBOR)])
    }

    /// Returns ports, interfaces and settings.
    fn settings_with_load(&self, scratch: &Scratch, number: u8) -> String {
        let Site { name, control, .. } = self;
        let mac = [2, 0, 0, 0, 7, number];
        capture(scratch, &format!("{name}.pcap"), mac, [198, 51, 100, 7], RATE);
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        format!(
            "port.{name}-lan = {{ device = \"af_packet:{name}-h\" }}\n\
             port.{name}-wan = {{ device = \"af_packet:{name}-p\" }}\n\
             port.{name}-load = {{ device = \"pcap:{name}.pcap\", timed = true, repeat = 0 }}\n\
             port.{name}-out = {{ device = \"null\" }}\n\
             nf.router.interface.{name}-lan = {{ addresses = [\"10.8.0.1/24\"], tenant = \"{name}\" }}\n\
             nf.router.interface.{name}-wan = {{ addresses = [\"10.9.0.1/24\"], tenant = \"{name}\" }}\n\
             nf.router.interface.{name}-load = {{ addresses = [\"10.7.0.1/24\"], mac = \"{mac}\", tenant = \"{name}\" }}\n\
             nf.router.interface.{name}-out = {{ addresses = [\"10.6.0.1/24\"], tenant = \"{name}\" }}\n\
             nf.router.tenant.{name} = {{ namespace = \"{control}\", neighbour = {{ \"10.6.0.9\" = \
             \"02:00:00:00:00:99\", \"10.7.0.9\" = \"02:00:00:00:00:98\" }}, \
             frr = {{ daemons = [\"bgpd\"], config = \"frr.conf\" }} }}\n"
        )
    }
}

/// Waits until the neighbor has a session, in which it has received all routes.
fn session(neighbor: &Frr<'_>) {
    neighbor.wait_for("show bgp ipv4 unicast summary json", |shown| {
        shown["peers"]["10.9.0.1"]["state"] == "Established" && shown["peers"]["10.9.0.1"]["pfxRcd"] == 1
    });
}

/// Returns the processes of the daemons of a tenant.
fn daemons(sockets: &Path, name: &str) -> Vec<u64> {
    ["bgpd", "zebra", "staticd"].map(|daemon| process(&tenant(sockets, name), daemon)).into()
}

fn kill(processes: &[u64]) {
    done(Command::new("kill").arg("-9").args(processes.iter().map(u64::to_string)));
}

#[test]
fn packets_are_forwarded_while_control_planes_are_killed() {
    let _one = alone();
    if !possible(&["nsenter"]) || !frr::installed() {
        return;
    }
    let (scratch, own) = (Scratch::new(), Namespace::new("own"));
    let sites = [Site::new("blue"), Site::new("red")];
    scratch.write("frr.conf", TEMPLATE);
    let path = |port: String| format!("{{ path = [\"{port}\", \"router\"], cores = [0] }}");
    let names = ["blue", "red"];
    let chains: Vec<String> =
        names.iter().flat_map(|name| ["lan", "wan", "load"].map(|port| path(format!("{name}-{port}")))).collect();
    let edges = names.map(|name| format!("{{ from = \"router.{name}-load\", to = \"sink\" }}"));
    let text = format!(
        "bondstone = 1\nnf.router.kind = \"l3fwd\"\nnf.sink.kind = \"drop\"\nchain = [{}]\nedge = [{}]\n{}{}",
        chains.join(", "),
        edges.join(", "),
        sites[0].settings_with_load(&scratch, 1),
        sites[1].settings_with_load(&scratch, 2)
    );
    let (file, sockets) = (scratch.write("router.toml", text), scratch.path("sockets"));
    let neighbors = sites.each_ref().map(|site| site.connect_by_veth(&scratch, &own));
    let running = start(&own, &file, &sockets);
    for (site, neighbor) in sites.iter().zip(&neighbors) {
        until(&sockets, site.name, has_routes(2));
        session(neighbor);
    }
    let to = |site: &Site| Datagrams::start(&site.host, &site.peer, "198.51.1.1");
    // by the route that the neighbor has of the session
    let back = |site: &Site| Datagrams::start(&site.peer, &site.host, "10.8.0.2");
    let datagrams = sites.each_ref().map(|site| [to(site), back(site)]);
    let datagrams: Vec<Datagrams> = datagrams.into_iter().flatten().collect();
    datagrams.iter().for_each(Datagrams::wait);
    for flow in &datagrams {
        flow.count();
    }

    let event = |what: &str, happen: &dyn Fn()| {
        let before = statistics(&sockets);
        let start = Instant::now();
        happen();
        let seconds = start.elapsed().as_secs_f64();
        let after = statistics(&sockets);
        let sent = names.map(|name| {
            let of = |summary: &Summary| summary.port(&format!("{name}-out")).number("/sent");
            of(&after) - of(&before)
        });
        let lost = losses(&after, "router") - losses(&before, "router");
        let counts: Vec<(u64, u64)> = datagrams.iter().map(Datagrams::count).collect();
        let datagrams: u64 = counts.iter().map(|(sent, _)| sent).sum();
        let missing: u64 = counts.iter().map(|(_, lost)| lost).sum();
        println!(
            "{what}: repaired after {seconds:.1} s; {} packets forwarded, {lost} lost; {missing} of {datagrams} \
             datagrams missing",
            sent.iter().sum::<u64>()
        );
        assert!(sent.iter().all(|sent| *sent > 0), "{what}: {sent:?}");
        assert_eq!((lost, missing), (0, 0), "{what}: {}", after.0);
    };
    let is_new = |name: &str, before: &[u64]| {
        until(&sockets, name, |state| {
            let Some(all) = state["daemons"].as_array() else { return false };
            let runs = |daemon: &Value| daemon["pid"].as_u64().is_some_and(|pid| !before.contains(&pid));
            all.len() == 3 && all.iter().filter(|daemon| runs(daemon)).count() >= before.len() && has_routes(2)(state)
        });
    };
    event("nothing", &|| std::thread::sleep(Duration::from_secs(2)));
    for daemon in ["bgpd", "zebra"] {
        event(daemon, &|| {
            let before = process(&tenant(&sockets, "blue"), daemon);
            kill(&[before]);
            is_new("blue", &[before]);
            session(&neighbors[0]);
        });
    }
    event("all daemons of a tenant", &|| {
        let before = daemons(&sockets, "blue");
        kill(&before);
        is_new("blue", &before);
        session(&neighbors[0]);
    });
    event("the supervisor", &|| {
        let before = names.map(|name| daemons(&sockets, name));
        kill(&[supervisor(&sites[0].control).parse().unwrap()]);
        for ((name, before), neighbor) in names.iter().zip(&before).zip(&neighbors) {
            is_new(name, before);
            session(neighbor);
        }
    });

    // the router itself: the neighbors keep its routes, and it has theirs again
    for flow in &datagrams {
        flow.count();
    }
    let before: u64 = datagrams.iter().map(Datagrams::refused).sum();
    let killed = Instant::now();
    kill(&[running.id().into()]);
    drop(running);
    let running = start(&own, &file, &sockets);
    let started = killed.elapsed();
    datagrams.iter().for_each(Datagrams::wait);
    let forwards = killed.elapsed();
    for (site, neighbor) in sites.iter().zip(&neighbors) {
        until(&sockets, site.name, has_routes(2));
        session(neighbor);
    }
    let complete = killed.elapsed();
    let counts: Vec<(u64, u64)> = datagrams.iter().map(Datagrams::count).collect();
    let refused: u64 = datagrams.iter().map(Datagrams::refused).sum();
    println!(
        "the router: ports open after {:.1} s, datagrams arrive after {:.1} s, all routes and sessions after {:.1} s; {} of {} \
         datagrams missing, {} without a route of the neighbor",
        started.as_secs_f64(),
        forwards.as_secs_f64(),
        complete.as_secs_f64(),
        counts.iter().map(|(_, lost)| lost).sum::<u64>(),
        counts.iter().map(|(sent, _)| sent).sum::<u64>(),
        refused - before
    );
    assert!(complete < LIMIT);
    event("nothing, after it", &|| std::thread::sleep(Duration::from_secs(2)));
    drop(datagrams);
    running.terminate().summary(130);
}
