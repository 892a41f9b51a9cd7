//! Prints the JSON Schema: `cargo run -p bondstone-report --example schema > crates/report/schema/result-1.json`.

fn main() {
    println!("{:#}", report::schema());
}
