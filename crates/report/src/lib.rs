//! What a measurement says: the [`Result`] document, its JSON Schema, the report for people.
//!
//! A producer fills a [`Result`] and [seals](Result::seal) it; a reader [reads](Document::read) its text. [`table`]
//! shows results in a terminal, [`html`] in a page that needs nothing else.
#![forbid(unsafe_code)]

mod calibration;
mod check;
mod dut;
mod environment;
mod error;
mod format;
mod goal;
pub mod hdr;
mod html;
mod latency;
pub mod limit;
mod method;
mod node;
mod profile;
mod quantity;
pub mod rate;
mod result;
mod schema;
mod seal;
mod streams;
mod summary;
mod table;
mod tool;
mod traffic;
mod trial;
mod words;

pub use calibration::Calibration;
pub use dut::{Dut, NfUse, Port};
pub use environment::{Environment, now, rfc3339, unix_seconds};
pub use error::Error;
pub use goal::Goal;
pub use hdrhistogram::Histogram;
#[cfg(feature = "png")]
pub use html::png;
pub use html::{Figure, figures, html};
pub use latency::Latency;
pub use method::Method;
pub use node::Node;
pub use profile::{Profile, Stream, StreamLatency};
pub use quantity::{Axis, Quantity, Series, Spread};
pub use result::{LimitedBy, Result, Version};
pub use schema::schema;
pub use seal::{Document, is_hash, sha256};
pub use summary::Summary;
pub use table::table;
pub use tool::Tool;
pub use traffic::{Frames, Mix, MixPart, Trace, Traffic};
pub use trial::{Phase, Trial};
