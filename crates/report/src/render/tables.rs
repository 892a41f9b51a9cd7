//! Reports for a terminal.

use super::format::{self, NONE};
use super::{labels, notes, streams};
use crate::Result;
use text_table::Table;

/// Renders results as text: what limits them, throughput, other quantities, cycles per node, goals and notes.
pub fn table(results: &[Result]) -> String {
    if results.is_empty() {
        return "no results\n".to_owned();
    }
    let mut out: String = notes::verdicts(results).iter().map(|line| format!("  verdict: {line}\n")).collect();
    out += &format!("\n{}", throughput(results));
    if results.iter().any(|r| !r.quantities.is_empty()) {
        out += "\n  quantities\n";
        out += &quantities(results).to_string();
    }
    if results.iter().any(|r| !r.streams.is_empty()) {
        out += "\n  streams\n";
        out += &streams::counters(results).to_string();
        out += "\n  packets of all streams over time\n";
        out += &streams::over_time(results).to_string();
    }
    if results.iter().any(|r| r.latency.iter().any(|l| !l.vnfs.is_empty())) {
        out += "\n  VNFs\n";
        out += &vnfs(results).to_string();
    }
    if results.iter().any(|r| !r.anatomy.is_empty()) {
        out += "\n  latency anatomy\n";
        out += &anatomy(results).to_string();
    }
    if results.iter().any(|r| r.nodes.iter().any(|n| n.cycles_per_packet.is_some())) {
        out += "\n  cycles per packet\n";
        out += &cycles(results).to_string();
    }
    out.push('\n');
    for line in notes::goals(results) {
        out += &format!("  goal: {line}\n");
    }
    for line in notes::notes(results) {
        out += &format!("  note: {line}\n");
    }
    out
}

/// Returns the table of throughput and latency.
pub(crate) fn throughput(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "result",
        "method",
        "goal",
        "frame",
        "Mpps",
        "upper",
        "L1 Gbit/s",
        "of 10GbE",
        "load",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "loss",
        "limited by",
        "excluded",
    ]);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        let (pps, latency) = (r.summary.lower_pps, r.highest_latency());
        let share = pps / r.traffic.line_pps();
        let percentile =
            |f: fn(&crate::Latency) -> Option<f64>| latency.and_then(f).map_or(NONE.to_owned(), format::us);
        // the receive rate is not a rate without loss
        let has_rate = r.method.name != "receive-rate" && pps > 0.0;
        let rate_or_none = |text: String| if has_rate { text } else { NONE.to_owned() };
        table.row([
            label,
            r.method.name.clone(),
            r.goal.name.clone().unwrap_or_else(|| NONE.to_owned()),
            r.traffic.frames.label(),
            rate_or_none(format::mpps(pps)),
            r.summary.upper_pps.map_or(NONE.to_owned(), format::mpps),
            rate_or_none(format::gbps(r.traffic.l1_bps(pps))),
            rate_or_none(if share.is_finite() { format::percent(share) } else { NONE.to_owned() }),
            latency.map_or(NONE.to_owned(), |l| labels::load(l.load_pps, l.share_of_throughput)),
            percentile(crate::Latency::p50),
            percentile(crate::Latency::p99),
            percentile(crate::Latency::p999),
            r.loss_ratio().map_or(NONE.to_owned(), format::percent),
            r.limited_by.name().to_owned(),
            r.excluded().map_or(NONE.to_owned(), |(trials, loss)| {
                format!("{trials} of {}, loss {}", r.trials.len(), format::percent(loss))
            }),
        ]);
    }
    let excluded = table.rows()[0].len() - 1;
    let table = if results.iter().all(|r| r.excluded().is_none()) { table.without_constant(excluded) } else { table };
    table.without_constant(2).without_constant(1).without_constant(0)
}

/// Returns the table of quantities, one row each.
fn quantities(results: &[Result]) -> Table {
    let mut table = Table::new(&["result", "method", "frame", "quantity", "value", "min", "max", "n"]);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        for quantity in &r.quantities {
            let (value, spread) = quantity.display_parts();
            let [min, max, n] = spread.unwrap_or_default();
            let (method, frames) = (r.method.name.clone(), r.traffic.frames.label());
            table.row([label.clone(), method, frames, quantity.name.clone(), value, min, max, n]);
        }
    }
    table.without_constant(1).without_constant(0)
}

