//! SIGINT (Ctrl-C) and SIGTERM.

use crate::exit::Exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `stop` at the first interrupt; the second terminates the program immediately.
pub(crate) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let interrupted = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if interrupted.swap(true, Ordering::Relaxed) {
            eprintln!("interrupted again: terminating");
            std::process::exit(Exit::Interrupted as i32);
        }
        eprintln!("interrupted: stopping; interrupt again to terminate immediately");
        stop();
    })?;
    Ok(())
}
