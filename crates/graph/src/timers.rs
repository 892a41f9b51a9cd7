//! Timers: millions of scheduled events, driven by the time that the caller passes.

mod wheel;

use crate::Counter;
use core::fmt;
use core::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use wheel::{NONE, Popped, Position, Positions, Wheel};

/// A set of timers, each with a value, that fire once or periodically.
///
/// Time is a [`Duration`] since an arbitrary start, as from [`Context::now`](crate::Context::now), and is passed in;
/// timers read no clock. It has a resolution of ticks. A timer fires in the first [`advance`](Timers::advance) to or
/// beyond the end of the tick of its deadline: never early, and less than a tick late if `advance` is called at the end
/// of every tick. Timers fire in the order of their ticks, and in arbitrary order within a tick.
///
/// The implementation is a hierarchical timing wheel. Scheduling, cancelling and rescheduling take constant time.
/// Firing takes at most one step for each of the 11 levels of 64 slots, and at most five for deadlines within a day and
/// ticks of a millisecond. A jump of the time costs no more than a small step.
///
/// Periodic timers do not drift: a timer with first deadline `t` and period `p` fires for `t`, `t + p`, `t + 2p`, …,
/// whatever `p` is in ticks. A late one, because time has jumped or its period is shorter than a tick, **fires once**
/// and reports the number of elapsed periods ([`FiredTimer::periods`]).
///
/// Cycles to schedule, cancel and fire one of a million timers that are spread over a minute: 53, 308 and 305, mostly
/// cache misses; with a `BTreeMap` by deadline 1217, 1512 and 127 (median, Sapphire Rapids, 2.7 GHz TSC, by `make
/// bench`).
///
/// There are at most `capacity` timers. Further ones are refused ([`TimersFull`]) and counted. Memory for all of them
/// is reserved at creation, and touched when used: 37 bytes and an `Option` of the value for each timer, and up to 45
/// kB.
///
/// An NF that forgets a source a second after its last packet. It reschedules a timer that fires too early
/// ([`FiredTimer::reschedule`]), which is cheaper than to reschedule it for every packet:
/// ```
/// use graph::{BuildContext, Context, Node, PerCore, Timers};
/// use packet::Batch;
/// use std::collections::HashMap;
/// use std::time::Duration;
///
/// const IDLE: Duration = Duration::from_secs(1);
///
/// struct Sources {
///     /// Time of the last packet of each source.
///     last_packets: PerCore<HashMap<[u8; 4], Duration>>,
///     timers: PerCore<Timers<[u8; 4]>>,
/// }
/// impl Sources {
///     fn build(cx: &BuildContext) -> Self {
///         Sources {
///             last_packets: PerCore::new(cx, |_| HashMap::new()),
///             timers: PerCore::new(cx, |_| Timers::new(Duration::from_millis(1), 100_000)),
///         }
///     }
/// }
/// impl Node for Sources {
///     fn drops(&self) -> &[&'static str] {
///         &["too_many_sources"]
///     }
///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         for packet in batch.drain() {
///             let Some(&source) = packet.data().get(26..).and_then(|data| data.first_chunk()) else { continue };
///             let known = self.last_packets.contains_key(&source)
///                 || self.timers.schedule_once(cx.now() + IDLE, source).is_ok();
///             if !known {
///                 cx.drop(0, packet);
///                 continue;
///             }
///             self.last_packets.insert(source, cx.now());
///             batch.push(packet).unwrap();
///         }
///     }
///     fn interval(&self) -> Option<Duration> {
///         Some(Duration::from_millis(1)) // one tick
///     }
///     fn on_timer(&mut self, cx: &mut Context<'_>) {
///         let Sources { last_packets, timers } = self;
///         timers.advance(cx.now(), |fired| match last_packets.get(fired.value) {
///             Some(&last) if last + IDLE > cx.now() => fired.reschedule(last + IDLE),
///             _ => drop(last_packets.remove(fired.value)),
///         });
///     }
/// }
/// # use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
/// # use packet::{HeapPool, Pool};
/// # use std::sync::{Arc, Mutex};
/// # struct Out;
/// # impl Sink for Out {
/// #     fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
/// #         batch.clear();
/// #     }
/// # }
/// # struct Counted(Sources, Arc<Mutex<usize>>);
/// # impl Node for Counted {
/// #     fn process(&mut self, cx: &mut Context<'_>, n: u8, batch: &mut Batch) {
/// #         self.0.process(cx, n, batch);
/// #         *self.1.lock().unwrap() = self.0.last_packets.len();
/// #     }
/// #     fn interval(&self) -> Option<Duration> {
/// #         self.0.interval()
/// #     }
/// #     fn on_timer(&mut self, cx: &mut Context<'_>) {
/// #         self.0.on_timer(cx);
/// #         assert_eq!(self.0.last_packets.len(), self.0.timers.len());
/// #         *self.1.lock().unwrap() = self.0.last_packets.len();
/// #     }
/// # }
/// # let pool = Arc::new(HeapPool::new(64));
/// # let known = Arc::new(Mutex::new(0));
/// # let blueprint = Blueprint {
/// #     nodes: vec![NodePlan { name: "sources".into(), edges: vec![Target::Unconnected] }],
/// #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
/// # };
/// # let node = Counted(Sources::build(&BuildContext::default()), known.clone());
/// # let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
/// # let mut receive = |graph: &mut Graph, millis: u64, source: [u8; 4]| {
/// #     let mut frame = [0; 60];
/// #     frame[26..30].copy_from_slice(&source);
/// #     graph.run_timers(Duration::from_millis(millis), &mut Out);
/// #     let mut batch = Batch::new();
/// #     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
/// #     graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out);
/// #     *known.lock().unwrap()
/// # };
/// # let one = [192, 0, 2, 1];
/// # assert_eq!(receive(&mut graph, 10, one), 1);
/// # assert_eq!(receive(&mut graph, 500, [192, 0, 2, 2]), 2);
/// # assert_eq!(receive(&mut graph, 900, one), 2);
/// # assert_eq!(receive(&mut graph, 1499, one), 2);
/// # assert_eq!(receive(&mut graph, 1500, one), 1);
/// # assert_eq!(receive(&mut graph, 2600, [192, 0, 2, 3]), 1);
/// ```
pub struct Timers<T> {
    wheel: Wheel,
    slab: Slab<T>,
    /// Head of the list of free entries, linked by [`Position::chunk`].
    free: u32,
    len: usize,
    capacity: usize,
    /// Number of low bits of an id that hold the index of the entry.
    index_bits: u32,
    tick: Tick,
    /// Last tick that it has advanced to.
    latest: u64,
    refused: Arc<Counter>,
}

