//! Operators compared with a simple model, on valid and damaged frames.

use graph::{Blueprint, Graph, Hop, HopPlan, Node, NodePlan, NodeStats, Operator, Sink, Target, frame};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, Ethernet, IpProtocol, Ipv4, Tcp, Udp, Vlan, build};

/// Packets sent to each port.
#[derive(Default)]
pub(crate) struct Out(BTreeMap<u16, Vec<Packet>>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0.entry(port).or_default().extend(batch.drain());
    }
}

impl Out {
    pub(crate) fn frames(&self, port: u16) -> Vec<Vec<u8>> {
        self.0.get(&port).into_iter().flatten().map(|p| p.data().to_vec()).collect()
    }
}

/// One node between port 0 and its outputs: output `n` leads to port `n`.
pub(crate) fn single(node: Box<dyn Node>, pool: &Arc<HeapPool>) -> Graph {
    let edges = (0..node.outputs().len() as u16).map(Target::Port).collect();
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "nf".into(), edges }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    Graph::new(&blueprint, vec![node], pool.clone())
}

pub(crate) fn feed(graph: &mut Graph, entry: Target, pool: &HeapPool, frames: &[Vec<u8>]) -> Out {
    let mut out = Out::default();
    for burst in frames.chunks(BURST) {
        let mut batch = Batch::new();
        for f in burst {
            batch.push(pool.alloc_from(f).unwrap()).unwrap();
        }
        graph.run::<false>(entry, &mut batch, &mut out);
        assert!(batch.is_empty());
    }
    out
}

pub(crate) fn drops(stats: &NodeStats) -> BTreeMap<&'static str, u64> {
    let mut all = BTreeMap::new();
    for (reason, n) in stats.reasons.iter().zip(&stats.drops).filter(|(_, n)| n.get() != 0) {
        *all.entry(*reason).or_default() += n.get();
    }
    all
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

/// Frames of several protocols, some of them damaged.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let good = (0..6u8, any::<u8>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(kind, ttl, port, payload)| match kind {
            0 => build::udp4(A, B, port, 53).ttl(ttl).payload(&payload).to_vec(),
            1 => build::tcp4(A, B, port, 80).ttl(ttl).payload(&payload).to_vec(),
            2 => build::udp4(A, B, port, 53).ttl(ttl).vlan(5).payload(&payload).to_vec(),
            3 => build::udp6([0u16, 0, 0, 0, 0, 0, 0, 1], [0u16, 0, 0, 0, 0, 0, 0, 2], port, 53)
                .payload(&payload)
                .to_vec(),
            4 => build::arp_request(A, B).to_vec(),
            _ => payload,
        },
    );
    (good, any::<prop::sample::Index>(), any::<u8>(), 0..4u8).prop_map(|(mut f, at, byte, damage)| {
        if damage == 0 && !f.is_empty() {
            let at = at.index(f.len());
            f[at] = byte;
        } else if damage == 1 {
            f.truncate(at.index(f.len() + 1));
        }
        f
    })
}

/// Expected result of the chain of [`chain`]: output port and frame, or the drop reason.
fn expected(frame: &[u8]) -> Result<(u16, Vec<u8>), &'static str> {
    let Some(ethernet) = frame.get(..14) else { return Err("malformed_ethernet") };
    let mut out = frame.to_vec();
    match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        0x0800 => {}
        0x8100 | 0x88a8 => return Ok((1, out)),
        _ => return Ok((0, out)),
    }
    let ip = &frame[14..];
    let Ok(ip) = wire::ipv4::Packet::new(ip) else { return Err("malformed_ipv4") };
    match ip.header().ttl() {
        0 | 1 => return Err("ttl_too_small"),
        200.. => return Err("ttl_too_large"),
        _ => {}
    }
    let (at, protocol) = (14 + ip.header().header_len(), ip.header().protocol());
    let whole = !ip.header().is_later_fragment();
    if protocol == IpProtocol::UDP {
        if !whole {
            return Err("not_udp");
        }
        if wire::udp::Datagram::new(ip.payload()).is_err() {
            return Err("malformed_udp");
        }
        out[at..at + 2].fill(0);
    } else {
        out[22] = 1;
    }
    Ok((0, out))
}

graph::named_enum! {
    enum Ttl {
        TooSmall = "ttl_too_small",
        TooLarge = "ttl_too_large",
    }
}

