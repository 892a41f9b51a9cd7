use super::*;
use crate::scenario::Reference;

fn facts(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
}

fn wanted(all: &[(&str, &[&str])]) -> Facts {
    all.iter().map(|(n, v)| ((*n).to_owned(), v.iter().map(|v| (*v).to_owned()).collect())).collect()
}

fn speed(cells: &str, value: f64) -> Observation {
    let facts = facts(&[("nf", "cells"), ("cells", cells)]);
    Observation { measure: Measure::SpeedOverC, facts, value, bounds: Some((value - 0.01, value + 0.01)) }
}

fn p99(nf: &str, value: f64) -> Observation {
    Observation { measure: Measure::P99, facts: facts(&[("nf", nf), ("frames", "64")]), value, bounds: None }
}

fn quantity(measure: Measure, of: Facts, over: Option<Facts>) -> Quantity {
    Quantity { measure, facts: of, over }
}

fn claim(quantity: Quantity, at_least: Option<f64>, at_most: Option<f64>) -> Claim {
    Claim {
        says: "something".to_owned(),
        published: Reference::new("few"),
        note: None,
        quantity: Some(quantity),
        at_least,
        at_most,
        given: None,
        untestable: None,
    }
}

fn verdict(claim: &Claim, seen: &[Observation], missing: &[Missing]) -> (Option<Spread>, Verdict) {
    one(claim, None, seen, missing)
}

fn why(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::NotTestable(why) => why,
        _ => panic!("{verdict:?}"),
    }
}

#[test]
fn every_number_has_to_lie_within_the_bounds() {
    let q = quantity(Measure::SpeedOverC, wanted(&[("cells", &["1", "2", "4"])]), None);
    let c = claim(q, Some(0.75), Some(0.87));
    let seen = [speed("1", 0.75), speed("2", 0.8), speed("4", 0.87), speed("8", 2.0), p99("cells", 1.0)];
    let (here, v) = verdict(&c, &seen, &[]);
    assert_eq!(v, Verdict::Reproduced, "bounds belong to what they bound, and what was not asked for does not matter");
    let here = here.unwrap();
    assert_eq!((here.count, here.values, here.bounds), (3, (0.75, 0.87), Some((0.74, 0.88))));
    let seen = [speed("1", 0.9), speed("2", 0.8), speed("4", 0.7)];
    assert_eq!(verdict(&c, &seen, &[]).1, Verdict::Contradicted { outside: 2 }, "too fast is no agreement either");
}

#[test]
fn with_over_it_is_the_means_that_are_divided() {
    let all = |v: &[&str]| wanted(&[("cells", v)]);
    let q = quantity(Measure::SpeedOverC, all(&["16", "32"]), Some(all(&["1", "2"])));
    let seen = [speed("1", 0.7), speed("2", 0.9), speed("16", 0.9), speed("32", 1.1)];
    let (here, v) = verdict(&claim(q, Some(1.05), None), &seen, &[]);
    assert_eq!(v, Verdict::Reproduced);
    let here = here.unwrap();
    assert!(here.is_ratio && (here.values.0 - 1.25).abs() < 1e-9);
    let (low, high) = here.bounds.unwrap();
    assert!((low - 0.99 / 0.81).abs() < 1e-9 && (high - 1.01 / 0.79).abs() < 1e-9);
    let q = quantity(Measure::P99, wanted(&[("nf", &["lpm"])]), Some(wanted(&[("nf", &["ttl"])])));
    let (here, v) = verdict(&claim(q, None, Some(1.2)), &[p99("lpm", 3e3), p99("ttl", 2e3)], &[]);
    assert_eq!((v, here.unwrap().bounds), (Verdict::Contradicted { outside: 1 }, None));
}

