//! Statistics of a few repetitions, without assumptions about their distribution.

/// Returns the median; `None` without values. NaN sorts last.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns a quantile, interpolated between the nearest two values (Hyndman and Fan, type 7); `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    Some(if low == high { low } else { low + (high - low) * rank.fract() })
}

/// Returns the minimum and maximum; `None` without values.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(low, high), &v| (low.min(v), high.max(v))))
}

/// Ratio of two sets of values, with a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the ratios of all pairs (Hodges–Lehmann estimator).
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Lower bound of the confidence, 0 to 1; it decreases with fewer values.
    pub confidence: f64,
}

/// Maximum number of values of a set for [`ratio`].
pub const MAX_VALUES: usize = 1000;

/// Returns the ratio of `b` to `a` with the exact rank interval: if the distributions differ by a factor only, the
/// interval that inverts the Mann–Whitney–Wilcoxon test contains the factor with at least the returned confidence. With
/// few values `confidence` may be unattainable; then the interval is the widest possible, with its confidence. `None`
/// if a set is empty or longer than [`MAX_VALUES`], or contains a value that is not positive.
pub fn ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Ratio> {
    let valid = |set: &[f64]| (1..=MAX_VALUES).contains(&set.len()) && set.iter().all(|v| v.is_finite() && *v > 0.0);
    if !valid(a) || !valid(b) {
        return None;
    }
    let mut ratios: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b / a)).collect();
    ratios.sort_by(f64::total_cmp);
    let total = ratios.len();
    // P(U <= k) for the Mann–Whitney statistic U without a difference
    let below = cumulative(a.len(), b.len());
    // the interval from the (k+1)th smallest to the (k+1)th largest misses with probability 2 P(U <= k)
    let alpha = (1.0 - confidence) / 2.0;
    let k = below.iter().take(total / 2).take_while(|p| **p <= alpha * (1.0 + 1e-12)).count();
    let (cut, tail) = if k == 0 { (0, below[0]) } else { (k - 1, below[k - 1]) };
    Some(Ratio {
        ratio: median(&ratios)?,
        low: ratios[cut],
        high: ratios[total - 1 - cut],
        confidence: (1.0 - 2.0 * tail).max(0.0),
    })
}

/// Returns P(U <= k), k = 0 … n·m / 2, of the Mann–Whitney statistic for sets of `n` and `m` values without a
/// difference.
fn cumulative(n: usize, m: usize) -> Vec<f64> {
    let max = n * m / 2;
    // the number of arrangements is the coefficient of q^k of the Gaussian binomial, built factor by factor; the
    // division by (m + i) / i in each step makes it a probability
    let mut p = vec![0.0; max + 1];
    p[0] = 1.0;
    for i in 1..=n {
        // times (1 - q^(m+i)), then over (1 - q^i)
        for k in (m + i..=max).rev() {
            p[k] -= p[k - m - i];
        }
        for k in i..=max {
            p[k] += p[k - i];
        }
        let scale = i as f64 / (m + i) as f64;
        p.iter_mut().for_each(|p| *p *= scale);
    }
    let mut sum = 0.0;
    p.iter()
        .map(|p| {
            sum += p.max(0.0);
            sum.min(1.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0, 1.0, 10.0]), Some(4.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(range(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
    }

    #[test]
    fn few_values_have_low_confidence() {
        // of C(4, 2) = 6 arrangements, one has U = 0: 1 - 2/6
        let r = ratio(&[1.0, 1.1], &[2.0, 2.2], 0.95).unwrap();
        assert!((r.confidence - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!((r.low, r.high), (2.0 / 1.1, 2.2));
        // C(8, 4) = 70: 1 - 2/70
        let r = ratio(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0, 4.0], 0.95).unwrap();
        assert!((r.confidence - 68.0 / 70.0).abs() < 1e-12 && (r.low, r.high) == (0.25, 4.0) && r.ratio == 1.0);
        // a table of critical values has 2 for n = m = 5 at 5 % on two sides
        let below = cumulative(5, 5);
        assert!(below[2] <= 0.025 && below[3] > 0.025);
        assert_eq!(ratio(&[1.0], &[], 0.95), None);
        assert_eq!(ratio(&[0.0], &[1.0], 0.95), None);
    }

    /// Counts all arrangements of `n` and `m` values.
    fn brute_force(n: usize, m: usize) -> Vec<f64> {
        let mut counts = vec![0u64; n * m + 1];
        for bits in 0u32..1 << (n + m) {
            if bits.count_ones() as usize != n {
                continue;
            }
            let (mut u, mut ones) = (0, 0);
            for place in 0..n + m {
                if bits >> place & 1 == 1 { ones += 1 } else { u += ones }
            }
            counts[u] += 1;
        }
        let all: u64 = counts.iter().sum();
        counts
            .iter()
            .scan(0, |sum, c| {
                *sum += c;
                Some(*sum as f64 / all as f64)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn distribution_is_that_of_all_arrangements(n in 1usize..8, m in 1usize..8) {
            let model = brute_force(n, m);
            for (k, p) in cumulative(n, m).into_iter().enumerate() {
                prop_assert!((p - model[k]).abs() < 1e-12, "{n} {m} {k}: {p} {}", model[k]);
            }
        }

        /// A factor is in the interval exactly if the test does not distinguish `b` from `a` times the factor.
        #[test]
        fn interval_inverts_the_test(
            a in prop::collection::vec(1.0..2.0f64, 2..6), b in prop::collection::vec(1.0..2.0f64, 2..6),
            factor in 0.4..2.5f64,
        ) {
            let r = ratio(&a, &b, 0.95).unwrap();
            prop_assert!(r.low <= r.ratio && r.ratio <= r.high);
            let above = b.iter().flat_map(|b| a.iter().map(move |a| (a, b))).filter(|(a, b)| *b / *a > factor).count();
            let smaller = above.min(a.len() * b.len() - above);
            let rejected = brute_force(a.len(), b.len())[smaller] <= 0.025;
            let reachable = brute_force(a.len(), b.len())[0] <= 0.025;
            if reachable {
                // a side is rejected if fewer than k + 1 pairs lie beyond
                prop_assert_eq!(rejected, factor < r.low || factor >= r.high, "{:?} {} {}", r, factor, smaller);
            } else {
                prop_assert!(r.confidence < 0.95);
            }
        }

        #[test]
        fn quantiles_are_within_the_range(values in prop::collection::vec(-1e9..1e9f64, 1..20), q in 0.0..1.0f64) {
            let x = quantile(&values, q).unwrap();
            let (low, high) = range(&values).unwrap();
            prop_assert!(low <= x && x <= high);
            let beyond = values.iter().filter(|v| **v <= x).count() as f64;
            prop_assert!(beyond >= (q * (values.len() - 1) as f64).floor());
        }
    }

    /// Returns a deterministic generator of nearly normal noise (xorshift).
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            // the sum of twelve is nearly normal
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

    #[test]
    fn interval_contains_the_true_ratio_with_its_confidence() {
        const RUNS: u64 = 400;
        let mut held = 0;
        for seed in 1..=RUNS {
            let mut normal = noise(seed);
            let mut set = |n: usize, factor: f64| (0..n).map(|_| factor * (1.0 + 0.03 * normal())).collect::<Vec<_>>();
            let r = ratio(&set(6, 10.0), &set(7, 12.0), 0.95).unwrap();
            assert!(r.confidence >= 0.95);
            held += u64::from(r.low <= 1.2 && 1.2 <= r.high);
        }
        // 95 % of 400 is 380; three standard deviations are 13
        assert!(held >= 367, "{held}");
    }
}
