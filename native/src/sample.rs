//! Pairs of samples and their statistics.

use packet::clock;
use serde::Serialize;

/// Cost of one side in cycles per packet.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// 5th percentile of the samples.
    pub(crate) p05: f64,
    /// Median of the samples.
    pub(crate) median: f64,
}

/// Comparison of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    pub(crate) ours: Cost,
    pub(crate) baseline: Cost,
    /// Median of the ratios of the pairs.
    pub(crate) ratio: f64,
    /// Bounds of the 95 % confidence interval of the median.
    pub(crate) bounds: (f64, f64),
}

/// Maximum number of pairs that are run before the first counts.
const WARM_UP: usize = 20;

/// Runs both sides alternately, `pairs` times after a warm-up; each call forwards packets and returns their number.
pub(crate) fn compare(
    pairs: usize,
    before: impl Fn(),
    mut ours: impl FnMut() -> u64,
    mut baseline: impl FnMut() -> u64,
) -> Compared {
    let time = |side: &mut dyn FnMut() -> u64| {
        before();
        let start = clock::cycles();
        let packets = side();
        Some((clock::cycles() - start) as f64 / packets as f64)
    };
    compare_costs(pairs, || time(&mut ours), || time(&mut baseline)).expect("every sample is valid")
}

/// As [`compare`]; each call returns the cost of an operation in cycles, or `None` if the pair of samples is invalid.
/// Runs up to twice as many pairs; returns `None` if none of them is valid.
pub(crate) fn compare_costs(
    pairs: usize,
    mut ours: impl FnMut() -> Option<f64>,
    mut baseline: impl FnMut() -> Option<f64>,
) -> Option<Compared> {
    let (mut a, mut b, mut ratios) = (vec![], vec![], vec![]);
    let warm_up = WARM_UP.min(pairs);
    for n in 0..2 * pairs + warm_up {
        // the order alternates, so that neither side always runs on the cache contents that the other has left
        let (x, y) = if n % 2 == 0 {
            let x = ours();
            (x, baseline())
        } else {
            let y = baseline();
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
    Some(Compared { ours: cost(&mut a), baseline: cost(&mut b), ratio, bounds })
}

/// Returns the percentiles of samples.
pub(crate) fn cost(samples: &mut [f64]) -> Cost {
    samples.sort_by(f64::total_cmp);
    Cost { p05: samples[samples.len() / 20], median: samples[samples.len() / 2] }
}

/// Returns the median, and the order statistics that bound it with 95 % confidence (binomial, normal approximation).
fn median(values: &mut [f64]) -> (f64, (f64, f64)) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let half = 1.96 * n.sqrt() / 2.0;
    let at = |i: f64| values[(i.max(0.0) as usize).min(values.len() - 1)];
    (at(n / 2.0), (at((n / 2.0 - half).floor()), at((n / 2.0 + half).ceil())))
}
