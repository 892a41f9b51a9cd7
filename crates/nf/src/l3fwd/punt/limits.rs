//! Rate limits of packets to the control plane (RFC 6192).

use super::class::PuntClass;
use core::sync::atomic::{AtomicU64, Ordering};
use graph::{Context, Counter, Counters, Named, Numbered};
use std::sync::Arc;
use std::time::Duration;

/// Number of buckets that a second fills: a burst is a tenth of the rate.
const BUCKETS_PER_SECOND: u64 = 10;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Token buckets of each representor by class, which all copies of the router share. Each interface has buckets of its
/// own, so that a flood at one does not take the rate of the others.
pub(in crate::l3fwd) struct PuntBuckets(Vec<[Bucket; PuntClass::COUNT]>);

impl PuntBuckets {
    /// Creates full buckets for rates in packets per second.
    pub(in crate::l3fwd) fn new(representors: usize, rates: &[u64; PuntClass::COUNT]) -> PuntBuckets {
        PuntBuckets((0..representors).map(|_| rates.map(Bucket::new)).collect())
    }
}

/// Token bucket for several threads, as a virtual scheduling algorithm: a token is due one interval after another.
struct Bucket {
    /// Nanoseconds in which one token is added.
    interval: u64,
    /// Nanoseconds in which an empty bucket is filled.
    fill: u64,
    /// Time at which the bucket is full, in nanoseconds.
    full_at: AtomicU64,
}

impl Bucket {
    fn new(rate: u64) -> Bucket {
        let rate = rate.max(1);
        // rounded up, so that the rate is not exceeded
        let interval = NANOS_PER_SECOND.div_ceil(rate);
        let size = (rate / BUCKETS_PER_SECOND).max(1);
        Bucket { interval, fill: interval.saturating_mul(size), full_at: AtomicU64::new(0) }
    }

    /// Takes a token and returns true, or returns false if there is none. A time that goes back adds no tokens.
    fn take(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let after = |full_at: u64| {
            let full_at = full_at.max(now).saturating_add(self.interval);
            (full_at - now <= self.fill).then_some(full_at)
        };
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
    }
}

/// Limits and counters of one copy of the router.
pub(in crate::l3fwd) struct Punt {
    buckets: Arc<PuntBuckets>,
    pub(super) punted: Counters<PuntClass>,
    exceeded: Counters<PuntClass>,
    pub(super) injected: Arc<Counter>,
}

impl Punt {
    pub(in crate::l3fwd) fn new(buckets: Arc<PuntBuckets>) -> Punt {
        Punt { buckets, punted: Counters::default(), exceeded: Counters::default(), injected: Arc::default() }
    }

    /// Returns the counters, or none if no interface has a representor.
    pub(in crate::l3fwd) fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        if self.buckets.0.is_empty() {
            return vec![];
        }
        let named = |prefix: &'static str, counters: &Counters<PuntClass>| {
            counters.named().into_iter().map(move |(class, counter)| (format!("{prefix}_{class}"), counter))
        };
        let injected = ("injected".to_owned(), self.injected.clone());
        named("punted", &self.punted).chain(named("punt_exceeded", &self.exceeded)).chain([injected]).collect()
    }

    /// Takes a token of the packet's class and returns the class. Counts the packet and returns `None` if the rate is
    /// exceeded.
    pub(super) fn admit(&self, cx: &mut Context<'_>, representor: usize, frame: &[u8]) -> Option<PuntClass> {
        let class = PuntClass::of(frame);
        let admitted = self.buckets.0[representor][usize::from(class.number())].take(cx.now());
        cx.explain(|| format!("{} by class {}", if admitted { "punted" } else { "punt exceeded" }, class.name()));
        if !admitted {
            self.exceeded[class].add(1);
        }
        admitted.then_some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::TokenBucket;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_admits_as_a_bucket_of_one_thread(
            // rates whose interval is a whole number of microseconds, the unit of the model
            rate in prop::sample::select(vec![1u64, 2, 10, 50, 1000, 10_000, 100_000]),
            steps in prop::collection::vec((0..3_000_000u64, 1..20usize), 1..100),
        ) {
            let bucket = Bucket::new(rate);
            let mut model = TokenBucket::new(rate, (rate / BUCKETS_PER_SECOND).max(1));
            let mut us = 0;
            for (step, packets) in steps {
                us += step / rate;
                for _ in 0..packets {
                    let now = Duration::from_micros(us);
                    prop_assert_eq!(bucket.take(now), model.take(1, now), "{} us", us);
                }
            }
        }
    }

    #[test]
    fn threads_share_the_tokens_of_a_bucket() {
        let bucket = Bucket::new(10_000);
        let admitted: usize = std::thread::scope(|scope| {
            let take = || (0..5000).filter(|_| bucket.take(Duration::from_secs(1))).count();
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1000);
        assert!(!bucket.take(Duration::from_millis(900)), "a time that goes back adds no tokens");
        assert!(bucket.take(Duration::from_micros(1_000_100)));
    }
}
