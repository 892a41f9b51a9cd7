//! Fragments, which have no ports: they go where the first of their datagram went.

use crate::nat44::flow::Way;
use foldhash::HashMap;
use graph::{Context, HoldQueue};
use packet::{BURST, Packet};
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

/// How long the translation of a datagram is remembered, and how long a fragment waits for the first.
const REMEMBERED: Duration = Duration::from_secs(15);
pub(crate) const WAITS: Duration = Duration::from_secs(2);
/// Fragments that wait at most, for each core.
pub(crate) const WAITING: usize = 128;

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

/// Fragments of datagrams `D` that came before the one that says what becomes of them: at most [`WAITING`], each for
/// [`WAITS`].
pub(crate) struct Waiting<D> {
    held: HoldQueue,
    /// Of each that is held.
    notes: VecDeque<(Duration, u8, D)>,
    /// Datagrams of which something has come that others may wait for.
    come: Vec<D>,
}

/// A fragment that has waited: on which path and by which input it came, and when.
pub(crate) struct Waited {
    pub(crate) way: graph::PathId,
    pub(crate) input: u8,
    pub(crate) since: Duration,
    pub(crate) packet: Packet,
}

impl<D: Copy + Eq> Waiting<D> {
    pub(crate) fn new() -> Self {
        Waiting { held: HoldQueue::new(WAITING), notes: VecDeque::new(), come: vec![] }
    }

    /// Keeps a fragment.
    ///
    /// # Errors
    /// The packet, where there is no room or it has waited too long.
    pub(crate) fn keep(&mut self, cx: &mut Context<'_>, waited: Waited, datagram: D) -> Result<(), Packet> {
        let Waited { way, input, since, packet } = waited;
        if cx.now().saturating_sub(since) >= WAITS {
            return Err(packet);
        }
        cx.hold_from(way, &mut self.held, packet)?;
        self.notes.push_back((since, input, datagram));
        Ok(())
    }

    /// Something of a datagram has come for which others may wait, be it since this batch.
    pub(crate) fn come(&mut self, datagram: D) {
        if self.come.len() < BURST {
            self.come.push(datagram);
        }
    }

    /// Takes out those that waited for what has come since the last call, in their order.
    #[inline]
    pub(crate) fn ready(&mut self, cx: &mut Context<'_>) -> Vec<Waited> {
        if self.come.is_empty() { vec![] } else { self.sort_out(cx) }
    }

    #[cold]
    fn sort_out(&mut self, cx: &mut Context<'_>) -> Vec<Waited> {
        let mut ready = vec![];
        if self.notes.iter().any(|(.., datagram)| self.come.contains(datagram)) {
            for _ in 0..self.notes.len() {
                let Some((waited, datagram)) = self.first(cx) else { break };
                if self.come.contains(&datagram) {
                    ready.push(waited);
                } else {
                    // the place is the one that it has just left
                    let back = cx.hold_from(waited.way, &mut self.held, waited.packet);
                    debug_assert!(back.is_ok());
                    self.notes.push_back((waited.since, waited.input, datagram));
                }
            }
        }
        self.come.clear();
        ready
    }

    /// Drops those that have waited too long.
    pub(crate) fn give_up(&mut self, cx: &mut Context<'_>, reason: u8) {
        while self.notes.front().is_some_and(|(since, ..)| cx.now().saturating_sub(*since) >= WAITS)
            && let Some((waited, _)) = self.first(cx)
        {
            cx.drop(reason, waited.packet);
        }
    }

    fn first(&mut self, cx: &mut Context<'_>) -> Option<(Waited, D)> {
        let ((way, packet), (since, input, datagram)) = (cx.release(&mut self.held)?, self.notes.pop_front()?);
        Some((Waited { way, input, since, packet }, datagram))
    }
}
