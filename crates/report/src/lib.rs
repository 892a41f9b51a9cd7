//! The result document of a measurement: its types, JSON Schema and content hash, and reports of it as text and HTML.
//!
//! A producer fills a [`Result`] and calls [`Result::assign_id`]; a reader parses text with [`Document::read`].
//! [`table`] renders results for a terminal, [`html`] as a self-contained page.
#![forbid(unsafe_code)]

mod check;
mod content_hash;
mod document;
mod error;
pub mod hdr;
pub mod limit;
pub mod rate;
mod render;
pub mod reproduction;
mod result;
mod schema;

pub use content_hash::{is_hash, sha256};
pub use document::Document;
pub use error::Error;
pub use hdrhistogram::Histogram;
#[cfg(feature = "png")]
pub use render::png;
pub use render::{Figure, figures, html, reproduction_html, table};
pub use result::{
    Axis, Calibration, Connections, Dut, Environment, FailedConnections, Frames, Goal, Latency, LatencyAnatomy,
    LatencyPart, LimitedBy, Method, Mix, MixPart, NfInstance, Node, PartKind, Phase, PollTimes, Port, Profile,
    Quantity, Result, Series, Spread, Stream, StreamLatency, Summary, Tool, Trace, Traffic, Trial, Version, Vnf, now,
    rfc3339, unix_seconds,
};
pub use schema::schema;
