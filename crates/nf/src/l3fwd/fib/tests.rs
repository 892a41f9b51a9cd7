//! Changes of the FIB, and concurrent look-ups.

use super::*;
use crate::l3fwd::punt::limits::PuntBuckets;
use crate::l3fwd::router::Router;
use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{Batch, HeapPool, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tables::lpm::Limits;
use tables::{Pages, lpm4, lpm6};
use wire::build;

const LAN: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 1, 5]);

struct NullSink;

impl Sink for NullSink {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        batch.clear();
    }
}

fn config(more: &str) -> (Config, Settings, BuildContext) {
    let text = format!(
        "interface.lan = {{ addresses = [\"10.0.0.1/8\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:01:00\" }}\n{more}"
    );
    let (settings, cx) = (toml::from_str(&text).unwrap(), BuildContext::default());
    (Config::new(&settings, &cx).unwrap(), settings, cx)
}

/// Returns a FIB of one interface, whose tables have the given numbers of second-level groups for IPv4 and IPv6.
fn small_fib(config: &Config, settings: &Settings, cx: &BuildContext, groups: (usize, usize)) -> Fib {
    let mut fib = Fib::new(config, settings, cx).unwrap();
    let limits = |groups| Limits { routes: 1 << 20, groups, pages: Pages::Ordinary };
    {
        let tables = &mut *fib.tables(OWN);
        tables.v4 = lpm4::with(limits(groups.0)).unwrap().0;
        tables.v6 = lpm6::with(limits(groups.1)).unwrap().0;
    }
    fib.insert_connected(0, &config.interfaces[0]).unwrap();
    fib
}

fn host4(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0005 + (n << 8)).into()
}

#[test]
fn a_copy_without_packets_of_an_ip_version_does_not_delay_reclamation() {
    let (config, settings, cx) = config("");
    // IPv4: two groups for own addresses and one for a host; IPv6: 13 for the link-local address, 13 and at most 8 more
    let fib = Arc::new(small_fib(&config, &settings, &cx, (6, 60)));
    let pool = Arc::new(HeapPool::new(64));
    let plan = NodePlan { name: "l3fwd".to_owned(), edges: vec![Target::Port(0), Target::Port(1)] };
    let hops = vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }];
    let router = Router::new(config.clone(), fib.clone(), Arc::new(PuntBuckets::new(0, &config.punt)), 1);
    let mut copy = Graph::new(&Blueprint { nodes: vec![plan], hops }, vec![Box::new(router)], pool.clone());
    let mut now = Duration::from_secs(1);
    for n in 0..100u32 {
        let host6 = IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8_0001 << 80 | u128::from(n + 1) << 56 | 5));
        for key in [(0, host4(n + 1)), (0, host6)] {
            let mut control = fib.control();
            control.learn(&fib, &config.interfaces, key, HOST, true, now);
            assert!(control.neighbours.contains_key(&key), "{} was not added, after {n}", key.1);
        }
        if n % 10 == 0 {
            // the copy looks up addresses between its idle declarations
            let mut batch = Batch::new();
            let IpAddr::V4(dst) = host4(n + 1) else { unreachable!() };
            let v4 = build::udp4([10, 0, 0, 9], dst, 1, 2).dst_mac(LAN).pad_to(60).to_vec();
            let v6 = build::udp6("2001:db8:1::9".parse::<Ipv6Addr>().unwrap(), Ipv6Addr::LOCALHOST, 1, 2);
            batch.push(pool.alloc_from(&v4).unwrap()).unwrap();
            batch.push(pool.alloc_from(&v6.dst_mac(LAN).to_vec()).unwrap()).unwrap();
            copy.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut NullSink);
        }
        for _ in 0..=REQUESTS_MAX {
            now += config.reachable_time;
            fib.control().age(&fib, &config.interfaces, config.reachable_time, now);
        }
        assert!(fib.control().neighbours.is_empty());
        copy.run_timers(now, &mut NullSink);
    }
}

#[test]
fn neighbours_that_do_not_fit_in_the_table_take_no_number() {
    let (config, settings, cx) = config("neighbours_max = 8");
    let fib = small_fib(&config, &settings, &cx, (2, 30));
    let now = Duration::from_secs(1);
    // the /24 of the router's own address and that of the broadcast address take both groups
    for n in 0..fib.adjacencies.len() as u32 {
        assert!(fib.control().request_resolution(&fib, &config.interfaces, (0, host4(1 + n % 60_000)), now).is_none());
    }
    let mut control = fib.control();
    let resolution = control.request_resolution(&fib, &config.interfaces, (0, host4(0)), now);
    let (number, request) = resolution.expect("a number is left");
    assert_eq!((control.key_of(number), request.map(|r| r.address)), (Some((0, host4(0))), Some(host4(0))));
    assert_eq!((control.neighbours.len(), control.keys.len()), (1, 1));
}

/// Workers add neighbours, and do not wait for a table of 32,768 groups to be copied.
#[test]
fn a_neighbour_is_refused_whose_route_would_copy_the_table() {
    let (config, settings, cx) = config("");
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let learn = |n: u32| {
        let (mut control, now) = (fib.control(), Duration::from_secs(1));
        control.learn(&fib, &config.interfaces, (0, host4(n)), HOST, true, now);
        control.neighbours.contains_key(&(0, host4(n)))
    };
    assert!(learn(1));
    let route = |n: u32| IpNet::new_assert(Ipv4Addr::from_bits(0x6400_0000 + (n << 8)).into(), 25);
    let mut n = 0;
    while fib.tables(OWN).fits(1) {
        fib.tables(OWN).insert(route(n), BLACKHOLE).unwrap();
        n += 1;
    }
    assert!(n > 32_000 && !learn(2), "{n}");
    fib.tables(OWN).widen_for(1).unwrap();
    assert!(learn(2));
}

