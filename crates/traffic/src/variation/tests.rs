use proptest::prelude::*;

use super::*;

/// Everything, of packets as they arrived with their delays, from lists that forget nothing.
struct Model {
    /// Sorted.
    delays: Vec<u64>,
    /// Sorted.
    ipdv: Vec<i64>,
    differences: Vec<u64>,
    jitter: Option<f64>,
}

fn model(arrivals: &[(u64, u64)]) -> Model {
    let mut delays: Vec<u64> = arrivals.iter().map(|(_, delay)| *delay).collect();
    let differences: Vec<u64> = delays.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
    let jitter = (!differences.is_empty())
        .then(|| differences.iter().fold(0.0, |jitter, difference| jitter + (*difference as f64 - jitter) / 16.0));
    let mut numbered = arrivals.to_vec();
    numbered.sort_unstable();
    let pairs = numbered.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0);
    let mut ipdv: Vec<i64> = pairs.map(|pair| pair[1].1 as i64 - pair[0].1 as i64).collect();
    ipdv.sort_unstable();
    delays.sort_unstable();
    Model { delays, ipdv, differences, jitter }
}

/// Returns a quantile of a sorted list.
fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
    sorted.get(rank - 1).copied()
}

fn close(is: f64, should: f64, tolerance: f64) -> bool {
    (is - should).abs() <= tolerance
}

fn check(arrivals: &[(u64, u64)]) {
    let mut variation = Variation::new();
    arrivals.iter().for_each(|(number, delay)| variation.arrive(*number, *delay));
    let model = model(arrivals);
    assert_eq!(variation.count(), arrivals.len() as u64);
    assert_eq!(variation.min_ns(), model.delays.first().copied());
    assert_eq!(variation.max_ns(), model.delays.last().copied());
    let ipdv = variation.ipdv();
    assert_eq!(ipdv.count(), model.ipdv.len() as u64);
    assert_eq!((ipdv.min_ns(), ipdv.max_ns()), (model.ipdv.first().copied(), model.ipdv.last().copied()));
    let mean = (!model.ipdv.is_empty()).then(|| model.ipdv.iter().sum::<i64>() as f64 / model.ipdv.len() as f64);
    assert!(ipdv.mean_ns().zip(mean).is_none_or(|(is, should)| close(is, should, 1e-6)));
    assert_eq!(ipdv.mean_ns().is_some(), mean.is_some());
    for share in [0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0] {
        let pdv = quantile(&model.delays, share).map(|delay| delay - model.delays[0]);
        assert_eq!(variation.pdv_ns(share).is_some(), pdv.is_some());
        if let (Some(is), Some(should)) = (variation.pdv_ns(share), pdv) {
            let coarse = (should + model.delays[0]) as f64 / 1000.0;
            assert!(close(is as f64, should as f64, coarse), "PDV {share}: {is}, should be {should}");
        }
        let should = quantile(&model.ipdv, share);
        assert_eq!(ipdv.quantile_ns(share).is_some(), should.is_some());
        if let (Some(is), Some(should)) = (ipdv.quantile_ns(share), should) {
            assert!(
                close(is as f64, should as f64, should.unsigned_abs() as f64 / 1000.0),
                "IPDV {share}: {is}, {should}"
            );
        }
    }
    let difference = variation.difference();
    assert_eq!(difference.count(), model.differences.len() as u64);
    assert_eq!(difference.max_ns(), model.differences.iter().max().copied());
    let mean = model.differences.iter().sum::<u64>() as f64 / model.differences.len().max(1) as f64;
    assert!(difference.mean_ns().is_none_or(|is| close(is, mean, 1e-6)));
    assert_eq!(variation.jitter_ns().is_some(), model.jitter.is_some());
    assert!(variation.jitter_ns().zip(model.jitter).is_none_or(|(is, should)| close(is, should, 1e-6)));
    assert!(variation.jitter_max_ns() >= variation.jitter_ns());
}

#[test]
fn recorded_delays() {
    // A one-way path with a queue that fills and empties, one packet lost, two swapped.
    let delays = [5_120, 5_130, 5_090, 7_800, 9_950, 12_400, 9_100, 6_000, 5_100, 5_110];
    let mut arrivals: Vec<(u64, u64)> = (100..).zip(delays).collect();
    check(&arrivals);
    arrivals.remove(5);
    check(&arrivals);
    arrivals.swap(2, 3);
    check(&arrivals);
    check(&arrivals[..1]);
    check(&[]);
}

#[test]
fn a_constant_delay_does_not_vary() {
    let mut variation = Variation::new();
    (0..10_000).for_each(|number| variation.arrive(number, 123_456_789));
    assert_eq!((variation.pdv_ns(0.999), variation.pdv_ns(0.0)), (Some(0), Some(0)));
    assert_eq!((variation.jitter_ns(), variation.difference().max_ns()), (Some(0.0), Some(0)));
    assert_eq!((variation.ipdv().min_ns(), variation.ipdv().quantile_ns(0.5)), (Some(0), Some(0)));
}

#[test]
fn the_first_delay_is_no_difference() {
    // Differenced against 0 it would be 62.5 µs, and take a hundred packets to wear off.
    let mut variation = Variation::new();
    variation.arrive(0, 1_000_000);
    assert_eq!(variation.jitter_ns(), None);
    variation.arrive(1, 1_000_016);
    assert_eq!(variation.jitter_ns(), Some(1.0));
}

#[test]
fn pairs_far_apart_are_missed_and_nothing_else() {
    let mut variation = Variation::new();
    variation.arrive(0, 1000);
    let end = 2 + 2 * PAIRED as u64;
    (2..end).for_each(|number| variation.arrive(number, 1000));
    let before = variation.ipdv().count();
    variation.arrive(1, 9000);
    assert_eq!(variation.ipdv().count() - before, 0, "its neighbours have been driven out");
    variation.arrive(end, 1000);
    assert_eq!(variation.ipdv().count() - before, 1);
}

proptest! {
    #[test]
    fn equals_lists(
        delays in prop::collection::vec(0_u64..50_000_000, 0..400),
        lost in prop::collection::hash_set(0_u64..400, 0..50),
        swaps in prop::collection::vec((0_usize..400, 0_usize..400), 0..30),
    ) {
        let mut arrivals: Vec<(u64, u64)> = (7..).zip(delays).filter(|(number, _)| !lost.contains(number)).collect();
        for (a, b) in swaps {
            if a.max(b) < arrivals.len() {
                arrivals.swap(a, b);
            }
        }
        check(&arrivals);
    }
}
