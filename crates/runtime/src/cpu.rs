//! CPUs: affinity, NUMA topology, and the placement of chains.

mod affinity;
mod placement;
mod topology;

pub use affinity::{allowed_cpus, pin, raise_priority, set_affinity};
pub use placement::{Placement, Strategy, place_chains};
pub use topology::{Topology, node_of_device};