fn chain() -> impl Node {
    frame()
        .parse::<Ethernet>()
        .emit_if("tagged", |e| e.is_next::<Vlan>())
        .parse_if::<Ipv4>()
        .drop_if(|ip| match ip.header().ttl() {
            0 | 1 => Some(Ttl::TooSmall),
            200.. => Some(Ttl::TooLarge),
            _ => None,
        })
        .count("even", |ip| ip.header().ttl().is_multiple_of(2))
        .filter("never", |_| true)
        .group_by(
            |ip| usize::from(ip.header().protocol() != IpProtocol::UDP),
            |start| {
                (
                    start.parse::<Udp>().transform(|udp| udp.header_mut().set_src_port(0)),
                    start.count("others", |_| true).transform(|ip| ip.header_mut().set_ttl(1)),
                )
            },
        )
        .compose()
}

proptest! {
    #[test]
    fn chain_matches_model(frames in prop::collection::vec(any_frame(), 1..80)) {
        let pool = Arc::new(HeapPool::new(1000));
        let mut graph = single(Box::new(chain()), &pool);
        let out = feed(&mut graph, Target::Hop(Hop(0)), &pool, &frames);

        let mut expected_frames: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        let mut expected_drops: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut even, mut others) = (0, 0);
        for f in &frames {
            if let Ok(ip) = wire::ipv4::Packet::new(f.get(14..).unwrap_or_default())
                && f[12..14] == [8, 0]
                && (2..200).contains(&ip.header().ttl())
            {
                even += u64::from(ip.header().ttl().is_multiple_of(2));
                others += u64::from(ip.header().protocol() != IpProtocol::UDP);
            }
            match expected(f) {
                Ok((port, f)) => expected_frames.entry(port).or_default().push(f),
                Err(reason) => *expected_drops.entry(reason).or_default() += 1,
            }
        }
        for port in [0, 1] {
            prop_assert_eq!(out.frames(port), expected_frames.remove(&port).unwrap_or_default());
        }
        let stats = graph.stats().next().unwrap().1.clone();
        prop_assert_eq!(drops(&stats), expected_drops);
        let counted: Vec<_> = stats.counters().into_iter().map(|(name, n)| (name, n.get())).collect();
        prop_assert_eq!(counted, [("even".to_owned(), even), ("others".to_owned(), others)]);
        prop_assert_eq!(stats.packets.get(), frames.len() as u64);
        drop(out);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn reaches_every_header_of_the_stack() {
    let pool = Arc::new(HeapPool::new(8));
    let node = frame()
        .parse::<Ethernet>()
        .parse::<Vlan>()
        .parse::<Ipv4>()
        .parse::<Tcp>()
        .filter("odd", |tcp| {
            tcp.get::<Vlan, _>().vid() == 7
                && tcp.get::<Ipv4, _>().ttl() == 9
                && tcp.get::<Ethernet, _>().ether_type() == EtherType::VLAN
                && tcp.header_bytes::<Ipv4, _>().len() == 20
                && tcp.payload() == b"abc"
        })
        .transform(|tcp| tcp.get_mut::<Vlan, _>().set_vid(8))
        .deparse()
        .transform(|ip| ip.header_mut().set_ttl(10))
        .compose();
    let sent = build::tcp4(A, B, 1, 2).ttl(9).vlan(7).payload(b"abc").to_vec();
    let out = feed(&mut single(Box::new(node), &pool), Target::Hop(Hop(0)), &pool, std::slice::from_ref(&sent));
    let mut expected = sent;
    expected[15] = 8;
    expected[26] = 10;
    assert_eq!(out.frames(0), [expected]);
}

#[test]
fn closures_read_the_time_of_their_batch() {
    let pool = Arc::new(HeapPool::new(64));
    let (sender, times) = std::sync::mpsc::channel();
    let node = frame()
        .group_by(|_| 0, |start| (start.parse::<Ethernet>().filter("early", |view| view.now() >= MS), start))
        .transform(move |view| sender.send(view.now()).unwrap())
        .compose();
    const MS: Duration = Duration::from_millis(1);
    let mut graph = single(Box::new(node), &pool);
    let stats = graph.stats().next().unwrap().1.clone();
    let frames = vec![build::udp4(A, B, 1, 2).to_vec(); 3];
    feed(&mut graph, Target::Hop(Hop(0)), &pool, &frames);
    assert_eq!(drops(&stats), BTreeMap::from([("early", 3)]));
    for ns in [1_000_001, 1_000_002, 3_700_000_000_123] {
        graph.run_timers(Duration::from_nanos(ns), &mut Out::default());
        feed(&mut graph, Target::Hop(Hop(0)), &pool, &frames);
        assert_eq!(times.try_iter().collect::<Vec<_>>(), [Duration::from_nanos(ns); 3]);
    }
}
