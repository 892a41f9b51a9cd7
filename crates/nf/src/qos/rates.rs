//! Rates of settings.

use diagnostics::Diagnostic;
use graph::Rate;

/// Returns a rate of the setting `key` in bits per second.
///
/// # Errors
/// The rate is in packets per second.
pub(super) fn bits_per_second(rate: Rate, key: &'static str, name: &str) -> Result<u64, Diagnostic> {
    match rate {
        Rate::Bits(bits) => Ok(bits as u64),
        Rate::Packets(_) => {
            let d = Diagnostic::new(format!("{name} is in packets per second")).key(key).value(rate);
            Err(d.remedy("write bits per second, such as \"10 Mbps\""))
        }
    }
}
