//! A chain in this process as the device under test. Its ports are in-memory rings; the thread that runs trials sends
//! and receives at their other ends.

use crate::anatomy::Anatomy;
use crate::generator::packet_generator::{DutStatus, InFlight, PacketGenerator, TrialProgress};
use crate::generator::packet_source::PacketSource;
use crate::trial::{TrialInput, TrialOutput};
use config::{ChainFile, Start};
use diagnostics::Diagnostic;
use graph::Registry;
use runtime::{PollTimes, Summary, Wires};
use sandbox::SandboxedEngine;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use traffic::PaceError;

/// Packets in each direction of a ring: the usual number of descriptors of a NIC queue.
pub const QUEUE_SIZE: u32 = 1024;
/// Time after the last sent packet until which packets are received.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A running chain in this process, with the generator at its ports.
pub struct InProcessDut {
    generator: PacketGenerator,
    chains: SandboxedEngine,
}

impl InProcessDut {
    /// Starts the chains of a file. Packets enter by the ports that `entry_ports` returns. The calling thread has to
    /// run the trials.
    ///
    /// # Errors
    /// As [`SandboxedEngine::start`]; if bidirectional traffic is sent and the file has only one port.
    pub fn start(file: &ChainFile, registry: &Registry, bidirectional: bool) -> Result<InProcessDut, runtime::Error> {
        InProcessDut::start_with_cores(file, registry, bidirectional, &[])
    }

    /// As [`start`](Self::start), with a thread of the generator on each of these CPUs besides the calling thread. Each
    /// port has a wire per thread.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_cores(
        file: &ChainFile,
        registry: &Registry,
        bidirectional: bool,
        further_cpus: &[usize],
    ) -> Result<InProcessDut, runtime::Error> {
        let wires = Wires { depth: QUEUE_SIZE, per_port: 1 + further_cpus.len() };
        let (chains, ends) = SandboxedEngine::start_on_wires(file, registry, wires)?;
        let file = chains.host_side(file);
        let entries =
            entry_ports(file, bidirectional).map_err(|d| runtime::Error::Input(diagnostics::Diagnostics(vec![d])))?;
        let engine = chains.engine();
        let mut generator = PacketGenerator::on_cores(ends, &entries, engine.pool(), true, further_cpus, engine.eal());
        for (stream, port) in entries.iter().enumerate() {
            if !file.chains.iter().any(|chain| start_port(chain) == Some(*port)) {
                generator.disconnect(stream);
            }
        }
        Ok(InProcessDut { generator, chains })
    }

    /// Sets the flag that ends trials early.
    pub fn set_stop_flag(&mut self, stop: Arc<AtomicBool>) {
        self.generator.set_stop_flag(stop);
    }

    /// Returns the progress of trials.
    pub(crate) fn progress(&self) -> Arc<TrialProgress> {
        self.generator.progress()
    }

    /// Returns the number of ARP requests and neighbor solicitations of the chain that the generator has answered.
    pub(crate) fn answers(&self) -> u64 {
        self.generator.answers()
    }

    /// Returns the running chains.
    pub fn chains(&self) -> &SandboxedEngine {
        &self.chains
    }

    /// Runs a trial.
    ///
    /// # Errors
    /// If the load or the duration is out of range.
    pub fn trial(&mut self, load: &mut PacketSource<'_>, ask: &TrialInput) -> Result<TrialOutput, PaceError> {
        self.trial_on_cores(load, &mut [], ask)
    }

    /// As [`trial`](Self::trial); `further` has the source of each further core of the generator.
    ///
    /// # Errors
    /// As [`trial`](Self::trial).
    pub(crate) fn trial_on_cores(
        &mut self,
        source: &mut PacketSource<'_>,
        further: &mut [PacketSource<'_>],
        input: &TrialInput,
    ) -> Result<TrialOutput, PaceError> {
        // of packets, some of which may have no number
        let trace_one_in = input.trace_one_in.map(|every| every.div_ceil(source.probe_interval()));
        let input = &TrialInput { trace_one_in, ..input.clone() };
        let traces = trace_one_in.map(|every| self.chains.trace_probes(every));
        let output = self.generator.trial(&self.chains, source, further, input);
        let records = traces.map(|traces| traces.end());
        let mut output = output?;
        output.anatomy = records.map(|records| Anatomy::of(&self.generator.take_probe_times(), &records));
        Ok(output)
    }

    /// Returns the number of cores of the generator.
    pub(crate) fn generator_cores(&self) -> usize {
        self.generator.core_count()
    }

    /// Returns true if a chain receives the packets of each direction.
    pub(crate) fn receives_both_directions(&self) -> bool {
        self.generator.is_connected(0) && self.generator.is_connected(1)
    }

    /// Returns the number of directions that can be offered at once.
    pub fn directions(&self) -> usize {
        self.generator.stream_count()
    }

    /// Frees packets that are kept for sending again; their payload belongs to other frames.
    pub fn free_recycled(&mut self) {
        self.generator.free_recycled();
    }

    /// Stops the chains and returns their counters.
    pub fn stop(self) -> Summary {
        drop(self.generator);
        self.chains.stop()
    }
}

