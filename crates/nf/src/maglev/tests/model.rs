//! Comparison of connections with a map.

use super::*;
use std::collections::HashMap;
use tables::flow::{FlowKey, Seed, Tuple4, Tuple6};
use tables::maglev::{Member, Ring};
use testkit::proptest::prelude::*;
use wire::{TcpFlags, build};

const BACKENDS: usize = 5;
const CAPACITY: usize = 100;
/// Backend of a connection for which none was up.
const NONE: usize = usize::MAX;

/// Reference implementation: a map of connections to backends.
struct Model {
    states: [BackendState; BACKENDS],
    connections: HashMap<Client, usize>,
    moved: u64,
    full: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Client {
    pub(super) v6: bool,
    udp: bool,
    host: u8,
    port: u16,
}

fn host6(host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, host);
    address
}

impl Client {
    pub(super) fn frame(self) -> Vec<u8> {
        let Client { v6, udp, host, port } = self;
        let (src, src6) = ([10, 1, 0, host], host6(host));
        match (v6, udp) {
            (false, false) => build::tcp4(src, VIP, port, 80).flags(TcpFlags::SYN).payload(&[host]).pad_to(60).to_vec(),
            (false, true) => build::udp4(src, VIP, port, 53).payload(&[host]).pad_to(60).to_vec(),
            (true, false) => build::tcp6(src6, VIP6, port, 80).flags(TcpFlags::SYN).to_vec(),
            (true, true) => build::udp6(src6, VIP6, port, 53).payload(&[host]).to_vec(),
        }
    }

    pub(super) fn hash(self) -> u64 {
        let (port, protocol) = if self.udp { (53, 17) } else { (80, 6) };
        let seed = Seed::fixed(0);
        if self.v6 {
            let (src, dst) = (u128::from_be_bytes(host6(self.host)), u128::from_be_bytes(VIP6));
            Tuple6::new(src, dst, self.port, port, protocol).flow_hash(&seed)
        } else {
            let (src, dst) = (u32::from_be_bytes([10, 1, 0, self.host]), u32::from_be_bytes(VIP));
            Tuple4::new(src, dst, self.port, port, protocol).flow_hash(&seed)
        }
    }
}

impl Model {
    fn send(&mut self, client: Client) -> Option<usize> {
        let known = self.connections.get(&client).copied();
        if let Some(backend) = known
            && backend != NONE
            && self.states[backend] != BackendState::Down
        {
            return Some(backend);
        }
        let names: Vec<String> = (1..=BACKENDS).map(|n| format!("b{n}")).collect();
        let up = |at: usize| u32::from(self.states[at] == BackendState::Up);
        let members: Vec<_> = names.iter().enumerate().map(|(at, name)| Member { name, weight: up(at) }).collect();
        let chosen = Ring::build(251, &members).unwrap().get(client.hash()).map(usize::from);
        if known.is_none() && self.connections.keys().filter(|c| c.v6 == client.v6).count() == CAPACITY {
            self.full += 1;
            return chosen;
        }
        self.moved += u64::from(known.is_some_and(|b| b != NONE));
        self.connections.insert(client, chosen.unwrap_or(NONE));
        chosen
    }
}

#[derive(Clone, Debug)]
enum Step {
    Packets(Vec<Client>),
    Set(usize, BackendState),
}

pub(super) fn clients(hosts: u8) -> impl Strategy<Value = Vec<Client>> {
    let client = (any::<bool>(), any::<bool>(), 0..hosts, 1..8u16);
    prop::collection::vec(client.prop_map(|(v6, udp, host, port)| Client { v6, udp, host, port }), 1..70)
}

fn step(hosts: u8) -> impl Strategy<Value = Step> {
    let state = prop_oneof![Just(BackendState::Up), Just(BackendState::Draining), Just(BackendState::Down)];
    prop_oneof![
        3 => clients(hosts).prop_map(Step::Packets),
        1 => (0..BACKENDS, state).prop_map(|(b, c)| Step::Set(b, c)),
    ]
}

