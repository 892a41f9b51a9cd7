//! Cycles per packet of each node.

use super::grid::Grid;
use super::scale::Scale;
use super::svg::{self, Key, WIDTH};
use crate::render::format::{cycles, short};
use crate::render::html::element::{Element, el};
use crate::{Node, Result};
use std::collections::HashMap;

const LEFT: f64 = 130.0;
const RIGHT: f64 = WIDTH - 62.0;
const ROW: f64 = 26.0;
/// Maximum number of rows in a drawing.
const MAX_ROWS: usize = 40;

/// A bar.
struct Row<'a> {
    series: usize,
    label: String,
    result: &'a Result,
}

/// Returns the nodes of a result with their cycles, and the sum.
fn parts(result: &Result) -> (Vec<(&Node, f64)>, f64) {
    let parts: Vec<_> = result.nodes.iter().filter_map(|n| n.cycles_per_packet.map(|c| (n, c))).collect();
    let sum = parts.iter().map(|p| p.1).sum();
    (parts, sum)
}

/// Draws the bars; empty if no node has cycles.
pub(crate) fn drawings(grid: &Grid<'_>) -> Vec<Element> {
    let mut rows: Vec<(usize, usize, &Result)> = grid.cells.clone();
    rows.retain(|(_, _, r)| !parts(r).0.is_empty());
    rows.sort_by_key(|&(s, c, _)| (s, c));
    let rows: Vec<Row<'_>> = rows
        .into_iter()
        .map(|(series, c, result)| Row { series, label: grid.categories[c].name.clone(), result })
        .collect();

    // the most expensive nodes get colours; a node has the same colour in all bars
    let mut cost: HashMap<&str, f64> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (node, c) in rows.iter().flat_map(|row| parts(row.result).0) {
        let sum = cost.entry(&node.name).or_insert_with(|| {
            order.push(&node.name);
            0.0
        });
        *sum += c;
    }
    let mut most_expensive = order.clone();
    most_expensive.sort_by(|a, b| cost[b].total_cmp(&cost[a]));
    let limit = if most_expensive.len() > svg::COLOURS { svg::COLOURS - 1 } else { most_expensive.len() };
    most_expensive.truncate(limit);
    let named: Vec<&str> = order.iter().copied().filter(|name| most_expensive.contains(name)).collect();
    let others = order.len() - named.len();
    let colours: HashMap<&str, usize> = named.iter().enumerate().map(|(n, name)| (*name, n)).collect();

    let high = rows.iter().map(|row| parts(row.result).1).fold(0.0, f64::max);
    let mut entries: Vec<(Key, String)> =
        named.iter().enumerate().map(|(n, name)| (Key::Fill(format!("fc{n}")), (*name).to_owned())).collect();
    if others > 0 {
        entries
            .push((Key::Fill("other".to_owned()), crate::render::format::plural(others, "other node", "other nodes")));
    }
    let chunk = |(n, rows): (usize, &[Row<'_>])| drawing(grid, rows, &entries, &colours, high, n);
    rows.chunks(MAX_ROWS).enumerate().map(chunk).collect()
}

fn drawing(
    grid: &Grid<'_>,
    rows: &[Row<'_>],
    entries: &[(Key, String)],
    colours: &HashMap<&str, usize>,
    high: f64,
    n: usize,
) -> Element {
    let (legend, legend_height) = svg::legend(LEFT, 14.0, WIDTH - 12.0 - LEFT, entries);
    let top = legend_height + 10.0;
    let grouped = grid.series.len() > 1;
    let headings = rows.iter().enumerate().filter(|(i, row)| *i == 0 || rows[i - 1].series != row.series).count();
    let bottom = top + rows.len() as f64 * ROW + if grouped { headings as f64 * 22.0 } else { 0.0 };
    let x = Scale::linear(high, LEFT, RIGHT, 7);

    let description = format!(
        "Bars of cycles per packet, a part for each node, for {}. The numbers are in the table below.",
        crate::render::format::plural(rows.len(), "result", "results")
    );
    let mut out = svg::drawing(&format!("f3-{n}"), WIDTH, bottom + 46.0, "Cycles per packet by node", &description)
        .children(legend);
    for tick in &x.ticks {
        let at = x.px(tick.value);
        out = out.child(svg::line("grid", at, top, at, bottom));
        out = out.child(svg::text("mid", at, bottom + 17.0, &tick.label));
    }
    out = out.child(svg::line("base", LEFT, top, LEFT, bottom));
    let mut y = top;
    let mut series = None;
    for row in rows {
        if grouped && series != Some(row.series) {
            series = Some(row.series);
            y += 22.0;
            out = out.child(svg::text("start strong halo", 4.0, y - 7.0, &short(&grid.series[row.series], 90)));
        }
        out = out.child(
            svg::text("end", LEFT - 8.0, y + ROW / 2.0 + 4.0, &short(&row.label, 17)).child(svg::tip(&row.label)),
        );
        out = out.child(bar(row, &x, y, colours));
        y += ROW;
    }
    out.child(svg::text(
        "mid axis",
        f64::midpoint(LEFT, RIGHT),
        bottom + 38.0,
        "cycles per packet (time-stamp counter)",
    ))
}

fn bar(row: &Row<'_>, x: &Scale, y: f64, colours: &HashMap<&str, usize>) -> Element {
    let (parts, sum) = parts(row.result);
    let (mut from, mut other) = (0.0, 0.0);
    let mut g = el("g");
    let mut part = |class: &str, on: &str, name: &str, c: f64| {
        let (left, right) = (x.px(from), x.px(from + c));
        from += c;
        let mut part = el("g").child(svg::tip(&format!("{}, {name}: {} cycles per packet", row.label, cycles(c))));
        part = part.child(svg::rect(class, left, y + 3.0, (right - left - 1.0).max(0.5), ROW - 6.0));
        let label = cycles(c);
        if svg::width(&label) + 6.0 < right - left {
            part = part.child(svg::text(on, f64::midpoint(left, right), y + ROW / 2.0 + 4.0, &label));
        }
        part
    };
    for (node, c) in parts {
        match colours.get(node.name.as_str()) {
            Some(colour) => g = g.child(part(&format!("fc{colour}"), "mid inside", &node.name, c)),
            None => other += c,
        }
    }
    if other > 0.0 {
        g = g.child(part("other", "mid inside", "other nodes", other));
    }
    g.child(svg::text("start value", x.px(sum) + 6.0, y + ROW / 2.0 + 4.0, &cycles(sum)))
}
