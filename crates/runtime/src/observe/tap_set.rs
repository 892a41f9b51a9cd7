//! All captures and traces of one worker, also those of probes.

use super::capture::CaptureTap;
use super::names::WorkerNames;
use super::probes::ProbeTap;
use super::trace::TraceTap;
use graph::{Hop, NodeStats, Observer, OperatorStep, Point};
use packet::Packet;
use std::sync::Arc;

/// A capture or trace that a worker is to begin.
pub(crate) enum Tap {
    Capture(CaptureTap),
    Trace(TraceTap),
    Probes(ProbeTap),
}

/// The captures and traces of a worker.
#[derive(Default)]
pub(crate) struct TapSet {
    names: Arc<WorkerNames>,
    captures: Vec<CaptureTap>,
    traces: Vec<TraceTap>,
    probes: Vec<ProbeTap>,
}

impl TapSet {
    /// Adds a capture or trace; `names` are those of the graph.
    pub(crate) fn add(&mut self, tap: Tap, names: Arc<WorkerNames>) {
        match tap {
            Tap::Capture(capture) => self.captures.push(capture),
            Tap::Trace(trace) => self.traces.push(trace),
            Tap::Probes(probes) => self.probes.push(probes),
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
        self.probes.retain(|probes| !probes.has_ended());
        self.probes.iter_mut().for_each(ProbeTap::forget_old);
        !(self.captures.is_empty() && self.traces.is_empty() && self.probes.is_empty())
    }
}

impl Observer for TapSet {
    fn received(&mut self, input: usize, packets: &[Packet]) -> u64 {
        self.probes.iter_mut().for_each(|probes| probes.received(input, packets));
        self.captures.iter_mut().for_each(|capture| capture.received(input, packets));
        let names = &self.names;
        self.traces.iter_mut().fold(0, |alone, trace| alone | trace.received(names, input, packets))
    }

    fn is_watching(&self) -> bool {
        !(self.captures.is_empty() && self.traces.is_empty()) || self.probes.iter().any(ProbeTap::is_watching)
    }

    fn sees(&mut self, at: Point, packets: &[Packet]) {
        self.probes.iter_mut().for_each(|probes| probes.sees(&self.names, at, packets));
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
