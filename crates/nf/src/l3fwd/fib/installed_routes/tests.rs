//! Routes of a routing daemon beside those of settings and commands, against maps.

use super::*;
use crate::l3fwd::fib::route_file::RouteTarget;
use crate::l3fwd::fib::{OWN, REUSE_DELAY};
use crate::l3fwd::settings::Settings;
use graph::BuildContext;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tables::lpm::Limits;
use tables::{Pages, lpm4};

const INTERFACES: &str = "interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"] }\n\
    interface.wan = { addresses = [\"192.0.2.1/24\", \"2001:db8:2::1/64\"] }\n\
    interface.xlan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], tenant = \"blue\" }\n\
    interface.xwan = { addresses = [\"192.0.2.1/24\", \"2001:db8:2::1/64\"], tenant = \"blue\" }\n\
    tenant.blue.fpm.routes_max = 8\n";

fn router(table: &str) -> (Config, Fib) {
    let (text, cx) = (format!("{INTERFACES}table = \"{table}\"\nfpm = {{ routes_max = 8 }}"), BuildContext::default());
    let settings: Settings = toml::from_str(&text).unwrap();
    let config = Config::new(&settings, &cx).unwrap();
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    (config, fib)
}

fn net(n: u8) -> IpNet {
    let all =
        ["0.0.0.0/0", "198.18.0.0/15", "198.18.4.0/24", "198.18.4.7/32", "10.0.0.9/32", "::/0", "2001:db8:9::/48"];
    match n {
        0..7 => all[usize::from(n)].parse().unwrap(),
        _ => IpNet::new_assert(Ipv4Addr::new(203, 0, n, 0).into(), 24),
    }
}

fn via(n: u8, ipv4: bool) -> IpAddr {
    let text = match ipv4 {
        true => format!("192.0.2.{}", 10 + n),
        false => format!("2001:db8:2::{}", 10 + n),
    };
    text.parse().unwrap()
}

fn target(hops: &[u8], vrf: usize, net: IpNet) -> InstalledTarget {
    let hop = |n: &u8| InstalledHop {
        gateway: Some(via(*n, net.addr().is_ipv4())),
        interface: Some(1 + 2 * vrf),
        weight: u16::from(*n) + 1,
    };
    match hops {
        [] => InstalledTarget::Blackhole,
        [0] => InstalledTarget::Unreachable,
        // the weight of one next hop means nothing
        [one] => InstalledTarget::Via(vec![InstalledHop { weight: 1, ..hop(one) }]),
        hops => InstalledTarget::Via(hops.iter().map(hop).collect()),
    }
}

#[derive(Clone, Debug)]
enum Change {
    Install(u8, Vec<u8>),
    Uninstall(u8),
    AddStatic(u8, u8),
    RemoveStatic(u8),
    MarkStale,
    RemoveStale,
    Wait,
}

/// Returns changes of the routes of the router and of a tenant.
fn changes() -> impl Strategy<Value = Vec<(usize, Change)>> {
    let net = 0..12u8;
    let hops = prop::collection::btree_set(0..6u8, 0..4).prop_map(|hops| hops.into_iter().collect());
    let change = prop_oneof![
        6 => (net.clone(), hops).prop_map(|(net, hops)| Change::Install(net, hops)),
        3 => net.clone().prop_map(Change::Uninstall),
        2 => (net.clone(), 0..6u8).prop_map(|(net, hop)| Change::AddStatic(net, hop)),
        2 => net.prop_map(Change::RemoveStatic),
        1 => Just(Change::MarkStale),
        1 => Just(Change::RemoveStale),
        1 => Just(Change::Wait),
    ];
    prop::collection::vec((0..2usize, change), 1..60)
}

/// Routes by prefix: of commands their next hop; installed ones, and whether they are stale.
#[derive(Default)]
struct Model {
    commands: BTreeMap<IpNet, IpAddr>,
    installed: BTreeMap<IpNet, (InstalledTarget, bool)>,
}

/// Returns what packets to a prefix find: next hops with weights, or a kind.
fn found(fib: &Fib, hops: &NextHops, vrf: usize, net: IpNet) -> Option<(AdjacencyKind, Vec<(IpAddr, u16)>)> {
    let value = fib.tables(vrf).get(net)?;
    let members = hops.members(value).iter().map(|((_, address), weight)| (*address, *weight)).collect();
    Some((fib.adjacency(value).load().kind(), members))
}

fn expected(model: &Model, net: IpNet) -> Option<(AdjacencyKind, Vec<(IpAddr, u16)>)> {
    if let Some(hop) = model.commands.get(&net) {
        return Some((AdjacencyKind::Unresolved, vec![(*hop, 1)]));
    }
    let (target, _) = model.installed.get(&net)?;
    Some(match target {
        InstalledTarget::Unreachable => (AdjacencyKind::Unreachable, vec![]),
        InstalledTarget::Prohibited => (AdjacencyKind::Prohibited, vec![]),
        InstalledTarget::Blackhole => (AdjacencyKind::Blackhole, vec![]),
        InstalledTarget::Via(via) | InstalledTarget::Object { via, .. } => {
            let kind = if via.len() == 1 { AdjacencyKind::Unresolved } else { AdjacencyKind::Group };
            (kind, via.iter().map(|hop| (hop.gateway.unwrap(), hop.weight)).collect())
        }
    })
}

fn follows_the_model(fib: &Fib, config: &Config, changes: Vec<(usize, Change)>) -> Result<(), TestCaseError> {
    let mut models = [Model::default(), Model::default()];
    let mut all_hops = [fib.next_hops(OWN), fib.next_hops(1)];
    let routes_max = 8;
    for (vrf, change) in changes {
        let (model, hops) = (&mut models[vrf], &mut *all_hops[vrf]);
        match change {
            Change::Install(n, over) => {
                let (net, target) = (net(n), target(&over, vrf, net(n)));
                let full = !model.installed.contains_key(&net) && model.installed.len() >= routes_max;
                let did = fib.install(config, hops, (vrf, net), &target);
                prop_assert_eq!(did.is_err(), full, "{:?}", did);
                if !full {
                    model.installed.insert(net, (target, false));
                }
            }
            Change::Uninstall(n) => {
                fib.uninstall(hops, (vrf, net(n)));
                model.installed.remove(&net(n));
            }
            Change::AddStatic(n, hop) => {
                let (net, hop) = (net(n), via(hop, net(n).addr().is_ipv4()));
                let to = RouteTarget::Via(vec![hop]);
                fib.check_addition(config, (vrf, net), &to).unwrap();
                fib.add_route(config, hops, (vrf, net), &to).unwrap();
                model.commands.insert(net, hop);
            }
            Change::RemoveStatic(n) => {
                let is_there = model.commands.remove(&net(n)).is_some();
                prop_assert_eq!(fib.check_removal((vrf, net(n))).is_ok(), is_there);
                if is_there {
                    fib.remove_route(hops, (vrf, net(n))).unwrap();
                }
            }
            Change::MarkStale => {
                fib.mark_stale(hops, vrf);
                model.installed.values_mut().for_each(|(_, stale)| *stale = true);
            }
            Change::RemoveStale => {
                let before = model.installed.len();
                model.installed.retain(|_, (_, stale)| !*stale);
                let stale = fib.stale(hops, vrf);
                prop_assert_eq!(fib.remove_stale(hops, vrf, &stale), before - model.installed.len());
            }
            Change::Wait => fib.set_now(fib.now() + REUSE_DELAY),
        }
        for (vrf, (model, hops)) in models.iter().zip(&all_hops).enumerate() {
            prop_assert_eq!(hops.installed.routes(), model.installed.len());
            for n in 0..12 {
                prop_assert_eq!(found(fib, hops, vrf, net(n)), expected(model, net(n)), "{} of VRF {}", net(n), vrf);
            }
            let mut all = BTreeMap::new();
            fib.for_each_installed(hops, vrf, |net, target, stale| drop(all.insert(net, (target, stale))));
            prop_assert_eq!(&all, &model.installed);
        }
    }
    for (vrf, (model, hops)) in models.into_iter().zip(&mut all_hops).enumerate() {
        for net in model.installed.into_keys() {
            fib.uninstall(hops, (vrf, net));
        }
        for net in model.commands.into_keys() {
            fib.remove_route(hops, (vrf, net)).unwrap();
        }
    }
    Ok(())
}

#[test]
fn installed_routes_follow_the_model() {
    // tables are large and a default route fills one: all cases use the same ones
    for table in ["lpm", "exact"] {
        let (config, fib) = router(table);
        let settings =
            ProptestConfig { cases: 60, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(settings);
        runner.run(&changes(), |changes| follows_the_model(&fib, &config, changes)).unwrap();
    }
}

/// Next hops that no route uses are given back: numbers and groups do not run out, however often routes change.
#[test]
fn next_hops_and_groups_are_reused() {
    let (config, fib) = router("lpm");
    let mut hops = fib.next_hops(OWN);
    let net: IpNet = "198.18.0.0/15".parse().unwrap();
    for n in 0..100_000u32 {
        fib.set_now(REUSE_DELAY * n);
        let hop = |k: u32| InstalledHop {
            gateway: Some(Ipv4Addr::new(192, 0, 2, 10 + ((n + k) % 200) as u8).into()),
            interface: None,
            weight: 1 + (n % 1000) as u16,
        };
        let target = InstalledTarget::Via((0..1 + n % 3).map(hop).collect());
        fib.install(&config, &mut hops, (OWN, net), &target).unwrap();
        assert_eq!(hops.len(), 1);
    }
    fib.uninstall(&mut hops, (OWN, net));
    assert_eq!((hops.len(), fib.control().neighbours.len()), (0, 0));
    assert!((fib.control().next_unused as usize) < 1000, "{}", fib.control().next_unused);
}

/// A tenant with as many next hops and groups as it may have gets no more; one next to it gets its own.
#[test]
fn next_hops_of_a_tenant_do_not_exceed_its_share() {
    let text = format!("{INTERFACES}tenant.blue.next_hops_max = 4\nnext_hops_max = 4\nfpm = {{ routes_max = 100 }}");
    let text = text.replace("routes_max = 8", "routes_max = 100");
    let (settings, cx): (Settings, _) = (toml::from_str(&text).unwrap(), BuildContext::default());
    let config = Config::new(&settings, &cx).unwrap();
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let (own, blue) = (OWN, 1);
    let install = |vrf: usize, n: u8, over: &[u8]| {
        fib.install(&config, &mut fib.next_hops(vrf), (vrf, net(n)), &target(over, vrf, net(n)))
    };
    let used = |vrf: usize| fib.next_hops(vrf).usage(fib.now());
    // three next hops and a group of two of them
    (1..4).for_each(|n| install(blue, 6 + n, &[n]).unwrap());
    install(blue, 10, &[1, 2]).unwrap();
    assert_eq!(used(blue), (4, 4));
    for over in [&[4][..], &[1, 3], &[1, 4]] {
        let refused = install(blue, 11, over).unwrap_err().to_string();
        assert!(refused.contains("maximum of 4 next hops") && refused.contains("next_hops_max"), "{refused}");
    }
    assert_eq!((used(blue), fib.next_hops(blue).installed.refused), ((4, 4), 3));
    // further routes can use the next hops that are held, and other tenants can add their own
    install(blue, 11, &[1, 2]).unwrap();
    (1..4).for_each(|n| install(own, 6 + n, &[n]).unwrap());
    install(own, 10, &[2, 3]).unwrap();
    assert_eq!((used(own), fib.next_hops(own).installed.refused), ((4, 4), 0));
    // one that is not used any more is free after a time
    fib.uninstall(&mut fib.next_hops(blue), (blue, net(9)));
    assert_eq!(used(blue), (4, 4));
    assert!(install(blue, 12, &[4]).is_err());
    fib.set_now(fib.now() + REUSE_DELAY);
    assert_eq!(used(blue), (3, 4));
    install(blue, 12, &[4]).unwrap();
    // objects that change need room for their next members beside the ones of before
    let objects = |over: &[u8]| fib.change_object(&config, &mut fib.next_hops(blue), (blue, 1), &object_hops(over));
    (7..13).for_each(|n| fib.uninstall(&mut fib.next_hops(blue), (blue, net(n))));
    fib.set_now(fib.now() + REUSE_DELAY);
    let object = InstalledTarget::Object { id: 1, via: object_hops(&[1, 2]) };
    fib.install(&config, &mut fib.next_hops(blue), (blue, net(7)), &object).unwrap();
    assert_eq!((objects(&[3, 4]), used(blue)), (0, (4, 4)));
    fib.set_now(fib.now() + REUSE_DELAY);
    assert_eq!((objects(&[2, 3]), used(blue)), (1, (4, 4)));
    assert_eq!(fib.control().held, 2 + 3);
}

/// Numbers are not lost, however many changes of next hops are refused.
#[test]
fn refused_next_hops_leave_nothing_behind() {
    let text = format!("{INTERFACES}tenant.blue.next_hops_max = 6\nfpm = {{ routes_max = 8 }}");
    let (settings, cx): (Settings, _) = (toml::from_str(&text).unwrap(), BuildContext::default());
    let config = Config::new(&settings, &cx).unwrap();
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let mut hops = fib.next_hops(1);
    let mut refused = 0;
    for n in 0..20_000u32 {
        fib.set_now(Duration::from_millis(100) * n);
        let over: Vec<u8> = (0..1 + n % 5).map(|k| ((n * 7 + k) % 40) as u8 + 1).collect();
        let net = net(7 + (n % 5) as u8);
        refused += u64::from(fib.install(&config, &mut hops, (1, net), &target(&over, 1, net)).is_err());
        let (used, max) = hops.usage(fib.now());
        assert!(used <= max, "{used}");
    }
    assert!(refused > 1000 && refused < 20_000 && hops.installed.refused == refused, "{refused}");
    (7..12).for_each(|n| fib.uninstall(&mut hops, (1, net(n))));
    fib.set_now(fib.now() + REUSE_DELAY);
    assert_eq!((hops.len(), hops.usage(fib.now()), fib.control().held), (0, (0, 6), 0));
    let numbers = fib.control().next_unused as usize;
    assert!(numbers < super::super::CONNECTED as usize + config.interfaces.len() + 7, "{numbers}");
}

#[test]
fn invalid_routes_are_refused_with_the_reason() {
    let (config, fib) = router("lpm");
    let mut hops = fib.next_hops(OWN);
    let hop = |gateway: &str, interface| InstalledHop { gateway: gateway.parse().ok(), interface, weight: 1 };
    let net: IpNet = "198.18.0.0/15".parse().unwrap();
    let address = |text: &str| text.parse().unwrap();
    for (via, refused) in [
        (vec![hop("198.51.100.1", None)], Refused::NotConnected(address("198.51.100.1"))),
        (vec![hop("fe80::1", None)], Refused::NotConnected(address("fe80::1"))),
        (vec![hop("192.0.2.1", None)], Refused::OwnAddress(address("192.0.2.1"))),
        (vec![], Refused::HopCount(0)),
        (vec![hop("192.0.2.9", None); 65], Refused::HopCount(65)),
        (vec![hop("", Some(0)), hop("192.0.2.9", None)], Refused::ConnectedInGroup),
    ] {
        fib.install(&config, &mut hops, (OWN, net), &InstalledTarget::Blackhole).unwrap();
        assert_eq!(fib.install(&config, &mut hops, (OWN, net), &InstalledTarget::Via(via)), Err(refused));
        // it does not go on to the next hops of before
        assert_eq!((fib.tables(OWN).get(net), hops.installed.routes(), hops.len()), (None, 0, 0));
    }
    // an IPv4 route by an IPv6 next hop (RFC 8950), and by one of an interface without its network
    for gateway in ["fe80::1", "198.51.100.1"] {
        let target = InstalledTarget::Via(vec![hop(gateway, Some(1))]);
        fib.install(&config, &mut hops, (OWN, net), &target).unwrap();
    }
    let martian = fib.install(&config, &mut hops, (OWN, "127.0.0.0/8".parse().unwrap()), &InstalledTarget::Blackhole);
    assert_eq!(martian, Err(Refused::Martian));
    // the router needs no routes to link-local addresses
    let link_local = "fe80::/64".parse().unwrap();
    fib.install(&config, &mut hops, (OWN, link_local), &InstalledTarget::Via(vec![hop("", Some(1))])).unwrap();
    assert_eq!(fib.tables(OWN).get(link_local), None);
    // the router's own networks stay as they are
    let own = "192.0.2.0/24".parse().unwrap();
    let connected = fib.tables(OWN).get(own);
    fib.install(&config, &mut hops, (OWN, own), &InstalledTarget::Via(vec![hop("", Some(1))])).unwrap();
    fib.uninstall(&mut hops, (OWN, own));
    assert_eq!(fib.tables(OWN).get(own), connected);
}

/// A route that does not fit into a table is refused, and its next hop is given back.
#[test]
fn a_full_table_refuses_routes() {
    let (config, fib) = router("lpm");
    // the first takes one of the two groups, the neighbour's own route the other
    let limits = Limits { routes: 1 << 20, groups: 2, pages: Pages::Ordinary };
    fib.tables(OWN).v4 = lpm4::with(limits).unwrap().0;
    let mut hops = fib.next_hops(OWN);
    let route = |n: u8| {
        let hop = InstalledHop { gateway: Some(via(n, true)), interface: Some(1), weight: 1 };
        (IpNet::new_assert(Ipv4Addr::new(198, 18, n, 1).into(), 32), InstalledTarget::Via(vec![hop]))
    };
    let installed = (0..8).filter(|n| {
        let (net, target) = route(*n);
        match fib.install(&config, &mut hops, (OWN, net), &target) {
            Ok(()) => true,
            Err(refused) => {
                assert!(matches!(refused, Refused::Full(_)), "{refused}");
                false
            }
        }
    });
    let installed = installed.count();
    assert!((1..8).contains(&installed));
    assert_eq!((hops.installed.routes(), hops.len()), (installed, installed));
}

/// A host that an interface reaches without a gateway is its own next hop, and stays a route when its neighbour is known.
#[test]
fn hosts_behind_an_interface_are_routes() {
    let (config, fib) = router("lpm");
    let mut hops = fib.next_hops(OWN);
    let net: IpNet = "198.51.100.7/32".parse().unwrap();
    let target = InstalledTarget::Via(vec![InstalledHop { gateway: None, interface: Some(1), weight: 1 }]);
    for _ in 0..3 {
        fib.install(&config, &mut hops, (OWN, net), &target).unwrap();
        let key = (1, net.addr());
        let mac = wire::MacAddr([2, 0, 0, 0, 0, 9]);
        fib.control().request_resolution(&fib, &config.interfaces, key, Duration::from_secs(1)).unwrap();
        fib.control().learn(&fib, &config.interfaces, key, mac, true, Duration::from_secs(1));
        let value = fib.tables(OWN).get(net).unwrap();
        assert!(fib.adjacency(value).load().is_resolved());
        assert_eq!(hops.installed.routes(), 1);
        fib.uninstall(&mut hops, (OWN, net));
        assert_eq!((fib.tables(OWN).get(net), hops.installed.routes(), hops.len()), (None, 0, 0));
    }
}

/// A worker looks up an address while its route is replaced: it always finds one of the two, and the members of a group
/// are those of the route.
#[test]
fn a_worker_finds_the_old_or_the_new_route() {
    let (config, fib) = router("lpm");
    let net: IpNet = "198.18.0.0/15".parse().unwrap();
    let hop = |n: u8| InstalledHop { gateway: Some(via(n, true)), interface: Some(1), weight: 1 };
    let targets = [
        InstalledTarget::Via(vec![hop(1), hop(2)]),
        InstalledTarget::Via(vec![hop(2), hop(3), hop(4)]),
        InstalledTarget::Via(vec![hop(5)]),
    ];
    for target in &targets {
        fib.install(&config, &mut fib.next_hops(OWN), (OWN, net), target).unwrap();
    }
    let (ended, fib) = (Arc::new(Mutex::new(false)), Arc::new(fib));
    std::thread::scope(|s| {
        let worker = s.spawn(|| {
            let (mut routes, mut found) = (fib.readers(), 0u64);
            while !*ended.lock().unwrap() {
                for n in 0..1000u32 {
                    let mut value = [0];
                    routes.look_up4(OWN, &[0xc612_0000 + n], &mut value);
                    let adjacency = fib.adjacency(value[0]).load();
                    let hop = match adjacency.kind() {
                        AdjacencyKind::Group => fib.adjacency(fib.member(adjacency.group(), n << 22)).load(),
                        _ => adjacency,
                    };
                    assert_eq!((hop.kind(), hop.output()), (AdjacencyKind::Unresolved, 2));
                    found += 1;
                }
            }
            found
        });
        for n in 0..20_000u32 {
            // a worker does not hold a number for as long as this
            fib.set_now(Duration::from_millis(1) * n);
            fib.install(&config, &mut fib.next_hops(OWN), (OWN, net), &targets[n as usize % 3]).unwrap();
        }
        *ended.lock().unwrap() = true;
        assert!(worker.join().unwrap() > 0);
    });
}

/// Changes of next-hop objects and of their routes.
#[derive(Clone, Debug)]
enum ObjectChange {
    Install(u8, u32, Vec<u8>),
    InstallVia(u8, Vec<u8>),
    Change(u32, Vec<u8>),
    Uninstall(u8),
    /// The connection ends, and numbers of objects mean others from then on.
    MarkStale,
}

fn object_changes() -> impl Strategy<Value = Vec<ObjectChange>> {
    // 9 is on no network of the router
    let hops = || prop::collection::btree_set(1..10u8, 1..5).prop_map(|hops| hops.into_iter().collect::<Vec<_>>());
    let net = 7..14u8;
    prop::collection::vec(
        prop_oneof![
            4 => (net.clone(), 0..3u32, hops()).prop_map(|(net, id, hops)| ObjectChange::Install(net, id, hops)),
            1 => (net.clone(), hops()).prop_map(|(net, hops)| ObjectChange::InstallVia(net, hops)),
            4 => (0..3u32, hops()).prop_map(|(id, hops)| ObjectChange::Change(id, hops)),
            2 => net.prop_map(ObjectChange::Uninstall),
            1 => Just(ObjectChange::MarkStale),
        ],
        1..60,
    )
}

fn object_hops(hops: &[u8]) -> Vec<InstalledHop> {
    let gateway = |n: u8| if n == 9 { Ipv4Addr::new(198, 51, 100, 9).into() } else { via(n, true) };
    hops.iter().map(|n| InstalledHop { gateway: Some(gateway(*n)), interface: None, weight: 1 }).collect()
}

/// Members of routes by prefix, and the object in whose group a route is.
type ObjectModel = BTreeMap<IpNet, (Vec<u8>, Option<u32>)>;

fn objects_follow_the_model(fib: &Fib, config: &Config, changes: Vec<ObjectChange>) -> Result<(), TestCaseError> {
    let (mut model, mut hops) = (ObjectModel::new(), fib.next_hops(OWN));
    let change_group = |model: &mut ObjectModel, id: u32, over: &[u8]| {
        let of_group = model.values_mut().filter(|(_, object)| *object == Some(id));
        of_group.map(|(members, _)| over.clone_into(members)).count()
    };
    for change in changes {
        match change {
            ObjectChange::Install(n, id, over) => {
                let target = InstalledTarget::Object { id, via: object_hops(&over) };
                let did = fib.install(config, &mut hops, (OWN, net(n)), &target);
                prop_assert_eq!(did.is_ok(), !over.contains(&9), "{:?}", did);
                if did.is_err() {
                    model.remove(&net(n));
                    continue;
                }
                let has_group = change_group(&mut model, id, &over) > 0;
                let object = (has_group || over.len() > 1).then_some(id);
                model.insert(net(n), (over, object));
            }
            ObjectChange::InstallVia(n, over) => {
                let target = InstalledTarget::Via(object_hops(&over));
                match fib.install(config, &mut hops, (OWN, net(n)), &target) {
                    Ok(()) => drop(model.insert(net(n), (over, None))),
                    Err(_) => drop(model.remove(&net(n))),
                }
            }
            ObjectChange::Change(id, over) => {
                let before: Vec<_> = model.keys().map(|net| fib.tables(OWN).get(*net)).collect();
                let changed = fib.change_object(config, &mut hops, (OWN, id), &object_hops(&over));
                let expected = if over.contains(&9) { 0 } else { change_group(&mut model, id, &over) };
                prop_assert_eq!(changed, expected);
                let after: Vec<_> = model.keys().map(|net| fib.tables(OWN).get(*net)).collect();
                prop_assert_eq!(before, after, "no route changes");
            }
            ObjectChange::Uninstall(n) => {
                fib.uninstall(&mut hops, (OWN, net(n)));
                model.remove(&net(n));
            }
            ObjectChange::MarkStale => {
                fib.mark_stale(&mut hops, OWN);
                model.values_mut().for_each(|(_, object)| *object = None);
            }
        }
        let mut held: BTreeSet<u8> = BTreeSet::new();
        for (net, (members, object)) in &model {
            let expected: Vec<_> = members.iter().map(|n| (via(*n, true), 1)).collect();
            let (kind, found) = found(fib, &hops, OWN, *net).unwrap();
            prop_assert_eq!(&found, &expected, "{}", net);
            let value = fib.tables(OWN).get(*net).unwrap();
            prop_assert_eq!(hops.object(value), *object);
            if kind == AdjacencyKind::Group {
                let (group, control) = (fib.adjacency(value).load().group(), fib.control());
                let used = (0..256u32).map(|n| control.key_of(fib.member(group, n << 24)).unwrap().1);
                let used: BTreeSet<_> = used.collect();
                prop_assert!(used.into_iter().eq(expected.iter().map(|(address, _)| *address)));
            }
            held.extend(members.iter().copied());
        }
        prop_assert_eq!(fib.control().held, held.len());
    }
    for net in model.into_keys() {
        fib.uninstall(&mut hops, (OWN, net));
    }
    prop_assert_eq!((hops.len(), hops.installed.routes(), fib.control().held), (0, 0, 0));
    // numbers are reused after a time
    fib.set_now(fib.now() + REUSE_DELAY);
    Ok(())
}

#[test]
fn objects_change_in_place() {
    let (config, fib) = router("lpm");
    let settings =
        ProptestConfig { cases: 200, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(settings);
    runner.run(&object_changes(), |changes| objects_follow_the_model(&fib, &config, changes)).unwrap();
}

/// More groups change than there are numbers of groups, without a time in between.
#[test]
fn groups_of_objects_change_as_often_as_they_like() {
    let (config, fib) = router("lpm");
    let mut hops = fib.next_hops(OWN);
    let net = net(7);
    for n in 0..40_000u32 {
        let first = 1 + (n % 7) as u8;
        let over = object_hops(&[first, 8]);
        match n {
            0 => fib.install(&config, &mut hops, (OWN, net), &InstalledTarget::Object { id: 1, via: over }).unwrap(),
            _ => assert_eq!(fib.change_object(&config, &mut hops, (OWN, 1), &over), 1),
        }
        assert_eq!(hops.members(fib.tables(OWN).get(net).unwrap())[0].0.1, via(first, true));
    }
    assert_eq!((hops.len(), fib.control().held), (1, 2));
}

/// Workers look up addresses of 100,000 routes whose object changes: each finds a member of before or of afterwards.
#[test]
fn a_worker_finds_the_old_or_the_new_members_of_an_object() {
    const ROUTES: u32 = 100_000;
    let text = format!("{INTERFACES}fpm = {{ routes_max = {ROUTES} }}");
    let (settings, cx): (Settings, _) = (toml::from_str(&text).unwrap(), BuildContext::default());
    let config = Config::new(&settings, &cx).unwrap();
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let address = |n: u32| 0x6400_0000 + (n << 8);
    let change = |step: u32| object_hops(&[1 + (step % 4) as u8, 2 + (step % 4) as u8]);
    let mut hops = fib.next_hops(OWN);
    for n in 0..ROUTES {
        let net = IpNet::new_assert(Ipv4Addr::from_bits(address(n)).into(), 24);
        fib.install(&config, &mut hops, (OWN, net), &InstalledTarget::Object { id: 5, via: change(0) }).unwrap();
    }
    let (step, looked_up) = (AtomicU32::new(0), AtomicU32::new(0));
    let order = Ordering::SeqCst;
    std::thread::scope(|s| {
        s.spawn(|| {
            let (mut routes, mut n) = (fib.readers(), 0u32);
            while step.load(order) < 2000 {
                let before = step.load(order);
                n = n.wrapping_add(7919);
                let mut value = [0];
                routes.look_up4(OWN, &[address(n % ROUTES)], &mut value);
                let adjacency = fib.adjacency(value[0]).load();
                assert_eq!(adjacency.kind(), AdjacencyKind::Group);
                let number = fib.member(adjacency.group(), n << 16);
                let hop = fib.adjacency(number).load();
                assert_eq!((hop.kind(), hop.output()), (AdjacencyKind::Unresolved, 2));
                let found = fib.control().key_of(number).map(|(_, address)| address);
                // the change may be under way before its step is counted
                let after = step.load(order) + 1;
                let mut possible = (before..=after).flat_map(&change).filter_map(|hop| hop.gateway);
                assert!(found.is_none_or(|found| possible.any(|hop| hop == found)), "{found:?} {before} {after}");
                looked_up.fetch_add(1, order);
            }
        });
        for n in 1..=2000 {
            let before = looked_up.load(order);
            assert_eq!(fib.change_object(&config, &mut hops, (OWN, 5), &change(n)), ROUTES as usize);
            step.store(n, order);
            while n < 2000 && looked_up.load(order) == before {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!((hops.len(), hops.installed.routes()), (1, ROUTES as usize));
}
