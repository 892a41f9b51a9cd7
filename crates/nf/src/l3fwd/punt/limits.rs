//! Rate limits of packets to the control plane (RFC 6192).

use super::class::PuntClass;
use graph::{Context, Counter, Counters, Named, Numbered, TokenBucket};
use std::sync::Arc;

/// Number of buckets that a second fills: a burst is a tenth of the rate.
const BUCKETS_PER_SECOND: u64 = 10;

/// Limits and counters of one copy of the router. The limits apply to each interface, so that a flood at one does not
/// take the rate of the others.
pub(in crate::l3fwd) struct Punt {
    /// Buckets of each representor, by class.
    buckets: Vec<[TokenBucket; PuntClass::COUNT]>,
    punted: Counters<PuntClass>,
    exceeded: Counters<PuntClass>,
    pub(super) injected: Arc<Counter>,
}

impl Punt {
    /// Creates full buckets for rates in packets per second.
    pub(in crate::l3fwd) fn new(representors: usize, rates: &[u64; PuntClass::COUNT]) -> Punt {
        let bucket = |rate: u64| TokenBucket::new(rate, (rate / BUCKETS_PER_SECOND).max(1));
        Punt {
            buckets: (0..representors).map(|_| rates.map(bucket)).collect(),
            punted: Counters::default(),
            exceeded: Counters::default(),
            injected: Arc::default(),
        }
    }

    /// Returns the counters, or none if no interface has a representor.
    pub(in crate::l3fwd) fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        if self.buckets.is_empty() {
            return vec![];
        }
        let named = |prefix: &'static str, counters: &Counters<PuntClass>| {
            counters.named().into_iter().map(move |(class, counter)| (format!("{prefix}_{class}"), counter))
        };
        let injected = ("injected".to_owned(), self.injected.clone());
        named("punted", &self.punted).chain(named("punt_exceeded", &self.exceeded)).chain([injected]).collect()
    }

    /// Takes a token of the packet's class and counts the packet; returns false if the rate is exceeded.
    pub(super) fn admit(&mut self, cx: &mut Context<'_>, representor: usize, frame: &[u8]) -> bool {
        let class = PuntClass::of(frame);
        let bucket = &mut self.buckets[representor][usize::from(class.number())];
        let admitted = bucket.take(1, cx.now());
        let counters = if admitted { &self.punted } else { &self.exceeded };
        counters[class].add(1);
        cx.explain(|| format!("{} by class {}", if admitted { "punted" } else { "punt exceeded" }, class.name()));
        admitted
    }
}
