//! Port lists of NFs with several equal ports.

use diagnostics::Diagnostic;

/// Checks a list of 2 to `max` distinct ports. `problem` is the message for another number of ports.
///
/// # Errors
/// The number of ports is invalid, or a port occurs twice.
pub(crate) fn check(ports: &[String], max: usize, problem: &'static str) -> Result<(), Diagnostic> {
    if !(2..=max).contains(&ports.len()) {
        let d = Diagnostic::new(problem).key("ports").value(ports.len());
        return Err(d.remedy("write ports = [\"a\", \"b\"], with names of ports of the file"));
    }
    if let Some(n) = (1..ports.len()).find(|&n| ports[..n].contains(&ports[n])) {
        let d = Diagnostic::new("is listed twice").key("ports").value(&ports[n]);
        return Err(d.remedy("write each port once"));
    }
    Ok(())
}
