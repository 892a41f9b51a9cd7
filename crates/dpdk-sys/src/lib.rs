//! Bindings to the parts of libdpdk that the `dpdk` crate uses, generated at build time from `shim.h`.
#![no_std]
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
