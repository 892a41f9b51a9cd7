//! Errors in user input: chain files, scenario files and settings.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;

/// An error in a file or setting that a user wrote: location, value, problem and remedy.
///
/// [`Nf::build`](../graph/trait.Nf.html#tymethod.build) names the setting with [`key`](Diagnostic::key); the reader of
/// the file adds the location. It is displayed as
///
/// ```text
/// edge.toml:12:9: "ten": is not a number
///   help: write an integer, such as rate = 10
/// ```
///
/// ```
/// use diagnostics::Diagnostic;
///
/// fn check(rate: u64) -> Result<(), Diagnostic> {
///     match rate {
///         0 => Err(Diagnostic::new("must not be 0").key("rate").value(0).remedy("write 1 or more")),
///         _ => Ok(()),
///     }
/// }
/// assert_eq!(check(0).unwrap_err().to_string(), "\"0\": must not be 0\n  help: write 1 or more");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostic {
    /// File that contains the error.
    pub file: Option<PathBuf>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Key of the setting, which the reader of the file turns into a line and column.
    #[serde(skip)]
    pub key: Option<&'static str>,
    /// The invalid value.
    pub value: Option<String>,
    /// The problem.
    pub problem: String,
    /// Remedy, addressed to the user.
    pub remedy: Option<String>,
}

impl Diagnostic {
    /// Creates a diagnostic without location, value and remedy.
    pub fn new(problem: impl Into<String>) -> Self {
        Diagnostic { problem: problem.into(), ..Default::default() }
    }

    /// Sets the key of the setting.
    pub fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the invalid value.
    pub fn value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(value.to_string());
        self
    }

    /// Sets the remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            if let Some(column) = self.column {
                write!(f, "{column}:")?;
            }
            f.write_str(" ")?;
        }
        if let Some(value) = &self.value {
            write!(f, "{value:?}: ")?;
        }
        f.write_str(&self.problem)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  help: {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// All diagnostics of a file as one error.
#[derive(Clone, Debug)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    /// Displays all diagnostics, separated by `error: `; the program prints the first `error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.0.iter().enumerate() {
            if n != 0 {
                f.write_str("\nerror: ")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
