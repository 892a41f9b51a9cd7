//! Limiting the rate of each key by token buckets.

use super::dropped;
use crate::named_enum::{Named, Numbered};
use crate::{Counter, Exit, HeaderStack, Operator, OperatorNames, OperatorTrace, Rate, View};
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{CAPACITY_MOST, FlowKey, FlowTable, Lookup, Settings};

/// Parts of a token: tokens are counted in millionths, as time is in microseconds, so that no fraction is lost.
const ONE: u64 = 1_000_000;
/// Smallest bucket in bits: the longest frame, 2048 bytes.
const LONGEST_FRAME_BITS: u64 = 8 * 2048;
/// Shortest time in which the whole table is searched for full buckets, in µs.
const MIN_SWEEP_US: u64 = 1_000_000;
/// Most buckets of the table that are searched for one packet.
const SWEEP_PER_PACKET: u64 = 8;

crate::named_enum! {
    /// Reasons for which [`Operator::meter`] drops packets.
    enum MeterDrop {
        /// The bucket of the key has fewer tokens than the packet needs.
        Exceeded = "meter_exceeded",
        /// The key is new and the table has no room for it.
        Full = "meter_full",
    }
}

/// Settings of a [`MeterTable`], which an NF can have among its own.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MeterSettings {
    /// Rate of each key in packets or bits per second, such as "500 kpps" or "2 Gbit", rounded to a whole number. Bits
    /// are those of frames without FCS.
    pub rate: Rate,
    /// Size of a bucket as the time in which the rate fills it, in milliseconds, 1 to 1000. A bucket holds at least one
    /// packet, or 2048 bytes.
    pub burst: u32,
    /// Largest number of keys, 1 to 1,073,741,824.
    pub keys: usize,
}

impl Default for MeterSettings {
    /// 1 Gbit/s and 10 ms for each of 65,536 keys.
    fn default() -> Self {
        MeterSettings { rate: Rate::Bits(1e9), burst: 10, keys: 65_536 }
    }
}

/// Rate and size of token buckets.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Tokens per second.
    rate: u64,
    /// Tokens that a bucket holds, in millionths.
    size: u64,
}

/// The tokens of a bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    /// Tokens at time `at`, in millionths.
    left: u64,
    /// Time in µs.
    at: u64,
}

impl Limit {
    fn new(rate: u64, size: u64) -> Self {
        Limit { rate, size: size.saturating_mul(ONE) }
    }

    /// Returns the tokens of a bucket at a time, in millionths. A time that is before the last one adds none.
    #[inline(always)]
    fn available(&self, tokens: &Tokens, us: u64) -> u64 {
        let added = us.saturating_sub(tokens.at).saturating_mul(self.rate);
        tokens.left.saturating_add(added).min(self.size)
    }

    /// Takes `cost` tokens and returns true, or takes none and returns false if there are fewer.
    #[inline(always)]
    fn take(&self, tokens: &mut Tokens, cost: u64, us: u64) -> bool {
        let available = self.available(tokens, us);
        let left = available.checked_sub(cost.saturating_mul(ONE));
        *tokens = Tokens { left: left.unwrap_or(available), at: tokens.at.max(us) };
        left.is_some()
    }
}

/// Returns a time in µs.
#[inline(always)]
fn micros(now: Duration) -> u64 {
    now.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(now.subsec_micros()))
}

/// One token bucket, for limits without keys such as that of ICMP errors.
///
/// ```
/// use graph::TokenBucket;
/// use std::time::Duration;
///
/// let mut bucket = TokenBucket::new(10, 2);
/// let at = Duration::from_millis;
/// assert_eq!([bucket.take(1, at(0)), bucket.take(1, at(0)), bucket.take(1, at(0))], [true, true, false]);
/// assert_eq!([bucket.take(1, at(99)), bucket.take(1, at(100))], [false, true]);
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    limit: Limit,
    tokens: Tokens,
}

impl TokenBucket {
    /// Creates a full bucket of `size` tokens, to which `rate` tokens per second are added.
    #[must_use]
    pub fn new(rate: u64, size: u64) -> Self {
        let limit = Limit::new(rate, size);
        TokenBucket { limit, tokens: Tokens { left: limit.size, at: 0 } }
    }

    /// Takes `cost` tokens and returns true, or takes none and returns false if there are fewer at time `now`. A time
    /// that goes back adds no tokens.
    #[inline]
    pub fn take(&mut self, cost: u64, now: Duration) -> bool {
        self.limit.take(&mut self.tokens, cost, micros(now))
    }
}

/// The token buckets of [`Operator::meter`]: one for each key, of a bounded number of keys.
///
/// A key that is not in the table has a full bucket. A key whose bucket is full again is therefore removed, which
/// changes no verdict: the table is searched for such keys while packets arrive, all of it within the time that fills a
/// bucket, and at least a second. A new key that finds the table full is dropped as `meter_full`; no other key loses
/// its bucket.
pub struct MeterTable<K: FlowKey> {
    limit: Limit,
    /// True if a token is a packet, false if it is a bit.
    counts_packets: bool,
    table: FlowTable<K, Tokens>,
    /// Time in which all buckets of the table are searched, in µs.
    sweep_us: u64,
    /// Time of the last packet, in µs.
    now: u64,
    /// Buckets of the table that are to be searched, multiplied by `sweep_us`.
    sweep_due: u64,
    /// Number of keys.
    keys: Arc<Counter>,
}

