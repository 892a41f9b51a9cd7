//! A running device under test of any kind.

use super::{Description, ExternalDut, InProcessDut};
use crate::generator::ExternalGenerator;
use crate::generator::packet_generator::TrialProgress;
use crate::generator::packet_source::PacketSource;
use crate::simulated::Simulated;
use crate::traffic_spec::PreparedTraffic;
use crate::trial::{Disturbance, Measurer, MeasurerError, TrialInput, TrialOutput};
use report::Node;
use runtime::{Cycles, Name, Summary as Counts};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A running device under test with a generator at its ports.
pub enum RunningDut {
    /// A chain in this process.
    InProcess(Box<InProcessDut>),
    /// Another program.
    External(Box<ExternalDut>),
    /// Another program, with another generator.
    ExternalGenerator(Box<ExternalGenerator>),
    /// A model in virtual time.
    Simulated(Box<Simulated>),
}

/// A measurer that runs trials of prepared traffic on a device.
pub struct DutMeasurer<'a> {
    dut: &'a mut RunningDut,
    traffic: &'a PreparedTraffic,
    source: PacketSource<'a>,
    /// Source of each further core of the generator.
    further: Vec<PacketSource<'a>>,
}

impl RunningDut {
    /// Returns the description of an external device.
    pub fn description(&self) -> Option<&Description> {
        match self {
            RunningDut::External(dut) => Some(dut.description()),
            RunningDut::ExternalGenerator(generator) => Some(generator.description()),
            RunningDut::InProcess(_) | RunningDut::Simulated(_) => None,
        }
    }

    /// Returns the progress of trials; none if the built-in generator does not run them.
    pub(crate) fn progress(&self) -> Option<Arc<TrialProgress>> {
        match self {
            RunningDut::InProcess(dut) => Some(dut.progress()),
            RunningDut::External(dut) => Some(dut.progress()),
            RunningDut::ExternalGenerator(_) | RunningDut::Simulated(_) => None,
        }
    }

    /// Returns the number of ARP requests and neighbor solicitations that the built-in generator has answered.
    pub(crate) fn answers(&self) -> u64 {
        match self {
            RunningDut::InProcess(dut) => dut.answers(),
            RunningDut::External(dut) => dut.answers(),
            RunningDut::ExternalGenerator(_) | RunningDut::Simulated(_) => 0,
        }
    }

    /// Returns a measurer that sends the traffic from its beginning.
    pub fn measurer<'a>(&'a mut self, traffic: &'a PreparedTraffic) -> DutMeasurer<'a> {
        if let RunningDut::InProcess(dut) = self {
            dut.free_recycled();
        }
        let cores = match self {
            RunningDut::InProcess(dut) => dut.generator_cores(),
            RunningDut::External(dut) => dut.generator_cores(),
            RunningDut::ExternalGenerator(_) | RunningDut::Simulated(_) => 1,
        };
        let further = (1..cores).map(|core| traffic.core_source(core, cores)).collect();
        DutMeasurer { source: traffic.core_source(0, cores), further, traffic, dut: self }
    }
}

