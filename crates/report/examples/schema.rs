//! Prints the JSON Schema: `cargo run -p bondstone-report --example schema > crates/report/schema/result-2.json`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

fn main() {
    println!("{:#}", report::schema());
}
