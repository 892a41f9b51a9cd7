//! The `bondstone` program with the shipped NFs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static MEMORY: bondstone_cli::Memory = bondstone_cli::Memory;

fn main() -> ExitCode {
    bondstone_cli::main(nf::registry())
}