/// The id of a timer in one [`Timers`]. It becomes invalid when the timer fires for the last time or is cancelled, and
/// is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerId(NonZeroU64);

/// Error: all timers are in use. Returns the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {capacity} timers are in use; increase the capacity or cancel unused timers")]
pub struct TimersFull<T> {
    /// Maximum number of timers.
    pub capacity: usize,
    /// The value that was not scheduled.
    pub value: T,
}

/// A timer that fires, passed to the closure of [`Timers::advance`].
#[derive(Debug)]
pub struct FiredTimer<'a, T> {
    /// Id of the timer.
    pub id: TimerId,
    /// Its value, which is dropped afterwards unless the timer fires again.
    pub value: &'a mut T,
    /// Deadline; of a late periodic timer, the earliest elapsed one.
    pub deadline: Duration,
    /// Number of elapsed periods: 1 if the timer is not late or not periodic.
    pub periods: u64,
    /// Next deadline.
    next: &'a mut Option<Duration>,
}

impl<T> FiredTimer<'_, T> {
    /// Makes the timer fire again at `deadline` with its value and id. A deadline that has passed means the end of the
    /// next tick. A periodic timer continues from there with its period.
    pub fn reschedule(&mut self, deadline: Duration) {
        *self.next = Some(deadline);
    }

    /// Cancels a periodic timer.
    pub fn cancel(&mut self) {
        *self.next = None;
    }
}

