//! All captures and traces of one worker.

use super::capture::CaptureTap;
use super::names::WorkerNames;
use super::trace::TraceTap;
use graph::{Hop, NodeStats, Observer, OperatorStep, Point};
use packet::Packet;
use std::sync::Arc;

/// A capture or trace that a worker is to begin.
pub(crate) enum Tap {
    Capture(CaptureTap),
    Trace(TraceTap),
}

/// The captures and traces of a worker.
#[derive(Default)]
pub(crate) struct TapSet {
    names: Arc<WorkerNames>,
    captures: Vec<CaptureTap>,
    traces: Vec<TraceTap>,
}

impl TapSet {
    /// Adds a capture or trace; `names` are those of the graph.
    pub(crate) fn add(&mut self, tap: Tap, names: Arc<WorkerNames>) {
        match tap {
            Tap::Capture(capture) => self.captures.push(capture),
            Tap::Trace(trace) => self.traces.push(trace),
        }
        self.set_names(names);
    }

    /// Sets the names after a change of the graph.
    pub(crate) fn set_names(&mut self, names: Arc<WorkerNames>) {
        self.captures.iter_mut().for_each(|capture| capture.select(&names));
        self.names = names;
    }

    /// Removes those that are no longer read; returns true if any are left.
    pub(crate) fn retain_read(&mut self) -> bool {
        self.captures.retain(|capture| !capture.has_ended());
        self.traces.retain(|trace| !trace.has_ended());
        !(self.captures.is_empty() && self.traces.is_empty())
    }
}

impl Observer for TapSet {
    fn received(&mut self, input: usize, packets: &[Packet]) -> u64 {
        self.captures.iter_mut().for_each(|capture| capture.received(input, packets));
        let names = &self.names;
        self.traces.iter_mut().fold(0, |alone, trace| alone | trace.received(names, input, packets))
    }

    fn sees(&mut self, at: Point, packets: &[Packet]) {
        self.captures.iter_mut().for_each(|capture| capture.sees(at, packets));
        self.traces.iter_mut().for_each(|trace| trace.sees(&self.names, at, packets));
    }

    fn starts(&mut self, _: Hop, stats: &NodeStats) {
        self.traces.iter_mut().for_each(|trace| trace.starts(stats));
    }

    fn processed(&mut self, hop: Hop, cycles: u64, _: &NodeStats) {
        self.traces.iter_mut().for_each(|trace| trace.processed(&self.names, hop, cycles));
    }

    fn wants_explanations(&self) -> bool {
        self.traces.iter().any(TraceTap::follows_one)
    }

    fn explained(&mut self, hop: Hop, text: String) {
        self.traces.iter_mut().for_each(|trace| trace.explained(&self.names, hop, &text));
    }

    fn operator(&mut self, hop: Hop, step: OperatorStep) {
        self.traces.iter_mut().for_each(|trace| trace.operator(&self.names, hop, &step));
    }
}
