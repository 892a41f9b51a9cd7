//! Reading, verifying and identifying documents.

use crate::content_hash::{canonical, content_hash};
use crate::{Error, Result, Version, check, limit};
use serde::Deserialize;
use serde_json::Value;

/// A document with a valid id, and its text.
///
/// The text contains members that are unknown to this version and missing in [`Result`], and keeps the version of the
/// format in which it was written: store and forward the text, not the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    result: Result,
    text: String,
}

impl Document {
    /// Parses a document of any [readable version](Version::READABLE). Unknown members stay in the text and are covered
    /// by the id.
    ///
    /// # Errors
    /// If the text is too long, not JSON, not a result of a readable version, contains impossible values, or its id is
    /// not the hash of its content.
    pub fn read(text: &str) -> std::result::Result<Self, Error> {
        let (result, value) = parse(text)?;
        let expected = content_hash(&value);
        if result.id != expected {
            return Err(Error::Id { found: result.id.escape_debug().to_string(), expected });
        }
        Ok(Document { result, text: canonical(&value) })
    }

    /// Returns the result.
    pub fn result(&self) -> &Result {
        &self.result
    }

    /// Returns the result.
    pub fn into_result(self) -> Result {
        self.result
    }

    /// Returns the text in canonical form (RFC 8785).
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Result {
    /// Parses a document without checking its id.
    ///
    /// # Errors
    /// As [`Document::read`], except for the id.
    pub fn read_draft(text: &str) -> std::result::Result<Self, Error> {
        parse(text).map(|(result, _)| result)
    }

    /// Checks the values and sets the id to the content hash.
    ///
    /// # Errors
    /// As [`Result::check`].
    pub fn assign_id(&mut self) -> std::result::Result<(), Error> {
        self.check()?;
        self.id = content_hash(&self.value()?);
        Ok(())
    }

    /// Checks the values and the id, and returns the document.
    ///
    /// # Errors
    /// As [`Result::check`]; if the result was changed after [`Result::assign_id`], or parsed from a text of an older
    /// version or with unknown members (see [`Document`]).
    pub fn verify(&self) -> std::result::Result<Document, Error> {
        self.check()?;
        let value = self.value()?;
        let expected = content_hash(&value);
        if self.id != expected {
            return Err(Error::Id { found: self.id.escape_debug().to_string(), expected });
        }
        Ok(Document { result: self.clone(), text: canonical(&value) })
    }

    fn value(&self) -> std::result::Result<Value, Error> {
        serde_json::to_value(self).map_err(|e| Error::value("document", e, "cannot be serialised"))
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
    struct Header {
        schema: String,
    }
    let header: Header = serde_json::from_str(text).map_err(shape_error)?;
    if !Version::READABLE.contains(&header.schema.as_str()) {
        let found = header.schema.chars().take(80).collect::<String>().escape_debug().to_string();
        return Err(Error::Version { found });
    }
    let result: Result = serde_json::from_str(text).map_err(shape_error)?;
    let value = serde_json::from_str(text).map_err(shape_error)?;
    check::check_values(&value)?;
    result.check_consistency()?;
    Ok((result, value))
}

fn shape_error(e: serde_json::Error) -> Error {
    let (line, column) = (e.line(), e.column());
    let problem = e.to_string();
    let position = format!(" at line {line} column {column}");
    let problem = problem.strip_suffix(&position).unwrap_or(&problem);
    Error::Shape { line, column, problem: problem.chars().take(400).collect::<String>().escape_debug().to_string() }
}
