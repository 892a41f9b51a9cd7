//! For the tests of NFs: one NF, packets in, packets out.

use graph::{Blueprint, BuildCx, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::Arc;

/// An NF on a bench: port 0 is behind its first output, port `n` behind output `n`.
pub(crate) struct Bench {
    kind: &'static str,
    settings: String,
    pool: Arc<HeapPool>,
    graph: Graph,
}

struct Collect(Vec<Vec<Packet>>);

impl Sink for Collect {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[port as usize].extend(batch.drain());
    }
}

impl Bench {
    pub(crate) fn of(kind: &'static str, settings: &str) -> Self {
        Self::try_of(kind, settings).unwrap()
    }

    pub(crate) fn try_of(kind: &'static str, settings: &str) -> Result<Self, String> {
        Self::build(kind, settings, 4096)
    }

    /// The same NF, anew, with so many buffers for packets in and copies.
    pub(crate) fn with_buffers(self, n: usize) -> Self {
        Self::build(self.kind, &self.settings, n).unwrap()
    }

    fn build(kind: &'static str, settings: &str, buffers: usize) -> Result<Self, String> {
        let registry = crate::registry();
        let k = registry.get(kind).unwrap();
        let table = toml_table(settings)?;
        let node =
            k.read(table).map_err(|e| e.to_string())?.build(&BuildCx::default()).map_err(|d| format!("{d:?}"))?;
        let edges = (0..k.outputs.len().max(1) as u16).map(Target::Port).collect();
        let next = if k.outputs.is_empty() { Target::Nowhere } else { Target::Port(0) };
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: kind.to_owned(), edges }],
            hops: vec![HopPlan { node: 0, input: 0, next }],
        };
        let pool = Arc::new(HeapPool::new(buffers));
        let graph = Graph::new(&blueprint, vec![node], pool.clone());
        Ok(Bench { kind, settings: settings.to_owned(), pool, graph })
    }

    /// Sends frames in bursts; what came out of the first output, and of the second.
    pub(crate) fn all(&mut self, frames: &[impl AsRef<[u8]>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let before = self.totals();
        let mut out = Collect(vec![vec![], vec![]]);
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            for frame in burst {
                batch.push(self.pool.alloc_from(frame.as_ref()).unwrap()).unwrap();
            }
            self.graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
            assert!(batch.is_empty());
        }
        let sent: usize = out.0.iter().map(Vec::len).sum();
        assert_eq!(self.pool.in_use(), sent, "a packet was leaked");
        let (received, created, dropped) = self.totals();
        assert_eq!(received + created - dropped, before.0 + before.1 - before.2 + sent as u64, "accounting");
        let bytes = |packets: &[Packet]| packets.iter().map(|p| p.data().to_vec()).collect();
        (bytes(&out.0[0]), bytes(&out.0[1]))
    }

    /// Sends one frame: what came of it, or the reason it was dropped for.
    pub(crate) fn one(&mut self, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let counts = |g: &Graph| -> Vec<(&'static str, u64)> {
            let stats = g.stats().next().unwrap().1.clone();
            stats.reasons.iter().copied().zip(stats.drops.iter().map(|c| c.get())).collect()
        };
        let before = counts(&self.graph);
        let out = self.all(&[frame]).0.pop();
        let reason = counts(&self.graph).into_iter().zip(before).find(|(now, then)| now.1 != then.1);
        out.ok_or_else(|| reason.expect("a reason is counted").0.0)
    }

    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        self.graph.stats().next().unwrap().1.counters.iter().map(|(n, c)| (n.clone(), c.get())).collect()
    }

    fn totals(&self) -> (u64, u64, u64) {
        let stats = self.graph.stats().next().unwrap().1;
        (stats.packets.get(), stats.created.get(), stats.dropped())
    }
}

fn toml_table(text: &str) -> Result<toml::Spanned<toml::de::DeTable<'_>>, String> {
    toml::de::DeTable::parse(text).map_err(|e| e.to_string())
}
