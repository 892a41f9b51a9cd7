//! Errors in documents.

use crate::limit;

/// Why a document was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum Error {
    /// The text is longer than [`limit::DOCUMENT_BYTES`].
    #[error(
        "the document has {bytes} bytes, the limit is {}; keep fewer trials or coarser histograms",
        limit::DOCUMENT_BYTES
    )]
    TooLong { bytes: usize },
    /// The text contains more than [`limit::VALUES`] values.
    #[error("the document has about {values} values, the limit is {}; keep fewer trials", limit::VALUES)]
    TooMany { values: usize },
    /// The text is not JSON, or does not have the shape of a result.
    #[error("line {line}, column {column}: {problem}")]
    Shape { line: usize, column: usize, problem: String },
    /// Another schema or version.
    #[error(
        "unsupported schema `{found}`: this version reads `bondstone.result/1` and `bondstone.result/2`; read it with \
         the program that wrote it, or a newer one"
    )]
    Version { found: String },
    /// An invalid value.
    #[error("{path}: {value}: {problem}")]
    Value { path: String, value: String, problem: String },
    /// The id is not the hash of the content.
    #[error(
        "the id is {found}, but the content hash is {expected}: the document was changed; use the original, or repeat \
         the measurement"
    )]
    Id { found: String, expected: String },
}

impl Error {
    pub(crate) fn value(path: impl Into<String>, value: impl ToString, problem: impl Into<String>) -> Self {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(80) {
            value.truncate(end);
            value.push('…');
        }
        Error::Value { path: path.into(), value: value.escape_debug().to_string(), problem: problem.into() }
    }
}
