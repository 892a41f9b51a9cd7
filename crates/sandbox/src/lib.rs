//! NFs behind walls.
//!
//! `isolation = "process"`, `"container"` or `"vm"` in a chain file puts NFs there. [`Walled`] runs a chain file: it starts what is
//! behind walls, waits until it is ready, starts it again when it ends, and adds what it counts to what this process counts. [`host`] is what runs
//! in a process or container, [`guest`] in a virtual machine: the same NFs, with the same settings, on the same runtime, with no
//! rights. [`oci`] and [`vm`](vm()) write images to take elsewhere.
//!
//! Packets go by vhost-user: this side checks every descriptor, so that whatever is done to the rings from behind, it reads and
//! writes nothing but that side's own memory. Each way through a wall costs a copy.
#![forbid(unsafe_code)]

mod cage;
mod calls;
mod cgroup;
mod container;
mod guard;
mod guest;
mod handed;
mod host;
mod hosts;
mod image;
mod initramfs;
mod keeper;
mod order;
mod program;
mod vm;
mod walled;
mod walls;

pub use guest::guest;
pub use host::host;
pub use hosts::{Hops, LISTENS, READY, hosts};
pub use image::{Content, SOCKETS, VmImage, oci, vm};
pub use program::Program;
pub use vm::{Accel, Kernel, accel, time_to_init, vm_command};
pub use walled::Walled;
use walls::Walls;
pub use walls::places;

/// The subcommand by which the program runs as the process behind a wall.
pub const HOST: &str = "wall-host";
/// The subcommand by which the program runs as the first of a guest.
pub const GUEST: &str = "wall-guest";

/// The subcommand by which the program runs all that is behind the walls of a file, for a switch of others.
pub const HOSTS: &str = "wall-hosts";

/// What this machine or user lacks.
fn lacks(problem: impl Into<String>, remedy: impl Into<String>) -> runtime::Error {
    runtime::Error::Environment { problem: problem.into(), remedy: remedy.into() }
}
