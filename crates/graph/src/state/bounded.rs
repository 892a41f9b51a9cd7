//! State with one writer and many readers, who may be a little behind.

mod link;
#[cfg(test)]
mod tests;

use super::table::Table;
use super::{Full, Hasher};
use crate::Counter;
use core::fmt;
use core::hash::Hash;
use link::{Delta, Link, Update};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::handoff::{self, Giver, Taker};

/// Slots of the map that are copied with each update, while a copy is made: all in fewer updates than an eighth of the
/// capacity.
const STEP: usize = 32;
/// Slots of the map that are copied by each [`Writer::flush`], while a copy is made.
const FLUSH_STEP: usize = 256;

/// A map that one copy of an NF writes and any number read.
///
/// **At the beginning of its batch ([`Reader::catch_up`]) a reader is at most `N` completed updates behind**: it has
/// seen all insertions and removals whose call had returned by then, or all but the last `N` of them. It has seen them
/// in their order, and none of those after the last that it has seen. During the batch what it reads does not change.
/// With `N = 0` it is what a lock would give, a batch at a time.
///
/// The writer never waits: not for readers that are slow, nor for those that have stopped. Readers take no lock and
/// share no memory with the writer while they read: each has a copy of its own, a plain hash table, which the writer's
/// changes come to by [`tables::handoff`]. Updates that a reader has not taken yet wait in a pile. When that is higher
/// than half of the capacity, the writer begins a copy of everything, some slots with each update, which takes the
/// pile's place. So a reader that never looks costs a bounded amount of work for each update, and a pile of no more
/// updates than the capacity and `2N + 3`; [`Writer::waiting`] shows how it stands. No table ever grows, or stops to
/// put itself in order. Memory: the writer has a table of two to four slots for each entry there can be, each reader
/// three; a table whose entries come and go takes as much again. Nothing else is allocated once the piles have been as
/// high as they get.
///
/// An NF that is built anew after a panic, or a copy added later, asks for a writer or a reader as the first one did:
/// what the map held is still there.
///
/// A full map refuses new keys ([`Full`]) and counts them ([`Bounded::refused`]); keys that are there can be changed.
/// The keys' hash has a random seed for each map.
///
/// An NF whose first copy learns which sources to block, and whose copies all block them:
/// ```
/// use diagnostics::Diagnostic;
/// use graph::{Bounded, BuildContext, Context, Node};
/// use graph::state::{Reader, Writer};
/// use packet::Batch;
///
/// /// Sources, and the packets after which they were blocked.
/// type Blocked = Bounded<16, [u8; 4], u32>;
///
/// enum Guard {
///     Learns(Writer<16, [u8; 4], u32>),
///     Follows(Reader<[u8; 4], u32>),
/// }
/// impl Guard {
///     /// As it would stand in `Nf::build`: the first copy that asks is the writer.
///     fn build(cx: &BuildContext) -> Result<Guard, Diagnostic> {
///         let blocked = cx.common(|| Ok(Blocked::new(1000)))?;
///         Ok(match blocked.writer() {
///             Some(writer) => Guard::Learns(writer),
///             None => Guard::Follows(blocked.reader()),
///         })
///     }
/// }
/// impl Node for Guard {
///     fn drops(&self) -> &[&'static str] {
///         &["blocked"]
///     }
///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         if let Guard::Follows(reader) = self {
///             reader.catch_up(); // first of all, once in a batch
///         }
///         for packet in batch.drain() {
///             let Some(&source) = packet.data().get(26..).and_then(|data| data.first_chunk()) else { continue };
///             let blocked = match self {
///                 Guard::Follows(reader) => reader.get(&source).is_some(),
///                 Guard::Learns(writer) => {
///                     // what is wrong with this one: it has port 0
///                     if packet.data().get(34..36) == Some(&[0, 0]) {
///                         drop(writer.insert(source, 1)); // refused: not blocked, and counted
///                     }
///                     writer.get(&source).is_some()
///                 }
///             };
///             if blocked { cx.drop(0, packet) } else { batch.push(packet).unwrap() }
///         }
///         if let Guard::Learns(writer) = self {
///             writer.flush(); // so that readers lack nothing, although 16 would be allowed
///         }
///     }
/// }
/// # use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
/// # use packet::{HeapPool, Pool};
/// # use std::sync::Arc;
/// # struct Out(Vec<packet::Packet>);
/// # impl Sink for Out {
/// #     fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
/// #         self.0.extend(batch.drain());
/// #     }
/// # }
/// # let pool = Arc::new(HeapPool::new(64));
/// # let graph = |node: Guard| {
/// #     let blueprint = Blueprint {
/// #         nodes: vec![NodePlan { name: "guard".into(), edges: vec![Target::Nowhere] }],
/// #         hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
/// #         ..Default::default()
/// #     };
/// #     Graph::new(&blueprint, vec![Box::new(node)], pool.clone())
/// # };
/// # let pass = |graph: &mut Graph, source: [u8; 4], port: u16| {
/// #     let mut frame = [0; 60];
/// #     frame[26..30].copy_from_slice(&source);
/// #     frame[34..36].copy_from_slice(&port.to_be_bytes());
/// #     let (mut batch, mut out) = (Batch::new(), Out(vec![]));
/// #     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
/// #     graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
/// #     out.0.len()
/// # };
///
/// // two copies, built on the control thread, each moved to a core of its own
/// let cx = |copy| BuildContext { name: "guard".into(), copy: (copy, 2), ..Default::default() };
/// let first = cx(0);
/// let second = BuildContext { common: first.common.clone(), ..cx(1) };
/// let mut learns = graph(Guard::build(&first)?);
/// let mut follows = graph(Guard::build(&second)?);
/// assert_eq!(pass(&mut follows, [192, 0, 2, 1], 80), 1);
/// std::thread::scope(|cores| cores.spawn(|| assert_eq!(pass(&mut learns, [192, 0, 2, 1], 0), 0)).join().unwrap());
/// assert_eq!(pass(&mut follows, [192, 0, 2, 1], 80), 0, "what one copy learned, the other knows");
/// assert_eq!(pass(&mut follows, [192, 0, 2, 2], 80), 1);
/// # Ok::<(), Diagnostic>(())
/// ```
pub struct Bounded<const N: usize, K, V>(Arc<Shared<K, V>>);

