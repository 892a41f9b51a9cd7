//! The operator `meter` compared with a model in exact arithmetic.

use crate::operators::{Out, drops, feed, single};
use graph::{Graph, Hop, MeterSettings, MeterTable, NodeStats, Operator, Rate, Target, frame};
use packet::HeapPool;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Verdicts of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Exceeded,
    Full,
}

/// A node that meters frames by their first byte.
struct Node {
    graph: Graph,
    pool: Arc<HeapPool>,
    stats: Arc<NodeStats>,
}

impl Node {
    fn new(settings: &MeterSettings) -> Node {
        let meter = frame().meter(MeterTable::new(settings).unwrap(), |packet| u64::from(packet.bytes()[0]));
        let pool = Arc::new(HeapPool::new(4));
        let graph = single(Box::new(meter.compose()), &pool);
        let stats = graph.stats().next().unwrap().1.clone();
        Node { graph, pool, stats }
    }

    fn packet(&mut self, key: u8, bytes: usize, ns: u64) -> Verdict {
        let before = drops(&self.stats);
        self.graph.run_timers(Duration::from_nanos(ns), &mut Out::default());
        let sent = feed(&mut self.graph, Target::Hop(Hop(0)), &self.pool, &[vec![key; bytes]]);
        let new = |reason| drops(&self.stats).get(reason) != before.get(reason);
        match (sent.frames(0).len(), new("meter_exceeded"), new("meter_full")) {
            (1, false, false) => Verdict::Pass,
            (0, true, false) => Verdict::Exceeded,
            (0, false, true) => Verdict::Full,
            other => panic!("{other:?}"),
        }
    }

    fn keys(&self) -> u64 {
        self.stats.counters()[0].1.get()
    }
}

/// The model: tokens of each key in billionths, which no key loses.
struct Model {
    /// Tokens per second.
    rate: i128,
    /// Size of a bucket in billionths of a token.
    size: i128,
    packets: bool,
    buckets: HashMap<u8, (i128, u64)>,
}

impl Model {
    fn new(settings: &MeterSettings) -> Model {
        let (rate, smallest, packets) = match settings.rate {
            Rate::Packets(rate) => (rate, 1, true),
            Rate::Bits(rate) => (rate, 8 * 2048, false),
        };
        let rate = rate as i128;
        let size = (rate * i128::from(settings.burst) / 1000).max(smallest) * 1_000_000_000;
        Model { rate, size, packets, buckets: HashMap::new() }
    }

    fn tokens(&self, key: u8, ns: u64) -> i128 {
        let Some(&(tokens, at)) = self.buckets.get(&key) else { return self.size };
        (tokens + i128::from(ns - at) * self.rate).min(self.size)
    }

    fn packet(&mut self, key: u8, bytes: usize, ns: u64) -> Verdict {
        let cost = if self.packets { 1 } else { 8 * bytes as i128 } * 1_000_000_000;
        let tokens = self.tokens(key, ns);
        let passes = tokens >= cost;
        self.buckets.insert(key, (if passes { tokens - cost } else { tokens }, ns));
        if passes { Verdict::Pass } else { Verdict::Exceeded }
    }

    /// Returns the number of keys whose buckets are not full, or became full less than `ns` ago.
    fn not_full_since(&self, now: u64, ns: u64) -> usize {
        let full_at = |(tokens, at): &(i128, u64)| i128::from(*at) + (self.size - tokens) / self.rate;
        self.buckets.values().filter(|bucket| full_at(bucket) + i128::from(ns) > i128::from(now)).count()
    }
}

fn settings(keys: usize) -> impl Strategy<Value = MeterSettings> {
    let rate = prop_oneof![
        (1..2000u32).prop_map(|rate| Rate::Packets(rate.into())),
        (1_000..5_000_000u32).prop_map(|rate| Rate::Bits(rate.into())),
        Just(Rate::Bits(1e13)),
        Just(Rate::Packets(1e10)),
    ];
    (rate, 1..=1000u32).prop_map(move |(rate, burst)| MeterSettings { rate, burst, keys })
}

