//! Scheduling of the chains of a worker by priority, share and rate, as the traffic classes of BESS (SoftNIC) do.
//!
//! Chains of a higher priority are served as long as they have packets. Among chains of equal priority, the next is the
//! one with the smallest virtual time, which is the cycles spent on it divided by its share: a slow NF delays its own
//! chain and no other. A chain that was idle is not compensated for it. A chain that exceeds its rate is not served, so
//! that its packets stay in the queue of the port.

use config::ServiceClass;
use graph::{Counter, Rate};
use std::sync::Arc;

/// The usage of a chain on one worker.
#[derive(Debug, Default)]
pub(crate) struct ChainUsage {
    pub(crate) packets: Counter,
    /// Cycles of visits that received packets.
    pub(crate) cycles: Counter,
    /// Visits postponed because of the rate.
    pub(crate) throttled: Counter,
}

struct ChainState {
    class: ServiceClass,
    usage: Arc<ChainUsage>,
    /// Cycles spent, divided by the share.
    virtual_time: u128,
    /// True if the last visit received no packets.
    idle: bool,
    /// True if the chain was visited in this round.
    visited: bool,
    /// Packets or bits that the rate allows to be sent; negative after a burst.
    tokens: f64,
    /// Time of the last refill, in cycles.
    refilled_at: u64,
}

/// Scale of virtual time, so that division by a share is precise.
const SHARE_SCALE: u64 = 1 << 10;
/// Most tokens that accumulate, as seconds of the rate.
const MAX_BURST_S: f64 = 1e-3;

/// The chains of one worker.
pub(crate) struct Schedule {
    chains: Vec<ChainState>,
    /// Cycles per second.
    hz: f64,
    /// By priority, the smallest virtual time of any busy chain: the start of a chain that was idle.
    floor: Vec<(u8, u128)>,
}

