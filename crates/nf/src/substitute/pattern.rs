//! Byte strings in settings.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::fmt::Write;

/// A byte string, written as text in which `\xNN` is the byte NN and `\\` is `\`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(pub(super) Vec<u8>);

impl Pattern {
    fn parse(text: &str) -> Option<Vec<u8>> {
        let (mut bytes, mut rest) = (vec![], text.as_bytes());
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            if byte != b'\\' {
                bytes.push(byte);
                continue;
            }
            match *rest {
                [b'\\', ..] => (bytes.push(b'\\'), rest = &rest[1..]).1,
                [b'x', high, low, ..] => {
                    let digit = |byte: u8| char::from(byte).to_digit(16);
                    bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                    rest = &rest[3..];
                }
                _ => return None,
            }
        }
        Some(bytes)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(d)?;
        Self::parse(&text).map(Pattern).ok_or_else(|| {
            Error::custom(format!("invalid value: {text:?} has a \\ that begins neither \\xNN nor \\\\"))
        })
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for byte in &self.0 {
            match byte {
                b'\\' => text.push_str("\\\\"),
                b' '..=b'~' => text.push(char::from(*byte)),
                _ => write!(text, "\\x{byte:02x}").map_err(serde::ser::Error::custom)?,
            }
        }
        s.serialize_str(&text)
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
