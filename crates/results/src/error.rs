//! What can go wrong with a database.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// Why results were not kept or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are told by the messages")]
pub enum Error {
    /// Nothing says where results are to be kept.
    #[error("no place for results: set BONDSTONE_DB to a file, or HOME to a folder")]
    NoPlace,
    /// The folder of the file cannot be made.
    #[error("{}: cannot make the folder: {reason}; name another file with BONDSTONE_DB", folder.display())]
    Folder { folder: PathBuf, reason: io::Error },
    /// The file cannot be opened.
    #[error("{}: cannot open: {reason}; see that it is a file in a folder that you may write in", file.display())]
    Open { file: PathBuf, reason: rusqlite::Error },
    /// The file cannot be written.
    #[error(
        "{}: read-only; allow yourself to write to the file and its folder, or name another with BONDSTONE_DB",
        file.display()
    )]
    ReadOnly { file: PathBuf },
    /// The file is none of SQLite.
    #[error("{}: not a database; name another file, this one was left as it is", file.display())]
    NotADatabase { file: PathBuf },
    /// The database belongs to another program.
    #[error("{}: a database, but not of results; name another file, this one was left as it is", file.display())]
    Foreign { file: PathBuf },
    /// The database was written by a newer program.
    #[error(
        "{}: of version {found}, this program knows up to {known}; use the program that wrote it, or another file",
        file.display()
    )]
    Newer { file: PathBuf, found: i64, known: i64 },
    /// Another program holds the database for too long.
    #[error(
        "{}: locked by another program for longer than {seconds} s; wait until it is done, or end it",
        file.display()
    )]
    Locked { file: PathBuf, seconds: u64 },
    /// No space is left.
    #[error("{}: the disk is full; nothing was added; free some space and try again", file.display())]
    Full { file: PathBuf },
    /// The file is damaged.
    #[error(
        "{}: damaged: {reason}; put a copy in its place, or save what can be read with sqlite3 FILE .recover",
        file.display()
    )]
    Damaged { file: PathBuf, reason: String },
    /// A document in the database is not what was put there.
    #[error("{}: the document {id} was changed: {reason}; delete it, and add the original", file.display())]
    Changed { file: PathBuf, id: String, reason: report::Error },
    /// The document is not fit to be kept.
    #[error("not added: {0}")]
    Refused(#[from] report::Error),
    /// A URL that is none of PostgreSQL.
    #[error("{place}: not the URL of a PostgreSQL database: {reason}; write it as postgres://USER@HOST/DATABASE")]
    Url { place: String, reason: String },
    /// The server is not there, or lets this user not in.
    #[error(
        "{place}: cannot connect: {reason}; see that the server runs, has the database, and lets this user in (psql {place})"
    )]
    Unreachable { place: String, reason: String },
    /// The server does not allow it.
    #[error("{place}: not allowed: {reason}; let the database's owner grant it, or name another with BONDSTONE_DB")]
    Forbidden { place: String, reason: String },
    /// Anything else that a server reports.
    #[error("{place}: {reason}")]
    Server { place: String, reason: String },
    /// A column holds what was not put there.
    #[error("the database is damaged: column {column} holds {found}, not {wanted}; put a copy in its place")]
    Column { column: usize, found: String, wanted: String },
    /// A filter that cannot be read.
    #[error("{value}: {problem}")]
    Filter { value: String, problem: String },
    /// A text that cannot be a tag.
    #[error("tag {tag}: {problem}")]
    Tag { tag: String, problem: String },
    /// A file of another program that cannot be read.
    #[error("{}{place}: {problem}", file.display())]
    Import { file: PathBuf, place: String, problem: String },
    /// There is no such result.
    #[error("{id}: no such result; `bondstone results list` shows those there are")]
    NoResult { id: String },
    /// Anything else that SQLite reports.
    #[error("{}: {reason}", file.display())]
    Other { file: PathBuf, reason: rusqlite::Error },
}

/// Seconds that a lock of another program is waited for.
pub(crate) const PATIENCE_S: u64 = 10;

impl Error {
    /// What SQLite reports about a file, by what can be done about it.
    pub(crate) fn of(file: &Path, reason: rusqlite::Error) -> Self {
        let file = file.to_owned();
        match reason.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly { file },
            Some(ErrorCode::NotADatabase) => Error::NotADatabase { file },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked { file, seconds: PATIENCE_S },
            Some(ErrorCode::DiskFull) => Error::Full { file },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { file, reason: reason.to_string() },
            Some(ErrorCode::CannotOpen) => Error::Open { file, reason },
            None if is_of_another_type(&reason) => Error::Damaged { file, reason: reason.to_string() },
            _ => Error::Other { file, reason },
        }
    }

    /// Whether what was given is wrong, a name, a file or its content; else the machine or a server is in the way.
    pub fn is_input(&self) -> bool {
        match self {
            Error::NotADatabase { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::Damaged { .. }
            | Error::Changed { .. }
            | Error::Refused(_)
            | Error::Url { .. }
            | Error::Column { .. }
            | Error::Filter { .. }
            | Error::Tag { .. }
            | Error::Import { .. }
            | Error::NoResult { .. } => true,
            Error::NoPlace
            | Error::Folder { .. }
            | Error::Open { .. }
            | Error::ReadOnly { .. }
            | Error::Locked { .. }
            | Error::Full { .. }
            | Error::Unreachable { .. }
            | Error::Forbidden { .. }
            | Error::Server { .. }
            | Error::Other { .. } => false,
        }
    }

    /// Whether another program was in the way.
    pub(crate) fn is_busy(reason: &rusqlite::Error) -> bool {
        matches!(reason.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// Whether a value in the file is none that was put there.
fn is_of_another_type(reason: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(reason, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn what_sqlite_reports_has_a_cure() {
        let of =
            |code| Error::of(Path::new("/x/y.sqlite"), rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for (code, said) in [
            (ffi::SQLITE_READONLY, "read-only; allow"),
            (ffi::SQLITE_READONLY_DIRECTORY, "read-only; allow"),
            (ffi::SQLITE_PERM, "read-only; allow"),
            (ffi::SQLITE_NOTADB, "not a database; name"),
            (ffi::SQLITE_BUSY, "locked by another program"),
            (ffi::SQLITE_FULL, "full; nothing was added; free"),
            (ffi::SQLITE_CORRUPT, "damaged: "),
            (ffi::SQLITE_CANTOPEN, "cannot open: "),
            (ffi::SQLITE_IOERR, "I/O"),
        ] {
            let message = of(code).to_string();
            assert!(message.starts_with("/x/y.sqlite: ") && message.contains(said), "{message}");
        }
    }
}
