//! The `bondstone` program with the NFs that it ships.

use std::process::ExitCode;

fn main() -> ExitCode {
    bondstone::main(nf::registry())
}
