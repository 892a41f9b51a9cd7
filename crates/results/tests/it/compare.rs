//! Comparing two sides, and trends.

use crate::samples;

use report::{LimitedBy, Quantity, Result};
use results::compare::{Interval, Mismatch, compare};
use results::trend::trends;

/// A result with a frame size (index into the sizes of RFC 2544) and a throughput.
fn one(kind: &str, size: usize, pps: f64) -> Result {
    let mut r = samples::result(kind, samples::sizes().swap_remove(size), 250.0);
    r.summary.lower_pps = pps;
    r.summary.upper_pps = Some(pps * 1.02);
    r.quantities.clear();
    r
}

fn several(kind: &str, size: usize, rates: &[f64]) -> Vec<Result> {
    rates.iter().map(|&pps| one(kind, size, pps)).collect()
}

#[test]
fn repetitions_are_compared_by_ranks() {
    let a = several("native", 0, &[10.0e6, 10.2e6, 9.9e6, 10.1e6, 10.0e6]);
    let b = several("bondstone", 0, &[9.0e6, 9.1e6, 9.05e6, 8.9e6, 9.0e6]);
    let pairs = compare(&a, &b, &[], false).unwrap();
    assert_eq!(pairs.len(), 1);
    let row = pairs[0].rows.iter().find(|r| r.metric == "throughput").unwrap();
    assert_eq!((row.a.n, row.a.median, row.a.min, row.a.max), (5, 10.0e6, 9.9e6, Some(10.2e6)));
    assert_eq!((row.b.n, row.b.median), (5, 9.0e6));
    let (ratio, (low, high)) = (row.ratio.unwrap(), row.interval.unwrap());
    assert!((ratio - 0.9).abs() < 0.01 && low < ratio && ratio < high.unwrap() && high.unwrap() < 1.0);
    assert!(matches!(row.interval_type, Interval::Ranks { confidence } if confidence >= 0.95));
    // latency is compared at equal loads
    assert!(pairs[0].rows.iter().any(|r| r.metric == "p99 at 50 %"));
}

#[test]
fn single_results_use_the_bounds_of_their_searches() {
    let (a, b) = (one("native", 0, 10e6), one("bondstone", 0, 9e6));
    let pairs = compare(std::slice::from_ref(&a), std::slice::from_ref(&b), &[], false).unwrap();
    let row = &pairs[0].rows[0];
    assert_eq!((row.ratio, row.interval_type), (Some(0.9), Interval::Bounds));
    let (low, high) = row.interval.unwrap();
    assert!((low - 9.0 / 10.2).abs() < 1e-9 && (high.unwrap() - 9.18 / 10.0).abs() < 1e-9);
    // without an upper bound the ratio has none
    let mut open = b;
    open.summary.upper_pps = None;
    let pairs = compare(&[a], &[open], &[], false).unwrap();
    assert_eq!(pairs[0].rows[0].interval.unwrap().1, None);
    // the latency of a single result has no uncertainty
    let p99 = pairs[0].rows.iter().find(|r| r.metric.starts_with("p99 ")).unwrap();
    assert_eq!((p99.interval, p99.interval_type), (None, Interval::None));
}

