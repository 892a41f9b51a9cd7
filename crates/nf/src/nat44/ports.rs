//! Ports of external addresses: which are taken, by whom, in blocks or alone.

use super::flow::spread;
use super::settings::{Allocation, Config};
use foldhash::HashMap;
use std::sync::Arc;
use wire::IpProtocol;

/// Words of a bitmap of ports.
const WORDS: usize = 65_536 / 64;
/// Ports taken of an address beyond which a new subscriber gets another.
const CROWDED: u32 = 48_000;
/// Even ports of a word.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Why there is no port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPort {
    /// The subscriber has all the sessions it may have.
    Sessions,
    /// There are as many subscribers as there may be.
    Subscribers,
    /// Its ports are taken, and it gets no further block.
    Ports,
}

/// Ports that are taken, of an address and protocol.
#[derive(Clone)]
struct Taken(Box<[u64; WORDS]>);

impl Taken {
    fn new() -> Self {
        Taken(Box::new([0; WORDS]))
    }

    fn has(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] >> (port & 63) & 1 != 0
    }

    fn set(&mut self, port: u16, on: bool) {
        let (word, bit) = (&mut self.0[usize::from(port >> 6)], 1 << (port & 63));
        if on { *word |= bit } else { *word &= !bit }
    }

    /// The first free port of the given parity from `from` to `last`; ports beyond the ends do not count.
    fn free(&self, from: u16, last: u16, odd: bool) -> Option<u16> {
        let parity = if odd { EVEN << 1 } else { EVEN };
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

/// One external address.
struct External {
    address: u32,
    /// TCP, UDP, ICMP; made when the first port is taken.
    taken: [Option<Taken>; 3],
    /// Ports of all three that are taken alone.
    ports: u32,
    /// For each block, its owner's uses of its ports; `None`: nobody's.
    blocks: Vec<Option<u32>>,
    free_blocks: usize,
}

/// A subscriber, who has sessions.
struct Subscriber {
    /// Number among all external addresses.
    external: usize,
    sessions: u32,
    blocks: Vec<u16>,
}

/// A block of ports given out or back, to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockEvent {
    pub(crate) begins: bool,
    pub(crate) subscriber: u32,
    pub(crate) external: u32,
    pub(crate) ports: (u16, u16),
}

/// Index of a protocol.
fn index(protocol: u8) -> usize {
    match IpProtocol(protocol) {
        IpProtocol::TCP => 0,
        IpProtocol::UDP => 1,
        _ => 2,
    }
}

/// The ports of one copy's addresses.
pub(crate) struct Ports {
    config: Arc<Config>,
    /// By number among all addresses: those of other copies are `None`.
    external: Vec<Option<External>>,
    own: Vec<usize>,
    subscribers: HashMap<u32, Subscriber>,
    random: u64,
    blocks_taken: u64,
    ports_taken: u64,
    events: Vec<BlockEvent>,
}

impl Ports {
    pub(crate) fn new(config: Arc<Config>, own: Vec<usize>, seed: u64) -> Self {
        let blocks = config.blocks() as usize;
        let external = |n: usize| External {
            address: config.external[n],
            taken: [const { None }; 3],
            ports: 0,
            blocks: vec![None; blocks],
            free_blocks: blocks,
        };
        let all = (0..config.external.len()).map(|n| own.contains(&n).then(|| external(n))).collect();
        Ports {
            config,
            external: all,
            own,
            subscribers: HashMap::default(),
            random: seed | 1,
            blocks_taken: 0,
            ports_taken: 0,
            events: vec![],
        }
    }

