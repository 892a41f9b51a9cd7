//! Allocation of the ports of external addresses, singly or in blocks.

mod saved;

use super::config::Config;
use super::flow::hash_to_index;
use super::log::record::BlockEvent;
use super::settings::Allocation;
use crate::random;
use foldhash::HashMap;
use std::sync::Arc;
use wire::IpProtocol;

/// Words of a bitmap of ports.
const BITMAP_WORDS: usize = 65_536 / 64;
/// A new subscriber prefers an external address with fewer allocated ports than this.
const PREFERRED_PORT_LIMIT: u32 = 48_000;
/// Mask of the even ports in a word.
const EVEN_PORTS: u64 = 0x5555_5555_5555_5555;

/// Reason for which nothing was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AllocationError {
    /// The subscriber has its largest number of sessions.
    SessionLimit,
    /// The largest number of subscribers is reached.
    SubscriberLimit,
    /// All ports of the subscriber are in use, and it cannot get another block.
    NoPort,
}

/// Ports in use of an address and protocol.
#[derive(Clone)]
struct PortBitmap(Box<[u64; BITMAP_WORDS]>);

impl PortBitmap {
    fn new() -> Self {
        PortBitmap(Box::new([0; BITMAP_WORDS]))
    }

    fn has(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] >> (port & 63) & 1 != 0
    }

    fn set(&mut self, port: u16, on: bool) {
        let (word, bit) = (&mut self.0[usize::from(port >> 6)], 1 << (port & 63));
        if on { *word |= bit } else { *word &= !bit }
    }

    /// Returns the first free port of the given parity from `from` to `last`, both included.
    fn free(&self, from: u16, last: u16, odd: bool) -> Option<u16> {
        let parity = if odd { EVEN_PORTS << 1 } else { EVEN_PORTS };
        (from >> 6..=last >> 6).find_map(|word| {
            let mut free = !self.0[usize::from(word)] & parity;
            if word == from >> 6 {
                free &= u64::MAX << (from & 63);
            }
            if word == last >> 6 {
                free &= u64::MAX >> (63 - (last & 63));
            }
            (free != 0).then(|| (word << 6) + free.trailing_zeros() as u16)
        })
    }
}

/// An external address.
struct ExternalAddress {
    address: u32,
    /// For TCP, UDP and ICMP; allocated with the first port.
    taken: [Option<PortBitmap>; 3],
    /// Number of ports of all three protocols that are allocated exclusively.
    ports: u32,
    /// For each block the number of uses of its ports, `None` if the block is free.
    blocks: Vec<Option<u32>>,
    free_blocks: usize,
}

/// A subscriber that has sessions.
struct Subscriber {
    /// Index of its external address.
    external: usize,
    sessions: u32,
    blocks: Vec<u16>,
}

/// Returns the index of a protocol in [`ExternalAddress::taken`].
fn protocol_index(protocol: u8) -> usize {
    match IpProtocol(protocol) {
        IpProtocol::TCP => 0,
        IpProtocol::UDP => 1,
        _ => 2,
    }
}

/// The port allocator of one core.
pub(crate) struct PortAllocator {
    config: Arc<Config>,
    /// By index of the external address; `None` for those of other cores.
    external: Vec<Option<ExternalAddress>>,
    own: Vec<usize>,
    subscribers: HashMap<u32, Subscriber>,
    random: u64,
    blocks_in_use: u64,
    ports_in_use: u64,
    events: Vec<BlockEvent>,
    /// True while subscribers may have another external address than forwards require.
    rebinding: bool,
}

impl PortAllocator {
    pub(crate) fn new(config: Arc<Config>, own: Vec<usize>, seed: u64) -> Self {
        let blocks = config.blocks() as usize;
        let external = |n: usize| ExternalAddress {
            address: config.external[n],
            taken: [const { None }; 3],
            ports: 0,
            blocks: vec![None; blocks],
            free_blocks: blocks,
        };
        let all = (0..config.external.len()).map(|n| own.contains(&n).then(|| external(n))).collect();
        PortAllocator {
            config,
            external: all,
            own,
            subscribers: HashMap::default(),
            random: seed | 1,
            blocks_in_use: 0,
            ports_in_use: 0,
            events: vec![],
            rebinding: false,
        }
    }