/// Packets: key, length, and the time since the packet before, in µs.
fn packets(keys: u8) -> impl Strategy<Value = Vec<(u8, usize, u64)>> {
    let gap = prop_oneof![4 => Just(0), 4 => 0..2000u64, 2 => 0..200_000u64, 1 => 0..5_000_000u64];
    prop::collection::vec((0..keys, 14..1600usize, gap), 1..300)
}

proptest! {
    #[test]
    fn passes_the_packets_that_the_model_passes(settings in settings(1000), packets in packets(6)) {
        let (mut node, mut model, mut ns) = (Node::new(&settings), Model::new(&settings), 0);
        for (key, bytes, gap) in packets {
            ns += gap * 1000;
            prop_assert_eq!(node.packet(key, bytes, ns), model.packet(key, bytes, ns));
        }
    }

    #[test]
    fn rejects_new_keys_only_while_the_table_is_full(settings in settings(4), packets in packets(12)) {
        let (mut node, mut model, mut ns) = (Node::new(&settings), Model::new(&settings), 0);
        // the table is searched in the time that fills a bucket, at least a second
        let sweep = ((model.size / model.rate) as u64).max(1_000_000_000);
        for (key, bytes, gap) in packets {
            ns += gap * 1000;
            // a key whose bucket is not full is in the table; one whose bucket was full for long is not
            let (in_table, full) = (model.tokens(key, ns) < model.size, model.not_full_since(ns, 0) >= settings.keys);
            match node.packet(key, bytes, ns) {
                Verdict::Full => {
                    prop_assert!(!in_table, "key {} has its bucket", key);
                    prop_assert!(model.not_full_since(ns, 2 * sweep) >= settings.keys, "no room for {}", key);
                }
                verdict => {
                    prop_assert!(in_table || !full, "no room for {}", key);
                    prop_assert_eq!(verdict, model.packet(key, bytes, ns));
                }
            }
            prop_assert!(node.keys() <= settings.keys as u64);
        }
    }
}

#[test]
fn keys_that_are_idle_leave_the_table() {
    let mut node = Node::new(&MeterSettings { rate: Rate::Packets(100.0), burst: 1000, keys: 100 });
    for key in 0..100 {
        assert_eq!(node.packet(key, 60, 0), Verdict::Pass);
    }
    assert_eq!((node.keys(), node.packet(100, 60, 0)), (100, Verdict::Full));
    // one key goes on sending
    for ms in 0..2200 {
        node.packet(7, 60, ms * 1_000_000);
    }
    assert_eq!((node.keys(), node.packet(100, 60, 2_200_000_000)), (1, Verdict::Pass));
}

#[test]
fn settings_out_of_range_are_errors() {
    let settings = MeterSettings::default();
    let key = |settings: MeterSettings| MeterTable::<u64>::new(&settings).err().and_then(|error| error.key);
    assert_eq!(key(MeterSettings { burst: 0, ..settings.clone() }), Some("burst"));
    assert_eq!(key(MeterSettings { burst: 1001, ..settings.clone() }), Some("burst"));
    assert_eq!(key(MeterSettings { keys: 0, ..settings.clone() }), Some("keys"));
    assert_eq!(key(settings), None);
}

#[test]
fn settings_are_read_from_text() {
    let read = |text: &str| toml::from_str::<MeterSettings>(text).map_err(|e| e.message().to_owned());
    let settings = read("rate = \"1.5 Mpps\"\nburst = 5").unwrap();
    assert_eq!((settings.rate, settings.burst, settings.keys), (Rate::Packets(1.5e6), 5, 65_536));
    assert!(read("rate = \"fast\"").unwrap_err().starts_with("is not a rate: write packets or bits per second"));
    for rate in [Rate::Packets(1.0), Rate::Packets(1e10), Rate::Bits(1234.5), Rate::Bits(1e13 / 3.0)] {
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }
}