#[test]
fn look_ups_of_a_new_neighbour_find_a_complete_adjacency() {
    const HOSTS: u32 = 60_000;
    const FAILED: u32 = u32::MAX - 1;
    const FOUND: (AdjacencyKind, u8, usize) = (AdjacencyKind::Unresolved, 1, 1500);
    let (config, settings, cx) = config("neighbours_max = 60000");
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let (next, looking_up) = (AtomicU32::new(0), AtomicU32::new(u32::MAX));
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut routes = fib.readers();
            loop {
                let n = next.load(Ordering::Relaxed);
                if n == HOSTS {
                    break;
                }
                looking_up.store(n, Ordering::Relaxed);
                loop {
                    let mut value = [0];
                    routes.look_up4(OWN, &[0x0a01_0000 + n], &mut value);
                    let adjacency = fib.adjacency(value[0]).load();
                    if adjacency.kind() == AdjacencyKind::Connected && next.load(Ordering::Relaxed) == n {
                        continue;
                    }
                    if adjacency.kind() != AdjacencyKind::Connected
                        && (adjacency.kind(), adjacency.output(), adjacency.mtu()) != FOUND
                    {
                        next.store(FAILED, Ordering::Relaxed);
                        panic!("{:?} behind output {} for host {n}", adjacency.kind(), adjacency.output());
                    }
                    break;
                }
            }
        });
        for n in 0..HOSTS {
            // the reader looks up the host before it is added
            while looking_up.load(Ordering::Relaxed) != n && next.load(Ordering::Relaxed) != FAILED {
                std::thread::yield_now();
            }
            let key = (0, Ipv4Addr::from_bits(0x0a01_0000 + n).into());
            let resolution = fib.control().request_resolution(&fib, &config.interfaces, key, Duration::ZERO);
            if resolution.is_none() {
                next.store(HOSTS, Ordering::Relaxed);
            }
            assert!(resolution.is_some(), "all neighbours fit");
            if next.compare_exchange(n, n + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                return;
            }
        }
    });
}

/// While routes change, a worker neither waits nor adds or removes neighbours, and does so afterwards.
#[test]
fn neighbours_wait_for_a_change_of_routes() {
    let (config, settings, cx) = config("");
    let fib = small_fib(&config, &settings, &cx, (6, 60));
    let (known, other, now) = ((0, host4(1)), (0, host4(2)), Duration::from_secs(1));
    let resolve = |key| fib.control().request_resolution(&fib, &config.interfaces, key, now).is_some();
    let age = |seconds| {
        let now = now + Duration::from_secs(seconds);
        fib.control().age(&fib, &config.interfaces, Duration::from_secs(60), now).len()
    };
    assert!(resolve(known));
    {
        let _tables = fib.tables(OWN);
        assert!(resolve(known) && !resolve(other));
        // its requests go on, and stay unanswered
        assert_eq!((2..10).map(age).sum::<usize>(), REQUESTS_MAX as usize - 1);
        assert_eq!(fib.neighbour_count(), Some(1));
    }
    assert!(resolve(other));
    assert_eq!((age(10), fib.neighbour_count()), (1, Some(1)));
}

/// A route to the address of a neighbour replaces that to the neighbour, and its removal restores it.
#[test]
fn routes_to_neighbours_are_replaced_and_restored() {
    let (config, settings, cx) = config("");
    let fib = Fib::new(&config, &settings, &cx).unwrap();
    let (address, now) = (host4(1), Duration::from_secs(1));
    fib.control().request_resolution(&fib, &config.interfaces, (0, address), now).unwrap();
    let neighbour = fib.tables(OWN).host_route(address).unwrap();
    let net = IpNet::from(address);
    assert!(fib.check_removal((OWN, net)).is_err());
    let to = RouteTarget::Blackhole;
    fib.check_addition(&config, (OWN, net), &to).unwrap();
    fib.add_route(&config, &mut fib.next_hops(OWN), (OWN, net), &to).unwrap();
    assert_eq!(fib.tables(OWN).host_route(address), Some(BLACKHOLE));
    fib.check_removal((OWN, net)).unwrap();
    fib.remove_route(&mut fib.next_hops(OWN), (OWN, net)).unwrap();
    assert_eq!(fib.tables(OWN).host_route(address), Some(neighbour));
    // it stays when the neighbour does not answer
    fib.add_route(&config, &mut fib.next_hops(OWN), (OWN, net), &to).unwrap();
    for n in 2..6 {
        fib.control().age(&fib, &config.interfaces, Duration::from_secs(60), now + REQUEST_TIMEOUT * n);
    }
    assert_eq!(fib.tables(OWN).host_route(address), Some(BLACKHOLE));
    assert!(fib.control().neighbours.is_empty());
    // martians return as well
    let martian: IpNet = "224.0.0.0/4".parse().unwrap();
    fib.add_route(&config, &mut fib.next_hops(OWN), (OWN, martian), &to).unwrap();
    fib.remove_route(&mut fib.next_hops(OWN), (OWN, martian)).unwrap();
    assert_eq!(fib.tables(OWN).get(martian), Some(MARTIAN));
}
