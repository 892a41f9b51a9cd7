//! Displacement of reordered packets (RFC 5236), over all trials.

use crate::trial::TrialOutput;
use report::{Axis, Quantity, Series};
use std::collections::BTreeMap;

/// A packet that arrives after this many later packets appears lost to a TCP sender (RFC 4737 §5.3).
const DUPACK_THRESHOLD: usize = 3;
/// Largest n of the n-reordering counts (RFC 4737 §5.3).
const MAX_N: usize = traffic::density::THRESHOLD;

/// Number of packets by displacement.
#[derive(Default)]
pub(super) struct DisplacementAccumulator {
    counts: BTreeMap<i32, u64>,
    beyond: u64,
    n_reordered: u64,
}

impl DisplacementAccumulator {
    pub(super) fn record(&mut self, output: &TrialOutput) {
        for direction in &output.displacements {
            for (places, count) in direction.counts().filter(|(_, count)| *count != 0) {
                *self.counts.entry(places).or_default() += count;
            }
            self.beyond += direction.beyond_early + direction.beyond_late;
            self.n_reordered += (DUPACK_THRESHOLD..=MAX_N).map(|packets| direction.n_reordered(packets)).sum::<u64>();
        }
    }

    fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the quantities; none if displacement was not measured.
    pub(super) fn quantities(&self) -> Vec<Quantity> {
        let total = self.total();
        if total == 0 {
            return vec![];
        }
        let share = |count: u64| count as f64 / total as f64;
        let displaced = total - self.counts.get(&0).unwrap_or(&0);
        let latest = self.counts.keys().next_back().map_or(0, |places| *places.max(&0));
        let earliest = self.counts.keys().next().map_or(0, |places| -*places.min(&0));
        vec![
            Quantity::new("displaced", "ratio", share(displaced)),
            Quantity::new("largest lateness", "frames", latest.into()),
            Quantity::new("largest earliness", "frames", earliest.into()),
            Quantity::new("displaced by more than 64", "frames", self.beyond as f64),
            Quantity::new("3-reordered (RFC 4737)", "frames", self.n_reordered as f64),
        ]
    }

    /// Returns the reorder density, if any packet was displaced.
    pub(super) fn series(&self) -> Option<Series> {
        let total = self.total() as f64;
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        self.counts.keys().any(|places| *places != 0).then(|| Series {
            name: "reorder density (RFC 5236)".to_owned(),
            x: axis("displacement, early below 0", "frames"),
            y: axis("packets", "ratio"),
            points: self.counts.iter().map(|(places, count)| [f64::from(*places), *count as f64 / total]).collect(),
        })
    }
}
