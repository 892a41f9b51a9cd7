//! The occupancy of something bounded.

use serde::{Deserialize, Serialize};

/// The use of a queue, a table or a pool of bounded size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Packets, entries or buffers in it.
    pub used: u64,
    /// The most that it can have.
    pub capacity: u64,
}

impl Occupancy {
    /// Returns the used share; 0 without a capacity.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.capacity == 0 { 0.0 } else { self.used as f64 / self.capacity as f64 }
    }

    /// Adds that of another.
    pub fn add(&mut self, other: Occupancy) {
        self.used = self.used.saturating_add(other.used);
        self.capacity = self.capacity.saturating_add(other.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_capacity() {
        let mut all = Occupancy::default();
        assert_eq!(all.share(), 0.0);
        all.add(Occupancy { used: 3, capacity: 4 });
        all.add(Occupancy { used: 0, capacity: 4 });
        assert_eq!((all, all.share()), (Occupancy { used: 3, capacity: 8 }, 0.375));
        all.add(Occupancy { used: u64::MAX, capacity: u64::MAX });
        assert_eq!(all.share(), 1.0);
    }
}