/// An entry of the slab.
struct Entry<T> {
    /// Id of its timer, or of the next one: the low bits are the index of the entry, the others a generation number.
    id: u64,
    /// Deadline in nanoseconds.
    deadline: u64,
    /// Period in nanoseconds; 0 for a timer that fires once.
    period: u64,
    position: Position,
    /// `None` if the entry is free.
    value: Option<T>,
}

struct Slab<T>(Vec<Entry<T>>);

impl<T> Positions for Slab<T> {
    #[inline(always)]
    fn position(&mut self, timer: u32) -> &mut Position {
        &mut self.0[timer as usize].position
    }

    #[inline(always)]
    fn prefetch(&self, timers: &[u32]) {
        let loads = timers.iter().filter_map(|timer| self.0.get(*timer as usize));
        core::hint::black_box(loads.fold(0, |bits, entry| bits ^ entry.deadline));
    }
}

/// The length of a tick, with a fast division by it.
#[derive(Clone, Copy)]
struct Tick {
    nanos: u64,
    /// 2⁶⁴ / nanos, rounded down and saturated.
    inverse: u64,
    /// Last tick that `advance` reaches, the last but one of a `u64` of nanoseconds.
    last: u64,
}

impl Tick {
    fn new(tick: Duration) -> Self {
        let nanos = nanos(tick).max(1);
        let inverse = u64::try_from((1 << 64) / u128::from(nanos)).unwrap_or(u64::MAX);
        Tick { nanos, inverse, last: u64::MAX / nanos - 1 }
    }

    /// Returns the tick that ends at `nanos` or less than a tick later.
    #[inline]
    fn ceil(self, nanos: u64) -> u64 {
        let whole = self.floor(nanos);
        whole + u64::from(whole * self.nanos != nanos)
    }

    /// Returns the number of ticks that have ended at `nanos`.
    #[inline]
    fn floor(self, nanos: u64) -> u64 {
        let mut whole = ((u128::from(nanos) * u128::from(self.inverse)) >> 64) as u64;
        // the inverse is too small by less than 1, and so the quotient by less than 2
        while nanos - whole * self.nanos >= self.nanos {
            whole += 1;
        }
        whole
    }
}

