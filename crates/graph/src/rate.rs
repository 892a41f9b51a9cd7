//! Rates in packets or bits per second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A limit per second, written as `"500 kpps"`, `"1.5 Mpps"` or `"10 Gbps"`.
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
    pub const REMEDY: &str = "write packets or bits per second, such as \"500 kpps\", \"1.5 Mpps\" or \"10 Gbps\"";
}

impl FromStr for Rate {
    type Err = InvalidRate;

    /// Parses a rate such as `500 kpps`, `1.5Mpps`, `2 Gbit`, `10 Gbps` or `10 Gbit/s`.
    fn from_str(text: &str) -> Result<Rate, InvalidRate> {
        let (number, unit) = scaled(text).ok_or(InvalidRate)?;
        match (unit, number) {
            ("pps" | "packets/s", rate) if (1.0..=1e10).contains(&rate) => Ok(Rate::Packets(rate)),
            ("bit" | "bps" | "bit/s" | "bits/s" | "b/s", rate) if (1e3..=1e13).contains(&rate) => Ok(Rate::Bits(rate)),
            _ => Err(InvalidRate),
        }
    }
}

impl Rate {
    /// Parses packets per second: a number, or a rate with a unit.
    #[must_use]
    pub fn packets_per_second(text: &str) -> Option<f64> {
        match (text.trim().parse(), text.parse()) {
            (Ok(number), _) => Some(number),
            (_, Ok(Rate::Packets(rate))) => Some(rate),
            _ => None,
        }
    }

    /// Parses bits per second: a number, which may have a prefix as in `10G`, or a rate with a unit.
    #[must_use]
    pub fn bits_per_second(text: &str) -> Option<f64> {
        match (scaled(text), text.parse()) {
            (Some((number, "")), _) => Some(number),
            (_, Ok(Rate::Bits(rate))) => Some(rate),
            _ => None,
        }
    }
}

/// Splits a number from its unit, and multiplies it by the prefix of the unit: k, M, G or T.
fn scaled(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    // the longest prefix that is a number, so that an exponent is not parsed as unit
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).rev().filter(|end| *end <= 32);
    let (number, unit) =
        ends.map(|end| text.split_at(end)).find_map(|(n, u)| Some((n.parse::<f64>().ok()?, u.trim())))?;
    let factor = match unit.chars().next() {
        Some('k' | 'K') => 1e3,
        Some('M') => 1e6,
        Some('G' | 'g') => 1e9,
        Some('T') => 1e12,
        _ => return Some((number, unit)),
    };
    Some((number * factor, &unit[1..]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_rates_in_all_common_notations() {
        for text in ["10 Gbit", "10 Gbps", "10Gbit/s", "10 Gb/s", "1e10 bit/s", "10000 Mbps", "0.01 Tbit/s"] {
            assert_eq!(text.parse(), Ok(Rate::Bits(1e10)), "{text}");
            assert_eq!(Rate::bits_per_second(text), Some(1e10), "{text}");
        }
        for text in ["1.5 Mpps", "1500kpps", "1.5e6 pps", "1.5 Mpackets/s"] {
            assert_eq!(text.parse(), Ok(Rate::Packets(1.5e6)), "{text}");
            assert_eq!(Rate::packets_per_second(text), Some(1.5e6), "{text}");
        }
        assert_eq!((Rate::bits_per_second("10G"), Rate::bits_per_second("1e10")), (Some(1e10), Some(1e10)));
        assert_eq!(Rate::packets_per_second("2000"), Some(2000.0));
        for text in ["", "fast", "10", "10 G", "0 pps", "-1 Mpps", "10 Gbytes/s", "NaN pps", "inf bps", "1 µbps"] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
        assert_eq!((Rate::packets_per_second("1 Gbps"), Rate::bits_per_second("1 Mpps")), (None, None));
    }
}
