//! A node in a graph, with what the graph keeps for it.

use crate::context::LostCount;
use crate::hop::{PathId, Target};
use crate::node::Node;
use crate::stats::NodeStats;
use core::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// A node, its statistics and its edges.
pub(crate) struct NodeSlot {
    pub(crate) name: String,
    /// A cell, as a segment borrows several nodes at once.
    pub(crate) node: RefCell<Box<dyn Node>>,
    pub(crate) stats: Arc<NodeStats>,
    pub(crate) lost: LostCount,
    pub(crate) edges: Box<[Target]>,
    /// First path by each input.
    pub(crate) first_paths: Box<[Option<PathId>]>,
    pub(crate) interval: Option<Duration>,
    pub(crate) last_timer: Duration,
}
