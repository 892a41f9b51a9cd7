//! Repetitions of a measurement, as boxes.

use super::axis::Scale;
use super::element::{Element, el};
use super::svg::{self, WIDTH};
use crate::format::{mpps, plural, short};
use crate::table::Table;
use crate::{Result, words};
use std::collections::HashMap;

const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 92.0;
const ROW: f64 = 30.0;
/// Rows that one drawing holds.
const ROWS: usize = 30;

/// The throughputs of one cell of one device, rising.
struct Group {
    name: String,
    pps: Vec<f64>,
}

impl Group {
    /// A rate over the median, per cent.
    fn share(&self, pps: f64) -> f64 {
        let median = quantile(&self.pps, 0.5);
        if median > 0.0 { pps / median * 100.0 } else { 100.0 }
    }
}

/// What repetitions of a measurement have in common: the device and its version, the machine, and all conditions.
fn key(r: &Result) -> String {
    let (dut, cpu) = (&r.dut, &r.environment.cpu);
    let device = (dut.label(), &dut.version, &dut.chain_sha256, cpu);
    format!("{device:?}{:?}{:?}{:?}{:?}", r.cell, r.traffic, r.goal, r.method)
}

/// One result of each measurement, the latest of several, in the order of the first; none when nothing was repeated.
pub(super) fn latest(results: &[Result]) -> Option<Vec<Result>> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut out: Vec<&Result> = vec![];
    for r in results {
        let place = *places.entry(key(r)).or_insert_with(|| {
            out.push(r);
            out.len() - 1
        });
        if r.environment.unix_seconds() > out[place].environment.unix_seconds() {
            out[place] = r;
        }
    }
    (out.len() < results.len()).then(|| out.into_iter().cloned().collect())
}

/// What has been measured more than once.
fn groups(results: &[Result]) -> Vec<Group> {
    let several = words::distinct(results.iter().map(|r| r.traffic.frames.label())).len() > 1;
    let mut keys: Vec<String> = vec![];
    let mut out: Vec<Group> = vec![];
    for (name, r) in words::names(results).into_iter().zip(results) {
        if r.summary.lower_pps == 0.0 && r.summary.upper_pps.is_none() {
            continue;
        }
        let key = key(r);
        match keys.iter().position(|k| *k == key) {
            Some(place) => out[place].pps.push(r.summary.lower_pps),
            None => {
                keys.push(key);
                let name = if several { format!("{name}, {}", words::frames(&r.traffic.frames)) } else { name };
                out.push(Group { name, pps: vec![r.summary.lower_pps] });
            }
        }
    }
    out.retain(|g| g.pps.len() > 1);
    out.iter_mut().for_each(|g| g.pps.sort_by(f64::total_cmp));
    out
}

/// A quantile between the nearest two values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

/// The drawings; none when nothing was repeated.
pub(super) fn drawings(results: &[Result]) -> Vec<Element> {
    let groups = groups(results);
    groups.chunks(ROWS).enumerate().map(|(n, part)| drawing(part, n)).collect()
}

fn drawing(groups: &[Group], n: usize) -> Element {
    let (top, bottom) = (12.0, 12.0 + groups.len() as f64 * ROW);
    let ends = |q: f64| groups.iter().map(move |g| g.share(quantile(&g.pps, q)));
    let x = Scale::around(ends(0.0).fold(100.0, f64::min), ends(1.0).fold(100.0, f64::max), LEFT, RIGHT);
    let title = "Repetitions of the throughput";
    let description = format!("A box for each of {}.", plural(groups.len(), "measurement", "measurements"));
    let mut out = svg::drawing(&format!("f8-{n}"), WIDTH, bottom + 46.0, title, &description);
    for tick in &x.ticks {
        let at = x.px(tick.value);
        out = out.child(svg::line("grid", at, top, at, bottom));
        out = out.child(svg::text("mid", at, bottom + 17.0, &tick.label));
    }
    out = out.child(svg::line("base", LEFT, top, LEFT, bottom));
    out = out.child(svg::text("mid axis", f64::midpoint(LEFT, RIGHT), bottom + 38.0, "throughput over its median (%)"));
    for (row, group) in groups.iter().enumerate() {
        let y = top + (row as f64 + 0.5) * ROW;
        let label = svg::text("end", LEFT - 8.0, y + 4.0, &short(&group.name, 27)).child(svg::tip(&group.name));
        out = out.child(label).child(one(group, &x, y));
    }
    out
}

/// Whiskers from the smallest to the largest, a box of the middle half, a line at the median, a mark for each value.
fn one(group: &Group, x: &Scale, y: f64) -> Element {
    let at = |q: f64| x.px(group.share(quantile(&group.pps, q)));
    let median = quantile(&group.pps, 0.5);
    let tip = format!("{}: median {} Mpps of {}", group.name, mpps(median), group.pps.len());
    let mut g = el("g").child(svg::tip(&tip));
    g = g.child(svg::line("whisker", at(0.0), y, at(1.0), y));
    for end in [0.0, 1.0] {
        g = g.child(svg::line("whisker", at(end), y - 5.0, at(end), y + 5.0));
    }
    // of fewer than five, quarters say nothing
    if group.pps.len() >= 5 {
        g = g.child(svg::rect("box fc0", at(0.25), y - 8.0, (at(0.75) - at(0.25)).max(1.0), 16.0));
    }
    g = g.child(svg::line("median", at(0.5), y - 9.0, at(0.5), y + 9.0));
    // most marks lie on one another
    g = g.children(group.pps.iter().take(200).map(|pps| svg::marker(0, 'c', x.px(group.share(*pps)), y)));
    g.child(svg::text("start value", RIGHT + 8.0, y + 4.0, &format!("{} Mpps", mpps(median))))
}

/// The numbers of the boxes.
pub(super) fn table(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "what",
        "n",
        "smallest Mpps",
        "quarter Mpps",
        "median Mpps",
        "three quarters Mpps",
        "largest Mpps",
    ]);
    for g in groups(results) {
        let mut row = vec![g.name.clone(), g.pps.len().to_string()];
        row.extend([0.0, 0.25, 0.5, 0.75, 1.0].map(|q| mpps(quantile(&g.pps, q))));
        table.row(row);
    }
    table
}
