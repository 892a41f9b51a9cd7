//! Links between chains, and what packets of a port can reach.

use super::planned_worker::PlannedWorker;
use crate::error::Error;
use crate::ports::{self, SteeringKey};
use crate::worker::output::LocalEntry;
use crate::{DrainPolicy, Input, Output, RxPort, TxPort};
use config::{ChainFile, Device, ServiceClass, Shuffle, Start, WorkerPlan};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Target;
use std::sync::Arc;

/// Connects the cores of chains by rings, for each link between chains.
pub(super) fn connect(file: &ChainFile, workers: &mut [PlannedWorker]) -> Result<(), Error> {
    for (n, link) in file.links.iter().enumerate() {
        let receivers = receivers(file, Start::Link(n), workers);
        // backpressure if all sources of the chain can wait
        let ports = (0..file.ports.len()).filter(|&p| reachable_chains(file, p).contains(&link.chain));
        let backpressure = ports.into_iter().all(|p| matches!(file.ports[p].device, Device::Pcap(_)));
        let (number, chain) = (file.ports.len() + n, &file.chains[link.chain]);
        let key = key(file, n, receivers.len());
        for sender in senders(number, workers) {
            let own = receivers.iter().position(|(receiver, _)| *receiver == sender);
            if own.is_some() && chain.class != ServiceClass::DEFAULT {
                let cpu = workers[sender].cpu;
                let problem = format!(
                    "priority, share and rate have no effect on packets that stay on CPU {cpu}, which sends them"
                );
                let remedy = format!("use other cores than the chain before {}, or remove the key", link.name);
                let d = Diagnostic::new(problem).value(&chain.name).remedy(remedy);
                let d = Diagnostic { file: Some(file.file.clone()), ..d };
                return Err(Error::Input(Diagnostics(vec![d])));
            }
            let (tx, rx_ends) = ports::shuffle_rings(receivers.len(), own, key.clone());
            let mut output = Output::new(TxPort::Other(Box::new(tx)));
            output.local = own.map(|own| LocalEntry { entry: receivers[own].1, stats: Arc::default() });
            workers[sender].outputs[number] = Some(output);
            for (rx, &(receiver, entry)) in rx_ends.into_iter().zip(&receivers) {
                let Some(rx) = rx else { continue };
                let (rx, drain) = (RxPort::Other(Box::new(rx)), DrainPolicy::UntilFinished);
                let input = Input { rx, entry, stats: Arc::default(), backpressure, drain };
                workers[receiver].inputs.push((number, input));
            }
        }
    }
    Ok(())
}

/// Returns the key by which packets of a link are spread over cores.
pub(super) fn key(file: &ChainFile, link: usize, cores: usize) -> SteeringKey {
    let chain = &file.chains[file.links[link].chain];
    match chain.shuffle {
        Shuffle::Flow => SteeringKey::of(file, chain.spreading, cores),
        Shuffle::Metadata => SteeringKey::Metadata,
    }
}

/// Returns the chains that packets of this port can reach, also by links between chains.
pub(super) fn reachable_chains(file: &ChainFile, port: usize) -> Vec<usize> {
    let start = Start::Port(port);
    let mut chains: Vec<usize> = (0..file.chains.len()).filter(|&c| file.chains[c].from == start).collect();
    loop {
        let plan = file.worker(&chains);
        let to = |n: usize| targets(&plan).any(|t| *t == Target::Port((file.ports.len() + n) as u16));
        let more = file.links.iter().enumerate().filter(|(n, link)| to(*n) && !chains.contains(&link.chain));
        let more: Vec<usize> = more.map(|(_, link)| link.chain).collect();
        if more.is_empty() {
            return chains;
        }
        chains.extend(more);
    }
}

/// Returns the workers that receive from a port or link, with the entry of its packets into their graphs.
pub(super) fn receivers(file: &ChainFile, from: Start, workers: &[PlannedWorker]) -> Vec<(usize, Target)> {
    let entry = |worker: &PlannedWorker| {
        let at = worker.chains.iter().position(|&chain| file.chains[chain].from == from)?;
        Some(worker.plan.entries[at])
    };
    workers.iter().enumerate().filter_map(|(n, worker)| Some((n, entry(worker)?))).collect()
}

/// Returns the workers that send to the port or link with this number.
pub(super) fn senders(number: usize, workers: &[PlannedWorker]) -> Vec<usize> {
    let to = Target::Port(number as u16);
    (0..workers.len()).filter(|&n| targets(&workers[n].plan).any(|t| *t == to)).collect()
}

/// Returns all targets of a plan.
pub(super) fn targets(plan: &WorkerPlan) -> impl Iterator<Item = &Target> {
    let b = &plan.blueprint;
    let edges = b.nodes.iter().flat_map(|n| n.edges.iter().skip(1));
    plan.entries.iter().chain(b.hops.iter().map(|h| &h.next)).chain(edges)
}
