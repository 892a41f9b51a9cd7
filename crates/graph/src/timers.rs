//! Scheduled events: millions of timers, driven by the time they are told.

mod wheel;

use crate::Counter;
use core::fmt;
use core::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use wheel::{NONE, Next, Place, Places, Wheel};

/// Timers, each with a value, that fire once or periodically.
///
/// Time is a [`Duration`] since a start that the caller chooses, as [`Context::now`](crate::Context::now) tells it, and is passed
/// in: nothing here looks at a clock. It goes by in ticks. A timer fires in the first [`advance`](Timers::advance) to
/// the end of the tick in which its time falls, or beyond: never early, and late by less than a tick if `advance` is
/// called at the end of every one. Timers fire in the order of their ticks; those of one tick in no order.
///
/// A hierarchical timing wheel: inserting, cancelling and moving a timer take constant time however many there are;
/// firing one takes at most one step for each of the 11 levels of 64 slots, for whatever is due within a day in ticks
/// of a millisecond at most five. A jump over any time costs no more for being long.
///
/// Periodic timers do not drift: one that began at `t` with period `p` fires for `t`, `t + p`, `t + 2p`, … whatever `p`
/// is in ticks. One that is late, because time has jumped or because its period is shorter than a tick, **fires once**
/// and says for how many periods ([`Fired::periods`]).
///
/// Cycles to insert, to cancel, and to fire one of a million timers that are spread over a minute: 53, 308 and 305, of which
/// most is waiting for memory; with a `BTreeMap` of times 1217, 1512 and 127 (median, Sapphire Rapids,
/// 2.7 GHz counter, by `make bench`).
///
/// There are at most `capacity` timers. Further ones are refused ([`NoRoom`]) and counted. Memory for all of them is
/// reserved, and used when needed: 37 bytes and an `Option` of the value for each, and up to 45 kB.
///
/// An NF that forgets a source a second after its last packet. [`Fired::again`] puts a timer off that fires too soon,
/// which is cheaper than to move it with every packet:
/// ```
/// use graph::{BuildContext, Context, Node, PerCore, Timers};
/// use packet::Batch;
/// use std::collections::HashMap;
/// use std::time::Duration;
///
/// const IDLE: Duration = Duration::from_secs(1);
///
/// struct Sources {
///     /// When each was last seen.
///     seen: PerCore<HashMap<[u8; 4], Duration>>,
///     timers: PerCore<Timers<[u8; 4]>>,
/// }
/// impl Sources {
///     fn build(cx: &BuildContext) -> Self {
///         Sources {
///             seen: PerCore::new(cx, |_| HashMap::new()),
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
///             let known = self.seen.contains_key(&source) || self.timers.once(cx.now() + IDLE, source).is_ok();
///             if !known {
///                 cx.drop(0, packet);
///                 continue;
///             }
///             self.seen.insert(source, cx.now());
///             batch.push(packet).unwrap();
///         }
///     }
///     fn interval(&self) -> Option<Duration> {
///         Some(Duration::from_millis(1)) // a tick
///     }
///     fn on_timer(&mut self, cx: &mut Context<'_>) {
///         let Sources { seen, timers } = self;
///         timers.advance(cx.now(), |fired| match seen.get(fired.value) {
///             Some(&last) if last + IDLE > cx.now() => fired.again(last + IDLE),
///             _ => drop(seen.remove(fired.value)),
///         });
///     }
/// }
/// # use graph::{Blueprint, Board, Graph, Hop, HopPlan, NodePlan, Row, Sink, Target};
/// # use packet::{HeapPool, Pool};
/// # use std::sync::{Arc, Mutex};
/// # struct Out;
/// # impl Sink for Out {
/// #     fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
/// #         batch.clear();
/// #     }
/// # }
/// # struct Shown(Sources, Arc<Mutex<usize>>);
/// # impl Node for Shown {
/// #     fn process(&mut self, cx: &mut Context<'_>, n: u8, batch: &mut Batch) {
/// #         self.0.process(cx, n, batch);
/// #         *self.1.lock().unwrap() = self.0.seen.len();
/// #     }
/// #     fn interval(&self) -> Option<Duration> {
/// #         self.0.every()
/// #     }
/// #     fn on_timer(&mut self, cx: &mut Context<'_>) {
/// #         self.0.wake(cx);
/// #         assert_eq!(self.0.seen.len(), self.0.timers.len());
/// #         *self.1.lock().unwrap() = self.0.seen.len();
/// #     }
/// # }
/// # let pool = Arc::new(HeapPool::new(64));
/// # let known = Arc::new(Mutex::new(0));
/// # let blueprint = Blueprint {
/// #     nodes: vec![NodePlan { name: "sources".into(), edges: vec![Target::Nowhere] }],
/// #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
/// # };
/// # let node = Shown(Sources::build(&BuildContext::default()), known.clone());
/// # let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
/// # let mut come = |graph: &mut Graph, millis: u64, source: [u8; 4]| {
/// #     let mut frame = [0; 60];
/// #     frame[26..30].copy_from_slice(&source);
/// #     graph.wake(Duration::from_millis(millis), &mut Out);
/// #     let mut batch = Batch::new();
/// #     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
/// #     graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out);
/// #     *known.lock().unwrap()
/// # };
/// # let one = [192, 0, 2, 1];
/// # assert_eq!(come(&mut graph, 10, one), 1);
/// # assert_eq!(come(&mut graph, 500, [192, 0, 2, 2]), 2);
/// # assert_eq!(come(&mut graph, 900, one), 2);
/// # assert_eq!(come(&mut graph, 1499, one), 2);
/// # assert_eq!(come(&mut graph, 1500, one), 1);
/// # assert_eq!(come(&mut graph, 2600, [192, 0, 2, 3]), 1);
/// ```
pub struct Timers<T> {
    wheel: Wheel,
    slab: Slab<T>,
    /// Timers that there are no more, to be used again: a list by [`Place::next`].
    free: u32,
    len: usize,
    capacity: usize,
    /// Bits of an id for the number of the timer's entry.
    index_bits: u32,
    tick: Tick,
    /// The latest tick to which it has advanced.
    latest: u64,
    refused: Arc<Counter>,
}

