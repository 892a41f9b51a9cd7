//! Segments of a graph: where they are, and how a batch passes one.

use super::placed_segment::PlacedSegment;
use super::{Graph, HopPlan, HopState};
use crate::context::Context;
use crate::hop::{Hop, Target};
use crate::segment::{Segment, Slots};
use packet::{Batch, clock};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Graph {
    /// Fuses consecutive hops by compiled segments, where their nodes have the types of one; longer segments are
    /// preferred. While a node is quarantined after a panic, the nodes of its segments run one by one.
    ///
    /// The cycles of a timed batch that passes a segment are counted by its first node, and none by the others.
    pub fn fuse(&mut self, segments: &[Segment]) {
        let mut segments: Vec<&Segment> = segments.iter().collect();
        segments.sort_by_key(|segment| Reverse(segment.len()));
        let mut placed: Vec<PlacedSegment> = vec![];
        for segment in segments {
            for first in 0..self.hops.len() as u16 {
                let Some(hops) = self.straight(Hop(first), segment.len()) else { continue };
                let is_free = |hop: &Hop| !placed.iter().any(|other| other.hops.contains(hop));
                let nodes: Box<[u16]> = hops.iter().map(|hop| self.plan(*hop).node).collect();
                let slots = Slots { nodes: &self.nodes, members: &nodes, panicked: &self.panicked };
                let is_numbered = self.hops.len() + placed.len() < usize::from(u16::MAX);
                let is_per_packet = nodes.iter().all(|node| self.is_per_packet(*node));
                if is_numbered && hops.iter().all(is_free) && is_per_packet && segment.matches(slots) {
                    let exits = vec![0; nodes.len()].into();
                    placed.push(PlacedSegment { segment: segment.clone(), hops: hops.into(), nodes, exits });
                }
            }
        }
        placed.sort_by_key(|segment| segment.hops[0]);
        let mut fused: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
        for (n, PlacedSegment { hops, nodes, .. }) in placed.iter().enumerate() {
            self.hops[usize::from(hops[0].0)].segment = Some(n as u16);
            fused.entry(nodes[0]).or_default().extend(&nodes[1..]);
        }
        for (first, others) in fused {
            let names = others.iter().map(|node| self.nodes[usize::from(*node)].name.clone()).collect();
            self.nodes[usize::from(first)].stats.set_fused(names);
        }
        self.segments = placed.into();
    }

    /// Returns the segments that run fused: for each the number by which [`current_hop`](Graph::current_hop) reports it,
    /// and its nodes, as indices into [`Blueprint::nodes`](super::Blueprint::nodes).
    pub fn segments(&self) -> impl Iterator<Item = (Hop, &[u16])> {
        self.segments.iter().enumerate().map(|(n, placed)| (self.segment_hop(n), &*placed.nodes))
    }

    /// Returns true if a node [processes packet by packet](crate::Node::is_per_packet).
    ///
    /// # Panics
    /// If there is no node of this index.
    pub fn is_per_packet(&self, node: u16) -> bool {
        self.nodes[usize::from(node)].node.borrow().is_per_packet()
    }

    fn plan(&self, Hop(hop): Hop) -> HopPlan {
        self.hops[usize::from(hop)].plan
    }

    /// Returns the number of a segment among the hops.
    fn segment_hop(&self, segment: usize) -> Hop {
        Hop((self.hops.len() + segment) as u16)
    }

    /// Returns `n` hops from `first` on, if there are as many and each is of another node.
    fn straight(&self, first: Hop, n: usize) -> Option<Vec<Hop>> {
        let next = |hop: &Hop| match self.plan(*hop).next {
            Target::Hop(next) => Some(next),
            _ => None,
        };
        let hops: Vec<Hop> = std::iter::successors(Some(first), next).take(n).collect();
        let nodes: BTreeSet<u16> = hops.iter().map(|hop| self.plan(*hop).node).collect();
        (nodes.len() == n).then_some(hops)
    }

    /// Passes a batch through a segment and returns where it continues. Returns `None` and does nothing if one of the
    /// nodes was replaced by one of another type.
    #[inline]
    pub(super) fn run_segment<const TIMED: bool>(
        &mut self,
        segment: u16,
        batch: &mut Batch,
        from: &mut u64,
    ) -> Option<Target> {
        let own = self.segment_hop(usize::from(segment));
        let Graph { hops: hop_states, nodes: slots, segments, state, panicked, .. } = self;
        let PlacedSegment { segment, hops, nodes, exits } = &mut segments[usize::from(segment)];
        let n = batch.len();
        self.entered = n;
        state.current_hop.set(own, &mut self.visits);
        let now = state.now;
        let members = Slots { nodes: slots, members: nodes, panicked };
        let has_run = segment.run(members, batch, now, &mut |member, exit, packet| {
            let member = usize::from(member);
            exits[member] += 1;
            let slot = &slots[usize::from(nodes[member])];
            let HopState { outbox, path, .. } = &mut hop_states[usize::from(hops[member].0)];
            let (stats, lost, first_paths) = (&*slot.stats, &slot.lost, &*slot.first_paths);
            Context { state: &mut *state, outbox, stats, lost, first_paths, path: *path }.exit(exit, packet);
        });
        if !has_run {
            return None;
        }
        if TIMED {
            let now = clock::cycles();
            let stats = &slots[usize::from(nodes[0])].stats;
            stats.timed_cycles.add(now - *from);
            stats.timed_packets.add(n as u64);
            stats.timed_batches.add(1);
            *from = now;
        }
        let mut reached = n;
        for (node, exits) in nodes.iter().zip(exits.iter_mut()) {
            slots[usize::from(*node)].stats.packets.add(reached as u64);
            reached -= core::mem::take(exits);
        }
        if state.changed {
            state.to_free.clear();
            for &hop in hops.iter() {
                let pending = hop_states[usize::from(hop.0)].outbox.iter().enumerate();
                let pending = pending.filter(|(_, packets)| !packets.is_empty());
                self.backlog.extend(pending.map(|(output, _)| (hop, output as u8)));
            }
            state.reset();
        }
        let last = hops[hops.len() - 1];
        let next = hop_states[usize::from(last.0)].plan.next;
        if next == Target::Unconnected {
            state.current_hop.set(last, &mut self.visits);
        }
        Some(next)
    }

    /// Returns the hop of the node that panicked in a segment, and counts the packets that reached its nodes up to that
    /// one.
    pub(super) fn panicked_hop(&self, hop: Hop) -> Hop {
        let Some(segment) = usize::from(hop.0).checked_sub(self.hops.len()) else { return hop };
        let PlacedSegment { hops, nodes, .. } = &self.segments[segment];
        let member = usize::from(self.panicked.take());
        // none has left: they leave after the last packet has passed
        nodes[..=member].iter().for_each(|&n| self.nodes[usize::from(n)].stats.packets.add(self.entered as u64));
        hops[member]
    }
}
