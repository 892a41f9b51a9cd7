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
    let result = run(&mut search, device).results.remove(0);
    (result, search)
}

fn traffic_s(search: &Mlr) -> f64 {
    search.trials().iter().map(|trial| trial.duration_s).sum()
}

#[test]
fn finds_the_limit_for_every_preset() {
    for goal in [Goal::quick(), Goal::ndr(), Goal::pdr(), Goal::rfc2544(), Goal::tst009()] {
        let (result, search) = search(&mut Device::with_capacity(3.3e6), goal);
        assert!(result.regular && result.remarks.is_empty(), "{result:?}");
        assert_eq!(result.limited_by, LimitedBy::Device);
        let (lower, upper) = (result.lower_pps.unwrap(), result.upper_pps.unwrap());
        let limit = 3.3e6 / (1.0 - goal.loss_ratio());
        assert!(lower <= limit * 1.000_001 && upper > limit * 0.999_999, "{goal}: {lower} {upper}");
        assert!(upper - lower <= goal.width() * upper);
        assert!(
            result.conditional_pps.is_some_and(|pps| pps <= 3.3e6 && pps >= 3.3e6 * (0.999 - goal.width())),
            "{result:?}"
        );
        println!("{} trials, {:6.2} s: {goal}", search.trials().len(), traffic_s(&search));
        assert!(search.trials().len() < 140);
    }
}

#[test]
fn spends_long_trials_only_near_the_result() {
    let (_, search) = search(&mut Device::with_capacity(7.7e6), Goal::rfc2544());
    let long = search.trials().iter().filter(|trial| trial.duration_s == 60.0).count();
    assert!(long <= 4, "{long}");
    assert!(traffic_s(&search) < 330.0, "{}", traffic_s(&search));
    assert_eq!(search.trials()[0].load_pps, 14_880_952.0);
}

#[test]
fn several_goals_share_trials() {
    let goals = vec![Goal::pdr(), Goal::ndr()];
    let mut both = Mlr::new(goals.clone(), limits()).unwrap();
    let summary = run(&mut both, &mut Device::with_capacity(5e6));
    assert_eq!((summary.results[0].goal, summary.results[1].goal), (Goal::pdr(), Goal::ndr()));
    assert!(summary.results.iter().all(|result| result.regular));
    assert!(summary.results[0].lower_pps > summary.results[1].lower_pps);
    let alone: usize =
        goals.into_iter().map(|goal| search(&mut Device::with_capacity(5e6), goal).1.trials().len()).sum();
    assert!(summary.trials < alone, "{} against {alone}", summary.trials);
    assert!(Mlr::new(vec![], limits()).is_err());
    assert!(Mlr::new(vec![Goal::ndr(); 17], limits()).is_err());
}

#[test]
fn more_than_the_generator_or_the_link() {
    let (result, search) = search(&mut Device::with_capacity(20e6), Goal::ndr());
    assert_eq!((result.lower_pps, result.upper_pps, result.width), (Some(14_880_952.0), None, None));
    assert_eq!((result.limited_by, result.regular), (LimitedBy::MaxLoad, false));
    assert_eq!(result.remarks, [Remark::MaxLoadHolds]);
    assert_eq!(result.conditional_pps, Some(14_880_952.0));
    assert!(search.trials().len() <= 11 + 1);

    let mut device = Device { generator_pps: 9.3e6, ..Device::with_capacity(20e6) };
    let (result, _) = self::search(&mut device, Goal::ndr());
    assert!(result.regular && result.lower_pps.is_some_and(|lower| lower <= 9.3e6 && lower > 9.2e6), "{result:?}");
    assert_eq!(result.limited_by, LimitedBy::Generator);
}

#[test]
fn nothing_comes_through() {
    let (result, search) = search(&mut Device::with_capacity(0.0), Goal::ndr());
    assert_eq!((result.lower_pps, result.upper_pps), (None, Some(1000.0)));
    assert_eq!((result.regular, result.conditional_pps), (false, None));
    assert_eq!((result.limited_by, result.remarks), (LimitedBy::Device, vec![Remark::NothingHolds]));
    assert!(search.trials().len() < 40);
}

