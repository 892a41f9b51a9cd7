//! A graph that replaces a running one between two batches.

use super::{Blueprint, Graph, Published, QuarantinedNode, published, quarantined};
use crate::context::Context;
use crate::node::Node;
use crate::panics;
use crate::stats::NodeStats;
use packet::{Batch, Pool};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node of one of the running graphs, of one worker each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the graph.
    pub graph: usize,
    /// Index into its [`Blueprint::nodes`].
    pub node: u16,
}

/// A node of a graph that replaces another.
pub enum NewNode {
    /// The node of a running graph, with all its state.
    Kept(Origin),
    /// A node that replaces one of a running graph, and [takes over](Node::take_over) its state if the flag is set.
    Successor(Origin, Box<dyn Node>, bool),
    /// A node without predecessor.
    Added(Box<dyn Node>),
}

/// A graph that is to replace a running one between two batches. It is built beside that on another thread, so that the
/// worker only moves nodes: from the graph that it replaces, or from those of other workers.
///
/// ```
/// use graph::{Blueprint, Graph, Hop, HopPlan, NewNode, NodePlan, Operator, Origin, Replacement, Target, frame};
/// use packet::HeapPool;
/// use std::sync::Arc;
///
/// // a chain of these nodes, in front of port 0
/// let chain = |names: &[&str]| Blueprint {
///     nodes: names.iter().map(|&n| NodePlan { name: n.into(), edges: vec![Target::Unconnected] }).collect(),
///     hops: (0..names.len() as u16)
///         .map(|node| {
///             let next = node + 1;
///             let next = if usize::from(next) < names.len() { Target::Hop(Hop(next)) } else { Target::Port(0) };
///             HopPlan { node, input: 0, next, fail_open: false }
///         })
///         .collect(),
/// };
/// let pool = Arc::new(HeapPool::new(64));
/// let graph = Graph::new(&chain(&["a"]), vec![Box::new(frame().compose())], pool.clone());
/// let stats = graph.stats().next().unwrap().1.clone();
///
/// let nodes = vec![NewNode::Added(Box::new(frame().compose())), NewNode::Kept(Origin { graph: 0, node: 0 })];
/// let (old, new) = (chain(&["a"]), chain(&["b", "a"]));
/// let replacement = Replacement::new(&[(&old, &[stats.clone()])], &new, nodes, pool);
/// let (graph, _) = replacement.install(&mut [graph], 0);
/// assert!(graph.stats().map(|(name, _)| name).eq(["b", "a"]));
/// assert!(Arc::ptr_eq(&stats, graph.stats().nth(1).unwrap().1));
/// ```
pub struct Replacement {
    graph: Graph,
    nodes: Vec<Source>,
    /// The running graph and its hop that each hop continues.
    hops: Vec<Option<(usize, u16)>>,
}

/// The origin of a node.
enum Source {
    Kept(Origin),
    /// With what the node publishes, if it continues the statistics of its predecessor.
    Successor {
        of: Origin,
        takes_over: bool,
        publishes: Option<Published>,
    },
    Added,
}

/// Stands for a node that is still in the running graph.
struct Elsewhere;

impl Node for Elsewhere {
    fn process(&mut self, _: &mut Context<'_>, _: u8, _: &mut Batch) {}
}

impl Replacement {
    /// Creates a graph of `nodes`, one for each of [`Blueprint::nodes`] in order, that is to replace one of the `running`
    /// graphs, which are given by their blueprints and the statistics of their nodes. A node whose predecessor has the
    /// same drop reasons continues its statistics. No nodes are fused.
    ///
    /// # Panics
    /// As [`Graph::new`].
    pub fn new(
        running: &[(&Blueprint, &[Arc<NodeStats>])],
        blueprint: &Blueprint,
        nodes: Vec<NewNode>,
        pool: Arc<dyn Pool + Send + Sync>,
    ) -> Self {
        let predecessors: Vec<Option<Origin>> = nodes.iter().map(NewNode::predecessor).collect();
        // the nth path of a node by an input continues that of its predecessor
        let numbered = |blueprint: &Blueprint| {
            let mut next: BTreeMap<(u16, u8), u16> = BTreeMap::new();
            let mut number = |node, input| {
                let next = next.entry((node, input)).or_default();
                (node, input, std::mem::replace(next, *next + 1))
            };
            blueprint.hops.iter().map(|hop| number(hop.node, hop.input)).collect::<Vec<_>>()
        };
        let before: Vec<_> = running.iter().map(|(blueprint, _)| numbered(blueprint)).collect();
        let hops = numbered(blueprint).into_iter().map(|(node, input, nth)| {
            let Origin { graph, node } = predecessors[usize::from(node)]?;
            let hop = before[graph].iter().position(|other| *other == (node, input, nth))?;
            Some((graph, hop as u16))
        });
        let hops = hops.collect();
        let mut sources = vec![];
        let mut built: Vec<Box<dyn Node>> = vec![];
        for node in nodes {
            let (source, node): (_, Box<dyn Node>) = match node {
                NewNode::Kept(old) => (Source::Kept(old), Box::new(Elsewhere)),
                NewNode::Successor(old, built, takes_over) => {
                    (Source::Successor { of: old, takes_over, publishes: None }, built)
                }
                NewNode::Added(node) => (Source::Added, node),
            };
            sources.push(source);
            built.push(node);
        }
        let stats = |of: &Origin| &running[of.graph].1[usize::from(of.node)];
        let mut graph = Graph::new(blueprint, built, pool);
        for (slot, source) in graph.nodes.iter_mut().zip(&mut sources) {
            match source {
                Source::Kept(of) => slot.stats = stats(of).clone(),
                Source::Successor { of, publishes, .. } => {
                    let before = stats(of);
                    if before.reasons == slot.stats.reasons {
                        slot.stats = before.clone();
                        *publishes = Some(published(&**slot.node.get_mut()));
                    }
                }
                Source::Added => {}
            }
        }
        Replacement { graph, nodes: sources, hops }
    }

