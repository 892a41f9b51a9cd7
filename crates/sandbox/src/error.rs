//! Errors of the environment.

use std::path::Path;

/// Returns an error for something that this machine or user lacks.
pub(crate) fn environment_error(problem: impl Into<String>, remedy: impl Into<String>) -> runtime::Error {
    runtime::Error::Environment { problem: problem.into(), remedy: remedy.into() }
}

/// Returns the error for a path that cannot be written.
pub(crate) fn not_writable(path: &Path, e: &std::io::Error) -> runtime::Error {
    environment_error(format!("{}: {e}", path.display()), "allow this user to write there")
}

/// Adds a description of what failed to an error.
pub(crate) trait Context<T> {
    fn context(self, what: impl Into<String>) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T, String> {
        self.map_err(|e| format!("{}: {e}", what.into()))
    }
}
