use proptest::prelude::*;

use super::*;
use crate::search::run;
use crate::search::{GoalResult, LimitedBy, Remark};
use crate::simulated::{Noise, Simulated as Device};

const MAX: f64 = 14_880_952.38;

fn limits() -> Limits {
    Limits::new(1000.0, MAX).unwrap()
}

fn search(device: &mut Device, goal: Goal) -> (GoalResult, Mlr) {
    let mut search = Mlr::new(vec![goal], limits()).unwrap();
    let found = run(&mut search, device).results.remove(0);
    (found, search)
}

fn traffic_s(search: &Mlr) -> f64 {
    search.trials().iter().map(|trial| trial.duration_s).sum()
}

#[test]
fn a_device_with_a_limit_for_every_preset() {
    for goal in [Goal::quick(), Goal::ndr(), Goal::pdr(), Goal::rfc2544(), Goal::tst009()] {
        let (found, search) = search(&mut Device::hard(3.3e6), goal);
        assert!(found.regular && found.remarks.is_empty(), "{found:?}");
        assert_eq!(found.limited_by, LimitedBy::Device);
        let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
        let limit = 3.3e6 / (1.0 - goal.loss_ratio());
        assert!(lower <= limit * 1.000_001 && upper > limit * 0.999_999, "{goal}: {lower} {upper}");
        assert!(upper - lower <= goal.width() * upper);
        assert!(
            found.conditional_pps.is_some_and(|pps| pps <= 3.3e6 && pps >= 3.3e6 * (0.999 - goal.width())),
            "{found:?}"
        );
        println!("{} trials, {:6.2} s: {goal}", search.trials().len(), traffic_s(&search));
        assert!(search.trials().len() < 140);
    }
}

#[test]
fn long_trials_are_spent_near_the_end_only() {
    let (_, search) = search(&mut Device::hard(7.7e6), Goal::rfc2544());
    let long = search.trials().iter().filter(|trial| trial.duration_s == 60.0).count();
    assert!(long <= 4, "{long}");
    assert!(traffic_s(&search) < 330.0, "{}", traffic_s(&search));
    assert_eq!(search.trials()[0].load_pps, 14_880_952.0);
}

#[test]
fn several_goals_share_trials() {
    let goals = vec![Goal::pdr(), Goal::ndr()];
    let mut both = Mlr::new(goals.clone(), limits()).unwrap();
    let summary = run(&mut both, &mut Device::hard(5e6));
    assert_eq!((summary.results[0].goal, summary.results[1].goal), (Goal::pdr(), Goal::ndr()));
    assert!(summary.results.iter().all(|found| found.regular));
    assert!(summary.results[0].lower_pps > summary.results[1].lower_pps);
    let alone: usize = goals.into_iter().map(|goal| search(&mut Device::hard(5e6), goal).1.trials().len()).sum();
    assert!(summary.trials < alone, "{} against {alone}", summary.trials);
    assert!(Mlr::new(vec![], limits()).is_err());
    assert!(Mlr::new(vec![Goal::ndr(); 17], limits()).is_err());
}

#[test]
fn more_than_the_generator_or_the_link() {
    let (found, search) = search(&mut Device::hard(20e6), Goal::ndr());
    assert_eq!((found.lower_pps, found.upper_pps, found.width), (Some(14_880_952.0), None, None));
    assert_eq!((found.limited_by, found.regular), (LimitedBy::MaxLoad, false));
    assert_eq!(found.remarks, [Remark::MaxLoadHolds]);
    assert_eq!(found.conditional_pps, Some(14_880_952.0));
    assert!(search.trials().len() <= 11 + 1);

    let mut device = Device { generator_pps: 9.3e6, ..Device::hard(20e6) };
    let (found, _) = self::search(&mut device, Goal::ndr());
    assert!(found.regular && found.lower_pps.is_some_and(|lower| lower <= 9.3e6 && lower > 9.2e6), "{found:?}");
    assert_eq!(found.limited_by, LimitedBy::Generator);
}

#[test]
fn nothing_comes_through() {
    let (found, search) = search(&mut Device::hard(0.0), Goal::ndr());
    assert_eq!((found.lower_pps, found.upper_pps), (None, Some(1000.0)));
    assert_eq!((found.regular, found.conditional_pps), (false, None));
    assert_eq!((found.limited_by, found.remarks), (LimitedBy::Device, vec![Remark::NothingHolds]));
    assert!(search.trials().len() < 40);
}

