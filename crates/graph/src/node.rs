//! Nodes: NFs at run time.

use crate::context::Context;
use crate::stats::{Counter, StatsTable};
use packet::Batch;
use std::sync::Arc;
use std::time::Duration;

/// One instance of an NF on one worker.
///
/// Most nodes are [chains of operators](crate::Operator) and implement this trait by
/// [`compose`](crate::Operator::compose). Implement it by hand for an NF that holds packets, uses timers or sends
/// packets to several outputs; [`Context`] and [`HoldQueue`](crate::HoldQueue) show examples.
pub trait Node: Send {
    /// Returns the names of the drop reasons. [`Context::drop`] takes an index into them, or a variant of an enum
    /// declared by [`named_enum!`](crate::named_enum).
    fn drops(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the names of the outputs that the node uses, a prefix of [`Nf::OUTPUTS`](crate::Nf::OUTPUTS).
    fn outputs(&self) -> &[&'static str] {
        &["out"]
    }

    /// Returns counters of the node and their names, which are reported beside packets and drops.
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![]
    }

    /// Returns the names of those counters that are present values (gauges), such as the number of sessions. When the
    /// process of an NF ends, they are not added to those of the next one.
    fn gauges(&self) -> Vec<&'static str> {
        vec![]
    }

    /// Processes a batch that arrived by `input`. Packets that stay in the batch leave by the first output, or by the
    /// one set with [`Context::set_output`]. Packets that are neither left in the batch nor emitted, held or dropped
    /// through `cx` are counted as `vanished`.
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch);

    /// Returns the interval at which [`on_timer`](Node::on_timer) is called, with a resolution of a millisecond; `None`
    /// for never.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Does the work that is due at [`Context::now`]. Called between batches.
    fn on_timer(&mut self, _: &mut Context<'_>) {}

    /// Returns the table that the node publishes, if it has one.
    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        None
    }

    /// Updates counters and table a last time before the worker ends.
    fn finish(&mut self) {}
}

/// One of two types of node, chosen when the NF is built from its settings.
///
/// ```
/// use graph::{Either, Node, Operator, frame};
/// use wire::{Ethernet, Ipv4};
///
/// fn build(only_ipv4: bool) -> impl Node {
///     match only_ipv4 {
///         true => Either::A(frame().parse::<Ethernet>().parse::<Ipv4>().compose()),
///         false => Either::B(frame().compose()),
///     }
/// }
/// assert_eq!(build(true).drops().len(), 4);
/// assert_eq!(build(false).drops().len(), 0);
/// ```
pub enum Either<A, B> {
    /// A node of the first type.
    A(A),
    /// A node of the second type.
    B(B),
}

macro_rules! delegate {
    ($self:ident, $node:ident => $call:expr) => {
        match $self {
            Either::A($node) => $call,
            Either::B($node) => $call,
        }
    };
}

impl<A: Node, B: Node> Node for Either<A, B> {
    fn drops(&self) -> &[&'static str] {
        delegate!(self, node => node.drops())
    }

    fn outputs(&self) -> &[&'static str] {
        delegate!(self, node => node.outputs())
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        delegate!(self, node => node.counters())
    }

    fn gauges(&self) -> Vec<&'static str> {
        delegate!(self, node => node.gauges())
    }

    #[inline]
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        delegate!(self, node => node.process(cx, input, batch));
    }

    fn interval(&self) -> Option<Duration> {
        delegate!(self, node => node.interval())
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        delegate!(self, node => node.on_timer(cx));
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        delegate!(self, node => node.stats_table())
    }

    fn finish(&mut self) {
        delegate!(self, node => node.finish());
    }
}
