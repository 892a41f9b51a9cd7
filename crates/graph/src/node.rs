//! Nodes: NFs at run time.

use crate::context::Context;
use crate::exit::Exit;
use crate::headers::{Raw, View};
use crate::saved_state::{InvalidState, StateReader, StateWriter};
use crate::stats::{BoundedTable, Counter, StatsTable};
use packet::Batch;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// One instance of an NF on one worker.
///
/// Most nodes are [chains of operators](crate::Operator) and implement this trait by
/// [`compose`](crate::Operator::compose). Implement it by hand for an NF that holds packets, uses timers or sends
/// packets to several outputs; [`Context`] and [`HoldQueue`](crate::HoldQueue) show examples.
pub trait Node: Any + Send {
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

    /// Returns the tables that packets fill, so that users see how full they are. Those of all copies are added up.
    fn bounded_tables(&self) -> Vec<BoundedTable> {
        vec![]
    }

    /// Returns the maximum number of packets that the node holds at a time, 0 if it is small. At start it is compared with
    /// the packet pool.
    fn held_max(&self) -> usize {
        0
    }

    /// Processes a batch that arrived by `input`. Packets that stay in the batch leave by the first output, or by the
    /// one set with [`Context::set_output`]. Packets that are neither left in the batch nor emitted, held or dropped
    /// through `cx` are counted as `vanished`.
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch);

    /// Returns the interval at which [`on_timer`](Node::on_timer) is called; `None` for never. Intervals from a
    /// millisecond on have a resolution of a millisecond. Shorter ones are exact to some tens of microseconds while the
    /// worker does not sleep, and make [`Context::now`] as exact for all nodes of the graph.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Does the work that is due at [`Context::now`]. Called between batches.
    fn on_timer(&mut self, _: &mut Context<'_>) {}

    /// Returns the table that the node publishes, if it has one.
    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        None
    }

    /// Takes over the state of the node that this one replaces, as the settings of its NF have changed: connections,
    /// learned addresses, held packets. Called between batches on the worker, so it takes a constant time and moves
    /// whole tables; what is left in `old` is dropped elsewhere. Nodes keep nothing by default.
    ///
    /// ```
    /// use graph::{Context, Node};
    /// use packet::Batch;
    /// use std::any::Any;
    /// use std::collections::HashSet;
    ///
    /// /// Drops all but the first packet of each length.
    /// struct FirstOfLength(HashSet<usize>);
    /// impl Node for FirstOfLength {
    ///     fn drops(&self) -> &[&'static str] {
    ///         &["seen"]
    ///     }
    ///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    ///         batch.extract_if(|p| (!self.0.insert(p.len())).then_some(()), |(), packet| cx.drop(0, packet));
    ///     }
    ///     fn take_over(&mut self, old: &mut dyn Any) {
    ///         if let Some(old) = old.downcast_mut::<FirstOfLength>() {
    ///             std::mem::swap(&mut self.0, &mut old.0);
    ///         }
    ///     }
    /// }
    /// ```
    fn take_over(&mut self, _old: &mut dyn Any) {}

    /// Writes the state that [`take_over`](Node::take_over) hands over, except packets, for a node of the process that
    /// replaces this one. Called after the last packet. The time of the graph goes on there: times are written as they
    /// are. Set [`TakeOver::format`](crate::TakeOver::format) as well.
    ///
    /// ```
    /// use graph::{Context, InvalidState, Node, StateReader, StateWriter};
    /// use packet::Batch;
    /// use std::collections::HashSet;
    ///
    /// /// Drops all but the first packet of each length.
    /// struct FirstOfLength(HashSet<u16>);
    /// impl Node for FirstOfLength {
    ///     fn drops(&self) -> &[&'static str] {
    ///         &["seen"]
    ///     }
    ///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    ///         batch.extract_if(|p| (!self.0.insert(p.len() as u16)).then_some(()), |(), packet| cx.drop(0, packet));
    ///     }
    ///     fn save(&mut self, state: &mut StateWriter) {
    ///         self.0.iter().for_each(|len| state.push(len));
    ///     }
    ///     fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
    ///         while let Some(len) = state.read()? {
    ///             self.0.insert(len);
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// ```
    fn save(&mut self, _state: &mut StateWriter) {}

    /// Restores what a node of the same NF and copy has [saved](Node::save) in the process before. Settings that the
    /// state depends on are the same, others may differ. Called before the first packet. A node may leave out what
    /// does not fit its settings, such as entries beyond the capacity of a table.
    ///
    /// # Errors
    /// The state cannot be read; the node then has the part that could.
    fn restore(&mut self, _state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        Ok(())
    }

    /// Updates counters and table a last time before the worker ends.
    fn finish(&mut self) {}

    /// Returns true if [`process_packet`](Node::process_packet) does with each packet what [`process`](Node::process)
    /// does with those of a batch, so that the node can be part of a [`Segment`](crate::Segment). The same for all
    /// nodes of a type.
    fn is_per_packet(&self) -> bool {
        false
    }

    /// Processes one packet, whatever the input; returns how it leaves if it does not stay in the batch. Called instead
    /// of [`process`](Node::process) if [`is_per_packet`](Node::is_per_packet) returns true.
    ///
    /// ```
    /// use graph::{Context, Exit, Node, Raw, View};
    /// use packet::Batch;
    ///
    /// /// Drops runts.
    /// struct DropRunts;
    /// impl Node for DropRunts {
    ///     fn drops(&self) -> &[&'static str] {
    ///         &["runt"]
    ///     }
    ///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    ///         batch.extract_if(|packet| (packet.len() < 60).then_some(()), |(), packet| cx.drop(0, packet));
    ///     }
    ///     fn is_per_packet(&self) -> bool {
    ///         true
    ///     }
    ///     fn process_packet(&mut self, frame: View<'_, Raw>) -> Option<Exit> {
    ///         (frame.bytes().len() < 60).then_some(Exit::Drop(0))
    ///     }
    /// }
    /// ```
    fn process_packet(&mut self, _frame: View<'_, Raw>) -> Option<Exit>
    where
        Self: Sized,
    {
        unreachable!("the node does not process packet by packet")
    }

    /// Returns the sides of [`Either`], outermost first, in which the node is that processes packets.
    fn sides(&self) -> Vec<Side> {
        vec![]
    }

    /// Passes the node in the sides `S` of [`Either`] to `visitor`; returns its result, or false if the node is in
    /// others.
    #[doc(hidden)]
    #[inline(always)]
    fn visit<S: Sides, V: Visitor>(&mut self, visitor: V) -> bool
    where
        Self: Sized,
    {
        visitor.visit(self)
    }
}

