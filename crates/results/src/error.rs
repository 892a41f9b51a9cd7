//! Errors of a database of results.

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum Error {
    /// The location of the database is unknown.
    #[error("no database of results: set BONDSTONE_DB to a file, or HOME to a folder")]
    NoLocation,
    /// The folder of the file cannot be created.
    #[error("{}: cannot create the folder: {reason}; set BONDSTONE_DB to another file", folder.display())]
    Folder { folder: PathBuf, reason: io::Error },
    /// The file cannot be opened.
    #[error("{}: cannot open: {reason}; check that it is a file in a writable folder", file.display())]
    Open { file: PathBuf, reason: rusqlite::Error },
    /// The file cannot be written.
    #[error(
        "{}: read-only; make the file and its folder writable, or set BONDSTONE_DB to another file",
        file.display()
    )]
    ReadOnly { file: PathBuf },
    /// The file is not a SQLite database.
    #[error("{}: not a database; it was not changed; name another file", file.display())]
    NotADatabase { file: PathBuf },
    /// The database belongs to another program.
    #[error("{}: a database of another program; it was not changed; name another file", file.display())]
    Foreign { file: PathBuf },
    /// The database was written by a newer program.
    #[error(
        "{}: version {found} is not supported, the newest supported is {supported}; use the program that wrote it, or \
         another file",
        file.display()
    )]
    Newer { file: PathBuf, found: i64, supported: i64 },
    /// Another program locks the database for too long.
    #[error(
        "{}: locked by another program for more than {seconds} s; wait for it, or stop it",
        file.display()
    )]
    Locked { file: PathBuf, seconds: u64 },
    /// The disk is full.
    #[error("{}: the disk is full; nothing was added; free some space and retry", file.display())]
    Full { file: PathBuf },
    /// The file is damaged.
    #[error(
        "{}: damaged: {reason}; restore a backup, or recover readable data with sqlite3 FILE .recover",
        file.display()
    )]
    Damaged { file: PathBuf, reason: String },
    /// A document in the database was changed.
    #[error("{}: the document {id} was changed: {reason}; delete it and add the original", file.display())]
    Changed { file: PathBuf, id: String, reason: report::Error },
    /// The document is invalid.
    #[error("not added: {0}")]
    Refused(#[from] report::Error),
    /// The URL is not one of PostgreSQL.
    #[error("{location}: not a PostgreSQL URL: {reason}; use postgres://USER@HOST/DATABASE")]
    Url { location: String, reason: String },
    /// A command line contains a password.
    #[error(
        "{location}: a password on the command line is readable by all users of this host; leave it out, and write it \
         into ~/.pgpass or $PGPASSFILE as HOST:PORT:DATABASE:USER:PASSWORD, or set PGPASSWORD"
    )]
    PasswordInArgument { location: String },
    /// The server cannot be reached, or refuses this user.
    #[error("{location}: cannot connect: {reason}; check with `psql {location}`")]
    Unreachable { location: String, reason: String },
    /// The user lacks a privilege.
    #[error(
        "{location}: not allowed: {reason}; ask the owner of the database for the privilege, or set BONDSTONE_DB to \
         another"
    )]
    Forbidden { location: String, reason: String },
    /// Any other error of a server.
    #[error("{location}: {reason}")]
    Server { location: String, reason: String },
    /// A column contains a value of another type.
    #[error("the database is damaged: column {column} contains {found}, expected {expected}; restore a backup")]
    Column { column: usize, found: String, expected: String },
    /// An invalid filter.
    #[error("{value}: {problem}")]
    Filter { value: String, problem: String },
    /// An invalid tag.
    #[error("tag {tag}: {problem}")]
    Tag { tag: String, problem: String },
    /// A file that cannot be imported.
    #[error("{}{path}: {problem}", file.display())]
    Import { file: PathBuf, path: String, problem: String },
    /// The result does not exist.
    #[error("{id}: no such result; `bondstone results list` lists them")]
    NoResult { id: String },
    /// Any other error of SQLite.
    #[error("{}: {reason}", file.display())]
    Other { file: PathBuf, reason: rusqlite::Error },
}

/// Time to wait for a lock of another program, seconds.
pub(crate) const LOCK_TIMEOUT_S: u64 = 10;

impl Error {
    /// Classifies an error of SQLite by its remedy.
    pub(crate) fn from_sqlite(file: &Path, reason: rusqlite::Error) -> Self {
        let file = file.to_owned();
        match reason.sqlite_error_code() {
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly { file },
            Some(ErrorCode::NotADatabase) => Error::NotADatabase { file },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::Locked { file, seconds: LOCK_TIMEOUT_S }
            }
            Some(ErrorCode::DiskFull) => Error::Full { file },
            Some(ErrorCode::DatabaseCorrupt) => Error::Damaged { file, reason: reason.to_string() },
            Some(ErrorCode::CannotOpen) => Error::Open { file, reason },
            None if is_wrong_type(&reason) => Error::Damaged { file, reason: reason.to_string() },
            _ => Error::Other { file, reason },
        }
    }

    /// Returns true if the input is invalid: a name, a file or its content. Otherwise the environment is the cause.
    pub fn is_input(&self) -> bool {
        match self {
            Error::NotADatabase { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::Damaged { .. }
            | Error::Changed { .. }
            | Error::Refused(_)
            | Error::Url { .. }
            | Error::PasswordInArgument { .. }
            | Error::Column { .. }
            | Error::Filter { .. }
            | Error::Tag { .. }
            | Error::Import { .. }
            | Error::NoResult { .. } => true,
            Error::NoLocation
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

    /// Returns true if another program holds a lock.
    pub(crate) fn is_busy(reason: &rusqlite::Error) -> bool {
        matches!(reason.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// Returns true if a value in the file has an unexpected type.
fn is_wrong_type(reason: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(reason, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn sqlite_errors_have_a_remedy() {
        let error = |code| {
            Error::from_sqlite(Path::new("/x/y.sqlite"), rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
        };
        for (code, expected) in [
            (ffi::SQLITE_READONLY, "read-only; make"),
            (ffi::SQLITE_READONLY_DIRECTORY, "read-only; make"),
            (ffi::SQLITE_PERM, "read-only; make"),
            (ffi::SQLITE_NOTADB, "not a database; it"),
            (ffi::SQLITE_BUSY, "locked by another program"),
            (ffi::SQLITE_FULL, "full; nothing was added; free"),
            (ffi::SQLITE_CORRUPT, "damaged: "),
            (ffi::SQLITE_CANTOPEN, "cannot open: "),
            (ffi::SQLITE_IOERR, "I/O"),
        ] {
            let message = error(code).to_string();
            assert!(message.starts_with("/x/y.sqlite: ") && message.contains(expected), "{message}");
        }
    }
}
