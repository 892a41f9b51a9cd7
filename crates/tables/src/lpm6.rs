//! IPv6 routes: longest prefix match by one load for the first 24 bits and one for each 8 bits more.
//!
//! The same structure as for IPv4, with up to 13 levels of groups; a burst goes down the levels in step, so that its loads
//! do not wait for each other. Nine of ten routes of a real table end within 48 bits: four loads.
//!
//! A group could be kept as a bitmap of where its 256 words change, and the few words that differ. On a real table of
//! 160,147 prefixes (38,096 groups) that takes 3.3 MiB instead of 37 for the groups of 32-bit words (19 of 16 bits), but
//! each level takes three loads and a population count, and each update a new node. Both were measured side by side (as
//! for IPv4, in one program; median cycles; words of 32 bits):
//!
//! | destinations | words, AVX-512 | bitmaps, AVX-512 | words, scalar | bitmaps, scalar |
//! |---|---|---|---|---|
//! | 1,024 | 7.0 | 11 | 19 | 36 |
//! | 65,536 | 15 | 17 | 28 | 48 |
//! | 4 million | 17 | 18 | 35 | 52 |
//!
//! The same table beside DPDK's on the same routes (where its pages happen to lie makes up to a fifth). Words of 16 bits,
//! which it has by now, take a tenth less for the two larger sets, and 2 % (AVX-512) to 5 % (scalar) more for the smallest:
//!
//! | destinations | AVX-512 | scalar | `rte_fib6` AVX-512 |
//! |---|---|---|---|
//! | 1,024 | 7.4 | 19 | 7.4 |
//! | 65,536 | 16 to 21 | 31 to 40 | 18.5 |
//! | 4 million | 19 to 23 | 41 to 50 | 24 |
//!
//! Loading all routes takes 40 ms; a route inserted or removed later, 0.2 to 0.5 us.
//!
//! ```
//! use std::net::Ipv6Addr;
//! use tables::lpm6;
//!
//! let (mut writer, table) = lpm6::new()?;
//! writer.insert("2001:db8::".parse::<Ipv6Addr>().unwrap(), 32, 7)?;
//! let inside: Ipv6Addr = "2001:db8:1::9".parse().unwrap();
//! assert_eq!(table.reader().look_up_one(inside.into()), 7);
//! # Ok::<(), tables::lpm::Error>(())
//! ```

use crate::Pages;
use crate::lpm::{self, Error, Limits};

/// The writer of an IPv6 table.
pub type Writer = lpm::Writer<u128>;
/// An IPv6 table.
pub type Table = lpm::Table<u128>;
/// A reader of an IPv6 table.
pub type Reader = lpm::Reader<u128>;

/// Limits used by [`new`]: 4,194,304 routes and 524,288 groups (512 MiB beside the first level's 64 MiB, half as
/// much while words have 16 bits, taken as routes need them; the real table takes 38,096). A route takes at most 13 groups
/// of its own.
pub const DEFAULT_LIMITS: Limits = Limits { routes: 1 << 22, groups: 1 << 19, pages: Pages::Hugetlb };

/// Creates an empty table for [`DEFAULT_LIMITS`], and its writer.
///
/// # Errors
/// [`Error::Memory`] when the system has no address space for it.
pub fn new() -> Result<(Writer, Table), Error> {
    with(DEFAULT_LIMITS)
}

/// Creates an empty table for `limits`, and its writer.
///
/// # Errors
/// [`Error::Limits`], and [`Error::Memory`] when the system has no address space for it.
pub fn with(limits: Limits) -> Result<(Writer, Table), Error> {
    let writer = Writer::new(limits)?;
    let table = writer.table().clone();
    Ok((writer, table))
}
