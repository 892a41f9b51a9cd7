//! Rules of `ids`: those that are accepted build an engine, which inspects packets, and each that is refused is counted.
#![no_main]

use bondstone_fuzz::FuzzedFrame;
use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Arbitrary as _, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{Batch, HeapPool, Pool as _};
use std::sync::{Arc, LazyLock};

static REGISTRY: LazyLock<graph::Registry> = LazyLock::new(nf::registry);

struct Count(u64);

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0 += batch.drain().count() as u64;
    }
}

fuzz_target!(|data: &[u8]| {
    // rules, and behind the first NUL packets
    let (rules, packets) = data.split_at(data.iter().position(|byte| *byte == 0).unwrap_or(data.len()));
    let rules = String::from_utf8_lossy(rules);
    let kind = REGISTRY.get("ids").expect("a shipped NF");
    let settings = serde_json::json!({
        "inline": rules.lines().collect::<Vec<_>>(),
        "variables": { "HOME_NET": "[10.0.0.0/8,!10.1.0.0/16]", "EXTERNAL_NET": "!$HOME_NET", "PORTS": "[80,1024:]" },
        "mode": "prevent",
        "checksums": false,
        "midstream": true,
        "flows": 8,
    });
    let factory = kind.deserialize(settings).expect("settings according to the schema");
    let node = factory.build(&BuildContext::default()).expect("accepted rules build an engine");
    let edges = vec![Target::Unconnected];
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "ids".to_owned(), edges }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    let pool = Arc::new(HeapPool::new(8));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let counter = |name: &str| stats.counters().iter().find(|(own, _)| *own == name).map_or(0, |(_, n)| n.get());
    let lines = rules.lines().filter(|line| !line.trim().is_empty()).count() as u64;
    assert!(counter("rules") + counter("refused_rules") <= lines, "more rules than lines");
    let (mut u, mut out, mut received) = (Unstructured::new(packets), Count(0), 0);
    while !u.is_empty() && received < 64 {
        let Ok(frame) = FuzzedFrame::arbitrary(&mut u) else { break };
        let mut batch = Batch::new();
        if let Some(packet) = pool.alloc_from(&frame.bytes) {
            batch.push(packet).expect("one packet");
            received += 1;
        }
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
        assert_eq!(received, out.0 + stats.dropped(), "accounting");
        assert_eq!(pool.in_use(), 0, "a packet was leaked");
    }
});
