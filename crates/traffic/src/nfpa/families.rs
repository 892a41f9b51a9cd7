//! Traces with a table for the device: switch, router, load balancer, access gateway.

use std::net::Ipv4Addr;

use wire::MacAddr;

use super::prefixes::{self, Prefix};
use super::tables::{MacEntry, Neighbour, Route, Service, Tables, User};
use super::{Ends, PORTS, udp};
use crate::flows::Flow;
use crate::random::{Random, scramble};

/// Next hops of routes.
const HOPS: u32 = 8;
/// Customer equipment at an access gateway, users at each, prefixes behind it.
const CUSTOMERS: u32 = 10;
const USERS: u32 = 20;
const GATEWAY_PREFIXES: u32 = 10_000;

/// Numbers for one purpose of a seed.
fn numbers(seed: u64, purpose: u64) -> Random {
    Random::new(scramble(seed ^ purpose.rotate_left(32)))
}

/// Returns a random unicast MAC address, locally administered.
fn random_mac(random: &mut Random) -> MacAddr {
    let [_, _, a, b, c, d, e, f] = random.next_u64().to_be_bytes();
    MacAddr([a & 0xfc | 2, b, c, d, e, f])
}

/// Returns `count` distinct addresses.
fn random_macs(count: u32, random: &mut Random) -> Vec<MacAddr> {
    let mut seen = std::collections::HashSet::new();
    let mut all = Vec::with_capacity(count as usize);
    while all.len() < count as usize {
        let mac = random_mac(random);
        if seen.insert(mac.0) {
            all.push(mac);
        }
    }
    all
}

fn l2_stations(ends: &Ends, n: u32, seed: u64) -> Vec<MacAddr> {
    random_macs(n, &mut numbers(seed, 1 + u64::from(ends.varied)))
}

pub(super) fn l2(ends: &Ends, n: u32, seed: u64) -> Vec<Flow> {
    l2_stations(ends, n, seed).into_iter().map(|dst_mac| Flow { dst_mac, ..ends.flow() }).collect()
}

pub(super) fn l2_tables(ends: &Ends, n: u32, seed: u64) -> Tables {
    let hosts = l2_stations(ends, n, seed).into_iter().map(|mac| MacEntry { mac }).collect();
    Tables { hosts, ..Tables::default() }
}

/// Returns the next hop number `n`.
fn hop(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 255, 0, 2).to_bits() + n % HOPS)
}

fn neighbours() -> Vec<Neighbour> {
    let neighbour = |n: u32| Neighbour { address: hop(n), mac: MacAddr([2, 0, 0x0a, 0xff, 0, 2 + n as u8]) };
    (0..HOPS).map(neighbour).collect()
}

fn routes(prefixes: Vec<Prefix>) -> Vec<Route> {
    (0..).zip(prefixes).map(|(n, (prefix, len))| Route { prefix, len, via: hop(n) }).collect()
}

fn l3_prefixes(n: u32, seed: u64) -> Vec<Prefix> {
    prefixes::random(n, &mut numbers(seed, 11))
}

pub(super) fn l3(ends: &Ends, n: u32, seed: u64) -> Vec<Flow> {
    let mut random = numbers(seed, 12 + u64::from(ends.varied));
    let src = ends.fixed(ends.src);
    let flow = |prefix| udp(random_mac(&mut random), ends.dst_mac, src, prefixes::host(prefix, &mut random), PORTS);
    l3_prefixes(n, seed).into_iter().map(flow).collect()
}

pub(super) fn l3_tables(n: u32, seed: u64) -> Tables {
    Tables { routes: routes(l3_prefixes(n, seed)), neighbours: neighbours(), ..Tables::default() }
}

/// Address of service number `n`.
fn service(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(203, 0, 0, 1).to_bits() + n)
}

/// Sources from the lower and the upper half of all addresses, in turn.
pub(super) fn load_balancer(ends: &Ends, n: u32, seed: u64) -> Vec<Flow> {
    let mut random = numbers(seed, 21 + u64::from(ends.varied));
    let mut flow = |n: u32| {
        let half = Ipv4Addr::new(if n.is_multiple_of(2) { 16 } else { 160 }, 0, 0, 0);
        let src = prefixes::host((half, 8), &mut random);
        let src_port = 1024 + random.below(64_512) as u16;
        udp(ends.src_mac, ends.dst_mac, src, service(n / 2), (src_port, 80))
    };
    (0..2 * n).map(&mut flow).collect()
}

pub(super) fn load_balancer_tables(n: u32) -> Tables {
    let backend = |n: u32| Ipv4Addr::new(192, 0, 2, 1 + (n % 254) as u8);
    let of = |n: u32| Service { address: service(n), port: 80, lower: backend(2 * n), upper: backend(2 * n + 1) };
    Tables { services: (0..n).map(of).collect(), neighbours: vec![], ..Tables::default() }
}

fn users(ends: &Ends) -> Vec<User> {
    let user = |n: u32| {
        let (customer, user) = (n / USERS, n % USERS);
        User {
            customer: MacAddr([2, 0, 0x20 + ends.varied, 0, 0, customer as u8]),
            private: Ipv4Addr::new(10, 1 + customer as u8, 0, 1 + user as u8),
            public: Ipv4Addr::new(198, 51, 100, 1 + n as u8),
        }
    };
    (0..CUSTOMERS * USERS).map(user).collect()
}

fn gateway_prefixes(seed: u64) -> Vec<Prefix> {
    prefixes::random(GATEWAY_PREFIXES, &mut numbers(seed, 31))
}

/// Users take turns; each flow goes to an address in a random prefix.
pub(super) fn gateway(ends: &Ends, n: u32, seed: u64) -> Vec<Flow> {
    let (users, prefixes) = (users(ends), gateway_prefixes(seed));
    let mut random = numbers(seed, 32 + u64::from(ends.varied));
    let flow = |n: u32| {
        let user = users[n as usize % users.len()];
        let dst = prefixes::host(prefixes[random.below(prefixes.len() as u64) as usize], &mut random);
        // A port of its own for each flow of a user.
        let src_port = 1024 + (n / (CUSTOMERS * USERS)) as u16;
        udp(user.customer, ends.dst_mac, user.private, dst, (src_port, PORTS.1))
    };
    (0..n).map(flow).collect()
}

pub(super) fn gateway_tables(ends: &Ends, seed: u64) -> Tables {
    Tables { routes: routes(gateway_prefixes(seed)), neighbours: neighbours(), users: users(ends), ..Tables::default() }
}