/// Names a timer of one [`Timers`] for as long as that has it. When the timer has fired for the last time or was
/// cancelled, the id names nothing, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerId(NonZeroU64);

/// No room for another timer: this is its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {capacity} timers are in use; make the capacity larger, or cancel what is no longer needed")]
pub struct NoRoom<T> {
    /// Timers there can be.
    pub capacity: usize,
    /// What was to be scheduled.
    pub value: T,
}

/// A timer that fires.
#[derive(Debug)]
pub struct Fired<'a, T> {
    /// Which it is.
    pub id: TimerId,
    /// Its value. It is dropped afterwards, unless the timer goes on.
    pub value: &'a mut T,
    /// The time for which it fires: for a late periodic timer, the first of those that it fires for.
    pub at: Duration,
    /// Periods that it fires for: 1 if it is not late or not periodic.
    pub periods: u64,
    /// When it fires again.
    next: &'a mut Option<Duration>,
}

impl<T> Fired<'_, T> {
    /// Has the timer fire again, at `at`, and keep its value and its id. A time that has passed, by the end of the
    /// tick, means the end of the next one. A periodic timer goes on from there with its period.
    pub fn again(&mut self, at: Duration) {
        *self.next = Some(at);
    }

    /// Ends a periodic timer.
    pub fn stop(&mut self) {
        *self.next = None;
    }
}

/// An entry of the slab.
struct Entry<T> {
    /// Which timer has it, or the next one to have it will: the low bits are the entry's number, the others go up by
    /// one each time.
    id: u64,
    /// In nanoseconds.
    at: u64,
    /// In nanoseconds, 0 for once.
    period: u64,
    place: Place,
    /// None if there is no timer.
    value: Option<T>,
}

struct Slab<T>(Vec<Entry<T>>);

impl<T> Places for Slab<T> {
    #[inline(always)]
    fn place(&mut self, timer: u32) -> &mut Place {
        &mut self.0[timer as usize].place
    }

    #[inline(always)]
    fn look_at(&self, timers: &[u32]) {
        let seen = timers.iter().filter_map(|timer| self.0.get(*timer as usize)).fold(0, |seen, entry| seen ^ entry.at);
        core::hint::black_box(seen);
    }
}

/// Nanoseconds of a tick, and division by them.
#[derive(Clone, Copy)]
struct Tick {
    nanos: u64,
    /// 2⁶⁴ / nanos, rounded down, or as near as a `u64` comes.
    inverse: u64,
    /// The last tick that comes: there is one after it.
    last: u64,
}

