//! Ends and errors of sessions.

use super::StoreError;
use crate::dut::ExternalDutError;
use crate::environment::FrequencyError;
use crate::method::MethodError;
use crate::search::{GoalError, SearchError};
use diagnostics::{Diagnostic, Diagnostics};

/// MeasurementSettings a session or a cell ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionEnd {
    /// Everything was measured.
    #[default]
    Done,
    /// Everything was measured, and a method found no rate that meets its goal or could not be measured on this DUT.
    GoalNotMet,
    /// The input is invalid.
    InvalidInput,
    /// This host or user lacks something.
    Environment,
    /// A measurement failed.
    Failed,
    /// The session was cancelled.
    Cancelled,
}

/// Reason why a cell or a session cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The input is invalid.
    #[error(transparent)]
    Input(#[from] Diagnostics),
    /// A chain does not start.
    #[error(transparent)]
    Chain(#[from] runtime::Error),
    /// A DUT that is another program does not start.
    #[error(transparent)]
    Dut(#[from] ExternalDutError),
    /// The frequency of the DUT's CPUs cannot be fixed.
    #[error(transparent)]
    Frequency(#[from] FrequencyError),
    /// A method cannot start.
    #[error("--method: {source}: {name}")]
    Method {
        /// Its name.
        name: String,
        /// Cause.
        source: MethodError,
    },
    /// The goal is invalid.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// The range of loads is invalid.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The generator's thread cannot be pinned.
    #[error("cannot pin the generator to CPU {cpu}: {source}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// Cause.
        source: std::io::Error,
    },
    /// A result is not a valid document.
    #[error(transparent)]
    Document(#[from] report::Error),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<Diagnostic> for SessionError {
    fn from(diagnostic: Diagnostic) -> SessionError {
        SessionError::Input(Diagnostics(vec![diagnostic]))
    }
}

impl SessionError {
    /// Returns the end that a cell with this error has.
    pub fn end(&self) -> SessionEnd {
        use runtime::Error::{Environment, HugePages, Input};
        match self {
            SessionError::Input(_)
            | SessionError::Method { .. }
            | SessionError::Chain(Input(_))
            | SessionError::Dut(ExternalDutError::Ports(Input(_))) => SessionEnd::InvalidInput,
            SessionError::Dut(_)
            | SessionError::Frequency(_)
            | SessionError::Chain(Environment { .. } | HugePages { .. }) => SessionEnd::Environment,
            _ => SessionEnd::Failed,
        }
    }
}
