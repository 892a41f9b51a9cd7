//! Maps with one writer and many readers that may lag by a bounded number of updates.

mod link;
#[cfg(test)]
mod tests;

use super::table::Table;
use super::{Full, Hasher};
use crate::Counter;
use core::fmt;
use core::hash::Hash;
use link::{Delta, ReaderLink, Update};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::message_queue::{self, Receiver, Sender};

/// Slots that each update copies while a full copy is in progress: it completes within fewer updates than an eighth of
/// the capacity.
const COPY_STEP: usize = 32;
/// Slots that each [`Writer::flush`] copies while a full copy is in progress.
const FLUSH_COPY_STEP: usize = 256;

/// A map that one copy of an NF writes and all copies read with bounded staleness.
///
/// **After [`Reader::catch_up`], at the start of a batch, a reader is at most `N` completed updates behind the
/// writer.** It has all insertions and removals whose calls had returned, except the last `N` or fewer, in their order.
/// Reads do not change until the next call. With `N = 0` the result is that of a lock held for the batch.
///
/// The writer never waits, neither for slow readers nor for stopped ones. Readers take no lock and share no memory with
/// the writer while they read: each has its own hash table, to which it applies the updates that the writer sends
/// through a [`tables::message_queue`] queue. If the queue of a reader exceeds half of the capacity, the writer starts
/// a full copy, a few slots with each update, which replaces the queued updates. A stopped reader thus costs a bounded
/// amount of work for each update and a queue of at most capacity + 2`N` + 3 updates; [`Writer::backlog`] returns its
/// length.
///
/// Tables never grow and never rehash all at once. The writer has a table of two to four slots for each entry, and each
/// reader three tables; tables whose entries are inserted and removed take twice as much. Nothing else is allocated
/// after the queues have reached their maximum length.
///
/// The map outlives its users: an NF that is rebuilt after a panic, or a copy that is added later, requests a writer or
/// reader like the first one did.
///
/// A full map refuses new keys ([`Full`]) and counts them ([`Bounded::refused`]); existing keys can be changed. Keys
/// are hashed with a random seed for each map.
///
/// An NF whose first copy detects sources to block, and whose copies all block them:
/// ```
/// use diagnostics::Diagnostic;
/// use graph::{Bounded, BuildContext, Context, Node};
/// use graph::state::{Reader, Writer};
/// use packet::Batch;
///
/// /// Blocked sources, and the number of offending packets.
/// type Blocked = Bounded<16, [u8; 4], u32>;
///
/// enum Guard {
///     Detects(Writer<16, [u8; 4], u32>),
///     Enforces(Reader<[u8; 4], u32>),
/// }
/// impl Guard {
///     /// The body of `Nf::build`: the first copy becomes the writer.
///     fn build(cx: &BuildContext) -> Result<Guard, Diagnostic> {
///         let blocked = cx.shared(|| Ok(Blocked::new(1000)))?;
///         Ok(match blocked.take_writer() {
///             Some(writer) => Guard::Detects(writer),
///             None => Guard::Enforces(blocked.reader()),
///         })
///     }
/// }
/// impl Node for Guard {
///     fn drops(&self) -> &[&'static str] {
///         &["blocked"]
///     }
///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         if let Guard::Enforces(reader) = self {
///             reader.catch_up(); // once, at the start of the batch
///         }
///         for packet in batch.drain() {
///             let Some(&source) = packet.data().get(26..).and_then(|data| data.first_chunk()) else { continue };
///             let blocked = match self {
///                 Guard::Enforces(reader) => reader.get(&source).is_some(),
///                 Guard::Detects(writer) => {
///                     // source port 0 is the offence
///                     if packet.data().get(34..36) == Some(&[0, 0]) {
///                         drop(writer.insert(source, 1)); // a refused key is counted
///                     }
///                     writer.get(&source).is_some()
///                 }
///             };
///             if blocked { cx.drop(0, packet) } else { batch.push(packet).unwrap() }
///         }
///         if let Guard::Detects(writer) = self {
///             writer.flush(); // sends the updates now, before there are 16
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
/// #         nodes: vec![NodePlan { name: "guard".into(), edges: vec![Target::Unconnected] }],
/// #         hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
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
/// // two copies, built on the control thread and moved to one core each
/// let cx = |copy| BuildContext { name: "guard".into(), copy: (copy, 2), ..Default::default() };
/// let first = cx(0);
/// let second = BuildContext { shared: first.shared.clone(), ..cx(1) };
/// let mut detects = graph(Guard::build(&first)?);
/// let mut enforces = graph(Guard::build(&second)?);
/// assert_eq!(pass(&mut enforces, [192, 0, 2, 1], 80), 1);
/// std::thread::scope(|cores| cores.spawn(|| assert_eq!(pass(&mut detects, [192, 0, 2, 1], 0), 0)).join().unwrap());
/// assert_eq!(pass(&mut enforces, [192, 0, 2, 1], 80), 0, "the second copy enforces what the first one detected");
/// assert_eq!(pass(&mut enforces, [192, 0, 2, 2], 80), 1);
/// # Ok::<(), Diagnostic>(())
/// ```
pub struct Bounded<const N: usize, K, V>(Arc<Shared<K, V>>);

