//! Markdown tables, for example for a pull request.

use crate::metric::{Metric, Uncertainty, metrics};
use report::Result;

/// Exports results as Markdown: a table of throughput and latency, and one of quantities if there are any.
pub fn markdown(results: &[Result]) -> String {
    let mut out = row([
        "dut",
        "cell",
        "frames",
        "method",
        "goal",
        "Mpps",
        "upper",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "loss",
        "limited by",
        "id",
    ]);
    out += &row(["---", "---", "---", "---", "---", "--:", "--:", "--:", "--:", "--:", "--:", "---", "---"]);
    for r in results {
        let latency = r.highest_latency();
        let us = |ns: Option<f64>| ns.map_or("–".to_owned(), |ns| format!("{:.1}", ns / 1e3));
        let pps = r.summary.lower_pps;
        let met = pps > 0.0 || r.summary.upper_pps.is_some();
        out += &row([
            r.dut.label().as_str(),
            &cell(r),
            &r.traffic.frames.label(),
            &r.method.name,
            r.goal.name.as_deref().unwrap_or("–"),
            &if met { format!("{:.3}", pps / 1e6) } else { "–".to_owned() },
            &r.summary.upper_pps.map_or("–".to_owned(), |upper| format!("{:.3}", upper / 1e6)),
            &us(latency.and_then(report::Latency::p50)),
            &us(latency.and_then(report::Latency::p99)),
            &us(latency.and_then(report::Latency::p999)),
            &r.loss_ratio().map_or("–".to_owned(), |loss| format!("{:.4} %", loss * 100.0)),
            r.limited_by.name(),
            r.id.get(..12).unwrap_or(&r.id),
        ]);
    }
    if results.iter().any(|r| !r.quantities.is_empty()) {
        out.push('\n');
        out += &row(["dut", "cell", "frames", "quantity", "value", "unit", "n", "min", "max"]);
        out += &row(["---", "---", "---", "---", "--:", "---", "--:", "--:", "--:"]);
        for r in results {
            let names: Vec<&str> = r.quantities.iter().map(|q| q.name.as_str()).collect();
            for m in metrics(r).into_iter().filter(|m| m.load.is_none() && names.contains(&m.name.as_str())) {
                out += &quantity(r, &m);
            }
        }
    }
    out
}

fn quantity(r: &Result, m: &Metric) -> String {
    let (n, min, max) = match m.uncertainty {
        Uncertainty::Values { min, max, n } => (n.to_string(), min.to_string(), max.to_string()),
        _ => ("1".to_owned(), "–".to_owned(), "–".to_owned()),
    };
    let (value, frames) = (m.value.to_string(), r.traffic.frames.label());
    row([r.dut.label().as_str(), &cell(r), &frames, &m.name, &value, &m.unit, &n, &min, &max])
}

fn cell(r: &Result) -> String {
    r.cell.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

fn row<const N: usize>(cells: [&str; N]) -> String {
    let mut out = String::from("|");
    for cell in cells {
        out.push(' ');
        out += &escaped(cell);
        out += " |";
    }
    out.push('\n');
    out
}

/// Escapes markup in a table cell.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
