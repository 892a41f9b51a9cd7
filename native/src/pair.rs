//! A network function in Rust and in C, and the row of results that compares them.

use crate::fixture::CLoop;
use crate::sample::Cost;
use dpdk::Mempool;
use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, Node, NodePlan, Segment, Target};
use runtime::{DrainPolicy, Input, Output, RxPort, TxPort, Worker};
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;

/// Row of results in `native.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) nf: String,
    pub(crate) source: &'static str,
    pub(crate) flows: usize,
    pub(crate) frame: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cells: Option<u32>,
    /// Functions in the chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stages: Option<u32>,
    pub(crate) bondstone: Cost,
    pub(crate) native: Cost,
    pub(crate) ratio: f64,
    pub(crate) ratio_lower: f64,
    pub(crate) ratio_upper: f64,
}

impl Row {
    pub(crate) fn is(&self, nf: &str, source: &str) -> bool {
        self.nf == nf && self.source == source
    }
}

/// An NF in both languages.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) nodes: Box<dyn Fn() -> Vec<Box<dyn Node>>>,
    /// Compiled segments of the nodes.
    pub(crate) segments: Vec<Segment>,
    pub(crate) native: CLoop,
    pub(crate) cells: Option<u32>,
    pub(crate) stages: Option<u32>,
    /// Number of times that a packet can pass before its time to live expires.
    pub(crate) passes: usize,
    pub(crate) ports: Ports,
    /// Comparison of counters.
    pub(crate) counters: Option<Rc<dyn CompareCounters>>,
}

impl Pair {
    /// Returns new nodes, and the segments of them.
    pub(crate) fn graph(&self) -> (Vec<Box<dyn Node>>, &[Segment]) {
        ((self.nodes)(), &self.segments)
    }

    /// Returns an NF without cells and stages, through which packets can pass any number of times.
    pub(crate) fn new(name: &str, nodes: Box<dyn Fn() -> Vec<Box<dyn Node>>>, native: CLoop) -> Pair {
        Pair {
            name: name.into(),
            nodes,
            segments: vec![],
            native,
            cells: None,
            stages: None,
            passes: usize::MAX,
            ports: Ports::One,
            counters: None,
        }
    }
}

/// Ports of an NF.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// All packets are sent to one port.
    One,
    /// Packets of the second and third output are sent to a port each.
    Two,
    /// Packets of each of two ports, received by the first and second input, are sent to the other port.
    Between,
}

/// Comparison of the counters of both sides.
pub(crate) trait CompareCounters {
    /// Resets the counters of C.
    fn reset(&self);
    /// Compares the counters after both sides have processed the same packets.
    ///
    /// # Errors
    /// If counters differ.
    fn compare(&self, worker: &mut Worker) -> anyhow::Result<()>;
}

/// Builds a shipped NF.
pub(crate) fn node(kind: &str, settings: &str) -> Box<dyn Node> {
    node_in(kind, settings, &BuildContext::default())
}

/// Builds a shipped NF in a context.
pub(crate) fn node_in(kind: &str, settings: &str, cx: &BuildContext) -> Box<dyn Node> {
    let registry = nf::registry();
    let kind = registry.get(kind).expect("a shipped NF");
    let settings = config::settings(settings).expect("TOML");
    kind.parse(settings).expect("settings").build(cx).expect("an NF")
}

/// Returns a worker with one path from each port through the nodes to the ports.
pub(crate) fn worker(
    (nodes, segments): (Vec<Box<dyn Node>>, &[Segment]),
    to: Ports,
    receivers: Vec<RxPort>,
    senders: Vec<TxPort>,
    pool: &Arc<Mempool>,
) -> Worker {
    let mut edges = vec![Target::Unconnected, Target::Port(0)];
    edges.extend((to != Ports::One).then_some(Target::Port(1)));
    let mut blueprint = Blueprint::default();
    blueprint.nodes.extend((0..nodes.len()).map(|n| NodePlan { name: n.to_string(), edges: edges.clone() }));
    let ports = senders.len() as u16;
    let mut inputs = vec![];
    for (at, from) in receivers.into_iter().enumerate() {
        let mut next = Target::Port((at as u16 + 1) % ports);
        let input = if to == Ports::Between { at as u8 } else { 0 };
        for node in (0..nodes.len() as u16).rev() {
            blueprint.hops.push(HopPlan { node, input, next, fail_open: false });
            next = Target::Hop(Hop(blueprint.hops.len() as u16 - 1));
        }
        inputs.push(Input {
            rx: from,
            entry: next,
            stats: Arc::default(),
            backpressure: false,
            drain: DrainPolicy::UntilQuiet,
        });
    }
    let outputs = senders.into_iter().map(|to| Some(Output::new(to))).collect();
    let mut graph = Graph::new(&blueprint, nodes, pool.clone());
    graph.fuse(segments);
    Worker::new(inputs, graph, outputs, Arc::default())
}
