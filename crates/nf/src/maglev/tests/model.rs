//! Connections against a map.

use super::*;
use std::collections::HashMap;
use tables::flow::{FlowKey, Seed, Tuple4, Tuple6};
use tables::maglev::{Member, Ring};
use testkit::proptest::prelude::*;
use wire::{TcpFlags, build};

const BACKENDS: usize = 5;
const CAPACITY: usize = 100;
/// The backend of a connection that found none.
const NONE: usize = usize::MAX;

/// The slow way: who gets what.
struct Model {
    conditions: [Condition; BACKENDS],
    connections: HashMap<Client, usize>,
    moved: u64,
    full: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Client {
    v6: bool,
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
    fn frame(self) -> Vec<u8> {
        let Client { v6, udp, host, port } = self;
        let (src, src6) = ([10, 1, 0, host], host6(host));
        match (v6, udp) {
            (false, false) => build::tcp4(src, VIP, port, 80).flags(TcpFlags::SYN).payload(&[host]).pad_to(60).to_vec(),
            (false, true) => build::udp4(src, VIP, port, 53).payload(&[host]).pad_to(60).to_vec(),
            (true, false) => build::tcp6(src6, VIP6, port, 80).flags(TcpFlags::SYN).to_vec(),
            (true, true) => build::udp6(src6, VIP6, port, 53).payload(&[host]).to_vec(),
        }
    }

    fn hash(self) -> u64 {
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
            && self.conditions[backend] != Condition::Down
        {
            return Some(backend);
        }
        let names: Vec<String> = (1..=BACKENDS).map(|n| format!("b{n}")).collect();
        let up = |at: usize| u32::from(self.conditions[at] == Condition::Up);
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
    Set(usize, Condition),
}

fn step(hosts: u8) -> impl Strategy<Value = Step> {
    let client = (any::<bool>(), any::<bool>(), 0..hosts, 1..8u16).prop_map(|(v6, udp, host, port)| Client {
        v6,
        udp,
        host,
        port,
    });
    let condition = prop_oneof![Just(Condition::Up), Just(Condition::Draining), Just(Condition::Down)];
    prop_oneof![
        3 => prop::collection::vec(client, 1..70).prop_map(Step::Packets),
        1 => (0..BACKENDS, condition).prop_map(|(b, c)| Step::Set(b, c)),
    ]
}

/// The backend that a packet went to; otherwise it is what it was.
fn backend(client: Client, sent: &[u8], came: &[u8], forward: &str) -> usize {
    let (outer, before) = (seen(came), seen(sent));
    match forward {
        "gre" | "ipip" => {
            let (kind, bytes) = inside(&outer);
            assert_eq!((packet(kind, &bytes), client.v6), (before, kind == EtherType::IPV6));
            assert!(sent[14..].starts_with(&bytes), "not one byte of it changes");
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

fn agrees(forward: &str, v6_backends: bool, steps: &[Step], only: Option<bool>) {
    let (mut bench, shared) = balancer(&service(forward, v6_backends));
    let conditions = [Condition::Up; BACKENDS];
    let mut model = Model { conditions, connections: HashMap::new(), moved: 0, full: 0 };
    let mut dropped = 0;
    for step in steps {
        match step {
            Step::Set(backend, condition) => {
                shared.0.set(*backend, *condition);
                model.conditions[*backend] = *condition;
            }
            Step::Packets(clients) => {
                for client in clients.iter().map(|c| Client { v6: only.unwrap_or(c.v6), ..*c }) {
                    let sent = client.frame();
                    match (model.send(client), bench.one(&sent)) {
                        (Some(b), Ok(came)) => assert_eq!(backend(client, &sent, &came, forward), b, "{client:?}"),
                        (None, Err("no_backend")) => dropped += 1,
                        (wanted, came) => panic!("{client:?}: {wanted:?}, {came:?}"),
                    }
                }
            }
        }
    }
    bench.wake(std::time::Duration::from_millis(1));
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
        agrees(if gre { "gre" } else { "ipip" }, v6, &steps, None);
    }

    #[test]
    fn rewriting_agrees_with_a_map(nat in any::<bool>(), v6 in any::<bool>(), steps in steps(40)) {
        agrees(if nat { "nat" } else { "l3dsr" }, v6, &steps, Some(v6));
    }

    #[test]
    fn bursts_do_what_single_packets_do(steps in steps(20), gre in any::<bool>()) {
        let forward = if gre { "gre" } else { "ipip" };
        let [(mut one, shared_one), (mut all, shared_all)] = [0, 1].map(|_| balancer(&service(forward, false)));
        for step in &steps {
            match step {
                Step::Set(b, c) => [&shared_one, &shared_all].iter().for_each(|shared| shared.0.set(*b, *c)),
                Step::Packets(clients) => {
                    let frames: Vec<_> = clients.iter().map(|c| c.frame()).collect();
                    let what = |f: &Vec<u8>| (seen(f).dst, seen(f).payload);
                    let singly: Vec<_> = frames.iter().filter_map(|f| one.one(f).ok()).map(|f| what(&f)).collect();
                    let together: Vec<_> = all.feed(&frames).iter().map(what).collect();
                    prop_assert_eq!(singly, together);
                }
            }
        }
        prop_assert_eq!(one.counters(), all.counters());
    }
}
