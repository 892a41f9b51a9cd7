//! Reports: tables for a terminal, and a page with charts.

mod format;
mod html;
mod labels;
mod notes;
mod streams;
mod tables;

#[cfg(feature = "png")]
pub use html::png;
pub use html::{Figure, figures, html, reproduction_html};
pub use tables::table;
