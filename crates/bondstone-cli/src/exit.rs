//! Exit statuses.

use diagnostics::Diagnostics;
use std::process::ExitCode;

/// Exit status of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exit {
    #[default]
    Success = 0,
    /// The verdict of a measurement or check is negative.
    NotMet = 1,
    Input = 2,
    Environment = 3,
    Failed = 4,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Returns the exit status for an error.
pub(crate) fn of(e: &anyhow::Error) -> Exit {
    #[cfg(feature = "measure")]
    if let Some(e) = e.downcast_ref::<bench::session::SessionError>() {
        return match e {
            bench::session::SessionError::Store(e) if e.downcast_ref().is_some_and(results::Error::is_input) => {
                Exit::Input
            }
            bench::session::SessionError::Store(_) => Exit::Environment,
            e => e.end().into(),
        };
    }
    #[cfg(feature = "measure")]
    if let Some(e) = e.downcast_ref::<results::Error>() {
        return if e.is_input() { Exit::Input } else { Exit::Environment };
    }
    if let Some(e) = e.downcast_ref::<control::ClientError>() {
        return if matches!(e, control::ClientError::Refused(_)) { Exit::Input } else { Exit::Environment };
    }
    match e.downcast_ref::<runtime::Error>() {
        Some(runtime::Error::Input(_)) => Exit::Input,
        Some(runtime::Error::Environment { .. } | runtime::Error::HugePages { .. }) => Exit::Environment,
        None if e.is::<Diagnostics>() => Exit::Input,
        None => Exit::Failed,
    }
}
