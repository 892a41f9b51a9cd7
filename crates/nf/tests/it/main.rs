//! Integration tests of this crate, in one program.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

mod applications;
mod attack;
mod flow_export;
mod ipfix;
