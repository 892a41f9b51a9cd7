//! State of network functions that run on several cores.
//!
//! | | who reads | what is read | who writes | a read costs |
//! |---|---|---|---|---|
//! | [`PerCore`] | its core | what was written | its core | nothing |
//! | [`Bounded<N>`](Bounded) | every copy, each from its own [`Reader`] | what stood at the beginning of the batch, or at most `N` updates before it | one copy, by the [`Writer`] | what a hash table costs |
//! | [`Strict`] | every copy | what was written | every copy | a lock and a hash table |
//!
//! They are the three of NetBricks (Panda et al., OSDI'16, §3): no external access, bounded inconsistency, strict. Take
//! the first that serves: state of a flow is [`PerCore`] when the NF asks for flows to be spread so
//! ([`crate::Spread`]), what one copy learns and all use is [`Bounded`], and what several copies change is [`Strict`].
//! The copies of an NF find what they share by [`BuildContext::common`](crate::BuildContext::common).
//!
//! Median cycles for a read of one of 1000 keys at random, by `make bench` (Sapphire Rapids, 2.7 GHz counter): by one thread
//! alone, beside a core that writes a million times a second, and beside one that writes as fast as it can. With a million
//! keys all of them wait for memory first.
//!
//! | | alone | beside a writer | beside one flat out |
//! |---|---|---|---|
//! | `HashMap` | 8 | | |
//! | `PerCore<HashMap>` | 8 | | |
//! | `Bounded<16>`, catching up included | 8 | 8 | 57 |
//! | `Strict` | 36 | 40 | 102 |
//! | `Mutex<HashMap>` | 34 | 50 | 947 |

mod bounded;
mod per_core;
mod strict;
mod table;

pub use bounded::{Bounded, Reader, Writer};
pub use per_core::{PerCore, Share};
pub use strict::{Locked, Strict};

/// Hashes keys: fast, with a seed of its own for each map.
type Hasher = foldhash::fast::RandomState;

/// No room for another entry: the value was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {capacity} entries are taken; make the capacity larger, or remove what is no longer needed")]
pub struct Full {
    /// Entries there can be.
    pub capacity: usize,
}
