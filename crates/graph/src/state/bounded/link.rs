//! The connection from the writer to one reader.

use super::super::Hasher;
use super::super::table::Table;
use core::hash::Hash;
use std::collections::VecDeque;
use tables::message_queue::{Message, MessageList, Receiver, Sender};

/// A key and its new value, or `None` if it was removed.
pub(super) type Update<K, V> = (K, Option<V>);

/// A message to a reader.
pub(super) struct Delta<K, V> {
    /// Number of updates of the map when it was sent.
    pub(super) version: u64,
    /// A full copy, which replaces the table of the reader; on return to the writer, a table to reuse.
    pub(super) full: Option<Table<K, V>>,
    /// Updates to apply.
    pub(super) updates: Vec<Update<K, V>>,
}

/// A full copy in progress.
struct TableCopy<K, V> {
    table: Table<K, V>,
    /// First slot that is not copied.
    next: usize,
    /// Generation of the table that the slots refer to.
    generation: u64,
}

/// The state that the writer keeps for a reader.
pub(super) struct ReaderLink<K, V> {
    deltas: Sender<Delta<K, V>>,
    returned: Receiver<Delta<K, V>>,
    /// Lists of returned deltas, oldest first.
    returned_lists: VecDeque<MessageList<Delta<K, V>>>,
    /// Empty deltas for reuse.
    free_deltas: MessageList<Delta<K, V>>,
    /// Tables for reuse.
    free_tables: Vec<Table<K, V>>,
    copying: Option<TableCopy<K, V>>,
    /// True once the reader has a full copy or needed none, so that updates are enough.
    pub(super) synced: bool,
    /// Updates in its queue when the last ones were sent.
    pub(super) backlog: usize,
    /// Numbers of deltas and tables allocated for it.
    pub(super) allocated: (usize, usize),
}

impl<K: Hash + Eq + Clone, V: Clone> ReaderLink<K, V> {
    /// Allocates the tables that full copies need, so that the writer does not have to.
    pub(super) fn new(
        deltas: Sender<Delta<K, V>>,
        returned: Receiver<Delta<K, V>>,
        capacity: usize,
        hasher: &Hasher,
    ) -> Self {
        ReaderLink {
            deltas,
            returned,
            returned_lists: VecDeque::with_capacity(4),
            free_deltas: MessageList::default(),
            free_tables: (0..2).map(|_| Table::new(capacity, hasher.clone())).collect(),
            copying: None,
            synced: false,
            backlog: 0,
            allocated: (0, 2),
        }
    }

    /// Sends the version to a reader that has all entries.
    pub(super) fn send_version(&mut self, version: u64) {
        let mut delta = self.take_delta();
        delta.version = version;
        // a dropped reader is noticed at the next delta
        drop(self.deltas.push(delta));
    }

    /// Starts a full copy unless one is in progress.
    pub(super) fn start_copy(&mut self, capacity: usize, original: &Table<K, V>) {
        if self.copying.is_none() {
            let mut table = self.free_tables.pop().unwrap_or_else(|| {
                self.allocated.1 += 1;
                Table::new(capacity, original.hasher().clone())
            });
            table.clear();
            self.copying = Some(TableCopy { table, next: 0, generation: original.generation() });
        }
    }

    #[inline(always)]
    pub(super) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Applies an update of the entry in this slot of the original to a full copy in progress.
    pub(super) fn update_copy(&mut self, slot: usize, hash: u64, key: &K, value: Option<&V>) {
        let Some(TableCopy { table, next, .. }) = &mut self.copying else { return };
        if slot < *next {
            apply_update(table, hash, key.clone(), value.cloned());
        }
    }

    /// Continues a full copy in progress by `slots` slots.
    pub(super) fn copy_slots(&mut self, original: &Table<K, V>, slots: usize) {
        let Some(TableCopy { table, next, generation }) = &mut self.copying else { return };
        if !original.is_stable() {
            return;
        }
        if *generation != original.generation() {
            // entries have moved to other slots
            table.clear();
            (*next, *generation) = (0, original.generation());
        }
        let to = next.saturating_add(slots).min(original.slots());
        for slot in *next..to {
            if let Some((key, value)) = original.slot_entry(slot) {
                table.insert(table.hash(key), key.clone(), value.clone());
            }
        }
        *next = to;
    }

    fn is_copy_complete(&self, original: &Table<K, V>) -> bool {
        self.copying.as_ref().is_some_and(|copying| {
            original.is_stable() && copying.generation == original.generation() && copying.next == original.slots()
        })
    }

    /// Sends the full copy if it is complete, otherwise the updates. Returns false if the reader was dropped.
    pub(super) fn send(&mut self, original: &Table<K, V>, version: u64, updates: &[Update<K, V>]) -> bool {
        if self.is_copy_complete(original)
            && let Some(TableCopy { table, .. }) = self.copying.take()
        {
            let mut delta = self.take_delta();
            (delta.version, delta.full) = (version, Some(table));
            let Ok(old) = self.deltas.replace(delta) else { return false };
            self.returned_lists.push_back(old);
            (self.synced, self.backlog) = (true, 0);
            return true;
        }
        if !self.synced || updates.is_empty() {
            return self.deltas.is_open();
        }
        let mut delta = self.take_delta();
        delta.version = version;
        delta.updates.extend_from_slice(updates);
        match self.deltas.push(delta) {
            Ok(true) => self.backlog += updates.len(),
            Ok(false) => {
                self.backlog = updates.len();
                // the queue was empty: the reader has caught up
                self.free_tables.extend(self.copying.take().map(|copying| copying.table));
            }
            Err(_) => return false,
        }
        true
    }

    /// Returns an empty delta.
    fn take_delta(&mut self) -> Message<Delta<K, V>> {
        if self.returned_lists.is_empty() && self.returned.is_waiting() {
            self.returned_lists.push_back(self.returned.take());
        }
        // Recycles two for each one used, so that a long list is recycled before the next one arrives, with little work
        // in any call. A table is at the end of the list.
        for _ in 0..2 {
            let Some(list) = self.returned_lists.front_mut() else { break };
            match list.next() {
                Some(mut delta) => {
                    self.free_tables.extend(delta.full.take());
                    delta.updates.clear();
                    self.free_deltas.push(delta);
                }
                None => drop(self.returned_lists.pop_front()),
            }
        }
        self.free_deltas.next().unwrap_or_else(|| {
            self.allocated.0 += 1;
            Message::new(Delta { version: 0, full: None, updates: Vec::new() })
        })
    }
}

/// Applies an update to a table.
#[inline(always)]
pub(super) fn apply_update<K: Hash + Eq, V>(table: &mut Table<K, V>, hash: u64, key: K, value: Option<V>) {
    match value {
        Some(value) => match table.find_mut(hash, &key) {
            Some(current) => *current = value,
            None => drop(table.insert(hash, key, value)),
        },
        None => drop(table.remove(hash, &key)),
    }
}