    /// Changes settings that no allocation depends on.
    pub(crate) fn set_config(&mut self, config: &Arc<Config>) {
        self.config = config.clone();
    }

    /// Refuses sessions to subscribers that have another external address than forwards require, until all their sessions
    /// have ended.
    pub(crate) fn set_rebinding(&mut self, rebinding: bool) {
        self.rebinding = rebinding;
    }

    /// Returns 48 random bits; the seed makes the first port of a search unpredictable.
    fn random(&mut self) -> u64 {
        random::next(&mut self.random) >> 16
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    pub(crate) fn blocks_in_use(&self) -> u64 {
        self.blocks_in_use
    }

    /// Returns the number of ports allocated exclusively, that is, of mappings that all sessions of an inside port
    /// share.
    pub(crate) fn ports_in_use(&self) -> u64 {
        self.ports_in_use
    }

    /// Drains the blocks that were allocated or freed since the last call.
    pub(crate) fn events(&mut self) -> std::vec::Drain<'_, BlockEvent> {
        self.events.drain(..)
    }

    /// Returns the subscribers with the most sessions: address, external address, sessions, blocks.
    pub(crate) fn top_subscribers(&self, limit: usize) -> Vec<(u32, u32, u32, usize)> {
        let mut all: Vec<_> = self
            .subscribers
            .iter()
            .map(|(a, s)| (*a, self.config.external[s.external], s.sessions, s.blocks.len()))
            .collect();
        all.sort_unstable_by_key(|(address, _, sessions, _)| (std::cmp::Reverse(*sessions), *address));
        all.truncate(limit);
        all
    }

    /// Returns true if the external address with this index belongs to this core.
    pub(crate) fn is_own(&self, external: usize) -> bool {
        self.external.get(external).is_some_and(Option::is_some)
    }

    /// Counts one more session of a subscriber and assigns an external address to a new subscriber.
    ///
    /// # Errors
    /// Any [`AllocationError`].
    pub(crate) fn add_session(&mut self, subscriber: u32) -> Result<(), AllocationError> {
        if let Some(known) = self.subscribers.get_mut(&subscriber) {
            if known.sessions >= self.config.subscriber_sessions {
                return Err(AllocationError::SessionLimit);
            }
            if self.rebinding && self.config.required_external(subscriber).is_some_and(|n| n != known.external) {
                return Err(AllocationError::NoPort);
            }
            known.sessions += 1;
            return Ok(());
        }
        if self.subscribers.len() >= self.config.subscribers {
            return Err(AllocationError::SubscriberLimit);
        }
        let external = self.choose_external(subscriber).ok_or(AllocationError::NoPort)?;
        self.subscribers.insert(subscriber, Subscriber { external, sessions: 1, blocks: vec![] });
        Ok(())
    }

    /// Counts one session less of a subscriber. A subscriber without sessions is removed and its blocks are freed.
    pub(crate) fn remove_session(&mut self, subscriber: u32) {
        let Some(known) = self.subscribers.get_mut(&subscriber) else { return };
        known.sessions -= 1;
        if known.sessions > 0 {
            return;
        }
        let Some(gone) = self.subscribers.remove(&subscriber) else { return };
        for block in gone.blocks {
            self.free_block(gone.external, block, subscriber);
        }
    }

    fn free_block(&mut self, external: usize, block: u16, subscriber: u32) {
        let ports = self.block_range(block);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        e.blocks[usize::from(block)] = None;
        e.free_blocks += 1;
        self.blocks_in_use -= 1;
        self.events.push(BlockEvent { allocated: false, subscriber, external: e.address, ports });
    }

    /// Returns the first and last port of a block.
    fn block_range(&self, block: u16) -> (u16, u16) {
        let first = u32::from(self.config.first_port) + u32::from(block) * u32::from(self.config.block_size);
        (first as u16, (first + u32::from(self.config.block_size) - 1) as u16)
    }

