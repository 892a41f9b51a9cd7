//! Running batches while the graph is observed.

use super::{Graph, Sink};
use crate::hop::Target;
use crate::observer::Observer;
use packet::Batch;

impl Graph {
    /// Sets or removes the observer, and returns the previous one. It sees what timed batches do: the worker has to time
    /// all batches, and to pass those that it receives to [`run_observed`](Graph::run_observed). Nodes that are fused
    /// run one by one. Stays when the graph is [replaced](crate::Replacement).
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        core::mem::replace(&mut self.state.observer, observer)
    }

    /// Returns the observer.
    pub fn observer(&mut self) -> Option<&mut dyn Observer> {
        self.state.observer.as_deref_mut()
    }

    /// Returns true if the graph is observed.
    #[inline(always)]
    pub fn is_observed(&self) -> bool {
        self.state.observer.is_some()
    }

    /// Runs a batch as [`run`](Graph::run) does, in the order in which it was received from an input: packets
    /// that the observer selects one by one, those between them together.
    pub fn run_observed(&mut self, input: usize, entry: Target, batch: &mut Batch, sink: &mut impl Sink) {
        let received = |observer: &mut Box<dyn Observer>| observer.received(input, batch.as_slice());
        let mut alone = self.state.observer.as_mut().map_or(0, received);
        if self.state.observer.as_ref().is_some_and(|observer| !observer.is_watching()) {
            return self.run::<false>(entry, batch, sink);
        }
        self.waiting.extend(batch.drain());
        self.waiting.reverse();
        while !self.waiting.is_empty() {
            let together = if alone & 1 == 1 { 1 } else { alone.trailing_zeros().min(self.waiting.len() as u32) };
            for packet in self.waiting.drain(self.waiting.len() - together as usize..).rev() {
                // the batch is empty before, and has contained all
                batch.push(packet).unwrap_or_else(drop);
            }
            alone = alone.checked_shr(together).unwrap_or(0);
            self.run::<true>(entry, batch, sink);
        }
    }
}
