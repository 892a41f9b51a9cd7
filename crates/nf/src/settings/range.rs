//! Ranges of numbers.

use diagnostics::Diagnostic;

/// Returns the number of a setting that is in a range; `name` names it in the message.
///
/// # Errors
/// It is out of the range.
pub(crate) fn in_range(
    value: u64,
    range: std::ops::RangeInclusive<u64>,
    key: &'static str,
    name: &str,
) -> Result<u64, Diagnostic> {
    if range.contains(&value) {
        return Ok(value);
    }
    let d = Diagnostic::new(format!("{name} is out of range")).key(key).value(value);
    Err(d.remedy(format!("write {} to {}", range.start(), range.end())))
}
