//! Tables for a terminal.

use crate::format::{self, NONE, plain};
use crate::{Result, streams, words};
use unicode_width::UnicodeWidthStr;

/// Results of one run as text: what was reached, then the cycles of every node, then what to know when reading them.
pub fn table(results: &[Result]) -> String {
    if results.is_empty() {
        return "no results\n".to_owned();
    }
    let mut out = throughput(results).text();
    if results.iter().any(|r| !r.quantities.is_empty()) {
        out += "\n  beside the rate\n";
        out += &quantities(results).text();
    }
    if results.iter().any(|r| !r.streams.is_empty()) {
        out += "\n  streams\n";
        out += &streams::all(results).text();
        out += "\n  over time, packets of all streams\n";
        out += &streams::over_time(results).text();
    }
    if results.iter().any(|r| r.nodes.iter().any(|n| n.cycles_per_packet.is_some())) {
        out += "\n  cycles per packet\n";
        out += &cycles(results).text();
    }
    out.push('\n');
    for line in words::goals(results) {
        out += &format!("  goal: {line}\n");
    }
    for line in words::warnings(results) {
        out += &format!("  note: {line}\n");
    }
    out
}

/// Rows of cells, the first the heading.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<S: AsRef<str>>(heading: &[S]) -> Self {
        Table { rows: vec![heading.iter().map(|h| plain(h.as_ref())).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// Leaves out a column whose cells are all alike.
    pub(crate) fn without_constant(mut self, column: usize) -> Self {
        let cells = |row: &Vec<String>| row.get(column).cloned();
        if self.rows.iter().skip(2).all(|row| cells(row) == cells(&self.rows[1])) {
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
        self
    }

    /// Whether the cells of a column are numbers, so that they stand right.
    pub(crate) fn is_numbers(&self, column: usize) -> bool {
        let number = |s: &str| s.is_empty() || s == NONE || s.starts_with(|c: char| c.is_ascii_digit());
        self.rows.iter().skip(1).all(|row| row.get(column).is_none_or(|cell| number(cell)))
    }

    /// The table with aligned columns, a line for each row.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.width()).max().unwrap_or(0);
        let shape: Vec<(usize, bool)> = (0..columns).map(|c| (width(c), self.is_numbers(c))).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &(width, right)) in row.iter().zip(&shape) {
                let space = " ".repeat(width - cell.width());
                line += &if right { format!("  {space}{cell}") } else { format!("  {cell}{space}") };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// What was reached.
pub(crate) fn throughput(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "what",
        "method",
        "frame",
        "Mpps",
        "L1 Gbit/s",
        "of 10GbE",
        "load",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "loss",
        "limited by",
    ]);
    for (name, r) in words::names(results).into_iter().zip(results) {
        let (pps, latency) = (r.summary.lower_pps, r.highest_latency());
        let share = pps / r.traffic.line_pps();
        let of = |f: fn(&crate::Latency) -> Option<f64>| latency.and_then(f).map_or(NONE.to_owned(), format::us);
        // it looks for no rate that holds
        let known = |text: String| if r.method.name == "receive-rate" { NONE.to_owned() } else { text };
        table.row([
            name,
            r.method.name.clone(),
            r.traffic.frames.label(),
            known(format::mpps(pps)),
            known(format::gbps(r.traffic.l1_bps(pps))),
            known(if share.is_finite() { format::percent(share) } else { NONE.to_owned() }),
            latency.map_or(NONE.to_owned(), words::load),
            of(crate::Latency::p50),
            of(crate::Latency::p99),
            of(crate::Latency::p999),
            r.loss_ratio().map_or(NONE.to_owned(), format::percent),
            r.limited_by.name().to_owned(),
        ]);
    }
    table.without_constant(1).without_constant(0)
}

/// What methods come to beside a rate, a row for each number.
fn quantities(results: &[Result]) -> Table {
    let mut table = Table::new(&["what", "method", "frame", "quantity", "value", "from", "to", "of"]);
    for (name, r) in words::names(results).into_iter().zip(results) {
        for quantity in &r.quantities {
            let (value, spread) = quantity.in_words();
            let [from, to, of] = spread.unwrap_or_default();
            let (method, frames) = (r.method.name.clone(), r.traffic.frames.label());
            table.row([name.clone(), method, frames, quantity.name.clone(), value, from, to, of]);
        }
    }
    table.without_constant(1).without_constant(0)
}

/// Nodes that have columns of their own.
const COLUMNS: usize = 8;

/// What every node costs, a column for each; the nodes that come after the first [`COLUMNS`] are added up.
fn cycles(results: &[Result]) -> Table {
    let nodes = words::distinct(results.iter().flat_map(|r| r.nodes.iter().map(|n| n.name.clone())));
    let (shown, others) = nodes.split_at(COLUMNS.min(nodes.len()));
    let mut heading = vec!["what".to_owned(), "method".to_owned(), "frame".to_owned()];
    heading.extend(shown.iter().map(|name| format::short(name, 16)));
    if !others.is_empty() {
        heading.push(format::plural(others.len(), "other", "others"));
    }
    heading.push("sum".to_owned());
    let mut table = Table::new(&heading);
    for (name, r) in words::names(results).into_iter().zip(results) {
        let sum = |within: &dyn Fn(&String) -> bool| {
            let cycles = r.nodes.iter().filter(|n| within(&n.name)).filter_map(|n| n.cycles_per_packet);
            cycles.reduce(|a, b| a + b).map_or(NONE.to_owned(), format::cycles)
        };
        let mut row = vec![name, r.method.name.clone(), r.traffic.frames.label()];
        row.extend(shown.iter().map(|node| sum(&|name| name == node)));
        if !others.is_empty() {
            row.push(sum(&|name| !shown.contains(name)));
        }
        row.push(sum(&|_| true));
        table.row(row);
    }
    table.without_constant(1).without_constant(0)
}

/// What every node did, a row for each.
pub(crate) fn nodes(results: &[Result]) -> Table {
    let heading = ["what", "frame", "node", "kind", "packets", "cycles/packet", "packets/batch", "dropped"];
    let mut table = Table::new(&heading);
    for (name, r) in words::names(results).into_iter().zip(results) {
        for node in &r.nodes {
            let drops: Vec<_> =
                node.dropped.iter().map(|(reason, n)| format!("{reason} {}", format::count(*n))).collect();
            table.row([
                name.clone(),
                r.traffic.frames.label(),
                node.name.clone(),
                node.kind.clone(),
                format::count(node.packets),
                node.cycles_per_packet.map_or(NONE.to_owned(), format::cycles),
                node.packets_per_batch.map_or(NONE.to_owned(), |n| format!("{n:.1}")),
                if drops.is_empty() { NONE.to_owned() } else { drops.join(", ") },
            ]);
        }
    }
    if table.rows.len() > 1 { table.without_constant(0) } else { table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_is_seen() {
        let mut t = Table::new(&["name", "n"]);
        t.row(["wide 網".to_owned(), "1".to_owned()]);
        t.row(["x\x1b".to_owned(), "10".to_owned()]);
        t.row(["y".to_owned(), NONE.to_owned()]);
        assert_eq!(t.text(), "  name      n\n  wide 網   1\n  x\u{fffd}       10\n  y         –\n");
    }
}
