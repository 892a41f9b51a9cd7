//! NFs in sandboxes.
//!
//! `isolation = "process"`, `"container"` or `"vm"` in a chain file puts NFs in a sandbox. [`SandboxedEngine`] runs a
//! chain file: it starts the sandboxed processes, waits until they are ready, restarts them when they end, and adds
//! their statistics to those of this process. [`run_process`] runs in a process or container, [`run_guest`] in a
//! virtual machine: the same NFs with the same settings on the same runtime, without privileges. [`write_oci_image`]
//! and [`write_vm_image`] write images for other machines.
//!
//! Packets are passed through vhost-user, unless the chain file sets another transport. The host side validates every
//! descriptor, so a sandbox can corrupt nothing but its own memory. Each crossing costs a copy.
#![cfg_attr(not(test), deny(unsafe_code))]

mod cleanup;
mod confinement;
mod container;
mod engine;
mod error;
mod external_switch;
mod guest;
mod image;
mod kernel;
mod launch;
mod line_limit;
mod placement;
mod private_folder;
mod probes;
mod process;
mod sandboxes;
mod starvation;
mod supervisor;
mod vm;

pub use cleanup::RunFolder;
pub use engine::SandboxedEngine;
pub use external_switch::{LISTENING, READY, SwitchSpec, serve_external_switch};
pub use guest::run_guest;
pub use image::program::Program;
pub use image::{ImageContent, SOCKETS, write_oci_image, write_vm_image};
pub use kernel::Kernel;
pub use launch::{EXTERNAL_SWITCH_COMMAND, GUEST_COMMAND, PROCESS_COMMAND};
pub use line_limit::LineLimit;
pub use placement::choose_cpus;
pub use probes::{ProbeTraces, TracedProbes};
pub use process::run_process;
pub use sandboxes::SandboxProbes;
pub use supervisor::printable;
pub use vm::{Accelerator, VmImage, detect_accelerator, measure_boot_time, probe_kvm, standalone_command};
