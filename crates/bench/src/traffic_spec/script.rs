//! Engine of scripts that come from users.

use rhai::{Dynamic, Engine};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum operations per call and of all calls.
pub(super) const MAX_OPERATIONS: u64 = 1_000_000;
pub(super) const MAX_TOTAL_OPERATIONS: u64 = 20_000_000;

/// Creates an engine without access to the system, with limits on operations and memory.
pub(super) fn new_engine() -> (Engine, Arc<AtomicU64>) {
    let mut engine = Engine::new();
    let operations = Arc::new(AtomicU64::new(0));
    let counter = operations.clone();
    engine.on_progress(move |_| {
        (counter.fetch_add(1, Ordering::Relaxed) >= MAX_TOTAL_OPERATIONS).then_some(Dynamic::UNIT)
    });
    engine.set_max_operations(MAX_OPERATIONS);
    engine.set_max_call_levels(32);
    engine.set_max_expr_depths(64, 64);
    engine.set_max_string_size(4096);
    engine.set_max_array_size(4096);
    engine.set_max_map_size(1024);
    engine.set_max_variables(256);
    engine.set_max_functions(64);
    engine.disable_symbol("eval");
    engine.on_print(|_| {});
    engine.on_debug(|_, _, _| {});
    (engine, operations)
}
