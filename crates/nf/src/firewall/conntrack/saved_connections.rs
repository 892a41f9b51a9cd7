//! Connections for the process that replaces this one.

use super::table::{AddressFamily, ConnectionTable, Conntrack};
use crate::saved_flows::{restore, save};
use graph::{InvalidState, StateReader, StateWriter};
use tables::flow::FlowKey;

impl<K: AddressFamily + FlowKey<Packed: AsRef<[u8]> + for<'a> TryFrom<&'a [u8]>>> ConnectionTable<K> {
    fn save(&self, state: &mut StateWriter) {
        save(&self.table, state);
        save(&self.first_fragments, state);
        save(&self.pending_syns, state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        // a key in the other direction would never be found
        let normalized = |key: &K| if key.normalize().1 == 0 { Ok(()) } else { Err(InvalidState) };
        let before = self.table.counters().inserted;
        let result = restore(&mut self.table, state, |key, connection| normalized(key).map(|()| Some(connection)));
        self.restored += self.table.counters().inserted - before;
        result?;
        restore(&mut self.first_fragments, state, |_, first| Ok(Some(first)))?;
        restore(&mut self.pending_syns, state, |key, syn| match syn {
            Some((0 | 1, _)) => normalized(key).map(|()| Some(syn)),
            _ => Err(InvalidState),
        })
    }
}

impl Conntrack {
    /// Writes all connections, the first fragments that have passed, and SYNs within connections.
    pub(crate) fn save(&self, state: &mut StateWriter) {
        self.v4.save(state);
        self.v6.save(state);
    }

    /// Adds what another has saved, while there is room.
    ///
    /// # Errors
    /// The state is not valid.
    pub(crate) fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.v4.restore(state)?;
        self.v6.restore(state)
    }
}
