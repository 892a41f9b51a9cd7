//! Interfaces that were made here.

use super::program::Line;

/// Interfaces that go with this, and with them the other ends of veth pairs.
#[derive(Default)]
pub(crate) struct Links(pub(crate) Vec<String>);

impl Drop for Links {
    fn drop(&mut self) {
        for name in &self.0 {
            Line::new("ip").args(["link", "del", name]).succeeds();
        }
    }
}
