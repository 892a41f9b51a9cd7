//! JUnit XML for continuous integration: one test for each threshold of each result.

use crate::threshold::{Threshold, Verdict};
use report::Result;
use std::fmt::Write;

/// A report with the number of failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The XML.
    pub xml: String,
    /// Number of failed tests.
    pub failures: usize,
}

/// Exports results as JUnit XML: a suite for each study with a test case for each threshold of each result, or one for
/// each result without thresholds. A missed threshold is a failure; a result without the metric is skipped.
///
/// # Errors
/// If the unit of a threshold does not match its metric, or no result has the metric.
pub fn junit(results: &[Result], thresholds: &[Threshold]) -> std::result::Result<Report, String> {
    for t in thresholds {
        let mut verdicts = results.iter().map(|r| t.evaluate(r));
        if verdicts.all(|v| v == Ok(Verdict::Absent)) {
            let names = Threshold::names(results);
            return Err(format!("{}: no result has this metric; available: {}", t.metric, names.join(", ")));
        }
    }
    let mut studies: Vec<&str> = results.iter().map(|r| r.study.as_str()).collect();
    studies.sort_unstable();
    studies.dedup();
    let (mut body, mut all) = (String::new(), Counts::default());
    for study in studies {
        let (mut cases, mut counts) = (String::new(), Counts::default());
        let of: Vec<&Result> = results.iter().filter(|r| r.study == study).collect();
        for r in &of {
            add_cases(r, thresholds, &mut cases, &mut counts)?;
        }
        let first = of.iter().map(|r| r.environment.date.as_str()).min().unwrap_or_default();
        let _ = writeln!(
            body,
            "  <testsuite name=\"{}\" timestamp=\"{}\" {counts}>\n{cases}  </testsuite>",
            escaped(study),
            escaped(first),
        );
        all.add(&counts);
    }
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"bondstone\" {all}>\n{body}</testsuites>\n"
    );
    Ok(Report { xml, failures: all.failures })
}

#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    skipped: usize,
    seconds: f64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.tests += other.tests;
        self.failures += other.failures;
        self.skipped += other.skipped;
        self.seconds += other.seconds;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { tests, failures, skipped, seconds } = self;
        write!(f, "tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds:.3}\"")
    }
}

fn add_cases(
    r: &Result,
    thresholds: &[Threshold],
    out: &mut String,
    counts: &mut Counts,
) -> std::result::Result<(), String> {
    let seconds: f64 = r.trials.iter().map(|t| t.duration_s).sum();
    counts.seconds += seconds;
    let mut what = vec![r.method.name.clone(), format!("frames {}", r.traffic.frames.label())];
    what.extend(r.cell.iter().map(|(name, value)| format!("{name} {value}")));
    what.push(r.id.chars().take(12).collect());
    let what = what.join(", ");
    let mut case = |name: &str, time: f64, inside: &str| {
        counts.tests += 1;
        let class = escaped(&r.dut.label());
        let _ = write!(out, "    <testcase classname=\"{class}\" name=\"{}\" time=\"{time:.3}\"", escaped(name));
        let _ = if inside.is_empty() { writeln!(out, "/>") } else { writeln!(out, ">{inside}</testcase>") };
    };
    if thresholds.is_empty() {
        case(&what, seconds, "");
    }
    for (n, t) in thresholds.iter().enumerate() {
        let inside = match t.evaluate(r)? {
            Verdict::Met(_) => String::new(),
            Verdict::Missed(value) => {
                counts.failures += 1;
                let message = escaped(&format!("{t} not met: {value}"));
                let details = escaped(&format!("{t} not met: {value}\nresult {}\nstudy {}", r.id, r.study));
                format!("<failure type=\"threshold\" message=\"{message}\">{details}</failure>")
            }
            Verdict::Absent => {
                counts.skipped += 1;
                format!("<skipped message=\"{}\"/>", escaped(&format!("the result has no metric {}", t.metric)))
            }
        };
        // the first test of a result has the duration of its trials
        case(&format!("{t}: {what}"), if n == 0 { seconds } else { 0.0 }, &inside);
    }
    Ok(())
}

/// Escapes text for an attribute or element (XML 1.0); characters outside XML become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
