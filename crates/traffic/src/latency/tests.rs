use proptest::prelude::*;

use super::*;

fn of(values: &[u64]) -> Delays {
    let mut delays = Delays::new();
    values.iter().for_each(|ns| delays.record(*ns));
    delays
}

#[test]
fn nothing_is_nothing() {
    let delays = Delays::new();
    assert_eq!((delays.min_ns(), delays.max_ns(), delays.quantile_ns(0.5)), (None, None, None));
}

#[test]
fn delays_beyond_the_range_still_count() {
    let delays = of(&[0, MAX_NS * 3, u64::MAX]);
    assert_eq!(delays.count(), 3);
    assert_eq!(delays.min_ns(), Some(0));
    assert!(delays.max_ns().is_some_and(|max| max >= MAX_NS));
}

#[test]
fn scales() {
    assert_eq!(Scale::new(1_000_000_000).ns(123_456_789_012), 123_456_789_012);
    let hour = Scale::new(2_700_000_000).ns(2_700_000_000 * 3600);
    assert!(hour.abs_diff(3_600_000_000_000) < 3_600, "{hour}: off by more than 1 in 10⁹");
    assert_eq!(Scale::new(0).ns(u64::MAX), u64::MAX);
}

proptest! {
    #[test]
    fn quantiles_are_near(mut values in prop::collection::vec(0_u64..MAX_NS, 1..300), share in 0.0..=1.0_f64) {
        let delays = of(&values);
        values.sort_unstable();
        let exact = values[((share * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
        let told = delays.quantile_ns(share).unwrap();
        prop_assert!(told >= exact && told - exact <= exact / 900 + 1, "{} for {}", told, exact);
    }
}
