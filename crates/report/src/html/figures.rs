//! The figures by themselves, as SVG files.

use super::element::{Element, el};
use super::grid::Grid;
use super::{STYLE, boxes, curves, cycles, latency, scaling, throughput};
use crate::Result;

/// A figure of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What it shows, fit for the name of a file: `throughput-1`, `latency-2`.
    pub name: String,
    /// The drawing: SVG that needs nothing else, on white.
    pub svg: String,
}

/// The figures of [`html`](crate::html), each by itself. Of what was measured more than once they show the latest, but for the
/// figure of the repetitions.
pub fn figures(results: &[Result]) -> Vec<Figure> {
    if results.is_empty() {
        return vec![];
    }
    let once = boxes::latest(results);
    let shown = once.as_deref().unwrap_or(results);
    let grid = Grid::new(shown);
    let mut out = vec![];
    let mut add = |name: &str, drawings: Vec<Element>| {
        // drawings side by side are several
        let all: Vec<Element> = drawings.into_iter().flat_map(Element::drawings).collect();
        let figure = |(n, svg): (usize, Element)| Figure { name: format!("{name}-{}", n + 1), svg: alone(svg) };
        out.extend(all.into_iter().enumerate().map(figure));
    };
    add("throughput", throughput::drawings(&grid));
    for (name, drawings, _) in scaling::drawings(shown) {
        add(&format!("throughput-over-{}", plain(&name)), drawings);
    }
    add("repetitions", boxes::drawings(results));
    add("latency", latency::drawings(&grid));
    add("latency-distribution", curves::distribution(shown));
    add("delay-variation", curves::variation(shown));
    add("loss", curves::loss(shown));
    add("cycles", cycles::drawings(&grid));
    for (name, drawings) in curves::series(shown) {
        add(&format!("curve-{}", plain(&name)), drawings);
    }
    // two curves may differ only in what a file's name cannot hold
    let mut seen = std::collections::HashMap::new();
    for figure in &mut out {
        let again = seen.entry(figure.name.clone()).or_insert(0u32);
        *again += 1;
        if *again > 1 {
            figure.name += &format!("-{again}");
        }
    }
    out
}

/// A name fit for that of a file.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(plain).take(60).collect::<String>().trim_matches('-').to_owned()
}

/// A drawing as a file: with its name space, size, style and ground.
fn alone(svg: Element) -> String {
    let view = svg.attribute("viewBox").unwrap_or_default().to_owned();
    let mut size = view.split(' ').skip(2);
    let (width, height) = (size.next().unwrap_or("760").to_owned(), size.next().unwrap_or("400").to_owned());
    let ground = el("rect").set("width", &width).set("height", &height).set("fill", "#ffffff");
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    svg.set("xmlns", "http://www.w3.org/2000/svg")
        .set("width", &width)
        .set("height", &height)
        .first(ground)
        .first(el("style").text(style()))
        .write(&mut out);
    out
}

/// The rules for drawings in the colours of the light page: not every reader of SVG knows variables.
fn style() -> String {
    let light = STYLE.split_once('}').map_or("", |(root, _)| root);
    let pairs: Vec<(&str, &str)> = light
        .split([';', '{'])
        .filter_map(|rule| rule.trim().strip_prefix("--").and_then(|rule| rule.split_once(':')))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let mut out = String::new();
    for line in STYLE.lines().filter(|line| line.starts_with("svg ")) {
        let mut line = line.replace("svg ", "");
        for (name, value) in &pairs {
            line = line.replace(&format!("var(--{name})"), value);
        }
        out += &line;
        out.push('\n');
    }
    out
}

/// A figure as PNG, `scale` pixels for each of the drawing's; texts in a font without serifs of this system.
///
/// # Errors
/// When the text is no SVG, or larger than 8192 pixels.
#[cfg(feature = "png")]
pub fn png(svg: &str, scale: f32) -> std::result::Result<Vec<u8>, String> {
    use resvg::{tiny_skia, usvg};
    /// Most pixels of a side.
    const MOST: f32 = 8192.0;
    thread_local! {
        /// Reading the fonts of a system takes longer than a drawing.
        static FONTS: std::sync::Arc<usvg::fontdb::Database> = {
            let mut fonts = usvg::fontdb::Database::new();
            fonts.load_system_fonts();
            fonts.into()
        };
    }
    let options = usvg::Options {
        fontdb: FONTS.with(Clone::clone),
        font_family: "sans-serif".to_owned(),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|e| e.to_string())?;
    let (width, height) = (tree.size().width() * scale, tree.size().height() * scale);
    if !(width >= 1.0 && height >= 1.0 && width <= MOST && height <= MOST) {
        return Err(format!("{width} x {height} pixels; each side has 1 to {MOST}"));
    }
    let map = tiny_skia::Pixmap::new(width.ceil() as u32, height.ceil() as u32);
    let mut map = map.ok_or_else(|| format!("{width} x {height} pixels"))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut map.as_mut());
    map.encode_png().map_err(|e| e.to_string())
}
