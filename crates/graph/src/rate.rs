//! Rates in packets or bits per second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A limit per second, written as `"500 kpps"`, `"1.5 Mpps"` or `"2 Gbit"`.
///
/// ```
/// use graph::Rate;
///
/// assert_eq!("1.5 Mpps".parse(), Ok(Rate::Packets(1_500_000.0)));
/// assert_eq!("2Gbit".parse(), Ok(Rate::Bits(2e9)));
/// assert!("fast".parse::<Rate>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Rate {
    /// Packets, 1 to 10¹⁰.
    Packets(f64),
    /// Bits of frames without FCS, 10³ to 10¹³.
    Bits(f64),
}

/// Error of parsing a [`Rate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is not a rate: {}", InvalidRate::REMEDY)]
pub struct InvalidRate;

impl InvalidRate {
    /// The remedy of a [`Diagnostic`](diagnostics::Diagnostic).
    pub const REMEDY: &str = "write packets or bits per second, such as \"500 kpps\", \"1.5 Mpps\" or \"2 Gbit\"";
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Rate, InvalidRate> {
        let at = text.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or(InvalidRate)?;
        let number: f64 = text[..at].parse().map_err(|_| InvalidRate)?;
        let (factor, unit) = match text[at..].trim() {
            unit @ ("pps" | "bit") => (1.0, unit),
            unit => {
                let factor = match unit.chars().next() {
                    Some('k') => 1e3,
                    Some('M') => 1e6,
                    Some('G') => 1e9,
                    _ => return Err(InvalidRate),
                };
                (factor, &unit[1..])
            }
        };
        match (unit, number * factor) {
            ("pps", rate) if (1.0..=1e10).contains(&rate) => Ok(Rate::Packets(rate)),
            ("bit", rate) if (1e3..=1e13).contains(&rate) => Ok(Rate::Bits(rate)),
            _ => Err(InvalidRate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Packets(rate) => write!(f, "{rate} pps"),
            Rate::Bits(rate) => write!(f, "{rate} bit"),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = InvalidRate;

    fn try_from(text: String) -> Result<Rate, InvalidRate> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}
