//! Refuses unsafe code in this crate and in the NF crates that it depends on.
#![forbid(unsafe_code)]

fn main() {
    // names of NF crates that may have some: &["vendor-nat"]
    lint::build(&[]);
}