struct Shared<K, V> {
    capacity: usize,
    /// Of all maps, so that a copy goes from slot to slot.
    hasher: Hasher,
    refused: Arc<Counter>,
    /// For who makes writers and readers. Those who read and write never come here.
    desk: Mutex<Desk<K, V>>,
}

struct Desk<K, V> {
    /// What the writer writes, while there is no writer.
    master: Option<Master<K, V>>,
    /// Readers made while there is one.
    newcomers: Giver<Link<K, V>>,
}

struct Master<K, V> {
    map: Table<K, V>,
    capacity: usize,
    /// Updates there have been.
    version: u64,
    /// Those of them that no reader has been given.
    pending: Vec<Update<K, V>>,
    links: Vec<Link<K, V>>,
    newcomers: Taker<Link<K, V>>,
}

impl<K, V> Shared<K, V> {
    fn desk(&self) -> MutexGuard<'_, Desk<K, V>> {
        // Nothing that can panic comes between two changes that belong together.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Bounded<N, K, V> {
    /// An empty map of at most `capacity` entries.
    ///
    /// # Panics
    /// If the capacity is 2³⁰ or more.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < 1 << 30, "slots have numbers of 32 bits, and {capacity} entries are too many");
        let (giver, newcomers) = handoff::pair();
        let hasher = Hasher::default();
        let master = Master {
            map: Table::new(capacity, hasher.clone()),
            capacity,
            version: 0,
            pending: Vec::new(),
            links: Vec::new(),
            newcomers,
        };
        let desk = Desk { master: Some(master), newcomers: giver };
        Bounded(Arc::new(Shared { capacity, hasher, refused: Arc::default(), desk: Mutex::new(desk) }))
    }

    /// The writer, if there is none. When it is dropped, the next one goes on where it was.
    pub fn writer(&self) -> Option<Writer<N, K, V>> {
        let master = self.0.desk().master.take()?;
        Some(Writer { master: Some(master), shared: Arc::clone(&self.0) })
    }

    /// A further reader.
    ///
    /// Made while there is no writer, or none that has written, it has all there is at once. Otherwise the writer makes
    /// a copy for it, in its next calls ([`Writer::flush`]); until then it is empty, and [`Reader::joined`] says so.
    pub fn reader(&self) -> Reader<K, V> {
        let (deltas, taker) = handoff::pair();
        let (spent, back) = handoff::pair();
        let Shared { capacity, hasher, .. } = &*self.0;
        let map = Table::new(*capacity, hasher.clone());
        let mut reader = Reader { map, version: 0, joined: false, deltas: taker, spent };
        let mut link = Link::new(deltas, back, *capacity, hasher);
        let mut desk = self.0.desk();
        match &mut desk.master {
            Some(master) => {
                let Master { map, version, .. } = master;
                for (key, value) in map.iter() {
                    reader.map.insert(map.hash(key), key.clone(), value.clone());
                }
                (reader.version, reader.joined, link.joined) = (*version, true, true);
                master.links.push(link);
            }
            // it is given back only when there will be no writer any more
            None => drop(desk.newcomers.push(handoff::Parcel::new(link))),
        }
        reader
    }

    /// Entries there can be.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// New keys refused because the map was full, for [`Node::counters`](crate::Node::counters).
    pub fn refused(&self) -> Arc<Counter> {
        Arc::clone(&self.0.refused)
    }
}