/// Returns a duration in nanoseconds, saturated at 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<T> Timers<T> {
    /// Creates an empty set of at most `capacity` timers. The tick is at least a nanosecond.
    ///
    /// # Panics
    /// If the capacity is 2³² or more.
    pub fn new(tick: Duration, capacity: usize) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "capacity {capacity} is 2^32 or more");
        Timers {
            wheel: Wheel::new(capacity),
            slab: Slab(Vec::with_capacity(capacity)),
            free: NONE,
            len: 0,
            capacity,
            index_bits: usize::BITS - capacity.saturating_sub(1).leading_zeros(),
            tick: Tick::new(tick),
            latest: 0,
            refused: Arc::default(),
        }
    }

    /// Schedules `value` once.
    ///
    /// # Errors
    /// [`TimersFull`].
    #[inline]
    pub fn schedule_once(&mut self, deadline: Duration, value: T) -> Result<TimerId, TimersFull<T>> {
        self.insert(nanos(deadline), 0, value)
    }

    /// Schedules `value` for `first` and then every `period`. A period of 0 means one tick.
    ///
    /// # Errors
    /// [`TimersFull`].
    pub fn schedule_periodic(&mut self, first: Duration, period: Duration, value: T) -> Result<TimerId, TimersFull<T>> {
        let period = if period.is_zero() { self.tick.nanos } else { nanos(period) };
        self.insert(nanos(first), period, value)
    }

    #[inline]
    fn insert(&mut self, at: u64, period: u64, value: T) -> Result<TimerId, TimersFull<T>> {
        let index = match self.free {
            NONE if self.slab.0.len() < self.capacity => {
                let index = self.slab.0.len();
                let id = 1 << self.index_bits | index as u64;
                self.slab.0.push(Entry { id, deadline: at, period, position: Position::UNLINKED, value: Some(value) });
                index as u32
            }
            NONE => {
                self.refused.add(1);
                return Err(TimersFull { capacity: self.capacity, value });
            }
            index => {
                let entry = &mut self.slab.0[index as usize];
                self.free = entry.position.chunk;
                entry.position = Position::UNLINKED;
                (entry.deadline, entry.period, entry.value) = (at, period, Some(value));
                index
            }
        };
        self.len += 1;
        self.wheel.insert(index, self.tick.ceil(at), &mut self.slab);
        Ok(TimerId(NonZeroU64::new(self.slab.0[index as usize].id).expect("the upper bits are not 0")))
    }

    /// Returns the index of the entry of a timer.
    #[inline]
    fn find(&self, id: TimerId) -> Option<u32> {
        let index = (id.0.get() & ((1 << self.index_bits) - 1)) as usize;
        let entry = self.slab.0.get(index)?;
        (entry.id == id.0.get() && entry.value.is_some()).then_some(index as u32)
    }

    /// Frees the entry of a timer that is in no slot and returns its value.
    #[inline]
    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.slab.0[index as usize];
        let value = entry.value.take();
        self.len -= 1;
        // an entry stays unused once its ids are exhausted, after 2⁶⁴ ÷ capacity uses
        if let Some(id) = entry.id.checked_add(1 << self.index_bits) {
            entry.id = id;
            entry.position.chunk = self.free;
            self.free = index;
        }
        value
    }

    /// Cancels a timer and returns its value, or `None` if the id is no longer valid.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let index = self.find(id)?;
        self.wheel.remove(index, &mut self.slab);
        self.release(index)
    }

    /// Changes the deadline of a timer; a periodic one continues from there. Returns false if the id is no longer
    /// valid.
    #[inline]
    pub fn reschedule(&mut self, id: TimerId, deadline: Duration) -> bool {
        let Some(index) = self.find(id) else { return false };
        self.wheel.remove(index, &mut self.slab);
        let deadline = nanos(deadline);
        self.slab.0[index as usize].deadline = deadline;
        self.wheel.insert(index, self.tick.ceil(deadline), &mut self.slab);
        true
    }

    /// Returns the next deadline of a timer.
    pub fn deadline(&self, id: TimerId) -> Option<Duration> {
        self.find(id).map(|index| Duration::from_nanos(self.slab.0[index as usize].deadline))
    }

    /// Returns the value of a timer.
    pub fn get(&self, id: TimerId) -> Option<&T> {
        self.slab.0[self.find(id)? as usize].value.as_ref()
    }

    /// Returns the value of a timer, mutably.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let index = self.find(id)?;
        self.slab.0[index as usize].value.as_mut()
    }

    /// Advances the time and calls `f` for each timer that is due. Time does not go back: an earlier `now` than before
    /// is ignored.
    pub fn advance(&mut self, now: Duration, f: impl FnMut(&mut FiredTimer<'_, T>)) {
        self.advance_bounded(now, usize::MAX, f);
    }

    /// Advances the time like [`advance`](Timers::advance) in at most `steps` steps, each of which fires a timer or
    /// moves one to a lower level, at about the same cost. Returns true if all due timers have fired; the next call
    /// continues otherwise.
    pub fn advance_bounded(&mut self, now: Duration, steps: usize, mut f: impl FnMut(&mut FiredTimer<'_, T>)) -> bool {
        let until = self.tick.floor(nanos(now)).min(self.tick.last).max(self.latest);
        self.latest = until;
        for _ in 0..steps {
            match self.wheel.pop_due(until, &mut self.slab) {
                None => return true,
                Some(Popped::Cascade(index)) => {
                    let tick = self.tick.ceil(self.slab.0[index as usize].deadline);
                    self.wheel.insert(index, tick, &mut self.slab);
                }
                Some(Popped::Due(index)) => self.fire(index, until, &mut f),
            }
        }
        false
    }

    #[inline]
    fn fire(&mut self, index: u32, until: u64, f: &mut impl FnMut(&mut FiredTimer<'_, T>)) {
        let entry = &mut self.slab.0[index as usize];
        let (Some(id), Some(value)) = (NonZeroU64::new(entry.id), &mut entry.value) else { return };
        let at = entry.deadline;
        let late = (until * self.tick.nanos).saturating_sub(at);
        let periods = 1 + late.checked_div(entry.period).unwrap_or(0);
        let next_period = (entry.period != 0).then(|| at.saturating_add(entry.period.saturating_mul(periods)));
        let mut next = next_period.map(Duration::from_nanos);
        f(&mut FiredTimer { id: TimerId(id), value, deadline: Duration::from_nanos(at), periods, next: &mut next });
        match next {
            None => drop(self.release(index)),
            Some(at) => {
                // not again in this call
                let at = nanos(at);
                entry.deadline = if self.tick.ceil(at) > until { at } else { (until + 1) * self.tick.nanos };
                let tick = self.tick.ceil(entry.deadline);
                self.wheel.insert(index, tick, &mut self.slab);
            }
        }
    }

    /// Returns the number of timers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of timers.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the counter of timers refused because all were in use, for [`Node::counters`](crate::Node::counters).
    pub fn refused(&self) -> Arc<Counter> {
        Arc::clone(&self.refused)
    }
}

impl<T> fmt::Debug for Timers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Timers");
        f.field("len", &self.len).field("capacity", &self.capacity).field("tick_ns", &self.tick.nanos).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tick_rounds_like_division(bits in 0..64u32, n in any::<u64>(), shift in 0..64u32) {
            let candidates = [1 << bits, (1 << bits) - 1, (1 << bits) + 1, n | 1];
            for nanos in candidates.into_iter().filter(|&nanos: &u64| nanos > 0) {
                let tick = Tick::new(Duration::from_nanos(nanos));
                for time in [n >> shift, (n >> shift) / nanos * nanos, u64::MAX, 0] {
                    prop_assert_eq!(tick.floor(time), time / nanos);
                    prop_assert_eq!(tick.ceil(time), time.div_ceil(nanos));
                }
            }
        }
    }

    #[test]
    fn never_reuses_an_id_even_when_they_are_exhausted() {
        let mut timers = Timers::new(Duration::from_millis(1), 4);
        assert_eq!(timers.index_bits, 2);
        let first = timers.schedule_once(Duration::ZERO, 0).expect("not full");
        timers.slab.0[0].id = u64::MAX - 7;
        assert_eq!(timers.cancel(first), None);
        let last = TimerId(NonZeroU64::new(u64::MAX - 7).expect("not 0"));
        assert_eq!(timers.cancel(last), Some(0));
        let id = timers.schedule_once(Duration::ZERO, 1).expect("not full");
        assert_eq!(id.0.get(), u64::MAX - 3);
        assert_eq!((timers.cancel(last), timers.cancel(id), timers.cancel(id)), (None, Some(1), None));
        // the ids of the first entry are exhausted: three entries are left
        let ids: Vec<_> = (0..4).map(|n| timers.schedule_once(Duration::ZERO, n)).collect();
        assert_eq!(ids.iter().filter(|id| id.is_ok()).count(), 3);
        assert_eq!((timers.len(), timers.refused().get()), (3, 1));
    }
}
