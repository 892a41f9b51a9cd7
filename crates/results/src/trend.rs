//! One number over time.

use crate::cell::Cell;
use crate::jumps::{self, Group};
use crate::metric::metric;
use report::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// The values of one cell of one device, the oldest first, and where they change.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// Label of the device under test.
    pub dut: String,
    /// The conditions.
    pub cell: BTreeMap<String, String>,
    /// Unit of the values.
    pub unit: String,
    /// The values.
    pub points: Vec<Point>,
    /// The changes.
    pub changes: Vec<Change>,
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
    /// Mean of the group that it belongs to.
    pub group_mean: f64,
}

/// A change: from here on the values are others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Date of the first result that is different.
    pub date: String,
    /// Its id.
    pub id: String,
    /// Mean before.
    pub before: f64,
    /// Mean from here on.
    pub after: f64,
    /// `after` over `before`, less 1; left out where `before` is 0.
    pub change: Option<f64>,
    /// Standard deviation before.
    pub sigma_before: f64,
    /// Standard deviation from here on.
    pub sigma_after: f64,
    /// What is different between the results on both sides of the change: name, before, after.
    pub versions: Vec<(String, String, String)>,
}

/// A result with its value and the unit of that.
type Value<'a> = (&'a Result, f64, String);
/// A name, and what a result says of it.
type Fact = (&'static str, fn(&Result) -> String);

/// The trends of a metric: one for each cell of each device that has it.
pub fn trends(results: &[Result], name: &str) -> Vec<Trend> {
    let mut groups: BTreeMap<(String, Cell), Vec<Value<'_>>> = BTreeMap::new();
    for r in results {
        if let Some(m) = metric(r, name) {
            groups.entry((r.dut.label(), Cell::of(r))).or_default().push((r, m.value, m.unit));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((dut, cell), _)| (dut.clone(), cell.order()));
    groups.into_iter().map(|((dut, cell), of)| trend(dut, cell, of)).collect()
}

fn trend(dut: String, cell: Cell, mut of: Vec<Value<'_>>) -> Trend {
    of.sort_by(|a, b| {
        let key = |r: &Result| (r.environment.unix_seconds(), r.id.clone());
        key(a.0).cmp(&key(b.0))
    });
    let dropped = of.len().saturating_sub(jumps::MOST);
    of.drain(..dropped);
    let values: Vec<f64> = of.iter().map(|p| p.1).collect();
    let groups = jumps::groups(&values);
    let mean = |at: usize| groups.iter().find(|g| (g.first..g.first + g.len).contains(&at)).map_or(0.0, |g| g.mean);
    let points = of.iter().enumerate().map(|(n, (r, value, _))| Point {
        id: r.id.clone(),
        date: r.environment.date.clone(),
        value: *value,
        group_mean: mean(n),
    });
    let changes = groups.windows(2).map(|pair| change(&pair[0], &pair[1], &of)).collect();
    let unit = of.first().map_or(String::new(), |p| p.2.clone());
    Trend { dut, cell: cell.0, unit, points: points.collect(), changes }
}

fn change(before: &Group, after: &Group, of: &[Value<'_>]) -> Change {
    let (old, new) = (of[after.first - 1].0, of[after.first].0);
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
    let versions = facts.iter().map(|(name, of)| ((*name).to_owned(), of(old), of(new)));
    Change {
        date: new.environment.date.clone(),
        id: new.id.clone(),
        before: before.mean,
        after: after.mean,
        change: (before.mean > 0.0).then(|| after.mean / before.mean - 1.0),
        sigma_before: before.sigma,
        sigma_after: after.sigma,
        versions: versions.filter(|(_, a, b)| a != b).collect(),
    }
}
