//! Integration tests of this crate, in one program.

mod compare;
mod export;
mod import;
mod locations;
#[path = "../../../report/examples/samples/mod.rs"]
mod samples;
mod server;
mod store;
