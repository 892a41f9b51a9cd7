//! Throughput over frame size, with the line rate of 10-Gigabit Ethernet.

use super::grid::{Category, Grid};
use super::scale::Scale;
use super::svg::{self, Key, WIDTH};
use crate::render::format::three;
use crate::render::format::{mpps, pps, short};
use crate::render::html::element::{Element, el, number};
use crate::{LimitedBy, Result};

const LEFT: f64 = 54.0;
const RIGHT: f64 = WIDTH - 12.0;
const PLOT: f64 = 270.0;
/// Maximum number of series and categories in a legible drawing.
const MAX_SERIES: usize = 6;
const MAX_CATEGORIES: usize = 24;

/// Draws the charts.
pub(crate) fn drawings(grid: &Grid<'_>) -> Vec<Element> {
    let highest = grid.cells.iter().map(|(_, _, r)| top(r)).fold(0.0, f64::max);
    let mut out = Vec::new();
    for series in (0..grid.series.len()).step_by(MAX_SERIES) {
        for categories in (0..grid.categories.len()).step_by(MAX_CATEGORIES) {
            out.push(drawing(grid, series, categories, highest, out.len()));
        }
    }
    out
}

/// Returns the highest rate drawn of a result.
fn top(result: &Result) -> f64 {
    result.summary.upper_pps.unwrap_or(0.0).max(result.summary.lower_pps)
}

fn drawing(grid: &Grid<'_>, first_series: usize, first_category: usize, highest: f64, n: usize) -> Element {
    let series = first_series..(first_series + MAX_SERIES).min(grid.series.len());
    let categories = first_category..(first_category + MAX_CATEGORIES).min(grid.categories.len());
    let line_high = grid.categories[categories.clone()].iter().filter_map(|c| c.line_pps).fold(0.0, f64::max);

    let mut entries: Vec<(Key, String)> =
        series.clone().map(|s| (Key::Fill(format!("fc{}", s % svg::COLOURS)), grid.series[s].clone())).collect();
    if line_high > 0.0 {
        entries.push((Key::Line("rate".to_owned(), None), "line rate of 10-Gigabit Ethernet".to_owned()));
    }
    let is_shown = |(s, c, _): &&(usize, usize, &Result)| series.contains(s) && categories.contains(c);
    if grid.cells.iter().filter(is_shown).any(|(.., result)| is_open(result)) {
        entries
            .push((Key::Fill("fc5 lc5 open".to_owned()), "not limited by the DUT, which may forward more".to_owned()));
    }
    let (legend, legend_height) = svg::legend(LEFT, 14.0, RIGHT - LEFT, &entries);
    let (upper, lower) = (legend_height + 14.0, legend_height + 14.0 + PLOT);

    // the line rate may lie above the figure if the results are far below
    let high = (highest * 1.06).max(line_high.min(highest * 2.5)) / 1e6;
    let y = Scale::linear(high, lower, upper, 6);
    let slot = (RIGHT - LEFT) / categories.len().max(1) as f64;
    let bar = (slot * 0.78 / series.len().max(1) as f64).min(54.0);
    let centre = |c: usize| LEFT + slot * ((c - first_category) as f64 + 0.5);

    let description = format!(
        "Bars: throughput in millions of packets a second for {} of {}. The numbers are in the table below.",
        crate::render::format::plural(series.len(), "series", "series"),
        crate::render::format::plural(categories.len(), "category", "categories")
    );
    let title = format!("Throughput over {}", grid.axis);
    let mut out = svg::drawing(&format!("f1-{n}"), WIDTH, lower + 46.0, &title, &description).children(legend);
    for tick in &y.ticks {
        let at = y.px(tick.value);
        out = out.child(svg::line(if tick.value == 0.0 { "base" } else { "grid" }, LEFT, at, RIGHT, at));
        out = out.child(svg::text("end", LEFT - 7.0, at + 4.0, &tick.label));
    }
    out = out.child(svg::upright(14.0, (upper + lower) / 2.0, "throughput (Mpps)"));

    let fits = ((slot - 6.0) / 6.6).max(1.0) as usize;
    let crowded = grid.categories[categories.clone()].iter().any(|c| svg::width(&c.label) > slot - 6.0) && fits < 5;
    for c in categories.clone() {
        let label = &grid.categories[c].label;
        let at = centre(c);
        if crowded {
            let rotation = format!("rotate(-40 {} {})", number(at), number(lower + 16.0));
            out = out.child(svg::text("end", at, lower + 16.0, &short(label, 5)).set("transform", rotation));
        } else {
            out = out.child(svg::text("mid", at, lower + 17.0, &short(label, fits)).child(svg::tip(label)));
        }
    }
    out = out.child(svg::text("mid axis", f64::midpoint(LEFT, RIGHT), lower + 38.0, &short(&grid.axis, 80)));

    for &(s, c, result) in grid.cells.iter().filter(is_shown) {
        let x = centre(c) + bar * ((s - first_series) as f64 - series.len() as f64 / 2.0);
        out = out.child(column(result, &y, s, x, bar, &format!("{}, {}", grid.series[s], grid.categories[c].name)));
    }
    out.children(line_rate(grid, categories, &y, slot))
}

