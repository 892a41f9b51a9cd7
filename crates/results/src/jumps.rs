//! Where a series changes: groups of constant mean, by minimum description length.
//!
//! A series is described group by group: the mean and the standard deviation of each, then its samples as a normal
//! distribution of these codes them. The cheapest description, in bits, has as many groups as the samples pay for. CSIT
//! finds changes of its trends so, with bits of its own.

/// Steps into which the largest value is divided: numbers are written to this resolution.
const STEPS: f64 = 4096.0;
/// Most values that are looked at: the effort grows with the square of their number.
pub const MOST: usize = 4000;

/// Values between two changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Place of the first.
    pub first: usize,
    /// How many.
    pub len: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of all of them: the sum of squares is divided by `len`.
    pub sigma: f64,
}

/// Bits of groups of a series.
struct Cost {
    /// Sums and sums of squares of the values before each place, in steps of the resolution.
    sums: Vec<(f64, f64)>,
    /// What the head of a group costs: mean and deviation, each one of [`STEPS`], and where it ends.
    head: f64,
}

impl Cost {
    fn new(values: &[f64]) -> Cost {
        let most = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let resolution = if most > 0.0 { most / STEPS } else { 1.0 };
        // about the middle: sums of squares of large numbers lose what tells them apart
        let middle = crate::stats::median(values).unwrap_or_default();
        let mut sums = vec![(0.0, 0.0)];
        for v in values {
            let (sum, squares) = sums[sums.len() - 1];
            let d = (v - middle) / resolution;
            sums.push((sum + d, squares + d * d));
        }
        let head = 2.0 * STEPS.log2() + (values.len().max(2) as f64).log2();
        Cost { sums, head }
    }

    /// Standard deviation of the values from `from` to before `to`, in steps of the resolution.
    fn sigma(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        let (sum, squares) = (self.sums[to].0 - self.sums[from].0, self.sums[to].1 - self.sums[from].1);
        (squares / n - (sum / n) * (sum / n)).max(0.0).sqrt()
    }

    /// Bits of these values as one group.
    fn bits(&self, from: usize, to: usize) -> f64 {
        let n = (to - from) as f64;
        // the entropy of a normal distribution; within one step nothing is left to tell
        let sigma = self.sigma(from, to);
        let each = (sigma * (2.0 * std::f64::consts::PI * std::f64::consts::E).sqrt()).max(1.0).log2();
        self.head + n * each
    }
}

/// The groups of a series, in order; none of no values. Of more than [`MOST`] values, the last are looked at.
pub fn groups(values: &[f64]) -> Vec<Group> {
    let skipped = values.len().saturating_sub(MOST);
    let values = &values[skipped..];
    let cost = Cost::new(values);
    // the cheapest description of the first values, and where its last group begins
    let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
    for to in 1..=values.len() {
        let cheapest = (0..to).map(|from| (best[from].0 + cost.bits(from, to), from));
        // of equals, the longest last group
        best.push(cheapest.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a }));
    }
    let mut out = vec![];
    let mut to = values.len();
    while to > 0 {
        let first = best[to].1;
        let len = to - first;
        // from the values themselves: the sums are only good enough to choose by
        let part = &values[first..to];
        let mean = part.iter().sum::<f64>() / len as f64;
        let sigma = (part.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / len as f64).sqrt();
        out.push(Group { first: first + skipped, len, mean, sigma });
        to = first;
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Nearly normal noise, the same every time.
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

    /// Values of levels, each so many times, with noise of a share of them.
    fn series(levels: &[(f64, usize)], share: f64, seed: u64) -> Vec<f64> {
        let mut noise = normal(seed);
        let all = levels.iter().flat_map(|&(level, n)| std::iter::repeat_n(level, n));
        all.map(|level| level * (1.0 + share * noise())).collect()
    }

    #[test]
    fn there_are_no_changes_in_noise() {
        for share in [0.0, 1e-5, 0.002, 0.01, 0.05, 0.2] {
            for n in [1, 2, 3, 10, 40, 120] {
                let quiet = (0..100).filter(|&seed| groups(&series(&[(12e6, n)], share, seed)).len() == 1).count();
                assert!(quiet >= 95, "{quiet} of 100 with {n} values and noise of {share}");
            }
        }
    }

    #[test]
    fn steps_are_found_where_they_are() {
        // the steps are several standard deviations; a value at one may belong to either side
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
                        groups(&series(levels, share, seed)).iter().skip(1).map(|g| g.first).collect();
                    found.len() == ends.len() && found.iter().zip(&ends).all(|(f, e)| f.abs_diff(*e) <= 1)
                })
                .count();
            assert!(found >= 95, "{found} of 100 for {levels:?} with noise of {share}");
        }
    }

    /// The cheapest of all ways to cut a series, tried one by one.
    fn slow(values: &[f64]) -> f64 {
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
        fn the_description_is_the_cheapest(values in prop::collection::vec(prop_oneof![0.0..1e3f64, Just(7.0), 900.0..901.0f64], 1..11)) {
            let found = groups(&values);
            let cost = Cost::new(&values);
            let bits: f64 = found.iter().map(|g| cost.bits(g.first, g.first + g.len)).sum();
            prop_assert!((bits - slow(&values)).abs() < 1e-6);
            // the groups are the series, each value once
            prop_assert_eq!(found.iter().map(|g| g.len).sum::<usize>(), values.len());
            let mut at = 0;
            for g in &found {
                prop_assert_eq!(g.first, at);
                let part = &values[at..at + g.len];
                let mean = part.iter().sum::<f64>() / g.len as f64;
                let sigma = (part.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / g.len as f64).sqrt();
                prop_assert!((g.mean - mean).abs() < 1e-9 && (g.sigma - sigma).abs() < 1e-6);
                at += g.len;
            }
        }

        #[test]
        fn odd_values_do_no_harm(values in prop::collection::vec(prop_oneof![Just(0.0), Just(9e15), 0.0..1e-9f64], 0..40)) {
            prop_assert_eq!(groups(&values).iter().map(|g| g.len).sum::<usize>(), values.len());
        }
    }
}
