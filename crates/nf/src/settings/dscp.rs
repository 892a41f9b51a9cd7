//! Code points of differentiated services.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A code point of differentiated services (RFC 2474): a number from 0 to 63, or a name such as `"ef"` or `"af11"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Text", into = "u8")]
#[schemars(with = "Text")]
pub(crate) struct Dscp(u8);

/// Number or name in settings.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Text {
    Number(u64),
    Name(String),
}

impl Dscp {
    /// Returns the number, 0 to 63.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// Returns the code point with this name.
    fn from_name(name: &str) -> Option<Dscp> {
        let digit = |text: &str, most: u8| text.parse().ok().filter(|n: &u8| text.len() == 1 && *n <= most);
        let name = name.to_ascii_lowercase();
        let number = match name.as_str() {
            "be" | "df" => 0, // best effort, default forwarding
            "ef" => 46,       // RFC 3246
            "va" => 44,       // VOICE-ADMIT, RFC 5865
            "le" => 1,        // lower effort, RFC 8622
            _ => match name.split_at_checked(2)? {
                ("cs", class) => digit(class, 7)? << 3, // RFC 2474
                ("af", rest) => {
                    // RFC 2597
                    let (class, precedence) = rest.split_at_checked(1)?;
                    let (class, precedence) = (digit(class, 4)?, digit(precedence, 3)?);
                    if class == 0 || precedence == 0 {
                        return None;
                    }
                    class << 3 | precedence << 1
                }
                _ => return None,
            },
        };
        Some(Dscp(number))
    }
}

impl TryFrom<Text> for Dscp {
    type Error = String;

    fn try_from(text: Text) -> Result<Dscp, String> {
        let dscp = match &text {
            Text::Number(number) => u8::try_from(*number).ok().filter(|number| *number < 64).map(Dscp),
            Text::Name(name) => Dscp::from_name(name),
        };
        let text = match text {
            Text::Number(number) => number.to_string(),
            Text::Name(name) => format!("{name:?}"),
        };
        dscp.ok_or(format!(
            "invalid value: {text} is not a DSCP, expected 0 to 63, or one of be, ef, va, le, cs0 to cs7, af11 to af43"
        ))
    }
}

impl From<Dscp> for u8 {
    fn from(dscp: Dscp) -> u8 {
        dscp.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_of_the_registry() {
        let all = [
            ("be", 0),
            ("le", 1),
            ("cs1", 8),
            ("cs3", 24),
            ("cs7", 56),
            ("af11", 10),
            ("AF12", 12),
            ("AF41", 34),
            ("af43", 38),
            ("ef", 46),
            ("va", 44),
        ];
        for (name, number) in all {
            assert_eq!(Dscp::from_name(name), Some(Dscp(number)), "{name}");
        }
        for name in ["", "a", "c", "cs8", "cs", "af", "af10", "af44", "af51", "af111", "af1", "é", "ééé", "aé1", "cs+1"]
        {
            assert_eq!(Dscp::from_name(name), None, "{name}");
        }
        assert!(Dscp::try_from(Text::Number(63)).is_ok() && Dscp::try_from(Text::Number(64)).is_err());
    }
}
