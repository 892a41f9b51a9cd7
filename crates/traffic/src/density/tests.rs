use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn of(numbers: &[u64]) -> Displacements {
    let mut density = Density::new(1);
    numbers.iter().for_each(|number| density.arrive(*number));
    density.displacements()
}

/// Computes the displacements by the algorithm of the RFC, one step at a time, and n-reordering by definition.
fn model(numbers: &[u64]) -> Displacements {
    let far = THRESHOLD as i64;
    let mut counts = [0; 2 * THRESHOLD + 1];
    let (mut beyond_early, mut beyond_late) = (0, 0);
    let mut arrivals = numbers.iter().copied();
    let mut window: Vec<u64> = arrivals.by_ref().take(THRESHOLD + 1).collect();
    let mut buffer = BTreeSet::new();
    let mut ri = 1;
    while !window.is_empty() {
        if window.contains(&ri) || buffer.contains(&ri) {
            let s = window.remove(0);
            let d = ri as i64 - s as i64;
            if d.abs() <= far {
                counts[(d + far) as usize] += 1;
                buffer.remove(&ri);
                if d < 0 {
                    buffer.insert(s);
                }
                ri += 1;
            } else if d < 0 {
                beyond_early += 1;
            } else {
                beyond_late += 1;
            }
            for new in arrivals.by_ref() {
                if new >= ri {
                    window.push(new);
                    break;
                }
                beyond_late += 1;
            }
        } else {
            let least = *window.iter().chain(&buffer).min().unwrap();
            if ri < least {
                ri = least
            } else {
                ri += 1
            }
            assert!(ri < 1_000_000, "no place for {window:?}");
        }
    }
    let mut before = [0; THRESHOLD];
    for (i, number) in numbers.iter().enumerate() {
        let n = numbers[..i].iter().rev().take(THRESHOLD).take_while(|other| *other > number).count();
        if n > 0 {
            before[n - 1] += 1;
        }
    }
    Displacements { counts, beyond_early, beyond_late, before }
}

#[test]
fn examples_by_hand() {
    let seen = of(&[1, 2, 5, 3, 4, 6]);
    assert_eq!([0, -2, 1].map(|places| seen.count(places)), [3, 1, 2]);
    // 4 is reordered as well, but directly behind 3.
    assert_eq!((seen.n_reordered(1), seen.n_reordered(2), seen.judged()), (1, 0, 6));
    // 4 lost: 5 and 6 take the fourth and fifth place.
    let seen = of(&[1, 2, 3, 6, 5]);
    assert_eq!([0, -1, 1].map(|places| seen.count(places)), [3, 1, 1]);
    assert!((seen.density(0) - 0.6).abs() < 1e-12);
    assert_eq!((seen.count(65), seen.count(i32::MIN), seen.n_reordered(0), seen.n_reordered(65)), (0, 0, 0, 0));
    assert_eq!(of(&[]).density(0), 0.0);
}

#[test]
fn beyond_the_threshold() {
    let mut numbers: Vec<u64> = (1..=300).collect();
    let late = numbers.remove(9);
    numbers.insert(200, late);
    let seen = of(&numbers);
    assert_eq!((seen.beyond_late, seen.judged(), seen.count(0)), (1, 299, 299));
    assert_eq!(seen.n_reordered(THRESHOLD), 1);
    assert_eq!(seen, model(&numbers));
}

#[test]
fn a_long_run_needs_no_memory_of_it() {
    let mut density = Density::new(1 << 40);
    (0..1_000_000_u64).filter(|number| number % 99_990 != 5).for_each(|number| density.arrive((1 << 40) + number));
    assert!(density.in_order);
    let seen = density.displacements();
    assert_eq!((seen.count(0), seen.judged(), seen.beyond_late), (999_989, 999_989, 0));
}

proptest! {
    #[test]
    fn equals_the_algorithm_of_the_rfc(
        moves in prop::collection::vec((0_usize..600, 0_usize..150), 0..40),
        lost in prop::collection::hash_set(1_u64..600, 0..60),
        len in 0_u64..600,
    ) {
        let mut numbers: Vec<u64> = (1..=len).filter(|number| !lost.contains(number)).collect();
        for (from, by) in moves {
            if from < numbers.len() {
                let number = numbers.remove(from);
                numbers.insert((from + by).min(numbers.len()), number);
            }
        }
        prop_assert_eq!(of(&numbers), model(&numbers));
    }

    #[test]
    fn without_loss_it_is_the_distance_moved(shuffled in Just((1_u64..=60).collect::<Vec<_>>()).prop_shuffle()) {
        let seen = of(&shuffled);
        for (places, count) in seen.counts() {
            let moved = shuffled.iter().zip(1_i64..).filter(|(number, at)| at - **number as i64 == i64::from(places));
            prop_assert_eq!(count, moved.count() as u64, "{} places", places);
        }
    }
}
