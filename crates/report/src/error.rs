//! What can be wrong with a document.

use crate::limit;

/// Why a document was not read, sealed or believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are told by the messages")]
pub enum Error {
    /// The text is longer than [`limit::DOCUMENT_BYTES`].
    #[error(
        "the document has {bytes} bytes, at most {} are read; keep fewer trials or coarser histograms",
        limit::DOCUMENT_BYTES
    )]
    TooLong { bytes: usize },
    /// The text holds more than [`limit::VALUES`] values.
    #[error("the document has about {values} values, at most {} are read; keep fewer trials", limit::VALUES)]
    TooMany { values: usize },
    /// The text is not JSON, or not of the shape of a result.
    #[error("line {line}, column {column}: {problem}")]
    Shape { line: usize, column: usize, problem: String },
    /// The text says that it is something else, or another version.
    #[error(
        "the document says schema `{found}`, this program reads `bondstone.result/1`; read it with the program that wrote \
         it, or a newer one"
    )]
    Version { found: String },
    /// A value that cannot be.
    #[error("{place}: {value}: {problem}")]
    Value { place: String, value: String, problem: String },
    /// The content is not what the id stands for.
    #[error(
        "the id is {found}, the content has {expected}: it was changed after it was sealed; take the original, or \
         measure again"
    )]
    Id { found: String, expected: String },
}

impl Error {
    pub(crate) fn value(place: impl Into<String>, value: impl ToString, problem: impl Into<String>) -> Self {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(80) {
            value.truncate(end);
            value.push('…');
        }
        Error::Value { place: place.into(), value: value.escape_debug().to_string(), problem: problem.into() }
    }
}
