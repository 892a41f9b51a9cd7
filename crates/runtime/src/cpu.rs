//! CPUs: affinity, NUMA topology, and the placement of chains.

mod affinity;
mod off_cpu;
mod placement;
mod priority;
mod schedstat;
mod topology;

pub(crate) use affinity::{affinity_of, set_affinity_of};
pub use affinity::{allowed_cpus, avoid_cpus, pin, set_affinity};
pub use off_cpu::OffCpuMeter;
pub use placement::{Placement, Strategy, place_chains};
pub use priority::{SessionPriority, raise_priority};
pub use schedstat::{ThreadTimes, thread_times};
pub use topology::{Topology, node_of_device};
