//! Names of taps.

use config::ChainFile;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The names of ports by that of their tap, which a reload changes.
#[derive(Clone, Default)]
pub(super) struct Taps(Arc<Mutex<HashMap<String, String>>>);

impl Taps {
    /// Replaces the names by those of a file.
    pub(super) fn update(&self, file: &ChainFile) {
        let taps = file.ports.iter().filter_map(|port| Some((port.tap()?.to_owned(), port.name.clone())));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = taps.collect();
    }

    /// Returns the name of the port whose tap has a name, or the name itself.
    pub(super) fn port_of(&self, netdev: String) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&netdev).cloned().unwrap_or(netdev)
    }
}
