//! The program: every command of `bondstone`, with the shipped NFs and this one.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use my_nf::MyNf;

/// Counts the memory that each NF allocates.
#[global_allocator]
static MEMORY: bondstone::Memory = bondstone::Memory;

fn main() -> ExitCode {
    bondstone::main(bondstone::nf::registry().with::<MyNf>())
}