#[test]
fn a_little_random_loss_defeats_zero_loss_only() {
    // One in 10,000 at any load: no load has none.
    let device = Device { loss_ratio: 1e-4, ..Device::with_capacity(5e6) };
    let (result, _) = search(&mut device.clone(), Goal::quick());
    assert!(result.lower_pps.unwrap_or(0.0) < 2e5, "{result:?}");
    let (result, _) = search(&mut device.clone(), Goal::pdr());
    assert!(result.regular && result.lower_pps.is_some_and(|lower| (4.9e6..5.05e6).contains(&lower)), "{result:?}");
    assert!(result.conditional_pps < result.lower_pps);
}

#[test]
fn tolerates_noise() {
    // every fifth trial loses a packet at random
    let device = Device { flaw_share: 0.2, ..Device::with_capacity(5e6) };
    for seed in 0..20 {
        let mut device = Device { random: traffic::random::Random::new(seed), ..device.clone() };
        let (result, _) = search(&mut device, Goal::ndr());
        assert!(result.regular && result.lower_pps.is_some_and(|lower| (4.9e6..=5e6).contains(&lower)), "{result:?}");
    }
    let strict = Goal::ndr().with_exceed_ratio(0.0).unwrap();
    let (result, _) = search(&mut device.clone(), strict);
    assert!(result.lower_pps < Some(4.9e6), "without an exceed ratio one lost packet fails a load: {result:?}");
}

#[test]
fn a_noisy_capacity_ends_near_its_middle() {
    for seed in 0..20 {
        let random = traffic::random::Random::new(seed);
        let mut device = Device { noise: Noise::Uniform(0.05), random, ..Device::with_capacity(4e6) };
        let (result, search) = search(&mut device, Goal::quick());
        assert!(result.lower_pps.is_some_and(|lower| (3.7e6..4.25e6).contains(&lower)), "{result:?}");
        assert!(search.trials().len() < 400, "{}", search.trials().len());
    }
}

#[test]
fn ignores_host_interference() {
    for seed in 0..20 {
        let random = traffic::random::Random::new(seed);
        let detected = Device { gap_share: 0.4, random, ..Device::with_capacity(5e6) };
        let strict = Goal::ndr().with_exceed_ratio(0.0).unwrap();
        let (result, search) = search(&mut detected.clone(), strict);
        assert!(result.lower_pps.is_some_and(|lower| lower <= 5e6), "{result:?}");
        if result.regular {
            assert!(result.lower_pps > Some(4.9e6), "{result:?}");
        } else {
            assert_eq!(result.limited_by, LimitedBy::HostInterference);
            assert!(matches!(result.remarks[..], [Remark::HostInterference { .. }]), "{result:?}");
        }
        let machine = search.trials().iter().filter(|trial| trial.host_interference).count();
        assert!(machine > 0 && search.trials().len() < 400, "{machine} of {}", search.trials().len());
        // the same interference, if undetected, fails good loads
        let (undetected, _) = self::search(&mut Device { gaps_detected: false, ..detected }, strict);
        assert!(undetected.lower_pps < Some(4e6), "{undetected:?}");
    }
}

#[test]
fn permanent_host_interference_gives_no_upper_bound() {
    let mut device = Device { gap_share: 1.0, ..Device::with_capacity(5e6) };
    let (result, search) = search(&mut device, Goal::ndr());
    assert_eq!((result.upper_pps, result.regular, result.limited_by), (None, false, LimitedBy::HostInterference));
    // loads that the ring of 1024 absorbs for 2 ms, up to 0.5 Mpps, would meet the goal, whatever the device
    assert!(result.lower_pps.is_none() && search.trials().len() < 60, "{result:?}");
}

#[test]
fn trials_with_host_interference_hint_at_the_next_load() {
    // all trials far above the limit have host interference; their forwarding rate still leads to it
    let mut search = Mlr::new(vec![Goal::quick()], limits()).unwrap();
    let mut device = Device::with_capacity(1e6);
    let summary = loop {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                let trial = device.offer(load_pps, duration_s);
                search.record(Trial { host_interference: load_pps > 2e6, ..trial }).unwrap();
            }
            Next::Done(summary) => break summary,
        }
    };
    assert!(summary.results[0].regular, "{summary:?}");
    assert_eq!(summary.interfered_trials, 5, "four retries of the first trial, then none");
    assert!(search.trials().iter().skip(5).all(|trial| trial.load_pps < 1.2e6));
}

