//! Differentiated services code points in settings.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// A code point: a name of RFC 2474, RFC 2597, RFC 3246, RFC 5865 or RFC 8622, or a number of 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(with = "Written")]
pub(super) struct Dscp(u8);

/// The code point as written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the schema needs the types")]
enum Written {
    Name(String),
    Number(u8),
}

impl Dscp {
    /// Returns the number.
    pub(super) fn value(self) -> u8 {
        self.0
    }

    fn from_name(name: &str) -> Option<u8> {
        let digit = |text: &str, range: core::ops::RangeInclusive<u8>| {
            text.parse().ok().filter(|number| range.contains(number) && text.len() == 1)
        };
        match name.to_ascii_lowercase().as_str() {
            "be" | "df" => Some(0),
            "ef" => Some(46),
            "va" => Some(44),
            "le" => Some(1),
            name => match (name.get(..2)?, name.get(2..)?) {
                ("cs", class) => digit(class, 0..=7).map(|class| class * 8),
                ("af", classes) => {
                    let (class, precedence) = (digit(classes.get(..1)?, 1..=4)?, digit(classes.get(1..)?, 1..=3)?);
                    Some(class * 8 + precedence * 2)
                }
                _ => None,
            },
        }
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match Written::deserialize(deserializer)? {
            Written::Name(name) => Dscp::from_name(&name).ok_or_else(|| {
                D::Error::custom(format!(
                    "{name} is no code point; write ef, af11 to af43, cs0 to cs7, be, le, va or 0 to 63"
                ))
            })?,
            Written::Number(number) => number,
        };
        if number > 63 {
            return Err(D::Error::custom(format!("{number} is no code point; write 0 to 63")));
        }
        Ok(Dscp(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_rfcs() {
        let known = [("ef", 46), ("AF41", 34), ("af11", 10), ("cs3", 24), ("be", 0), ("le", 1), ("va", 44)];
        for (name, number) in known {
            assert_eq!(Dscp::from_name(name), Some(number));
        }
        for name in ["", "a", "af", "af44", "af51", "cs8", "cs", "cs+1", "ééé"] {
            assert_eq!(Dscp::from_name(name), None, "{name}");
        }
    }
}
