//! Integration tests of this crate, in one program.

mod document;
#[path = "../../examples/made_up/mod.rs"]
mod made_up;
mod report;
