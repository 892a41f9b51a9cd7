//! Look-up tables of the packet path.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod classifier;
pub mod exact;
pub mod flow;
mod grace;
pub mod handoff;
pub mod lpm;
pub mod lpm4;
pub mod lpm6;
pub mod maglev;
mod memory;

pub use classifier::Classifier;
pub use exact::ExactTable;
pub use flow::FlowTable;
pub use memory::{Backing, Pages};
