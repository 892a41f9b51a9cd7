//! Fault handling: errors of a run, attribution of crashes and memory to NFs, and the watchdog.

pub(crate) mod attribution;
pub(crate) mod run_errors;
pub(crate) mod watchdog;
