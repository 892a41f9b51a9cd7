//! Figures as SVG and PNG files.

use super::STYLE;
use super::charts::grid::Grid;
use super::charts::{anatomy, box_plot, curves, cycles, latency, scaling, throughput};
use super::element::{Element, el};
use crate::Result;

/// A figure of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name, usable as a file name: `throughput-1`, `latency-2`.
    pub name: String,
    /// Self-contained SVG on a white background.
    pub svg: String,
}

/// Returns the figures of [`html`](crate::html) as separate files. Except for the figure of repetitions, they show the
/// latest result of repeated measurements.
pub fn figures(results: &[Result]) -> Vec<Figure> {
    if results.is_empty() {
        return vec![];
    }
    let latest = box_plot::latest(results);
    let shown = latest.as_deref().unwrap_or(results);
    let grid = Grid::new(shown);
    let mut out = vec![];
    let mut add = |name: &str, drawings: Vec<Element>| {
        // a drawing may contain several charts
        let all: Vec<Element> = drawings.into_iter().flat_map(Element::into_svgs).collect();
        let figure = |(n, svg): (usize, Element)| Figure { name: format!("{name}-{}", n + 1), svg: standalone(svg) };
        out.extend(all.into_iter().enumerate().map(figure));
    };
    add("throughput", throughput::drawings(&grid));
    for (name, drawings, _) in scaling::drawings(shown) {
        add(&format!("throughput-over-{}", file_name(&name)), drawings);
    }
    add("repetitions", box_plot::drawings(results));
    add("latency", latency::drawings(&grid));
    add("latency-distribution", curves::distribution(shown));
    add("lateness", curves::lateness(shown));
    add("delay-variation", curves::variation(shown));
    add("loss", curves::loss(shown));
    add("latency-anatomy", anatomy::drawings(&grid));
    add("cycles", cycles::drawings(&grid));
    for (name, drawings) in curves::series(shown) {
        add(&format!("curve-{}", file_name(&name)), drawings);
    }
    // two names may become equal by the conversion
    let mut counts = std::collections::HashMap::new();
    for figure in &mut out {
        let count = counts.entry(figure.name.clone()).or_insert(0u32);
        *count += 1;
        if *count > 1 {
            figure.name += &format!("-{count}");
        }
    }
    out
}

/// Converts a name to one usable as a file name.
fn file_name(name: &str) -> String {
    let sanitise = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(sanitise).take(60).collect::<String>().trim_matches('-').to_owned()
}

/// Renders a drawing as a file with namespace, size, style and background.
fn standalone(svg: Element) -> String {
    let view_box = svg.attribute("viewBox").unwrap_or_default().to_owned();
    let mut size = view_box.split(' ').skip(2);
    let (width, height) = (size.next().unwrap_or("760").to_owned(), size.next().unwrap_or("400").to_owned());
    let background = el("rect").set("width", &width).set("height", &height).set("fill", "#ffffff");
    let mut out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    svg.set("xmlns", "http://www.w3.org/2000/svg")
        .set("width", &width)
        .set("height", &height)
        .prepend(background)
        .prepend(el("style").text(style()))
        .write(&mut out);
    out
}

/// Returns the style rules of drawings with the colours of the light theme: not all SVG viewers support variables.
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

/// Renders a figure as PNG, `scale` pixels per SVG pixel, with a sans-serif font of the system.
///
/// # Errors
/// If the text is not SVG, or the image is larger than 8192 pixels.
#[cfg(feature = "png")]
pub fn png(svg: &str, scale: f32) -> std::result::Result<Vec<u8>, String> {
    use resvg::{tiny_skia, usvg};
    /// Maximum width and height, pixels.
    const MAX_PIXELS: f32 = 8192.0;
    thread_local! {
        /// Loading the fonts takes longer than rendering.
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
    if !(width >= 1.0 && height >= 1.0 && width <= MAX_PIXELS && height <= MAX_PIXELS) {
        return Err(format!("{width} x {height} pixels: width and height must be 1 to {MAX_PIXELS}"));
    }
    let map = tiny_skia::Pixmap::new(width.ceil() as u32, height.ceil() as u32);
    let mut map = map.ok_or_else(|| format!("{width} x {height} pixels"))?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut map.as_mut());
    map.encode_png().map_err(|e| e.to_string())
}
