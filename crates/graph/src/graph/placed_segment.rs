//! A segment in a graph.

use crate::hop::Hop;
use crate::segment::Segment;

/// A segment, and the hops that it runs.
pub(super) struct PlacedSegment {
    pub(super) segment: Segment,
    pub(super) hops: Box<[Hop]>,
    /// Node of each hop.
    pub(super) nodes: Box<[u16]>,
    /// Packets of the running batch that left by each node.
    pub(super) exits: Box<[usize]>,
}
