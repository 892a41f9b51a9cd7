//! The way from the writer to one reader.

use super::super::Hasher;
use super::super::table::Table;
use core::hash::Hash;
use std::collections::VecDeque;
use tables::handoff::{Giver, Parcel, Parcels, Taker};

/// A key and its new value, or none if it was removed.
pub(super) type Update<K, V> = (K, Option<V>);

/// What a reader is handed.
pub(super) struct Delta<K, V> {
    /// Updates that there were in all when it was made.
    pub(super) version: u64,
    /// A copy of everything, which takes the place of what the reader has; on the way back, a table to be used again.
    pub(super) full: Option<Table<K, V>>,
    /// What has changed since.
    pub(super) updates: Vec<Update<K, V>>,
}

/// A copy of everything in the making.
struct Copying<K, V> {
    table: Table<K, V>,
    /// The entries of slots below this are in it, and no others.
    next: usize,
    /// What the slots are of.
    layout: u64,
}

/// One reader, as the writer sees it.
pub(super) struct Link<K, V> {
    deltas: Giver<Delta<K, V>>,
    spent: Taker<Delta<K, V>>,
    /// Deltas that have come back, as they came, longest here first.
    back: VecDeque<Parcels<Delta<K, V>>>,
    /// Deltas to be used again, with nothing in them.
    spare: Parcels<Delta<K, V>>,
    /// Tables to be used again.
    tables: Vec<Table<K, V>>,
    copying: Option<Copying<K, V>>,
    /// It has had a copy of everything, or there was nothing to copy: deltas will do from now on.
    pub(super) joined: bool,
    /// Updates in its pile, as far as is known: when it was last given some, with those.
    pub(super) waiting: usize,
    /// Deltas and tables allocated for it.
    pub(super) made: (usize, usize),
}

impl<K: Hash + Eq + Clone, V: Clone> Link<K, V> {
    /// The tables it can need besides the reader's own are made here, by who makes the reader: the writer never makes
    /// one.
    pub(super) fn new(deltas: Giver<Delta<K, V>>, spent: Taker<Delta<K, V>>, capacity: usize, hasher: &Hasher) -> Self {
        Link {
            deltas,
            spent,
            back: VecDeque::with_capacity(4),
            spare: Parcels::default(),
            tables: (0..2).map(|_| Table::new(capacity, hasher.clone())).collect(),
            copying: None,
            joined: false,
            waiting: 0,
            made: (0, 2),
        }
    }

    /// Tells a reader that it has all there is.
    pub(super) fn greet(&mut self, version: u64) {
        let mut delta = self.fresh();
        delta.version = version;
        // if it has left, that shows at the next delta
        drop(self.deltas.push(delta));
    }

    /// Begins a copy of everything, unless one is in the making.
    pub(super) fn copy(&mut self, capacity: usize, original: &Table<K, V>) {
        if self.copying.is_none() {
            let mut table = self.tables.pop().unwrap_or_else(|| {
                self.made.1 += 1;
                Table::new(capacity, original.hasher().clone())
            });
            table.clear();
            self.copying = Some(Copying { table, next: 0, layout: original.layout() });
        }
    }

    #[inline(always)]
    pub(super) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    /// Keeps a copy in the making right: an entry in this slot of the original has this value from now on, or is gone.
    pub(super) fn keep(&mut self, slot: usize, hash: u64, key: &K, value: Option<&V>) {
        let Some(Copying { table, next, .. }) = &mut self.copying else { return };
        if slot < *next {
            follow(table, hash, key.clone(), value.cloned());
        }
    }

    /// Copies the entries of some more slots, if a copy is in the making.
    pub(super) fn step(&mut self, original: &Table<K, V>, slots: usize) {
        let Some(Copying { table, next, layout }) = &mut self.copying else { return };
        if !original.is_settled() {
            return;
        }
        if *layout != original.layout() {
            // what was in those slots is in others now
            table.clear();
            (*next, *layout) = (0, original.layout());
        }
        let to = next.saturating_add(slots).min(original.slots());
        for slot in *next..to {
            if let Some((key, value)) = original.in_slot(slot) {
                table.insert(table.hash(key), key.clone(), value.clone());
            }
        }
        *next = to;
    }

    fn is_copied(&self, original: &Table<K, V>) -> bool {
        self.copying.as_ref().is_some_and(|copying| {
            original.is_settled() && copying.layout == original.layout() && copying.next == original.slots()
        })
    }

    /// Hands over the copy of everything if it is ready, the updates otherwise. False if the reader has left.
    pub(super) fn give(&mut self, original: &Table<K, V>, version: u64, updates: &[Update<K, V>]) -> bool {
        if self.is_copied(original)
            && let Some(Copying { table, .. }) = self.copying.take()
        {
            let mut delta = self.fresh();
            (delta.version, delta.full) = (version, Some(table));
            let Ok(old) = self.deltas.replace(delta) else { return false };
            self.back.push_back(old);
            (self.joined, self.waiting) = (true, 0);
            return true;
        }
        if !self.joined || updates.is_empty() {
            return self.deltas.is_open();
        }
        let mut delta = self.fresh();
        delta.version = version;
        delta.updates.extend_from_slice(updates);
        match self.deltas.push(delta) {
            Ok(true) => self.waiting += updates.len(),
            Ok(false) => {
                self.waiting = updates.len();
                // it has caught up
                self.tables.extend(self.copying.take().map(|copying| copying.table));
            }
            Err(_) => return false,
        }
        true
    }

    /// A delta with nothing in it.
    fn fresh(&mut self) -> Parcel<Delta<K, V>> {
        if self.back.is_empty() && self.spent.is_waiting() {
            self.back.push_back(self.spent.take());
        }
        // Twice as many as are used: a long list has been cleared out before the next one comes, and at any call only
        // little of it. A table lies at its end.
        for _ in 0..2 {
            let Some(list) = self.back.front_mut() else { break };
            match list.next() {
                Some(mut delta) => {
                    self.tables.extend(delta.full.take());
                    delta.updates.clear();
                    self.spare.push(delta);
                }
                None => drop(self.back.pop_front()),
            }
        }
        self.spare.next().unwrap_or_else(|| {
            self.made.0 += 1;
            Parcel::new(Delta { version: 0, full: None, updates: Vec::new() })
        })
    }
}

/// Does what was done to another table.
#[inline(always)]
pub(super) fn follow<K: Hash + Eq, V>(table: &mut Table<K, V>, hash: u64, key: K, value: Option<V>) {
    match value {
        Some(value) => match table.find_mut(hash, &key) {
            Some(there) => *there = value,
            None => drop(table.insert(hash, key, value)),
        },
        None => drop(table.remove(hash, &key)),
    }
}
