//! Integration tests of this crate, in one program.

mod compare;
mod export;
mod import;
#[path = "../../../report/examples/made_up/mod.rs"]
mod made_up;
mod places;
mod server;
mod store;
