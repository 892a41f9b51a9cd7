//! Cleanup processes of a DUT.

use crate::dut::context::{DutContext, DutError};
use runtime::CleanupProcess;

/// Runs `setup` at once, and `script` when the returned value is dropped or this process ends; `$1`, ... are
/// `arguments`.
///
/// # Errors
/// If no shell can be started, or the setup fails.
pub(crate) fn start_cleanup(
    context: &mut DutContext,
    setup: &str,
    script: &str,
    arguments: &[&str],
) -> Result<CleanupProcess, DutError> {
    let log = context.path("cleanup.log");
    CleanupProcess::start_with_setup(setup, script, arguments, &log).map_err(|e| {
        context.error(format!("starting a cleanup process: {e}"), format!("check the output in {}", log.display()))
    })
}
