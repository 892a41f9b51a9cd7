//! Latency percentiles.

use super::grid::Grid;
use super::scale::Scale;
use super::svg::{self, Key, WIDTH};
use crate::render::format::{plural, short, significant, us};
use crate::render::html::element::{Element, el, number};
use crate::render::labels;
use crate::{Latency, hdr};
use std::collections::BTreeMap;

const LEFT: f64 = 56.0;
const TOP: f64 = 32.0;
const PLOT: f64 = 240.0;
/// Width of a drawing in a pair.
const HALF: f64 = 372.0;
/// Width of the legend beside a single drawing.
const LEGEND: f64 = 184.0;
/// Points per decade of the percentile.
const STEPS: i32 = 24;

/// The lines of one drawing.
struct Panel {
    title: String,
    lines: Vec<Line>,
}

struct Line {
    /// Index of its name.
    name: usize,
    points: Points,
    /// Points with a marker.
    marks: Points,
}

/// Pairs of nines (see [`nines`]) and microseconds, ascending.
type Points = Vec<(f64, f64)>;

/// Converts a quantile to its number of nines: 0 to 0, 0.9 to 1, 0.99 to 2.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

/// Names of lines and their colours: a name has the same colour in all drawings.
struct Names {
    names: Vec<String>,
    /// True for sizes and loads, which are ordered; false for series.
    ordered: bool,
}

impl Names {
    fn palette(&self) -> char {
        if self.ordered { 'o' } else { 'c' }
    }

    fn colour(&self, name: usize) -> usize {
        let index = name % svg::COLOURS;
        if !self.ordered {
            return index;
        }
        let chunk = (self.names.len() - (name - index)).min(svg::COLOURS);
        shade(index, chunk)
    }

    fn entry(&self, name: usize) -> (Key, String) {
        let (colour, palette) = (self.colour(name), self.palette());
        (Key::Line(format!("curve l{palette}{colour}"), Some((colour, palette))), self.names[name].clone())
    }
}

/// Draws panels in pairs below a common legend; a single panel has its legend at the right.
pub(crate) fn drawings(grid: &Grid<'_>) -> Vec<Element> {
    let (names, panels) = panels(grid);
    let all = || panels.iter().flat_map(|p| &p.lines).flat_map(|l| &l.points);
    let low = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|p| p.1).fold(0.0, f64::max);
    let last = all().map(|p| p.0).fold(2.0, f64::max).min(6.0);
    let y = if high > 8.0 * low {
        Scale::log(low.max(0.001), high, TOP + PLOT, TOP)
    } else {
        Scale::linear(high * 1.02, TOP + PLOT, TOP, 6)
    };
    if let [panel] = panels.as_slice() {
        let beside = panel.lines.iter().enumerate().map(|(row, line)| {
            let (key, name) = names.entry(line.name);
            svg::entry(WIDTH - LEGEND + 14.0, TOP + 10.0 + 19.0 * row as f64, &key, &name, 23)
        });
        return vec![drawing(panel, &names, &y, last, WIDTH, WIDTH - LEGEND, 0).children(beside)];
    }
    let mut out = Vec::new();
    for chunk in (0..names.names.len()).step_by(svg::COLOURS) {
        let within = chunk..(chunk + svg::COLOURS).min(names.names.len());
        let entries: Vec<_> = within.clone().map(|name| names.entry(name)).collect();
        let (legend, height) = svg::legend(LEFT, 14.0, WIDTH - 12.0 - LEFT, &entries);
        out.push(
            svg::drawing(&format!("f2-{chunk}-l"), WIDTH, height + 6.0, "Legend", "Lines by colour.").children(legend),
        );
        let here = panels.iter().enumerate().filter(|(_, p)| p.lines.iter().any(|l| within.contains(&l.name)));
        let drawn = here.map(|(n, p)| drawing(p, &names, &y, last, HALF, HALF - 10.0, n));
        out.push(el("div").class("pair").children(drawn));
    }
    out
}