#[test]
fn pairs_equal_conditions_and_rejects_others() {
    let a: Vec<Result> = (0..4).map(|s| one("native", s, 10e6)).collect();
    let b: Vec<Result> = (1..5).rev().map(|s| one("bondstone", s, 9e6)).collect();
    let e = compare(&a, &b, &[], false).unwrap_err();
    assert!(
        matches!(&e, Mismatch::Conditions { lines } if lines.iter().any(|l| l.contains("frames: A has 64, B has"))),
        "{e}"
    );
    let pairs = compare(&a, &b, &[], true).unwrap();
    let frames: Vec<&str> = pairs.iter().map(|p| p.conditions.0["frames"].as_str()).collect();
    assert_eq!(frames, ["128", "256", "512"], "in the order of their size");

    // each condition separately
    let base = one("native", 0, 10e6);
    for (name, change) in [
        ("method", (|r: &mut Result| r.method.name = "soak".to_owned()) as fn(&mut Result)),
        ("method", |r| r.method.quick = false),
        ("goal.trial_duration_s", |r| r.goal.trial_duration_s = 60.0),
        ("goal.loss_ratio", |r| r.goal.loss_ratio = 0.005),
        ("goal.width", |r| r.goal.width = 0.005),
        ("flows", |r| r.traffic.flows = 1),
        ("directions", |r| r.traffic.directions = 2),
        ("burst", |r| r.traffic.burst = 32),
        ("protocol", |r| r.traffic.protocol = "udp6".to_owned()),
        ("cell.isolation", |r| drop(r.cell.insert("isolation".to_owned(), "vm".to_owned()))),
        ("cell.length", |r| drop(r.cell.insert("length".to_owned(), "2".to_owned()))),
    ] {
        let mut other = base.clone();
        change(&mut other);
        let refused = compare(std::slice::from_ref(&base), std::slice::from_ref(&other), &[], false);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(&format!("  {name}: A has ")) && message.contains("--across"), "{message}");
        let across =
            |name: &str| compare(std::slice::from_ref(&base), std::slice::from_ref(&other), &[name.to_owned()], false);
        assert_eq!(across(name).unwrap().len(), 1, "{name}");
        let part = name.strip_prefix("cell.").unwrap_or(name.split('.').next().unwrap());
        assert_eq!(across(part).unwrap().len(), 1, "{part}");
    }
    assert!(matches!(compare(&a, &b, &["colour".to_owned()], true), Err(Mismatch::NoSuchKey { .. })));
    assert!(matches!(compare(&a, &[], &[], false), Err(Mismatch::Empty { side: 'B' })));
}

#[test]
fn a_side_must_consist_of_repetitions() {
    let mixed = [one("native", 0, 10e6), one("bondstone", 0, 9e6)];
    let other = [one("vpp", 0, 9e6)];
    let e = compare(&mixed, &other, &[], false).unwrap_err();
    assert!(matches!(&e, Mismatch::Mixed { side: 'A', what, .. } if what == "dut"), "{e}");
    assert!(compare(&mixed, &other, &["dut".to_owned()], false).is_ok());
    // conditions that may differ between the sides must not differ within one
    let mut flows = [one("vpp", 0, 9e6), one("vpp", 0, 9e6)];
    flows[1].traffic.flows = 1;
    let e = compare(&flows, &other, &["flows".to_owned()], false).unwrap_err();
    assert!(matches!(&e, Mismatch::Mixed { what, .. } if what == "flows"), "{e}");
    let mut files = [one("vpp", 0, 9e6), one("vpp", 0, 9e6)];
    files[1].dut.chain_sha256 = Some(report::sha256(b"another"));
    assert!(matches!(compare(&files, &other, &[], false), Err(Mismatch::Mixed { .. })));
}

#[test]
fn throughputs_that_the_dut_did_not_limit_are_lower_bounds() {
    let limited = |pps: f64, limited_by| Result { limited_by, ..one("bondstone", 0, pps) };
    let throughput = |a: &[Result], b: &[Result]| compare(a, b, &[], false).unwrap()[0].rows[0].clone();
    for limit in [LimitedBy::Generator, LimitedBy::HostInterference, LimitedBy::MaxLoad] {
        // B may be faster than A although it was measured as slower
        let row = throughput(&[one("native", 0, 10e6)], &[limited(9.25e6, limit)]);
        assert_eq!((row.b.limited_by.as_slice(), row.b.max), (&[limit][..], None));
        assert!(row.interval.is_some_and(|(low, high)| low < 1.0 && high.is_none()), "{row:?}");
        // at least 12 is more than at most 10.2
        let row = throughput(&[one("native", 0, 10e6)], &[limited(12e6, limit)]);
        assert!(row.interval.is_some_and(|(low, _)| low > 1.0), "{row:?}");
        let repeated = throughput(
            &several("native", 0, &[10.0e6, 10.1e6, 10.2e6, 10.3e6]),
            &[limited(9e6, limit), limited(9.1e6, LimitedBy::Dut), limited(9.2e6, limit), limited(9.3e6, limit)],
        );
        assert_eq!(repeated.interval_type, Interval::Bounds);
        assert!(repeated.interval.is_some_and(|(_, high)| high.is_none()), "{repeated:?}");
    }
    for limit in [LimitedBy::Dut, LimitedBy::Budget, LimitedBy::LineRate] {
        let row = throughput(&[one("native", 0, 10e6)], &[limited(9.25e6, limit)]);
        assert!(row.b.limited_by.is_empty() && row.interval.unwrap().1.unwrap() < 1.0, "{limit:?}");
    }
}

