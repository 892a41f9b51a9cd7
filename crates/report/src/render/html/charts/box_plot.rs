//! Box plots of repeated measurements.

use super::scale::Scale;
use super::svg::{self, WIDTH};
use crate::Result;
use crate::render::format::{mpps, plural, short};
use crate::render::html::element::{Element, el};
use crate::render::labels;
use std::collections::HashMap;
use text_table::Table;

const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 92.0;
const ROW: f64 = 30.0;
/// Maximum number of rows in a drawing.
const MAX_ROWS: usize = 30;

/// Throughputs of one measurement, in ascending order.
struct Group {
    name: String,
    pps: Vec<f64>,
}

impl Group {
    /// Returns a rate relative to the median, percent.
    fn relative(&self, pps: f64) -> f64 {
        let median = quantile(&self.pps, 0.5);
        if median > 0.0 { pps / median * 100.0 } else { 100.0 }
    }
}

/// Returns a key that repetitions have in common: DUT, version, CPU, and all conditions.
fn key(r: &Result) -> String {
    let (dut, cpu) = (&r.dut, &r.environment.cpu);
    let identity = (dut.label(), &dut.version, &dut.chain_sha256, cpu);
    format!("{identity:?}{:?}{:?}{:?}{:?}", r.cell, r.traffic, r.goal, r.method)
}

/// Returns the latest result of each measurement, in order of first appearance; `None` if nothing was repeated.
pub(crate) fn latest(results: &[Result]) -> Option<Vec<Result>> {
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut out: Vec<&Result> = vec![];
    for r in results {
        let i = *index.entry(key(r)).or_insert_with(|| {
            out.push(r);
            out.len() - 1
        });
        if r.environment.unix_seconds() > out[i].environment.unix_seconds() {
            out[i] = r;
        }
    }
    (out.len() < results.len()).then(|| out.into_iter().cloned().collect())
}

/// Groups repeated measurements.
fn groups(results: &[Result]) -> Vec<Group> {
    let sizes_differ = labels::distinct(results.iter().map(|r| r.traffic.frames.label())).len() > 1;
    let mut keys: Vec<String> = vec![];
    let mut out: Vec<Group> = vec![];
    for (name, r) in labels::labels(results).into_iter().zip(results) {
        if r.summary.lower_pps == 0.0 && r.summary.upper_pps.is_none() {
            continue;
        }
        let key = key(r);
        match keys.iter().position(|k| *k == key) {
            Some(i) => out[i].pps.push(r.summary.lower_pps),
            None => {
                keys.push(key);
                let name = if sizes_differ { format!("{name}, {}", labels::frames(&r.traffic.frames)) } else { name };
                out.push(Group { name, pps: vec![r.summary.lower_pps] });
            }
        }
    }
    out.retain(|g| g.pps.len() > 1);
    out.iter_mut().for_each(|g| g.pps.sort_by(f64::total_cmp));
    out
}

/// Returns a quantile, interpolated between the nearest two values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

/// Draws the box plots; empty if nothing was repeated.
pub(crate) fn drawings(results: &[Result]) -> Vec<Element> {
    let groups = groups(results);
    groups.chunks(MAX_ROWS).enumerate().map(|(n, part)| drawing(part, n)).collect()
}

fn drawing(groups: &[Group], n: usize) -> Element {
    let (top, bottom) = (12.0, 12.0 + groups.len() as f64 * ROW);
    let ends = |q: f64| groups.iter().map(move |g| g.relative(quantile(&g.pps, q)));
    let x = Scale::around_100(ends(0.0).fold(100.0, f64::min), ends(1.0).fold(100.0, f64::max), LEFT, RIGHT);
    let title = "Repetitions of the throughput";
    let description = format!("A box plot for each of {}.", plural(groups.len(), "measurement", "measurements"));
    let mut out = svg::drawing(&format!("f8-{n}"), WIDTH, bottom + 46.0, title, &description);
    for tick in &x.ticks {
        let at = x.px(tick.value);
        out = out.child(svg::line("grid", at, top, at, bottom));
        out = out.child(svg::text("mid", at, bottom + 17.0, &tick.label));
    }
    out = out.child(svg::line("base", LEFT, top, LEFT, bottom));
    out = out.child(svg::text(
        "mid axis",
        f64::midpoint(LEFT, RIGHT),
        bottom + 38.0,
        "throughput relative to its median (%)",
    ));
    for (row, group) in groups.iter().enumerate() {
        let y = top + (row as f64 + 0.5) * ROW;
        let label = svg::text("end", LEFT - 8.0, y + 4.0, &short(&group.name, 27)).child(svg::tip(&group.name));
        out = out.child(label).child(box_plot(group, &x, y));
    }
    out
}

/// Draws whiskers from minimum to maximum, a box between the quartiles, a line at the median, a mark for each value.
fn box_plot(group: &Group, x: &Scale, y: f64) -> Element {
    let at = |q: f64| x.px(group.relative(quantile(&group.pps, q)));
    let median = quantile(&group.pps, 0.5);
    let tip = format!("{}: median {} Mpps of {}", group.name, mpps(median), group.pps.len());
    let mut g = el("g").child(svg::tip(&tip));
    g = g.child(svg::line("whisker", at(0.0), y, at(1.0), y));
    for end in [0.0, 1.0] {
        g = g.child(svg::line("whisker", at(end), y - 5.0, at(end), y + 5.0));
    }
    // quartiles of fewer than five values are not meaningful
    if group.pps.len() >= 5 {
        g = g.child(svg::rect("box fc0", at(0.25), y - 8.0, (at(0.75) - at(0.25)).max(1.0), 16.0));
    }
    g = g.child(svg::line("median", at(0.5), y - 9.0, at(0.5), y + 9.0));
    // limits the size of the file
    g = g.children(group.pps.iter().take(200).map(|pps| svg::marker(0, 'c', x.px(group.relative(*pps)), y)));
    g.child(svg::text("start value", RIGHT + 8.0, y + 4.0, &format!("{} Mpps", mpps(median))))
}

/// Returns the data of the box plots.
pub(crate) fn table(results: &[Result]) -> Table {
    let mut table =
        Table::new(&["result", "n", "min Mpps", "1st quartile Mpps", "median Mpps", "3rd quartile Mpps", "max Mpps"]);
    for g in groups(results) {
        let mut row = vec![g.name.clone(), g.pps.len().to_string()];
        row.extend([0.0, 0.25, 0.5, 0.75, 1.0].map(|q| mpps(quantile(&g.pps, q))));
        table.row(row);
    }
    table
}
