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
        (clock::cycles() - from) as f64 / packets as f64
    };
    let (mut a, mut b, mut ratios) = (vec![], vec![], vec![]);
    for n in 0..pairs + 20 {
        // the order changes, so that neither side always runs on what the other has left in the caches
        let (x, y) = if n % 2 == 0 {
            let x = time(&mut ours);
            (x, time(&mut theirs))
        } else {
            let y = time(&mut theirs);
            (time(&mut ours), y)
        };
        if n >= 20 {
            a.push(x);
            b.push(y);
            ratios.push(x / y);
        }
    }
    let (ratio, bounds) = median(&mut ratios);
    Compared { ours: cost(&mut a), theirs: cost(&mut b), ratio, bounds }
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
