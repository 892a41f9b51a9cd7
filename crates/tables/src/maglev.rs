//! Maglev's look-up table (Eisenbud et al., NSDI'16, §3.4): which backend a hash belongs to, spread evenly, and nearly the
//! same after a backend has come or gone.
//!
//! Every backend has a permutation of the slots, made of two hashes of its name, and takes in turn the first slot of it
//! that is free. So the table is the same on every machine, whatever order the backends were named in. A backend of twice
//! the weight has twice the turns (the paper's "relative frequency of the backends' turns").
//!
//! ```
//! use tables::maglev::{Member, Ring};
//!
//! let members = |last| ["a", "b", "c"].map(|name| Member { name, weight: if name == "c" { last } else { 1 } });
//! let all = Ring::build(65_537, &members(1))?;
//! let without = Ring::build(65_537, &members(0))?;
//! assert_eq!(all.counts(), [21_846, 21_846, 21_845]);
//! assert_ne!(without.get(0x1234_5678_9abc_def0), Some(2));
//!
//! // c's slots had to move; of the others', few did
//! let moved = all.disruption(&without);
//! assert_eq!(moved.bereft, 21_845);
//! assert!(moved.share() < 0.05);
//! # Ok::<(), tables::maglev::Error>(())
//! ```

use thiserror::Error;

/// Greatest number of slots.
pub const SIZE_MOST: usize = 1 << 24;
/// Greatest weight.
pub const WEIGHT_MOST: u32 = 256;
/// No backend.
const NO_MEMBER: u16 = u16::MAX;

/// A backend of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member<'n> {
    /// Name, from which its permutation follows: must be unique.
    pub name: &'n str,
    /// Its share in proportion to the others', 0 to [`WEIGHT_MOST`]; with 0 it has none.
    pub weight: u32,
}

/// Error of building a ring.
#[derive(Error, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The number of slots is not prime, or too large.
    #[error("a ring has a prime number of slots up to {SIZE_MOST}, not {0}: write {1}")]
    Size(usize, usize),
    /// More backends than slots or than can be numbered.
    #[error("a ring of {size} slots has up to {most} backends, not {members}")]
    Members {
        /// Slots.
        size: usize,
        /// Backends at most.
        most: usize,
        /// Backends.
        members: usize,
    },
    /// A weight that is none.
    #[error("{name:?} has the weight {weight}, and there are 0 to {WEIGHT_MOST}")]
    Weight {
        /// Name of the member.
        name: String,
        /// Weight of the member.
        weight: u32,
    },
    /// Two backends of one name would want the same slots.
    #[error("two backends are called {0:?}")]
    Twice(String),
}

/// Slots, each of which belongs to a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// Numbers of backends; all of them [`NO_MEMBER`] if none has a weight.
    slots: Box<[u16]>,
    members: usize,
}

/// Differences between two rings.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Disruption {
    /// Slots that went to another backend although the one they had is still there.
    pub moved: usize,
    /// Slots that had to move, because their backend is gone.
    pub bereft: usize,
    /// Slots.
    pub size: usize,
}

impl Disruption {
    /// Returns the share of slots that moved without need.
    #[must_use]
    pub fn share(&self) -> f64 {
        let kept = self.size - self.bereft;
        if kept == 0 { 0.0 } else { self.moved as f64 / kept as f64 }
    }
}

/// Start and step of a backend's permutation of the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Permutation {
    offset: usize,
    skip: usize,
}

impl Permutation {
    fn of(name: &str, size: usize) -> Self {
        let offset = hash(name, 0xcbf2_9ce4_8422_2325) % size as u64;
        let skip = hash(name, 0x9e37_79b9_7f4a_7c15) % (size as u64 - 1) + 1;
        Self { offset: offset as usize, skip: skip as usize }
    }
}

/// FNV-1a from another beginning, and MurmurHash3's finalizer: fixed, because rings of different machines have to agree.
fn hash(name: &str, from: u64) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = name.as_bytes().iter().fold(from, fnv);
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// Returns true if `n` is prime.
#[must_use]
pub fn is_prime(n: usize) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

