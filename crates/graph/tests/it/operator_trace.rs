//! The steps of traced packets through operators.

use graph::{
    Blueprint, Graph, Hop, HopPlan, Node, NodePlan, Observer, Operator, OperatorStep, Point, Sink, Target, frame,
};
use packet::{Batch, HeapPool, Packet, Pool};
use proptest::prelude::*;
use std::any::Any;
use std::sync::Arc;
use wire::{Ethernet, IpProtocol, Ipv4, Udp, build};

graph::named_enum! {
    enum Drop {
        Odd = "odd_length",
        Long = "too_long",
    }
}

fn chain() -> impl Node {
    let ipv4 = frame().parse::<Ethernet>().parse_if::<Ipv4>().count("low_ttl", |ip| ip.header().ttl() < 5);
    let checked = ipv4.filter("ttl_expired", |ip| ip.header().ttl() > 1).drop_if(|ip| match ip.payload().len() {
        n if n % 2 != 0 => Some(Drop::Odd),
        n if n > 40 => Some(Drop::Long),
        _ => None,
    });
    let branches = checked.group_by(
        |ip| usize::from(ip.header().protocol() != IpProtocol::UDP) * 7,
        |start| {
            let udp = start.parse::<Udp>().emit_if("dns", |udp| udp.header().dst_port() == 53);
            (udp, start.transform(|ip| ip.header_mut().set_ttl(9)))
        },
    );
    branches.deparse().shuffle(|e| e.header().src().0[5].into()).compose()
}

/// Collects frames by port.
struct Out(Vec<Vec<Vec<u8>>>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[usize::from(port)].extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
}

#[derive(Default)]
struct Steps(Vec<String>);

impl Observer for Steps {
    fn received(&mut self, _: usize, packets: &[Packet]) -> u64 {
        (1 << packets.len()) - 1
    }
    fn sees(&mut self, at: Point, _: &[Packet]) {
        if let Point::Drop(_, reason) = at {
            self.0.push(format!("drop {reason}"));
        }
    }
    fn wants_explanations(&self) -> bool {
        true
    }
    fn operator(&mut self, _: Hop, step: OperatorStep) {
        let name = step.name.map(|name| format!(" {name}")).unwrap_or_default();
        let bytes = step.bytes.map(|bytes| format!(", ttl {}", bytes[22])).unwrap_or_default();
        self.0.push(format!("{}{name}: {}{bytes}", step.operator, step.result));
    }
}

/// Runs frames; returns what was sent, drops and counters, and the steps if observed.
fn run(frames: &[Vec<u8>], observed: bool) -> (Vec<Vec<Vec<u8>>>, Vec<u64>, Vec<String>) {
    let pool = Arc::new(HeapPool::new(64));
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "nf".into(), edges: vec![Target::Unconnected, Target::Port(1)] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    let mut graph = Graph::new(&blueprint, vec![Box::new(chain())], pool.clone());
    let (mut batch, mut out) = (Batch::new(), Out(vec![vec![], vec![]]));
    frames.iter().for_each(|frame| batch.push(pool.alloc_from(frame).unwrap()).unwrap());
    if observed {
        graph.observe(Some(Box::new(Steps::default())));
        graph.run_observed(0, Target::Hop(Hop(0)), &mut batch, &mut out);
    } else {
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
    }
    let stats = graph.stats().next().unwrap().1;
    let counts = stats.drops.iter().map(|n| n.get()).chain(stats.counters().iter().map(|(_, n)| n.get())).collect();
    let steps = graph.observe(None).map(|mut observer| {
        let observer: &mut dyn Any = &mut *observer;
        std::mem::take(&mut observer.downcast_mut::<Steps>().unwrap().0)
    });
    (out.0, counts, steps.unwrap_or_default())
}

fn udp(ttl: u8, port: u16, payload: usize) -> Vec<u8> {
    build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 7, port).ttl(ttl).payload(&vec![0; payload]).to_vec()
}

#[test]
fn each_operator_shows_what_it_does() {
    let tcp = |ttl| build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 7, 80).ttl(ttl).to_vec();
    let to_filter =
        ["parse ethernet: passed", "parse_if ipv4: passed", "count low_ttl: passed", "filter ttl_expired: passed"];
    let all = |more: &[&'static str]| [&to_filter[..], more].concat();
    assert_eq!(
        run(&[tcp(64)], true).2,
        all(&[
            "drop_if: passed",
            "group_by: branch 1",
            "transform: changed, ttl 9",
            "deparse: passed",
            "shuffle: passed"
        ])
    );
    assert_eq!(
        run(&[udp(64, 53, 8)], true).2,
        all(&["drop_if: passed", "group_by: branch 0", "parse udp: passed", "emit_if dns: output dns"])
    );
    assert_eq!(run(&[udp(64, 9, 7)], true).2, all(&["drop_if: dropped: odd_length", "drop odd_length"]));
    assert_eq!(
        run(&[tcp(1)], true).2[2..],
        ["count low_ttl: counted", "filter ttl_expired: dropped: ttl_expired", "drop ttl_expired"]
    );
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    assert_eq!(run(&[arp], true).2, ["parse ethernet: passed", "parse_if ipv4: skips the others"]);
    assert_eq!(run(&[vec![0; 9]], true).2[0], "parse ethernet: dropped: malformed_ethernet");
}

proptest! {
    #[test]
    fn traced_packets_are_processed_as_others(frames in prop::collection::vec(
        prop_oneof![
            (0..9u8, 52..55u16, 0..50usize).prop_map(|(ttl, port, payload)| udp(ttl, port, payload)),
            prop::collection::vec(any::<u8>(), 0..80),
            (0..9u8).prop_map(|ttl| build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 7, 80).ttl(ttl).to_vec()),
        ],
        1..40,
    )) {
        let ((sent, counts, _), (traced, traced_counts, steps)) = (run(&frames, false), run(&frames, true));
        prop_assert_eq!((sent, counts), (traced, traced_counts));
        prop_assert!(steps.len() >= frames.len());
    }
}
