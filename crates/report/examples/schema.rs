//! Prints the JSON Schema: `cargo run -p bondstone-report --example schema > crates/report/schema/result-2.json`.

fn main() {
    println!("{:#}", report::schema());
}
