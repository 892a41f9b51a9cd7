//! Curves of methods, loss over load, and latency distributions.

use super::line_chart::{self, Axis, Chart, Line};
use super::svg;
use crate::render::format::{mpps, percent, significant, us};
use crate::render::html::element::Element;
use crate::render::labels;
use crate::{Histogram, Result, Trial, hdr};
use std::collections::BTreeMap;
use text_table::Table;

/// Maximum number of drawings of one type on a page.
const MAX_DRAWINGS: usize = 12;
/// Factor of the throughput up to which loads of a search are shown.
const MAX_LOAD_FACTOR: f64 = 2.0;
/// Number of points of a distribution.
const STEPS: usize = 120;

/// Returns a factor to a readable unit, and its name.
pub(crate) fn readable_unit(unit: &str) -> (f64, &str) {
    match unit {
        "pps" => (1e-6, "Mpps"),
        "bps" => (1e-9, "Gbit/s"),
        "ns" => (1e-3, "µs"),
        "ratio" => (100.0, "%"),
        other => (1.0, other),
    }
}

pub(crate) fn axis(name: &str, unit: &str, log: bool) -> Axis {
    let label = if unit.is_empty() { name.to_owned() } else { format!("{name} ({unit})") };
    Axis { label, log, max: None }
}

/// Returns the vertical axis of a distribution.
fn share_axis() -> Axis {
    Axis { label: "packets within (%)".to_owned(), log: false, max: Some(100.0) }
}

/// Draws lines in charts of at most as many lines as there are colours.
pub(crate) fn charts(
    id: &str,
    title: &str,
    x: impl Fn() -> Axis,
    y: impl Fn() -> Axis,
    mut all: Vec<Line>,
) -> Vec<Element> {
    all.retain(|line| !line.points.is_empty());
    let mut out = vec![];
    while !all.is_empty() && out.len() < MAX_DRAWINGS {
        let rest = all.split_off(all.len().min(svg::COLOURS));
        let id = format!("{id}-{}", out.len());
        out.push(line_chart::draw(&Chart { id, title: title.to_owned(), x: x(), y: y(), lines: all }));
        all = rest;
    }
    out
}

