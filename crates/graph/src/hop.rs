//! Hops, paths and targets: how nodes are addressed at run time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A visit to a node by one of its inputs: an index into [`Blueprint::hops`](crate::Blueprint::hops).
///
/// A node that is listed several times on the paths of a chain has one hop for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop(pub u16);

/// One of the paths through a node.
///
/// A node that holds packets keeps the path of each ([`Context::release`](crate::Context::release) returns it), because
/// the first output continues along the path that the packet arrived on. It stays valid while the graph is
/// [replaced](crate::Replacement), as long as the path exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(u32);

impl PathId {
    /// Returns paths that no graph of the process has: a node may move to another graph with packets that it holds.
    pub(crate) fn allocate(n: usize) -> impl Fn(usize) -> PathId {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = NEXT.fetch_add(n as u32, Ordering::Relaxed);
        move |path| PathId(first.wrapping_add(path as u32))
    }
}

/// The destination of packets that leave a node or enter a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A hop of the same graph.
    Hop(Hop),
    /// The port of this number.
    Port(u16),
    /// No destination: the packets are dropped as `no_edge`.
    Unconnected,
}

/// The hop that a graph is running, readable from other threads.
///
/// The watchdog uses it to name the node that has not finished its batch.
#[derive(Clone, Debug, Default)]
pub struct CurrentHop(Arc<AtomicU64>);

impl CurrentHop {
    /// Value while no hop is running.
    const NONE: u64 = 0;
    /// Low bits that hold the hop number plus 1; the others hold a visit counter.
    const HOP_BITS: u32 = 17;

    #[inline(always)]
    pub(crate) fn set(&self, hop: Hop, visits: &mut u64) {
        *visits = visits.wrapping_add(1 << Self::HOP_BITS);
        self.0.store(*visits | (u64::from(hop.0) + 1), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }

    /// Returns the hop that is running, if any.
    #[inline(always)]
    pub fn hop(&self) -> Option<Hop> {
        let hop = self.0.load(Ordering::Relaxed) & ((1 << Self::HOP_BITS) - 1);
        hop.checked_sub(1).map(|hop| Hop(hop as u16))
    }

    /// Returns a value that differs for every visit to a hop; 0 while no hop is running.
    pub fn sequence(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
