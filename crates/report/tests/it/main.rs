//! Integration tests of this crate, in one program.

mod document;
mod report;
#[path = "../../examples/samples/mod.rs"]
mod samples;
