//! Line charts.

use super::scale::Scale;
use super::svg::{self, Key, WIDTH};
use crate::render::format::{plural, short, significant};
use crate::render::html::element::{Element, el, number};

const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 16.0;
const PLOT: f64 = 250.0;
/// Maximum number of points of a line; more are not visible.
const MAX_POINTS: usize = 600;
/// Maximum number of points of a line with a marker on each.
const MAX_MARKED: usize = 40;
/// Number of strips with the values of lines without markers.
const STRIPS: usize = 64;

/// A line chart.
pub(crate) struct Chart {
    /// Unique prefix of the ids of its parts.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// At most as many lines as there are colours.
    pub(crate) lines: Vec<Line>,
}

/// An axis.
pub(crate) struct Axis {
    /// Name with unit.
    pub(crate) label: String,
    /// True for a logarithmic axis.
    pub(crate) log: bool,
    /// Fixed maximum.
    pub(crate) max: Option<f64>,
}

/// One line, in the units of the axes.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// True for points without a line between them.
    pub(crate) scattered: bool,
}

impl Axis {
    fn scale(&self, values: &[f64], from: f64, to: f64, count: usize) -> Scale {
        let high = self.max.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max));
        if self.log {
            let low = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            Scale::log(if low.is_finite() { low.max(high * 1e-6) } else { 0.1 }, high, from, to)
        } else {
            let room = if self.max.is_some() { 1.0 } else { 1.03 };
            Scale::linear(high * room, from, to, count)
        }
    }
}

pub(crate) fn draw(chart: &Chart) -> Element {
    let lines = &chart.lines[..chart.lines.len().min(svg::COLOURS)];
    let key = |(n, line): (usize, &Line)| (Key::Line(class(n), is_marked(line).then_some((n, 'c'))), line.name.clone());
    let entries: Vec<(Key, String)> = lines.iter().enumerate().map(key).collect();
    let (legend, height) = svg::legend(LEFT, 14.0, RIGHT - LEFT, &entries);
    let (upper, lower) = (height + 12.0, height + 12.0 + PLOT);
    let all = |of: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|l| &l.points).map(of).collect::<Vec<f64>>();
    let x = chart.x.scale(&all(|p| p.0), LEFT, RIGHT, 8);
    let y = chart.y.scale(&all(|p| p.1), lower, upper, 6);

    let description = format!("{} over {}, {}.", chart.y.label, chart.x.label, plural(lines.len(), "line", "lines"));
    let mut out = svg::drawing(&chart.id, WIDTH, lower + 46.0, &chart.title, &description).children(legend);
    for tick in &y.ticks {
        let at = y.px(tick.value);
        out = out.child(svg::line(if tick.label.is_empty() { "grid faint" } else { "grid" }, LEFT, at, RIGHT, at));
        out = out.child(svg::text("end", LEFT - 7.0, at + 4.0, &tick.label));
    }
    let room = (RIGHT - LEFT) / x.ticks.len().max(1) as f64;
    for tick in &x.ticks {
        let at = x.px(tick.value);
        out = out.child(svg::line("grid", at, upper, at, lower));
        if svg::width(&tick.label) < room + 8.0 {
            out = out.child(svg::text("mid", at, lower + 17.0, &tick.label));
        }
    }
    out = out.child(svg::line("base", LEFT, lower, RIGHT, lower));
    out = out.child(svg::text("mid axis", f64::midpoint(LEFT, RIGHT), lower + 38.0, &short(&chart.x.label, 90)));
    out = out.child(svg::upright(13.0, f64::midpoint(upper, lower), &short(&chart.y.label, 36)));
    // below the lines, whose markers have values of their own
    if lines.iter().any(|line| !is_marked(line)) {
        out = out.children(strips(lines, &x, upper));
    }
    out.children(lines.iter().enumerate().map(|(n, line)| curve(n, line, &x, &y)))
}

