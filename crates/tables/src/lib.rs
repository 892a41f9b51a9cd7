//! Look-up tables of the packet path.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod classifier;
pub mod cuckoo;
pub mod flow;
pub mod lpm;
pub mod lpm4;
pub mod lpm6;
pub mod maglev;
mod memory;
pub mod message_queue;
mod qsbr;

pub use classifier::Classifier;
pub use cuckoo::CuckooTable;
pub use flow::FlowTable;
pub use memory::{Backing, Pages, prefetch_value};
