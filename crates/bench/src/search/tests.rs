use super::*;
use crate::simulated::Simulated;
use proptest::prelude::*;

const MAX: f64 = 14_880_952.0;

fn limits() -> Limits {
    Limits::new(1000.0, MAX).unwrap()
}

fn find(kind: &str, goal: Goal, device: &mut Simulated) -> (GoalResult, Vec<Trial>) {
    let mut search = kind.parse::<SearchKind>().unwrap().start(goal, limits()).unwrap();
    let found = run(&mut *search, device).results.remove(0);
    (found, search.trials().to_vec())
}

#[test]
fn binary_search_of_rfc_2544() {
    let (found, trials) = find("binary", Goal::rfc2544(), &mut Simulated::hard(3.3e6));
    let (lower, upper) = (found.lower_pps.unwrap(), found.upper_pps.unwrap());
    assert!(found.regular && lower <= 3.3e6 && upper > 3.3e6 && upper - lower <= 0.005 * upper, "{found:?}");
    assert_eq!((found.conditional_pps, found.limited_by), (Some(lower), LimitedBy::Device));
    assert!(trials.len() <= 11 && trials.iter().all(|trial| trial.duration_s == 60.0), "{}", trials.len());
    assert_eq!(trials[0].load_pps, MAX);
    // Each load once, halving: the second is the middle of the range.
    assert_eq!(trials[1].load_pps, 1000.0 + (MAX - 1000.0) / 2.0);
}

#[test]
fn binary_search_over_a_list() {
    let (found, trials) = find("binary,step=10000", Goal::rfc2544(), &mut Simulated::hard(3.333e6));
    assert_eq!((found.lower_pps, found.upper_pps), (Some(3.33e6), Some(3.34e6)));
    assert!(found.regular && trials.len() <= 12, "{found:?}");
    // The middle of 1488 loads first (TST 009 §12.3.2).
    assert_eq!(trials[0].load_pps, 7.44e6);
    let over = |capacity, loads: &[u64]| {
        let mut search = Bisect::over(Goal::rfc2544(), limits(), loads.to_vec()).unwrap();
        let found = run(&mut search, &mut Simulated::hard(capacity)).results.remove(0);
        (found.lower_pps, found.upper_pps, found.regular)
    };
    assert_eq!(over(2.5e6, &[4_000_000, 2_000_000, 3_000_000, 1_000_000]), (Some(2e6), Some(3e6), true));
    assert_eq!(over(9e6, &[1_000_000, 2_000_000]), (Some(2e6), None, false));
    assert_eq!(over(5e5, &[1_000_000, 2_000_000]), (None, Some(1e6), false));
    assert_eq!(over(5e5, &[100_000]), (Some(1e5), None, false));
    assert!(matches!(Bisect::over(Goal::quick(), limits(), vec![3]), Err(SearchError::Loads(0))));
}