struct Shared<K, V> {
    capacity: usize,
    /// Hasher of all tables; full copies depend on equal slots.
    hasher: Hasher,
    refused: Arc<Counter>,
    /// State used to create writers and readers, not on the packet path.
    control: Mutex<Control<K, V>>,
}

struct Control<K, V> {
    /// State of the writer, while there is no writer.
    writer: Option<WriterState<K, V>>,
    /// Readers created while there is a writer.
    new_readers: Sender<ReaderLink<K, V>>,
}

struct WriterState<K, V> {
    map: Table<K, V>,
    capacity: usize,
    /// Number of updates so far.
    version: u64,
    /// Updates that have not been sent to the readers.
    pending: Vec<Update<K, V>>,
    readers: Vec<ReaderLink<K, V>>,
    new_readers: Receiver<ReaderLink<K, V>>,
}

impl<K, V> Shared<K, V> {
    fn control(&self) -> MutexGuard<'_, Control<K, V>> {
        // no panic can leave a partial change
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Bounded<N, K, V> {
    /// Creates an empty map of at most `capacity` entries.
    ///
    /// # Panics
    /// If the capacity is 2³⁰ or more.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < 1 << 30, "capacity {capacity} is 2^30 or more");
        let (new_readers_in, new_readers) = message_queue::pair();
        let hasher = Hasher::default();
        let state = WriterState {
            map: Table::new(capacity, hasher.clone()),
            capacity,
            version: 0,
            pending: Vec::new(),
            readers: Vec::new(),
            new_readers,
        };
        let control = Control { writer: Some(state), new_readers: new_readers_in };
        Bounded(Arc::new(Shared { capacity, hasher, refused: Arc::default(), control: Mutex::new(control) }))
    }

    /// Returns the writer, or `None` if there is one already. After it is dropped, the next one continues from its
    /// state.
    pub fn take_writer(&self) -> Option<Writer<N, K, V>> {
        let state = self.0.control().writer.take()?;
        Some(Writer { state: Some(state), shared: Arc::clone(&self.0) })
    }

