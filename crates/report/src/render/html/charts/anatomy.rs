//! Parts of the latency at each load.

use super::grid::Grid;
use super::stacked_bars::{Bar, Texts};
use crate::render::format::us;
use crate::render::html::element::Element;
use crate::render::labels;

const TEXTS: Texts = Texts {
    id: "anatomy",
    title: "Mean latency by part",
    quantity: "µs of mean latency",
    axis: "mean latency (µs)",
    part: ["part", "parts"],
    format: |value_us| us(value_us * 1e3),
};

/// Draws the bars, one for each load; empty if no probes were traced.
pub(crate) fn drawings(grid: &Grid<'_>) -> Vec<Element> {
    let bars = grid.rows().flat_map(|(group, category, result)| {
        result.anatomy.iter().map(move |anatomy| {
            let load = labels::load(anatomy.load_pps, anatomy.share_of_throughput);
            let parts = anatomy.parts.iter().map(|part| (part.label(), part.mean_ns / 1e3)).collect();
            Bar { group: group.clone(), label: format!("{category}, {load}"), parts }
        })
    });
    super::stacked_bars::drawings(&bars.collect::<Vec<_>>(), &TEXTS)
}
