//! The program: every command of `bondstone`, the shipped NFs, and this one.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use my_nf::MyNf;

/// Counts what each NF allocates.
#[global_allocator]
static MEMORY: bondstone::Memory = bondstone::Memory;

fn main() -> ExitCode {
    bondstone::main(bondstone::nf::registry().with::<MyNf>())
}