impl Tick {
    fn new(tick: Duration) -> Self {
        let nanos = nanos(tick).max(1);
        let inverse = u64::try_from((1 << 64) / u128::from(nanos)).unwrap_or(u64::MAX);
        Tick { nanos, inverse, last: u64::MAX / nanos - 1 }
    }

    /// The tick that `nanos` falls in: it ends then or less than a tick later.
    #[inline]
    fn at_end(self, nanos: u64) -> u64 {
        let whole = self.whole(nanos);
        whole + u64::from(whole * self.nanos != nanos)
    }

    /// Ticks that are over at `nanos`.
    #[inline]
    fn whole(self, nanos: u64) -> u64 {
        let mut whole = ((u128::from(nanos) * u128::from(self.inverse)) >> 64) as u64;
        // the inverse is too small by less than one, and so the quotient by less than two
        while nanos - whole * self.nanos >= self.nanos {
            whole += 1;
        }
        whole
    }
}

/// Nanoseconds, as far as they go: 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<T> Timers<T> {
    /// None yet, of at most `capacity`. The tick is at least a nanosecond.
    ///
    /// # Panics
    /// If the capacity is 2³² or more.
    pub fn new(tick: Duration, capacity: usize) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "timers have numbers of 32 bits, and {capacity} are too many");
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

    /// Schedules `value` for `at`, once.
    ///
    /// # Errors
    /// [`NoRoom`].
    #[inline]
    pub fn once(&mut self, at: Duration, value: T) -> Result<TimerId, NoRoom<T>> {
        self.insert(nanos(at), 0, value)
    }

    /// Schedules `value` for `first`, and after that each `period`, for ever. A period of nothing counts as a tick.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn every(&mut self, first: Duration, period: Duration, value: T) -> Result<TimerId, NoRoom<T>> {
        let period = if period.is_zero() { self.tick.nanos } else { nanos(period) };
        self.insert(nanos(first), period, value)
    }

    #[inline]
    fn insert(&mut self, at: u64, period: u64, value: T) -> Result<TimerId, NoRoom<T>> {
        let index = match self.free {
            NONE if self.slab.0.len() < self.capacity => {
                let index = self.slab.0.len();
                let id = 1 << self.index_bits | index as u64;
                self.slab.0.push(Entry { id, at, period, place: Place::NOWHERE, value: Some(value) });
                index as u32
            }
            NONE => {
                self.refused.add(1);
                return Err(NoRoom { capacity: self.capacity, value });
            }
            index => {
                let entry = &mut self.slab.0[index as usize];
                self.free = entry.place.chunk;
                entry.place = Place::NOWHERE;
                (entry.at, entry.period, entry.value) = (at, period, Some(value));
                index
            }
        };
        self.len += 1;
        self.wheel.put(index, self.tick.at_end(at), &mut self.slab);
        Ok(TimerId(NonZeroU64::new(self.slab.0[index as usize].id).expect("the upper bits are not 0")))
    }

    /// The number of a timer's entry.
    #[inline]
    fn find(&self, id: TimerId) -> Option<u32> {
        let index = (id.0.get() & ((1 << self.index_bits) - 1)) as usize;
        let entry = self.slab.0.get(index)?;
        (entry.id == id.0.get() && entry.value.is_some()).then_some(index as u32)
    }

    /// Ends a timer that is in no list, and gives its value.
    #[inline]
    fn end(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.slab.0[index as usize];
        let value = entry.value.take();
        self.len -= 1;
        // An entry whose ids are used up stays unused: none comes a second time. That takes 2⁶⁴ ÷ capacity uses.
        if let Some(id) = entry.id.checked_add(1 << self.index_bits) {
            entry.id = id;
            entry.place.chunk = self.free;
            self.free = index;
        }
        value
    }

    /// Cancels a timer, and gives its value; `None` if there is no such timer any more.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let index = self.find(id)?;
        self.wheel.take(index, &mut self.slab);
        self.end(index)
    }

    /// Has a timer fire at `at` instead; a periodic one goes on from there. False if there is no such timer any more.
    #[inline]
    pub fn move_to(&mut self, id: TimerId, at: Duration) -> bool {
        let Some(index) = self.find(id) else { return false };
        self.wheel.take(index, &mut self.slab);
        let at = nanos(at);
        self.slab.0[index as usize].at = at;
        self.wheel.put(index, self.tick.at_end(at), &mut self.slab);
        true
    }

    /// When a timer fires next.
    pub fn at(&self, id: TimerId) -> Option<Duration> {
        self.find(id).map(|index| Duration::from_nanos(self.slab.0[index as usize].at))
    }

    /// The value of a timer.
    pub fn get(&self, id: TimerId) -> Option<&T> {
        self.slab.0[self.find(id)? as usize].value.as_ref()
    }

    /// The value of a timer, to change it.
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        let index = self.find(id)?;
        self.slab.0[index as usize].value.as_mut()
    }

    /// Fires what is due by `now`. Time does not go back: a `now` before an earlier one counts as that.
    pub fn advance(&mut self, now: Duration, f: impl FnMut(&mut Fired<'_, T>)) {
        self.advance_some(now, usize::MAX, f);
    }

    /// As [`advance`](Timers::advance), in no more than `steps` steps: timers fired or brought nearer, which takes
    /// about as long. True if all is done; otherwise the next call goes on with the rest, which is late.
    pub fn advance_some(&mut self, now: Duration, steps: usize, mut f: impl FnMut(&mut Fired<'_, T>)) -> bool {
        let until = self.tick.whole(nanos(now)).min(self.tick.last).max(self.latest);
        self.latest = until;
        for _ in 0..steps {
            match self.wheel.next(until, &mut self.slab) {
                None => return true,
                Some(Next::Nearer(index)) => {
                    let tick = self.tick.at_end(self.slab.0[index as usize].at);
                    self.wheel.put(index, tick, &mut self.slab);
                }
                Some(Next::Due(index)) => self.fire(index, until, &mut f),
            }
        }
        false
    }

    #[inline]
    fn fire(&mut self, index: u32, until: u64, f: &mut impl FnMut(&mut Fired<'_, T>)) {
        let entry = &mut self.slab.0[index as usize];
        let (Some(id), Some(value)) = (NonZeroU64::new(entry.id), &mut entry.value) else { return };
        let at = entry.at;
        let late = (until * self.tick.nanos).saturating_sub(at);
        let periods = 1 + late.checked_div(entry.period).unwrap_or(0);
        let of_itself = (entry.period != 0).then(|| at.saturating_add(entry.period.saturating_mul(periods)));
        let mut next = of_itself.map(Duration::from_nanos);
        f(&mut Fired { id: TimerId(id), value, at: Duration::from_nanos(at), periods, next: &mut next });
        match next {
            None => drop(self.end(index)),
            Some(at) => {
                // not in this call again, whatever it says
                let at = nanos(at);
                entry.at = if self.tick.at_end(at) > until { at } else { (until + 1) * self.tick.nanos };
                let tick = self.tick.at_end(entry.at);
                self.wheel.put(index, tick, &mut self.slab);
            }
        }
    }

    /// Timers there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Timers there can be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Timers refused because there was no room, for [`Node::counters`](crate::Node::counters).
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
        fn ticks_are_those_of_a_division(bits in 0..64u32, n in any::<u64>(), shift in 0..64u32) {
            for nanos in [1 << bits, (1 << bits) - 1, (1 << bits) + 1, n | 1].into_iter().filter(|&nanos: &u64| nanos > 0) {
                let tick = Tick::new(Duration::from_nanos(nanos));
                for time in [n >> shift, (n >> shift) / nanos * nanos, u64::MAX, 0] {
                    prop_assert_eq!(tick.whole(time), time / nanos);
                    prop_assert_eq!(tick.at_end(time), time.div_ceil(nanos));
                }
            }
        }
    }

    #[test]
    fn an_id_never_comes_again_even_when_they_run_out() {
        let mut timers = Timers::new(Duration::from_millis(1), 4);
        assert_eq!(timers.index_bits, 2);
        let first = timers.once(Duration::ZERO, 0).expect("there is room");
        timers.slab.0[0].id = u64::MAX - 7;
        assert_eq!(timers.cancel(first), None);
        let last = TimerId(NonZeroU64::new(u64::MAX - 7).expect("not 0"));
        assert_eq!(timers.cancel(last), Some(0));
        let id = timers.once(Duration::ZERO, 1).expect("there is room");
        assert_eq!(id.0.get(), u64::MAX - 3);
        assert_eq!((timers.cancel(last), timers.cancel(id), timers.cancel(id)), (None, Some(1), None));
        // the first entry is used up: three are left
        let ids: Vec<_> = (0..4).map(|n| timers.once(Duration::ZERO, n)).collect();
        assert_eq!(ids.iter().filter(|id| id.is_ok()).count(), 3);
        assert_eq!((timers.len(), timers.refused().get()), (3, 1));
    }
}
