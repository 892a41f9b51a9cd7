//! Integration tests of measurements.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "tests print why they are skipped")]

mod attribution;
mod methods;

use std::sync::RwLock;

/// Written by tests that measure, which need all CPUs and DPDK for themselves; read by others.
static HOST: RwLock<()> = RwLock::new(());