#[test]
fn a_little_random_loss_defeats_zero_loss_only() {
    // One in 10,000 at any load: no load has none.
    let device = Device { loss_ratio: 1e-4, ..Device::hard(5e6) };
    let (found, _) = search(&mut device.clone(), Goal::quick());
    assert!(found.lower_pps.unwrap_or(0.0) < 2e5, "{found:?}");
    let (found, _) = search(&mut device.clone(), Goal::pdr());
    assert!(found.regular && found.lower_pps.is_some_and(|lower| (4.9e6..5.05e6).contains(&lower)), "{found:?}");
    assert!(found.conditional_pps < found.lower_pps);
}

#[test]
fn noise_is_outvoted() {
    // Every fifth trial loses a packet for no reason.
    let device = Device { flaw_share: 0.2, ..Device::hard(5e6) };
    for seed in 0..20 {
        let mut device = Device { random: traffic::random::Random::new(seed), ..device.clone() };
        let (found, _) = search(&mut device, Goal::ndr());
        assert!(found.regular && found.lower_pps.is_some_and(|lower| (4.9e6..=5e6).contains(&lower)), "{found:?}");
    }
    let strict = Goal::ndr().with_exceed_ratio(0.0).unwrap();
    let (found, _) = search(&mut device.clone(), strict);
    assert!(found.lower_pps < Some(4.9e6), "without tolerance one flaw refuses a load: {found:?}");
}

#[test]
fn a_noisy_capacity_ends_near_its_middle() {
    for seed in 0..20 {
        let random = traffic::random::Random::new(seed);
        let mut device = Device { noise: Noise::Uniform(0.05), random, ..Device::hard(4e6) };
        let (found, search) = search(&mut device, Goal::quick());
        assert!(found.lower_pps.is_some_and(|lower| (3.7e6..4.25e6).contains(&lower)), "{found:?}");
        assert!(search.trials().len() < 400, "{}", search.trials().len());
    }
}

#[test]
fn gaps_of_the_machine_do_not_decide() {
    for seed in 0..20 {
        let random = traffic::random::Random::new(seed);
        let seen = Device { gap_share: 0.4, random, ..Device::hard(5e6) };
        let strict = Goal::ndr().with_exceed_ratio(0.0).unwrap();
        let (found, search) = search(&mut seen.clone(), strict);
        assert!(found.lower_pps.is_some_and(|lower| lower <= 5e6), "{found:?}");
        if found.regular {
            assert!(found.lower_pps > Some(4.9e6), "{found:?}");
        } else {
            assert_eq!(found.limited_by, LimitedBy::Machine);
            assert!(matches!(found.remarks[..], [Remark::Machine { .. }]), "{found:?}");
        }
        let machine = search.trials().iter().filter(|trial| trial.machine).count();
        assert!(machine > 0 && search.trials().len() < 400, "{machine} of {}", search.trials().len());
        // The same gaps, not seen to be the machine's, refuse good loads.
        let (unseen, _) = self::search(&mut Device { gaps_seen: false, ..seen }, strict);
        assert!(unseen.lower_pps < Some(4e6), "{unseen:?}");
    }
}

#[test]
fn a_machine_that_is_always_away_gives_no_bound() {
    let mut device = Device { gap_share: 1.0, ..Device::hard(5e6) };
    let (found, search) = search(&mut device, Goal::ndr());
    assert_eq!((found.upper_pps, found.regular, found.limited_by), (None, false, LimitedBy::Machine));
    // What fits into the ring of 1024 for 2 ms holds.
    assert!(found.lower_pps.is_some_and(|lower| lower < 512_500.0 && lower > 500_000.0), "{found:?}");
    assert!(search.trials().len() < 400);
}

#[test]
fn spoilt_trials_show_where_to_look() {
    // All that is far above the limit is spoilt: what came through still leads straight to it.
    let mut search = Mlr::new(vec![Goal::quick()], limits()).unwrap();
    let mut device = Device::hard(1e6);
    let summary = loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                let trial = device.offer(load_pps, duration_s);
                search.tell(Trial { machine: load_pps > 2e6, ..trial }).unwrap();
            }
            Next::Done(summary) => break summary,
        }
    };
    assert!(summary.results[0].regular, "{summary:?}");
    assert_eq!(summary.machine_trials, 5, "four repeats of the first trial, then none");
    assert!(search.trials().iter().skip(5).all(|trial| trial.load_pps < 1.2e6));
}

#[test]
fn a_gap_without_loss_is_a_good_trial() {
    let mut search = Mlr::new(vec![Goal::ndr()], limits()).unwrap();
    let mut device = Device::hard(20e6);
    let mut tell = |search: &mut Mlr| match search.next() {
        Next::Measure { load_pps, duration_s } => {
            search.tell(Trial { machine: true, ..device.offer(load_pps, duration_s) }).is_ok()
        }
        Next::Done(_) => false,
    };
    while tell(&mut search) {}
    assert!(matches!(search.next(), Next::Done(summary) if summary.results[0].lower_pps == Some(14_880_952.0)));
}

