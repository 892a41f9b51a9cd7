//! For the tests of NFs: one NF, packets in, packets out.

use graph::{Blueprint, BuildCx, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::Arc;
use std::time::Duration;

/// An NF on a bench: port 0 is behind its first output, port `n` behind output `n`.
pub(crate) struct Bench {
    kind: &'static str,
    settings: String,
    outputs: usize,
    sent: u64,
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
        let factory = k.read(table).map_err(|e| e.to_string())?;
        let node = factory.build(&BuildCx::default()).map_err(|d| format!("{d:?}"))?;
        let interfaces = factory.interfaces().len();
        let (inputs, outputs) = (k.inputs.len() + interfaces, k.outputs.len() + interfaces);
        let edges = (0..outputs.max(1) as u16).map(Target::Port).collect();
        let next = if outputs == 0 { Target::Nowhere } else { Target::Port(0) };
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: kind.to_owned(), edges }],
            hops: (0..inputs as u8).map(|input| HopPlan { node: 0, input, next, open: false }).collect(),
        };
        let pool = Arc::new(HeapPool::new(buffers));
        let graph = Graph::new(&blueprint, vec![node], pool.clone());
        Ok(Bench { kind, settings: settings.to_owned(), outputs: outputs.max(2), sent: 0, pool, graph })
    }

    /// Sends frames in bursts into input number `input`; what came out, by output.
    pub(crate) fn by(&mut self, input: u16, frames: &[impl AsRef<[u8]>]) -> Vec<Vec<Vec<u8>>> {
        let mut out = Collect(vec![]);
        out.0.resize_with(self.outputs, Vec::new);
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            for frame in burst {
                batch.push(self.pool.alloc_from(frame.as_ref()).unwrap()).unwrap();
            }
            self.graph.run::<false>(Target::Hop(Hop(input)), &mut batch, &mut out);
            assert!(batch.is_empty());
        }
        self.settle(out)
    }

    /// Lets the clock show so many milliseconds; what came out, by output.
    pub(crate) fn wake(&mut self, ms: u64) -> Vec<Vec<Vec<u8>>> {
        let mut out = Collect(vec![]);
        out.0.resize_with(self.outputs, Vec::new);
        self.graph.wake(Duration::from_millis(ms), &mut out);
        self.settle(out)
    }

    /// The bytes of what came out, after seeing that nothing is missing.
    fn settle(&mut self, out: Collect) -> Vec<Vec<Vec<u8>>> {
        let sent: usize = out.0.iter().map(Vec::len).sum();
        self.sent += sent as u64;
        let stats = self.graph.stats().next().unwrap().1.clone();
        let held = stats.held.get();
        assert_eq!(self.pool.in_use() as u64, sent as u64 + held, "a packet was leaked");
        let (received, created, dropped) = self.totals();
        assert_eq!(received + created, self.sent + held + dropped, "accounting");
        out.0.iter().map(|packets| packets.iter().map(|p| p.data().to_vec()).collect()).collect()
    }

    /// Lets the NF bring up to date what it shows; the rows of its table.
    pub(crate) fn finish(&mut self) -> Vec<Vec<String>> {
        self.graph.finish();
        let stats = self.graph.stats().next().unwrap().1;
        stats.board().iter().flat_map(|b| b.rows()).map(|row| row.1).collect()
    }

    /// What has been dropped so far, by reason.
    pub(crate) fn drops(&self) -> Vec<(&'static str, u64)> {
        let stats = self.graph.stats().next().unwrap().1;
        let all = stats.reasons.iter().copied().zip(stats.drops.iter().map(|c| c.get()));
        all.filter(|(_, n)| *n != 0).collect()
    }

    /// Sends frames in bursts; what came out of the first output, and of the second.
    pub(crate) fn all(&mut self, frames: &[impl AsRef<[u8]>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut out = self.by(0, frames).into_iter();
        (out.next().unwrap_or_default(), out.next().unwrap_or_default())
    }

    /// Sends one frame: what came of it, or the reason it was dropped for.
    pub(crate) fn one(&mut self, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let before = self.drops();
        let out = self.all(&[frame]).0.pop();
        let reason = self.drops().into_iter().find(|d| !before.contains(d));
        out.ok_or_else(|| reason.expect("a reason is counted").0)
    }

    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        self.graph.stats().next().unwrap().1.counters().into_iter().map(|(n, c)| (n, c.get())).collect()
    }

    fn totals(&self) -> (u64, u64, u64) {
        let stats = self.graph.stats().next().unwrap().1;
        (stats.packets.get(), stats.created.get(), stats.dropped())
    }
}

fn toml_table(text: &str) -> Result<toml::Spanned<toml::de::DeTable<'_>>, String> {
    toml::de::DeTable::parse(text).map_err(|e| e.to_string())
}
