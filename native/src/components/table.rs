//! The table of results of components.

use crate::sample::{Compared, Cost};
use packet::clock;
use serde::Serialize;

/// Row of results in `native.json`.
#[derive(Debug, Serialize)]
pub(crate) struct ComponentRow {
    name: String,
    /// Alternative that the component is compared with.
    baseline: &'static str,
    /// Number of entries, timers or flows.
    size: usize,
    /// Operation that costs are given for.
    unit: &'static str,
    /// Bytes of payload per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    bondstone: Cost,
    other: Cost,
    ratio: f64,
    ratio_lower: f64,
    ratio_upper: f64,
}

/// Description of a measurement.
pub(super) struct Measurement<'a> {
    pub(super) name: &'a str,
    /// Alternative that the component is compared with.
    pub(super) baseline: &'static str,
    /// Number of entries, timers or flows.
    pub(super) size: usize,
    /// Operation that costs are given for.
    pub(super) unit: &'static str,
}

/// Rows of components.
pub(super) struct ComponentTable<'a> {
    only: &'a str,
    /// Pairs of samples per row.
    pub(super) pairs: usize,
    pub(super) rows: Vec<ComponentRow>,
}

impl<'a> ComponentTable<'a> {
    pub(super) fn new(only: &'a str, pairs: usize) -> Self {
        ComponentTable { only, pairs, rows: vec![] }
    }

    /// Returns true if a row of this name is to be measured.
    pub(super) fn is_selected(&self, name: &str) -> bool {
        name.contains(self.only)
    }

    /// Prints and stores a row.
    pub(super) fn add(&mut self, measurement: &Measurement<'_>, compared: &Compared) {
        let Measurement { name, baseline, size, unit } = *measurement;
        let Compared { ours, baseline: other, ratio, bounds } = *compared;
        if self.rows.is_empty() {
            println!("\ncomponents compared with alternatives, in cycles per operation");
            println!("{:<46} {:>7} {:>15} {:>15}", "", "", "bondstone", "baseline");
            println!(
                "{:<46} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>13}  baseline",
                "component", "size", "p05", "median", "p05", "median", "ratio", "(95 %)"
            );
        }
        println!(
            "{name:<46} {size:>7} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {ratio:>6.3} {:>13}  {baseline}",
            ours.p05,
            ours.median,
            other.p05,
            other.median,
            format!("{:.3}-{:.3}", bounds.0, bounds.1),
        );
        self.rows.push(ComponentRow {
            name: name.to_owned(),
            baseline,
            size,
            unit,
            bytes: None,
            bondstone: ours,
            other,
            ratio,
            ratio_lower: bounds.0,
            ratio_upper: bounds.1,
        });
    }

    /// Sets the payload bytes per operation of the last row, and prints its throughput.
    pub(super) fn set_bytes(&mut self, bytes: usize) {
        let Some(row) = self.rows.last_mut() else { return };
        row.bytes = Some(bytes);
        let rate = |cycles: f64| (bytes * 8) as f64 * clock::hz() as f64 / 1e9 / cycles;
        let (ours, other) = (rate(row.bondstone.median), rate(row.other.median));
        println!("{:<46} {:>7} {ours:>7.0} Gbit/s {other:>8.0} Gbit/s of payload (medians)", "", "");
    }
}

/// Cheap random numbers below `below`.
#[derive(Clone)]
pub(super) struct RandomKeys {
    pub(super) state: u64,
    pub(super) below: u64,
}

impl RandomKeys {
    pub(super) fn new(below: usize) -> Self {
        RandomKeys { state: 88_172_645_463_325_252, below: below as u64 }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((self.state >> 32) * self.below) >> 32
    }

    #[inline(always)]
    pub(super) fn burst(&mut self) -> [u64; packet::BURST] {
        core::array::from_fn(|_| self.next())
    }
}
