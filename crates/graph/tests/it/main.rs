//! Integration tests of this crate, in one program.

mod graph;
mod meter;
mod operators;
mod state;
mod timers;
