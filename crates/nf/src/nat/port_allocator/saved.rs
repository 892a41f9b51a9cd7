//! Ports and blocks for the process that replaces this one.

use super::{PortAllocator, Subscriber};
use crate::nat::settings::Allocation;
use graph::{InvalidState, StateReader, StateWriter};
use serde::{Deserialize, Serialize};
use wire::IpProtocol;

/// A subscriber with blocks of ports.
#[derive(Serialize, Deserialize)]
struct SavedSubscriber {
    number: u32,
    /// Its external address.
    external: u32,
    blocks: Vec<u16>,
}

impl PortAllocator {
    /// Writes the blocks of ports. Ports follow from the sessions.
    pub(crate) fn save(&self, state: &mut StateWriter) {
        state.push(&self.random);
        let with_blocks = || self.subscribers.iter().filter(|(_, s)| !s.blocks.is_empty());
        state.push(&with_blocks().count());
        for (number, s) in with_blocks() {
            let external = self.config.external[s.external];
            state.push(&SavedSubscriber { number: *number, external, blocks: s.blocks.clone() });
        }
    }

    /// Adds the blocks that another allocator has saved, without events. Those of subscribers without sessions remain
    /// until [`end_restoration`](Self::end_restoration).
    ///
    /// # Errors
    /// The state is not valid.
    pub(crate) fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        // xorshift stays at 0
        self.random = state.read::<u64>()?.ok_or(InvalidState)?.max(1);
        for _ in 0..state.read::<usize>()?.ok_or(InvalidState)? {
            let SavedSubscriber { number, external, blocks } = state.read()?.ok_or(InvalidState)?;
            let external = self.own_index(external).ok_or(InvalidState)?;
            if self.subscribers.contains_key(&number)
                || self.subscribers.len() >= self.config.subscribers
                || !self.may_have_blocks(number, external, &blocks)
            {
                return Err(InvalidState);
            }
            self.subscribers.insert(number, Subscriber { external, sessions: 0, blocks: vec![] });
            for block in blocks {
                self.take_block(number, external, block).ok_or(InvalidState)?;
            }
        }
        Ok(())
    }

    fn may_have_blocks(&self, subscriber: u32, external: usize, blocks: &[u16]) -> bool {
        match self.config.allocation {
            Allocation::Dynamic => false,
            Allocation::Blocks => blocks.len() <= self.config.max_blocks,
            Allocation::Deterministic => {
                let computed = self.config.deterministic_block(subscriber);
                blocks.iter().all(|block| computed == Some((external, *block)))
            }
        }
    }

    /// Returns the index of an external address of this core.
    pub(crate) fn own_index(&self, external: u32) -> Option<usize> {
        self.config.external_index(external).filter(|n| self.is_own(*n))
    }

    /// Returns true if a subscriber may have a session with this external address and, unless it is `None` for a
    /// forward, this port.
    pub(crate) fn permits(&self, subscriber: u32, external: usize, protocol: u8, port: Option<u16>) -> bool {
        let known = self.subscribers.get(&subscriber);
        let has_room = known.map_or(self.subscribers.len() < self.config.subscribers, |s| s.external == external);
        let has_port = port.is_none_or(|port| match self.config.allocation {
            Allocation::Dynamic => port >= self.config.first_port || protocol == IpProtocol::ICMPV4.0,
            _ => known.zip(self.block_of(port)).is_some_and(|(s, b)| s.blocks.iter().any(|own| usize::from(*own) == b)),
        });
        has_room && has_port
    }

    /// Adds a session that the allocator [permits](Self::permits), without a port.
    pub(crate) fn restore_session(&mut self, subscriber: u32, external: usize) {
        let new = || Subscriber { external, sessions: 0, blocks: vec![] };
        self.subscribers.entry(subscriber).or_insert_with(new).sessions += 1;
    }

    /// Frees the blocks of subscribers none of whose sessions were restored.
    pub(crate) fn end_restoration(&mut self) {
        for (number, gone) in self.subscribers.extract_if(|_, s| s.sessions == 0).collect::<Vec<_>>() {
            gone.blocks.into_iter().for_each(|block| self.free_block(gone.external, block, number));
        }
    }
}