/// Returns the ports of a chain file that packets enter by: the port that `[traffic]` names, or the start of the first
/// chain. For bidirectional traffic the second is the end of a chain from the first, else the start of another chain,
/// else the next port.
///
/// # Errors
/// If bidirectional traffic is sent and the file has only one port.
pub(crate) fn entry_ports(file: &ChainFile, bidirectional: bool) -> Result<Vec<usize>, Diagnostic> {
    let index = |name: &String| file.ports.iter().position(|port| port.name == *name);
    let first = match &file.traffic.into {
        Some(name) => index(name).unwrap_or_default(),
        None => file.chains.iter().find_map(start_port).unwrap_or(0),
    };
    if !bidirectional {
        return Ok(vec![first]);
    }
    let ends =
        file.chains.iter().filter(|chain| start_port(chain) == Some(first)).filter_map(|c| index(c.path.last()?));
    let others = ends.chain(file.chains.iter().filter_map(start_port)).chain(0..file.ports.len());
    match others.into_iter().find(|port| *port != first && file.ports[*port].crossing_side.is_none()) {
        Some(second) => Ok(vec![first, second]),
        None => Err(single_port_error(&file.ports[first].name, Some(file))),
    }
}

/// Returns the port that a chain receives from.
fn start_port(chain: &config::Chain) -> Option<usize> {
    match chain.from {
        Start::Port(port) => Some(port),
        Start::Link(_) => None,
    }
}

/// Returns the error of a device with a single port and bidirectional traffic.
pub(crate) fn single_port_error(port: &str, file: Option<&ChainFile>) -> Diagnostic {
    let d = Diagnostic::new("is the only port, and bidirectional traffic needs two").value(port).remedy(
        "add a second port and a chain from it; or remove bidirectional, the second capture, or port: 1 of the profile",
    );
    Diagnostic { file: file.map(|file| file.file.clone()), ..d }
}

impl DutStatus for SandboxedEngine {
    fn created_packets(&self) -> u64 {
        self.snapshot().totals.created
    }

    /// True if the chain has received every packet sent, accounted for it, and every packet that it sent was received.
    /// Unlike a time without received packets, this is also correct while a worker is preempted.
    fn is_drained(&self, in_flight: &InFlight) -> bool {
        let counts = self.request_snapshot();
        counts.balanced && counts.totals.received == in_flight.sent && counts.totals.sent == in_flight.received
    }

    fn drain_timeout(&self) -> Duration {
        DRAIN_TIMEOUT
    }

    fn take_poll_times(&self) -> PollTimes {
        self.engine().take_poll_times()
    }

    fn dropped_by_nfs(&self) -> u64 {
        self.snapshot().nfs.iter().flat_map(|nf| nf.drops.values()).sum()
    }

    fn queue_size(&self) -> u32 {
        QUEUE_SIZE
    }

    fn works_in_generator(&self) -> bool {
        false
    }
}