#[test]
fn what_is_not_there_is_not_testable_and_says_why() {
    let missing = |native, of: &[(&str, &str)], why: &str| Missing {
        native,
        what: Lacking::All,
        facts: facts(of),
        why: why.to_owned(),
    };
    let no_maglev = missing(false, &[("nf", "maglev")], "no NF \"maglev\" yet");
    let no_native = missing(true, &[], "native-bench is not built");
    let of = |nf| claim(quantity(Measure::P99, wanted(&[("nf", &[nf])]), None), None, Some(1e6));
    let seen = [p99("ttl", 1e3)];
    assert_eq!(verdict(&of("ttl"), &seen, &[no_maglev.clone(), no_native.clone()]).1, Verdict::Reproduced);
    let (here, v) = verdict(&of("maglev"), &seen, &[no_maglev.clone(), no_native.clone()]);
    assert_eq!((here, why(&v)), (None, "no NF \"maglev\" yet"));
    let (_, v) = verdict(&of("nat"), &seen, std::slice::from_ref(&no_maglev));
    assert_eq!(why(&v), "no p99 was measured with nf nat");
    let q = quantity(Measure::P99, wanted(&[("nf", &["maglev"])]), Some(wanted(&[("nf", &["ttl"])])));
    assert_eq!(why(&verdict(&claim(q, Some(1.0), None), &seen, &[no_maglev]).1), "no NF \"maglev\" yet");
    let q = quantity(Measure::SpeedOverC, Facts::new(), None);
    let c = claim(q, Some(0.9), None);
    assert_eq!(why(&verdict(&c, &[speed("1", 1.0)], &[no_native]).1), "native-bench is not built");
    assert_eq!(why(&verdict(&c, &seen, &[]).1), "no speed over C was measured");
}

#[test]
fn part_of_what_a_claim_is_about_is_not_enough() {
    let q = quantity(Measure::SpeedOverC, wanted(&[("cells", &["1", "2"])]), None);
    let (here, v) = verdict(&claim(q, Some(0.1), None), &[speed("1", 1.0)], &[]);
    assert_eq!(why(&v), "no speed over C was measured with cells 2");
    assert_eq!(here.unwrap().values, (1.0, 1.0), "it is shown all the same");
}

#[test]
fn what_was_measured_but_means_nothing_is_shown_and_not_judged() {
    let c = claim(quantity(Measure::P99, Facts::new(), None), None, Some(1e6));
    let of = facts(&[("nf", "ttl"), ("frames", "64")]);
    let missing =
        [Missing { native: false, what: Lacking::Upper, facts: of, why: "the generator set the limit".to_owned() }];
    let (here, v) = verdict(&c, &[p99("ttl", 1e3)], &missing);
    assert_eq!((here.unwrap().values.0, why(&v)), (1e3, "the generator set the limit"));
}

#[test]
fn a_claim_that_is_not_judged_shows_what_was_measured() {
    let q = quantity(Measure::P99, wanted(&[("nf", &["ttl"])]), None);
    let c = Claim { untestable: Some("another machine".to_owned()), ..claim(q, None, None) };
    let (here, v) = verdict(&c, &[p99("ttl", 12_345.0)], &[]);
    assert_eq!((here.unwrap().to_string(), why(&v)), ("12.3 us".to_owned(), "another machine"));
}

#[test]
fn a_claim_may_presuppose_another() {
    let c = claim(quantity(Measure::SpeedOverC, Facts::new(), None), Some(0.9), None);
    let seen = [speed("1", 1.0)];
    let id = "few".to_owned();
    let v = |of| one(&c, Some((&id, of)), &seen, &[]).1;
    assert_eq!(v(Some(Verdict::Reproduced)), Verdict::Reproduced);
    for other in [Some(Verdict::Contradicted { outside: 1 }), Some(Verdict::NotTestable("x".to_owned())), None] {
        assert!(why(&v(other)).contains("few"));
    }
}

