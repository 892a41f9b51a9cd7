//! A database of results: a SQLite file or a PostgreSQL database that stores documents as written, with columns for
//! searching.
//!
//! ```no_run
//! use results::{Filter, Location, Store};
//! # fn add(result: &report::Result) -> Result<(), results::Error> {
//! let mut store = Store::open(Location::from_env()?)?;
//! store.add(result)?;
//! for entry in store.list(&Filter { study: Some("netbricks/fig7".to_owned()), ..Filter::default() })? {
//!     println!("{} {} {}", entry.date, entry.frame, entry.lower_pps);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Other programs can read the file: `sqlite3 results.sqlite 'select * from result_trial'`.
#![forbid(unsafe_code)]

mod analysis;
mod error;
pub mod export;
pub mod import;
mod location;
mod store;

pub use analysis::{change_points, compare, conditions, metric, stats, threshold, trend};
pub use error::Error;
pub use location::Location;
pub use store::{Added, Copied, Entry, Filter, Store};
