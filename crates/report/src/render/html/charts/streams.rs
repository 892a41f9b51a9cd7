//! Streams of profiles over time.

use super::curves;
use super::line_chart::{Axis, Line};
use crate::Result;
use crate::render::format::{self, NONE};
use crate::render::html::element::Element;
use text_table::Table;

/// Maximum number of rows of the data table.
const MAX_ROWS: usize = 2000;

/// Draws the packets received of each stream in each second.
pub(crate) fn drawings(results: &[Result]) -> Vec<Element> {
    let mut lines = vec![];
    for (name, r) in curves::names(results).into_iter().zip(results) {
        for s in r.streams.iter().filter(|_| r.streams.len() > 1) {
            let point = |(n, second): (usize, &[u64; 3])| (n as f64 + 0.5, second[2] as f64 / 1e6);
            let points = s.per_second.iter().enumerate().map(point).collect();
            let name = if results.len() > 1 { format!("{name}, {}", s.name) } else { s.name.clone() };
            lines.push(Line { name, points, scattered: false });
        }
    }
    let axis = |label: &str| Axis { label: label.to_owned(), log: false, max: None };
    curves::charts("f8", "Streams over time", || axis("time (s)"), || axis("received (Mpps)"), lines)
}

/// Returns the counters of each stream in each second.
pub(crate) fn counters(results: &[Result]) -> Table {
    let mut table = Table::new(&["result", "stream", "second", "intended", "sent", "received", "lost"]);
    for (name, r) in curves::names(results).into_iter().zip(results) {
        for s in &r.streams {
            for (n, [intended, sent, received]) in s.per_second.iter().enumerate() {
                if table.rows().len() > MAX_ROWS {
                    table.row(std::iter::repeat_n(NONE.to_owned(), 7));
                    return table;
                }
                let counts = [*intended, *sent, *received, sent.saturating_sub(*received)].map(format::count);
                table.row([name.clone(), s.name.clone(), n.to_string()].into_iter().chain(counts));
            }
        }
    }
    table
}
