//! Integration tests of this crate, in one program.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

mod cuckoo;
mod cuckoo_churn;
mod flow;
mod lpm;
mod lpm_churn;
mod lpm_real;
mod message_queue;
