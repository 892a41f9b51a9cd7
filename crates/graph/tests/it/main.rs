//! Integration tests of this crate, in one program.

mod fused;
mod graph;
mod meter;
mod operators;
mod state;
mod timers;
