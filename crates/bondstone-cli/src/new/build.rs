//! Refuses unsafe code in this crate and in the NF crates that it depends on.
#![forbid(unsafe_code)]

fn main() {
    // NF crates that may contain unsafe code: &["vendor-nat"]
    lint::build(&[]);
}
