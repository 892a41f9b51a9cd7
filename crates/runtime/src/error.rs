//! Errors of starting a chain file.

use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use dpdk::Memory;

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
    /// DPDK could not use huge pages that were free: other processes may have allocated them. It cannot be started again
    /// in this process.
    #[error(
        "{problem}\n  help: start again, or set {}={} to use ordinary pages; run bondstone doctor",
        dpdk::Memory::VARIABLE,
        dpdk::Memory::ORDINARY
    )]
    HugePages {
        /// The operation that failed, and the cause.
        problem: String,
    },
}

impl Error {
    /// Returns the error for differences to the chain file that runs which only a start can make.
    #[must_use]
    pub fn needs_restart(file: &ChainFile, problems: &[String]) -> Error {
        let problem = |problem: &String| {
            let d = Diagnostic::new(problem).remedy("restore it, or start the file again: bondstone stop, then run");
            Diagnostic { file: Some(file.file.clone()), ..d }
        };
        Error::Input(Diagnostics(problems.iter().map(problem).collect()))
    }
}

/// Describes a thread that cannot be created.
pub(crate) fn thread_error(e: std::io::Error) -> Error {
    Error::Environment {
        problem: format!("starting a thread: {e}"),
        remedy: "raise the limit of threads (ulimit -u)".into(),
    }
}

/// Describes a failure of starting DPDK or of creating the packet pool.
pub(crate) fn memory_error(memory: Memory, e: &dpdk::Error) -> Error {
    let problem = e.to_string();
    match memory {
        Memory::Huge => Error::HugePages { problem },
        Memory::Ordinary => Error::Environment {
            problem,
            remedy: "run bondstone doctor, which checks this machine for what DPDK needs".into(),
        },
    }
}
