//! NFs that have several ports alike.

use diagnostics::Diagnostic;

/// Ports that one may have: inputs are counted in a byte, floods in copies.
pub(crate) const MOST: usize = 30;

/// Whether these are ports for an NF that has several: two to thirty, each once; `problem` is what it says of another number.
///
/// # Errors
/// What is wrong with them, and the remedy.
pub(crate) fn check(ports: &[String], problem: &'static str) -> Result<(), Diagnostic> {
    if !(2..=MOST).contains(&ports.len()) {
        let d = Diagnostic::new(problem).key("ports").value(ports.len());
        return Err(d.remedy("write ports = [\"a\", \"b\"], with the names of ports of the file"));
    }
    if let Some(twice) = (1..ports.len()).find(|&n| ports[..n].contains(&ports[n])) {
        let d = Diagnostic::new("is one of its ports twice").key("ports").value(&ports[twice]);
        return Err(d.remedy("name each port once"));
    }
    Ok(())
}
