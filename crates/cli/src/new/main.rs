//! The program: every command of `bondstone`, the shipped NFs, and this one.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use my_nf::MyNf;

fn main() -> ExitCode {
    bondstone::main(nf::registry().with::<MyNf>())
}
