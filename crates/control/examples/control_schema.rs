//! Prints the JSON Schema: `cargo run -p bondstone-control --example control_schema > crates/control/schema/control-1.json`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

fn main() {
    println!("{:#}", control::schema());
}
