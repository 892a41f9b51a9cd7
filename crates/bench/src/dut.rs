//! Devices under test: a chain in this process, or another program that a driver starts and stops.
//!
//! A driver is one file in `drivers` and one line in [`registry`]. It gets a [`DutContext`] with a work directory and
//! CPUs, starts its programs and names the devices that the generator opens. Everything it creates is removed when the
//! [`StartedDevice`] is dropped, and also after `kill -9` of this process: programs are killed by the kernel,
//! interfaces live in anonymous network namespaces, cleanup processes undo what is left, and the next run removes stale
//! work directories.

mod context;
mod driver;
mod drivers;
mod external_dut;
mod in_process;
mod network;
mod process;
pub mod registry;
mod remote;
mod running_dut;
mod spec;
mod started;

pub use self::remote::agent;
pub use context::{Description, DutContext, DutError, ExpectedTraffic};
pub use driver::{Device, Driver};
pub(crate) use drivers::memory_arguments;
pub use external_dut::{ExternalDut, ExternalDutError};
pub use in_process::{InProcessDut, QUEUE_SIZE};
pub(crate) use in_process::{entry_ports, single_port_error};
pub(crate) use process::{CommandLine, Program};
pub use running_dut::{DutMeasurer, RunningDut};
pub use spec::{ChainText, CustomCommands, DutSpec, Env, Forward, Ports};
pub use started::StartedDevice;
