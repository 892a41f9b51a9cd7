//! Translation of fragments: later fragments have no ports and are translated like the first one of their datagram.

use super::flow::Direction;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

/// Time for which the translation of a datagram is kept.
const LIFETIME: Duration = Duration::from_secs(15);

/// Translations `T` of the datagrams `D` whose first fragment was translated. When the table is full, the oldest entry
/// is removed; a first fragment from outside is entered only if it belongs to a session.
pub(crate) struct FragmentTable<D, T> {
    capacity: usize,
    entries: HashMap<(D, bool), (T, u64)>,
    /// Insertion time, generation and key, oldest first. A key that is inserted again gets a new generation.
    order: VecDeque<(Duration, u64, (D, bool))>,
    generation: u64,
}

impl<D: Copy + Eq + Hash, T: Copy> FragmentTable<D, T> {
    pub(crate) fn new(capacity: usize) -> Self {
        FragmentTable { capacity, entries: HashMap::default(), order: VecDeque::new(), generation: 0 }
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Stores the translation of a datagram.
    pub(crate) fn insert(&mut self, datagram: D, direction: Direction, t: T, now: Duration) {
        let key = (datagram, direction == Direction::Outbound);
        while self.order.len() >= self.capacity {
            self.remove_oldest();
        }
        self.generation += 1;
        self.entries.insert(key, (t, self.generation));
        self.order.push_back((now, self.generation, key));
    }

    fn remove_oldest(&mut self) {
        if let Some((_, generation, key)) = self.order.pop_front()
            && self.entries.get(&key).is_some_and(|(_, n)| *n == generation)
        {
            self.entries.remove(&key);
        }
    }

    /// Removes entries older than [`LIFETIME`].
    pub(crate) fn expire(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(since, ..)| now.saturating_sub(*since) >= LIFETIME) {
            self.remove_oldest();
        }
    }

    /// Returns the translation of a later fragment.
    pub(crate) fn get(&self, datagram: D, direction: Direction) -> Option<T> {
        self.entries.get(&(datagram, direction == Direction::Outbound)).map(|(t, _)| *t)
    }
}
