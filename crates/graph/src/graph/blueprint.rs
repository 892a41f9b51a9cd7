//! The plan of a graph.

use crate::hop::{Hop, Target};
use std::collections::BTreeSet;

/// The plan of a graph: its nodes and the edges between them.
///
/// `bondstone-config` derives it from a chain file; tests write it by hand:
/// ```
/// use graph::{Blueprint, Hop, HopPlan, NodePlan, Target};
///
/// // port 0 → "counter" → "guard" → port 1
/// let node = |name: &str| NodePlan { name: name.into(), edges: vec![Target::Unconnected] };
/// let hop = |node, next| HopPlan { node, input: 0, next, fail_open: false };
/// let blueprint = Blueprint {
///     nodes: vec![node("counter"), node("guard")],
///     hops: vec![hop(0, Target::Hop(Hop(1))), hop(1, Target::Port(1))],
/// };
/// assert_eq!(blueprint.find_loop(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Blueprint {
    /// The nodes, each an NF of the chain file.
    pub nodes: Vec<NodePlan>,
    /// The hops. A node that is on several paths has several.
    pub hops: Vec<HopPlan>,
}

/// The plan of a node.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Name of the NF in the chain file.
    pub name: String,
    /// Target of each output. Index 0 is unused, because the first output leads to [`HopPlan::next`].
    pub edges: Vec<Target>,
}

/// The plan of a hop.
#[derive(Clone, Copy, Debug)]
pub struct HopPlan {
    /// Index of the node in [`Blueprint::nodes`].
    pub node: u16,
    /// Number of the input.
    pub input: u8,
    /// Target of the first output.
    pub next: Target,
    /// True if packets pass unprocessed while the node is quarantined after a panic; otherwise they are dropped as
    /// `nf_panic`.
    pub fail_open: bool,
}

impl Blueprint {
    /// All targets of a hop: that of the first output, then the edges of its node.
    fn targets(&self, hop: u16) -> impl Iterator<Item = Target> {
        let plan = self.hops[hop as usize];
        std::iter::once(plan.next).chain(self.nodes[plan.node as usize].edges.iter().skip(1).copied())
    }

    /// Returns the first hop of a node by each of its inputs.
    pub(super) fn first_hops(&self, node: u16) -> impl Iterator<Item = Option<usize>> {
        let inputs = self.hops.iter().filter(move |hop| hop.node == node).map(|hop| hop.input);
        let first = move |input| self.hops.iter().position(|hop| hop.node == node && hop.input == input);
        (0..=inputs.max().unwrap_or(0)).map(first)
    }

    /// Returns the nodes of a cycle through which packets could circulate for ever, if there is one.
    pub fn find_loop(&self) -> Option<Vec<u16>> {
        #[derive(Clone, Copy)]
        enum Mark {
            Unvisited,
            OnPath,
            Done,
        }
        // depth-first search
        fn visit(b: &Blueprint, hop: u16, marks: &mut [Mark], path: &mut Vec<u16>) -> bool {
            match marks[hop as usize] {
                Mark::OnPath => {
                    let from = path.iter().position(|&h| h == hop).unwrap_or(0);
                    path.drain(..from);
                    return true;
                }
                Mark::Done => return false,
                Mark::Unvisited => marks[hop as usize] = Mark::OnPath,
            }
            path.push(hop);
            for target in b.targets(hop) {
                if let Target::Hop(Hop(next)) = target
                    && visit(b, next, marks, path)
                {
                    return true;
                }
            }
            path.pop();
            marks[hop as usize] = Mark::Done;
            false
        }
        let mut marks = vec![Mark::Unvisited; self.hops.len()];
        let mut path = vec![];
        (0..self.hops.len() as u16)
            .any(|hop| visit(self, hop, &mut marks, &mut path))
            .then(|| path.iter().map(|&h| self.hops[h as usize].node).collect())
    }

    /// Returns the longest sequences of two or more hops in which the first output of each leads to the next, of nodes
    /// for which `is_selected` returns true and that are in the sequence once.
    ///
    /// ```
    /// # use graph::{Blueprint, Hop, HopPlan, NodePlan, Target};
    /// let node = |name: &str| NodePlan { name: name.into(), edges: vec![Target::Unconnected] };
    /// let hop = |node, next| HopPlan { node, input: 0, next, fail_open: false };
    /// let next = |hop| Target::Hop(Hop(hop));
    /// let blueprint = Blueprint {
    ///     nodes: vec![node("swap"), node("guard"), node("router")],
    ///     hops: vec![hop(0, next(1)), hop(1, next(2)), hop(2, Target::Port(0))],
    /// };
    /// assert_eq!(blueprint.straight_runs(|node| node != 2), [[Hop(0), Hop(1)]]);
    /// ```
    pub fn straight_runs(&self, is_selected: impl Fn(u16) -> bool) -> Vec<Vec<Hop>> {
        let selected = |Hop(hop): Hop| is_selected(self.hops[hop as usize].node);
        let next = |Hop(hop): Hop| match self.hops[hop as usize].next {
            Target::Hop(next) => Some(next).filter(|next| selected(*next)),
            _ => None,
        };
        let all = || (0..self.hops.len() as u16).map(Hop).filter(|hop| selected(*hop));
        let followers: BTreeSet<Hop> = all().filter_map(next).collect();
        let (mut runs, mut seen) = (vec![], BTreeSet::new());
        for start in all().filter(|hop| !followers.contains(hop)) {
            let (mut run, mut nodes, mut at) = (vec![], BTreeSet::new(), Some(start));
            while let Some(hop) = at.filter(|hop| seen.insert(*hop)) {
                if !nodes.insert(self.hops[hop.0 as usize].node) {
                    runs.push(core::mem::take(&mut run));
                    nodes = BTreeSet::from([self.hops[hop.0 as usize].node]);
                }
                run.push(hop);
                at = next(hop);
            }
            runs.push(run);
        }
        runs.retain(|run| run.len() > 1);
        runs
    }

    /// Returns the number of paths from `entry` to the ends of a graph without cycles: an upper bound of the copies
    /// that one packet can become.
    pub fn count_paths(&self, entry: Target) -> u64 {
        fn count(b: &Blueprint, target: Target, counted: &mut [u64]) -> u64 {
            let Target::Hop(Hop(hop)) = target else { return 1 };
            if counted[hop as usize] == 0 {
                counted[hop as usize] = b.targets(hop).map(|t| count(b, t, counted)).fold(0, u64::saturating_add);
            }
            counted[hop as usize]
        }
        count(self, entry, &mut vec![0; self.hops.len()])
    }
}
