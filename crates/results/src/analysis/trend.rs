//! A metric over time, and its change points.

use crate::change_points::{MAX_VALUES, Segment, segments};
use crate::conditions::Conditions;
use crate::metric::{Metric, limits, metric};
use report::{LimitedBy, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// The values of one DUT under the same conditions, the oldest first, and their change points.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// Label of the device under test.
    pub dut: String,
    /// The conditions.
    pub conditions: BTreeMap<String, String>,
    /// Unit of the values.
    pub unit: String,
    /// The values.
    pub points: Vec<Point>,
    /// The change points.
    pub change_points: Vec<ChangePoint>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Id of the result.
    pub id: String,
    /// Its date (RFC 3339).
    pub date: String,
    /// The value.
    pub value: f64,
    /// Mean of its segment.
    pub segment_mean: f64,
    /// Limit of a throughput that the DUT did not limit: the value is a lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}

/// A result from which the series has another level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangePoint {
    /// Date of the first result of the new level.
    pub date: String,
    /// Its id.
    pub id: String,
    /// Mean before.
    pub before: f64,
    /// Mean from here on.
    pub after: f64,
    /// `after / before - 1`; `None` if `before` is 0.
    pub change: Option<f64>,
    /// Standard deviation before.
    pub stddev_before: f64,
    /// Standard deviation from here on.
    pub stddev_after: f64,
    /// Versions and configurations that differ between the results before and after: name, before, after.
    pub differences: Vec<(String, String, String)>,
    /// Limits of throughputs before or after that the DUT did not limit: the change may not be one of the DUT.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limited_by: Vec<LimitedBy>,
}

/// A result with its value.
type Value<'a> = (&'a Result, Metric);
/// A name, and the function that reads its value.
type Fact = (&'static str, fn(&Result) -> String);

/// Returns the trends of a metric: one for each DUT and conditions that have it.
pub fn trends(results: &[Result], name: &str) -> Vec<Trend> {
    let mut groups: BTreeMap<(String, Conditions), Vec<Value<'_>>> = BTreeMap::new();
    for r in results {
        if let Some(m) = metric(r, name) {
            groups.entry((r.dut.label(), Conditions::of(r))).or_default().push((r, m));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((dut, conditions), _)| (dut.clone(), conditions.sort_key()));
    groups.into_iter().map(|((dut, conditions), values)| trend(dut, conditions, values)).collect()
}

fn trend(dut: String, conditions: Conditions, mut results: Vec<Value<'_>>) -> Trend {
    results.sort_by(|a, b| {
        let key = |r: &Result| (r.environment.unix_seconds(), r.id.clone());
        key(a.0).cmp(&key(b.0))
    });
    let dropped = results.len().saturating_sub(MAX_VALUES);
    results.drain(..dropped);
    let values: Vec<f64> = results.iter().map(|p| p.1.value).collect();
    let segments = segments(&values);
    let mean = |at: usize| segments.iter().find(|g| (g.first..g.first + g.len).contains(&at)).map_or(0.0, |g| g.mean);
    let points = results.iter().enumerate().map(|(n, (r, metric))| Point {
        id: r.id.clone(),
        date: r.environment.date.clone(),
        value: metric.value,
        segment_mean: mean(n),
        limited_by: metric.limited_by,
    });
    let change_points = segments.windows(2).map(|pair| change_point(&pair[0], &pair[1], &results)).collect();
    let unit = results.first().map_or(String::new(), |p| p.1.unit.clone());
    Trend { dut, conditions: conditions.0, unit, points: points.collect(), change_points }
}

fn change_point(before: &Segment, after: &Segment, results: &[Value<'_>]) -> ChangePoint {
    let (old, new) = (results[after.first - 1].0, results[after.first].0);
    let facts: [Fact; 6] = [
        ("dut version", |r| r.dut.version.clone().unwrap_or_default()),
        ("dut configuration", |r| {
            r.dut.chain_sha256.as_deref().map_or(String::new(), |h| h.chars().take(12).collect())
        }),
        ("tool", |r| format!("{} {}", r.tool.name, r.tool.version)),
        ("DPDK", |r| r.environment.dpdk_version.clone().unwrap_or_default()),
        ("kernel", |r| r.environment.kernel.clone()),
        ("CPU", |r| r.environment.cpu.clone()),
    ];
    let both = &results[before.first..after.first + after.len];
    let differences = facts.iter().map(|(name, read)| ((*name).to_owned(), read(old), read(new)));
    ChangePoint {
        date: new.environment.date.clone(),
        id: new.id.clone(),
        before: before.mean,
        after: after.mean,
        change: (before.mean > 0.0).then(|| after.mean / before.mean - 1.0),
        stddev_before: before.stddev,
        stddev_after: after.stddev,
        differences: differences.filter(|(_, a, b)| a != b).collect(),
        limited_by: limits(both.iter().map(|(_, metric)| metric)),
    }
}
