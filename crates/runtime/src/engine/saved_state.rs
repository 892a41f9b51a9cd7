//! The state of NFs that another process continues, and the ports that both can have open.

use super::planned_worker::PlannedWorker;
use crate::Receive as _;
use crate::error::Error;
use crate::worker::rebuild::NodeBuilder;
use config::{ChainFile, Device};
use dpdk::PacketSocket;
use graph::Graph;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the NFs of a run that has stopped.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SavedState {
    /// Begin of the time of the graphs on the monotonic clock, in nanoseconds.
    began: u64,
    nodes: Vec<SavedNode>,
}

/// The state of one copy of an NF.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedNode {
    nf: String,
    kind: String,
    /// Version of the form of the state.
    format: u16,
    /// Index of the copy, and number of copies.
    copy: (usize, usize),
    /// Settings as JSON.
    settings: String,
    #[serde(with = "serde_bytes")]
    state: Vec<u8>,
}

/// Waits for the state of a process that runs the same chains, which has closed the ports that only one process can open.
/// Called when all that takes time is done: NFs are built, and the packet sockets are open, which two processes can have.
/// These are given to it with the names of their ports, and receive nothing until their input is [opened](PacketSocket::open_input).
pub type Predecessor<'a> = Box<dyn FnOnce(Vec<(String, PacketSocket)>) -> Result<SavedState, Error> + 'a>;

/// Returns the time of the monotonic clock, which all processes share, in nanoseconds.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns true if two processes can have the device open: a packet socket, of which both receive all packets, or what
/// each has its own of.
pub(super) fn is_shareable(device: &Device) -> bool {
    let is_own = matches!(device, Device::Dpdk { written, .. } if written == "null" || written.starts_with("ring:"));
    is_own || packet_interface(device).is_some()
}

/// Returns the interface of a packet socket.
pub(super) fn packet_interface(device: &Device) -> Option<&str> {
    device.scheme_and_target().filter(|(scheme, _)| *scheme == "af_packet").map(|(_, interface)| interface)
}

/// Returns true if DPDK opens the device when it starts, so that no other process may have it then.
pub(super) fn is_held_by_dpdk(device: &Device) -> bool {
    device.pci_address().is_some() || device.virtual_function().is_some()
}

/// Has shareable ports receive nothing, and discards what they have received, as another process has received it as well.
/// Returns their sockets.
pub(super) fn hold_back(
    file: &ChainFile,
    ports: &[usize],
    workers: &mut [PlannedWorker],
) -> Result<Vec<(String, PacketSocket)>, Error> {
    let mut sockets = vec![];
    for &port in ports {
        let Some(interface) = packet_interface(&file.ports[port].device) else { continue };
        let of_port = PacketSocket::of_interface(interface);
        let closed = of_port.and_then(|all| all.iter().try_for_each(PacketSocket::close_input).map(|()| all));
        let name = &file.ports[port].name;
        let closed = closed.map_err(|e| Error::Environment {
            problem: format!("port {name:?}: the socket of interface {interface}: {e}"),
            remedy: "stop the process that runs and start again".to_owned(),
        })?;
        sockets.extend(closed.into_iter().map(|socket| (name.clone(), socket)));
        let inputs = workers.iter_mut().flat_map(|worker| &mut worker.inputs);
        inputs.filter(|(of, _)| *of == port).for_each(|(_, input)| input.rx.discard());
    }
    for (_, socket) in &sockets {
        // ignore errors: counts from now on
        let _ = socket.take_counts();
    }
    Ok(sockets)
}

/// Returns what the nodes of a worker have saved.
pub(super) fn saved_nodes<'a>(
    file: &'a ChainFile,
    (nfs, builders): (&'a [usize], &'a [Arc<NodeBuilder>]),
    states: Vec<Option<Vec<u8>>>,
) -> impl Iterator<Item = SavedNode> {
    nfs.iter().zip(builders).zip(states).filter_map(|((&nf, builder), state)| {
        let config = &file.nfs[nf];
        Some(SavedNode {
            nf: config.name.clone(),
            kind: config.kind.name.to_owned(),
            format: config.kind.takes_over?.format?,
            copy: builder.context.copy,
            settings: config.settings_json(),
            state: state?,
        })
    })
}

impl SavedState {
    /// Returns the state of graphs whose time began then.
    pub(super) fn new(began: Instant, nodes: Vec<SavedNode>) -> SavedState {
        SavedState { began: monotonic_nanos().saturating_sub(began.elapsed().as_nanos() as u64), nodes }
    }

    /// Returns the begin of the time of graphs that continue this state.
    pub(super) fn graph_start(&self) -> Instant {
        let now = Instant::now();
        let elapsed = Duration::from_nanos(monotonic_nanos().saturating_sub(self.began));
        if self.began == 0 { now } else { now.checked_sub(elapsed).unwrap_or(now) }
    }

    /// Restores the nodes of a graph, which are of these NFs of the file, and returns notes about NFs that start without
    /// the state that they had.
    pub(super) fn restore(
        &self,
        file: &ChainFile,
        nfs: &[usize],
        builders: &[Arc<NodeBuilder>],
        graph: &mut Graph,
    ) -> Vec<String> {
        let restore = |(node, (&nf, builder)): (usize, (&usize, &Arc<NodeBuilder>))| {
            let config = &file.nfs[nf];
            let takes_over = config.kind.takes_over?;
            let is_same = |saved: &&SavedNode| saved.nf == config.name && saved.kind == config.kind.name;
            let first = self.nodes.iter().find(is_same)?;
            let differs = config.state_differs(&first.settings);
            let problem = if !differs.is_empty() {
                format!("other settings {}", differs.join(", "))
            } else if Some(first.format) != takes_over.format {
                "this version of the program cannot read them".to_owned()
            } else {
                match self.nodes.iter().filter(is_same).find(|saved| saved.copy == builder.context.copy) {
                    None => "it runs on another number of CPUs".to_owned(),
                    Some(saved) => graph.restore(node as u16, &saved.state).err()?.to_string(),
                }
            };
            Some(format!("nf {:?} starts without the {} that it had: {problem}", config.name, takes_over.state))
        };
        nfs.iter().zip(builders).enumerate().filter_map(restore).collect()
    }
}
