//! A queue for fragments that arrive before the first fragment of their datagram.

use graph::{Context, HoldQueue, Numbered};
use packet::{BURST, Packet};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time that a fragment is held.
const HOLD_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest number of held fragments per core.
const QUEUE_LEN: usize = 128;

/// Fragments that arrived before the fragment that their treatment depends on: at most [`QUEUE_LEN`], each for at most
/// [`HOLD_TIMEOUT`]. `D` identifies a datagram.
pub(crate) struct FragmentQueue<D> {
    held: HoldQueue,
    /// Arrival time, input and datagram of each held packet, in the same order.
    entries: VecDeque<(Duration, u8, D)>,
    /// Datagrams of which an awaited fragment arrived since the last [`take_ready`](Self::take_ready).
    arrived: Vec<D>,
}

/// A held fragment with the path and input on which it arrived, and the time.
pub(crate) struct HeldFragment {
    pub(crate) path: graph::PathId,
    pub(crate) input: u8,
    pub(crate) since: Duration,
    pub(crate) packet: Packet,
}

impl<D: Copy + Eq> FragmentQueue<D> {
    pub(crate) fn new() -> Self {
        FragmentQueue { held: HoldQueue::new(QUEUE_LEN), entries: VecDeque::new(), arrived: vec![] }
    }

    /// Queues a fragment.
    ///
    /// # Errors
    /// Returns the packet if the queue is full or the packet has already been held for [`HOLD_TIMEOUT`].
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, held: HeldFragment, datagram: D) -> Result<(), Packet> {
        let HeldFragment { path, input, since, packet } = held;
        if cx.now().saturating_sub(since) >= HOLD_TIMEOUT {
            return Err(packet);
        }
        cx.hold_on_path(path, &mut self.held, packet)?;
        self.entries.push_back((since, input, datagram));
        Ok(())
    }

    /// Records that a fragment arrived on which held fragments of the datagram may depend.
    pub(crate) fn mark_arrived(&mut self, datagram: D) {
        if self.arrived.len() < BURST {
            self.arrived.push(datagram);
        }
    }

    /// Removes and returns, in order, the fragments whose datagram was marked since the last call.
    #[inline]
    pub(crate) fn take_ready(&mut self, cx: &mut Context<'_>) -> Vec<HeldFragment> {
        if self.arrived.is_empty() { vec![] } else { self.take_arrived(cx) }
    }

    #[cold]
    fn take_arrived(&mut self, cx: &mut Context<'_>) -> Vec<HeldFragment> {
        let mut ready = vec![];
        if self.entries.iter().any(|(.., datagram)| self.arrived.contains(datagram)) {
            for _ in 0..self.entries.len() {
                let Some((held, datagram)) = self.pop(cx) else { break };
                if self.arrived.contains(&datagram) {
                    ready.push(held);
                } else {
                    // the slot was freed a moment ago
                    let back = cx.hold_on_path(held.path, &mut self.held, held.packet);
                    debug_assert!(back.is_ok());
                    self.entries.push_back((held.since, held.input, datagram));
                }
            }
        }
        self.arrived.clear();
        ready
    }

    /// Drops the fragments that were held for [`HOLD_TIMEOUT`].
    pub(crate) fn drop_expired(&mut self, cx: &mut Context<'_>, reason: impl Numbered) {
        while self.entries.front().is_some_and(|(since, ..)| cx.now().saturating_sub(*since) >= HOLD_TIMEOUT)
            && let Some((held, _)) = self.pop(cx)
        {
            cx.drop(reason, held.packet);
        }
    }

    fn pop(&mut self, cx: &mut Context<'_>) -> Option<(HeldFragment, D)> {
        let ((path, packet), (since, input, datagram)) = (cx.release(&mut self.held)?, self.entries.pop_front()?);
        Some((HeldFragment { path, input, since, packet }, datagram))
    }
}
