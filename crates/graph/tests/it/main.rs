//! Integration tests of this crate, in one program.

mod fused;
mod graph;
mod meter;
mod observer;
mod operator_trace;
mod operators;
mod replacement;
mod state;
mod timers;
