//! Devices under test that are other programs: how each is started, configured, asked whether it is ready, and stopped.
//!
//! A driver is one file. It is told of a [`Site`], a folder and CPUs of its own; it starts its programs and names
//! the devices that the generator opens, and everything that it made is gone when it is stopped or dropped, also
//! after `kill -9` of this program: its programs die with it, interfaces live in network namespaces that no file holds, and
//! folders of the dead are removed by whoever comes next. What has to be undone, a container or an interface that was lent, is
//! undone by a shell that waits for the end of this program.
//!
//! To add one: a file here with a type that implements [`Driver`], and a line in [`Kind`].

mod agent;
mod attach;
mod behind;
mod bondstone;
mod bridge;
mod command;
mod container;
mod eal;
mod external;
mod given;
mod guard;
mod link;
mod links;
mod message;
mod namespace;
mod ovs;
mod plan;
mod program;
mod remote;
mod rhythm;
mod router;
mod running;
mod site;
mod testpmd;
mod vpp;
mod wire;

pub use agent::agent;
pub(crate) use eal::memory;
pub use plan::{ChainText, Elsewhere, Env, Forward, Hooks, Kind, Plan, Ports};
pub(crate) use program::{Line, Program};
pub use running::{About, Running};
pub use site::{SentTo, Site};

use crate::bed::{Act, Acted};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Why a device under test does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{dut}: {problem}\n  help: {remedy}")]
pub struct DutError {
    /// Which.
    pub dut: String,
    /// What is wrong.
    pub problem: String,
    /// What mends it.
    pub remedy: String,
}

/// This program.
fn own_program(site: &Site) -> Result<PathBuf, DutError> {
    std::env::current_exe().map_err(|e| site.wrong(format!("own program: {e}"), "start it by its path"))
}

/// A device under test.
///
/// A driver starts it and may do something to it; that it still runs, and its end, are [`Running`]'s.
pub trait Driver {
    /// Starts the device and configures it; it forwards as soon as the generator has opened its ports.
    ///
    /// # Errors
    /// What this machine or this user lacks, or what the device refused, with what it said.
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError>;

    /// What helps where it cannot be done to this device; none where it can.
    fn cannot(&self, act: Act) -> Option<&'static str> {
        let _ = act;
        Some("measure it by another method, or drive it by commands of your own: kind = \"command\"")
    }

    /// Does something to it from the first packet of a trial on, until that is done or `stop` is set.
    ///
    /// # Errors
    /// When it fails.
    fn act(&mut self, running: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let _ = (running, act, stop);
        Err(site.wrong("nothing can be done to it", "a bug in Bondstone"))
    }
}
