//! Detection of loss that does not depend on the load.

use super::Remark;
use super::classify::Outcome;
use super::goal::Goal;
use crate::trial::Trial;
use std::collections::BTreeMap;

/// The bound is not the capacity of the DUT if a load of at least this multiple has no more loss.
const MARGIN: f64 = 1.2;
/// Largest loss ratio of such a load.
const MAX_LOSS: f64 = 0.01;
/// Multiple of the loss at lower loads, and number of packets, above which the loss at a load is that of overload.
const OVERLOAD: f64 = 10.0;
const OVERLOAD_PACKETS: f64 = 3.0;
/// Standard deviations within which losses are in proportion to packets.
const DEVIATIONS: f64 = 3.0;
/// Packets that have to be lost for an estimate of the ratio.
const MIN_LOST: u64 = 2;

/// Packets of trials.
#[derive(Clone, Copy, Default)]
struct Counts {
    intended: u64,
    missing: u64,
}

impl Counts {
    fn plus(self, other: Counts) -> Counts {
        Counts { intended: self.intended + other.intended, missing: self.missing + other.missing }
    }

    fn ratio(self) -> f64 {
        self.missing as f64 / self.intended.max(1) as f64
    }
}

/// Returns the remark if loads below and far above `upper`, the lowest load that fails the goal, lose packets at the same
/// ratio.
pub(crate) fn find(goal: &Goal, upper: u64, trials: &[Trial]) -> Option<Remark> {
    let mut by_load: BTreeMap<u64, Counts> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| Outcome::of(trial).counts(goal)) {
        let counts = by_load.entry(trial.load_pps as u64).or_default();
        *counts = counts.plus(Counts { intended: trial.intended, missing: trial.lost + trial.unsent });
    }
    let low = by_load.range(..=upper).fold(Counts::default(), |sum, (_, counts)| sum.plus(*counts));
    // loads above it, up to the first that is lost by overload
    let (mut all, mut up_to) = (low, upper);
    for (load, counts) in by_load.range(upper + 1..) {
        let limit = OVERLOAD_PACKETS + OVERLOAD * all.ratio() * counts.intended as f64;
        if counts.missing as f64 > limit || counts.ratio() > MAX_LOSS {
            break;
        }
        (all, up_to) = (all.plus(*counts), *load);
    }
    // losses of independent packets are binomially distributed over the loads
    let (missing, share) = (all.missing as f64, low.intended as f64 / all.intended.max(1) as f64);
    let limit = 1.0 + DEVIATIONS * (missing * share * (1.0 - share)).sqrt();
    let is_proportional = (low.missing as f64 - missing * share).abs() <= limit;
    let is_floor = up_to as f64 >= MARGIN * upper as f64 && all.missing >= MIN_LOST && is_proportional;
    is_floor.then_some(Remark::LossFloor { loss_ratio: all.ratio(), up_to_pps: up_to as f64 })
}

/// Returns the loss ratio of a goal that a loss floor does not affect, in percent: the power of ten above three times the
/// floor.
pub(crate) fn goal_percent(loss_ratio: f64) -> f64 {
    let exponent = (3.0 * loss_ratio).log10().ceil() as i32;
    // parsed, as powers of ten are not exact
    format!("1e{}", exponent + 2).parse().unwrap_or(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Limits, SearchKind, run};
    use crate::simulated::Simulated;

    /// Returns the loss floor that a search reports, 0 for none, and its upper bound.
    fn floor(kind: SearchKind, goal: Goal, device: &str, seed: u64) -> (f64, f64) {
        let device: Simulated = device.parse().unwrap();
        let mut search = kind.start(goal, Limits::new(1e3, 1.488e7).unwrap()).unwrap();
        let summary = run(&mut *search, &mut device.seeded(seed));
        let upper = summary.results[0].upper_pps.unwrap_or(f64::INFINITY);
        let found = summary.results[0].remarks.iter().find_map(|remark| match remark {
            Remark::LossFloor { loss_ratio, .. } => Some(*loss_ratio),
            _ => None,
        });
        (found.unwrap_or(0.0), upper)
    }

    #[test]
    fn finds_a_floor_whatever_the_seed() {
        let (mut low, mut told) = (0, 0);
        for (seed, kind) in
            (1..40).flat_map(|seed| [(seed, SearchKind::Mlr), (seed, SearchKind::Binary { step_pps: None })])
        {
            let (loss, upper) = floor(kind, Goal::rfc2544(), "capacity=3e6,loss=1e-7", seed);
            if upper < 2e6 {
                low += 1;
                told += u32::from(loss != 0.0);
                assert!(loss == 0.0 || (1e-8..=1e-6).contains(&loss), "{kind:?}, seed {seed}: {loss:e} below {upper}");
            }
        }
        // a single lost packet is no estimate
        assert!(low > 50 && told * 10 >= low * 9, "{told} of {low} affected searches of 78");
    }

    #[test]
    fn finds_none_in_devices_that_overload() {
        for device in [
            "capacity=3e6",
            "capacity=3e6,noise=normal:0.02",
            "capacity=3e6,noise=modes:0.1",
            "capacity=8e6,buffer=1000,stall=0.005/1.0",
            "capacity=3e6,generator=2e6",
        ] {
            for seed in 1..20 {
                for goal in [Goal::rfc2544(), Goal::ndr(), Goal::quick()] {
                    let (loss, _) = floor(SearchKind::Mlr, goal, device, seed);
                    assert_eq!(loss, 0.0, "{device}, seed {seed}, {goal}");
                }
            }
        }
    }

    #[test]
    fn offers_a_goal_above_the_floor() {
        assert_eq!([1e-7, 3e-7, 4e-7, 0.002].map(goal_percent), [0.0001, 0.0001, 0.001, 1.0]);
    }
}