#[test]
fn counts_host_interference_without_loss() {
    let mut search = Mlr::new(vec![Goal::ndr()], limits()).unwrap();
    let mut device = Device::with_capacity(20e6);
    let mut measure = |search: &mut Mlr| match search.next() {
        Next::Measure { load_pps, duration_s } => {
            search.record(Trial { host_interference: true, ..device.offer(load_pps, duration_s) }).is_ok()
        }
        Next::Done(_) => false,
    };
    while measure(&mut search) {}
    assert!(matches!(search.next(), Next::Done(summary) if summary.results[0].lower_pps == Some(14_880_952.0)));
}

#[test]
fn marks_loss_inversions() {
    // the device is slow in the first trial, loses one packet in the second, and then forwards 5 Mpps
    let strict = Goal::ndr().with_exceed_ratio(0.0).and_then(|goal| goal.with_sum_s(10.0)).unwrap();
    let mut search = Mlr::new(vec![strict, Goal::ndr()], limits()).unwrap();
    let (mut slow, mut flawed) = (Device::with_capacity(4e6), Device { flaw_share: 1.0, ..Device::with_capacity(5e6) });
    let mut steady = Device::with_capacity(5e6);
    let summary = loop {
        let device = [&mut slow, &mut flawed].into_iter().nth(search.trials().len()).unwrap_or(&mut steady);
        match search.next() {
            Next::Measure { load_pps, duration_s } => search.record(device.offer(load_pps, duration_s)).unwrap(),
            Next::Done(summary) => break summary,
        }
    };
    let [strict, ndr] = &summary.results[..] else { panic!("two goals") };
    // one loss fails the strict goal; a load above it meets the goal in trials of the other goal
    assert!(strict.regular && strict.upper_pps.is_some_and(|upper| upper == 3_999_999.0), "{strict:?}");
    let [Remark::Inversion { holds_pps, fails_pps }] = strict.remarks[..] else { panic!("{strict:?}") };
    assert!(Some(fails_pps) == strict.upper_pps && Some(holds_pps) == ndr.lower_pps, "{strict:?}");
    assert!(ndr.regular && ndr.remarks.is_empty() && ndr.lower_pps > Some(4.9e6), "{ndr:?}");
}

#[test]
fn reports_inversions() {
    let outcome = |loss_ratio| Outcome {
        duration_ns: 60_000_000_000,
        loss_ratio,
        device_loss_ratio: loss_ratio,
        loss_ratio_by_dut: 0.0,
        host_interference: false,
    };
    let outcomes = BTreeMap::from([(100, vec![outcome(0.0)]), (200, vec![outcome(0.1)]), (300, vec![outcome(0.0)])]);
    let view = GoalView { goal: Goal::rfc2544(), outcomes: &outcomes, limits: &limits() };
    let result = view.bounds(|_| false);
    assert_eq!(result, Bounds { lower: Some(100), upper: Some(200), undecidable: None, inversion: Some(300) });
    let result = result.goal_result(&Goal::rfc2544(), &TrialLog::new(limits()), &outcomes);
    assert_eq!(result.remarks, [Remark::Inversion { holds_pps: 300.0, fails_pps: 200.0 }]);
    assert!(result.remarks[0].to_string().contains("300 packets/s meet the goal although 200 fail it"));
    // a load that was given up acts as a bound, unless one above it meets the goal
    let interfered = BTreeMap::from([(100, vec![outcome(0.0)]), (200, vec![]), (300, vec![outcome(0.1)])]);
    let result = GoalView { outcomes: &interfered, ..view }.bounds(|load| load == 200);
    assert_eq!((result.ceiling(), result.undecidable, result.upper), (Some(200), Some(200), Some(300)));
    let holds = BTreeMap::from([(200, vec![]), (300, vec![outcome(0.0)])]);
    let result = GoalView { goal: Goal::rfc2544(), outcomes: &holds, limits: &limits() }.bounds(|load| load == 200);
    assert_eq!((result.ceiling(), result.lower), (None, Some(300)));
}