/// One side of an [`Either`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first type.
    A,
    /// The second type.
    B,
}

/// Sides of [`Either`] as a type, outermost first.
#[doc(hidden)]
pub trait Sides: 'static {
    const IN_A: bool;
    const IN_B: bool;
    type Inner: Sides;
}

/// A function that is generic over the type of the node that it is called with.
#[doc(hidden)]
pub trait Visitor {
    fn visit<N: Node>(self, node: &mut N) -> bool;
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

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        delegate!(self, node => node.bounded_tables())
    }

    fn held_max(&self) -> usize {
        delegate!(self, node => node.held_max())
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

    fn take_over(&mut self, old: &mut dyn Any) {
        match (self, old.downcast_mut::<Self>()) {
            (Either::A(node), Some(Either::A(old))) => node.take_over(old),
            (Either::B(node), Some(Either::B(old))) => node.take_over(old),
            _ => {}
        }
    }

    fn save(&mut self, state: &mut StateWriter) {
        state.push(&matches!(self, Either::A(_)));
        delegate!(self, node => node.save(state));
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        // the other side has another state
        if state.read()? != Some(matches!(self, Either::A(_))) {
            return Ok(());
        }
        delegate!(self, node => node.restore(state))
    }

    fn finish(&mut self) {
        delegate!(self, node => node.finish());
    }

    fn is_per_packet(&self) -> bool {
        delegate!(self, node => node.is_per_packet())
    }

    fn sides(&self) -> Vec<Side> {
        let (side, inner) = match self {
            Either::A(node) => (Side::A, node.sides()),
            Either::B(node) => (Side::B, node.sides()),
        };
        [vec![side], inner].concat()
    }

    #[inline(always)]
    fn visit<S: Sides, V: Visitor>(&mut self, visitor: V) -> bool {
        match self {
            Either::A(node) if S::IN_A => node.visit::<S::Inner, V>(visitor),
            Either::B(node) if S::IN_B => node.visit::<S::Inner, V>(visitor),
            _ => false,
        }
    }
}
