//! Comparison of two sets of results under the same conditions.

use crate::conditions::{Conditions, KEYS};
use crate::metric::{Metric, Uncertainty, limits, metrics};
use crate::stats::{self, Ratio};
use report::{LimitedBy, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Results of both sides under the same conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The conditions.
    pub conditions: Conditions,
    /// Metrics that both sides have.
    pub rows: Vec<Compared>,
}

/// One metric on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name, with the load of a latency.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Side A.
    pub a: Side,
    /// Side B.
    pub b: Side,
    /// B over A; `None` if a side is 0.
    pub ratio: Option<f64>,
    /// Interval of the ratio; no upper end if the search of side B has no upper bound.
    pub interval: Option<(f64, Option<f64>)>,
    /// Type of the interval.
    pub interval_type: Interval,
}

/// The repetitions of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Number of results.
    pub n: usize,
    /// Median.
    pub median: f64,
    /// Minimum; of a single result, its lower bound.
    pub min: f64,
    /// Maximum; of a single result, its upper bound, if there is one. None if a result is only a lower bound.
    pub max: Option<f64>,
    /// Limits of results that are only lower bounds, as the DUT did not limit them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limited_by: Vec<LimitedBy>,
}

/// Type of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// Exact rank interval with at least this confidence.
    Ranks {
        /// Confidence, 0 to 1.
        confidence: f64,
    },
    /// A side has one result, or one that the DUT did not limit: derived from the bounds of searches, or from the range
    /// of several results; no confidence.
    Bounds,
    /// A side has one result without bounds.
    None,
}

/// Why results cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum Mismatch {
    /// A side has no results.
    #[error("side {side}: no results; `bondstone results list` lists those in the database")]
    Empty { side: char },
    /// An unknown condition.
    #[error("--across {name}: unknown condition; valid names: {KEYS}")]
    NoSuchKey { name: String },
    /// Results without a counterpart.
    #[error(
        "the sides were measured under different conditions:\n{}\nignore a condition with --across NAME, or compare \
         only common conditions with --common", lines.join("\n")
    )]
    Conditions { lines: Vec<String> },
    /// A side whose results are not repetitions.
    #[error(
        "side {side}: {what} differs within {conditions}: {}; these are not repetitions of one measurement: select \
         fewer, for example with dut=NAME or tag=NAME", values.join(" and ")
    )]
    Mixed { side: char, what: String, conditions: String, values: Vec<String> },
}

/// Compares two sets of results. Conditions in `across` may differ; with `common`, results without a counterpart are
/// left out. Results of a side under the same conditions are repetitions.
///
/// # Errors
/// If the sides are not comparable.
pub fn compare(
    a: &[Result],
    b: &[Result],
    across: &[String],
    common: bool,
) -> std::result::Result<Vec<Pair>, Mismatch> {
    for (side, results) in [('A', a), ('B', b)] {
        if results.is_empty() {
            return Err(Mismatch::Empty { side });
        }
    }
    let known = |name: &String| name == "dut" || a.iter().chain(b).any(|r| Conditions::of(r).has(name));
    if let Some(name) = across.iter().find(|name| !known(name)) {
        return Err(Mismatch::NoSuchKey { name: name.clone() });
    }
    let (left, right) = (grouped('A', a, across)?, grouped('B', b, across)?);
    let unmatched: Vec<String> = lines(&left, &right);
    let mut shared: Vec<&Conditions> = left.keys().filter(|c| right.contains_key(c)).collect();
    if !unmatched.is_empty() && (!common || shared.is_empty()) {
        return Err(Mismatch::Conditions { lines: unmatched });
    }
    shared.sort_by_key(|c| c.sort_key());
    Ok(shared.into_iter().map(|c| Pair { conditions: c.clone(), rows: rows(&left[c], &right[c]) }).collect())
}

type Grouped<'a> = BTreeMap<Conditions, Vec<&'a Result>>;

