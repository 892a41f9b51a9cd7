//! Exit statuses.

use diagnostics::Diagnostics;
use std::process::ExitCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exit {
    #[default]
    Done = 0,
    /// Something was measured, and is not as it was to be.
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

/// The status for an error.
pub(crate) fn of(e: &anyhow::Error) -> Exit {
    #[cfg(feature = "measure")]
    if let Some(rig) = e.downcast_ref::<bench::RigError>() {
        return match rig {
            bench::RigError::Ports(runtime::Error::Input(_)) => Exit::Input,
            _ => Exit::Environment,
        };
    }
    #[cfg(feature = "measure")]
    if e.is::<bench::ClockError>() {
        return Exit::Environment;
    }
    #[cfg(feature = "measure")]
    if let Some(e) = e.downcast_ref::<results::Error>() {
        return if e.is_input() { Exit::Input } else { Exit::Environment };
    }
    match e.downcast_ref::<runtime::Error>() {
        Some(runtime::Error::Input(_)) => Exit::Input,
        Some(runtime::Error::Environment { .. }) => Exit::Environment,
        None if e.is::<Diagnostics>() => Exit::Input,
        None => Exit::Failed,
    }
}
