use super::*;
use crate::simulated::Simulated;
use proptest::prelude::*;

const MAX: f64 = 14_880_952.0;

fn limits() -> Limits {
    Limits::new(1000.0, MAX).unwrap()
}

fn find(kind: &str, goal: Goal, device: &mut Simulated) -> (GoalResult, Vec<Trial>) {
    let mut search = kind.parse::<SearchKind>().unwrap().start(goal, limits()).unwrap();
    let result = run(&mut *search, device).results.remove(0);
    (result, search.trials().to_vec())
}

#[test]
fn binary_search_of_rfc_2544() {
    let (result, trials) = find("binary", Goal::rfc2544(), &mut Simulated::with_capacity(3.3e6));
    let (lower, upper) = (result.lower_pps.unwrap(), result.upper_pps.unwrap());
    assert!(result.regular && lower <= 3.3e6 && upper > 3.3e6 && upper - lower <= 0.005 * upper, "{result:?}");
    assert_eq!((result.conditional_pps, result.limited_by), (Some(lower), LimitedBy::Device));
    assert!(trials.len() <= 11 && trials.iter().all(|trial| trial.duration_s == 60.0), "{}", trials.len());
    assert_eq!(trials[0].load_pps, MAX);
    // the second load is the middle of the range
    assert_eq!(trials[1].load_pps, 1000.0 + (MAX - 1000.0) / 2.0);
}

#[test]
fn binary_search_over_a_list() {
    let (result, trials) = find("binary,step=10000", Goal::rfc2544(), &mut Simulated::with_capacity(3.333e6));
    assert_eq!((result.lower_pps, result.upper_pps), (Some(3.33e6), Some(3.34e6)));
    assert!(result.regular && trials.len() <= 12, "{result:?}");
    // the first load is the middle of 1488 (TST 009 §12.3.2)
    assert_eq!(trials[0].load_pps, 7.44e6);
    let over = |capacity, loads: &[u64]| {
        let mut search = Bisect::over(Goal::rfc2544(), limits(), loads.to_vec()).unwrap();
        let result = run(&mut search, &mut Simulated::with_capacity(capacity)).results.remove(0);
        (result.lower_pps, result.upper_pps, result.regular)
    };
    assert_eq!(over(2.5e6, &[4_000_000, 2_000_000, 3_000_000, 1_000_000]), (Some(2e6), Some(3e6), true));
    assert_eq!(over(9e6, &[1_000_000, 2_000_000]), (Some(2e6), None, false));
    assert_eq!(over(5e5, &[1_000_000, 2_000_000]), (None, Some(1e6), false));
    assert_eq!(over(5e5, &[100_000]), (Some(1e5), None, false));
    assert!(matches!(Bisect::over(Goal::quick(), limits(), vec![3]), Err(SearchError::Loads(0))));
}

