//! Throughput over numeric parameters of a matrix: flows, rules, cores.

use super::curves::{axis, charts};
use super::line_chart::Line;
use crate::Result;
use crate::render::html::element::Element;
use crate::render::{format, labels};
use std::collections::{BTreeMap, BTreeSet};
use text_table::Table;

/// Minimum number of values of a parameter for a curve.
const MIN_POINTS: usize = 3;

/// Points of a curve: the value of the parameter, and the result.
type Points<'a> = Vec<(f64, &'a Result)>;

/// Returns the parameters with at least three distinct numeric values, each with its curves by name.
fn curves(results: &[Result]) -> Vec<(String, BTreeMap<String, Points<'_>>)> {
    let names: BTreeSet<&String> = results.iter().flat_map(|r| r.cell.keys()).collect();
    let labeler = labels::Labeler::new(results);
    let mut out = vec![];
    for name in names {
        let mut lines: BTreeMap<String, Points<'_>> = BTreeMap::new();
        for r in results {
            let Some(value) = r.cell.get(name).and_then(|v| v.parse().ok()).filter(|v: &f64| v.is_finite()) else {
                continue;
            };
            let line = format!("{}, {}", labeler.label(r, Some(name)), labels::frames(&r.traffic.frames));
            let points = lines.entry(line).or_default();
            if points.iter().all(|(known, _)| *known != value) {
                points.push((value, r));
            }
        }
        lines.retain(|_, points| points.len() >= MIN_POINTS);
        for points in lines.values_mut() {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        if !lines.is_empty() {
            out.push((name.clone(), lines));
        }
    }
    out
}

/// Draws a chart for each parameter, with its data.
pub(crate) fn drawings(results: &[Result]) -> Vec<(String, Vec<Element>, Table)> {
    let draw = |(n, (name, lines)): (usize, (String, BTreeMap<String, Points<'_>>))| {
        let all = || lines.values().flatten().map(|(value, _)| *value);
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let log = low > 0.0 && high > 30.0 * low;
        let mut table = Table::new(&["result", &name, "lower bound Mpps", "upper bound Mpps", "limited by"]);
        for (line, points) in &lines {
            for (value, r) in points {
                let upper = r.summary.upper_pps.map_or(format::NONE.to_owned(), format::mpps);
                let value = format::significant(*value, 10);
                let limit = r.limited_by.name().to_owned();
                table.row([line.clone(), value, format::mpps(r.summary.lower_pps), upper, limit]);
            }
        }
        let line = |(name, points): (String, Points<'_>)| {
            let points = points.iter().map(|(value, r)| (*value, r.summary.lower_pps / 1e6)).collect();
            Line { name, points, scattered: false }
        };
        let title = format!("Throughput over {name}");
        let x = || axis(&name, "", log);
        let drawn = charts(
            &format!("f8-{n}"),
            &title,
            x,
            || axis("throughput", "Mpps", false),
            lines.into_iter().map(line).collect(),
        );
        (name, drawn, table)
    };
    curves(results).into_iter().enumerate().map(draw).collect()
}