impl RunningDut {
    /// Runs a trial of traffic with its source, and one for each further core of the generator.
    fn trial(
        &mut self,
        traffic: &PreparedTraffic,
        source: &mut PacketSource<'_>,
        further: &mut [PacketSource<'_>],
        input: &TrialInput,
    ) -> Result<TrialOutput, MeasurerError> {
        match self {
            RunningDut::InProcess(dut) => {
                let before = dut.chains().snapshot();
                let mut output = dut.trial_on_cores(source, further, input)?;
                let after = dut.chains().snapshot();
                let drops = after.drops.iter().map(|(reason, n)| (reason, n - before.drops.get(reason).unwrap_or(&0)));
                output.drops = drops.filter(|(_, n)| *n != 0).map(|(reason, n)| (reason.to_string(), n)).collect();
                output.nodes = node_counters(&before, &after);
                Ok(output)
            }
            RunningDut::Simulated(dut) => dut.trial(input),
            RunningDut::ExternalGenerator(generator) => generator.trial(traffic, input),
            RunningDut::External(dut) => {
                let output = dut.trial(source, further, input)?;
                dut.check().map_err(|e| MeasurerError::DutFailed(e.to_string()))?;
                Ok(output)
            }
        }
    }
}

impl DutMeasurer<'_> {
    /// Checks that device and traffic support the trial.
    fn check(&self, input: &TrialInput) -> Result<(), MeasurerError> {
        let unsupported =
            |dut: &str, what, remedy| Err(MeasurerError::Unsupported { dut: dut.to_owned(), what, remedy });
        let is_simulated = matches!(self.dut, RunningDut::Simulated(_));
        if input.tagged_at_s.is_some() && self.source.probe_interval() != 1 && !is_simulated {
            return unsupported(
                "traffic with unnumbered packets",
                "measured for the latency of one packet",
                "use the method throughput, which reports the latency of numbered packets",
            );
        }
        if !self.further.is_empty() && !self.traffic.is_divisible() {
            return unsupported(
                "a capture, a profile or traffic of connections",
                "sent by several generator cores",
                "name one CPU of the generator: --core 1",
            );
        }
        if input.phases.len() > 1 && self.source.timing(0).is_some() {
            return unsupported(
                "a capture with its own timing",
                "sent at several loads without a pause",
                "remove --gaps, or gaps of the scenario, or use another method",
            );
        }
        let (name, directions) = match &self.dut {
            RunningDut::InProcess(dut) => ("a chain in this process", dut.directions()),
            RunningDut::External(dut) => ("a device", dut.directions()),
            RunningDut::Simulated(_) => ("a simulated device", 1),
            RunningDut::ExternalGenerator(_) => ("a device with another generator", 2),
        };
        let needed = if self.traffic.is_bidirectional() { 2 } else { 1 };
        if self.source.streams.len().max(needed) > directions {
            return unsupported(
                name,
                "offered traffic in both directions",
                "add a second port, or remove bidirectional, tcp or the second capture",
            );
        }
        let are_answers_forwarded = match &self.dut {
            RunningDut::InProcess(dut) => dut.receives_both_directions(),
            _ => true,
        };
        if self.traffic.tcp_settings().is_some_and(|settings| !settings.dsr) && !are_answers_forwarded {
            return unsupported(
                name,
                "offered TCP connections, as no chain forwards the answers of the servers",
                "add a chain from the second port, or dsr to --tcp if servers answer directly",
            );
        }
        match (&self.dut, input.disturbance) {
            (RunningDut::InProcess(_), Some(disturbance)) => unsupported(
                name,
                match disturbance {
                    Disturbance::Reset { .. } => "reset",
                    Disturbance::Changes { .. } => "changed while it forwards",
                },
                "measure an external device: [dut] kind = \"...\" in a scenario",
            ),
            _ => Ok(()),
        }
    }
}

impl Measurer for DutMeasurer<'_> {
    fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError> {
        self.check(input)?;
        let DutMeasurer { dut, traffic, source, further } = self;
        let Some(macs) = input.macs else { return dut.trial(traffic, source, further, input) };
        let with_macs = traffic.with_macs(macs).filter(|_| further.is_empty());
        let traffic = with_macs.ok_or_else(|| MeasurerError::Unsupported {
            dut: "this traffic".to_owned(),
            what: "sent with many MAC addresses",
            remedy: "send frames of flows, on one generator core",
        })?;
        if let RunningDut::InProcess(dut) = dut {
            dut.free_recycled();
        }
        dut.trial(&traffic, &mut traffic.packet_source(), &mut [], input)
    }
}

/// Returns the counters of ports and NFs between two snapshots.
fn node_counters(before: &Counts, after: &Counts) -> Vec<Node> {
    let drops = |a: &BTreeMap<Name, u64>, b: &BTreeMap<Name, u64>| {
        let all = b.iter().map(|(reason, n)| (reason.to_string(), n - a.get(reason).unwrap_or(&0)));
        all.filter(|(_, n)| *n != 0).collect::<BTreeMap<_, _>>()
    };
    let node = |name: &str, kind: &str, packets: u64, dropped: BTreeMap<String, u64>, a: &Cycles, b: &Cycles| {
        let (cycles, timed, batches) = (b.cycles - a.cycles, b.packets - a.packets, b.batches - a.batches);
        let per = |n: u64, of: u64| (of != 0).then(|| n as f64 / of as f64);
        Node {
            name: name.to_owned(),
            kind: kind.to_owned(),
            packets,
            dropped,
            cycles_per_packet: per(cycles, timed),
            packets_per_batch: per(timed, batches),
        }
    };
    let mut nodes = vec![];
    for (a, b) in before.ports.iter().zip(&after.ports) {
        nodes.push(node(&b.name, "receive", b.received - a.received, BTreeMap::new(), &a.receive, &b.receive));
    }
    for (a, b) in before.nfs.iter().zip(&after.nfs) {
        nodes.push(node(&b.name, &b.kind, b.packets - a.packets, drops(&a.drops, &b.drops), &a.cycles, &b.cycles));
    }
    for (a, b) in before.ports.iter().zip(&after.ports) {
        nodes.push(node(&b.name, "send", b.sent - a.sent, drops(&a.drops, &b.drops), &a.send, &b.send));
    }
    nodes.retain(|n| n.packets != 0 || !n.dropped.is_empty());
    nodes
}
