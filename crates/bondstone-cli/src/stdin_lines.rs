//! Arguments that may be read from standard input.

use anyhow::Context as _;
use control::MAX_LINE_LEN;
use diagnostics::{Diagnostic, Diagnostics};
use std::io::Read as _;

/// Returns the arguments, or the lines of standard input without comments.
pub(crate) fn lines(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    if arguments != ["-"] {
        return Ok(arguments.to_vec());
    }
    let mut text = String::new();
    std::io::stdin().take(MAX_LINE_LEN as u64).read_to_string(&mut text).context("standard input")?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(Diagnostics(vec![
            Diagnostic::new("standard input has no lines").remedy("write one rule, route or prefix per line"),
        ])
        .into());
    }
    Ok(lines)
}