    /// Creates a reader.
    ///
    /// It starts with the whole map if there is no writer. Otherwise the writer makes a full copy for it in its next
    /// calls ([`Writer::flush`]); until then the reader is empty and [`Reader::is_synced`] returns false.
    pub fn reader(&self) -> Reader<K, V> {
        let (deltas_in, deltas) = message_queue::pair();
        let (returned, returned_out) = message_queue::pair();
        let Shared { capacity, hasher, .. } = &*self.0;
        let map = Table::new(*capacity, hasher.clone());
        let mut reader = Reader { map, version: 0, is_synced: false, deltas, returned };
        let mut link = ReaderLink::new(deltas_in, returned_out, *capacity, hasher);
        let mut control = self.0.control();
        match &mut control.writer {
            Some(state) => {
                let WriterState { map, version, .. } = state;
                for (key, value) in map.iter() {
                    reader.map.insert(map.hash(key), key.clone(), value.clone());
                }
                (reader.version, reader.is_synced, link.synced) = (*version, true, true);
                state.readers.push(link);
            }
            // fails only after the last writer is gone
            None => drop(control.new_readers.push(message_queue::Message::new(link))),
        }
        reader
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Returns the counter of keys refused because the map was full, for [`Node::counters`](crate::Node::counters).
    pub fn refused(&self) -> Arc<Counter> {
        Arc::clone(&self.0.refused)
    }
}

/// The writer of a [`Bounded`].
pub struct Writer<const N: usize, K: Hash + Eq + Clone, V: Clone> {
    /// `Some` until it is dropped.
    state: Option<WriterState<K, V>>,
    shared: Arc<Shared<K, V>>,
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Writer<N, K, V> {
    #[inline(always)]
    fn state(&self) -> &WriterState<K, V> {
        self.state.as_ref().expect("some until dropped")
    }

    #[inline(always)]
    fn state_mut(&mut self) -> &mut WriterState<K, V> {
        self.state.as_mut().expect("some until dropped")
    }

    /// Inserts or changes an entry and returns the previous value.
    ///
    /// # Errors
    /// [`Full`] if the key is new and the map is full. This is counted and is not an update.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        let state = self.state_mut();
        state.accept_readers();
        let hash = state.map.hash(&key);
        let update = (key.clone(), Some(value.clone()));
        let full = state.map.len() >= state.capacity;
        let old = match state.map.find_mut(hash, &key) {
            Some(current) => Some(core::mem::replace(current, value)),
            None if full => {
                self.shared.refused.add(1);
                return Err(Full { capacity: self.shared.capacity });
            }
            None => {
                state.map.insert(hash, key, value);
                None
            }
        };
        let slot = state.find_slot(hash, &update.0);
        state.record(N, hash, slot, update);
        Ok(old)
    }

    /// Removes an entry and returns its value. Removing a missing key is not an update.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let state = self.state_mut();
        state.accept_readers();
        let hash = state.map.hash(key);
        let slot = state.find_slot(hash, key);
        let (key, value) = state.map.remove(hash, key)?;
        state.record(N, hash, slot, (key, None));
        Some(value)
    }

    /// Returns the value of a key, with all updates.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.state().map.get(key)
    }

    /// Sends all pending updates, so that a reader that [catches up](Reader::catch_up) has all of them. Costs next to
    /// nothing if there are none. Call it at the end of a batch and in [`Node::on_timer`](crate::Node::on_timer): it
    /// bounds the delay of the last updates, and continues full copies for new and lagging readers by 256 slots.
    pub fn flush(&mut self) {
        let state = self.state_mut();
        state.accept_readers();
        state.continue_copies(FLUSH_COPY_STEP);
        state.publish(N);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.state().map.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.state().map.len() == 0
    }

    /// Returns an iterator over the entries in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.state().map.iter()
    }

    /// Returns the number of updates since the map was created, to compare with [`Reader::version`].
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// Returns the number of readers that the writer has accepted and not yet found dropped.
    pub fn readers(&self) -> usize {
        self.state().readers.len()
    }

    /// Returns the length of the longest queue of updates, as of the last update sent to each reader.
    pub fn backlog(&self) -> usize {
        self.state().readers.iter().map(|link| link.backlog).max().unwrap_or(0)
    }
}

impl<const N: usize, K: Hash + Eq + Clone, V: Clone> Drop for Writer<N, K, V> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        state.accept_readers();
        state.continue_copies(usize::MAX);
        state.publish(N);
        let mut control = self.shared.control();
        // readers created meanwhile
        state.accept_readers();
        state.continue_copies(usize::MAX);
        state.publish(N);
        control.writer = Some(state);
    }
}

