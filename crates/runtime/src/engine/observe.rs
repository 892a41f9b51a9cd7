//! Starting captures and traces of a running engine.

use super::{End, Engine, Source};
use crate::observe::{self, Capture, CaptureSpec, EndName, HopNames, ProbeTrace, Tap, Trace, WorkerNames};
use crate::worker::command::Command;
use bpf::Program;
use config::WorkerPlan;
use diagnostics::Diagnostic;
use std::sync::Arc;
use traffic::probe::Sample;

impl Engine {
    /// Starts a capture. It lasts until the returned end is dropped, also across reloads.
    ///
    /// # Errors
    /// A place that the chain file does not have.
    pub fn capture(&self, spec: &CaptureSpec) -> Result<Capture, Diagnostic> {
        let (capture, taps) = observe::start_capture(spec, &self.file, self.live_workers().count())?;
        self.observe(taps.into_iter().map(Tap::Capture));
        Ok(capture)
    }

    /// Starts a trace of the first `limit` packets that ports receive and the filter accepts.
    #[must_use]
    pub fn trace(&self, filter: Option<Program>, limit: u32) -> Trace {
        let (trace, taps) = observe::start_trace(filter, limit, self.live_workers().count());
        self.observe(taps.into_iter().map(Tap::Trace));
        trace
    }

    /// Starts a trace of one probe in `every` on average, which begins within a millisecond. It must not outlast a
    /// reload.
    #[must_use]
    pub fn trace_probes(&self, every: u64) -> ProbeTrace {
        let names =
            self.live_workers().map(|worker| Arc::new(self.worker_names(worker.cpu, &worker.plan, &worker.inputs)));
        let (trace, taps) = observe::start_probe_trace(Sample::one_in(every), names.collect());
        self.observe(taps.into_iter().map(Tap::Probes));
        trace
    }

    /// Passes one tap to each worker.
    fn observe(&self, taps: impl Iterator<Item = Tap>) {
        for (worker, tap) in self.live_workers().zip(taps) {
            // ignore errors: the worker has ended
            let _ = worker
                .commands
                .send(Command::Observe(tap, Arc::new(self.worker_names(worker.cpu, &worker.plan, &worker.inputs))));
        }
    }

    /// Returns the names of the places in the graph of a worker.
    pub(super) fn worker_names(&self, cpu: usize, plan: &WorkerPlan, inputs: &[Source]) -> WorkerNames {
        let end = |end: &End| match end {
            End::Port(port) => EndName { name: self.names.ports[*port].0.clone(), is_link: false },
            End::Link(link) => EndName { name: self.names.links[*link].clone(), is_link: true },
        };
        let numbers = 0..self.file.ports.len() + self.file.links.len();
        let hops = plan.blueprint.hops.iter().map(|hop| {
            let nf = &self.file.nfs[plan.nfs[usize::from(hop.node)]];
            let input = nf.inputs.get(usize::from(hop.input)).filter(|_| nf.inputs.len() > 1);
            HopNames { nf: nf.name.clone(), input: input.cloned(), outputs: nf.outputs.clone() }
        });
        WorkerNames {
            cpu,
            inputs: inputs.iter().map(|source| end(&source.end)).collect(),
            outputs: numbers.map(|number| end(&self.end(number))).collect(),
            hops: hops.collect(),
        }
    }
}
