//! SVG primitives of figures.

use crate::render::format::short;
use crate::render::html::element::{Element, el, number};
use unicode_width::UnicodeWidthStr;

/// Width of a figure, SVG pixels.
pub(crate) const WIDTH: f64 = 760.0;
/// Number of colours.
pub(crate) const COLOURS: usize = 8;

/// Estimates the width of a text in a sans-serif font of 12 pixels, pixels.
pub(crate) fn width(text: &str) -> f64 {
    text.width() as f64 * 6.6
}

/// Creates a drawing with a title and a description for screen readers.
pub(crate) fn drawing(id: &str, width: f64, height: f64, title: &str, description: &str) -> Element {
    el("svg")
        .set("viewBox", format_args!("0 0 {width} {height}"))
        .set("role", "img")
        .set("aria-labelledby", format_args!("{id}-t {id}-d"))
        .child(el("title").set("id", format_args!("{id}-t")).text(title))
        .child(el("desc").set("id", format_args!("{id}-d")).text(description))
}

pub(crate) fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> Element {
    el("line").class(class).at("x1", x1).at("y1", y1).at("x2", x2).at("y2", y2)
}

pub(crate) fn rect(class: &str, x: f64, y: f64, width: f64, height: f64) -> Element {
    el("rect").class(class).at("x", x).at("y", y).at("width", width.max(0.0)).at("height", height.max(0.0))
}

/// Creates a text; the class `start`, `mid` or `end` selects the anchor at `x`.
pub(crate) fn text(class: &str, x: f64, y: f64, text: &str) -> Element {
    el("text").class(class).at("x", x).at("y", y).text(text)
}

/// Creates a tooltip.
pub(crate) fn tip(text: &str) -> Element {
    el("title").text(text)
}

/// Creates the rotated label of the vertical axis.
pub(crate) fn upright(x: f64, y: f64, label: &str) -> Element {
    let rotation = format!("rotate(-90 {} {})", number(x), number(y));
    text("mid axis", x, y, label).set("transform", rotation)
}

/// Creates a marker of one of eight shapes in colour `n`.
pub(crate) fn marker(n: usize, palette: char, x: f64, y: f64) -> Element {
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<_> = points.iter().map(|(dx, dy)| format!("{},{}", number(x + dx), number(y + dy))).collect();
        el("polygon").set("points", points.join(" "))
    };
    let shape = match n % COLOURS {
        0 => el("circle").at("cx", x).at("cy", y).at("r", 3.0),
        1 => polygon(&[(-2.7, -2.7), (2.7, -2.7), (2.7, 2.7), (-2.7, 2.7)]),
        2 => polygon(&[(0.0, -3.7), (3.5, 2.7), (-3.5, 2.7)]),
        3 => polygon(&[(0.0, -3.9), (3.9, 0.0), (0.0, 3.9), (-3.9, 0.0)]),
        4 => polygon(&[(0.0, 3.7), (3.5, -2.7), (-3.5, -2.7)]),
        5 => polygon(&[(-4.4, -1.6), (4.4, -1.6), (4.4, 1.6), (-4.4, 1.6)]),
        6 => polygon(&[(-1.6, -4.4), (1.6, -4.4), (1.6, 4.4), (-1.6, 4.4)]),
        _ => polygon(&[(-4.3, 0.0), (-2.1, -3.7), (2.1, -3.7), (4.3, 0.0), (2.1, 3.7), (-2.1, 3.7)]),
    };
    shape.class(format_args!("mark f{palette}{}", n % COLOURS))
}

/// Symbol of a legend entry.
pub(crate) enum Key {
    /// Filled square, by class.
    Fill(String),
    /// Line, by class, with the marker of this number and palette.
    Line(String, Option<(usize, char)>),
}

/// Creates a legend entry.
pub(crate) fn entry(x: f64, y: f64, key: &Key, name: &str, max: usize) -> Element {
    let g = el("g").child(tip(name));
    let g = match key {
        Key::Fill(class) => g.child(rect(class, x, y - 9.0, 11.0, 11.0).at("rx", 1.5)),
        Key::Line(class, mark) => g
            .child(line(class, x - 2.0, y - 3.5, x + 15.0, y - 3.5))
            .children(mark.map(|(n, palette)| marker(n, palette, x + 6.5, y - 3.5))),
    };
    g.child(text("start", x + 20.0, y, &short(name, max)))
}

/// Creates legend entries in rows from (`x`, `y`) within a width; returns them and their height.
pub(crate) fn legend(x: f64, y: f64, within: f64, entries: &[(Key, String)]) -> (Vec<Element>, f64) {
    let (mut at, mut row, mut out) = (0.0, 0.0, Vec::new());
    let max = (within / 6.6) as usize - 6;
    for (key, name) in entries {
        let needed = 20.0 + width(&short(name, max)) + 20.0;
        if at > 0.0 && at + needed > within {
            at = 0.0;
            row += 18.0;
        }
        out.push(entry(x + at, y + row, key, name, max));
        at += needed;
    }
    (out, row + 18.0)
}
