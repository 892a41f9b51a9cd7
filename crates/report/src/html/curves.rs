//! Curves that methods come to, loss over load, and how latency is distributed.

use super::element::Element;
use super::lines::{self, Axis, Chart, Line};
use super::svg;
use crate::format::{mpps, percent, significant, us};
use crate::table::Table;
use crate::{Result, hdr, words};
use std::collections::BTreeMap;

/// Drawings of one sort that a page holds.
const DRAWINGS: usize = 12;
/// Of a search, loads up to so many times the throughput are shown.
const NEAR: f64 = 2.0;
/// Points of a distribution.
const STEPS: usize = 120;

/// A value in the unit that people read, and the name of that.
pub(super) fn human(unit: &str) -> (f64, &str) {
    match unit {
        "pps" => (1e-6, "Mpps"),
        "bps" => (1e-9, "Gbit/s"),
        "ns" => (1e-3, "µs"),
        "ratio" => (100.0, "%"),
        other => (1.0, other),
    }
}

pub(super) fn axis(name: &str, unit: &str, log: bool) -> Axis {
    let label = if unit.is_empty() { name.to_owned() } else { format!("{name} ({unit})") };
    Axis { label, log, most: None }
}

/// Lines in charts of at most as many as there are colours.
pub(super) fn charts(
    id: &str,
    title: &str,
    x: impl Fn() -> Axis,
    y: impl Fn() -> Axis,
    mut all: Vec<Line>,
) -> Vec<Element> {
    all.retain(|line| !line.points.is_empty());
    let mut out = vec![];
    while !all.is_empty() && out.len() < DRAWINGS {
        let rest = all.split_off(all.len().min(svg::COLOURS));
        let id = format!("{id}-{}", out.len());
        out.push(lines::draw(&Chart { id, title: title.to_owned(), x: x(), y: y(), lines: all }));
        all = rest;
    }
    out
}

