//! Interfaces that were created on the host.

use crate::dut::process::CommandLine;

/// Names of interfaces that are deleted on drop, with their veth peers.
#[derive(Default)]
pub(crate) struct Links(pub(crate) Vec<String>);

impl Drop for Links {
    fn drop(&mut self) {
        for name in &self.0 {
            CommandLine::new("ip").args(["link", "del", name]).succeeds();
        }
    }
}
