//! Runs chain files.
//!
//! [`Engine::start`] opens the ports of a [`config::ChainFile`], builds its NFs once for each core, and starts one pinned
//! [`Worker`] per core, which polls its ports in turn and takes each batch through its graph to the end. Control never
//! stops a worker: counts are read while it runs, a stop is a flag that it looks at between batches. At any time, and for
//! every worker, `received + created = sent + held + dropped`, and every drop has a reason; [`Summary::balanced`] says
//! whether that held.
#![forbid(unsafe_code)]

mod blame;
mod cpus;
mod engine;
mod faults;
mod guard;
mod link;
mod outside;
pub mod pci;
mod placement;
mod ports;
mod renew;
mod schedule;
mod sriov;
mod summary;
mod topology;
mod watchdog;
mod worker;

pub use cpus::{allowed_cpus, confine, pin, put_first};
pub use engine::{End, Engine, Error, Idle, MOST_PACKETS, Options};
pub use guard::Guard;
pub use link::{LinkStats, Receive, Transmit};
pub use outside::Outside;
pub use placement::{Placement, Strategy, place};
pub use ports::shuffle_link;
pub use sriov::Functions;
pub use summary::{ChainSummary, Cycles, LinkSummary, Name, NfSummary, PortSummary, Summary, Totals, WallSummary};
pub use topology::{Topology, node_of_device};
pub use worker::{Drain, Gaps, Input, Origin, Output, Source, Worker};