/// What to call each result, with its frame size.
pub(super) fn names(results: &[Result]) -> Vec<String> {
    let several = words::distinct(results.iter().map(|r| r.traffic.frames.label())).len() > 1;
    let name = |(name, r): (String, &Result)| {
        if several { format!("{name}, {}", words::frames(&r.traffic.frames)) } else { name }
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let told = |name: String| {
        let again = seen.entry(name.clone()).or_insert(0);
        *again += 1;
        if *again > 1 { format!("{name} #{again}") } else { name }
    };
    words::names(results).into_iter().zip(results).map(name).map(told).collect()
}

/// A curve for each result that has it; curves of one name and the same axes share a drawing.
pub(super) fn series(results: &[Result]) -> Vec<(String, Vec<Element>)> {
    type Key<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);
    let mut by_name: BTreeMap<Key<'_>, Vec<Line>> = BTreeMap::new();
    for (name, r) in names(results).into_iter().zip(results) {
        for s in &r.series {
            let (x, y) = (human(&s.x.unit).0, human(&s.y.unit).0);
            let points = s.points.iter().map(|p| (p[0] * x, p[1] * y)).collect();
            let key = (s.name.as_str(), s.x.name.as_str(), s.x.unit.as_str(), s.y.name.as_str(), s.y.unit.as_str());
            by_name.entry(key).or_default().push(Line { name: name.clone(), points, scattered: false });
        }
    }
    let draw = |(n, (key, lines)): (usize, (Key<'_>, Vec<Line>))| {
        let (title, x, x_unit, y, y_unit) = key;
        let wide = |of: fn(&(f64, f64)) -> f64| {
            let all = || lines.iter().flat_map(|l| &l.points).map(of);
            let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
            low > 0.0 && high > 300.0 * low
        };
        let (x_log, y_log) = (wide(|p| p.0), wide(|p| p.1));
        let x_axis = || axis(x, human(x_unit).1, x_log);
        let y_axis = || axis(y, human(y_unit).1, y_log);
        (title.to_owned(), charts(&format!("f6-{n}"), title, x_axis, y_axis, lines))
    };
    by_name.into_iter().take(DRAWINGS).enumerate().map(draw).collect()
}

/// The highest load whose loss is shown: a search begins far above what it finds.
fn most_shown(r: &Result) -> f64 {
    let is_search = r.method.name == "throughput" && r.summary.lower_pps > 0.0;
    if is_search { NEAR * r.summary.lower_pps } else { f64::INFINITY }
}

/// Loss of each trial over its load, where results tell it at several loads.
pub(super) fn loss(results: &[Result]) -> Vec<Element> {
    let line = |(name, r): (String, &Result)| {
        let told = r.trials.iter().filter(|t| !t.machine && t.phases.is_empty() && t.load_pps <= most_shown(r));
        let mut points: Vec<(f64, f64)> = told.map(|t| (t.load_pps / 1e6, t.loss_ratio() * 100.0)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let loads = points.windows(2).filter(|w| w[0].0 < w[1].0).count();
        if loads < 2 {
            points.clear();
        }
        Line { name, points, scattered: true }
    };
    let all: Vec<Line> = names(results).into_iter().zip(results).map(line).collect();
    charts("f4", "Loss over load", || axis("load", "Mpps", false), || axis("packets lost", "%", false), all)
}

/// The share of packets within each latency, at the highest load of each result.
pub(super) fn distribution(results: &[Result]) -> Vec<Element> {
    let x = || axis("latency", "µs", true);
    let y = || Axis { label: "packets within (%)".to_owned(), log: false, most: Some(100.0) };
    charts("f5", "Distribution of the latency", x, y, quantiles(results, false))
}

/// The points of the curves, and of the loss, for the tables below them: at most so many rows.
const ROWS: usize = 400;

/// The points of all curves of a name.
pub(super) fn points(results: &[Result], series: &str) -> Table {
    let mut table = Table::new(&["what", "x", "y"]);
    let named = names(results).into_iter().zip(results);
    let all = named.flat_map(|(name, r)| r.series.iter().filter(|s| s.name == series).map(move |s| (name.clone(), s)));
    for (name, s) in all {
        for p in &s.points {
            if table.rows.len() > ROWS {
                return table;
            }
            let value = |unit: &str, x: f64| {
                let (scale, unit) = human(unit);
                format!("{} {unit}", significant(x * scale, 5))
            };
            table.row([name.clone(), value(&s.x.unit, p[0]), value(&s.y.unit, p[1])]);
        }
    }
    table
}

/// The same of the delay variation: latency above the smallest (PDV, RFC 5481 §4.2).
pub(super) fn variation(results: &[Result]) -> Vec<Element> {
    let x = || axis("latency above the smallest", "µs", true);
    let y = || Axis { label: "packets within (%)".to_owned(), log: false, most: Some(100.0) };
    charts("f7", "Distribution of the delay variation", x, y, quantiles(results, true))
}

fn quantiles(results: &[Result], above_least: bool) -> Vec<Line> {
    let line = |(name, r): (String, &Result)| {
        let latency = r.highest_latency();
        let text = latency.and_then(|l| l.latency_hdr.as_deref());
        let histogram = text.and_then(|text| hdr::decode(text).ok()).filter(|h| !h.is_empty())?;
        let least = if above_least { histogram.min() } else { 0 };
        let at = |n: usize| {
            // closer together towards the end, where the tail is
            let q = 1.0 - (1.0 - n as f64 / STEPS as f64).powi(2);
            let us = histogram.value_at_quantile(q).saturating_sub(least) as f64 / 1e3;
            (us, q * 100.0)
        };
        let points: Vec<_> = (0..=STEPS).map(at).filter(|p| p.0 > 0.0).collect();
        let name = format!("{name}, at {}", latency.map_or(String::new(), words::load));
        Some(Line { name, points, scattered: false })
    };
    names(results).into_iter().zip(results).filter_map(line).collect()
}

/// Loss at each load.
pub(super) fn losses(results: &[Result]) -> Table {
    let mut table = Table::new(&["what", "load Mpps", "lost"]);
    let told =
        |r: &'_ Result| r.trials.iter().filter(|t| !t.machine && t.phases.is_empty()).cloned().collect::<Vec<_>>();
    for (name, r) in names(results).into_iter().zip(results) {
        for t in told(r).into_iter().take(ROWS.saturating_sub(table.rows.len())) {
            table.row([name.clone(), mpps(t.load_pps), percent(t.loss_ratio())]);
        }
    }
    table
}

/// Some percentiles of the latency and of its variation; those that fewer than ten samples tell are left out.
pub(super) fn spread(results: &[Result]) -> Table {
    let heading = ["what", "smallest µs", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "PDV p99 µs", "PDV p99.9 µs"];
    let mut table = Table::new(&heading);
    for (name, r) in names(results).into_iter().zip(results) {
        let Some(latency) = r.highest_latency() else { continue };
        let decoded = latency.latency_hdr.as_deref().and_then(|text| hdr::decode(text).ok());
        let Some(h) = decoded.filter(|h| !h.is_empty()) else { continue };
        let at = |q: f64, least: u64| {
            let told = latency.tells(q);
            if told { us(h.value_at_quantile(q).saturating_sub(least) as f64) } else { crate::format::NONE.to_owned() }
        };
        table.row([
            name,
            us(h.min() as f64),
            at(0.5, 0),
            at(0.9, 0),
            at(0.99, 0),
            at(0.999, 0),
            at(0.99, h.min()),
            at(0.999, h.min()),
        ]);
    }
    table
}
