//! Programs of devices: command lines, child processes, containers and their clean-up.

mod cleanup;
mod command_line;
mod container;
mod leftovers;
mod program;
mod run_delays;

pub(crate) use cleanup::start_cleanup;
pub(crate) use command_line::CommandLine;
pub(crate) use container::{Container, ContainerOptions, remark as container_remark};
pub(crate) use leftovers::remove_leftovers;
pub(crate) use program::Program;
pub(crate) use run_delays::RunDelays;
