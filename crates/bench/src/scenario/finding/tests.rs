use super::*;
use crate::scenario::PublishedReference;

fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

fn selection(all: &[(&str, &[&str])]) -> Selection {
    all.iter().map(|(n, v)| ((*n).to_owned(), v.iter().map(|v| (*v).to_owned()).collect())).collect()
}

fn speed(cells: &str, value: f64) -> Observation {
    let labels = labels(&[("nf", "cells"), ("cells", cells)]);
    Observation { metric: Metric::SpeedOverC, labels, value, bounds: Some((value - 0.01, value + 0.01)) }
}

fn p99(nf: &str, value: f64) -> Observation {
    Observation { metric: Metric::P99, labels: labels(&[("nf", nf), ("frames", "64")]), value, bounds: None }
}

fn quantity(metric: Metric, selection: Selection, divided_by: Option<Selection>) -> Quantity {
    Quantity { metric, selection, divided_by }
}

fn claim(quantity: Quantity, min: Option<f64>, max: Option<f64>) -> Claim {
    Claim {
        text: "something".to_owned(),
        published: PublishedReference::parse("few"),
        note: None,
        quantity: Some(quantity),
        min,
        max,
        requires: None,
        not_testable: None,
    }
}

fn verdict(claim: &Claim, observations: &[Observation], missing: &[Missing]) -> (Option<ValueRange>, Verdict) {
    evaluate_claim(claim, None, observations, missing)
}

fn reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::NotTestable(reason) => reason,
        _ => panic!("{verdict:?}"),
    }
}

#[test]
fn all_values_must_be_within_the_bounds() {
    let q = quantity(Metric::SpeedOverC, selection(&[("cells", &["1", "2", "4"])]), None);
    let c = claim(q, Some(0.75), Some(0.87));
    let observations = [speed("1", 0.75), speed("2", 0.8), speed("4", 0.87), speed("8", 2.0), p99("cells", 1.0)];
    let (range, v) = verdict(&c, &observations, &[]);
    assert_eq!(v, Verdict::Reproduced, "bounds are inclusive, and values that are not selected are ignored");
    let range = range.unwrap();
    assert_eq!((range.count, range.values, range.bounds), (3, (0.75, 0.87), Some((0.74, 0.88))));
    let observations = [speed("1", 0.9), speed("2", 0.8), speed("4", 0.7)];
    assert_eq!(
        verdict(&c, &observations, &[]).1,
        Verdict::Contradicted { outside: 2 },
        "values above the maximum contradict as well"
    );
}

#[test]
fn divides_means() {
    let all = |v: &[&str]| selection(&[("cells", v)]);
    let q = quantity(Metric::SpeedOverC, all(&["16", "32"]), Some(all(&["1", "2"])));
    let observations = [speed("1", 0.7), speed("2", 0.9), speed("16", 0.9), speed("32", 1.1)];
    let (range, v) = verdict(&claim(q, Some(1.05), None), &observations, &[]);
    assert_eq!(v, Verdict::Reproduced);
    let range = range.unwrap();
    assert!(range.is_ratio && (range.values.0 - 1.25).abs() < 1e-9);
    let (low, high) = range.bounds.unwrap();
    assert!((low - 0.99 / 0.81).abs() < 1e-9 && (high - 1.01 / 0.79).abs() < 1e-9);
    let q = quantity(Metric::P99, selection(&[("nf", &["lpm"])]), Some(selection(&[("nf", &["ttl"])])));
    let (range, v) = verdict(&claim(q, None, Some(1.2)), &[p99("lpm", 3e3), p99("ttl", 2e3)], &[]);
    assert_eq!((v, range.unwrap().bounds), (Verdict::Contradicted { outside: 1 }, None));
}

