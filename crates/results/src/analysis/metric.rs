//! The numbers of a result, by name.

use report::{Latency, LimitedBy, Result};
use serde::Serialize;

/// One number of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name: `throughput`, `loss`, `p50`, `p99`, `p99.9`, `max` of the latency, or the name of a quantity.
    pub name: String,
    /// Load at which a latency was measured, as text: `80 %` of the throughput, or `1000 pps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Its unit: `pps`, `ns`, `ratio`, or the unit of a quantity.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// Its uncertainty.
    pub uncertainty: Uncertainty,
    /// Limit of a throughput that the DUT did not limit: the value is a lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}

/// Uncertainty of a number within one result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Uncertainty {
    /// Unknown.
    Unknown,
    /// Bounds of the search; no upper bound if all loads met the goal, or failed it for another reason than the DUT.
    Search {
        /// Highest load that met the goal.
        lower: f64,
        /// Lowest load that did not.
        upper: Option<f64>,
    },
    /// Range of the values of which it is the mean or median.
    Values {
        /// Minimum.
        min: f64,
        /// Maximum.
        max: f64,
        /// Number of values.
        n: u64,
    },
}

/// Direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Higher is better, as for rates.
    HigherIsBetter,
    /// Lower is better, as for latency and loss.
    LowerIsBetter,
    /// Not defined.
    Unknown,
}

impl Direction {
    /// Returns the direction in which a metric with this name and unit improves.
    pub fn of(name: &str, unit: &str) -> Direction {
        match unit {
            "pps" | "bps" | "per second" | "frames" => Direction::HigherIsBetter,
            "ns" | "s" => Direction::LowerIsBetter,
            _ if name == "loss" => Direction::LowerIsBetter,
            _ => Direction::Unknown,
        }
    }
}

impl Metric {
    fn new(name: &str, unit: &str, value: f64, uncertainty: Uncertainty) -> Metric {
        Metric { name: name.to_owned(), load: None, unit: unit.to_owned(), value, uncertainty, limited_by: None }
    }

    /// Returns its name, with the load if it has one.
    pub fn label(&self) -> String {
        match &self.load {
            Some(load) => format!("{} at {load}", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the direction in which it improves.
    pub fn direction(&self) -> Direction {
        Direction::of(&self.name, &self.unit)
    }
}

/// Returns all numbers of a result, without percentiles beyond which fewer than ten samples lie.
pub fn metrics(r: &Result) -> Vec<Metric> {
    let mut out = vec![];
    if r.summary.lower_pps > 0.0 || r.summary.upper_pps.is_some() {
        let limited_by = other_limit(r.limited_by);
        let upper = r.summary.upper_pps.filter(|_| limited_by.is_none());
        let uncertainty = Uncertainty::Search { lower: r.summary.lower_pps, upper };
        out.push(Metric { limited_by, ..Metric::new("throughput", "pps", r.summary.lower_pps, uncertainty) });
    }
    if let Some(loss) = r.loss_ratio() {
        out.push(Metric::new("loss", "ratio", loss, Uncertainty::Unknown));
    }
    for l in &r.latency {
        for (name, ns) in [("p50", l.p50()), ("p99", l.p99()), ("p99.9", l.p999()), ("max", Some(l.max_ns))] {
            if let Some(ns) = ns {
                out.push(Metric { load: Some(load(l)), ..Metric::new(name, "ns", ns, Uncertainty::Unknown) });
            }
        }
    }
    for q in &r.quantities {
        let uncertainty = q.spread.filter(|s| s.samples > 1);
        let uncertainty =
            uncertainty.map_or(Uncertainty::Unknown, |s| Uncertainty::Values { min: s.min, max: s.max, n: s.samples });
        out.push(Metric::new(&q.name, &q.unit, q.value, uncertainty));
    }
    out
}

/// Returns the limit of a throughput if loads above it say nothing about the DUT.
fn other_limit(limited_by: LimitedBy) -> Option<LimitedBy> {
    match limited_by {
        LimitedBy::Dut | LimitedBy::LineRate | LimitedBy::Budget => None,
        LimitedBy::Generator | LimitedBy::HostInterference | LimitedBy::MaxLoad => Some(limited_by),
    }
}

/// Returns the distinct limits of throughputs that the DUT did not limit.
pub(crate) fn limits<'a>(metrics: impl Iterator<Item = &'a Metric>) -> Vec<LimitedBy> {
    let mut limits: Vec<LimitedBy> = vec![];
    for limit in metrics.filter_map(|m| m.limited_by) {
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits
}

/// Returns a number by name: `p99` at the highest load, `p99 at 50 %` at another.
pub fn metric(r: &Result, name: &str) -> Option<Metric> {
    let all = metrics(r);
    let highest = r.highest_latency().map(load);
    let exact = all.iter().find(|m| m.load.is_none() && m.name == name);
    let at_load = all.iter().find(|m| m.load.is_some() && m.label() == name);
    let at_highest = all.iter().find(|m| m.load.is_some() && m.load == highest && m.name == name);
    exact.or(at_load).or(at_highest).cloned()
}

fn load(l: &Latency) -> String {
    match l.share_of_throughput {
        Some(share) => format!("{} %", (share * 1e4).round() / 100.0),
        None => format!("{} pps", l.load_pps),
    }
}