impl<K: Hash + Eq + Clone, V: Clone> WriterState<K, V> {
    /// Accepts new readers.
    #[inline(always)]
    fn accept_readers(&mut self) {
        if self.new_readers.is_waiting() {
            self.accept_readers_cold();
        }
    }

    #[cold]
    fn accept_readers_cold(&mut self) {
        for link in self.new_readers.take() {
            let mut link = link.into_inner();
            // a new reader has an empty map
            link.synced = self.map.len() == 0;
            if !link.synced {
                link.start_copy(self.capacity, &self.map);
            } else if self.pending.is_empty() {
                link.send_version(self.version);
            }
            self.readers.push(link);
        }
    }

    /// Returns the slot of a key if a full copy in progress needs it.
    #[inline(always)]
    fn find_slot(&self, hash: u64, key: &K) -> Option<usize> {
        if self.readers.iter().any(ReaderLink::is_copying) && self.map.is_stable() {
            self.map.find_slot(hash, key)
        } else {
            None
        }
    }

    /// Records an update of the key in `slot` (before its removal, or now).
    #[inline(always)]
    fn record(&mut self, max_pending: usize, hash: u64, slot: Option<usize>, update: Update<K, V>) {
        self.version += 1;
        if self.readers.is_empty() {
            return;
        }
        for link in &mut self.readers {
            // without a slot the copy will start again
            if let Some(slot) = slot {
                link.update_copy(slot, hash, &update.0, update.1.as_ref());
            }
            link.copy_slots(&self.map, COPY_STEP);
        }
        self.pending.push(update);
        if self.pending.len() > max_pending {
            self.publish(max_pending);
        }
    }

    fn continue_copies(&mut self, slots: usize) {
        self.readers.iter_mut().for_each(|link| link.copy_slots(&self.map, slots));
    }

    /// Sends pending updates and completed copies; forgets readers that were dropped.
    fn publish(&mut self, max_pending: usize) {
        let WriterState { map, capacity, version, pending, readers: links, .. } = self;
        let threshold = (*capacity / 2).max(max_pending.saturating_add(1));
        links.retain_mut(|link| {
            let connected = link.send(map, *version, pending);
            if link.backlog > threshold {
                link.start_copy(*capacity, map);
            }
            connected
        });
        pending.clear();
    }
}

/// A reader of a [`Bounded`], with its own copy of the map.
pub struct Reader<K, V> {
    map: Table<K, V>,
    version: u64,
    is_synced: bool,
    deltas: Receiver<Delta<K, V>>,
    /// Queue by which used deltas return to the writer.
    returned: Sender<Delta<K, V>>,
}

impl<K: Hash + Eq, V> Reader<K, V> {
    /// Applies the updates that the writer has sent and returns their number. Call it at the start of a batch.
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
                link::apply_update(&mut self.map, hash, key, value);
            }
            self.version = delta.version;
        }
        self.is_synced = true;
        // fails only after the last writer is gone
        drop(self.returned.push_all(deltas));
        self.version - before
    }

    /// Returns the value of a key as of the last [`catch_up`](Reader::catch_up).
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    /// Returns true if the key has a value.
    #[inline(always)]
    pub fn contains(&self, key: &K) -> bool {
        self.map.get(key).is_some()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Returns an iterator over the entries in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.map.iter()
    }

    /// Returns the number of the last update that is applied; all earlier ones are applied, and no later one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns true once the reader has the entries from before its creation. A reader of a map that was empty then is
    /// complete even if this returns false.
    pub fn is_synced(&self) -> bool {
        self.is_synced
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
debug! {
    [const N: usize, K, V] Bounded<N, K, V>
    [const N: usize, K: Hash + Eq + Clone, V: Clone] Writer<N, K, V>
    [K, V] Reader<K, V>
}
