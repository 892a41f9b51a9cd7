//! Runs chain files.
//!
//! [`Engine::start`] opens the ports of a [`config::ChainFile`], builds its NFs once per core, and starts one pinned
//! [`Worker`] per core, which polls its ports in turn and runs each batch through its graph to completion. The control
//! plane never blocks a worker: counts are read while it runs, and a stop is a flag that it reads between batches. At
//! all times and for every worker, `received + created = sent + held + dropped`, and every drop has a reason;
//! [`Summary::balanced`] is the result of that check.
#![deny(unsafe_code)]

mod cleanup;
mod cpu;
mod engine;
mod error;
mod faults;
mod observe;
mod occupancy;
pub mod pci;
mod ports;
mod summary;
mod worker;

pub use cleanup::CleanupProcess;
pub use cpu::{
    OffCpuMeter, Placement, SessionPriority, Strategy, ThreadTimes, Topology, allowed_cpus, avoid_cpus, node_of_device,
    pin, place_chains, raise_priority, set_affinity, thread_times,
};
pub use engine::{Engine, LiveNfs, MAX_POOL_PACKETS, Options, Predecessor, Reloaded, SavedState, monotonic_nanos};
pub use error::Error;
pub use observe::{
    Capture, CaptureCounts, CaptureSpec, Captured, Direction, MAX_PROBE_RECORDS, ProbePoint, ProbeRecord, ProbeTrace,
    Step, StepKind, Trace, TraceEnd, TracedPacket,
};
pub use occupancy::Occupancy;
pub use pci::sriov::VirtualFunctions;
pub use ports::{
    ExternalPorts, LinkStats, Nic, PortDrop, PortQueues, Receive, RxPort, SharedQueue, SourceKind, Transmit, TxPort,
    Wires, missing_device, missing_devices, shuffle_link,
};
pub use summary::{
    ChainSummary, Cycles, LinkSummary, Name, NfSummary, PortSummary, SandboxSummary, Summary, Totals, WorkerSummary,
};
pub use worker::{DrainPolicy, IdlePolicy, Input, Output, PollGaps, PollTimes, Worker};
