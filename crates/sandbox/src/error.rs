//! Errors of the environment.

/// Returns an error for something that this machine or user lacks.
pub(crate) fn environment_error(problem: impl Into<String>, remedy: impl Into<String>) -> runtime::Error {
    runtime::Error::Environment { problem: problem.into(), remedy: remedy.into() }
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
