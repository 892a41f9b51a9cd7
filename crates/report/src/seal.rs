//! The id of a document, and how documents are read.

use crate::{Error, Result, Version, check, limit};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// A document that was read and whose id is right, with its text.
///
/// The text holds members that this version does not know, which [`Result`] does not: pass the text on, not the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    result: Result,
    text: String,
}

impl Document {
    /// Reads a document. Members that are not known are kept in the text and are part of what the id stands for.
    ///
    /// # Errors
    /// When the text is too long, no JSON, no result of this version, holds impossible values, or has another id than
    /// its content.
    pub fn read(text: &str) -> std::result::Result<Self, Error> {
        let (result, value) = parse(text)?;
        let expected = id_of(&value);
        if result.id != expected {
            return Err(Error::Id { found: result.id.escape_debug().to_string(), expected });
        }
        Ok(Document { result, text: canonical(&value) })
    }

    /// What it says.
    pub fn result(&self) -> &Result {
        &self.result
    }

    /// What it says.
    pub fn into_result(self) -> Result {
        self.result
    }

    /// Its text, in canonical form (RFC 8785).
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Result {
    /// Reads a document that is as yet without an id, or whose id is not to be trusted.
    ///
    /// # Errors
    /// As [`Document::read`], but for the id.
    pub fn read_draft(text: &str) -> std::result::Result<Self, Error> {
        parse(text).map(|(result, _)| result)
    }

    /// Checks the document and gives it its id.
    ///
    /// # Errors
    /// As [`Result::check`].
    pub fn seal(&mut self) -> std::result::Result<(), Error> {
        self.check()?;
        self.id = id_of(&self.value()?);
        Ok(())
    }

    /// Checks the document and its id, and gives its text.
    ///
    /// # Errors
    /// As [`Result::check`]; when the content was changed after it was sealed, or read from a text with members that
    /// are not known here (see [`Document`]).
    pub fn verify(&self) -> std::result::Result<Document, Error> {
        self.check()?;
        let value = self.value()?;
        let expected = id_of(&value);
        if self.id != expected {
            return Err(Error::Id { found: self.id.escape_debug().to_string(), expected });
        }
        Ok(Document { result: self.clone(), text: canonical(&value) })
    }

    fn value(&self) -> std::result::Result<Value, Error> {
        serde_json::to_value(self).map_err(|e| Error::value("document", e, "cannot be written"))
    }
}

fn parse(text: &str) -> std::result::Result<(Result, Value), Error> {
    if text.len() > limit::DOCUMENT_BYTES {
        return Err(Error::TooLong { bytes: text.len() });
    }
    let values = text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{')).count();
    if values > limit::VALUES {
        return Err(Error::TooMany { values });
    }
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let head: Head = serde_json::from_str(text).map_err(shape)?;
    if head.schema != Version::V1.name() {
        return Err(Error::Version {
            found: head.schema.chars().take(80).collect::<String>().escape_debug().to_string(),
        });
    }
    let result: Result = serde_json::from_str(text).map_err(shape)?;
    let value = serde_json::from_str(text).map_err(shape)?;
    check::values(&value)?;
    result.agrees()?;
    Ok((result, value))
}

fn shape(e: serde_json::Error) -> Error {
    let (line, column) = (e.line(), e.column());
    let problem = e.to_string();
    let place = format!(" at line {line} column {column}");
    let problem = problem.strip_suffix(&place).unwrap_or(&problem);
    Error::Shape { line, column, problem: problem.chars().take(400).collect::<String>().escape_debug().to_string() }
}

/// The hash of the canonical form without the member `id`.
fn id_of(document: &Value) -> String {
    let mut document = document.clone();
    if let Some(members) = document.as_object_mut() {
        members.remove("id");
    }
    sha256(canonical(&document).as_bytes())
}

/// The canonical form (RFC 8785).
fn canonical(value: &Value) -> String {
    // fails for numbers that are not finite and for keys that are no text; a `Value` has neither
    serde_json_canonicalizer::to_string(value).unwrap_or_default()
}

/// SHA-256, in lower-case hexadecimal: for [`Dut::chain_sha256`](crate::Dut::chain_sha256) and traces.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Whether a text is what [`sha256`] returns.
pub fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_form_is_that_of_rfc_8785() {
        // RFC 8785 §3.2.2 and §3.2.3
        let text = r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let canonical_text = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
            \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(&value), canonical_text);
        // §3.2.3: sorted by UTF-16 code units
        let text = r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let order: String = canonical(&value).chars().filter(|c| ('2'..='7').contains(c) || *c == '1').collect();
        assert_eq!(order, "21467153");
    }

    #[test]
    fn the_hash_is_sha_256() {
        // FIPS 180-4, the example of "abc"
        let hash = sha256(b"abc");
        assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(is_hash(&hash) && !is_hash(&hash[1..]) && !is_hash(&hash.to_uppercase()));
    }
}