#[test]
fn missing_values_are_not_testable() {
    let missing = |native, of: &[(&str, &str)], reason: &str| Missing {
        native,
        part: MissingPart::All,
        labels: labels(of),
        reason: reason.to_owned(),
    };
    let no_maglev = missing(false, &[("nf", "maglev")], "no NF \"maglev\" yet");
    let no_native = missing(true, &[], "native-bench is not built");
    let of = |nf| claim(quantity(Metric::P99, selection(&[("nf", &[nf])]), None), None, Some(1e6));
    let observations = [p99("ttl", 1e3)];
    assert_eq!(verdict(&of("ttl"), &observations, &[no_maglev.clone(), no_native.clone()]).1, Verdict::Reproduced);
    let (range, v) = verdict(&of("maglev"), &observations, &[no_maglev.clone(), no_native.clone()]);
    assert_eq!((range, reason(&v)), (None, "no NF \"maglev\" yet"));
    let (_, v) = verdict(&of("nat"), &observations, std::slice::from_ref(&no_maglev));
    assert_eq!(reason(&v), "p99 was not measured with nf nat");
    let q = quantity(Metric::P99, selection(&[("nf", &["maglev"])]), Some(selection(&[("nf", &["ttl"])])));
    assert_eq!(reason(&verdict(&claim(q, Some(1.0), None), &observations, &[no_maglev]).1), "no NF \"maglev\" yet");
    let q = quantity(Metric::SpeedOverC, Selection::new(), None);
    let c = claim(q, Some(0.9), None);
    assert_eq!(reason(&verdict(&c, &[speed("1", 1.0)], &[no_native]).1), "native-bench is not built");
    assert_eq!(reason(&verdict(&c, &observations, &[]).1), "speed over C was not measured");
}

#[test]
fn some_values_missing_is_not_testable() {
    let q = quantity(Metric::SpeedOverC, selection(&[("cells", &["1", "2"])]), None);
    let (range, v) = verdict(&claim(q, Some(0.1), None), &[speed("1", 1.0)], &[]);
    assert_eq!(reason(&v), "speed over C was not measured with cells 2");
    assert_eq!(range.unwrap().values, (1.0, 1.0), "the measured values are reported");
}

#[test]
fn values_with_a_missing_upper_bound_are_reported_without_a_verdict() {
    let c = claim(quantity(Metric::P99, Selection::new(), None), None, Some(1e6));
    let labels = labels(&[("nf", "ttl"), ("frames", "64")]);
    let reason_text = "the generator set the limit".to_owned();
    let missing = [Missing { native: false, part: MissingPart::UpperBound, labels, reason: reason_text }];
    let (range, v) = verdict(&c, &[p99("ttl", 1e3)], &missing);
    assert_eq!((range.unwrap().values.0, reason(&v)), (1e3, "the generator set the limit"));
}

#[test]
fn reports_values_of_a_claim_that_is_not_testable() {
    let q = quantity(Metric::P99, selection(&[("nf", &["ttl"])]), None);
    let c = Claim { not_testable: Some("another machine".to_owned()), ..claim(q, None, None) };
    let (range, v) = verdict(&c, &[p99("ttl", 12_345.0)], &[]);
    assert_eq!((range.unwrap().to_string(), reason(&v)), ("12.3 us".to_owned(), "another machine"));
}

#[test]
fn a_claim_may_require_another() {
    let c = claim(quantity(Metric::SpeedOverC, Selection::new(), None), Some(0.9), None);
    let observations = [speed("1", 1.0)];
    let id = "few".to_owned();
    let v = |of| evaluate_claim(&c, Some((&id, of)), &observations, &[]).1;
    assert_eq!(v(Some(Verdict::Reproduced)), Verdict::Reproduced);
    for other in [Some(Verdict::Contradicted { outside: 1 }), Some(Verdict::NotTestable("x".to_owned())), None] {
        assert!(reason(&v(other)).contains("few"));
    }
}

