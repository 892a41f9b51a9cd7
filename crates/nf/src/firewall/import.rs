//! Conversion of the rules of other firewalls to settings of [`Firewall`](crate::Firewall).
//!
//! Rules that cannot be converted are errors, with location and remedy. Rules that do not affect forwarded packets are
//! listed in [`ImportedRules::notes`]; no rule is omitted silently.

mod flatten;
mod iptables;
mod nft;

pub use iptables::iptables;
pub use nft::nft;

use diagnostics::Diagnostic;
use std::fmt;

/// Settings equivalent to the imported rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportedRules {
    /// Rules; the first match decides.
    pub rules: Vec<String>,
    /// True if new packets that match no rule are accepted.
    pub default_accept: bool,
    /// True if rules match connection states.
    pub tracked: bool,
    /// Rules that were omitted or are not exactly equivalent, and why.
    pub notes: Vec<String>,
}

impl fmt::Display for ImportedRules {
    /// Writes the section of a chain file for an NF named `firewall`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "# {note}")?;
        }
        writeln!(f, "[nf.firewall]\nkind = \"firewall\"\nrules = [")?;
        for rule in &self.rules {
            writeln!(f, "  {rule:?},")?;
        }
        writeln!(f, "]\ndefault = \"{}\"", if self.default_accept { "accept" } else { "drop" })?;
        if self.tracked {
            writeln!(f, "track = {{}}")?;
        }
        Ok(())
    }
}

/// Returns the error for an element that cannot be converted.
fn unsupported(line: Option<usize>, word: impl fmt::Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic { line, ..Diagnostic::new(problem).value(word).remedy(remedy) }
}

#[cfg(test)]
mod tests;
