//! Results kept in a database, a SQLite file or one of PostgreSQL, that holds documents whole, and in columns what is
//! searched.
//!
//! ```no_run
//! use results::{Filter, Store};
//! # fn keep(result: &report::Result) -> Result<(), results::Error> {
//! let mut store = Store::open(&results::default_path()?)?;
//! store.add(result)?;
//! for entry in store.list(&Filter { study: Some("netbricks/fig7".to_owned()), ..Filter::default() })? {
//!     println!("{} {} {}", entry.date, entry.frame, entry.lower_pps);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The file is in order for other programs too: `sqlite3 results.sqlite 'select * from result_trial'`.
#![forbid(unsafe_code)]

mod backend;
pub mod cell;
mod columns;
pub mod compare;
mod entry;
mod error;
pub mod export;
mod filter;
pub mod import;
pub mod jumps;
pub mod metric;
mod migrate;
mod path;
mod place;
pub mod stats;
mod store;
mod tag;
pub mod threshold;
pub mod trend;

pub use entry::Entry;
pub use error::Error;
pub use filter::Filter;
pub use path::default_path;
pub use place::Place;
pub use store::{Added, Copied, Store};
