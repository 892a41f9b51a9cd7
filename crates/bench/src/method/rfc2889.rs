//! Address learning of switches (RFC 2889).

pub(super) mod address_table;
mod learning;
pub(super) mod learning_rate;
