//! Devices under test that are other programs: how each is started, configured, asked whether it is ready, and stopped.
//!
//! A driver is one file. It is told of a [`Site`], a folder and CPUs of its own; it starts its programs and names
//! the devices that the generator opens, and everything that it made is gone when it is stopped or dropped, also
//! after `kill -9` of this program: its programs die with it, interfaces live in network namespaces that no file holds, and
//! folders of the dead are removed by whoever comes next.
//!
//! To add one: a file here with a type that implements [`Driver`], and a line in [`Kind`].

mod attach;
mod bondstone;
mod bridge;
mod command;
mod external;
mod namespace;
mod ovs;
mod plan;
mod program;
mod rhythm;
mod router;
mod site;
mod testpmd;
mod wire;

pub use plan::{ChainText, Forward, Hooks, Kind, Plan, Ports};
pub use site::{SentTo, Site};

use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;

/// Why a device under test does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{dut}: {problem}\n  cure: {cure}")]
pub struct DutError {
    /// Which.
    pub dut: String,
    /// What is wrong.
    pub problem: String,
    /// What mends it.
    pub cure: String,
}

/// What a result says of a running device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its version, as it says itself.
    pub version: Option<String>,
    /// Its whole configuration: commands, arguments, files.
    pub configuration: String,
    /// What a reader of a result has to know of it.
    pub remarks: Vec<String>,
}

/// A device that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The devices that the generator has to open, in the order of the ports, written as in a chain file.
    pub devices: Vec<String>,
    /// What a result says of it.
    pub about: About,
}

/// A device under test.
pub trait Driver {
    /// Starts the device and configures it; it forwards as soon as the generator has opened its ports.
    ///
    /// # Errors
    /// What this machine or this user lacks, or what the device refused, with what it said.
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError>;

    /// Whether it still runs.
    ///
    /// # Errors
    /// How it ended, with what it said last.
    fn check(&mut self) -> Result<(), DutError> {
        Ok(())
    }

    /// What helps where it cannot be done to this device; none where it can.
    fn cannot(&self, act: Act) -> Option<&'static str> {
        let _ = act;
        Some("measure it by another method, or drive it by commands of your own: kind = \"command\"")
    }

    /// Does something to it from the first packet of a trial on, until that is done or `stop` is set.
    ///
    /// # Errors
    /// When it fails.
    fn act(&mut self, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let _ = (act, stop);
        Err(site.wrong("nothing can be done to it", "a bug in Bondstone"))
    }

    /// Stops it; what it made is gone.
    fn stop(&mut self);
}
