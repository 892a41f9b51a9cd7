//! The benchmarking tests of RFC 2544 §26 and their updates.

pub(super) mod back_to_back;
pub(super) mod latency;
pub(super) mod loss;
pub(super) mod recovery;
pub(super) mod reset;
pub(super) mod throughput;