#[test]
fn compares_quantities() {
    let with = |values: &[f64]| {
        let mut r = one("native", 0, 1e6);
        r.quantities.extend(Quantity::mean("burst length", "frames", values));
        r.quantities.push(Quantity::new("only", "s", values[0]));
        r
    };
    let pairs = compare(&[with(&[10.0, 12.0])], &[with(&[20.0, 26.0])], &[], false).unwrap();
    let row = pairs[0].rows.iter().find(|r| r.metric == "burst length").unwrap();
    assert_eq!((row.a.min, row.a.max, row.a.median), (10.0, Some(12.0), 11.0));
    assert_eq!((row.interval, row.interval_type), (Some((20.0 / 12.0, Some(2.6))), Interval::Bounds));
    let only = pairs[0].rows.iter().find(|r| r.metric == "only").unwrap();
    assert_eq!((only.ratio, only.interval), (Some(2.0), None));
}

#[test]
fn trend_finds_change_points_and_differences() {
    let mut all = vec![];
    for day in 1..=28usize {
        let noise = 1.0 + 0.004 * ((day * 7919 % 13) as f64 / 6.0 - 1.0);
        let mut r = one("bondstone", 0, if day < 15 { 10e6 } else { 9e6 } * noise);
        r.environment.date = format!("2026-02-{day:02}T01:00:00Z");
        r.dut.version = Some(if day < 15 { "0.1.0" } else { "0.2.0" }.to_owned());
        r.assign_id().unwrap();
        all.push(r);
        let mut other = one("bondstone", 1, 5e6 * noise);
        other.environment.date = format!("2026-02-{day:02}T02:00:00Z");
        all.push(other);
    }
    // in any order
    all.reverse();
    let found = trends(&all, "throughput");
    assert_eq!(found.len(), 2);
    let (small, large) = (
        &found[usize::from(found[0].conditions["frames"] != "64")],
        &found[usize::from(found[0].conditions["frames"] == "64")],
    );
    assert_eq!((small.points.len(), large.change_points.len()), (28, 0));
    let [change] = small.change_points.as_slice() else { panic!("{:?}", small.change_points) };
    assert_eq!(change.date, "2026-02-15T01:00:00Z");
    assert!((change.change.unwrap() + 0.1).abs() < 0.005 && change.stddev_before < 0.01 * change.before);
    assert_eq!(change.differences, [("dut version".to_owned(), "0.1.0".to_owned(), "0.2.0".to_owned())]);
    assert!(small.points.is_sorted_by(|a, b| a.date < b.date));
    assert!(change.limited_by.is_empty() && small.points.iter().all(|p| p.limited_by.is_none()));
    let is_limited = |r: &&mut Result| r.environment.date.starts_with("2026-02-20T01");
    all.iter_mut().filter(is_limited).for_each(|r| r.limited_by = LimitedBy::Generator);
    let found = trends(&all, "throughput");
    let change = found.iter().find_map(|trend| trend.change_points.first()).unwrap();
    assert_eq!(change.limited_by, [LimitedBy::Generator]);
    assert_eq!(found.iter().flat_map(|t| &t.points).filter(|p| p.limited_by.is_some()).count(), 1);
    assert!(trends(&all, "no such").is_empty());
}

#[test]
fn compares_profiles_with_equal_script_duration_and_line_rate() {
    let profile = |script: &str, seconds: u32, line_bps: Option<f64>| {
        let mut r = one("native", 0, 10e6);
        let sha256 = report::sha256(script.as_bytes());
        let script = Some(script.to_owned());
        r.traffic.profile = Some(report::Profile {
            name: "day.rhai".to_owned(),
            sha256,
            script,
            duration_s: seconds,
            line_rate_bps: line_bps,
        });
        r
    };
    let first = profile("fn at(second) { #{} }", 60, None);
    assert!(compare(std::slice::from_ref(&first), std::slice::from_ref(&first), &[], false).is_ok());
    for other in [
        one("native", 0, 10e6),
        profile("fn at(second) { #{ } }", 60, None),
        profile("fn at(second) { #{} }", 61, None),
        profile("fn at(second) { #{} }", 60, Some(1e9)),
    ] {
        let why = compare(std::slice::from_ref(&first), &[other], &[], false).unwrap_err().to_string();
        assert!(why.contains("profile: A has day.rhai ("), "{why}");
    }
}
