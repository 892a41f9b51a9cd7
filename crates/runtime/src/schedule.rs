//! Which chain of a worker is served next: priorities, shares and rates (SoftNIC's traffic classes, as leaves of one tree).
//!
//! Chains of a higher priority are served while they have packets. Among equals the one is next that has had the fewest
//! cycles for its share: a slow NF costs its own chain packets and no other. A chain that had nothing to do for a while gets
//! no cycles afterwards for that. A rate is kept by leaving packets where they are: in the queue of the port.

use config::{Class, Rate};
use graph::Counter;
use std::sync::Arc;

/// What a chain has had on one worker.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) packets: Counter,
    /// Cycles of visits that brought packets.
    pub(crate) cycles: Counter,
    /// Visits put off because of the rate.
    pub(crate) put_off: Counter,
}

struct Leaf {
    class: Class,
    served: Arc<Served>,
    /// Cycles by share, so far.
    spent: u128,
    /// Whether the last visit brought nothing.
    idle: bool,
    /// Whether this round has come to it.
    tried: bool,
    /// What may be sent before the rate says wait, in packets or bits; below 0 after a burst. And when that was so.
    tokens: f64,
    at: u64,
}

/// Cycles are counted in this fraction, so that shares divide well.
const FINE: u64 = 1 << 10;
/// How much of a second's rate may be saved up.
const SAVED: f64 = 1e-3;

/// The chains of one worker.
pub(crate) struct Schedule {
    leaves: Vec<Leaf>,
    /// Cycles in a second.
    hz: f64,
    /// The least that has been spent by any chain that had packets, by priority: where one begins that had none.
    floor: Vec<(u8, u128)>,
}

