//! Rates between two snapshots of the counts.

mod interval;

use runtime::{Name, Occupancy};
use serde::Serialize;
use std::collections::BTreeMap;

/// Rates of an instance, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Chain file.
    pub(crate) file: String,
    /// Seconds since the start of the instance.
    pub(crate) uptime: f64,
    /// Seconds between the snapshots.
    pub(crate) interval: f64,
    /// Use of the packet pool; not per second.
    pub(crate) pool: Occupancy,
    /// Packets received by ports.
    pub(crate) received: f64,
    /// Packets sent by ports.
    pub(crate) sent: f64,
    /// Bits received and sent by ports, without FCS.
    pub(crate) received_bits: f64,
    pub(crate) sent_bits: f64,
    /// Packets dropped.
    pub(crate) dropped: f64,
    /// Workers, by CPU.
    pub(crate) cpus: Vec<CpuRates>,
    /// Chains, if they are scheduled and not served in turn.
    pub(crate) chains: Vec<ChainRates>,
    /// Ports, in the order of the summary.
    pub(crate) ports: Vec<PortRates>,
    /// NFs, in the order of the summary.
    pub(crate) nfs: Vec<NfRates>,
    /// Sandboxes, in the order of the summary.
    pub(crate) sandboxes: Vec<SandboxRates>,
    /// Receive queues of ports, and links between CPUs; not per second.
    pub(crate) queues: Vec<QueueUse>,
    /// Tables that packets fill; not per second.
    pub(crate) tables: Vec<TableUse>,
    /// Dropped packets by reason, most first.
    pub(crate) drops: Vec<(Name, f64)>,
}

/// Rates of a CPU, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CpuRates {
    pub(crate) cpu: usize,
    /// Names of chains and sandboxes.
    pub(crate) chains: Vec<String>,
    /// Share of the time with packets or timers to process; 1 is all of it.
    pub(crate) busy: Option<f64>,
    /// Packets received, from ports and from links.
    pub(crate) received: f64,
    /// Packets sent, to ports and to links.
    pub(crate) sent: f64,
    /// Packets dropped.
    pub(crate) dropped: f64,
}

/// Rates of a scheduled chain, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ChainRates {
    pub(crate) name: String,
    /// Packets received for the chain.
    pub(crate) packets: f64,
    /// Cycles per packet.
    pub(crate) cycles: Option<f64>,
    /// Share of the cycles of all chains; 1 is all of them.
    pub(crate) share: f64,
    /// Visits postponed because of the rate.
    pub(crate) throttled: f64,
}

/// Rates of a sandbox, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SandboxRates {
    pub(crate) name: String,
    pub(crate) isolation: Name,
    pub(crate) cpus: Vec<usize>,
    /// True if the process is running.
    pub(crate) up: bool,
    /// Number of starts of the process so far.
    pub(crate) starts: u64,
    /// Packets sent into the sandbox.
    pub(crate) sent: f64,
    /// Packets received from it.
    pub(crate) received: f64,
    /// Packets dropped at its boundary.
    pub(crate) dropped: f64,
}

/// Use of the queues of a port or a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct QueueUse {
    /// Such as `port lan` or `link fw.out`.
    pub(crate) name: String,
    /// Packets in them.
    #[serde(flatten)]
    pub(crate) packets: Occupancy,
}

/// Use of a table of an NF.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TableUse {
    pub(crate) nf: String,
    pub(crate) table: Name,
    /// Its entries.
    #[serde(flatten)]
    pub(crate) entries: Occupancy,
}

/// Rates of a port, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PortRates {
    pub(crate) name: String,
    pub(crate) device: String,
    /// Packets received.
    pub(crate) received: f64,
    /// Bits received, without FCS.
    pub(crate) received_bits: f64,
    /// Packets sent.
    pub(crate) sent: f64,
    /// Bits sent, without FCS.
    pub(crate) sent_bits: f64,
    /// Packets dropped at the port.
    pub(crate) dropped: f64,
    /// Packets that the device dropped before they were received.
    pub(crate) missed: f64,
    /// Cycles per packet received and sent, where packets were timed.
    pub(crate) receive_cycles: Option<f64>,
    pub(crate) send_cycles: Option<f64>,
    /// Link state, if the device reports it.
    pub(crate) link: Option<bool>,
}

/// Rates of an NF, per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NfRates {
    pub(crate) name: String,
    pub(crate) kind: Name,
    /// Packets processed.
    pub(crate) packets: f64,
    /// Packets per batch, where batches were timed.
    pub(crate) per_batch: Option<f64>,
    /// Cycles per packet, where packets were timed.
    pub(crate) cycles: Option<f64>,
    /// Share of the cycles of all ports and NFs; 1 is all of them.
    pub(crate) share: f64,
    /// Packets dropped.
    pub(crate) dropped: f64,
    /// Values such as numbers of sessions, not per second.
    pub(crate) gauges: BTreeMap<String, u64>,
}