#[test]
fn rejects_other_trials() {
    let mut search = Mlr::new(vec![Goal::quick()], Limits::new(1000.0, 1e6).unwrap()).unwrap();
    let mut device = Device::with_capacity(1e5);
    assert!(matches!(search.record(device.offer(1e6, 0.05)), Err(SearchError::UnexpectedTrial(_))));
    assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
    assert!(matches!(search.record(device.offer(1e6, 1.0)), Err(SearchError::DifferentTrial { .. })));
    assert!(matches!(search.record(device.offer(2e6, 0.05)), Err(SearchError::DifferentTrial { .. })));
    let bad = Trial { lost: 0, ..device.offer(1e6, 0.05) };
    assert!(matches!(search.record(bad), Err(SearchError::Trial(_))));
    assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
    assert!(search.record(device.offer(1e6, 0.05)).is_ok());
    assert_eq!(search.trials().len(), 1);
}

#[test]
fn ends_at_the_budget() {
    let mut tight = limits();
    tight.max_trials = 5;
    let mut search = Mlr::new(vec![Goal::ndr()], tight).unwrap();
    let result = run(&mut search, &mut Device::with_capacity(5e6)).results.remove(0);
    assert_eq!((search.trials().len(), result.regular, result.limited_by), (5, false, LimitedBy::Budget));
    assert_eq!(result.remarks, [Remark::OutOfBudget]);
    let mut short = limits();
    short.max_traffic_s = 50.0;
    let mut search = Mlr::new(vec![Goal::rfc2544()], short).unwrap();
    let summary = run(&mut search, &mut Device::with_capacity(5e6));
    assert!(summary.traffic_s <= 50.0 && !summary.results[0].regular);
}

#[test]
fn budget_of_one_goal_does_not_mark_another() {
    // enough trials for the first goal, not for the second
    let mut tight = limits();
    tight.max_trials = 200;
    let hard = Goal::ndr().with_sum_s(400.0).and_then(|goal| goal.with_loss_ratio(0.1)).unwrap();
    let mut search = Mlr::new(vec![Goal::quick(), hard], tight).unwrap();
    let summary = run(&mut search, &mut Device::with_capacity(5e6));
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
        let (result, search) = search(&mut Device::with_capacity(capacity), goal);
        prop_assert!(result.lower_pps.unwrap_or(0.0) <= capacity);
        prop_assert!(result.upper_pps.is_none_or(|upper| upper > capacity));
        prop_assert!(!matches!(result.limited_by, LimitedBy::Budget | LimitedBy::HostInterference), "{:?}", result);
        if capacity >= 1000.0 && capacity < MAX.floor() {
            prop_assert!(result.regular, "{:?}", result);
            let (lower, upper) = (result.lower_pps.unwrap(), result.upper_pps.unwrap());
            prop_assert!(upper - lower <= (goal.width() * upper).max(1.0));
            prop_assert_eq!(result.conditional_pps, Some(lower));
        } else {
            prop_assert!(!result.regular);
        }
        // at most the trials of a duration sum at each of a few dozen loads
        let per_load = (goal.sum_s() / goal.final_s()).ceil() as usize + 4;
        prop_assert!(search.trials().len() <= 40 * per_load, "{} trials", search.trials().len());
    }

    #[test]
    fn always_ends(
        capacity in 0.0..20e6_f64, noise in 0.0..0.5_f64, flaw in 0.0..1.0_f64, gap in 0.0..=1.0_f64, seen: bool,
        loss in 0.0..0.02_f64, generator in 1e3..30e6_f64, seed: u64, goals in prop::collection::vec(any_goal(), 1..4),
    ) {
        let mut device = Device {
            noise: Noise::Uniform(noise), loss_ratio: loss, flaw_share: flaw, gap_share: gap, gaps_detected: seen, generator_pps: generator,
            random: traffic::random::Random::new(seed), ..Device::with_capacity(capacity)
        };
        let mut search = Mlr::new(goals, limits()).unwrap();
        let summary = run(&mut search, &mut device);
        prop_assert!(search.trials().len() <= 1000);
        for result in &summary.results {
            if let (Some(lower), Some(upper)) = (result.lower_pps, result.upper_pps) {
                prop_assert!(lower < upper);
                prop_assert!(!result.regular || upper - lower <= (result.goal.width() * upper).max(1.0));
            }
            prop_assert!(result.regular || !result.remarks.is_empty(), "irregular without a remark: {:?}", result);
            // no bound depends on trials with host interference
            for bound in [result.lower_pps, result.upper_pps].into_iter().flatten() {
                let outcomes = &search.outcomes[&(bound as u64)];
                prop_assert!(outcomes.iter().any(|outcome| outcome.counts(&result.goal)));
            }
        }
    }
}
