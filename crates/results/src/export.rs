//! Export of results: CSV, JUnit XML, Markdown.

pub mod csv;
pub mod junit;
pub mod markdown;
