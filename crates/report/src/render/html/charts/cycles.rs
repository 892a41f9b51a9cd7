//! Cycles per packet of each node.

use super::grid::Grid;
use super::stacked_bars::{Bar, Texts};
use crate::render::format::cycles;
use crate::render::html::element::Element;

const TEXTS: Texts = Texts {
    id: "f3",
    title: "Cycles per packet by node",
    quantity: "cycles per packet",
    axis: "cycles per packet (time-stamp counter)",
    part: ["node", "nodes"],
    format: cycles,
};

/// Draws the bars; empty if no node has cycles.
pub(crate) fn drawings(grid: &Grid<'_>) -> Vec<Element> {
    let bar = |(group, label, result): (Option<String>, &str, &crate::Result)| {
        let parts = result.nodes.iter().filter_map(|node| Some((node.name.clone(), node.cycles_per_packet?)));
        Bar { group, label: label.to_owned(), parts: parts.collect() }
    };
    let bars: Vec<Bar> = grid.rows().map(bar).filter(|bar| !bar.parts.is_empty()).collect();
    super::stacked_bars::drawings(&bars, &TEXTS)
}
