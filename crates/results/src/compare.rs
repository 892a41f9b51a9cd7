//! Two sets of results, cell by cell.

use crate::cell::{Cell, KEYS};
use crate::metric::{Metric, Within, metrics};
use crate::stats::{self, Ratio};
use report::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What both sides have measured under the same conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The conditions.
    pub cell: Cell,
    /// The numbers that both sides have.
    pub rows: Vec<Compared>,
}

/// One number on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Its name, with the load of a latency.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The first side.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// The other over the first; left out when a side is 0.
    pub ratio: Option<f64>,
    /// An interval of the ratio; no upper end where the search of the other side has none.
    pub interval: Option<(f64, Option<f64>)>,
    /// What the interval is.
    pub interval_is: Interval,
}

/// The repetitions of a side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// How many.
    pub n: usize,
    /// Their median.
    pub median: f64,
    /// The smallest, and the largest; for one, what it knows itself.
    pub min: f64,
    /// The largest; none where a search has no upper bound.
    pub max: Option<f64>,
}

/// How an interval came about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// The exact interval of ranks, with at least this confidence.
    Ranks {
        /// 0 to 1.
        confidence: f64,
    },
    /// A side is one result: from the bounds of the searches, or the spread of a side of several; no confidence.
    Bounds,
    /// A side is one result that knows no bounds.
    None,
}

/// Why results cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are told by the messages")]
pub enum Mismatch {
    /// A side has no results.
    #[error("side {side}: no results; see what there is with `bondstone results list`")]
    Empty { side: char },
    /// A name that is none of a condition.
    #[error("--across {name}: no such condition; there are {KEYS}")]
    NoSuchKey { name: String },
    /// Cells without a counterpart.
    #[error(
        "the sides were measured under other conditions:\n{}\ncompare all the same with --across NAME, or only what both have \
         with --common", lines.join("\n")
    )]
    Conditions { lines: Vec<String> },
    /// A side that is no set of repetitions.
    #[error(
        "side {side}: {what} differs within {cell}: {}; these are no repetitions of one measurement: name fewer, as with \
         dut=NAME or tag=NAME", values.join(" and ")
    )]
    Mixed { side: char, what: String, cell: String, values: Vec<String> },
}

/// Compares two sets of results. `across` names conditions that may differ; with `common`, cells that only one side has
/// are left out. Several results of a cell on a side are its repetitions.
///
/// # Errors
/// When the sides are not comparable.
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
    let known = |name: &String| name == "dut" || a.iter().chain(b).any(|r| Cell::of(r).has(name));
    if let Some(name) = across.iter().find(|name| !known(name)) {
        return Err(Mismatch::NoSuchKey { name: name.clone() });
    }
    let (left, right) = (grouped('A', a, across)?, grouped('B', b, across)?);
    let alone: Vec<String> = lines(&left, &right);
    let mut shared: Vec<&Cell> = left.keys().filter(|cell| right.contains_key(cell)).collect();
    if !alone.is_empty() && (!common || shared.is_empty()) {
        return Err(Mismatch::Conditions { lines: alone });
    }
    shared.sort_by_key(|cell| cell.order());
    Ok(shared.into_iter().map(|cell| Pair { cell: cell.clone(), rows: rows(&left[cell], &right[cell]) }).collect())
}

type Grouped<'a> = BTreeMap<Cell, Vec<&'a Result>>;

fn grouped<'a>(side: char, results: &'a [Result], across: &[String]) -> std::result::Result<Grouped<'a>, Mismatch> {
    let mut out: Grouped<'a> = BTreeMap::new();
    for r in results {
        out.entry(Cell::of(r).without(across)).or_default().push(r);
    }
    for (cell, group) in &out {
        let mixed = |what: &str, values: BTreeSet<String>| {
            let values: Vec<String> = values.into_iter().take(4).collect();
            (values.len() > 1).then(|| Mismatch::Mixed { side, what: what.to_owned(), cell: words(cell), values })
        };
        let one = |what: &str, of: fn(&Result) -> String| {
            mixed(what, group.iter().map(|r| of(r)).collect()).map_or(Ok(()), Err)
        };
        if !across.iter().any(|name| name == "dut") {
            one("dut", |r| r.dut.label())?;
            one("the configuration of the dut", |r| {
                r.dut.chain_sha256.as_deref().map_or("none".to_owned(), |hash| hash.chars().take(12).collect())
            })?;
        }
        // what may differ between the sides may not differ within one
        let first = Cell::of(group[0]);
        for other in group.iter().skip(1).map(|r| Cell::of(r)) {
            if let Some((name, x, y)) = first.differences(&other).first() {
                let values = [*x, *y].map(|v| v.unwrap_or("none").to_owned());
                mixed(name, values.into_iter().collect()).map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(out)
}

/// What to call a cell: its frames.
fn words(cell: &Cell) -> String {
    cell.0.get("frames").map_or("a cell".to_owned(), |frames| format!("the cell of frames {frames}"))
}

/// For each cell without a counterpart, how the nearest of the other side differs.
fn lines(left: &Grouped<'_>, right: &Grouped<'_>) -> Vec<String> {
    const MOST: usize = 8;
    let mut out: Vec<String> = vec![];
    for (ours, theirs, side) in [(left, right, 'A'), (right, left, 'B')] {
        for cell in ours.keys().filter(|cell| !theirs.contains_key(cell)) {
            let nearest = theirs.keys().min_by_key(|other| cell.differences(other).len());
            let Some(nearest) = nearest else { continue };
            for (name, mine, other) in cell.differences(nearest) {
                let (mine, other) = (mine.unwrap_or("none"), other.unwrap_or("none"));
                let (a, b) = if side == 'A' { (mine, other) } else { (other, mine) };
                let line = format!("  {name}: A has {a}, B has {b}");
                if !out.contains(&line) {
                    out.push(line);
                }
            }
        }
    }
    if out.len() > MOST {
        let more = out.len() - MOST;
        out.truncate(MOST);
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
    let several = x.len() > 1 && y.len() > 1;
    let ranks = if several { stats::ratio(&x, &y, 0.95) } else { None };
    let (ratio, interval, interval_is) = match ranks {
        Some(Ratio { ratio, low, high, confidence }) => {
            (Some(ratio), Some((low, Some(high))), Interval::Ranks { confidence })
        }
        None => {
            let ratio = divided(right.median, left.median);
            let known = |side: &[Metric]| side.len() > 1 || side.iter().any(|m| m.within != Within::Unknown);
            let low = left.max.and_then(|most| divided(right.min, most)).unwrap_or(0.0);
            let high = right.max.and_then(|most| divided(most, left.min));
            if known(a) && known(b) && ratio.is_some() {
                (ratio, Some((low, high)), Interval::Bounds)
            } else {
                (ratio, None, Interval::None)
            }
        }
    };
    Some(Compared { metric: name.0.clone(), unit: name.1.clone(), a: left, b: right, ratio, interval, interval_is })
}

fn side(metrics: &[Metric], values: &[f64]) -> Option<Side> {
    let median = stats::median(values)?;
    let (mut min, mut max) = stats::range(values).map(|(low, high)| (low, Some(high)))?;
    if let [one] = metrics {
        (min, max) = match one.within {
            Within::Search { lower, upper } => (lower, upper),
            Within::Values { min, max, .. } => (min, Some(max)),
            Within::Unknown => (one.value, Some(one.value)),
        };
    }
    Some(Side { n: values.len(), median, min, max })
}
