//! Traces of probes on the host side and in sandboxes.

use crate::sandboxes::{SandboxProbes, Sandboxes};
use runtime::{Engine, ProbeRecord, ProbeTrace};
use std::time::Duration;

/// Time for the workers to begin a trace.
const BEGIN_TIME: Duration = Duration::from_millis(3);

/// A running trace of probes. Dropping it ends the trace on the host side.
pub struct ProbeTraces<'a> {
    host: ProbeTrace,
    sandboxes: Option<&'a Sandboxes>,
}

/// Records of probes.
pub struct TracedProbes {
    /// Records of the workers of the host side, those of each worker in their order.
    pub host: Vec<ProbeRecord>,
    /// Records of each sandbox.
    pub sandboxes: Vec<SandboxProbes>,
}

impl<'a> ProbeTraces<'a> {
    /// Starts a trace of one probe in `every` on average, and waits until all workers have begun it.
    pub(crate) fn start(engine: &Engine, sandboxes: Option<&'a Sandboxes>, every: u64) -> ProbeTraces<'a> {
        sandboxes.into_iter().for_each(|sandboxes| sandboxes.begin_probes(every));
        let host = engine.trace_probes(every);
        std::thread::sleep(BEGIN_TIME);
        ProbeTraces { host, sandboxes }
    }

    /// Ends the trace and returns its records.
    #[must_use]
    pub fn end(mut self) -> TracedProbes {
        TracedProbes { host: self.host.read(), sandboxes: self.sandboxes.map_or(vec![], Sandboxes::end_probes) }
    }
}