fn class(n: usize) -> String {
    format!("curve lc{}", n % svg::COLOURS)
}

/// Returns true if each point has a marker.
fn is_marked(line: &Line) -> bool {
    line.scattered || line.points.len() <= MAX_MARKED
}

/// Returns vertical strips whose tooltips have the values of all lines there.
fn strips(lines: &[Line], x: &Scale, upper: f64) -> Vec<Element> {
    let width = (RIGHT - LEFT) / STRIPS as f64;
    let strip = |n: usize| {
        let (left, middle) = (LEFT + n as f64 * width, LEFT + (n as f64 + 0.5) * width);
        let distance = |p: &(f64, f64)| (x.px(p.0) - middle).abs();
        let nearest = |line: &Line| {
            let point = line.points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
            (distance(point) <= width).then(|| (*point, line.name.clone()))
        };
        let values: Vec<_> = lines.iter().filter_map(nearest).collect();
        let at = values.first()?.0.0;
        let each = values.iter().map(|((_, y), name)| format!("{name}: {}", significant(*y, 4)));
        let tip = format!("at {}\n{}", significant(at, 4), each.collect::<Vec<_>>().join("\n"));
        Some(svg::rect("hit", left, upper, width, PLOT).child(svg::tip(&tip)))
    };
    (0..STRIPS).filter_map(strip).collect()
}

fn curve(n: usize, line: &Line, x: &Scale, y: &Scale) -> Element {
    let mut g = el("g").child(svg::tip(&line.name));
    let points = decimate(&line.points);
    if !line.scattered && points.len() > 1 {
        let place = |p: &(f64, f64)| format!("{} {}", number(x.px(p.0)), number(y.px(p.1)));
        let path: Vec<String> = points.iter().map(place).collect();
        g = g.child(el("path").class(class(n)).set("d", format_args!("M{}", path.join("L"))));
    }
    if is_marked(line) {
        for p in &points {
            let tip = format!("{}: {} at {}", line.name, significant(p.1, 4), significant(p.0, 4));
            g = g.child(svg::marker(n, 'c', x.px(p.0), y.px(p.1)).child(svg::tip(&tip)));
        }
    }
    g
}

/// Reduces points to [`MAX_POINTS`], keeping the minimum and maximum of each interval.
fn decimate(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let interval = points.len().div_ceil(MAX_POINTS / 2);
    let mut out = vec![];
    for part in points.chunks(interval) {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (part.iter().min_by(by), part.iter().max_by(by)) {
            let (first, last) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            out.extend([*first, *last]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_have_values() {
        let axis = |label: &str| Axis { label: label.to_owned(), log: false, max: None };
        let chart = |points: u32| {
            let line = |name: &str, factor: f64| Line {
                name: name.to_owned(),
                points: (0..points).map(|n| (f64::from(n), factor * f64::from(n))).collect(),
                scattered: false,
            };
            let lines = vec![line("a", 1.0), line("b", 2.0)];
            let chart = Chart { id: "c".to_owned(), title: String::new(), x: axis("x"), y: axis("y"), lines };
            let mut page = String::new();
            draw(&chart).write(&mut page);
            page
        };
        let long = chart(1000);
        let hits = long.matches("class=\"hit\"").count();
        assert!(
            (STRIPS / 2..=STRIPS).contains(&hits) && long.contains("at ") && long.contains("\nb: "),
            "{hits}: {long}"
        );
        assert!(!chart(30).contains("class=\"hit\""), "markers have the values");
    }

    #[test]
    fn decimation_keeps_peaks() {
        let mut points: Vec<(f64, f64)> = (0..9973).map(|n| (f64::from(n), 1.0)).collect();
        points[5000].1 = 77.0;
        points[123].1 = 0.0;
        let kept = decimate(&points);
        assert!(kept.len() <= MAX_POINTS && kept.contains(&(5000.0, 77.0)) && kept.contains(&(123.0, 0.0)));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }
}