fn panels(grid: &Grid<'_>) -> (Names, Vec<Panel>) {
    let mut all: Vec<(usize, usize, String, &Latency)> = Vec::new();
    for &(s, c, result) in &grid.cells {
        all.extend(result.latency.iter().map(|l| (s, c, labels::load(l.load_pps, l.share_of_throughput), l)));
    }
    let count = |f: fn(&(usize, usize, String, &Latency)) -> String| labels::distinct(all.iter().map(f)).len();
    let (series, categories) = (count(|l| l.0.to_string()), count(|l| l.1.to_string()));
    let loads = count(|l| l.2.clone());
    // lines of a panel differ by frame size if there are several, else by series, else by load
    let by = match (categories > 1, series > 1) {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => 2,
    };
    // panels of the same load are adjacent
    all.sort_by_key(|(s, c, _, l)| {
        let load =
            l.share_of_throughput.map_or((u64::MAX, l.load_pps as u64), |share| ((share * 1000.0).round() as u64, 0));
        (*c, load, *s)
    });

    let mut names: Vec<String> = Vec::new();
    let mut panels: Vec<Panel> = Vec::new();
    let mut index: BTreeMap<(usize, usize, String, usize), usize> = BTreeMap::new();
    for (s, c, load, latency) in all {
        let at = if latency.share_of_throughput.is_some() {
            format!("at {load} of throughput")
        } else {
            format!("at {load}")
        };
        let parts = [grid.series[s].clone(), grid.categories[c].name.clone(), at];
        let name = names.iter().position(|n| *n == parts[by]).unwrap_or_else(|| {
            names.push(parts[by].clone());
            names.len() - 1
        });
        let in_title = [series > 1, categories > 1, loads > 1 || by != 2];
        let title: Vec<_> = (0..3).filter(|&p| p != by && in_title[p]).map(|p| parts[p].as_str()).collect();
        let title = title.join(", ");
        let line = |(points, marks)| Line { name, points, marks };
        let key = (
            if by == 0 { 0 } else { s },
            if by == 1 { 0 } else { c },
            if by == 2 { String::new() } else { load },
            name / svg::COLOURS,
        );
        let panel = *index.entry(key).or_insert_with(|| {
            panels.push(Panel { title, lines: Vec::new() });
            panels.len() - 1
        });
        panels[panel].lines.push(line(points(latency)));
    }
    (Names { names, ordered: by != 0 }, panels)
}

/// Returns the percentiles up to the number of samples: from the histogram, else the four stored values.
fn points(l: &Latency) -> (Points, Points) {
    let samples = l.samples.max(1) as f64;
    let end = samples.log10().min(6.0);
    let stored = [(nines(0.5), l.p50_ns), (2.0, l.p99_ns), (3.0, l.p999_ns), (samples.log10(), l.max_ns)];
    let stored = stored.into_iter().filter(|p| p.0 <= end + 1e-9).map(|(x, ns)| (x, ns / 1e3));
    let histogram = l.latency_hdr.as_deref().and_then(|text| hdr::decode(text).ok()).filter(|h| !h.is_empty());
    let Some(histogram) = histogram else {
        let points: Vec<_> = stored.collect();
        let marks = points.iter().copied().filter(|p| has_marker(l, p.0)).collect();
        return (points, marks);
    };
    let at = |x: f64| (x, histogram.value_at_quantile(1.0 - 10f64.powf(-x)) as f64 / 1e3);
    let steps = (end * f64::from(STEPS)) as i32;
    let points = (0..=steps).map(|n| at(f64::from(n) / f64::from(STEPS))).chain([at(end)]).collect();
    let marks = [nines(0.5), 1.0, 2.0, 3.0, 4.0, 5.0].into_iter().filter(|&x| has_marker(l, x)).map(at).collect();
    (points, marks)
}

/// Returns true if ten samples lie beyond the percentile: only then it has a marker.
fn has_marker(l: &Latency, nines: f64) -> bool {
    l.has_percentile(1.0 - 10f64.powf(-nines))
}

