//! Ctrl-C and SIGTERM.

use crate::exit::Exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `stop` at the first interrupt; the second ends the program at once, whatever an NF does meanwhile.
pub(crate) fn on_interrupt(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            eprintln!("interrupted again: ended at once");
            std::process::exit(Exit::Interrupted as i32);
        }
        eprintln!("interrupted: stopping; once more ends it at once");
        stop();
    })?;
    Ok(())
}
