//! What is wrong with an input, where, and what mends it.

use std::fmt;
use std::path::PathBuf;

/// A fault in something the user wrote: its place, the value, the problem, the remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostic {
    /// File that holds it.
    pub file: Option<PathBuf>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Key of the setting that is wrong, for [`crate::Nf::build`] to name; the file's reader turns it into a place.
    #[serde(skip)]
    pub key: Option<&'static str>,
    /// The value that is wrong.
    pub value: Option<String>,
    /// What is wrong with it.
    pub problem: String,
    /// What mends it.
    pub remedy: Option<String>,
}

impl Diagnostic {
    /// A fault without a place yet.
    pub fn new(problem: impl Into<String>) -> Self {
        Diagnostic { problem: problem.into(), ..Default::default() }
    }

    /// Names the setting.
    pub fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Names the value.
    pub fn value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(value.to_string());
        self
    }

    /// Names the remedy.
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

/// Every fault found, as one error.
#[derive(Clone, Debug)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    /// All of them, as a program prints them behind `error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n != 0 {
                f.write_str("\nerror: ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
