//! Change points of a series: segments of constant mean, by minimum description length.
//!
//! A series is encoded segment by segment: mean and standard deviation, then the values with the code of that normal
//! distribution. The shortest encoding, in bits, determines the segments. CSIT detects changes of its trends in the
//! same way, with another code.

/// Resolution of the encoding: steps up to the largest value.
const STEPS: f64 = 4096.0;
/// Maximum number of values: the effort grows with its square.
pub const MAX_VALUES: usize = 4000;

/// Values between two change points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Index of the first value.
    pub first: usize,
    /// Number of values.
    pub len: usize,
    /// Mean.
    pub mean: f64,
    /// Population standard deviation (divided by `len`).
    pub stddev: f64,
}

/// Encoding lengths of segments of a series, bits.
struct Cost {
    /// Prefix sums and prefix sums of squares, in steps.
    sums: Vec<(f64, f64)>,
    /// Bits of a segment header: mean and deviation, each one of [`STEPS`], and the end.
    header: f64,
}

impl Cost {
    fn new(values: &[f64]) -> Cost {
        let max = values.iter().fold(0.0, |max: f64, v| max.max(v.abs()));
        let resolution = if max > 0.0 { max / STEPS } else { 1.0 };
        // relative to the median: sums of squares of large numbers lose precision
        let median = crate::stats::median(values).unwrap_or_default();
        let mut sums = vec![(0.0, 0.0)];
        for v in values {
            let (sum, squares) = sums[sums.len() - 1];
            let d = (v - median) / resolution;
            sums.push((sum + d, squares + d * d));
        }
        let header = 2.0 * STEPS.log2() + (values.len().max(2) as f64).log2();
        Cost { sums, header }
    }

    /// Returns the standard deviation of the values `from..to`, in steps.
    fn stddev(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        let (sum, squares) = (self.sums[to].0 - self.sums[from].0, self.sums[to].1 - self.sums[from].1);
        (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt()
    }

    /// Returns the length of the encoding of the values `from..to` as one segment, bits.
    fn bits(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        // the entropy of a normal distribution; values within one step need no bits
        let stddev = self.stddev(from, to);
        let each = (stddev * (2.0 * std::f64::consts::PI * std::f64::consts::E).sqrt()).max(1.0).log2();
        self.header + n * each
    }
}

/// Returns the segments of a series, in order. Only the last [`MAX_VALUES`] values are used.
pub fn segments(values: &[f64]) -> Vec<Segment> {
    let skipped = values.len().saturating_sub(MAX_VALUES);
    let values = &values[skipped..];
    let cost = Cost::new(values);
    // the shortest encoding of each prefix, and the start of its last segment
    let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
    for to in 1..=values.len() {
        let cheapest = (0..to).map(|from| (best[from].0 + cost.bits(from, to), from));
        // of equal lengths, the longest last segment
        best.push(cheapest.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a }));
    }
    let mut out = vec![];
    let mut to = values.len();
    while to > 0 {
        let first = best[to].1;
        let len = to - first;
        // computed from the values: the prefix sums are precise enough for the choice only
        let part = &values[first..to];
        let mean = part.iter().sum::<f64>() / len as f64;
        let stddev = (part.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / len as f64).sqrt();
        out.push(Segment { first: first + skipped, len, mean, stddev });
        to = first;
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a deterministic generator of nearly normal noise.
    fn normal(seed: u64) -> impl FnMut() -> f64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
        move || {
            let sum: f64 = (0..12)
                .map(|_| {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    (x >> 11) as f64 / (1u64 << 53) as f64
                })
                .sum();
            sum - 6.0
        }
    }

    /// Returns values of levels, each so many times, with relative noise.
    fn series(levels: &[(f64, usize)], share: f64, seed: u64) -> Vec<f64> {
        let mut noise = normal(seed);
        let all = levels.iter().flat_map(|&(level, n)| std::iter::repeat_n(level, n));
        all.map(|level| level * (1.0 + share * noise())).collect()
    }

    #[test]
    fn noise_has_no_change_points() {
        for share in [0.0, 1e-5, 0.002, 0.01, 0.05, 0.2] {
            for n in [1, 2, 3, 10, 40, 120] {
                let quiet = (0..100).filter(|&seed| segments(&series(&[(12e6, n)], share, seed)).len() == 1).count();
                assert!(quiet >= 95, "{quiet} of 100 with {n} values and noise of {share}");
            }
        }
    }

    #[test]
    fn finds_steps() {
        // the steps are several standard deviations high; a value at a step may belong to either side
        for (levels, share) in [
            (&[(10.0, 20), (11.0, 20)][..], 0.01),
            (&[(10e6, 15), (9e6, 15), (12e6, 15)], 0.01),
            (&[(10.0, 30), (5.0, 8), (10.0, 30)], 0.05),
            (&[(1.0, 10), (2.0, 10), (3.0, 10), (4.0, 10)], 0.02),
        ] {
            let mut ends: Vec<usize> = levels
                .iter()
                .scan(0, |at, l| {
                    *at += l.1;
                    Some(*at)
                })
                .collect();
            ends.pop();
            let found = (0..100)
                .filter(|&seed| {
                    let found: Vec<usize> =
                        segments(&series(levels, share, seed)).iter().skip(1).map(|g| g.first).collect();
                    found.len() == ends.len() && found.iter().zip(&ends).all(|(f, e)| f.abs_diff(*e) <= 1)
                })
                .count();
            assert!(found >= 95, "{found} of 100 for {levels:?} with noise of {share}");
        }
    }

    /// Tries all segmentations of a series.
    fn brute_force(values: &[f64]) -> f64 {
        let cost = Cost::new(values);
        let n = values.len();
        (0u32..1 << (n - 1))
            .map(|cuts| {
                let ends = (1..n).filter(|i| cuts >> (i - 1) & 1 == 1).chain([n]);
                let mut from = 0;
                ends.map(|to| {
                    let bits = cost.bits(from, to);
                    from = to;
                    bits
                })
                .sum::<f64>()
            })
            .fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn encoding_is_the_shortest(values in prop::collection::vec(prop_oneof![0.0..1e3f64, Just(7.0), 900.0..901.0f64], 1..11)) {
            let found = segments(&values);
            let cost = Cost::new(&values);
            let bits: f64 = found.iter().map(|g| cost.bits(g.first, g.first + g.len)).sum();
            prop_assert!((bits - brute_force(&values)).abs() < 1e-6);
            // the segments cover each value once
            prop_assert_eq!(found.iter().map(|g| g.len).sum::<usize>(), values.len());
            let mut at = 0;
            for g in &found {
                prop_assert_eq!(g.first, at);
                let part = &values[at..at + g.len];
                let mean = part.iter().sum::<f64>() / g.len as f64;
                let stddev = (part.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / g.len as f64).sqrt();
                prop_assert!((g.mean - mean).abs() < 1e-9 && (g.stddev - stddev).abs() < 1e-6);
                at += g.len;
            }
        }

        #[test]
        fn accepts_extreme_values(values in prop::collection::vec(prop_oneof![Just(0.0), Just(9e15), 0.0..1e-9f64], 0..40)) {
            prop_assert_eq!(segments(&values).iter().map(|g| g.len).sum::<usize>(), values.len());
        }
    }
}
