//! Normal and binomial random numbers, and their distributions.

use traffic::random::Random;

/// Mean from which a binomial distribution is approximated by a normal one.
const NORMAL_MEAN: f64 = 50.0;

/// Draws a normal number with mean 0 and standard deviation 1 (Box and Muller 1958).
pub(super) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// Draws a binomial number of `n` trials with probability `p`: exactly for small means, otherwise by the normal
/// approximation.
pub(super) fn binomial(random: &mut Random, n: u64, p: f64) -> u64 {
    if n == 0 || p <= 0.0 {
        return 0;
    }
    if p > 0.5 {
        return n - binomial(random, n, 1.0 - p.min(1.0));
    }
    let mean = n as f64 * p;
    if mean >= NORMAL_MEAN {
        let drawn = mean + (mean * (1.0 - p)).sqrt() * normal(random);
        return (drawn.round().max(0.0) as u64).min(n);
    }
    let mut left = random.unit();
    let mut chance = (n as f64 * (-p).ln_1p()).exp();
    let mut k = 0;
    while left > chance && k < n {
        left -= chance;
        chance *= (n - k) as f64 / (k + 1) as f64 * (p / (1.0 - p));
        k += 1;
        if chance < 1e-300 && k as f64 > mean {
            break;
        }
    }
    k
}

/// Returns the probability that a binomial number of `n` trials is at most `k`.
pub(super) fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    if p > 0.5 {
        // the complement is the smaller number
        return 1.0 - at_most(n - k - 1, n, (1.0 - p).max(0.0));
    }
    let mean = n as f64 * p;
    if mean >= NORMAL_MEAN {
        return phi((k as f64 + 0.5 - mean) / (mean * (1.0 - p)).sqrt());
    }
    let mut chance = (n as f64 * (-p).ln_1p()).exp();
    let mut sum = chance;
    for i in 0..k {
        chance *= (n - i) as f64 / (i + 1) as f64 * (p / (1.0 - p));
        sum += chance;
        if chance < 1e-18 && i as f64 > mean {
            break;
        }
    }
    sum.min(1.0)
}

/// Returns the distribution function of the normal distribution (Abramowitz and Stegun 26.2.17, error below 7.5e-8).
pub(super) fn phi(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt() * poly;
    if x >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_numbers_have_their_distribution() {
        for (n, p) in [(10, 0.3), (1_000_000, 1e-6), (1000, 0.9), (500, 0.4), (1 << 40, 1e-11)] {
            let mut random = Random::new(7);
            let drawn: Vec<u64> = (0..20_000).map(|_| binomial(&mut random, n, p)).collect();
            let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            let expected = n as f64 * p;
            let sigma = (expected * (1.0 - p)).sqrt();
            assert!((mean - expected).abs() < 4.0 * sigma / 141.0, "{n} {p}: {mean}");
            let k = (expected + 0.7 * sigma) as u64;
            let below = drawn.iter().filter(|d| **d <= k).count() as f64 / drawn.len() as f64;
            let law = at_most(k, n, p);
            assert!((below - law).abs() < 0.02, "{n} {p}: {below} {law}");
        }
        assert_eq!(binomial(&mut Random::new(1), 9, 1.0), 9);
        assert_eq!(binomial(&mut Random::new(1), 0, 0.5), 0);
        assert_eq!((at_most(9, 10, 1.0), at_most(10, 10, 1.0), at_most(0, 10, 0.0)), (0.0, 1.0, 1.0));
    }

    #[test]
    fn normal_distribution() {
        for (x, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.959_964, 0.025), (3.0, 0.998_650_1)] {
            assert!((phi(x) - share).abs() < 1e-6, "{x}");
        }
    }
}
