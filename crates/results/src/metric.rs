//! The numbers of a result, by name.

use report::{Latency, Result};
use serde::Serialize;

/// One number of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name: `throughput`, `loss`, `p50`, `p99`, `p99.9`, `max` of the latency, or that of a quantity.
    pub name: String,
    /// Load at which a latency was measured, in words: `80 %` of the throughput, or `1000 pps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Its unit: `pps`, `ns`, `ratio`, or that of a quantity.
    pub unit: String,
    /// Its value.
    pub value: f64,
    /// What is known of how far it may be off.
    pub within: Within,
}

/// What a single result knows of how far a number may be off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// Nothing.
    Unknown,
    /// The bounds between which the search ended; no upper one where no load was too high.
    Search {
        /// Highest load that met the goal.
        lower: f64,
        /// Lowest that did not.
        upper: Option<f64>,
    },
    /// The single values of which it is the mean or the median.
    Values {
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
        /// How many.
        n: u64,
    },
}

/// Whether more is better: of rates; of latency and loss less is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More.
    More,
    /// Less.
    Less,
    /// It depends.
    Unknown,
}

impl Metric {
    fn new(name: &str, unit: &str, value: f64, within: Within) -> Metric {
        Metric { name: name.to_owned(), load: None, unit: unit.to_owned(), value, within }
    }

    /// Its name, with the load where it has one.
    pub fn label(&self) -> String {
        match &self.load {
            Some(load) => format!("{} at {load}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether more of it is better.
    pub fn better(&self) -> Better {
        match self.unit.as_str() {
            "pps" | "bps" | "per second" | "frames" => Better::More,
            "ns" | "s" => Better::Less,
            _ if self.name == "loss" => Better::Less,
            _ => Better::Unknown,
        }
    }
}

/// All numbers of a result. Percentiles that fewer than ten samples tell are left out.
pub fn metrics(r: &Result) -> Vec<Metric> {
    let mut out = vec![];
    if r.summary.lower_pps > 0.0 || r.summary.upper_pps.is_some() {
        let within = Within::Search { lower: r.summary.lower_pps, upper: r.summary.upper_pps };
        out.push(Metric::new("throughput", "pps", r.summary.lower_pps, within));
    }
    if let Some(loss) = r.loss_ratio() {
        out.push(Metric::new("loss", "ratio", loss, Within::Unknown));
    }
    for l in &r.latency {
        for (name, ns) in [("p50", l.p50()), ("p99", l.p99()), ("p99.9", l.p999()), ("max", Some(l.max_ns))] {
            if let Some(ns) = ns {
                out.push(Metric { load: Some(load(l)), ..Metric::new(name, "ns", ns, Within::Unknown) });
            }
        }
    }
    for q in &r.quantities {
        let within = q.spread.filter(|s| s.samples > 1);
        let within = within.map_or(Within::Unknown, |s| Within::Values { min: s.min, max: s.max, n: s.samples });
        out.push(Metric::new(&q.name, &q.unit, q.value, within));
    }
    out
}

/// The number of a name: `p99` is that of the highest load, `p99 at 50 %` that of another.
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
