//! Fragments, which have no ports: they go where the first of their datagram went.

use super::flow::Way;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

/// How long the translation of a datagram is remembered, and how long a fragment waits for the first.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(15);
pub(crate) const WAITS: Duration = Duration::from_secs(2);

/// Datagrams `D` whose first fragment has passed, and what `T` is done to the others. The oldest gives way: whoever sends
/// first fragments from outside needs a session for each.
pub(crate) struct Fragments<D, T> {
    most: usize,
    known: HashMap<(D, bool), (T, u64)>,
    /// In the order in which they came, with a number: one that came again has another.
    order: VecDeque<(Duration, u64, (D, bool))>,
    number: u64,
}

impl<D: Copy + Eq + Hash, T: Copy> Fragments<D, T> {
    pub(crate) fn new(most: usize) -> Self {
        Fragments { most, known: HashMap::default(), order: VecDeque::new(), number: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The first fragment of a datagram was translated.
    pub(crate) fn learn(&mut self, datagram: D, way: Way, t: T, now: Duration) {
        let key = (datagram, way == Way::Out);
        while self.order.len() >= self.most {
            self.forget_oldest();
        }
        self.number += 1;
        self.known.insert(key, (t, self.number));
        self.order.push_back((now, self.number, key));
    }

    fn forget_oldest(&mut self) {
        if let Some((_, number, key)) = self.order.pop_front()
            && self.known.get(&key).is_some_and(|(_, n)| *n == number)
        {
            self.known.remove(&key);
        }
    }

    /// Forgets what was long ago.
    pub(crate) fn age(&mut self, now: Duration) {
        while self.order.front().is_some_and(|(since, ..)| now.saturating_sub(*since) >= REMEMBERED) {
            self.forget_oldest();
        }
    }

    /// The translation of a fragment behind the first.
    pub(crate) fn get(&self, datagram: D, way: Way) -> Option<T> {
        self.known.get(&(datagram, way == Way::Out)).map(|(t, _)| *t)
    }
}
