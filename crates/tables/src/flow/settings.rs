//! Settings of a flow table.

use super::key::Seed;
use crate::Pages;
use rustix::io::Errno;
use thiserror::Error;

/// Greatest capacity: 1,073,741,824 flows.
pub const CAPACITY_MOST: usize = 1 << 30;

/// Settings of a flow table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Flows it holds at most, 1 to [`CAPACITY_MOST`].
    pub capacity: usize,
    /// Treatment of a new flow when the table is full.
    pub full: Full,
    /// Seed of the hash.
    pub seed: Seed,
    /// The best pages to try for.
    pub pages: Pages,
}

impl Settings {
    /// Creates settings for `capacity` flows, with a random seed and huge pages if available; rejects flows beyond the capacity.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, full: Full::Refuse, seed: Seed::random(), pages: Pages::Hugetlb }
    }
}

/// Treatment of a new flow when the table holds its capacity, or both buckets of the flow are full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// It is refused.
    Refuse,
    /// It takes the place of the flow that has been idle longest among those in the sixteen slots of its two buckets; it is
    /// refused if all of them had a packet at this very time, or if there is none.
    EvictOldest,
}

/// Error of creating a table.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// No flows, or more than can be numbered.
    #[error("a flow table holds 1 to {CAPACITY_MOST} flows, not {capacity}")]
    Capacity {
        /// Requested number.
        capacity: usize,
    },
    /// The system has not enough memory.
    #[error("no memory for a flow table of {capacity} flows ({source}): ask for fewer")]
    Memory {
        /// Requested number.
        capacity: usize,
        /// Error of the system.
        source: Errno,
    },
}
