//! Errors of starting a chain file.

use diagnostics::Diagnostics;

/// An error that prevents a chain file from running.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error in the file.
    #[error(transparent)]
    Input(#[from] Diagnostics),
    /// A limitation of the machine, or of what the user may do.
    #[error("{problem}\n  help: {remedy}")]
    Environment {
        /// The operation that failed, and the cause.
        problem: String,
        /// The remedy.
        remedy: String,
    },
}

/// Describes a thread that cannot be created.
pub(crate) fn thread_error(e: std::io::Error) -> Error {
    Error::Environment {
        problem: format!("starting a thread: {e}"),
        remedy: "raise the limit of threads (ulimit -u)".into(),
    }
}

/// Describes a failure of starting DPDK.
pub(crate) fn dpdk_error(e: &dpdk::Error) -> Error {
    Error::Environment {
        problem: e.to_string(),
        remedy: "run bondstone doctor, which checks this machine for what DPDK needs".into(),
    }
}
