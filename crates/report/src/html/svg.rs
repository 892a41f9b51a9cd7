//! What all figures have in common.

use super::element::{Element, el};
use crate::format::short;
use unicode_width::UnicodeWidthStr;

/// Width of every figure, in the pixels of its own drawing.
pub(super) const WIDTH: f64 = 760.0;
/// Colours there are.
pub(super) const COLOURS: usize = 8;

/// About the width of a text, pixels: what a sans-serif of 12 pixels takes.
pub(super) fn width(text: &str) -> f64 {
    text.width() as f64 * 6.6
}

/// A drawing with a name and a description for those who cannot see it.
pub(super) fn drawing(id: &str, width: f64, height: f64, title: &str, description: &str) -> Element {
    el("svg")
        .set("viewBox", format_args!("0 0 {width} {height}"))
        .set("role", "img")
        .set("aria-labelledby", format_args!("{id}-t {id}-d"))
        .child(el("title").set("id", format_args!("{id}-t")).text(title))
        .child(el("desc").set("id", format_args!("{id}-d")).text(description))
}

pub(super) fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> Element {
    el("line").class(class).at("x1", x1).at("y1", y1).at("x2", x2).at("y2", y2)
}

pub(super) fn rect(class: &str, x: f64, y: f64, width: f64, height: f64) -> Element {
    el("rect").class(class).at("x", x).at("y", y).at("width", width.max(0.0)).at("height", height.max(0.0))
}

/// A text; the class says where it stands: `start`, `mid` or `end` of it at `x`.
pub(super) fn text(class: &str, x: f64, y: f64, text: &str) -> Element {
    el("text").class(class).at("x", x).at("y", y).text(text)
}

/// What a mark shows when the pointer rests on it.
pub(super) fn tip(text: &str) -> Element {
    el("title").text(text)
}

/// The name of the vertical axis, along it.
pub(super) fn upright(x: f64, y: f64, label: &str) -> Element {
    let turn = format!("rotate(-90 {} {})", super::element::number(x), super::element::number(y));
    text("mid axis", x, y, label).set("transform", turn)
}

/// A mark of one of eight shapes around a point, in colour `n`.
pub(super) fn marker(n: usize, palette: char, x: f64, y: f64) -> Element {
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<_> = points
            .iter()
            .map(|(dx, dy)| format!("{},{}", super::element::number(x + dx), super::element::number(y + dy)))
            .collect();
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

/// What stands before a name in a legend.
pub(super) enum Key {
    /// A filled square, by its class.
    Fill(String),
    /// A line, by its class, with the marker of this number and palette.
    Line(String, Option<(usize, char)>),
}

/// One entry of a legend.
pub(super) fn entry(x: f64, y: f64, key: &Key, name: &str, most: usize) -> Element {
    let g = el("g").child(tip(name));
    let g = match key {
        Key::Fill(class) => g.child(rect(class, x, y - 9.0, 11.0, 11.0).at("rx", 1.5)),
        Key::Line(class, mark) => g
            .child(line(class, x - 2.0, y - 3.5, x + 15.0, y - 3.5))
            .children(mark.map(|(n, palette)| marker(n, palette, x + 6.5, y - 3.5))),
    };
    g.child(text("start", x + 20.0, y, &short(name, most)))
}

/// Legend entries in rows from (`x`, `y`), within `width`; gives them and the height they take.
pub(super) fn legend(x: f64, y: f64, within: f64, entries: &[(Key, String)]) -> (Vec<Element>, f64) {
    let (mut at, mut row, mut out) = (0.0, 0.0, Vec::new());
    let most = (within / 6.6) as usize - 6;
    for (key, name) in entries {
        let takes = 20.0 + width(&short(name, most)) + 20.0;
        if at > 0.0 && at + takes > within {
            at = 0.0;
            row += 18.0;
        }
        out.push(entry(x + at, y + row, key, name, most));
        at += takes;
    }
    (out, row + 18.0)
}
