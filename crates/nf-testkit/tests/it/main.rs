//! Integration tests of this crate, in one program.

mod bench;
mod capture;
mod packets;
