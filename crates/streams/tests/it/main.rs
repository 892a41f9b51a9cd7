//! Integration tests of this crate, in one program.

mod packetize;
mod window;
mod window_real;
