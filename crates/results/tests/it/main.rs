//! Integration tests of this crate, in one program.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

mod compare;
mod export;
mod import;
mod locations;
#[path = "../../../report/examples/samples/mod.rs"]
mod samples;
mod server;
mod store;