fn grouped<'a>(side: char, results: &'a [Result], across: &[String]) -> std::result::Result<Grouped<'a>, Mismatch> {
    let mut out: Grouped<'a> = BTreeMap::new();
    for r in results {
        out.entry(Conditions::of(r).without(across)).or_default().push(r);
    }
    for (conditions, group) in &out {
        let mixed = |what: &str, values: BTreeSet<String>| {
            let values: Vec<String> = values.into_iter().take(4).collect();
            (values.len() > 1).then(|| Mismatch::Mixed {
                side,
                what: what.to_owned(),
                conditions: describe(conditions),
                values,
            })
        };
        let check = |what: &str, of: fn(&Result) -> String| {
            mixed(what, group.iter().map(|r| of(r)).collect()).map_or(Ok(()), Err)
        };
        if !across.iter().any(|name| name == "dut") {
            check("dut", |r| r.dut.label())?;
            check("the configuration of the dut", |r| {
                r.dut.chain_sha256.as_deref().map_or("none".to_owned(), |hash| hash.chars().take(12).collect())
            })?;
        }
        // conditions that may differ between the sides must not differ within one
        let first = Conditions::of(group[0]);
        for other in group.iter().skip(1).map(|r| Conditions::of(r)) {
            if let Some((name, x, y)) = first.differences(&other).first() {
                let values = [*x, *y].map(|v| v.unwrap_or("none").to_owned());
                mixed(name, values.into_iter().collect()).map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(out)
}

/// Describes conditions by their frames.
fn describe(conditions: &Conditions) -> String {
    conditions
        .0
        .get("frames")
        .map_or("one set of conditions".to_owned(), |frames| format!("the results of frames {frames}"))
}

/// Describes, for results without a counterpart, the differences to the most similar conditions of the other side.
fn lines(left: &Grouped<'_>, right: &Grouped<'_>) -> Vec<String> {
    const MAX_LINES: usize = 8;
    let mut out: Vec<String> = vec![];
    for (ours, theirs, side) in [(left, right, 'A'), (right, left, 'B')] {
        for conditions in ours.keys().filter(|c| !theirs.contains_key(c)) {
            let nearest = theirs.keys().min_by_key(|other| conditions.differences(other).len());
            let Some(nearest) = nearest else { continue };
            for (name, mine, other) in conditions.differences(nearest) {
                let (mine, other) = (mine.unwrap_or("none"), other.unwrap_or("none"));
                let (a, b) = if side == 'A' { (mine, other) } else { (other, mine) };
                let line = format!("  {name}: A has {a}, B has {b}");
                if !out.contains(&line) {
                    out.push(line);
                }
            }
        }
    }
    if out.len() > MAX_LINES {
        let more = out.len() - MAX_LINES;
        out.truncate(MAX_LINES);
        out.push(format!("  and {more} more"));
    }
    out
}

fn rows(a: &[&Result], b: &[&Result]) -> Vec<Compared> {
    let all = |side: &[&Result]| side.iter().map(|r| metrics(r)).collect::<Vec<_>>();
    let (left, right) = (all(a), all(b));
    let mut names: Vec<(String, String)> = vec![];
    for m in left.iter().flatten() {
        let name = (m.label(), m.unit.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of = |side: &[Vec<Metric>], name: &(String, String)| {
        let each = side.iter().filter_map(|ms| ms.iter().find(|m| m.label() == name.0 && m.unit == name.1));
        each.cloned().collect::<Vec<Metric>>()
    };
    names.iter().filter_map(|name| compared(name, &of(&left, name), &of(&right, name))).collect()
}

fn compared(name: &(String, String), a: &[Metric], b: &[Metric]) -> Option<Compared> {
    let values = |side: &[Metric]| side.iter().map(|m| m.value).collect::<Vec<f64>>();
    let (x, y) = (values(a), values(b));
    let (left, right) = (side(a, &x)?, side(b, &y)?);
    let divided = |over: f64, under: f64| (under > 0.0).then(|| over / under);
    let is_limited = !left.limited_by.is_empty() || !right.limited_by.is_empty();
    let several = x.len() > 1 && y.len() > 1 && !is_limited;
    let ranks = if several { stats::ratio(&x, &y, 0.95) } else { None };
    let (ratio, interval, interval_type) = match ranks {
        Some(Ratio { ratio, low, high, confidence }) => {
            (Some(ratio), Some((low, Some(high))), Interval::Ranks { confidence })
        }
        None => {
            let ratio = divided(right.median, left.median);
            let known = |side: &[Metric]| side.len() > 1 || side.iter().any(|m| m.uncertainty != Uncertainty::Unknown);
            let low = left.max.and_then(|max| divided(right.min, max)).unwrap_or(0.0);
            let high = right.max.and_then(|max| divided(max, left.min));
            if known(a) && known(b) && ratio.is_some() {
                (ratio, Some((low, high)), Interval::Bounds)
            } else {
                (ratio, None, Interval::None)
            }
        }
    };
    Some(Compared { metric: name.0.clone(), unit: name.1.clone(), a: left, b: right, ratio, interval, interval_type })
}

fn side(metrics: &[Metric], values: &[f64]) -> Option<Side> {
    let median = stats::median(values)?;
    let (mut min, mut max) = stats::range(values).map(|(low, high)| (low, Some(high)))?;
    if let [one] = metrics {
        (min, max) = match one.uncertainty {
            Uncertainty::Search { lower, upper } => (lower, upper),
            Uncertainty::Values { min, max, .. } => (min, Some(max)),
            Uncertainty::Unknown => (one.value, Some(one.value)),
        };
    }
    let limited_by = limits(metrics.iter());
    let max = max.filter(|_| limited_by.is_empty());
    Some(Side { n: values.len(), median, min, max, limited_by })
}
