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
    /// Longest value in characters; problems and remedies, which may list words, are up to five times as long. Longer
    /// texts are cut, as files may contain values of megabytes.
    const LONGEST: usize = 200;

    /// Creates a diagnostic without location, value and remedy.
    pub fn new(problem: impl Into<String>) -> Self {
        Diagnostic { problem: cut(problem.into(), 5 * Self::LONGEST), ..Default::default() }
    }

    /// Sets the key of the setting.
    pub fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the invalid value.
    pub fn value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(cut(value.to_string(), Self::LONGEST));
        self
    }

    /// Sets the remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(cut(remedy.into(), 5 * Self::LONGEST));
        self
    }
}

/// Returns a text of at most `longest` characters, with the number of characters of a text that is cut.
fn cut(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        let length = text.chars().count();
        text.truncate(end);
        text += &format!("... ({length} characters)");
    }
    text
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

/// Removes diagnostics of the same problem at the same location, except the first of each.
pub fn remove_duplicates(all: &mut Vec<Diagnostic>) {
    let mut known = std::collections::BTreeSet::new();
    all.retain(|d| known.insert((d.file.clone(), d.line, d.column, d.problem.clone())));
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_long_texts() {
        let d = Diagnostic::new("ä".repeat(1_000_000)).value("ä".repeat(201)).remedy("x".repeat(1000));
        assert_eq!(d.value, Some(format!("{}... (201 characters)", "ä".repeat(200))));
        assert!(d.problem.ends_with("... (1000000 characters)") && d.problem.chars().count() < 1100);
        assert_eq!(d.remedy.as_deref(), Some(&*"x".repeat(1000)));
        assert_eq!(Diagnostic::new("").value("ä".repeat(200)).value, Some("ä".repeat(200)));
    }
}
