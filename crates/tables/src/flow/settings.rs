//! What a table is to be.

use super::key::Seed;
use crate::Pages;
use rustix::io::Errno;
use thiserror::Error;

/// Greatest capacity: 1,073,741,824 flows.
pub const CAPACITY_MOST: usize = 1 << 30;

/// What a flow table is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Flows it holds at most, 1 to [`CAPACITY_MOST`].
    pub capacity: usize,
    /// What happens to one more.
    pub full: Full,
    /// What keys are hashed with.
    pub seed: Seed,
    /// The best pages to try for.
    pub pages: Pages,
}

impl Settings {
    /// For `capacity` flows, with a random seed, in huge pages where there are any; refuses flows beyond.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity, full: Full::Refuse, seed: Seed::random(), pages: Pages::Hugetlb }
    }
}

/// What happens to a new flow when the table holds its capacity, or has no room where the flow would be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// It is refused.
    Refuse,
    /// It takes the place of the flow that has been idle longest among those in the sixteen slots of its two buckets; it is
    /// refused if all of them had a packet at this very time, or if there is none.
    EvictOldest,
}

/// Why there is no table.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// No flows, or more than can be numbered.
    #[error("a flow table holds 1 to {CAPACITY_MOST} flows, not {capacity}")]
    Capacity {
        /// What was asked for.
        capacity: usize,
    },
    /// The system has not enough memory.
    #[error("no memory for a flow table of {capacity} flows ({source}): ask for fewer")]
    Memory {
        /// What was asked for.
        capacity: usize,
        /// What the system says.
        source: Errno,
    },
}