#[test]
fn verifies_loss() {
    // every third trial loses one packet at random
    let device = Simulated { flaw_share: 0.33, ..Simulated::with_capacity(5e6) };
    let mut right = [0, 0];
    for seed in 0..100 {
        for (kind, right) in ["binary", "verified,r=5"].into_iter().zip(&mut right) {
            let (result, _) = find(kind, Goal::rfc2544(), &mut device.clone().seeded(seed));
            *right += u32::from(result.lower_pps.is_some_and(|lower| lower > 4.97e6));
        }
    }
    assert!(right[0] < 30 && right[1] > 90, "{right:?}");
    let (result, trials) = find("verified,r=3,z=5000", Goal::rfc2544(), &mut Simulated::with_capacity(5e6));
    assert!(result.regular && result.goal.sum_s() == 180.0 && (result.goal.exceed_ratio() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(result.conditional_pps, result.lower_pps);
    // 60 s at 0.25 % above the limit lose far more than z packets: no load is measured twice
    let mut loads: Vec<_> = trials.iter().map(|trial| trial.load_pps).collect();
    loads.dedup();
    assert_eq!(loads.len(), trials.len());
    let (_, verified) = find("verified,r=3", Goal::rfc2544(), &mut Simulated::with_capacity(5e6));
    let failed = trials.iter().filter(|trial| trial.lost > 0).count();
    assert_eq!(verified.len(), trials.len() + 2 * failed, "without z each failing load is measured three times");
    assert!(matches!(Verified::new(Goal::quick(), limits(), 0, None, None), Err(SearchError::Attempts(0))));
}

#[test]
fn ends_of_the_range() {
    for kind in ["binary", "verified", "binary,step=1000"] {
        let (result, _) = find(kind, Goal::ndr(), &mut Simulated::with_capacity(20e6));
        assert_eq!((result.regular, result.limited_by), (false, LimitedBy::MaxLoad), "{kind}");
        assert_eq!(result.upper_pps, None);
        let (result, trials) = find(kind, Goal::ndr(), &mut Simulated::with_capacity(0.0));
        assert_eq!((result.lower_pps, result.upper_pps), (None, Some(1000.0)), "{kind}");
        assert_eq!((result.remarks, result.regular), (vec![Remark::NothingHolds], false));
        assert!(trials.len() < 400);
        let mut starved = Simulated { generator_pps: 4e6, ..Simulated::with_capacity(20e6) };
        let (result, _) = find(kind, Goal::ndr(), &mut starved);
        assert_eq!((result.regular, result.limited_by), (true, LimitedBy::Generator), "{kind}");
    }
    let one = Limits::new(5000.0, 5000.0).unwrap();
    let result = run(&mut Bisect::new(Goal::quick(), one), &mut Simulated::with_capacity(1e4)).results.remove(0);
    assert_eq!(result.lower_pps, Some(5000.0));
}

#[test]
fn repeats_trials_with_host_interference() {
    let device = Simulated { gap_share: 0.3, ..Simulated::with_capacity(5e6) };
    for kind in ["binary", "verified,r=2", "binary,step=20000"] {
        let mut near = 0;
        for seed in 0..50 {
            let (result, _) = find(kind, Goal::rfc2544(), &mut device.clone().seeded(seed));
            assert!(result.lower_pps <= Some(5e6));
            near += u32::from(result.regular && result.lower_pps > Some(4.96e6));
            assert!(result.regular || !result.remarks.is_empty(), "{result:?}");
        }
        assert!(near >= 45, "{kind}: {near} of 50");
        let (result, _) = find(kind, Goal::rfc2544(), &mut Simulated { gap_share: 1.0, ..device.clone() });
        assert_eq!((result.limited_by, result.regular), (LimitedBy::HostInterference, false), "{kind}: {result:?}");
    }
}

#[test]
fn a_host_that_is_too_busy_ends_the_search_without_a_throughput() {
    // a ring of 1024 packets absorbs 2 ms of preemption up to 0.5 Mpps
    let device = Simulated { gap_share: 1.0, ..Simulated::with_capacity(5e6) };
    for kind in ["mlr", "binary", "verified,r=2"] {
        let (result, trials) = find(kind, Goal::quick(), &mut device.clone());
        let is_told = result.remarks.iter().any(|remark| matches!(remark, Remark::HostTooBusy { .. }));
        assert_eq!((result.lower_pps, result.limited_by, is_told), (None, LimitedBy::HostInterference, true), "{kind}");
        assert!(trials.len() < 60, "{kind}: {} trials", trials.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bounds_are_measured_and_within_the_width(
        capacity in 0.0..20e6_f64, step in prop::option::of(2000_u32..1_000_000), r in 1_u32..5, exceed in 0_u32..90,
        width in 0.001..0.2_f64, noise in 0.0..0.2_f64, seed: u64,
    ) {
        let goal = Goal::quick().with_exceed_ratio(f64::from(exceed) / 100.0).and_then(|goal| goal.with_width(width)).unwrap();
        let mut device = Simulated {
            noise: crate::simulated::Noise::Uniform(noise), ..Simulated::with_capacity(capacity).seeded(seed)
        };
        for kind in [
            SearchKind::Binary { step_pps: step },
            SearchKind::Verified { attempts: r, max_lost: Some(100), step_pps: step },
        ] {
            let mut search = kind.start(goal, limits()).unwrap();
            let result = run(&mut *search, &mut device).results.remove(0);
            for bound in [result.lower_pps, result.upper_pps].into_iter().flatten() {
                prop_assert!(search.trials().iter().any(|trial| trial.load_pps == bound));
            }
            if let (Some(lower), Some(upper)) = (result.lower_pps, result.upper_pps) {
                let near = step.map_or((width * upper).max(1.0), f64::from);
                prop_assert!(result.regular && lower < upper && upper - lower <= near, "{:?}", result);
            } else {
                prop_assert!(!result.regular && !result.remarks.is_empty() || step.is_some(), "{:?}", result);
            }
        }
    }
}