    /// Chooses the external address of a new subscriber: the required one, else the one that its address hashes to,
    /// else the next one with room.
    fn choose_external(&self, subscriber: u32) -> Option<usize> {
        if let Some(bound) = self.config.required_external(subscriber) {
            return self.is_own(bound).then_some(bound);
        }
        if self.config.allocation == Allocation::Deterministic {
            return None;
        }
        // uses other bits than the choice of the copy
        let first = hash_to_index(subscriber.rotate_left(16) ^ 0x5bd1_e995, self.own.len());
        let mut all = self.own[first..].iter().chain(&self.own[..first]).copied();
        if self.config.allocation == Allocation::Dynamic {
            let has_room = |n: &usize| self.external[*n].as_ref().is_some_and(|e| e.ports < PREFERRED_PORT_LIMIT);
            return all.find(has_room).or(Some(self.own[first]));
        }
        all.find(|&n| self.external[n].as_ref().is_some_and(|e| e.free_blocks > 0))
    }

    /// Returns the external address of a subscriber that has sessions.
    pub(crate) fn address_of(&self, subscriber: u32) -> Option<u32> {
        self.subscribers.get(&subscriber).map(|s| self.config.external[s.external])
    }

    /// Allocates a port for a subscriber that has sessions: `preferred` if it is free, else one of the same parity (RFC
    /// 4787 REQ-3, REQ-4), else any. `usable` rejects further ports.
    ///
    /// With `exclusive` the port is marked as in use; otherwise only the use count of its block increases.
    ///
    /// # Errors
    /// [`AllocationError::NoPort`].
    pub(crate) fn allocate(
        &mut self,
        subscriber: u32,
        protocol: u8,
        preferred: u16,
        exclusive: bool,
        usable: impl Fn(u16) -> bool,
    ) -> Result<u16, AllocationError> {
        let (external, have) = match self.subscribers.get(&subscriber) {
            Some(s) => (s.external, s.blocks.len()),
            None => return Err(AllocationError::NoPort),
        };
        if self.config.allocation == Allocation::Dynamic {
            // ICMP identifiers have no reserved range
            let first = if protocol == IpProtocol::ICMPV4.0 { 0 } else { self.config.first_port };
            let all = (first, u16::MAX);
            let port = self
                .find_port(external, protocol, all, preferred, exclusive, &usable)
                .ok_or(AllocationError::NoPort)?;
            self.mark_used(external, protocol, port, exclusive);
            return Ok(port);
        }
        for n in 0..have {
            let block = self.subscribers[&subscriber].blocks[n];
            if let Some(port) =
                self.find_port(external, protocol, self.block_range(block), preferred, exclusive, &usable)
            {
                self.mark_used(external, protocol, port, exclusive);
                return Ok(port);
            }
        }
        let block = self.allocate_block(subscriber, external, have).ok_or(AllocationError::NoPort)?;
        let port = self
            .find_port(external, protocol, self.block_range(block), preferred, exclusive, &usable)
            .ok_or(AllocationError::NoPort)?;
        self.mark_used(external, protocol, port, exclusive);
        Ok(port)
    }

    /// Allocates another block to a subscriber that has `have` blocks.
    fn allocate_block(&mut self, subscriber: u32, external: usize, have: usize) -> Option<u16> {
        let block = if self.config.allocation == Allocation::Deterministic {
            // each subscriber has a single block
            self.config.deterministic_block(subscriber).filter(|_| have == 0).map(|(_, block)| block)?
        } else {
            if have >= self.config.max_blocks {
                return None;
            }
            let start = self.random() as usize;
            let e = self.external.get(external)?.as_ref()?;
            let n = e.blocks.len();
            (0..n).map(|i| (start + i) % n).find(|&b| e.blocks[b].is_none())? as u16
        };
        let (ports, address) = (self.block_range(block), self.take_block(subscriber, external, block)?);
        self.events.push(BlockEvent { allocated: true, subscriber, external: address, ports });
        Some(block)
    }

    /// Adds a block to those of a subscriber and returns the external address, if the block is free.
    fn take_block(&mut self, subscriber: u32, external: usize, block: u16) -> Option<u32> {
        let e = self.external.get_mut(external)?.as_mut()?;
        let uses = e.blocks.get_mut(usize::from(block)).filter(|uses| uses.is_none())?;
        *uses = Some(0);
        e.free_blocks -= 1;
        self.blocks_in_use += 1;
        self.subscribers.get_mut(&subscriber)?.blocks.push(block);
        Some(e.address)
    }

