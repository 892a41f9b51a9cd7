//! Rule lists of other firewalls as settings of [`Firewall`](crate::Firewall).
//!
//! What cannot be said in its rules is refused, with the place, the word and a remedy; what changes nothing for packets that
//! are forwarded is named in [`Imported::notes`]. No rule is left out silently.

mod flat;
mod iptables;
mod nft;

pub use iptables::iptables;
pub use nft::nft;

use diagnostics::Diagnostic;
use std::fmt;

/// Settings that decide as the other firewall did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Rules, first match first.
    pub rules: Vec<String>,
    /// Whether new packets that no rule matches are let through.
    pub accepts: bool,
    /// Whether the rules ask for states of connections.
    pub tracked: bool,
    /// What was left out or is not quite the same, and why.
    pub notes: Vec<String>,
}

impl fmt::Display for Imported {
    /// As a section of a chain file, for an NF of the name `firewall`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "# {note}")?;
        }
        writeln!(f, "[nf.firewall]\nkind = \"firewall\"\nrules = [")?;
        for rule in &self.rules {
            writeln!(f, "  {rule:?},")?;
        }
        writeln!(f, "]\ndefault = \"{}\"", if self.accepts { "accept" } else { "drop" })?;
        if self.tracked {
            writeln!(f, "track = {{}}")?;
        }
        Ok(())
    }
}

/// A word that cannot be said in rules of the firewall.
fn refused(line: Option<usize>, word: impl fmt::Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic { line, ..Diagnostic::new(problem).value(word).remedy(remedy) }
}

#[cfg(test)]
mod tests;