impl Schedule {
    pub(crate) fn new(classes: &[(Class, Arc<Served>)], hz: u64) -> Self {
        let leaf = |(class, served): &(Class, Arc<Served>)| Leaf {
            class: *class,
            served: served.clone(),
            spent: 0,
            idle: true,
            tried: false,
            tokens: 0.0,
            at: 0,
        };
        let mut priorities: Vec<u8> = classes.iter().map(|(class, _)| class.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let floor = priorities.into_iter().map(|priority| (priority, 0)).collect();
        Schedule { leaves: classes.iter().map(leaf).collect(), hz: hz as f64, floor }
    }

    /// Begins a round: every chain may be served again.
    pub(crate) fn begin(&mut self) {
        self.leaves.iter_mut().for_each(|leaf| leaf.tried = false);
    }

    /// The chain to serve at `now`, of those that this round has not come to.
    pub(crate) fn next(&mut self, now: u64) -> Option<usize> {
        for &(priority, _) in &self.floor {
            let mut best: Option<(u128, usize)> = None;
            for (n, leaf) in self.leaves.iter_mut().enumerate() {
                if leaf.class.priority != priority || leaf.tried {
                    continue;
                }
                if !leaf.may_send(now, self.hz) {
                    leaf.served.put_off.add(1);
                    continue;
                }
                if best.is_none_or(|(spent, _)| leaf.spent < spent) {
                    best = Some((leaf.spent, n));
                }
            }
            if let Some((_, n)) = best {
                self.leaves[n].tried = true;
                return Some(n);
            }
        }
        None
    }

    /// Whether the bytes that a visit brings matter.
    pub(crate) fn weighs(&self, n: usize) -> bool {
        matches!(self.leaves[n].class.rate, Some(Rate::Bits(_)))
    }

    /// After a visit to a chain, which brought `packets` of `bytes` bytes and took `cycles`.
    pub(crate) fn visited(&mut self, n: usize, packets: u64, bytes: u64, cycles: u64) {
        let leaf = &mut self.leaves[n];
        let Some((_, floor)) = self.floor.iter_mut().find(|(priority, _)| *priority == leaf.class.priority) else {
            return;
        };
        if packets == 0 {
            leaf.idle = true;
            // it is not tried before all others each time, and saves nothing up
            leaf.spent = leaf.spent.max(*floor);
            return;
        }
        if core::mem::take(&mut leaf.idle) {
            leaf.spent = leaf.spent.max(*floor);
        }
        leaf.spent += u128::from(cycles * FINE / u64::from(leaf.class.share));
        leaf.served.packets.add(packets);
        leaf.served.cycles.add(cycles);
        match leaf.class.rate {
            Some(Rate::Packets(_)) => leaf.tokens -= packets as f64,
            Some(Rate::Bits(_)) => leaf.tokens -= 8.0 * bytes as f64,
            None => {}
        }
        let priority = leaf.class.priority;
        let busy = self.leaves.iter().filter(|leaf| leaf.class.priority == priority && !leaf.idle);
        *floor = busy.map(|leaf| leaf.spent).min().unwrap_or(*floor).max(*floor);
    }
}

impl Leaf {
    /// Whether its rate lets it send now. It may send more than it has, and then waits the longer.
    fn may_send(&mut self, now: u64, hz: f64) -> bool {
        let (Some(Rate::Packets(rate)) | Some(Rate::Bits(rate))) = self.class.rate else { return true };
        let past = now.wrapping_sub(core::mem::replace(&mut self.at, now)) as f64 / hz;
        self.tokens = (self.tokens + past * rate).min((rate * SAVED).max(1.0));
        self.tokens > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HZ: u64 = 1_000_000_000;

    fn class(priority: u8, share: u32, rate: Option<Rate>) -> (Class, Arc<Served>) {
        (Class { priority, share, rate }, Arc::default())
    }

    /// Serves chains, each of which costs so many cycles a visit and has packets while `has` says so, until `end`.
    fn serve(classes: &[(Class, Arc<Served>)], costs: &[u64], has: impl Fn(usize, u64) -> bool, end: u64) {
        let mut schedule = Schedule::new(classes, HZ);
        let mut now = 0;
        while now < end {
            schedule.begin();
            now += 10;
            while let Some(n) = schedule.next(now) {
                if has(n, now) {
                    now += costs[n];
                    schedule.visited(n, 32, 32 * 60, costs[n]);
                    break;
                }
                schedule.visited(n, 0, 0, 10);
            }
        }
    }

    fn cycles(classes: &[(Class, Arc<Served>)]) -> Vec<u64> {
        classes.iter().map(|(_, served)| served.cycles.get()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn cycles_are_parted_by_shares_whatever_a_visit_costs(
            all in prop::collection::vec((1..20u32, 100..50_000u64), 2..6),
        ) {
            let classes: Vec<_> = all.iter().map(|(share, _)| class(0, *share, None)).collect();
            let costs: Vec<u64> = all.iter().map(|(_, cost)| *cost).collect();
            serve(&classes, &costs, |_, _| true, 200_000_000);
            let (sum, shares) = (cycles(&classes).iter().sum::<u64>() as f64, all.iter().map(|(s, _)| *s).sum::<u32>());
            for ((share, _), cycles) in all.iter().zip(cycles(&classes)) {
                let (fair, had) = (f64::from(*share) / f64::from(shares), cycles as f64 / sum);
                // a visit more or less
                prop_assert!((had - fair).abs() < 0.02, "{had} instead of {fair} of {all:?}");
            }
        }

        #[test]
        fn no_rate_is_exceeded(rates in prop::collection::vec((any::<bool>(), 1_000.0..1e7f64), 1..5), cost in 100..5_000u64) {
            let rate = |(bits, rate): &(bool, f64)| if *bits { Rate::Bits(rate * 480.0) } else { Rate::Packets(*rate) };
            let classes: Vec<_> = rates.iter().map(|r| class(0, 1, Some(rate(r)))).collect();
            let end = 100_000_000;
            serve(&classes, &vec![cost; rates.len()], |_, _| true, end);
            for ((_, rate), (_, served)) in rates.iter().zip(&classes) {
                let most = rate * end as f64 / HZ as f64 + rate * SAVED + 33.0;
                prop_assert!((served.packets.get() as f64) <= most, "{} of {most}", served.packets.get());
            }
        }
    }

    #[test]
    fn a_lower_priority_gets_what_a_higher_one_leaves() {
        let classes = [class(1, 1, None), class(0, 1, None)];
        // the first has packets for a tenth of the time
        serve(&classes, &[1000, 1000], |n, now| n == 1 || now % 10_000 < 1_000, 10_000_000);
        let had = cycles(&classes);
        assert!(had[0] > 900_000 && had[1] > 7_000_000, "{had:?}");
        let classes = [class(1, 1, None), class(0, 100, None)];
        serve(&classes, &[1000, 1000], |_, _| true, 10_000_000);
        assert_eq!(cycles(&classes)[1], 0);
    }

    #[test]
    fn a_limited_chain_leaves_the_rest_to_others() {
        let classes = [class(1, 1, Some(Rate::Packets(320_000.0))), class(0, 1, None)];
        serve(&classes, &[1000, 1000], |_, _| true, HZ / 10);
        // 1,000 visits of 32 packets
        let (limited, served) = (classes[0].1.packets.get(), cycles(&classes));
        assert!((31_500..=32_500).contains(&limited), "{limited}");
        assert!(served[1] > 90_000_000 && classes[0].1.put_off.get() > 0, "{served:?}");
    }

    #[test]
    fn who_had_nothing_to_do_gets_no_more_afterwards() {
        let classes = [class(0, 1, None), class(0, 1, None)];
        serve(&classes, &[1000, 1000], |n, now| n == 0 || now > 5_000_000, 10_000_000);
        let had = cycles(&classes);
        assert!(had[0] > 7_000_000 && had[1] > 2_000_000 && had[1] < 3_000_000, "{had:?}");
    }
}
