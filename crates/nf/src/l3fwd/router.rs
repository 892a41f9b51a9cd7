//! State of the router.

use super::config::Config;
use super::counters::{CounterId, DropReason};
use super::fib::Fib;
use super::fib::adjacency::AdjacencyKind;
use super::fib::route_tables::Readers;
use super::neighbours::queues::NeighbourQueues;
use super::punt::limits::{Punt, PuntBuckets};
use graph::{BoundedTable, Context, Counters, TokenBucket};
use packet::{Batch, Packet};
use std::sync::Arc;
use wire::flow;

/// A copy of the router.
pub(super) struct Router {
    pub(super) config: Config,
    pub(super) fib: Arc<Fib>,
    pub(super) routes: Readers,
    /// True for the copy that maintains the state shared by all copies.
    pub(super) maintains_shared: bool,
    pub(super) neighbour_queues: NeighbourQueues,
    pub(super) icmp: TokenBucket,
    pub(super) punt: Punt,
    pub(super) counters: Counters<CounterId>,
    /// The neighbours, which all copies share.
    pub(super) neighbours: BoundedTable,
    /// Packets of the current batch that leave the fast path.
    pub(super) exceptions: Batch,
    /// True if the last batch had plain IPv6 packets only: the next one probably has, too.
    pub(super) expect_ipv6: bool,
}

impl Router {
    pub(super) fn new(config: Config, fib: Arc<Fib>, buckets: Arc<PuntBuckets>, copy: usize) -> Self {
        let routes = fib.readers();
        let neighbours = BoundedTable::new("neighbours", fib.control().neighbours_max() as u64);
        Router {
            neighbour_queues: NeighbourQueues::new(config.neighbour_queue),
            icmp: TokenBucket::new(config.icmp_rate.into(), config.icmp_rate.into()),
            punt: Punt::new(buckets),
            neighbours,
            config,
            fib,
            routes,
            maintains_shared: copy == 0,
            counters: Counters::default(),
            exceptions: Batch::new(),
            expect_ipv6: false,
        }
    }

    /// Returns the adjacency of a destination in a VRF; of a group, the member for the packet's flow.
    pub(super) fn route4(&mut self, vrf: usize, dst: u32, frame: &[u8]) -> u32 {
        let mut value = [0];
        self.routes.look_up4(vrf, &[dst], &mut value);
        resolve_group(&self.fib, value[0], frame)
    }

    /// As [`route4`](Self::route4).
    pub(super) fn route6(&mut self, vrf: usize, dst: u128, frame: &[u8]) -> u32 {
        let mut value = [0];
        self.routes.look_up6(vrf, &[dst], &mut value);
        resolve_group(&self.fib, value[0], frame)
    }

    pub(super) fn drop(&mut self, cx: &mut Context<'_>, reason: DropReason, packet: Packet) {
        cx.drop(reason, packet);
    }
}

/// Returns the adjacency of the packet's flow if `value` is a group, otherwise `value`.
#[cold]
fn resolve_group(fib: &Fib, value: u32, frame: &[u8]) -> u32 {
    let adjacency = fib.adjacency(value).load();
    match adjacency.kind() {
        AdjacencyKind::Group => fib.member(adjacency.group(), flow::symmetric_hash(frame)),
        _ => value,
    }
}
