//! The way to a free slot: which entries move to their other bucket so that one more finds room.

use super::key::Key;
use super::store::{Geometry, Store};

/// Buckets looked at before the table counts as full.
const BUCKETS: usize = 512;
const NOWHERE: u32 = u32::MAX;

/// A bucket that an entry of the one before it could move to.
struct Step {
    bucket: u32,
    /// Index of the step before, or [`NOWHERE`] for the first.
    before: u32,
    /// The entry's way in that one's bucket.
    way: u32,
}

/// A breadth-first search: the shortest path, and so the fewest moves.
#[derive(Default)]
pub(super) struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// Makes room in one of two buckets that have none: which one, the way, and how many entries have moved for it.
    pub(super) fn make_room<K: Key>(
        &mut self,
        store: &Store<K>,
        geometry: Geometry,
        both: [usize; 2],
    ) -> Option<(usize, usize, u64)> {
        self.steps.clear();
        self.steps.extend(both.map(|bucket| Step { bucket: bucket as u32, before: NOWHERE, way: 0 }));
        for at in 0..BUCKETS {
            let bucket = self.steps.get(at)?.bucket as usize;
            for way in 0..K::WAYS {
                let Some((key, _)) = K::entry(store.bucket(bucket), way) else {
                    return Some(self.go_back(store, at, way));
                };
                if self.steps.len() < BUCKETS {
                    let hash = store.hash(key);
                    let [first, second] = [geometry.first(hash), geometry.second(hash)];
                    let other = if bucket == first { second } else { first };
                    Store::<K>::prefetch(store.bucket(other));
                    self.steps.push(Step { bucket: other as u32, before: at as u32, way: way as u32 });
                }
            }
        }
        None
    }

    /// Moves the entries of a path that ends in a free slot, the last one first.
    fn go_back<K: Key>(&self, store: &Store<K>, mut at: usize, mut way: usize) -> (usize, usize, u64) {
        let mut moved = 0;
        loop {
            let step = &self.steps[at];
            if step.before == NOWHERE {
                return (step.bucket as usize, way, moved);
            }
            let from = (self.steps[step.before as usize].bucket as usize, step.way as usize);
            store.move_entry(from, (step.bucket as usize, way));
            moved += 1;
            (at, way) = (step.before as usize, from.1);
        }
    }
}
