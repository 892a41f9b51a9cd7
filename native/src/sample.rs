//! Pairs of samples, and what can be said from them.

use packet::clock;
use serde::Serialize;

/// What one side cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// Cycles per packet that one sample in twenty did not exceed.
    pub(crate) p05: f64,
    /// Cycles per packet of the middle sample.
    pub(crate) median: f64,
}

/// Two sides, compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) ours: Cost,
    pub(crate) theirs: Cost,
    /// Median of the pairs' ratios.
    pub(crate) ratio: f64,
    /// Bounds of its 95 % confidence interval.
    pub(crate) bounds: (f64, f64),
}

/// Pairs that are run before any counts, at the most.
const WARM_UP: usize = 20;

/// Runs both sides in turn, `pairs` times after a warm-up; each call forwards a number of packets and returns it.
pub(crate) fn compare(
    pairs: usize,
    before: impl Fn(),
    mut ours: impl FnMut() -> u64,
    mut theirs: impl FnMut() -> u64,
) -> Compared {
    let time = |side: &mut dyn FnMut() -> u64| {
        before();
        let from = clock::cycles();
        let packets = side();
        Some((clock::cycles() - from) as f64 / packets as f64)
    };
    compare_costs(pairs, || time(&mut ours), || time(&mut theirs)).expect("every sample counts")
}

/// As [`compare`]; each call returns what one of its operations has cost in cycles, or `None` if the sample and the other
/// of its pair do not count. `None` if no pair of twice as many counts.
pub(crate) fn compare_costs(
    pairs: usize,
    mut ours: impl FnMut() -> Option<f64>,
    mut theirs: impl FnMut() -> Option<f64>,
) -> Option<Compared> {
    let (mut a, mut b, mut ratios) = (vec![], vec![], vec![]);
    let warm_up = WARM_UP.min(pairs);
    for n in 0..2 * pairs + warm_up {
        // the order changes, so that neither side always runs on what the other has left in the caches
        let (x, y) = if n % 2 == 0 {
            let x = ours();
            (x, theirs())
        } else {
            let y = theirs();
            (ours(), y)
        };
        if let (Some(x), Some(y)) = (x, y)
            && n >= warm_up
        {
            a.push(x);
            b.push(y);
            ratios.push(x / y);
        }
        if ratios.len() == pairs {
            break;
        }
    }
    if ratios.is_empty() {
        return None;
    }
    let (ratio, bounds) = median(&mut ratios);
    Some(Compared { ours: cost(&mut a), theirs: cost(&mut b), ratio, bounds })
}

pub(crate) fn cost(samples: &mut [f64]) -> Cost {
    samples.sort_by(f64::total_cmp);
    Cost { p05: samples[samples.len() / 20], median: samples[samples.len() / 2] }
}

/// The median, and the order statistics that bound it with 95 % confidence (binomial, normal approximation).
fn median(values: &mut [f64]) -> (f64, (f64, f64)) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let half = 1.96 * n.sqrt() / 2.0;
    let at = |i: f64| values[(i.max(0.0) as usize).min(values.len() - 1)];
    (at(n / 2.0), (at((n / 2.0 - half).floor()), at((n / 2.0 + half).ceil())))
}