    /// Finds a usable port from `first` to `last`, both included.
    fn find_port(
        &mut self,
        external: usize,
        protocol: u8,
        (first, last): (u16, u16),
        preferred: u16,
        exclusive: bool,
        usable: &impl Fn(u16) -> bool,
    ) -> Option<u16> {
        /// Largest number of ports that are tried if a port may serve several destinations.
        const TRIES: u32 = 128;
        let start = first.wrapping_add((self.random() % (u64::from(last - first) + 1)) as u16);
        let e = self.external.get(external)?.as_ref()?;
        let taken = e.taken[protocol_index(protocol)].as_ref();
        let free = |port: u16| !taken.is_some_and(|t| t.has(port)) && usable(port);
        if (first..=last).contains(&preferred) && free(preferred) {
            return Some(preferred);
        }
        let odd = preferred & 1 != 0;
        if exclusive {
            let next = |from, to, odd| match taken {
                Some(taken) => taken.free(from, to, odd),
                None => (from..=to).find(|port| (port & 1 != 0) == odd),
            };
            return [odd, !odd].into_iter().find_map(|odd| {
                next(start, last, odd).or_else(|| (start > first).then(|| next(first, start - 1, odd)).flatten())
            });
        }
        let n = u32::from(last - first) + 1;
        (0..n.min(TRIES)).map(|i| first + ((u32::from(start - first) + i) % n) as u16).find(|&port| free(port))
    }

    fn block_of(&self, port: u16) -> Option<usize> {
        let above = port.checked_sub(self.config.first_port)?;
        (self.config.allocation != Allocation::Dynamic).then(|| usize::from(above / self.config.block_size))
    }

    /// Marks a port as in use if it is `exclusive`, and counts a use of its block.
    pub(crate) fn mark_used(&mut self, external: usize, protocol: u8, port: u16, exclusive: bool) {
        let block = self.block_of(port);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        if exclusive {
            e.taken[protocol_index(protocol)].get_or_insert_with(PortBitmap::new).set(port, true);
            self.ports_in_use += 1;
            e.ports += 1;
        }
        if let Some(Some(uses)) = block.and_then(|b| e.blocks.get_mut(b)).map(Option::as_mut) {
            *uses += 1;
        }
    }

    /// Reserves a port for a forward.
    pub(crate) fn reserve(&mut self, external: usize, protocol: u8, port: u16) {
        if let Some(Some(e)) = self.external.get_mut(external) {
            e.taken[protocol_index(protocol)].get_or_insert_with(PortBitmap::new).set(port, true);
        }
    }

    /// Ends the reservation of a port for a forward.
    pub(crate) fn end_reservation(&mut self, external: usize, protocol: u8, port: u16) {
        if let Some(Some(e)) = self.external.get_mut(external)
            && let Some(taken) = &mut e.taken[protocol_index(protocol)]
        {
            taken.set(port, false);
        }
    }

    /// Releases a port from [`allocate`](Self::allocate). An unused block is freed unless it is the subscriber's last.
    pub(crate) fn release(&mut self, subscriber: u32, protocol: u8, port: u16, exclusive: bool) {
        let Some(external) = self.subscribers.get(&subscriber).map(|s| s.external) else { return };
        let block = self.block_of(port);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        if exclusive && let Some(taken) = &mut e.taken[protocol_index(protocol)] {
            taken.set(port, false);
            self.ports_in_use -= 1;
            e.ports -= 1;
        }
        let Some(block) = block else { return };
        let Some(Some(uses)) = e.blocks.get_mut(block).map(Option::as_mut) else { return };
        *uses -= 1;
        let unused = *uses == 0;
        let Some(s) = self.subscribers.get_mut(&subscriber) else { return };
        if unused && s.blocks.len() > 1 {
            s.blocks.retain(|b| usize::from(*b) != block);
            self.free_block(external, block as u16, subscriber);
        }
    }
}
