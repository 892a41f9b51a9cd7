//! How far packets came from their places (RFC 5236), in all trials together.

use crate::bed::Seen;
use report::{Axis, Quantity, Series};
use std::collections::BTreeMap;

/// A packet behind so many later ones looks lost to a TCP sender (RFC 4737 §5.3).
const LOOKS_LOST: usize = 3;
/// Packets told apart by how many later ones came directly before them.
const MOST: usize = traffic::density::THRESHOLD;

/// Displacements, and how many packets had each.
#[derive(Default)]
pub(super) struct Displaced {
    counts: BTreeMap<i32, u64>,
    beyond: u64,
    looks_lost: u64,
}

impl Displaced {
    pub(super) fn take(&mut self, seen: &Seen) {
        for way in &seen.order {
            for (places, count) in way.counts().filter(|(_, count)| *count != 0) {
                *self.counts.entry(places).or_default() += count;
            }
            self.beyond += way.beyond_early + way.beyond_late;
            self.looks_lost += (LOOKS_LOST..=MOST).map(|packets| way.n_reordered(packets)).sum::<u64>();
        }
    }

    fn judged(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Nothing where order was not watched.
    pub(super) fn quantities(&self) -> Vec<Quantity> {
        let judged = self.judged();
        if judged == 0 {
            return vec![];
        }
        let share = |count: u64| count as f64 / judged as f64;
        let displaced = judged - self.counts.get(&0).unwrap_or(&0);
        let latest = self.counts.keys().next_back().map_or(0, |places| *places.max(&0));
        let earliest = self.counts.keys().next().map_or(0, |places| -*places.min(&0));
        vec![
            Quantity::new("displaced", "ratio", share(displaced)),
            Quantity::new("latest by", "frames", latest.into()),
            Quantity::new("earliest by", "frames", earliest.into()),
            Quantity::new("displaced by more than 64", "frames", self.beyond as f64),
            Quantity::new("behind 3 or more later ones", "frames", self.looks_lost as f64),
        ]
    }

    /// The reorder density, if anything was displaced.
    pub(super) fn series(&self) -> Option<Series> {
        let judged = self.judged() as f64;
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        self.counts.keys().any(|places| *places != 0).then(|| Series {
            name: "reorder density (RFC 5236)".to_owned(),
            x: axis("displacement, early below 0", "frames"),
            y: axis("packets", "ratio"),
            points: self.counts.iter().map(|(places, count)| [f64::from(*places), *count as f64 / judged]).collect(),
        })
    }
}