#[test]
fn an_interval_across_a_bound_is_close() {
    let q = || quantity(Measure::SpeedOverC, Facts::new(), None);
    let close = |value: f64, at_least, at_most| {
        let claim = claim(q(), at_least, at_most);
        let (here, verdict) = one(&claim, None, &[speed("1", value)], &[]);
        let judged = Judged { claim: Some(&claim), says: String::new(), published: String::new(), here, verdict };
        judged.is_close()
    };
    assert!(close(0.895, Some(0.9), None) && close(0.905, Some(0.9), None));
    assert!(!close(0.88, Some(0.9), None) && !close(0.92, Some(0.9), None));
    assert!(
        close(1.005, Some(0.9), Some(1.0)) && !close(1.02, Some(0.9), Some(1.0)) && !close(0.95, Some(0.9), Some(1.0))
    );
}

#[test]
fn numbers_have_units_and_ratios_none() {
    let spread =
        |measure, is_ratio, count, values, bounds| Spread { measure, is_ratio, count, values, bounds }.to_string();
    assert_eq!(spread(Measure::Throughput, false, 1, (9e6, 9e6), Some((9e6, 9.2e6))), "9.000 Mpps (9.000 to 9.200)");
    assert_eq!(spread(Measure::SpeedOverC, true, 3, (0.9, 1.1), None), "0.900 to 1.100");
    assert_eq!(spread(Measure::P99, true, 1, (1.5, 1.5), None), "1.500");
}

#[test]
fn a_lower_bound_is_enough_for_what_has_to_be_at_least_so_much() {
    let seen = [Observation { measure: Measure::Throughput, facts: facts(&[("nf", "ttl")]), value: 5e6, bounds: None }];
    let limited = Missing {
        native: false,
        what: Lacking::Upper,
        facts: facts(&[("nf", "ttl")]),
        why: "the generator ended the search".to_owned(),
    };
    let latency = Missing { what: Lacking::Latency, why: "the machine".to_owned(), ..limited.clone() };
    let missing = [limited, latency];
    let of = |at_least, at_most, over: Option<Facts>| {
        verdict(
            &claim(quantity(Measure::Throughput, wanted(&[("nf", &["ttl"])]), over), at_least, at_most),
            &seen,
            &missing,
        )
        .1
    };
    assert_eq!(of(Some(4e6), None, None), Verdict::Reproduced);
    assert_eq!(why(&of(Some(6e6), None, None)), "the generator ended the search", "it may be that much");
    assert_eq!(why(&of(None, Some(9e6), None)), "the generator ended the search");
    assert_eq!(why(&of(Some(0.5), None, Some(wanted(&[("nf", &["ttl"])])))), "the generator ended the search");
}

#[test]
fn of_a_ratio_one_side_may_be_a_lower_bound() {
    let rate = |nf: &str, value| Observation {
        measure: Measure::Throughput,
        facts: facts(&[("nf", nf)]),
        value,
        bounds: Some((value, value)),
    };
    let seen = [rate("fast", 8e6), rate("slow", 2e6)];
    let limited = |nf: &str| Missing {
        native: false,
        what: Lacking::Upper,
        facts: facts(&[("nf", nf)]),
        why: format!("{nf} may be faster"),
    };
    let of = |above: &str, below: &str, at_least, at_most, nf: &str| {
        let q = quantity(Measure::Throughput, wanted(&[("nf", &[above])]), Some(wanted(&[("nf", &[below])])));
        verdict(&claim(q, at_least, at_most), &seen, &[limited(nf)]).1
    };
    // four times, or more
    assert_eq!(of("fast", "slow", Some(3.0), None, "fast"), Verdict::Reproduced);
    assert_eq!(why(&of("fast", "slow", Some(5.0), None, "fast")), "fast may be faster");
    assert_eq!(why(&of("fast", "slow", Some(3.0), None, "slow")), "slow may be faster");
    assert_eq!(why(&of("fast", "slow", None, Some(5.0), "fast")), "fast may be faster");
    assert_eq!(why(&of("fast", "slow", Some(3.0), Some(5.0), "fast")), "fast may be faster");
    // a quarter, or less
    assert_eq!(of("slow", "fast", None, Some(0.3), "fast"), Verdict::Reproduced);
    assert_eq!(why(&of("slow", "fast", None, Some(0.2), "fast")), "fast may be faster");
}