/// Draws one panel of `width` with the plot up to `right`.
fn drawing(panel: &Panel, names: &Names, y: &Scale, last: f64, width: f64, right: f64, n: usize) -> Element {
    let x = |nines: f64| LEFT + nines / last * (right - LEFT);
    let description = format!(
        "Latency in microseconds by percentile, {}. The numbers are in the table below.",
        plural(panel.lines.len(), "line", "lines")
    );
    let bottom = TOP + PLOT;
    let title = format!("Latency percentiles {}", panel.title);
    let mut out = svg::drawing(&format!("f2-{n}"), width, bottom + 46.0, &title, &description);
    let fits = ((right - LEFT) / 6.9) as usize;
    out = out.child(svg::text("start strong", LEFT, 16.0, &short(&panel.title, fits)).child(svg::tip(&panel.title)));
    for tick in &y.ticks {
        let at = y.px(tick.value);
        out = out.child(svg::line(if tick.label.is_empty() { "grid faint" } else { "grid" }, LEFT, at, right, at));
        if !tick.label.is_empty() {
            out = out.child(svg::text("end", LEFT - 7.0, at + 4.0, &tick.label));
        }
    }
    for (at, label) in PERCENTILES {
        if at <= last {
            out = out.child(svg::line("grid", x(at), TOP, x(at), bottom));
            // near the left end, the label of the median would overlap its neighbour
            if label != "50" || x(at) - x(0.0) > 24.0 {
                out = out.child(svg::text("mid", x(at), bottom + 17.0, label));
            }
        }
    }
    out = out.child(svg::line("base", LEFT, bottom, right, bottom));
    out = out.child(svg::text("mid axis", f64::midpoint(LEFT, right), bottom + 38.0, "percentile of the packets (%)"));
    out = out.child(svg::upright(13.0, f64::midpoint(TOP, bottom), "latency (µs)"));
    out.children(panel.lines.iter().map(|line| curve(line, names, y, x, last)))
}

/// Percentiles with a label on the axis, by their nines.
const PERCENTILES: [(f64, &str); 7] = [
    (0.0, "0"),
    (std::f64::consts::LOG10_2, "50"),
    (1.0, "90"),
    (2.0, "99"),
    (3.0, "99.9"),
    (4.0, "99.99"),
    (5.0, "99.999"),
];

fn curve(line: &Line, names: &Names, y: &Scale, x: impl Fn(f64) -> f64, last: f64) -> Element {
    let (colour, palette, name) = (names.colour(line.name), names.palette(), &names.names[line.name]);
    let point = |p: &(f64, f64)| format!("{} {}", number(x(p.0.min(last))), number(y.px(p.1)));
    let path: Vec<_> = line.points.iter().map(point).collect();
    let mut g = el("g").child(svg::tip(name));
    if !path.is_empty() {
        let class = format!("curve l{palette}{colour}");
        g = g.child(el("path").class(class).set("d", format_args!("M{}", path.join("L"))));
    }
    for p in line.marks.iter().filter(|p| p.0 <= last) {
        let percentile = significant(100.0 * (1.0 - 10f64.powf(-p.0)), 6);
        let tip = format!("{name}: {percentile} % of the packets within {} µs", us(p.1 * 1e3));
        g = g.child(svg::marker(colour, palette, x(p.0), y.px(p.1)).child(svg::tip(&tip)));
    }
    g
}

/// Returns the colour of the ordered palette for the `i`th of `n` lines, spread over the palette.
fn shade(i: usize, n: usize) -> usize {
    if n < 2 { 0 } else { (i * (svg::COLOURS - 1) + (n - 1) / 2) / (n - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_end_at_the_last_sample() {
        let stored =
            Latency { p50_ns: 5e3, p99_ns: 9e3, p999_ns: 2e4, max_ns: 2e4, samples: 500, ..Latency::default() };
        let (points, _) = points(&stored);
        assert_eq!(points.iter().map(|p| p.1).collect::<Vec<_>>(), [5.0, 9.0, 20.0]);
        assert!((points[2].0 - 500f64.log10()).abs() < 1e-12);

        let mut h = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        (1..=1000u64).for_each(|n| h.record(n * 1000).unwrap());
        let measured = Latency { samples: 1000, latency_hdr: Some(hdr::encode(&h).unwrap()), ..stored };
        let (points, marks) = super::points(&measured);
        assert!((points.last().unwrap().1 - 1000.0).abs() < 1.0, "{points:?}");
        assert!(marks.iter().any(|m| m.0 == 2.0 && (m.1 - 990.0).abs() < 1.0), "{marks:?}");
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    #[test]
    fn shades_are_distinct() {
        for n in 2..=svg::COLOURS {
            let shades: Vec<_> = (0..n).map(|i| shade(i, n)).collect();
            assert!(shades.is_sorted_by(|a, b| a < b) && shades[n - 1] == svg::COLOURS - 1, "{shades:?}");
        }
    }
}
