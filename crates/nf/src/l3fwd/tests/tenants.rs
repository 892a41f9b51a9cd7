//! Routes of tenants, whose networks and neighbours have the same addresses.

use super::*;
use crate::l3fwd::{InstalledHop, InstalledTarget, LiveRoutes};

const INTERFACES: &str = "\
interface.a-lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\", tenant = \"blue\" }
interface.b-wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:02:00\", tenant = \"blue\" }
interface.c-lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\", tenant = \"red\" }
interface.d-wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:02:00\", tenant = \"red\" }
interface.e-own = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\" }
";
const BLUE: usize = 0;
const RED: usize = 2;
const OWN: usize = 4;

fn tenants(more: &str) -> Harness {
    let tenant = |name: &str, mac: &str| {
        format!(
            "[tenant.{name}]\nroute = [{{ prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\"] }}, \
             {{ prefix = \"::/0\", via = [\"2001:db8:2::1\"] }}]\n\
             neighbour = {{ \"192.0.2.1\" = \"{mac}\", \"2001:db8:2::1\" = \"{mac}\" }}\n"
        )
    };
    let (blue, red) = (tenant("blue", "02:00:00:00:0b:01"), tenant("red", "02:00:00:00:0e:01"));
    Harness::new::<L3fwd>(&format!("{INTERFACES}{more}{blue}{red}"))
}

#[test]
fn packets_follow_the_routes_of_their_tenant() {
    for table in ["lpm", "exact"] {
        let mut router = tenants(&format!("table = \"{table}\"\n"));
        for (from, gateway) in [(BLUE, 0x0b), (RED, 0x0e)] {
            let sent = [lan4([8, 8, 8, 8]).to_vec(), lan6("2001:db8:9::9").to_vec(), lan4([8, 8, 4, 4]).to_vec()];
            for frame in sent.chunks(1).chain([&sent[..]]) {
                let out = router.feed_input(from, frame);
                let to = MacAddr([2, 0, 0, 0, gateway, 1]);
                assert_eq!(out.iter().map(Vec::len).sum::<usize>(), frame.len());
                // the output of an interface is one more than its number
                assert!(out[from + 2].iter().all(|frame| macs(frame) == (to, WAN)));
                assert_eq!(out[from + 2].len(), frame.len());
            }
        }
        // the router itself has no default route
        let out = router.feed_input(OWN, &[lan4([8, 8, 8, 8]).to_vec()]);
        assert_eq!((out[..OWN + 1].iter().all(Vec::is_empty), router.dropped("no_route")), (true, 1));
    }
}

/// Neighbours with the same address are different ones, and errors return to the tenant's host.
#[test]
fn neighbours_and_errors_are_those_of_the_tenant() {
    let mut router = tenants("");
    let learn = |router: &mut Harness, from: usize, mac: MacAddr| {
        let request = arp::Repr {
            operation: arp::Operation::Request,
            sender_mac: mac,
            sender_ip: [10, 0, 0, 5].into(),
            target_mac: MacAddr([0; 6]),
            target_ip: [10, 0, 0, 1].into(),
        };
        let request = build::arp(request).src_mac(mac).dst_mac(MacAddr::BROADCAST).pad_to(60).to_vec();
        assert!(!router.feed_input(from, &[request])[from + 1].is_empty());
    };
    let host = |n: u8| MacAddr([2, 0, 0, 0, n, 5]);
    learn(&mut router, BLUE, host(1));
    // the other tenant's neighbour is not known by it
    let back = build::udp4([192, 0, 2, 9], [10, 0, 0, 5], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
    let out = router.feed_input(RED + 1, std::slice::from_ref(&back));
    let request = arp::Repr::parse(&arp::Packet::new(&out[RED + 1][0][14..]).unwrap()).unwrap();
    assert_eq!((request.operation, request.target_ip), (arp::Operation::Request, [10, 0, 0, 5].into()));
    learn(&mut router, RED, host(2));
    for (from, mac) in [(BLUE, host(1)), (RED, host(2))] {
        let out = router.feed_input(from + 1, std::slice::from_ref(&back));
        assert_eq!(out[from + 1].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(mac, LAN)]);
        let expired = router.feed_input(from, &[lan4([8, 8, 8, 8]).src_mac(mac).ttl(1).to_vec()]);
        let (src, dst, _, _) = error4(&expired[from + 1]);
        assert_eq!((src, dst), (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 5)));
        assert_eq!(macs(&expired[from + 1][0]).0, mac);
    }
}

