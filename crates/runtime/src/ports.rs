//! Ports: devices, captures, rings, and software steering.

mod capture;
mod core_ring;
mod device;
mod existing_taps;
mod external;
pub(crate) mod io;
mod nic;
mod representor;
mod shared_ring;
mod shuffle;
mod steering;
mod tap_descriptor;
mod wires;

pub(crate) use capture::{CaptureReader, CaptureWriter, first_link_type};
pub(crate) use device::{
    PortMonitor, SharedTx, buffers_kept_by_driver, claim_socket, driver_arguments, enter_namespace, missing, note,
    remedy, too_short,
};
pub use device::{missing_device, missing_devices};
pub(crate) use existing_taps::ExistingTaps;
pub use external::ExternalPorts;
pub use io::{LinkStats, PortDrop, PortQueues, Receive, RxPort, SharedQueue, SourceKind, Transmit, TxPort};
pub use nic::Nic;
pub(crate) use representor::{RepresentorTap, Representors, UnconfiguredRepresentors};
pub(crate) use shared_ring::{RingEnds, SharedRings};
pub use shuffle::shuffle_link;
pub(crate) use shuffle::shuffle_rings;
pub(crate) use steering::{SteeringKey, steer};
pub(crate) use wires::JoinedWires;
pub use wires::Wires;