#[test]
fn unsteady_results_are_marked() {
    // The first trial makes the device look slow, the second loses one packet; from then on it is good for 5 Mpps.
    let strict = Goal::ndr().with_exceed_ratio(0.0).and_then(|goal| goal.with_sum_s(10.0)).unwrap();
    let mut search = Mlr::new(vec![strict, Goal::ndr()], limits()).unwrap();
    let (mut slow, mut flawed) = (Device::hard(4e6), Device { flaw_share: 1.0, ..Device::hard(5e6) });
    let mut steady = Device::hard(5e6);
    let summary = loop {
        let device = [&mut slow, &mut flawed].into_iter().nth(search.trials().len()).unwrap_or(&mut steady);
        match search.next() {
            Next::Measure { load_pps, duration_s } => search.tell(device.offer(load_pps, duration_s)).unwrap(),
            Next::Done(summary) => break summary,
        }
    };
    let [strict, ndr] = &summary.results[..] else { panic!("two goals") };
    // One loss is enough for a goal that tolerates none; what holds above is known from the other's trials.
    assert!(strict.regular && strict.upper_pps.is_some_and(|upper| upper == 3_999_999.0), "{strict:?}");
    let [Remark::Inversion { holds_pps, fails_pps }] = strict.remarks[..] else { panic!("{strict:?}") };
    assert!(Some(fails_pps) == strict.upper_pps && Some(holds_pps) == ndr.lower_pps, "{strict:?}");
    assert!(ndr.regular && ndr.remarks.is_empty() && ndr.lower_pps > Some(4.9e6), "{ndr:?}");
}

#[test]
fn inversion_by_hand() {
    let outcome =
        |loss_ratio| Outcome { duration_ns: 60_000_000_000, loss_ratio, device_loss_ratio: loss_ratio, machine: false };
    let outcomes = BTreeMap::from([(100, vec![outcome(0.0)]), (200, vec![outcome(0.1)]), (300, vec![outcome(0.0)])]);
    let view = View { goal: Goal::rfc2544(), outcomes: &outcomes, limits: &limits() };
    let found = view.found(|_| false);
    assert_eq!(found, Found { lower: Some(100), upper: Some(200), unclear: None, inversion: Some(300) });
    let result = found.result(&Goal::rfc2544(), &Ledger::new(limits()), &outcomes);
    assert_eq!(result.remarks, [Remark::Inversion { holds_pps: 300.0, fails_pps: 200.0 }]);
    assert!(result.remarks[0].to_string().contains("300 packets/s hold though 200 fail"));
    // A load given up stands in for a bound, unless one above it holds.
    let spoilt = BTreeMap::from([(100, vec![outcome(0.0)]), (200, vec![]), (300, vec![outcome(0.1)])]);
    let found = View { outcomes: &spoilt, ..view }.found(|load| load == 200);
    assert_eq!((found.ceiling(), found.unclear, found.upper), (Some(200), Some(200), Some(300)));
    let holds = BTreeMap::from([(200, vec![]), (300, vec![outcome(0.0)])]);
    let found = View { goal: Goal::rfc2544(), outcomes: &holds, limits: &limits() }.found(|load| load == 200);
    assert_eq!((found.ceiling(), found.lower), (None, Some(300)));
}

#[test]
fn only_what_was_asked_for() {
    let mut search = Mlr::new(vec![Goal::quick()], Limits::new(1000.0, 1e6).unwrap()).unwrap();
    let mut device = Device::hard(1e5);
    assert!(matches!(search.tell(device.offer(1e6, 0.05)), Err(SearchError::Unasked(_))));
    assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
    assert!(matches!(search.tell(device.offer(1e6, 1.0)), Err(SearchError::Other { .. })));
    assert!(matches!(search.tell(device.offer(2e6, 0.05)), Err(SearchError::Other { .. })));
    let bad = Trial { lost: 0, ..device.offer(1e6, 0.05) };
    assert!(matches!(search.tell(bad), Err(SearchError::Trial(_))));
    assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
    assert!(search.tell(device.offer(1e6, 0.05)).is_ok());
    assert_eq!(search.trials().len(), 1);
}

