//! Observation of the packets of a graph, for captures and traces.

use crate::hop::Hop;
use crate::operator_trace::OperatorStep;
use crate::stats::NodeStats;
use packet::Packet;
use std::any::Any;

/// A place at which an observer sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// They are about to be processed.
    Enter(Hop),
    /// They leave by an output of a node; 0 is the first output.
    Leave(Hop, u8),
    /// They are dropped for this reason.
    Drop(Hop, &'static str),
    /// A node has created them, perhaps without contents yet.
    Create(Hop),
    /// A node holds them.
    Hold(Hop),
    /// They are offered to a port.
    Send(u16),
    /// A port did not accept them, and they are dropped for this reason.
    Refuse(u16, &'static str),
}

/// Sees the packets of a graph that is [observed](crate::Graph::observe).
///
/// All methods are called on the worker, so they neither block nor panic. Packets that are lost in a panic, or counted
/// as `vanished`, are not seen again.
pub trait Observer: Any + Send {
    /// Packets were received from the input of this number. Returns the set of those that are to be processed alone, one
    /// bit each.
    fn received(&mut self, input: usize, packets: &[Packet]) -> u64;

    /// Returns false if nothing that is done with the packets just received is of interest: they then run as if there
    /// were no observer, but for drops, creations and holds, which it sees.
    fn is_watching(&self) -> bool {
        true
    }

    /// Packets are at a place.
    fn sees(&mut self, at: Point, packets: &[Packet]);

    /// A node is about to process what entered it.
    fn starts(&mut self, _: Hop, _: &NodeStats) {}

    /// A node has processed what entered it, in so many cycles.
    fn processed(&mut self, _: Hop, _cycles: u64, _: &NodeStats) {}

    /// Returns true if nodes are to [explain](crate::Context::explain) what they do.
    fn wants_explanations(&self) -> bool {
        false
    }

    /// A node explains what it does.
    fn explained(&mut self, _: Hop, _text: String) {}

    /// An operator of a node has processed the packet.
    fn operator(&mut self, _: Hop, _: OperatorStep) {}
}
