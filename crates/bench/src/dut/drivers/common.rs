//! Parts that several drivers use.

pub(super) mod chain_file;
pub(super) mod eal;
pub(super) mod kernel;
pub(super) mod periodic;
pub(super) mod sandbox_host;