#[test]
fn an_interval_that_crosses_a_bound_is_close() {
    let q = || quantity(Metric::SpeedOverC, Selection::new(), None);
    let close = |value: f64, min, max| {
        let claim = claim(q(), min, max);
        let (measured, verdict) = evaluate_claim(&claim, None, &[speed("1", value)], &[]);
        let (text, published) = (String::new(), String::new());
        Finding { claim: Some(&claim), text, published, measured, verdict }.is_close()
    };
    assert!(close(0.895, Some(0.9), None) && close(0.905, Some(0.9), None));
    assert!(!close(0.88, Some(0.9), None) && !close(0.92, Some(0.9), None));
    assert!(
        close(1.005, Some(0.9), Some(1.0)) && !close(1.02, Some(0.9), Some(1.0)) && !close(0.95, Some(0.9), Some(1.0))
    );
}

#[test]
fn ranges_have_units_except_ratios() {
    let text =
        |metric, is_ratio, count, values, bounds| ValueRange { metric, is_ratio, count, values, bounds }.to_string();
    assert_eq!(text(Metric::Throughput, false, 1, (9e6, 9e6), Some((9e6, 9.2e6))), "9.000 Mpps (9.000 to 9.200)");
    assert_eq!(text(Metric::SpeedOverC, true, 3, (0.9, 1.1), None), "0.900 to 1.100");
    assert_eq!(text(Metric::P99, true, 1, (1.5, 1.5), None), "1.500");
}

#[test]
fn a_lower_bound_is_enough_for_a_claim_with_a_minimum() {
    let observations =
        [Observation { metric: Metric::Throughput, labels: labels(&[("nf", "ttl")]), value: 5e6, bounds: None }];
    let limited = Missing {
        native: false,
        part: MissingPart::UpperBound,
        labels: labels(&[("nf", "ttl")]),
        reason: "the generator ended the search".to_owned(),
    };
    let latency = Missing { part: MissingPart::Latency, reason: "host interference".to_owned(), ..limited.clone() };
    let missing = [limited, latency];
    let of = |min, max, over: Option<Selection>| {
        verdict(
            &claim(quantity(Metric::Throughput, selection(&[("nf", &["ttl"])]), over), min, max),
            &observations,
            &missing,
        )
        .1
    };
    assert_eq!(of(Some(4e6), None, None), Verdict::Reproduced);
    assert_eq!(reason(&of(Some(6e6), None, None)), "the generator ended the search", "it may be that high");
    assert_eq!(reason(&of(None, Some(9e6), None)), "the generator ended the search");
    assert_eq!(reason(&of(Some(0.5), None, Some(selection(&[("nf", &["ttl"])])))), "the generator ended the search");
}

#[test]
fn one_side_of_a_ratio_may_be_a_lower_bound() {
    let rate = |nf: &str, value| Observation {
        metric: Metric::Throughput,
        labels: labels(&[("nf", nf)]),
        value,
        bounds: Some((value, value)),
    };
    let observations = [rate("fast", 8e6), rate("slow", 2e6)];
    let limited = |nf: &str| Missing {
        native: false,
        part: MissingPart::UpperBound,
        labels: labels(&[("nf", nf)]),
        reason: format!("{nf} may be faster"),
    };
    let of = |above: &str, below: &str, min, max, nf: &str| {
        let q = quantity(Metric::Throughput, selection(&[("nf", &[above])]), Some(selection(&[("nf", &[below])])));
        verdict(&claim(q, min, max), &observations, &[limited(nf)]).1
    };
    // four times, or more
    assert_eq!(of("fast", "slow", Some(3.0), None, "fast"), Verdict::Reproduced);
    assert_eq!(reason(&of("fast", "slow", Some(5.0), None, "fast")), "fast may be faster");
    assert_eq!(reason(&of("fast", "slow", Some(3.0), None, "slow")), "slow may be faster");
    assert_eq!(reason(&of("fast", "slow", None, Some(5.0), "fast")), "fast may be faster");
    assert_eq!(reason(&of("fast", "slow", Some(3.0), Some(5.0), "fast")), "fast may be faster");
    // a quarter, or less
    assert_eq!(of("slow", "fast", None, Some(0.3), "fast"), Verdict::Reproduced);
    assert_eq!(reason(&of("slow", "fast", None, Some(0.2), "fast")), "fast may be faster");
}
