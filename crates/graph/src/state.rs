//! State of NFs that run on several cores.
//!
//! | type | readers | a read returns | writers | cost of a read |
//! |---|---|---|---|---|
//! | [`PerCore`] | its core | the last write | its core | none |
//! | [`Bounded<N>`](Bounded) | every copy ([`Reader`]) | a state at most `N` updates old | one copy ([`Writer`]) | a lookup |
//! | [`Strict`] | every copy | the last write | every copy | a lock and a lookup |
//!
//! These are the consistency levels of NetBricks (Panda et al., OSDI'16, §3): no external access, bounded inconsistency
//! and strict. Choose the first one that is sufficient: [`PerCore`] for the state of flows, if the NF declares that
//! flows must be spread ([`crate::Spread`]); [`Bounded`] for what one copy learns and all use; [`Strict`] for what
//! several copies change. The copies of an NF share a map through
//! [`BuildContext::shared`](crate::BuildContext::shared).
//!
//! Median cycles to read one of 1000 random keys, by `make bench` (Sapphire Rapids, 2.7 GHz TSC): by a single thread,
//! beside a core that writes a million times per second, and beside one that writes as fast as it can. With a million
//! keys, cache misses dominate in all of them.
//!
//! | | single thread | 10⁶ writes per second | maximum write rate |
//! |---|---|---|---|
//! | `HashMap` | 8 | | |
//! | `PerCore<HashMap>` | 8 | | |
//! | `Bounded<16>`, including `catch_up` | 8 | 8 | 57 |
//! | `Strict` | 36 | 40 | 102 |
//! | `Mutex<HashMap>` | 34 | 50 | 947 |

mod bounded;
mod per_core;
mod strict;
mod table;

pub use bounded::{Bounded, Reader, Writer};
pub use per_core::{PerCore, Share};
pub use strict::{LockedKeys, Strict};

/// Hash function for keys, with a random seed for each map.
type Hasher = foldhash::fast::RandomState;

/// Error: the map is full and the key is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {capacity} entries are in use; increase the capacity or remove unused entries")]
pub struct Full {
    /// Maximum number of entries.
    pub capacity: usize,
}
