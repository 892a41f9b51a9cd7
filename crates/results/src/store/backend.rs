//! SQLite and PostgreSQL behind one interface.

mod password_file;
mod server;
mod tls;
mod value;

use crate::Error;
use crate::error::LOCK_TIMEOUT_S;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
pub(crate) use server::Server;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
pub(crate) use value::{Row, Value};

/// An open database. Parameters of statements are `?1`, `?2`, …, in order.
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

/// Maximum size of a text or row, bytes: a document and its columns.
const MAX_ROW_LEN: i32 = report::limit::DOCUMENT_BYTES as i32 + (1 << 20);

impl Backend {
    /// Runs a statement and returns the number of rows changed.
    pub(crate) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Error> {
        match self {
            Backend::File(f) => {
                let run = || f.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values));
                run().map(|n| n as u64).map_err(|reason| f.fail(reason))
            }
            Backend::Server(s) => s.execute(sql, values),
        }
    }

    /// Runs a query and returns its rows.
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

    /// Runs `work` in a transaction. In SQLite it takes the write lock first, so that `work` cannot fail for it later.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.batch(match self {
            Backend::File(_) => "BEGIN IMMEDIATE",
            Backend::Server(_) => "BEGIN",
        })?;
        let done = work().and_then(|value| self.batch("COMMIT").map(|()| value));
        if done.is_err() {
            // after a full disk the transaction is rolled back already; return the first error
            let _ = self.batch("ROLLBACK");
        }
        done
    }
}

impl File {
    /// Opens a file; creates it and its folder if necessary.
    pub(crate) fn open(file: &Path) -> Result<File, Error> {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let created = std::fs::create_dir_all(folder);
            created.map_err(|reason| Error::Folder { folder: folder.to_owned(), reason })?;
        }
        let fail = |reason| Error::from_sqlite(file, reason);
        // created here, so that other users cannot read it; SQLite reports the errors
        let _ = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        // without SQLITE_OPEN_URI: any file name is valid
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(LOCK_TIMEOUT_S)).map_err(fail)?;
        if connection.is_readonly("main").map_err(fail)? {
            return Err(Error::ReadOnly { file: file.to_owned() });
        }
        restrict(&connection).map_err(fail)?;
        Ok(File { connection, file: file.to_owned() })
    }

    /// Sets options of a database that is known to contain results.
    pub(crate) fn configure(&self) -> Result<(), Error> {
        let fail = |reason| self.fail(reason);
        retry_while_busy(|| enable_wal(&self.connection)).map_err(fail)?;
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
            let values: rusqlite::Result<Vec<Value>> = (0..columns).map(|c| Value::from_sqlite(row, c)).collect();
            out.push(Row(values?));
        }
        Ok(out)
    }

    fn fail(&self, reason: rusqlite::Error) -> Error {
        Error::from_sqlite(&self.file, reason)
    }
}

/// Disables code in the file (triggers, views), which may come from an untrusted source.
fn restrict(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_ROW_LEN)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    Ok(())
}

/// Opens a file of another program for reading, with the same restrictions.
pub(crate) fn read_only(file: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(Duration::from_secs(LOCK_TIMEOUT_S))?;
    restrict(&connection)?;
    Ok(connection)
}

/// Returns the application id of a SQLite file.
pub(crate) fn application_id(file: &Path) -> rusqlite::Result<i64> {
    read_only(file)?.query_row("PRAGMA application_id", [], |row| row.get(0))
}

/// Enables the write-ahead log, if the file system supports it: readers then do not wait for a writer.
fn enable_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
}

/// Repeats an operation while the database is locked: the busy timeout does not cover changes of the journal mode.
fn retry_while_busy(mut attempt: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let end = Instant::now() + Duration::from_secs(LOCK_TIMEOUT_S);
    loop {
        match attempt() {
            Err(reason) if Error::is_busy(&reason) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}
