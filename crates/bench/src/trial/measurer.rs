//! The measurer: the component that executes trials.

use super::input::TrialInput;
use super::output::TrialOutput;
use traffic::PaceError;

/// Reason why a trial was not executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurerError {
    /// The load or the duration is invalid.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// The DUT or the traffic does not support the trial.
    #[error("{dut} cannot be {what}\n  help: {remedy}")]
    Unsupported {
        /// DUT or traffic.
        dut: String,
        /// Unsupported operation, such as `reset` or `changed while it forwards`.
        what: &'static str,
        /// Remedy.
        remedy: &'static str,
    },
    /// The DUT failed.
    #[error("{0}")]
    DutFailed(String),
    /// The measurement was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// Executes trials: a generator with its traffic, and a DUT.
pub trait Measurer {
    /// Executes a trial and waits until the path has drained.
    ///
    /// # Errors
    /// [`MeasurerError`]. Loss is not an error.
    fn trial(&mut self, input: &TrialInput) -> Result<TrialOutput, MeasurerError>;
}
