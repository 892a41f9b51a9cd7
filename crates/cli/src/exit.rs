//! Exit statuses.

use std::process::ExitCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
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

/// Faults in what the user wrote.
#[derive(Debug)]
pub(crate) struct Faults(pub(crate) Vec<graph::Diagnostic>);

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n != 0 {
                f.write_str("\nerror: ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The status for an error.
pub(crate) fn of(e: &anyhow::Error) -> Exit {
    match e.downcast_ref::<runtime::Error>() {
        Some(runtime::Error::Input(_)) => Exit::Input,
        Some(runtime::Error::Environment { .. }) => Exit::Environment,
        None if e.is::<Faults>() => Exit::Input,
        None => Exit::Failed,
    }
}
