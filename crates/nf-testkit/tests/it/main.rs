//! Integration tests of this crate, in one program.

mod capture;
mod harness;
mod packets;
