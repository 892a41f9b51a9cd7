//! Comma-separated values (RFC 4180): one line for each metric of each result.

use crate::metric::{Uncertainty, metrics};
use report::Result;

/// Column names, the first line.
pub const HEADING: [&str; 22] = [
    "id",
    "date",
    "study",
    "cell",
    "dut",
    "dut_version",
    "tool",
    "method",
    "goal",
    "frames",
    "frame_bytes",
    "flows",
    "protocol",
    "burst",
    "directions",
    "metric",
    "load",
    "unit",
    "value",
    "lower",
    "upper",
    "limited_by",
];

/// Exports results as CSV, one line for each metric: throughput, loss, latency at each load, quantities. `lower` and
/// `upper` are the bounds of a search, or the range of the values of a quantity. Lines end with CR LF.
pub fn csv(results: &[Result]) -> String {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(vec![]);
    // writing to memory does not fail
    let _ = writer.write_record(HEADING);
    for r in results {
        let cell: Vec<String> = r.cell.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (t, goal) = (&r.traffic, &r.goal);
        for m in metrics(r) {
            let (lower, upper) = match m.uncertainty {
                Uncertainty::Unknown => (None, None),
                Uncertainty::Search { lower, upper } => (Some(lower), upper),
                Uncertainty::Values { min, max, .. } => (Some(min), Some(max)),
            };
            let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
            let _ = writer.write_record([
                r.id.clone(),
                r.environment.date.clone(),
                r.study.clone(),
                cell.join("; "),
                r.dut.label(),
                r.dut.version.clone().unwrap_or_default(),
                format!("{} {}", r.tool.name, r.tool.version),
                r.method.name.clone(),
                goal.name.clone().unwrap_or_default(),
                t.frames.label(),
                t.frames.mean_bytes().to_string(),
                t.flows.to_string(),
                t.protocol.clone(),
                t.burst.to_string(),
                t.directions.to_string(),
                m.name,
                m.load.unwrap_or_default(),
                m.unit,
                m.value.to_string(),
                number(lower),
                number(upper),
                r.limited_by.name().to_owned(),
            ]);
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