/// Returns the backend that a packet was sent to, after verifying that nothing else has changed.
fn backend(client: Client, sent: &[u8], received: &[u8], forward: &str) -> usize {
    let (outer, before) = (contents(received), contents(sent));
    match forward {
        "gre" | "ipip" => {
            let (kind, bytes) = decapsulate(&outer);
            assert_eq!((packet(kind, &bytes), client.v6), (before, kind == EtherType::IPV6));
            assert!(sent[14..].starts_with(&bytes), "the inner packet is unchanged");
        }
        _ => {
            assert_eq!((outer.src, outer.ports, outer.protocol), (before.src, before.ports, before.protocol));
            assert_eq!(outer.dscp, if forward == "l3dsr" { 11 } else { 0 });
        }
    }
    match outer.dst {
        IpAddr::V4(v4) => usize::from(v4.octets()[3]) - 1,
        IpAddr::V6(v6) => usize::from(v6.octets()[15]) - 1,
    }
}

fn compare_with_model(forward: &str, v6_backends: bool, steps: &[Step], force_v6: Option<bool>) {
    let (mut bench, shared) = balancer(&service(forward, v6_backends));
    let states = [BackendState::Up; BACKENDS];
    let mut model = Model { states, connections: HashMap::new(), moved: 0, full: 0 };
    let mut dropped = 0;
    for step in steps {
        match step {
            Step::Set(backend, state) => {
                shared.0.set(*backend, *state);
                model.states[*backend] = *state;
            }
            Step::Packets(clients) => {
                for client in clients.iter().map(|c| Client { v6: force_v6.unwrap_or(c.v6), ..*c }) {
                    let sent = client.frame();
                    match (model.send(client), bench.feed_one(&sent)) {
                        (Some(b), Ok(received)) => {
                            assert_eq!(backend(client, &sent, &received, forward), b, "{client:?}")
                        }
                        (None, Err("no_backend")) => dropped += 1,
                        (expected, received) => panic!("{client:?}: {expected:?}, {received:?}"),
                    }
                }
            }
        }
    }
    bench.jump_to(std::time::Duration::from_millis(1));
    assert_eq!(bench.counter("moved"), model.moved);
    assert_eq!(bench.counter("table_full"), model.full);
    assert_eq!(bench.counter("connections"), model.connections.len() as u64);
    assert_eq!(bench.dropped("no_backend"), dropped);
}

fn steps(hosts: u8) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(hosts), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn tunnels_agree_with_a_map(gre in any::<bool>(), v6 in any::<bool>(), steps in steps(40)) {
        compare_with_model(if gre { "gre" } else { "ipip" }, v6, &steps, None);
    }

    #[test]
    fn rewriting_agrees_with_a_map(nat in any::<bool>(), v6 in any::<bool>(), steps in steps(40)) {
        compare_with_model(if nat { "nat" } else { "l3dsr" }, v6, &steps, Some(v6));
    }

    #[test]
    fn bursts_are_processed_like_single_packets(steps in steps(20), gre in any::<bool>()) {
        let forward = if gre { "gre" } else { "ipip" };
        let [(mut one, shared_one), (mut all, shared_all)] = [0, 1].map(|_| balancer(&service(forward, false)));
        for step in &steps {
            match step {
                Step::Set(b, c) => [&shared_one, &shared_all].iter().for_each(|shared| shared.0.set(*b, *c)),
                Step::Packets(clients) => {
                    let frames: Vec<_> = clients.iter().map(|c| c.frame()).collect();
                    let what = |f: &Vec<u8>| (contents(f).dst, contents(f).payload);
                    let singly: Vec<_> = frames.iter().filter_map(|f| one.feed_one(f).ok()).map(|f| what(&f)).collect();
                    let together: Vec<_> = all.feed(&frames).iter().map(what).collect();
                    prop_assert_eq!(singly, together);
                }
            }
        }
        prop_assert_eq!(one.counters(), all.counters());
    }
}