/// Hosts of one tenant take no neighbours from another one.
#[test]
fn neighbours_of_a_tenant_do_not_exceed_its_share() {
    // the three that have interfaces share 30, of which two are next hops of each tenant
    let mut router = tenants("neighbours_max = 30\n");
    let hosts = |router: &mut Harness, from: usize, n: u8| {
        for host in 0..n {
            let to = build::udp4([192, 0, 2, 9], [10, 0, 0, 100 + host], 1, 1).dst_mac(WAN).pad_to(60).to_vec();
            router.feed_input(from + 1, &[to]);
        }
    };
    hosts(&mut router, BLUE, 60);
    assert_eq!((router.held(), router.dropped("neighbour_table_full")), (10, 50));
    hosts(&mut router, RED, 10);
    assert_eq!((router.held(), router.dropped("neighbour_table_full")), (20, 50));
}

#[test]
fn limits_of_next_hops_have_a_range() {
    let error = |more: &str| {
        let built = HarnessBuilder::new::<L3fwd>(&format!("{INTERFACES}tenant.red = {{}}\n{more}")).build();
        built.err().unwrap().to_string()
    };
    for (settings, expected) in [
        ("tenant.blue.next_hops_max = 0\n", "maximum number of next hops is out of range"),
        ("tenant.blue.next_hops_max = 65537\n", "maximum number of next hops is out of range"),
        ("tenant.blue = {}\nnext_hops_max = 0\n", "maximum number of next hops is out of range"),
    ] {
        assert!(error(settings).contains(expected), "{}", error(settings));
    }
    let many: String = (0..16).map(|n| format!("tenant.t{n}.next_hops_max = 65536\n")).collect();
    assert!(error(&format!("{many}tenant.blue = {{}}\n")).contains("more than 1048576"));
}

#[test]
fn next_hops_are_on_networks_of_the_tenant() {
    let error = |more: &str| {
        let built = HarnessBuilder::new::<L3fwd>(&format!("{INTERFACES}{more}")).build();
        built.err().unwrap().to_string()
    };
    let leak = "tenant.red = {}\n[tenant.blue]\nroute = [{ prefix = \"8.0.0.0/8\", via = [\"172.16.0.1\"] }]";
    assert!(error(leak).contains("172.16.0.1, which is not on a network of an interface"), "{}", error(leak));
    let unknown = error("tenant.blue = {}\n");
    assert!(unknown.contains("tenant of interface c-lan is unknown"), "{unknown}");
    for (settings, expected) in [
        ("kernel_routes = {}\nfpm = {}\ntenant = { blue = {}, red = {} }", "routes have two sources"),
        ("tenant = { blue = {}, red = { kernel_routes = {}, fpm = {} } }", "tenant red has two sources of routes"),
        (
            "tenant = { blue = {}, red = { namespace = \"red\", kernel_routes = {}, frr = {} } }",
            "tenant red has daemons of FRR, which send routes by fpm",
        ),
        ("tenant = { blue = {}, red = { kernel_routes = { routes_max = 4194305 } } }", "is out of range"),
    ] {
        let said = error(&format!("{settings}\n"));
        assert!(said.contains(expected), "{settings}: {said}");
    }
}