/// Returns labels of results with their frame sizes.
pub(crate) fn names(results: &[Result]) -> Vec<String> {
    let sizes_differ = labels::distinct(results.iter().map(|r| r.traffic.frames.label())).len() > 1;
    let name = |(name, r): (String, &Result)| {
        if sizes_differ { format!("{name}, {}", labels::frames(&r.traffic.frames)) } else { name }
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let unique = |name: String| {
        let count = counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count > 1 { format!("{name} #{count}") } else { name }
    };
    labels::labels(results).into_iter().zip(results).map(name).map(unique).collect()
}

/// Draws the curves of methods; curves with the same name and axes share a drawing.
pub(crate) fn series(results: &[Result]) -> Vec<(String, Vec<Element>)> {
    type Key<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);
    let mut by_name: BTreeMap<Key<'_>, Vec<Line>> = BTreeMap::new();
    for (name, r) in names(results).into_iter().zip(results) {
        for s in &r.series {
            let (x, y) = (readable_unit(&s.x.unit).0, readable_unit(&s.y.unit).0);
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
        let x_axis = || axis(x, readable_unit(x_unit).1, x_log);
        let y_axis = || axis(y, readable_unit(y_unit).1, y_log);
        (title.to_owned(), charts(&format!("f6-{n}"), title, x_axis, y_axis, lines))
    };
    by_name.into_iter().take(MAX_DRAWINGS).enumerate().map(draw).collect()
}

/// Returns the highest load to show: a search starts far above its result, and frames to learned addresses are not lost.
fn max_shown_load(r: &Result) -> f64 {
    match &*r.method.name {
        "throughput" | "connections" if r.summary.lower_pps > 0.0 => MAX_LOAD_FACTOR * r.summary.lower_pps,
        "address-table" | "learning-rate" => 0.0,
        _ => f64::INFINITY,
    }
}

/// Draws the loss of each trial over its load, for results with several loads.
pub(crate) fn loss(results: &[Result]) -> Vec<Element> {
    let line = |(name, r): (String, &Result)| {
        let shown =
            r.trials.iter().filter(|t| !t.host_interference && t.phases.is_empty() && t.load_pps <= max_shown_load(r));
        let mut points: Vec<(f64, f64)> = shown.map(|t| (t.load_pps / 1e6, t.loss_ratio() * 100.0)).collect();
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

/// Draws the latency distribution at the highest load of each result.
pub(crate) fn distribution(results: &[Result]) -> Vec<Element> {
    let x = || axis("latency", "µs", true);
    charts("f5", "Distribution of the latency", x, share_axis, quantiles(results, false))
}

/// Maximum number of rows in a table of points.
const MAX_ROWS: usize = 400;

/// Returns the points of all curves with a name.
pub(crate) fn points(results: &[Result], series: &str) -> Table {
    let mut table = Table::new(&["result", "x", "y"]);
    let named = names(results).into_iter().zip(results);
    let all = named.flat_map(|(name, r)| r.series.iter().filter(|s| s.name == series).map(move |s| (name.clone(), s)));
    for (name, s) in all {
        for p in &s.points {
            if table.rows().len() > MAX_ROWS {
                return table;
            }
            let value = |unit: &str, x: f64| {
                let (scale, unit) = readable_unit(unit);
                format!("{} {unit}", significant(x * scale, 5))
            };
            table.row([name.clone(), value(&s.x.unit, p[0]), value(&s.y.unit, p[1])]);
        }
    }
    table
}

/// Draws the distribution of the delay variation: latency above the minimum (PDV, RFC 5481 §4.2).
pub(crate) fn variation(results: &[Result]) -> Vec<Element> {
    let x = || axis("latency above the minimum", "µs", true);
    charts("f7", "Distribution of the delay variation", x, share_axis, quantiles(results, true))
}

/// Returns the lateness of the generator in the trials at the lower bound, in all trials if there are none.
fn lateness_histogram(r: &Result) -> Option<Histogram<u64>> {
    let at_bound = |t: &&Trial| t.load_pps == r.summary.lower_pps;
    let has_bound = r.trials.iter().any(|t| at_bound(&t));
    let trials = r.trials.iter().filter(|t| !has_bound || at_bound(t));
    let mut all: Option<Histogram<u64>> = None;
    for histogram in trials.filter_map(|t| hdr::decode(t.lateness_hdr.as_deref()?).ok()) {
        match &mut all {
            // a document may mix histograms of different ranges
            Some(all) => all.add(&histogram).unwrap_or_default(),
            None => all = Some(histogram),
        }
    }
    all.filter(|all| !all.is_empty())
}

/// Returns percentiles of the lateness of the generator.
pub(crate) fn lateness_percentiles(results: &[Result]) -> Table {
    let mut table = Table::new(&["result", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs"]);
    for (name, r) in names(results).into_iter().zip(results) {
        let Some(h) = lateness_histogram(r) else { continue };
        let at = |q: f64| us(h.value_at_quantile(q) as f64);
        table.row([name, at(0.5), at(0.9), at(0.99), at(0.999), us(h.max() as f64)]);
    }
    table
}

/// Draws the distribution of the lateness of the generator.
pub(crate) fn lateness(results: &[Result]) -> Vec<Element> {
    let line = |(name, r): (String, &Result)| {
        Some(Line { name, points: distribution_points(&lateness_histogram(r)?, 0), scattered: false })
    };
    let all = names(results).into_iter().zip(results).filter_map(line).collect();
    charts("f9", "Distribution of the lateness of the generator", || axis("lateness", "µs", true), share_axis, all)
}

/// Returns the points of a distribution in microseconds above `min` nanoseconds and percent, denser towards the tail.
fn distribution_points(histogram: &Histogram<u64>, min: u64) -> Vec<(f64, f64)> {
    let at = |n: usize| {
        let q = 1.0 - (1.0 - n as f64 / STEPS as f64).powi(2);
        (histogram.value_at_quantile(q).saturating_sub(min) as f64 / 1e3, q * 100.0)
    };
    (0..=STEPS).map(at).filter(|p| p.0 > 0.0).collect()
}

fn quantiles(results: &[Result], above_min: bool) -> Vec<Line> {
    let line = |(name, r): (String, &Result)| {
        let latency = r.highest_latency();
        let text = latency.and_then(|l| l.latency_hdr.as_deref());
        let histogram = text.and_then(|text| hdr::decode(text).ok()).filter(|h| !h.is_empty())?;
        let points = distribution_points(&histogram, if above_min { histogram.min() } else { 0 });
        let name = format!(
            "{name}, at {}",
            latency.map_or(String::new(), |l| labels::load(l.load_pps, l.share_of_throughput))
        );
        Some(Line { name, points, scattered: false })
    };
    names(results).into_iter().zip(results).filter_map(line).collect()
}

/// Returns the loss at each load.
pub(crate) fn losses(results: &[Result]) -> Table {
    let mut table = Table::new(&["result", "load Mpps", "lost"]);
    let undisturbed = |r: &'_ Result| {
        r.trials.iter().filter(|t| !t.host_interference && t.phases.is_empty()).cloned().collect::<Vec<_>>()
    };
    for (name, r) in names(results).into_iter().zip(results) {
        for t in undisturbed(r).into_iter().take(MAX_ROWS.saturating_sub(table.rows().len())) {
            table.row([name.clone(), mpps(t.load_pps), percent(t.loss_ratio())]);
        }
    }
    table
}

/// Returns percentiles of the latency and its variation, without those beyond which fewer than ten samples lie.
pub(crate) fn spread(results: &[Result]) -> Table {
    let heading = ["result", "min µs", "p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "PDV p99 µs", "PDV p99.9 µs"];
    let mut table = Table::new(&heading);
    for (name, r) in names(results).into_iter().zip(results) {
        let Some(latency) = r.highest_latency() else { continue };
        let decoded = latency.latency_hdr.as_deref().and_then(|text| hdr::decode(text).ok());
        let Some(h) = decoded.filter(|h| !h.is_empty()) else { continue };
        let at = |q: f64, min: u64| {
            if latency.has_percentile(q) {
                us(h.value_at_quantile(q).saturating_sub(min) as f64)
            } else {
                crate::render::format::NONE.to_owned()
            }
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