/// Returns true if something other than the DUT limited the throughput.
fn is_open(result: &Result) -> bool {
    result.limited_by != LimitedBy::Dut
}

/// Draws a bar to the lower bound, a whisker to the upper bound, and the value.
fn column(result: &Result, y: &Scale, s: usize, x: f64, bar: f64, name: &str) -> Element {
    let summary = &result.summary;
    let (base, at) = (y.px(0.0), y.px(summary.lower_pps / 1e6));
    let gap = (bar * 0.06).min(2.0);
    let middle = x + bar / 2.0;
    let upper = summary.upper_pps.map_or(String::new(), |u| format!(", upper bound {} Mpps", mpps(u)));
    let limit = result.limited_by.name().replace('_', " ");
    let tip = format!("{name}: lower bound {} Mpps{upper}, limited by: {limit}", mpps(summary.lower_pps));
    let mut g = el("g").child(svg::tip(&tip));
    let colour = s % svg::COLOURS;
    let open = if is_open(result) { format!(" lc{colour} open") } else { String::new() };
    g = g.child(svg::rect(&format!("fc{colour}{open}"), x + gap, at, bar - 2.0 * gap, base - at));
    let mut clear = at;
    if let Some(upper) = summary.upper_pps {
        let end = y.px(upper / 1e6);
        let cap = (bar * 0.22).min(6.0);
        g = g.child(svg::line("whisker", middle, at, middle, end));
        g = g.child(svg::line("whisker", middle - cap, end, middle + cap, end));
        clear = end;
    }
    let label = if summary.lower_pps == 0.0 { "none".to_owned() } else { three(summary.lower_pps / 1e6) };
    if svg::width(&label) * 0.9 <= bar - 2.0 {
        let inside = base - at > 24.0;
        let (class, y) = match inside {
            true if is_open(result) => ("mid value halo", at + 15.0),
            true => ("mid inside", at + 15.0),
            false => ("mid value halo", clear - 6.0),
        };
        g = g.child(svg::text(class, middle, y, &label));
    }
    g
}

/// Draws a dash across each category at its line rate, unless it lies above the figure.
fn line_rate(grid: &Grid<'_>, categories: std::ops::Range<usize>, y: &Scale, slot: f64) -> Vec<Element> {
    let dash = |(index, category): (usize, &Category)| {
        let line = category.line_pps.filter(|line| line / 1e6 <= y.high())?;
        let (x, at) = (LEFT + slot * (index as f64 + 0.5), y.px(line / 1e6));
        let tip = svg::tip(&format!("line rate of 10-Gigabit Ethernet: {} at {}", pps(line), category.name));
        Some(svg::line("rate", x - slot * 0.47, at, x + slot * 0.47, at).child(tip))
    };
    grid.categories[categories].iter().enumerate().filter_map(dash).collect()
}