/// A tenant is added, so that interfaces and tenants get other numbers: neighbours, installed routes and packets that wait
/// stay.
#[test]
fn adding_a_tenant_leaves_others_as_they_are() {
    let blue = "interface.b-lan = { addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:01:00\", tenant = \"blue\" }\n\
         interface.b-wan = { addresses = [\"192.0.2.2/24\"], mac = \"02:00:00:00:02:00\", tenant = \"blue\" }\n\
         tenant.blue.fpm.routes_max = 10\n";
    let more = "interface.a = { addresses = [\"10.0.0.1/24\"], mac = \"02:00:00:00:01:00\", tenant = \"a\" }\ntenant.a.fpm.routes_max = 10\n";
    // the harness has a fixed number of outputs
    let other = "interface.c = { addresses = [\"172.16.0.1/24\"] }\n";
    let before = HarnessBuilder::new::<L3fwd>(&format!("{other}{blue}"));
    let mut router = before.clone().build().unwrap();
    let installed = |builder: &HarnessBuilder, tenant| {
        builder.shared::<LiveRoutes>().unwrap().vrf(Some(tenant)).map_or(0, |vrf| vrf.installed_routes())
    };
    let live = before.shared::<LiveRoutes>().unwrap().vrf(Some("blue")).unwrap();
    let via = |address: [u8; 4]| {
        let hop = InstalledHop { gateway: Some(IpAddr::from(address)), interface: None, weight: 1 };
        InstalledTarget::Via(vec![hop])
    };
    live.install("198.18.0.0/15".parse().unwrap(), &via([192, 0, 2, 1])).unwrap();
    live.install("203.0.113.0/24".parse().unwrap(), &via([192, 0, 2, 77])).unwrap();
    let answer = |from: [u8; 4], mac| {
        let reply = arp::Repr {
            operation: arp::Operation::Reply,
            sender_mac: mac,
            sender_ip: from.into(),
            target_mac: WAN,
            target_ip: [192, 0, 2, 2].into(),
        };
        build::arp(reply).src_mac(mac).dst_mac(WAN).pad_to(60).to_vec()
    };
    router.feed_input(FROM_WAN, &[answer([192, 0, 2, 1], GATEWAY)]);
    // waits for its next hop
    router.feed_input(FROM_LAN, &[lan4([203, 0, 113, 1]).to_vec()]);
    assert_eq!(router.held(), 1);
    let after = HarnessBuilder::new::<L3fwd>(&format!("{more}{blue}"));
    after.clone().reload(&before, &mut router).unwrap();
    assert_eq!((installed(&after, "blue"), installed(&after, "a"), router.held()), (2, 0, 1));
    // its interfaces are the second and third now
    let out = router.feed_input(FROM_LAN + 1, &[lan4([198, 18, 0, 1]).to_vec()]);
    assert_eq!(out[3].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(GATEWAY, WAN)]);
    let out = router.feed_input(FROM_WAN + 1, &[answer([192, 0, 2, 77], HOST)]);
    assert_eq!(out[3].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(HOST, WAN)]);
    // a change for the router before arrives at this one, too, with other numbers of interfaces
    let hop = InstalledHop { gateway: Some([192, 0, 2, 1].into()), interface: live.interface("b-wan"), weight: 1 };
    live.install("198.51.100.0/24".parse().unwrap(), &InstalledTarget::Via(vec![hop])).unwrap();
    let out = router.feed_input(FROM_LAN + 1, &[lan4([198, 51, 100, 1]).to_vec()]);
    assert_eq!(out[3].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(GATEWAY, WAN)]);
    // the other tenant has none of the routes
    let out = router.feed_input(0, &[lan4([198, 18, 0, 1]).to_vec()]);
    assert_eq!((out[2..].iter().all(Vec::is_empty), router.dropped("no_route")), (true, 1));
    // when it goes, the error about that packet goes with it, which waits for the host
    assert_eq!(router.held(), 1);
    before.clone().reload(&after, &mut router).unwrap();
    router.advance(Duration::from_millis(20));
    assert_eq!((router.held(), router.dropped("neighbour_unresolved")), (0, 1));
    let out = router.feed_input(FROM_LAN, &[lan4([198, 18, 0, 1]).to_vec()]);
    assert_eq!(out[2].iter().map(|frame| macs(frame)).collect::<Vec<_>>(), [(GATEWAY, WAN)]);
}
