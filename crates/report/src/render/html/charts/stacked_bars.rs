//! Horizontal bars of parts that add up.

use super::scale::Scale;
use super::svg::{self, Key, WIDTH};
use crate::render::format::{plural, short};
use crate::render::html::element::{Element, el};
use std::collections::HashMap;

const LEFT: f64 = 130.0;
const RIGHT: f64 = WIDTH - 62.0;
const ROW: f64 = 26.0;
/// Maximum number of bars in a drawing.
const MAX_ROWS: usize = 40;

/// A bar.
pub(crate) struct Bar {
    /// Heading of the bars that follow each other with the same one; none if all bars have the same.
    pub(crate) group: Option<String>,
    pub(crate) label: String,
    /// Names and values of the parts.
    pub(crate) parts: Vec<(String, f64)>,
}

impl Bar {
    fn sum(&self) -> f64 {
        self.parts.iter().map(|(_, value)| value).sum()
    }
}

/// Texts of the drawings.
pub(crate) struct Texts {
    /// Start of the ids of elements.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The quantity with its unit, as in a sentence.
    pub(crate) quantity: &'static str,
    pub(crate) axis: &'static str,
    /// A part, singular and plural.
    pub(crate) part: [&'static str; 2],
    pub(crate) format: fn(f64) -> String,
}

/// Draws the bars.
pub(crate) fn drawings(bars: &[Bar], texts: &Texts) -> Vec<Element> {
    // the largest parts get colours; a part has the same colour in all bars
    let mut sums: HashMap<&str, f64> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (name, value) in bars.iter().flat_map(|bar| &bar.parts) {
        let sum = sums.entry(name).or_insert_with(|| {
            order.push(name);
            0.0
        });
        *sum += value;
    }
    let mut largest = order.clone();
    largest.sort_by(|a, b| sums[b].total_cmp(&sums[a]));
    let limit = if largest.len() > svg::COLOURS { svg::COLOURS - 1 } else { largest.len() };
    largest.truncate(limit);
    let named: Vec<&str> = order.iter().copied().filter(|name| largest.contains(name)).collect();
    let others = order.len() - named.len();
    let colours: HashMap<&str, usize> = named.iter().enumerate().map(|(n, name)| (*name, n)).collect();

    let high = bars.iter().map(Bar::sum).fold(0.0, f64::max);
    let mut entries: Vec<(Key, String)> =
        named.iter().enumerate().map(|(n, name)| (Key::Fill(format!("fc{n}")), (*name).to_owned())).collect();
    if others > 0 {
        let [one, several] = texts.part.map(|part| format!("other {part}"));
        entries.push((Key::Fill("other".to_owned()), plural(others, &one, &several)));
    }
    let chunk = |(n, bars): (usize, &[Bar])| drawing(bars, &entries, &colours, high, (texts, n));
    bars.chunks(MAX_ROWS).enumerate().map(chunk).collect()
}

fn drawing(
    bars: &[Bar],
    entries: &[(Key, String)],
    colours: &HashMap<&str, usize>,
    high: f64,
    (texts, n): (&Texts, usize),
) -> Element {
    let (legend, legend_height) = svg::legend(LEFT, 14.0, WIDTH - 12.0 - LEFT, entries);
    let top = legend_height + 10.0;
    let is_first = |i: usize| bars[i].group.is_some() && (i == 0 || bars[i - 1].group != bars[i].group);
    let headings = (0..bars.len()).filter(|i| is_first(*i)).count();
    let bottom = top + bars.len() as f64 * ROW + headings as f64 * 22.0;
    let x = Scale::linear(high, LEFT, RIGHT, 7);

    let description = format!(
        "Bars of {}, a part for each {}, for {}. The numbers are in the table below.",
        texts.quantity,
        texts.part[0],
        plural(bars.len(), "result", "results")
    );
    let mut out =
        svg::drawing(&format!("{}-{n}", texts.id), WIDTH, bottom + 46.0, texts.title, &description).children(legend);
    for tick in &x.ticks {
        let at = x.px(tick.value);
        out = out.child(svg::line("grid", at, top, at, bottom));
        out = out.child(svg::text("mid", at, bottom + 17.0, &tick.label));
    }
    out = out.child(svg::line("base", LEFT, top, LEFT, bottom));
    let mut y = top;
    for (i, row) in bars.iter().enumerate() {
        if let Some(group) = row.group.as_ref().filter(|_| is_first(i)) {
            y += 22.0;
            out = out.child(svg::text("start strong halo", 4.0, y - 7.0, &short(group, 90)));
        }
        out = out.child(
            svg::text("end", LEFT - 8.0, y + ROW / 2.0 + 4.0, &short(&row.label, 17)).child(svg::tip(&row.label)),
        );
        out = out.child(bar(row, &x, y, colours, texts));
        y += ROW;
    }
    out.child(svg::text("mid axis", f64::midpoint(LEFT, RIGHT), bottom + 38.0, texts.axis))
}

fn bar(row: &Bar, x: &Scale, y: f64, colours: &HashMap<&str, usize>, texts: &Texts) -> Element {
    let (mut from, mut other) = (0.0, 0.0);
    let mut g = el("g");
    let mut part = |class: &str, name: &str, value: f64| {
        let (left, right) = (x.px(from), x.px(from + value));
        from += value;
        let label = (texts.format)(value);
        let mut part = el("g").child(svg::tip(&format!("{}, {name}: {label} {}", row.label, texts.quantity)));
        part = part.child(svg::rect(class, left, y + 3.0, (right - left - 1.0).max(0.5), ROW - 6.0));
        if svg::width(&label) + 6.0 < right - left {
            part = part.child(svg::text("mid inside", f64::midpoint(left, right), y + ROW / 2.0 + 4.0, &label));
        }
        part
    };
    for (name, value) in &row.parts {
        match colours.get(name.as_str()) {
            Some(colour) => g = g.child(part(&format!("fc{colour}"), name, *value)),
            None => other += value,
        }
    }
    if other > 0.0 {
        g = g.child(part("other", &format!("other {}", texts.part[1]), other));
    }
    let sum = row.sum();
    g.child(svg::text("start value", x.px(sum) + 6.0, y + ROW / 2.0 + 4.0, &(texts.format)(sum)))
}