    /// xorshift64*: where to begin is not to be foreseen by who does not know the seed.
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.subscribers.len()
    }

    pub(crate) fn blocks_taken(&self) -> u64 {
        self.blocks_taken
    }

    /// Ports that are taken alone: of mappings that all sessions of an inside port share.
    pub(crate) fn ports_taken(&self) -> u64 {
        self.ports_taken
    }

    /// Blocks that were given out or back since the last call.
    pub(crate) fn events(&mut self) -> std::vec::Drain<'_, BlockEvent> {
        self.events.drain(..)
    }

    /// The most sessions that subscribers have: address, external address, sessions, blocks.
    pub(crate) fn largest(&self, most: usize) -> Vec<(u32, u32, u32, usize)> {
        let mut all: Vec<_> = self
            .subscribers
            .iter()
            .map(|(a, s)| (*a, self.config.external[s.external], s.sessions, s.blocks.len()))
            .collect();
        all.sort_unstable_by_key(|(address, _, sessions, _)| (std::cmp::Reverse(*sessions), *address));
        all.truncate(most);
        all
    }

    /// Whether an address is one of this copy's, by its number.
    pub(crate) fn is_own(&self, external: usize) -> bool {
        self.external.get(external).is_some_and(Option::is_some)
    }

    /// Counts one more session of a subscriber, who gets an external address if it has none.
    ///
    /// # Errors
    /// [`NoPort::Sessions`], [`NoPort::Subscribers`], [`NoPort::Ports`].
    pub(crate) fn enter(&mut self, subscriber: u32) -> Result<(), NoPort> {
        if let Some(known) = self.subscribers.get_mut(&subscriber) {
            if known.sessions >= self.config.subscriber_sessions {
                return Err(NoPort::Sessions);
            }
            known.sessions += 1;
            return Ok(());
        }
        if self.subscribers.len() >= self.config.subscribers {
            return Err(NoPort::Subscribers);
        }
        let external = self.address_for(subscriber).ok_or(NoPort::Ports)?;
        self.subscribers.insert(subscriber, Subscriber { external, sessions: 1, blocks: vec![] });
        Ok(())
    }

    /// One session of a subscriber less; whoever has none is forgotten, and its blocks are free.
    pub(crate) fn leave(&mut self, subscriber: u32) {
        let Some(known) = self.subscribers.get_mut(&subscriber) else { return };
        known.sessions -= 1;
        if known.sessions > 0 {
            return;
        }
        let Some(gone) = self.subscribers.remove(&subscriber) else { return };
        for block in gone.blocks {
            self.give_back(gone.external, block, subscriber);
        }
    }

    fn give_back(&mut self, external: usize, block: u16, subscriber: u32) {
        let ports = self.range(block);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        e.blocks[usize::from(block)] = None;
        e.free_blocks += 1;
        self.blocks_taken -= 1;
        self.events.push(BlockEvent { begins: false, subscriber, external: e.address, ports });
    }

    /// First and last port of a block.
    fn range(&self, block: u16) -> (u16, u16) {
        let first = u32::from(self.config.first_port) + u32::from(block) * u32::from(self.config.block_size);
        (first as u16, (first + u32::from(self.config.block_size) - 1) as u16)
    }

    /// The address of a new subscriber: one that it has to have, or the one its address leads to, or the next with a free
    /// block.
    fn address_for(&self, subscriber: u32) -> Option<usize> {
        if let Some(bound) = self.config.bound_to(subscriber) {
            return self.is_own(bound).then_some(bound);
        }
        if self.config.allocation == Allocation::Deterministic {
            return None;
        }
        // other bits than those that chose the copy
        let first = spread(subscriber.rotate_left(16) ^ 0x5bd1_e995, self.own.len());
        let mut all = self.own[first..].iter().chain(&self.own[..first]).copied();
        if self.config.allocation == Allocation::Dynamic {
            let roomy = |n: &usize| self.external[*n].as_ref().is_some_and(|e| e.ports < CROWDED);
            return all.find(roomy).or(Some(self.own[first]));
        }
        all.find(|&n| self.external[n].as_ref().is_some_and(|e| e.free_blocks > 0))
    }

    /// The external address of a subscriber that has [entered](Self::enter).
    pub(crate) fn address_of(&self, subscriber: u32) -> Option<u32> {
        self.subscribers.get(&subscriber).map(|s| self.config.external[s.external])
    }

    /// Takes a port for a subscriber that has entered: the one it wants if that is free, else one of the same parity (RFC 4787
    /// REQ-3, REQ-4), else any. `also` says whether a port that is free serves.
    ///
    /// `exclusive`: the port is then taken; otherwise only its block is used once more.
    ///
    /// # Errors
    /// [`NoPort::Ports`].
    pub(crate) fn take(
        &mut self,
        subscriber: u32,
        protocol: u8,
        wanted: u16,
        exclusive: bool,
        also: impl Fn(u16) -> bool,
    ) -> Result<u16, NoPort> {
        let (external, have) = match self.subscribers.get(&subscriber) {
            Some(s) => (s.external, s.blocks.len()),
            None => return Err(NoPort::Ports),
        };
        if self.config.allocation == Allocation::Dynamic {
            // identifiers of ICMP have no reserved part
            let first = if protocol == IpProtocol::ICMPV4.0 { 0 } else { self.config.first_port };
            let all = (first, u16::MAX);
            let port = self.pick(external, protocol, all, wanted, exclusive, &also).ok_or(NoPort::Ports)?;
            self.mark(external, protocol, port, exclusive);
            return Ok(port);
        }
        for n in 0..have {
            let block = self.subscribers[&subscriber].blocks[n];
            if let Some(port) = self.pick(external, protocol, self.range(block), wanted, exclusive, &also) {
                self.mark(external, protocol, port, exclusive);
                return Ok(port);
            }
        }
        let block = self.another_block(subscriber, external, have).ok_or(NoPort::Ports)?;
        let port = self.pick(external, protocol, self.range(block), wanted, exclusive, &also).ok_or(NoPort::Ports)?;
        self.mark(external, protocol, port, exclusive);
        Ok(port)
    }

    /// Another block for a subscriber that has so many.
    fn another_block(&mut self, subscriber: u32, external: usize, have: usize) -> Option<u16> {
        let block = if self.config.allocation == Allocation::Deterministic {
            // the only one there is
            self.config.computed(subscriber).filter(|_| have == 0).map(|(_, block)| block)?
        } else {
            if have >= self.config.max_blocks {
                return None;
            }
            let start = self.random() as usize;
            let e = self.external.get(external)?.as_ref()?;
            let n = e.blocks.len();
            (0..n).map(|i| (start + i) % n).find(|&b| e.blocks[b].is_none())? as u16
        };
        let ports = self.range(block);
        let e = self.external.get_mut(external)?.as_mut()?;
        if e.blocks[usize::from(block)].is_some() {
            return None;
        }
        e.blocks[usize::from(block)] = Some(0);
        e.free_blocks -= 1;
        let address = e.address;
        self.blocks_taken += 1;
        self.subscribers.get_mut(&subscriber)?.blocks.push(block);
        self.events.push(BlockEvent { begins: true, subscriber, external: address, ports });
        Some(block)
    }

    /// A port that serves, from the first to the last.
    fn pick(
        &mut self,
        external: usize,
        protocol: u8,
        (first, last): (u16, u16),
        wanted: u16,
        exclusive: bool,
        also: &impl Fn(u16) -> bool,
    ) -> Option<u16> {
        /// Ports that are tried where others than taken ones may not serve.
        const TRIES: u32 = 128;
        let start = first.wrapping_add((self.random() % (u64::from(last - first) + 1)) as u16);
        let e = self.external.get(external)?.as_ref()?;
        let taken = e.taken[index(protocol)].as_ref();
        let free = |port: u16| !taken.is_some_and(|t| t.has(port)) && also(port);
        if (first..=last).contains(&wanted) && free(wanted) {
            return Some(wanted);
        }
        let odd = wanted & 1 != 0;
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

    fn mark(&mut self, external: usize, protocol: u8, port: u16, exclusive: bool) {
        let block = self.block_of(port);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        if exclusive {
            e.taken[index(protocol)].get_or_insert_with(Taken::new).set(port, true);
            self.ports_taken += 1;
            e.ports += 1;
        }
        if let Some(Some(uses)) = block.and_then(|b| e.blocks.get_mut(b)).map(Option::as_mut) {
            *uses += 1;
        }
    }

    /// Keeps a port from being given to anyone, for a forward.
    pub(crate) fn reserve(&mut self, external: usize, protocol: u8, port: u16) {
        if let Some(Some(e)) = self.external.get_mut(external) {
            e.taken[index(protocol)].get_or_insert_with(Taken::new).set(port, true);
        }
    }

    /// Gives back a port that a subscriber has [taken](Self::take). A block that is used no more is free again, unless it is
    /// the subscriber's last.
    pub(crate) fn put_back(&mut self, subscriber: u32, protocol: u8, port: u16, exclusive: bool) {
        let Some(external) = self.subscribers.get(&subscriber).map(|s| s.external) else { return };
        let block = self.block_of(port);
        let Some(Some(e)) = self.external.get_mut(external) else { return };
        if exclusive && let Some(taken) = &mut e.taken[index(protocol)] {
            taken.set(port, false);
            self.ports_taken -= 1;
            e.ports -= 1;
        }
        let Some(block) = block else { return };
        let Some(Some(uses)) = e.blocks.get_mut(block).map(Option::as_mut) else { return };
        *uses -= 1;
        let unused = *uses == 0;
        let Some(s) = self.subscribers.get_mut(&subscriber) else { return };
        if unused && s.blocks.len() > 1 {
            s.blocks.retain(|b| usize::from(*b) != block);
            self.give_back(external, block as u16, subscriber);
        }
    }
}
