//! Port lists of NFs with several equal ports.

use diagnostics::Diagnostic;
use std::ops::RangeInclusive;

/// Checks a list of distinct ports. `problem` is the message for a number of ports out of `range`.
///
/// # Errors
/// The number of ports is invalid, or a port occurs twice.
pub(crate) fn check(ports: &[String], range: RangeInclusive<usize>, problem: &'static str) -> Result<(), Diagnostic> {
    if !range.contains(&ports.len()) {
        let d = Diagnostic::new(problem).key("ports").value(ports.len());
        return Err(d.remedy("write ports = [\"a\", \"b\"], with names of ports of the file"));
    }
    if let Some(n) = (1..ports.len()).find(|&n| ports[..n].contains(&ports[n])) {
        let d = Diagnostic::new("is listed twice").key("ports").value(&ports[n]);
        return Err(d.remedy("write each port once"));
    }
    Ok(())
}
