//! @generated@
//!
//! The program is bondstone, with a loop for each of these segments. It runs other chain files without loops.
#![forbid(unsafe_code)]

use bondstone::graph::{self, Nf, Registry, Segment};
use bondstone::nf;
use std::process::ExitCode;

/// Counts the memory that each NF allocates.
#[global_allocator]
static MEMORY: bondstone::Memory = bondstone::Memory;

fn main() -> ExitCode {
    bondstone::main(with_segments(nf::registry()))
}

fn with_segments(registry: Registry) -> Registry {
    registry@segments@
}