/// Who changes a [`Bounded`].
pub struct Writer<const N: usize, K: Hash + Eq + Clone, V: Clone> {
    /// There until it is dropped.
    master: Option<Master<K, V>>,
    shared: Arc<Shared<K, V>>,
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Writer<N, K, V> {
    #[inline(always)]
    fn master(&self) -> &Master<K, V> {
        self.master.as_ref().expect("there until it is dropped")
    }

    #[inline(always)]
    fn master_mut(&mut self) -> &mut Master<K, V> {
        self.master.as_mut().expect("there until it is dropped")
    }

    /// Inserts or changes an entry, and gives the value that it had.
    ///
    /// # Errors
    /// [`Full`], when the key is new and there is no room for it. That is counted, and no update.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        let master = self.master_mut();
        master.meet();
        let hash = master.map.hash(&key);
        let update = (key.clone(), Some(value.clone()));
        let full = master.map.len() >= master.capacity;
        let old = match master.map.find_mut(hash, &key) {
            Some(there) => Some(core::mem::replace(there, value)),
            None if full => {
                self.shared.refused.add(1);
                return Err(Full { capacity: self.shared.capacity });
            }
            None => {
                master.map.insert(hash, key, value);
                None
            }
        };
        let slot = master.slot(hash, &update.0);
        master.note(N, hash, slot, update);
        Ok(old)
    }

