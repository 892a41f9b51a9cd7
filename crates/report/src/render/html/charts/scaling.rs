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
/// Parameter that is a number of VNFs, over which the linear benchmark is drawn.
const VNFS: &str = "vnfs";

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

/// Returns the linear benchmark of each study and frame size, with the frame size: the highest throughput of one VNF of
/// any device, times the number of VNFs (Pitaev et al., ICPE 2018). `lines` are the curves over the number of VNFs.
fn linear_benchmarks(lines: &BTreeMap<String, Points<'_>>) -> Vec<(String, Line)> {
    // highest throughput of one VNF, and all numbers of VNFs
    let mut all: BTreeMap<(&str, String), (f64, BTreeSet<u64>)> = BTreeMap::new();
    // a given load is no throughput
    for (count, r) in lines.values().flatten().filter(|(_, r)| r.method.name != "load") {
        let (single, counts) = all.entry((&r.study, labels::frames(&r.traffic.frames))).or_default();
        if *count == 1.0 {
            *single = single.max(r.summary.lower_pps);
        }
        counts.insert(*count as u64);
    }
    let line = |((_, frames), (single, counts)): (_, (f64, BTreeSet<u64>))| {
        let name = format!("linear benchmark, {frames}");
        let points = counts.into_iter().map(|count| (count as f64, count as f64 * single / 1e6)).collect();
        (frames, Line { name, points, scattered: false })
    };
    all.into_iter().filter(|(_, (single, _))| *single > 0.0).map(line).collect()
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
        let linear = if name == VNFS { linear_benchmarks(&lines) } else { vec![] };
        for (_, line) in &linear {
            for (count, mpps) in &line.points {
                let (count, none) = (format::significant(*count, 10), format::NONE.to_owned());
                table.row([line.name.clone(), count, format::mpps(mpps * 1e6), none.clone(), none]);
            }
        }
        // lines of one frame size are compared with their linear benchmark
        let mut by_frames: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        let drawing = |frames: String| if name == VNFS { format!(", {frames}") } else { String::new() };
        for (line, points) in lines {
            let frames = points.first().map(|(_, r)| labels::frames(&r.traffic.frames)).unwrap_or_default();
            let points = points.iter().map(|(value, r)| (*value, r.summary.lower_pps / 1e6)).collect();
            by_frames.entry(drawing(frames)).or_default().push(Line { name: line, points, scattered: false });
        }
        for (frames, line) in linear {
            by_frames.entry(drawing(frames)).or_default().push(line);
        }
        let x = || axis(&name, "", log);
        let draw = |(m, (frames, lines)): (usize, (String, Vec<Line>))| {
            let title = format!("Throughput over {name}{frames}");
            charts(&format!("f8-{n}-{m}"), &title, x, || axis("throughput", "Mpps", false), lines)
        };
        let drawn = by_frames.into_iter().enumerate().flat_map(draw).collect();
        (name, drawn, table)
    };
    curves(results).into_iter().enumerate().map(draw).collect()
}
