//! The two kinds of databases, behind one way to ask.

mod server;
mod value;

use crate::Error;
use crate::error::PATIENCE_S;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
pub(crate) use server::Server;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
pub(crate) use value::{Row, Value};

/// An open database. Statements have parameters `?1`, `?2`, …, each used in order from the first.
#[derive(Debug)]
pub(crate) enum Backend {
    File(File),
    Server(Server),
}

/// A SQLite file.
#[derive(Debug)]
pub(crate) struct File {
    connection: Connection,
    file: PathBuf,
}

/// Longest text or row, bytes: a document and its columns.
const LONGEST: i32 = report::limit::DOCUMENT_BYTES as i32 + (1 << 20);

impl Backend {
    /// Runs a statement; gives the number of rows that it changed.
    pub(crate) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Error> {
        match self {
            Backend::File(f) => {
                let run = || f.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values));
                run().map(|n| n as u64).map_err(|reason| f.fail(reason))
            }
            Backend::Server(s) => s.execute(sql, values),
        }
    }

    /// The rows that a statement finds.
    pub(crate) fn query(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, Error> {
        match self {
            Backend::File(f) => f.query(sql, values).map_err(|reason| f.fail(reason)),
            Backend::Server(s) => s.query(sql, values),
        }
    }

    /// Runs statements without parameters.
    pub(crate) fn batch(&self, sql: &str) -> Result<(), Error> {
        match self {
            Backend::File(f) => f.connection.execute_batch(sql).map_err(|reason| f.fail(reason)),
            Backend::Server(s) => s.batch(sql),
        }
    }

    /// All or nothing of `work`. In SQLite the one writer is taken at once, so that `work` is not refused half way.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.batch(match self {
            Backend::File(_) => "BEGIN IMMEDIATE",
            Backend::Server(_) => "BEGIN",
        })?;
        let done = work().and_then(|value| self.batch("COMMIT").map(|()| value));
        if done.is_err() {
            // a full disk has rolled back already; the first error is what counts
            let _ = self.batch("ROLLBACK");
        }
        done
    }
}

impl File {
    /// Opens a file, and makes it and its folder when it is not there.
    pub(crate) fn open(file: &Path) -> Result<File, Error> {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|reason| Error::Folder { folder: folder.to_owned(), reason })?;
        }
        let fail = |reason| Error::of(file, reason);
        // without SQLITE_OPEN_URI: a file may be named as it likes
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(PATIENCE_S)).map_err(fail)?;
        if connection.is_readonly("main").map_err(fail)? {
            return Err(Error::ReadOnly { file: file.to_owned() });
        }
        guard(&connection).map_err(fail)?;
        Ok(File { connection, file: file.to_owned() })
    }

    /// What is set once the tables are known to be ours.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let fail = |reason| self.fail(reason);
        patiently(|| write_ahead(&self.connection)).map_err(fail)?;
        self.connection.pragma_update(None, "foreign_keys", true).map_err(fail)
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    fn query(&self, sql: &str, values: &[Value]) -> rusqlite::Result<Vec<Row>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut out = vec![];
        while let Some(row) = rows.next()? {
            let values: rusqlite::Result<Vec<Value>> = (0..columns).map(|c| Value::of_file(row, c)).collect();
            out.push(Row(values?));
        }
        Ok(out)
    }

    fn fail(&self, reason: rusqlite::Error) -> Error {
        Error::of(&self.file, reason)
    }
}

/// A file may come from a stranger: nothing in it is run.
fn guard(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    Ok(())
}

/// Opens a file of another program to read in it, as guarded as one of ours.
pub(crate) fn read_only(file: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(PATIENCE_S))?;
    guard(&connection)?;
    Ok(connection)
}

/// What a SQLite file says that it belongs to.
pub(crate) fn application(file: &Path) -> rusqlite::Result<i64> {
    read_only(file)?.query_row("PRAGMA application_id", [], |row| row.get(0))
}

/// Sets the write-ahead log, where the file system can: with it, readers need not wait for a writer.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
}

/// Tries again while another program is in the way: the busy timeout does not cover a change of the journal.
fn patiently(mut attempt: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let end = Instant::now() + Duration::from_secs(PATIENCE_S);
    loop {
        match attempt() {
            Err(reason) if Error::is_busy(&reason) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}