impl<K: FlowKey> MeterTable<K> {
    /// Creates the table and allocates its memory, about 64 bytes for each key of 8 bytes.
    ///
    /// # Errors
    /// `burst` or `keys` is out of range, or the system has not enough memory.
    pub fn new(settings: &MeterSettings) -> Result<Self, Diagnostic> {
        let MeterSettings { rate, burst, keys } = *settings;
        if !(1..=1000).contains(&burst) {
            return Err(Diagnostic::new("is not a burst").key("burst").value(burst).remedy("write 1 to 1000 (ms)"));
        }
        let table = FlowTable::new(&Settings::new(keys)).map_err(|e| {
            Diagnostic::new(e.to_string()).key("keys").value(keys).remedy(format!("write 1 to {CAPACITY_MOST}"))
        })?;
        let (rate, smallest, counts_packets) = match rate {
            Rate::Packets(rate) => (rate, 1, true),
            Rate::Bits(rate) => (rate, LONGEST_FRAME_BITS, false),
        };
        let rate = (rate.round() as u64).max(1);
        let size = rate.saturating_mul(u64::from(burst)) / 1000;
        let limit = Limit::new(rate, size.max(smallest));
        let sweep_us = limit.size.div_ceil(rate).max(MIN_SWEEP_US);
        let keys = Arc::default();
        Ok(MeterTable { limit, counts_packets, table, sweep_us, now: 0, sweep_due: 0, keys })
    }

    /// Takes the tokens for a packet of `bytes` bytes.
    #[inline(always)]
    fn take(&mut self, key: K, bytes: usize, now: Duration) -> Result<(), MeterDrop> {
        let us = micros(now);
        self.sweep(us);
        let cost = if self.counts_packets { 1 } else { 8 * bytes as u64 };
        let (limit, mut verdict, mut is_new) = (self.limit, Ok(()), false);
        let key = self.table.prepare(key);
        self.table.look_up_or_insert(
            &[key],
            0,
            |_, _| {},
            |_, found| {
                let tokens = match found {
                    Lookup::Known(tokens) => tokens,
                    Lookup::New(tokens) => {
                        is_new = true;
                        *tokens = Tokens { left: limit.size, at: us };
                        tokens
                    }
                    Lookup::Refused => return verdict = Err(MeterDrop::Full),
                };
                if !limit.take(tokens, cost, us) {
                    verdict = Err(MeterDrop::Exceeded);
                }
            },
        );
        if is_new {
            self.keys.set(self.table.len() as u64);
        }
        verdict
    }

    /// Searches a part of the table, in proportion to the time since the last packet, and removes keys whose buckets
    /// are full.
    #[inline(always)]
    fn sweep(&mut self, us: u64) {
        if us > self.now {
            let (buckets, elapsed) = (self.table.buckets() as u64, us - self.now);
            self.now = us;
            let all = buckets.saturating_mul(self.sweep_us);
            self.sweep_due = self.sweep_due.saturating_add(elapsed.saturating_mul(buckets)).min(all);
        }
        if self.sweep_due >= self.sweep_us && !self.table.is_empty() {
            self.sweep_due_buckets(us);
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep_due_buckets(&mut self, us: u64) {
        let buckets = (self.sweep_due / self.sweep_us).min(SWEEP_PER_PACKET);
        self.sweep_due -= buckets * self.sweep_us;
        let limit = self.limit;
        self.table.age(0, buckets as usize, |_, tokens, _| limit.available(tokens, us) == limit.size);
        self.keys.set(self.table.len() as u64);
    }
}

/// Operator returned by [`Operator::meter`].
pub struct Meter<U, K: FlowKey, F> {
    upstream: U,
    table: MeterTable<K>,
    key: F,
}

impl<U, K: FlowKey, F> Meter<U, K, F> {
    pub(crate) fn new(upstream: U, table: MeterTable<K>, key: F) -> Self {
        Meter { upstream, table, key }
    }

    #[inline(always)]
    fn step<'p, S: HeaderStack>(&mut self, view: View<'p, S>, first: u8) -> Result<View<'p, S>, Exit>
    where
        F: FnMut(&View<'_, S>) -> K,
    {
        match self.table.take((self.key)(&view), view.bytes().len(), view.now()) {
            Ok(()) => Ok(view),
            Err(reason) => Err(dropped::<Self>(first + reason.number())),
        }
    }
}

impl<I: HeaderStack, U: Operator<I>, K: FlowKey + Send, F> Operator<I> for Meter<U, K, F>
where
    K::Packed: Send,
    F: FnMut(&View<'_, U::Output>) -> K + Send,
{
    type Output = U::Output;
    const DROP_REASONS: u8 = U::DROP_REASONS + MeterDrop::NAMES.len() as u8;

    fn register(&mut self, names: &mut OperatorNames) {
        self.upstream.register(names);
        MeterDrop::NAMES.iter().for_each(|name| names.drop(name));
        names.counter("meter_keys", &self.table.keys);
    }

    #[inline(always)]
    fn run<'p>(&mut self, view: View<'p, I>, first: u8) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run(view, first)?;
        self.step(view, first + U::DROP_REASONS)
    }

    fn run_traced<'p>(
        &mut self,
        view: View<'p, I>,
        first: u8,
        trace: &mut OperatorTrace<'_>,
    ) -> Result<View<'p, Self::Output>, Exit> {
        let view = self.upstream.run_traced(view, first, trace)?;
        trace.step("meter", None, view, |view| self.step(view, first + U::DROP_REASONS))
    }
}
