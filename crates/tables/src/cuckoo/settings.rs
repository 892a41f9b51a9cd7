//! Settings and errors of a cuckoo table.

use crate::Pages;
use crate::flow::Seed;
use std::io;
use thiserror::Error;

/// Most entries that a table can be made for: 17,179,869,184.
pub const ENTRIES_MOST: u64 = 1 << 34;

/// Settings of a cuckoo table.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Entries that it has memory for from the start, 1 to [`ENTRIES_MOST`]: they fill seven slots in eight, so that most
    /// are found in one bucket. More are taken as long as there is room.
    pub entries: u64,
    /// Entries up to which it grows, bucket by bucket: address space for them is reserved at once, memory taken when they
    /// come. Not above `entries`: it never grows.
    pub most: u64,
    /// Seed of the hash.
    pub seed: Seed,
    /// The best pages to try for.
    pub pages: Pages,
}

impl Settings {
    /// Creates settings for `entries` entries without growth, with a random seed and huge pages if available.
    #[must_use]
    pub fn new(entries: u64) -> Self {
        Self { entries, most: entries, seed: Seed::random(), pages: Pages::Hugetlb }
    }
}

/// Error of creating a table or inserting an entry.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No entries, or more than a table can have.
    #[error("an exact-match table is made for 1 to {ENTRIES_MOST} entries, not {entries}")]
    Entries {
        /// Requested number.
        entries: u64,
    },
    /// A value that would read as a free slot.
    #[error("value {value}: {most} is the greatest that a key of {bits} bits can have")]
    Value {
        /// Requested number.
        value: u32,
        /// The greatest.
        most: u32,
        /// Bits of the key.
        bits: u32,
    },
    /// No room for a key within a bounded number of moves.
    #[error("no room for another key: {len} of {slots} slots are taken; raise `Settings::most`")]
    Full {
        /// Entries there are.
        len: u64,
        /// Slots there are.
        slots: u64,
    },
    /// The system has not enough memory.
    #[error("no memory for an exact-match table of {bytes} bytes ({source}): ask for fewer entries")]
    Memory {
        /// Bytes of the table.
        bytes: usize,
        /// Error of the system.
        source: io::Error,
    },
}

/// Error of loading a saved table.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the saved table: {0}")]
    Read(#[from] io::Error),
    /// It is something else.
    #[error("not a saved exact-match table: {what}")]
    Format {
        /// Mismatch with this type of table.
        what: &'static str,
    },
    /// A table of other keys.
    #[error("the saved table has keys of {found} bits, not {wanted}")]
    Keys {
        /// Bits of its keys.
        found: u32,
        /// Bits of the keys of the table it was to become.
        wanted: u32,
    },
    /// More entries than the settings allow.
    #[error("the saved table has {found} entries, and at most {most} are allowed; raise `Settings::most`")]
    Entries {
        /// Recorded number.
        found: u64,
        /// [`Settings::most`], or `entries` where that is more.
        most: u64,
    },
    /// It ends early, goes on after its end, or was changed.
    #[error("the saved table is damaged: {what}")]
    Damaged {
        /// Evidence of the corruption.
        what: &'static str,
    },
    /// An entry was not taken.
    #[error(transparent)]
    Table(#[from] Error),
}
