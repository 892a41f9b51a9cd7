//! Traces of probes in sandboxes.

use super::instance::Instance;
use super::{POLL_INTERVAL, Sandboxes};
use crate::launch::{END_PROBES, REPORT, TRACE_PROBES};
use crate::supervisor::{ReceivedProbes, SupervisedProcess};
use config::Isolation;
use runtime::ProbeRecord;
use std::time::{Duration, Instant};

/// Longest wait for the processes to begin or end a trace.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Records of probes in a sandbox. Their probes and times may be wrong, as the process is not trusted.
pub struct SandboxProbes {
    /// Name of the sandbox.
    pub name: String,
    /// Names on the host side: the ports that cross the boundary, and NFs in front of them.
    pub host_names: Vec<String>,
    /// The records, without names of ports and links; none of a VM, which may have another time-stamp counter.
    pub records: Option<Vec<ProbeRecord>>,
}

impl Sandboxes {
    /// Starts a trace of one probe in `every` on average, and waits until the processes have begun it.
    pub(crate) fn begin_probes(&self, every: u64) {
        let begin = |process: &SupervisedProcess| {
            let mut state = process.state();
            state.probes = ReceivedProbes::default();
            state.send(&format!("{TRACE_PROBES}{every}"));
            state.send(REPORT);
            state.reports
        };
        let before: Vec<u64> = self.traced().map(begin).collect();
        // the second report is newer than the request
        wait_for(|| self.traced().zip(&before).all(|(process, before)| process.state().reports >= before + 2));
    }

    /// Ends the trace and returns the records of each sandbox.
    pub(crate) fn end_probes(&self) -> Vec<SandboxProbes> {
        self.traced().for_each(|process| process.state().send(END_PROBES));
        wait_for(|| self.traced().all(|process| process.state().probes.is_complete));
        let take = |Instance { sandbox, process, .. }: &Instance| SandboxProbes {
            name: sandbox.name.clone(),
            host_names: sandbox.host_names().map(str::to_owned).collect(),
            records: has_common_clock(sandbox.isolation).then(|| std::mem::take(&mut process.state().probes).records),
        };
        self.running.iter().map(take).collect()
    }

    /// Returns the processes that can trace probes.
    fn traced(&self) -> impl Iterator<Item = &SupervisedProcess> {
        let traced = self.running.iter().filter(|instance| has_common_clock(instance.sandbox.isolation));
        traced.map(|instance| &*instance.process)
    }
}

/// Returns true if the time-stamp counter of a sandbox is that of the host.
fn has_common_clock(isolation: Isolation) -> bool {
    isolation != Isolation::Vm
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() && start.elapsed() < TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
}
