//! Export formats.

use crate::samples;

use proptest::prelude::*;
use report::{Quantity, Result};
use results::export::{csv, junit, markdown};
use results::metric::metrics;
use results::threshold::{Bound, Threshold};
use roxmltree::Document;

fn three_results() -> Vec<Result> {
    let sizes = samples::sizes();
    sizes.into_iter().take(3).map(|frames| samples::result("bondstone", frames, 400.0)).collect()
}

fn threshold(bound: Bound, text: &str) -> Threshold {
    Threshold::parse(text, bound).unwrap()
}

#[test]
fn junit_is_valid_xml_with_counts() {
    let mut all = three_results();
    all[0].study = "a \u{1}<&\"'>".to_owned();
    all[1].cell.insert("k|".to_owned(), "]]>\n".to_owned());
    let fast = all.iter().map(|r| r.summary.lower_pps).fold(0.0, f64::max);
    let bounds = [
        threshold(Bound::AtLeast, &format!("throughput={fast}")),
        threshold(Bound::AtMost, "p99=1s"),
        threshold(Bound::AtMost, "loss=100%"),
        threshold(Bound::AtLeast, "back-to-back frames=4000"),
    ];
    let report = junit::junit(&all, &bounds).unwrap();
    assert_eq!(report.failures, 2);
    let xml = Document::parse(&report.xml).unwrap();
    let root = xml.root_element();
    assert_eq!(
        (root.tag_name().name(), root.attribute("tests"), root.attribute("failures")),
        ("testsuites", Some("12"), Some("2"))
    );
    let suites: Vec<_> = root.children().filter(|n| n.has_tag_name("testsuite")).collect();
    assert_eq!(suites.len(), 2);
    assert!(suites.iter().any(|s| s.attribute("name") == Some("a \u{fffd}<&\"'>")));
    let mut names = std::collections::HashSet::new();
    let (mut cases, mut failures) = (0, 0);
    for suite in suites {
        let tests = suite.children().filter(|n| n.has_tag_name("testcase")).count();
        assert_eq!(suite.attribute("tests"), Some(tests.to_string().as_str()));
        let failed = suite.descendants().filter(|n| n.has_tag_name("failure")).count();
        assert_eq!(suite.attribute("failures"), Some(failed.to_string().as_str()));
        suite.attribute("time").unwrap().parse::<f64>().unwrap();
        assert!(report::unix_seconds(suite.attribute("timestamp").unwrap()).is_some());
        for case in suite.children().filter(|n| n.has_tag_name("testcase")) {
            assert!(case.attribute("classname").is_some() && case.attribute("time").is_some());
            assert!(names.insert(case.attribute("name").unwrap().to_owned()), "a name twice");
        }
        (cases, failures) = (cases + tests, failures + failed);
    }
    assert_eq!((cases, failures), (12, 2));
    let missed = xml.descendants().find(|n| n.has_tag_name("failure")).unwrap();
    assert!(
        missed.attribute("message").unwrap().starts_with("throughput >= ")
            && missed.text().unwrap().contains("result ")
    );

    // a metric that one result lacks is skipped; one that all lack is an error
    all[2].quantities = vec![Quantity::new("only here", "frames", 1.0)];
    let report = junit::junit(&all, &[threshold(Bound::AtMost, "only here=0")]).unwrap();
    assert!(report.xml.contains("skipped=\"2\"") && report.failures == 1);
    Document::parse(&report.xml).unwrap();
    let e = junit::junit(&all, &[threshold(Bound::AtMost, "p98=1us")]).unwrap_err();
    assert!(e.starts_with("p98: no result has this metric; available:") && e.contains("throughput"), "{e}");
    let e = junit::junit(&all, &[threshold(Bound::AtMost, "p99=5")]).unwrap_err();
    assert!(e.contains("use 5ns"), "{e}");
    let plain = junit::junit(&all, &[]).unwrap();
    assert!(plain.xml.contains("tests=\"3\"") && plain.failures == 0);
}

#[test]
fn markdown_has_a_row_per_result() {
    let mut all = three_results();
    all[1].dut.kind = "a|b<script>".to_owned();
    let text = markdown::markdown(&all);
    let rows: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(rows.len(), 2 + 3 + 2 + 3);
    assert!(text.contains("a\\|b&lt;script&gt;"));
    // every row of a table has as many cells as its heading
    let cells = |row: &str| row.replace("\\|", "").matches('|').count();
    assert!(
        rows[..5].iter().all(|r| cells(r) == cells(rows[0])) && rows[5..].iter().all(|r| cells(r) == cells(rows[5]))
    );
    assert!(text.contains(&format!("{:.3}", all[0].summary.lower_pps / 1e6)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A reader of RFC 4180 reads back any text.
    #[test]
    fn csv_is_read_back(study in any::<String>(), kind in "[\",\r\n\u{0}a=;]{0,12}", value in any::<String>(), x in 0.0..1e15f64) {
        let mut r = samples::result("x", samples::sizes().swap_remove(0), 300.0);
        r.study = study;
        r.dut.kind = kind;
        r.cell.insert("k".to_owned(), value);
        r.quantities[0].value = x;
        let all = [r, three_results().swap_remove(1)];
        let text = csv::csv(&all);
        prop_assert!(text.ends_with("\r\n"));
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let heading = reader.headers().unwrap().clone();
        prop_assert_eq!(heading.iter().collect::<Vec<_>>(), csv::HEADING);
        let column = |name: &str| heading.iter().position(|h| h == name).unwrap();
        let rows: Vec<::csv::StringRecord> = reader.records().map(|r| r.unwrap()).collect();
        let expected: Vec<_> = all.iter().flat_map(|r| metrics(r).into_iter().map(move |m| (r, m))).collect();
        prop_assert_eq!(rows.len(), expected.len());
        for (row, (r, m)) in rows.iter().zip(expected) {
            let cell: Vec<_> = r.cell.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let [study, cell, label] = [r.study.clone(), cell.join("; "), r.dut.label()];
            prop_assert_eq!([&row[column("study")], &row[column("cell")], &row[column("dut")]], [&study, &cell, &label]);
            prop_assert_eq!([&row[column("id")], &row[column("metric")], &row[column("unit")]], [&r.id, &m.name, &m.unit]);
            prop_assert_eq!(row[column("value")].parse::<f64>().unwrap(), m.value);
        }
    }
}
