//! Charts as SVG elements, drawn from results.

pub(super) mod anatomy;
pub(super) mod box_plot;
pub(super) mod curves;
pub(super) mod cycles;
pub(super) mod grid;
pub(super) mod latency;
mod line_chart;
mod scale;
pub(super) mod scaling;
mod stacked_bars;
pub(super) mod streams;
mod svg;
pub(super) mod throughput;
