//! Statistics of a few repetitions. Nothing is assumed of how values are distributed.

/// The median; none of none. Values that are no numbers come last.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A quantile between the nearest two values (the seventh way of Hyndman and Fan); none of none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(if low == high { low } else { low + (high - low) * place.fract() })
}

/// Smallest and largest; none of none.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(low, high), &v| (low.min(v), high.max(v))))
}

/// How much larger one set of values is than another, with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of all ratios of a value of one set to a value of the other (Hodges and Lehmann).
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How sure the interval is to hold the true ratio, at least, 0 to 1: fewer values are less sure.
    pub confidence: f64,
}

/// Most values of a set that [`ratio`] compares.
pub const MOST: usize = 1000;

/// The ratio of `b` to `a`, with the exact interval of ranks: if both sets are distributed alike but for a factor, the
/// interval that inverts the test of Mann, Whitney and Wilcoxon holds the factor with at least the confidence told. With
/// few values `confidence` may be out of reach; then it is the widest interval there is, with the confidence that it has.
/// None when a set is empty or longer than [`MOST`], or holds a value that is not positive.
pub fn ratio(a: &[f64], b: &[f64], confidence: f64) -> Option<Ratio> {
    let fits = |set: &[f64]| (1..=MOST).contains(&set.len()) && set.iter().all(|v| v.is_finite() && *v > 0.0);
    if !fits(a) || !fits(b) {
        return None;
    }
    let mut ratios: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b / a)).collect();
    ratios.sort_by(f64::total_cmp);
    let total = ratios.len();
    // P(U <= k) for the number U of pairs in order, when there is no difference
    let below = cumulative(a.len(), b.len());
    // the interval from the (k+1)th smallest to the (k+1)th largest misses with probability 2 P(U <= k)
    let most = (1.0 - confidence) / 2.0;
    let k = below.iter().take(total / 2).take_while(|p| **p <= most * (1.0 + 1e-12)).count();
    let (cut, tail) = if k == 0 { (0, below[0]) } else { (k - 1, below[k - 1]) };
    Some(Ratio {
        ratio: median(&ratios)?,
        low: ratios[cut],
        high: ratios[total - 1 - cut],
        confidence: (1.0 - 2.0 * tail).max(0.0),
    })
}

/// The probabilities P(U <= k), k = 0 … n·m / 2, of the statistic of Mann and Whitney for sets of `n` and `m` values
/// without a difference.
fn cumulative(n: usize, m: usize) -> Vec<f64> {
    let most = n * m / 2;
    // the number of arrangements is the coefficient of q^k of the Gaussian binomial, built factor by factor; dividing by
    // (m + i) / i in each step keeps it a probability
    let mut p = vec![0.0; most + 1];
    p[0] = 1.0;
    for i in 1..=n {
        // times (1 - q^(m+i)), then over (1 - q^i)
        for k in (m + i..=most).rev() {
            p[k] -= p[k - m - i];
        }
        for k in i..=most {
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
    fn quantiles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0, 1.0, 10.0]), Some(4.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(range(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
    }

    #[test]
    fn few_values_say_how_little_they_know() {
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

    /// Every arrangement of `n` and `m` values, counted one by one.
    fn slow(n: usize, m: usize) -> Vec<f64> {
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
        fn the_distribution_is_that_of_all_arrangements(n in 1usize..8, m in 1usize..8) {
            let model = slow(n, m);
            for (k, p) in cumulative(n, m).into_iter().enumerate() {
                prop_assert!((p - model[k]).abs() < 1e-12, "{n} {m} {k}: {p} {}", model[k]);
            }
        }

        /// The interval is that of the test: a factor is in it exactly if the test does not tell `b` from `a` times it.
        #[test]
        fn the_interval_is_that_of_the_test(
            a in prop::collection::vec(1.0..2.0f64, 2..6), b in prop::collection::vec(1.0..2.0f64, 2..6),
            factor in 0.4..2.5f64,
        ) {
            let r = ratio(&a, &b, 0.95).unwrap();
            prop_assert!(r.low <= r.ratio && r.ratio <= r.high);
            let above = b.iter().flat_map(|b| a.iter().map(move |a| (a, b))).filter(|(a, b)| *b / *a > factor).count();
            let smaller = above.min(a.len() * b.len() - above);
            let rejected = slow(a.len(), b.len())[smaller] <= 0.025;
            let reachable = slow(a.len(), b.len())[0] <= 0.025;
            if reachable {
                // that side is rejected where fewer pairs than k + 1 lie beyond
                prop_assert_eq!(rejected, factor < r.low || factor >= r.high, "{:?} {} {}", r, factor, smaller);
            } else {
                prop_assert!(r.confidence < 0.95);
            }
        }

        #[test]
        fn quantiles_lie_between_values(values in prop::collection::vec(-1e9..1e9f64, 1..20), q in 0.0..1.0f64) {
            let x = quantile(&values, q).unwrap();
            let (low, high) = range(&values).unwrap();
            prop_assert!(low <= x && x <= high);
            let beyond = values.iter().filter(|v| **v <= x).count() as f64;
            prop_assert!(beyond >= (q * (values.len() - 1) as f64).floor());
        }
    }

    /// Numbers that look random, the same every time (xorshift).
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
    fn the_true_ratio_is_as_often_within_as_told() {
        const TRIES: u64 = 400;
        let mut held = 0;
        for seed in 1..=TRIES {
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
