//! The `bondstone` program with the NFs that it ships.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: bondstone::Memory = bondstone::Memory;

fn main() -> ExitCode {
    bondstone::main(nf::registry())
}