/// Returns the table of VNFs, one row each, at the highest load at which latency was measured.
pub(crate) fn vnfs(results: &[Result]) -> Table {
    let mut table = Table::new(&[
        "result",
        "method",
        "frame",
        "load",
        "VNF",
        "received Mpps",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "jitter µs",
        "cycles/packet",
    ]);
    let us = |ns: Option<f64>| ns.map_or(NONE.to_owned(), format::us);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        let Some(latency) = r.highest_latency() else { continue };
        for (n, vnf) in latency.vnfs.iter().enumerate() {
            table.row([
                label.clone(),
                r.method.name.clone(),
                r.traffic.frames.label(),
                labels::load(latency.load_pps, latency.share_of_throughput),
                (n + 1).to_string(),
                format::mpps(vnf.received_pps),
                us(vnf.p50_ns),
                us(vnf.p99_ns),
                us(vnf.p999_ns),
                us(vnf.jitter_ns),
                vnf.cycles_per_packet.map_or(NONE.to_owned(), format::cycles),
            ]);
        }
    }
    table.without_constant(3).without_constant(1).without_constant(0)
}

/// Returns the table of the parts of the latency, one row each, and their sum.
pub(crate) fn anatomy(results: &[Result]) -> Table {
    let heading = ["result", "frame", "load", "part", "mean µs", "share", "p50 µs", "p99 µs", "probes"];
    let mut table = Table::new(&heading);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        for anatomy in &r.anatomy {
            let row = |part: String, mean_ns: f64, percentiles: [Option<f64>; 2], probes| {
                let share =
                    if anatomy.mean_ns > 0.0 { format::percent(mean_ns / anatomy.mean_ns) } else { NONE.to_owned() };
                let [p50, p99] = percentiles.map(|ns| ns.map_or(NONE.to_owned(), format::us));
                let load = labels::load(anatomy.load_pps, anatomy.share_of_throughput);
                let (label, frames) = (label.clone(), r.traffic.frames.label());
                [label, frames, load, part, format::us(mean_ns), share, p50, p99, format::count(probes)]
            };
            for part in &anatomy.parts {
                table.row(row(part.label(), part.mean_ns, [part.p50_ns, part.p99_ns], part.probes));
            }
            let percentiles = [anatomy.p50_ns, anatomy.p99_ns];
            table.row(row("total".to_owned(), anatomy.mean_ns, percentiles, anatomy.probes));
        }
    }
    table.without_constant(1).without_constant(0)
}

/// Maximum number of nodes with their own column.
const MAX_NODE_COLUMNS: usize = 8;

/// Returns the table of cycles per node, one column each; nodes beyond [`MAX_NODE_COLUMNS`] are summed in one column.
fn cycles(results: &[Result]) -> Table {
    let nodes = labels::distinct(results.iter().flat_map(|r| r.nodes.iter().map(|n| n.name.clone())));
    let (shown, others) = nodes.split_at(MAX_NODE_COLUMNS.min(nodes.len()));
    let mut heading = vec!["result".to_owned(), "method".to_owned(), "frame".to_owned()];
    heading.extend(shown.iter().map(|name| format::short(name, 16)));
    if !others.is_empty() {
        heading.push(format::plural(others.len(), "other", "others"));
    }
    heading.push("sum".to_owned());
    let mut table = Table::new(&heading);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        let sum = |within: &dyn Fn(&String) -> bool| {
            let cycles = r.nodes.iter().filter(|n| within(&n.name)).filter_map(|n| n.cycles_per_packet);
            cycles.reduce(|a, b| a + b).map_or(NONE.to_owned(), format::cycles)
        };
        let mut row = vec![label, r.method.name.clone(), r.traffic.frames.label()];
        row.extend(shown.iter().map(|node| sum(&|name| name == node)));
        if !others.is_empty() {
            row.push(sum(&|name| !shown.contains(name)));
        }
        row.push(sum(&|_| true));
        table.row(row);
    }
    table.without_constant(1).without_constant(0)
}

/// Returns the table of node counters, one row each.
pub(crate) fn nodes(results: &[Result]) -> Table {
    let heading = ["result", "frame", "node", "kind", "packets", "cycles/packet", "packets/batch", "dropped"];
    let mut table = Table::new(&heading);
    for (label, r) in labels::labels(results).into_iter().zip(results) {
        for node in &r.nodes {
            let drops: Vec<_> =
                node.dropped.iter().map(|(reason, n)| format!("{reason} {}", format::count(*n))).collect();
            table.row([
                label.clone(),
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
    if table.rows().len() > 1 { table.without_constant(0) } else { table }
}