    /// Removes an entry, and gives its value. If there was none, it is no update.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let master = self.master_mut();
        master.meet();
        let hash = master.map.hash(key);
        let slot = master.slot(hash, key);
        let (key, value) = master.map.remove(hash, key)?;
        master.note(N, hash, slot, (key, None));
        Some(value)
    }

    /// The value of a key, with all updates.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.master().map.get(key)
    }

    /// Hands every reader what it has not been given: after this, a reader that [catches up](Reader::catch_up) lacks
    /// nothing. Costs next to nothing when there is nothing new. Call it at the end of a batch and when
    /// [woken](crate::Node::wake): so what is learned last does not stay unknown, and copies for newcomers and for
    /// readers that have fallen behind are carried on, 256 slots a call.
    pub fn flush(&mut self) {
        let master = self.master_mut();
        master.meet();
        master.carry_on(FLUSH_STEP);
        master.publish(N);
    }

    /// Entries there are.
    pub fn len(&self) -> usize {
        self.master().map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.master().map.len() == 0
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.master().map.iter()
    }

    /// Updates completed since the map was made: what [`Reader::version`] is compared with.
    pub fn version(&self) -> u64 {
        self.master().version
    }

    /// Readers there are, as far as the writer has met them.
    pub fn readers(&self) -> usize {
        self.master().links.len()
    }

    /// Updates that waited for the slowest reader when it was last given some, with those: how high the highest pile
    /// is.
    pub fn waiting(&self) -> usize {
        self.master().links.iter().map(|link| link.waiting).max().unwrap_or(0)
    }
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Drop for Writer<N, K, V> {
    fn drop(&mut self) {
        let Some(mut master) = self.master.take() else { return };
        master.meet();
        master.carry_on(usize::MAX);
        master.publish(N);
        let mut desk = self.shared.desk();
        // those who came meanwhile
        master.meet();
        master.carry_on(usize::MAX);
        master.publish(N);
        desk.master = Some(master);
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Master<K, V> {
    /// Takes in readers that have come.
    #[inline(always)]
    fn meet(&mut self) {
        if self.newcomers.is_waiting() {
            self.take_in();
        }
    }

    #[cold]
    fn take_in(&mut self) {
        for link in self.newcomers.take() {
            let mut link = link.into_inner();
            // an empty map is what it has
            link.joined = self.map.len() == 0;
            if !link.joined {
                link.copy(self.capacity, &self.map);
            } else if self.pending.is_empty() {
                link.greet(self.version);
            }
            self.links.push(link);
        }
    }

    /// Where a key is, for copies in the making.
    #[inline(always)]
    fn slot(&self, hash: u64, key: &K) -> Option<usize> {
        if self.links.iter().any(Link::is_copying) && self.map.is_settled() { self.map.slot(hash, key) } else { None }
    }

    /// Notes an update. Its key was in this slot before it was removed, or is there now.
    #[inline(always)]
    fn note(&mut self, most: usize, hash: u64, slot: Option<usize>, update: Update<K, V>) {
        self.version += 1;
        if self.links.is_empty() {
            return;
        }
        for link in &mut self.links {
            // without a slot the copy will have to begin again
            if let Some(slot) = slot {
                link.keep(slot, hash, &update.0, update.1.as_ref());
            }
            link.step(&self.map, STEP);
        }
        self.pending.push(update);
        if self.pending.len() > most {
            self.publish(most);
        }
    }

    fn carry_on(&mut self, slots: usize) {
        self.links.iter_mut().for_each(|link| link.step(&self.map, slots));
    }

    /// Hands out what is pending, and copies that are ready.
    fn publish(&mut self, most: usize) {
        let Master { map, capacity, version, pending, links, .. } = self;
        let high = (*capacity / 2).max(most.saturating_add(1));
        links.retain_mut(|link| {
            let there = link.give(map, *version, pending);
            if link.waiting > high {
                link.copy(*capacity, map);
            }
            there
        });
        pending.clear();
    }
}

/// Who reads a [`Bounded`], from a copy of its own.
pub struct Reader<K, V> {
    map: Table<K, V>,
    version: u64,
    joined: bool,
    deltas: Taker<Delta<K, V>>,
    /// Back to the writer, to be used again.
    spent: Giver<Delta<K, V>>,
}

impl<K: Hash + Eq, V> Reader<K, V> {
    /// Takes in what the writer has handed out: at the beginning of a batch. Says how many updates it has come on by.
    #[inline(always)]
    pub fn catch_up(&mut self) -> u64 {
        if self.deltas.is_waiting() { self.apply() } else { 0 }
    }

    #[inline(never)]
    fn apply(&mut self) -> u64 {
        let before = self.version;
        let mut deltas = self.deltas.take().reversed();
        for delta in deltas.iter_mut() {
            if let Some(full) = &mut delta.full {
                core::mem::swap(&mut self.map, full);
            }
            for (key, value) in delta.updates.drain(..) {
                let hash = self.map.hash(&key);
                link::follow(&mut self.map, hash, key, value);
            }
            self.version = delta.version;
        }
        self.joined = true;
        // they come back only if there will be no writer any more
        drop(self.spent.push_all(deltas));
        self.version - before
    }

    /// The value of a key, as it stood when this reader caught up.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    /// Whether there is a value for a key.
    #[inline(always)]
    pub fn contains(&self, key: &K) -> bool {
        self.map.get(key).is_some()
    }

    /// Entries there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.map.iter()
    }

    /// Updates that it has seen: all up to that of this number, and none of those after it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether it has had what was there before it. If it was made before the writer wrote anything it lacks nothing,
    /// even when this is false.
    pub fn joined(&self) -> bool {
        self.joined
    }
}

macro_rules! debug {
    ($([$($generics:tt)*] $name:ident<$($arguments:ident),+>)+) => {$(
        impl<$($generics)*> fmt::Debug for $name<$($arguments),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )+};
}
debug!([const N: usize, K, V] Bounded<N, K, V> [const N: usize, K: Hash + Eq + Clone, V: Clone] Writer<N, K, V> [K, V] Reader<K, V>);