#[test]
fn loss_is_verified() {
    // Every third trial loses one packet for no reason.
    let device = Simulated { flaw_share: 0.33, ..Simulated::hard(5e6) };
    let mut right = [0, 0];
    for seed in 0..100 {
        for (kind, right) in ["binary", "verified,r=5"].into_iter().zip(&mut right) {
            let (found, _) = find(kind, Goal::rfc2544(), &mut device.clone().seeded(seed));
            *right += u32::from(found.lower_pps.is_some_and(|lower| lower > 4.97e6));
        }
    }
    assert!(right[0] < 30 && right[1] > 90, "{right:?}");
    let (found, trials) = find("verified,r=3,z=5000", Goal::rfc2544(), &mut Simulated::hard(5e6));
    assert!(found.regular && found.goal.sum_s() == 180.0 && (found.goal.exceed_ratio() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(found.conditional_pps, found.lower_pps);
    // 60 s above the limit by 0.25 % lose far more than z: no load is tried twice.
    let mut loads: Vec<_> = trials.iter().map(|trial| trial.load_pps).collect();
    loads.dedup();
    assert_eq!(loads.len(), trials.len());
    let (_, verified) = find("verified,r=3", Goal::rfc2544(), &mut Simulated::hard(5e6));
    let failed = trials.iter().filter(|trial| trial.lost > 0).count();
    assert_eq!(verified.len(), trials.len() + 2 * failed, "without z each load that fails does so three times");
    assert!(matches!(Verified::new(Goal::quick(), limits(), 0, None, None), Err(SearchError::Tries(0))));
}

#[test]
fn ends_of_the_range() {
    for kind in ["binary", "verified", "binary,step=1000"] {
        let (found, _) = find(kind, Goal::ndr(), &mut Simulated::hard(20e6));
        assert_eq!((found.regular, found.limited_by), (false, LimitedBy::MaxLoad), "{kind}");
        assert_eq!(found.upper_pps, None);
        let (found, trials) = find(kind, Goal::ndr(), &mut Simulated::hard(0.0));
        assert_eq!((found.lower_pps, found.upper_pps), (None, Some(1000.0)), "{kind}");
        assert_eq!((found.remarks, found.regular), (vec![Remark::NothingHolds], false));
        assert!(trials.len() < 400);
        let mut starved = Simulated { generator_pps: 4e6, ..Simulated::hard(20e6) };
        let (found, _) = find(kind, Goal::ndr(), &mut starved);
        assert_eq!((found.regular, found.limited_by), (true, LimitedBy::Generator), "{kind}");
    }
    let one = Limits::new(5000.0, 5000.0).unwrap();
    let found = run(&mut Bisect::new(Goal::quick(), one), &mut Simulated::hard(1e4)).results.remove(0);
    assert_eq!(found.lower_pps, Some(5000.0));
}

#[test]
fn what_the_machine_spoils_is_repeated() {
    let device = Simulated { gap_share: 0.3, ..Simulated::hard(5e6) };
    for kind in ["binary", "verified,r=2", "binary,step=20000"] {
        let mut near = 0;
        for seed in 0..50 {
            let (found, _) = find(kind, Goal::rfc2544(), &mut device.clone().seeded(seed));
            assert!(found.lower_pps <= Some(5e6));
            near += u32::from(found.regular && found.lower_pps > Some(4.96e6));
            assert!(found.regular || !found.remarks.is_empty(), "{found:?}");
        }
        assert!(near >= 45, "{kind}: {near} of 50");
        let (found, _) = find(kind, Goal::rfc2544(), &mut Simulated { gap_share: 1.0, ..device.clone() });
        assert_eq!((found.limited_by, found.regular), (LimitedBy::Machine, false), "{kind}: {found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bounds_are_measured_and_near(
        capacity in 0.0..20e6_f64, step in prop::option::of(2000_u32..1_000_000), r in 1_u32..5, exceed in 0_u32..90,
        width in 0.001..0.2_f64, noise in 0.0..0.2_f64, seed: u64,
    ) {
        let goal = Goal::quick().with_exceed_ratio(f64::from(exceed) / 100.0).and_then(|goal| goal.with_width(width)).unwrap();
        let mut device = Simulated {
            noise: crate::simulated::Noise::Uniform(noise), ..Simulated::hard(capacity).seeded(seed)
        };
        for kind in [
            SearchKind::Binary { step_pps: step },
            SearchKind::Verified { tries: r, most_lost: Some(100), step_pps: step },
        ] {
            let mut search = kind.start(goal, limits()).unwrap();
            let found = run(&mut *search, &mut device).results.remove(0);
            for bound in [found.lower_pps, found.upper_pps].into_iter().flatten() {
                prop_assert!(search.trials().iter().any(|trial| trial.load_pps == bound));
            }
            if let (Some(lower), Some(upper)) = (found.lower_pps, found.upper_pps) {
                let near = step.map_or((width * upper).max(1.0), f64::from);
                prop_assert!(found.regular && lower < upper && upper - lower <= near, "{:?}", found);
            } else {
                prop_assert!(!found.regular && !found.remarks.is_empty() || step.is_some(), "{:?}", found);
            }
        }
    }
}