#[test]
fn budgets() {
    let mut tight = limits();
    tight.max_trials = 5;
    let mut search = Mlr::new(vec![Goal::ndr()], tight).unwrap();
    let found = run(&mut search, &mut Device::hard(5e6)).results.remove(0);
    assert_eq!((search.trials().len(), found.regular, found.limited_by), (5, false, LimitedBy::Budget));
    assert_eq!(found.remarks, [Remark::OutOfBudget]);
    let mut short = limits();
    short.max_traffic_s = 100.0;
    let mut search = Mlr::new(vec![Goal::rfc2544()], short).unwrap();
    let summary = run(&mut search, &mut Device::hard(5e6));
    assert!(summary.traffic_s <= 100.0 && !summary.results[0].regular);
}

#[test]
fn a_result_is_not_marked_for_what_another_goal_lacked() {
    // Enough for the first goal, not for the second.
    let mut tight = limits();
    tight.max_trials = 200;
    let hard = Goal::ndr().with_sum_s(400.0).and_then(|goal| goal.with_loss_ratio(0.1)).unwrap();
    let mut search = Mlr::new(vec![Goal::quick(), hard], tight).unwrap();
    let summary = run(&mut search, &mut Device::hard(5e6));
    assert!(summary.results[0].regular && summary.results[0].remarks.is_empty());
    assert_eq!(summary.results[0].limited_by, LimitedBy::Device);
    assert_eq!((summary.results[1].limited_by, summary.results[1].regular), (LimitedBy::Budget, false));
}

fn any_goal() -> impl Strategy<Value = Goal> {
    (1_u32..200, 1_u32..30, 1_u32..=100, 0_u32..90, 0.001..0.3_f64, prop::bool::ANY).prop_map(
        |(final_ms, times, first, exceed, width, loss)| {
            let final_s = f64::from(final_ms) / 1000.0;
            Goal::ndr()
                .with_final_s(final_s)
                .and_then(|goal| goal.with_sum_s(final_s * f64::from(times)))
                .and_then(|goal| goal.with_initial_s(final_s * f64::from(first) / 100.0))
                .and_then(|goal| goal.with_exceed_ratio(f64::from(exceed) / 100.0))
                .and_then(|goal| goal.with_width(width))
                .and_then(|goal| goal.with_loss_ratio(if loss { 0.005 } else { 0.0 }))
                .unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn never_above_the_limit_and_within_the_width(capacity in 0.0..20e6_f64, goal in any_goal()) {
        let goal = goal.with_loss_ratio(0.0).unwrap();
        let (found, search) = search(&mut Device::hard(capacity), goal);
        prop_assert!(found.lower_pps.unwrap_or(0.0) <= capacity);
        prop_assert!(found.upper_pps.is_none_or(|upper| upper > capacity));
        prop_assert!(!matches!(found.limited_by, LimitedBy::Budget | LimitedBy::Machine), "{:?}", found);
        if capacity >= 1000.0 && capacity < MAX.floor() {
            prop_assert!(found.regular, "{:?}", found);
            let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
            prop_assert!(upper - lower <= (goal.width() * upper).max(1.0));
            prop_assert_eq!(found.conditional_pps, Some(lower));
        } else {
            prop_assert!(!found.regular);
        }
        // At most the trials of a sum at each of a few dozen loads.
        let per_load = (goal.sum_s() / goal.final_s()).ceil() as usize + 4;
        prop_assert!(search.trials().len() <= 40 * per_load, "{} trials", search.trials().len());
    }

    #[test]
    fn always_ends(
        capacity in 0.0..20e6_f64, noise in 0.0..0.5_f64, flaw in 0.0..1.0_f64, gap in 0.0..=1.0_f64, seen: bool,
        loss in 0.0..0.02_f64, generator in 1e3..30e6_f64, seed: u64, goals in prop::collection::vec(any_goal(), 1..4),
    ) {
        let mut device = Device {
            noise: Noise::Uniform(noise), loss_ratio: loss, flaw_share: flaw, gap_share: gap, gaps_seen: seen, generator_pps: generator,
            random: traffic::random::Random::new(seed), ..Device::hard(capacity)
        };
        let mut search = Mlr::new(goals, limits()).unwrap();
        let summary = run(&mut search, &mut device);
        prop_assert!(search.trials().len() <= 1000);
        for found in &summary.results {
            if let (Some(lower), Some(upper)) = (found.lower_pps, found.upper_pps) {
                prop_assert!(lower < upper);
                prop_assert!(!found.regular || upper - lower <= (found.goal.width() * upper).max(1.0));
            }
            prop_assert!(found.regular || !found.remarks.is_empty(), "irregular without a word: {:?}", found);
            // No bound rests on trials that the machine spoilt.
            for bound in [found.lower_pps, found.upper_pps].into_iter().flatten() {
                let outcomes = &search.outcomes[&(bound as u64)];
                prop_assert!(outcomes.iter().any(|outcome| outcome.counts(&found.goal)));
            }
        }
    }
}