impl Schedule {
    pub(crate) fn new(classes: &[(ServiceClass, Arc<ChainUsage>)], hz: u64) -> Self {
        let state = |(class, usage): &(ServiceClass, Arc<ChainUsage>)| ChainState {
            class: *class,
            usage: usage.clone(),
            virtual_time: 0,
            idle: true,
            visited: false,
            tokens: 0.0,
            refilled_at: 0,
        };
        let mut priorities: Vec<u8> = classes.iter().map(|(class, _)| class.priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let floor = priorities.into_iter().map(|priority| (priority, 0)).collect();
        Schedule { chains: classes.iter().map(state).collect(), hz: hz as f64, floor }
    }

    /// Starts a round, in which each chain may be visited once.
    pub(crate) fn start_round(&mut self) {
        self.chains.iter_mut().for_each(|chain| chain.visited = false);
    }

    /// Returns the chain to visit at time `now`, among those not yet visited in this round.
    pub(crate) fn next(&mut self, now: u64) -> Option<usize> {
        for &(priority, _) in &self.floor {
            let mut best: Option<(u128, usize)> = None;
            for (n, chain) in self.chains.iter_mut().enumerate() {
                if chain.class.priority != priority || chain.visited {
                    continue;
                }
                if !chain.refill_tokens(now, self.hz) {
                    chain.usage.throttled.add(1);
                    continue;
                }
                if best.is_none_or(|(smallest, _)| chain.virtual_time < smallest) {
                    best = Some((chain.virtual_time, n));
                }
            }
            if let Some((_, n)) = best {
                self.chains[n].visited = true;
                return Some(n);
            }
        }
        None
    }

    /// Returns true if the bytes of a visit must be counted.
    pub(crate) fn counts_bytes(&self, n: usize) -> bool {
        matches!(self.chains[n].class.rate, Some(Rate::Bits(_)))
    }

    /// Records a visit to a chain that received `packets` with `bytes` bytes and took `cycles`.
    pub(crate) fn charge(&mut self, n: usize, packets: u64, bytes: u64, cycles: u64) {
        let chain = &mut self.chains[n];
        let Some((_, floor)) = self.floor.iter_mut().find(|(priority, _)| *priority == chain.class.priority) else {
            return;
        };
        if packets == 0 {
            chain.idle = true;
            // not visited before all others in each round, and not compensated later
            chain.virtual_time = chain.virtual_time.max(*floor);
            return;
        }
        if core::mem::take(&mut chain.idle) {
            chain.virtual_time = chain.virtual_time.max(*floor);
        }
        chain.virtual_time += u128::from(cycles * SHARE_SCALE / u64::from(chain.class.share));
        chain.usage.packets.add(packets);
        chain.usage.cycles.add(cycles);
        match chain.class.rate {
            Some(Rate::Packets(_)) => chain.tokens -= packets as f64,
            Some(Rate::Bits(_)) => chain.tokens -= 8.0 * bytes as f64,
            None => {}
        }
        let priority = chain.class.priority;
        let busy = self.chains.iter().filter(|chain| chain.class.priority == priority && !chain.idle);
        *floor = busy.map(|chain| chain.virtual_time).min().unwrap_or(*floor).max(*floor);
    }
}

impl ChainState {
    /// Adds the tokens of the time elapsed, and returns true if any are available. A visit may overdraw them.
    fn refill_tokens(&mut self, now: u64, hz: f64) -> bool {
        let (Some(Rate::Packets(rate)) | Some(Rate::Bits(rate))) = self.class.rate else { return true };
        let elapsed = now.wrapping_sub(core::mem::replace(&mut self.refilled_at, now)) as f64 / hz;
        self.tokens = (self.tokens + elapsed * rate).min((rate * MAX_BURST_S).max(1.0));
        self.tokens > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HZ: u64 = 1_000_000_000;

    fn class(priority: u8, share: u32, rate: Option<Rate>) -> (ServiceClass, Arc<ChainUsage>) {
        (ServiceClass { priority, share, rate }, Arc::default())
    }

    /// Serves chains until time `end`; a visit costs the chain's cycles, and `has` tells if the chain has packets.
    fn serve(classes: &[(ServiceClass, Arc<ChainUsage>)], costs: &[u64], has: impl Fn(usize, u64) -> bool, end: u64) {
        let mut schedule = Schedule::new(classes, HZ);
        let mut now = 0;
        while now < end {
            schedule.start_round();
            now += 10;
            while let Some(n) = schedule.next(now) {
                if has(n, now) {
                    now += costs[n];
                    schedule.charge(n, 32, 32 * 60, costs[n]);
                    break;
                }
                schedule.charge(n, 0, 0, 10);
            }
        }
    }

    fn cycles(classes: &[(ServiceClass, Arc<ChainUsage>)]) -> Vec<u64> {
        classes.iter().map(|(_, usage)| usage.cycles.get()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn cycles_are_divided_by_shares_whatever_the_cost_of_a_visit(
            all in prop::collection::vec((1..20u32, 100..50_000u64), 2..6),
        ) {
            let classes: Vec<_> = all.iter().map(|(share, _)| class(0, *share, None)).collect();
            let costs: Vec<u64> = all.iter().map(|(_, cost)| *cost).collect();
            serve(&classes, &costs, |_, _| true, 200_000_000);
            let (sum, shares) = (cycles(&classes).iter().sum::<u64>() as f64, all.iter().map(|(s, _)| *s).sum::<u32>());
            for ((share, _), cycles) in all.iter().zip(cycles(&classes)) {
                let (fair, had) = (f64::from(*share) / f64::from(shares), cycles as f64 / sum);
                // up to one visit
                prop_assert!((had - fair).abs() < 0.02, "{had} instead of {fair} of {all:?}");
            }
        }

        #[test]
        fn no_rate_is_exceeded(
            rates in prop::collection::vec((any::<bool>(), 1_000.0..1e7f64), 1..5),
            cost in 100..5_000u64,
        ) {
            let rate = |(bits, rate): &(bool, f64)| if *bits { Rate::Bits(rate * 480.0) } else { Rate::Packets(*rate) };
            let classes: Vec<_> = rates.iter().map(|r| class(0, 1, Some(rate(r)))).collect();
            let end = 100_000_000;
            serve(&classes, &vec![cost; rates.len()], |_, _| true, end);
            for ((_, rate), (_, usage)) in rates.iter().zip(&classes) {
                let limit = rate * end as f64 / HZ as f64 + rate * MAX_BURST_S + 33.0;
                prop_assert!((usage.packets.get() as f64) <= limit, "{} of {limit}", usage.packets.get());
            }
        }
    }

    #[test]
    fn a_lower_priority_is_served_while_higher_ones_are_idle() {
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
    fn cycles_that_a_rate_limited_chain_does_not_use_go_to_others() {
        let classes = [class(1, 1, Some(Rate::Packets(320_000.0))), class(0, 1, None)];
        serve(&classes, &[1000, 1000], |_, _| true, HZ / 10);
        // 1,000 visits of 32 packets
        let (limited, served) = (classes[0].1.packets.get(), cycles(&classes));
        assert!((31_500..=32_500).contains(&limited), "{limited}");
        assert!(served[1] > 90_000_000 && classes[0].1.throttled.get() > 0, "{served:?}");
    }

    #[test]
    fn idle_chains_are_not_compensated() {
        let classes = [class(0, 1, None), class(0, 1, None)];
        serve(&classes, &[1000, 1000], |n, now| n == 0 || now > 5_000_000, 10_000_000);
        let had = cycles(&classes);
        assert!(had[0] > 7_000_000 && had[1] > 2_000_000 && had[1] < 3_000_000, "{had:?}");
    }
}
