//! Integration tests of this crate, in one program.

mod attack;
mod ipfix;