impl Ring {
    /// A ring of `size` slots, a prime number: §3.4 says a hundred times as many as backends, to be even within 1 %. What
    /// it gives are places in `members`.
    ///
    /// # Errors
    /// [`enum@Error`].
    pub fn build(size: usize, members: &[Member<'_>]) -> Result<Self, Error> {
        if !is_prime(size) || size > SIZE_MOST {
            let next = (size.clamp(2, 65_537)..).find(|n| is_prime(*n)).unwrap_or(65_537);
            return Err(Error::Size(size, next));
        }
        let most = size.min(NO_MEMBER as usize);
        if members.len() > most {
            return Err(Error::Members { size, most, members: members.len() });
        }
        if let Some(m) = members.iter().find(|m| m.weight > WEIGHT_MOST) {
            return Err(Error::Weight { name: m.name.to_owned(), weight: m.weight });
        }
        let mut order: Vec<u16> = (0..members.len() as u16).collect();
        order.sort_unstable_by_key(|at| members[*at as usize].name);
        if let Some([a, _]) =
            order.array_windows().find(|[a, b]| members[*a as usize].name == members[*b as usize].name)
        {
            return Err(Error::Twice(members[*a as usize].name.to_owned()));
        }
        let turn = |at: u16| {
            let Member { name, weight } = members[at as usize];
            Candidate::new(at, weight, Permutation::of(name, size))
        };
        Ok(Self { slots: populate(size, order.into_iter().map(turn).collect()), members: members.len() })
    }

    /// Returns the backend of a hash, of which the upper half counts; `None` if there is none at all.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<u16> {
        let slot = ((hash >> 32) * self.slots.len() as u64) >> 32;
        self.slots.get(slot as usize).copied().filter(|member| *member != NO_MEMBER)
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// Returns the member index of each slot; 65,535 for none.
    #[must_use]
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// Slots of each backend.
    #[must_use]
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.members];
        for member in &self.slots {
            if let Some(count) = counts.get_mut(*member as usize) {
                *count += 1;
            }
        }
        counts
    }

    /// Returns the changes when `next`, a ring with the same number of slots and the same list of members, replaces
    /// this one.
    /// Backends come and go by their weights.
    #[must_use]
    pub fn disruption(&self, next: &Ring) -> Disruption {
        let stays: Vec<bool> = next.counts().iter().map(|count| *count != 0).collect();
        let mut d = Disruption { size: self.slots.len(), ..Disruption::default() };
        for (before, after) in self.slots.iter().zip(&next.slots) {
            if !stays.get(*before as usize).is_some_and(|stays| *stays) {
                d.bereft += 1;
            } else if before != after {
                d.moved += 1;
            }
        }
        d
    }
}

/// A backend while slots are given out.
struct Candidate {
    member: u16,
    weight: u32,
    /// Turns that are due to it, in parts of the greatest weight.
    due: u32,
    /// The slot of its permutation that it asks for next.
    at: u32,
    skip: u32,
}

impl Candidate {
    fn new(member: u16, weight: u32, from: Permutation) -> Self {
        Candidate { member, weight, due: 0, at: from.offset as u32, skip: from.skip as u32 }
    }
}

/// Returns the pseudocode 1 of the paper, with weights.
fn populate(size: usize, mut turns: Vec<Candidate>) -> Box<[u16]> {
    let mut slots = vec![NO_MEMBER; size].into_boxed_slice();
    turns.retain(|turn| turn.weight != 0);
    let Some(most) = turns.iter().map(|turn| turn.weight).max() else { return slots };
    // a bit for each slot that is taken: eight times less memory to look at than the slots themselves take
    let mut taken = vec![0u64; size.div_ceil(64)];
    let (size, mut left) = (size as u32, size);
    loop {
        for turn in &mut turns {
            turn.due += turn.weight;
            if turn.due < most {
                continue;
            }
            turn.due -= most;
            let mut at = turn.at;
            let next = |at: u32| if at >= size - turn.skip { at - (size - turn.skip) } else { at + turn.skip };
            while taken[at as usize / 64] >> (at % 64) & 1 != 0 {
                at = next(at);
            }
            taken[at as usize / 64] |= 1 << (at % 64);
            slots[at as usize] = turn.member;
            turn.at = next(at);
            left -= 1;
            if left == 0 {
                return slots;
            }
        }
    }
}

#[cfg(test)]
mod tests;
