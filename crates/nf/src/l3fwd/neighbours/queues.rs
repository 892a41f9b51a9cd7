//! Queues of packets that wait for the MAC address of a neighbour.

use graph::HoldQueue;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Queues of one copy of the router, by adjacency.
pub(crate) struct NeighbourQueues {
    pub(super) queues: BTreeMap<u32, NeighbourQueue>,
    /// Queues of another router for neighbours that this one cannot add, or from interfaces that it does not have.
    pub(super) failed: Vec<NeighbourQueue>,
    /// Maximum number of packets in a queue.
    pub(super) capacity: usize,
    /// Time at which neighbours were last aged.
    pub(super) last_ageing: Duration,
    /// True while parts of the neighbours are still to be aged.
    pub(super) is_ageing: bool,
}

/// Packets for one neighbour.
pub(super) struct NeighbourQueue {
    pub(super) packets: HoldQueue,
    /// Interface that each packet was received from; `None` for packets of the router itself.
    pub(super) received_from: VecDeque<Option<usize>>,
    pub(super) created: Duration,
}

impl NeighbourQueues {
    pub(crate) fn new(capacity: usize) -> Self {
        NeighbourQueues {
            queues: BTreeMap::new(),
            failed: vec![],
            capacity,
            last_ageing: Duration::ZERO,
            is_ageing: false,
        }
    }
}
