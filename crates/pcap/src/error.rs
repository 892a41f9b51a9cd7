//! Errors of reading and writing captures.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::MAX_FRAME;

/// The file an error is about; shown as `capture` when a stream without a name is read or written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileName(Option<PathBuf>);

impl FileName {
    /// Returns the path, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

impl From<&Path> for FileName {
    fn from(path: &Path) -> Self {
        Self(Some(path.to_owned()))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => path.display().fmt(f),
            None => f.write_str("capture"),
        }
    }
}

/// Error of reading or writing a capture.
///
/// Offsets are bytes from the start of the capture, after decompression, and point at the record or block at fault.
/// `record` counts from 1; `records_read` is how many were returned before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields have the same few names throughout, told above and by the messages")]
pub enum Error {
    /// The file could not be opened for reading.
    #[error("{file}: cannot open: {reason}")]
    Open { file: FileName, reason: io::Error },
    /// The file could not be created.
    #[error("{file}: cannot create: {reason}")]
    Create { file: FileName, reason: io::Error },
    /// The operating system failed a read.
    #[error("{file}: cannot read at byte {offset}, after {records_read} records: {reason}")]
    Read { file: FileName, offset: u64, records_read: u64, reason: io::Error },
    /// The compressed data is damaged.
    #[error(
        "{file}: damaged gzip data after {records_read} records: {reason}; the records before are good, for the rest \
         fetch the file again"
    )]
    Gzip { file: FileName, offset: u64, records_read: u64, reason: io::Error },
    /// Not a capture, or a format that this crate does not read.
    #[error("{file}: {problem}; {remedy}")]
    Format { file: FileName, offset: u64, problem: String, remedy: &'static str },
    /// The capture ends in the middle of a header, block or record. What came before is good.
    #[error(
        "{file}: cut short in the record or block at byte {offset}, after {records_read} complete records; they can be \
         used, the rest was never written or was lost in copying"
    )]
    Truncated { file: FileName, offset: u64, records_read: u64 },
    /// A frame is longer than [`MAX_FRAME`]: a damaged file, or a capture this crate does not serve.
    #[error(
        "{file}: record {record} at byte {offset} claims a frame of {length} bytes, the limit is {MAX_FRAME}; if the \
         file is not damaged, shorten its frames: editcap -s {MAX_FRAME} IN OUT"
    )]
    FrameTooLong { file: FileName, record: u64, offset: u64, length: u32 },
    /// The file violates its format.
    #[error("{file}: damaged at byte {offset}, after {records_read} records: {problem}")]
    Corrupt { file: FileName, offset: u64, records_read: u64, problem: String },
    /// The record cannot be expressed in the file; nothing was written, the writer can go on.
    #[error("{file}: record {record} not written: {problem}")]
    Refused { file: FileName, record: u64, problem: String },
    /// The operating system failed a write. Records are buffered: up to 256 KiB of them before this one
    /// may be lost ([`Writer::lost`](crate::Writer::lost)).
    #[error("{file}: cannot write, at record {record}: {reason}")]
    Write { file: FileName, record: u64, reason: io::Error },
}

impl Error {
    /// Returns the file the error is about.
    pub fn file(&self) -> &FileName {
        match self {
            Self::Open { file, .. }
            | Self::Create { file, .. }
            | Self::Read { file, .. }
            | Self::Gzip { file, .. }
            | Self::Format { file, .. }
            | Self::Truncated { file, .. }
            | Self::FrameTooLong { file, .. }
            | Self::Corrupt { file, .. }
            | Self::Refused { file, .. }
            | Self::Write { file, .. } => file,
        }
    }
}

/// An error without file, offset and record, which the reader adds.
#[derive(Debug)]
pub(crate) enum Fault {
    Read(io::Error),
    Gzip(io::Error),
    /// The input ends inside a header, block or record.
    Cut,
    /// Captured length, bytes.
    TooLong(u32),
    Corrupt(String),
    Format {
        problem: String,
        remedy: &'static str,
    },
}