    /// Returns the statistics of the nodes, in the order of the blueprint.
    pub fn stats(&self) -> impl Iterator<Item = &Arc<NodeStats>> {
        self.graph.nodes.iter().map(|slot| &slot.stats)
    }

    /// Moves nodes out of the running graphs, in none of which packets are processed, and returns the graph that replaces
    /// the one of index `own`. That graph is to be [retired](Graph::retire) on another thread. Returns as well the name
    /// and message of each node that panicked when it took over the state of its predecessor.
    pub fn install(self, running: &mut [Graph], own: usize) -> (Graph, Vec<(String, String)>) {
        let Replacement { mut graph, mut nodes, hops } = self;
        let mut panics = vec![];
        for (hop, continues) in graph.hops.iter_mut().zip(hops) {
            if let Some((of, before)) = continues {
                hop.path = running[of].hops[usize::from(before)].path;
            }
        }
        for (node, (slot, source)) in graph.nodes.iter_mut().zip(&mut nodes).enumerate() {
            let paths = graph.hops.iter().filter(|hop| usize::from(hop.plan.node) == node);
            for (input, path) in slot.first_paths.iter_mut().enumerate() {
                *path = paths.clone().find(|hop| usize::from(hop.plan.input) == input).map(|hop| hop.path);
            }
            match source {
                Source::Kept(of) => {
                    let before = &mut running[of.graph].nodes[usize::from(of.node)];
                    core::mem::swap(&mut slot.node, &mut before.node);
                    (slot.interval, slot.last_timer) = (before.interval, before.last_timer);
                    slot.lost = core::mem::take(&mut before.lost);
                    // it goes by the hops of its graph
                    let quarantines = (&**slot.node.get_mut() as &dyn Any).is::<QuarantinedNode>();
                    if quarantines {
                        *slot.node.get_mut() = quarantined(&graph.hops);
                    }
                }
                Source::Successor { of, takes_over, publishes } => {
                    let before = &mut running[of.graph].nodes[usize::from(of.node)];
                    let old: &mut dyn Any = &mut **before.node.get_mut();
                    if *takes_over && let Err(message) = panics::catch(|| slot.node.get_mut().take_over(old)) {
                        panics.push((slot.name.clone(), message));
                    }
                    slot.last_timer = before.last_timer;
                    if let Some(published) = publishes.take() {
                        slot.stats.publish(published);
                        slot.lost = core::mem::take(&mut before.lost);
                    }
                }
                Source::Added => {}
            }
        }
        core::mem::swap(&mut graph.state, &mut running[own].state);
        graph.visits = running[own].visits;
        for slot in &graph.nodes {
            slot.stats.set_fused(vec![]);
        }
        (graph, panics)
    }
}

impl NewNode {
    /// Returns the node of a running graph that it continues.
    pub fn predecessor(&self) -> Option<Origin> {
        match self {
            NewNode::Kept(of) | NewNode::Successor(of, ..) => Some(*of),
            NewNode::Added(_) => None,
        }
    }
}

impl Graph {
    /// Takes the graph and leaves one without nodes.
    pub fn take(&mut self) -> Graph {
        let empty = Graph::new(&Blueprint::default(), vec![], self.state.pool.clone());
        core::mem::replace(self, empty)
    }

    /// Drops the nodes of a graph that was replaced, and counts the packets that they held. Calls `within` with the index
    /// of each node and the function that drops it. Returns the names of nodes that panicked, with the messages.
    pub fn retire(self, mut within: impl FnMut(usize, &mut dyn FnMut())) -> Vec<(String, String)> {
        let mut panics = vec![];
        for (node, slot) in self.nodes.iter().enumerate() {
            let mut drop_node = || drop(slot.node.replace(Box::new(Elsewhere)));
            let dropped = panics::catch(|| within(node, &mut drop_node));
            panics.extend(dropped.err().map(|message| (slot.name.clone(), message)));
            slot.stats.count_lost_held(slot.lost.take());
        }
        panics
    }
}
