//! The database.

use crate::error::PATIENCE_S;
use crate::{Entry, Error, Filter, migrate};
use report::Document;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, named_params, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of results. Any number of programs and threads may have it open, each its own `Store`; one writes at a time,
/// the others wait for it, readers do not.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    file: PathBuf,
}

/// What became of a document that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the database now.
    New,
    /// It was there before.
    Known,
}

/// Longest text or row, bytes: a document and its columns.
const LONGEST: i32 = report::limit::DOCUMENT_BYTES as i32 + (1 << 20);

impl Store {
    /// Opens a file of results; makes it and its folder when it is not there, and brings an older one up to date.
    ///
    /// # Errors
    /// When the file cannot be made, opened or written; when it is no database, one of another program, or of a newer
    /// version; when it is damaged, or locked for more than ten seconds.
    pub fn open(file: &Path) -> Result<Self, Error> {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|reason| Error::Folder { folder: folder.to_owned(), reason })?;
        }
        let fail = |reason| Error::of(file, reason);
        // without SQLITE_OPEN_URI: a file may be named as it likes
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(file, flags).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(PATIENCE_S)).map_err(fail)?;
        if connection.is_readonly("main").map_err(fail)? {
            return Err(Error::ReadOnly { file: file.to_owned() });
        }
        // a file may come from a stranger
        for (setting, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        ] {
            connection.set_db_config(setting, on).map_err(fail)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST).map_err(fail)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0).map_err(fail)?;
        migrate::migrate(&mut connection, file)?;
        patiently(|| write_ahead(&connection)).map_err(fail)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(fail)?;
        Ok(Store { connection, file: file.to_owned() })
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Adds a result that was sealed; one that is there already stays as it is.
    ///
    /// # Errors
    /// When the result does not [verify](report::Result::verify), or the file cannot be written.
    pub fn add(&mut self, result: &report::Result) -> Result<Added, Error> {
        self.add_document(&result.verify()?)
    }

    /// Adds a document as it was written, with members that this version does not know.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add_document(&mut self, document: &Document) -> Result<Added, Error> {
        let file = &self.file;
        let fail = |reason| Error::of(file, reason);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        let added = insert(&transaction, document).map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(added)
    }

    /// The result of an id.
    ///
    /// # Errors
    /// When the file cannot be read, or the document in it was changed.
    pub fn get(&self, id: &str) -> Result<Option<report::Result>, Error> {
        Ok(self.document(id)?.map(Document::into_result))
    }

    /// The document of an id, with its text.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn document(&self, id: &str) -> Result<Option<Document>, Error> {
        let mut statement = self.prepare("SELECT document FROM result WHERE id = ?1")?;
        let text: Option<String> =
            statement.query_row([id], |row| row.get(0)).optional().map_err(|reason| self.fail(reason))?;
        let Some(text) = text else { return Ok(None) };
        let changed = |reason| Error::Changed { file: self.file.clone(), id: id.to_owned(), reason };
        let document = Document::read(&text).map_err(changed)?;
        if document.result().id != id {
            let (found, expected) = (id.to_owned(), document.result().id.clone());
            return Err(changed(report::Error::Id { found, expected }));
        }
        Ok(Some(document))
    }

    /// Results that a filter lets through, the newest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Entry>, Error> {
        let mut statement = self.prepare(
            "SELECT id, study, cell, dut, frame, frame_bytes, date, goal, lower_pps, upper_pps, conditional_pps,
                limited_by, (SELECT count(*) FROM trial WHERE trial.result = result.id)
            FROM result
            WHERE (:id IS NULL OR substr(id, 1, length(:id)) = :id)
                AND (:study IS NULL OR study = :study)
                AND (:dut IS NULL OR dut = :dut OR dut_kind = :dut)
                AND (:frame IS NULL OR frame = :frame)
                AND (:since IS NULL OR date_s >= :since)
            ORDER BY date_s DESC, id LIMIT :limit",
        )?;
        let values = named_params! {
            ":id": filter.id, ":study": filter.study, ":dut": filter.dut, ":frame": filter.frame,
            ":since": filter.since, ":limit": filter.limit(),
        };
        let entries = statement.query_map(values, entry).map_err(|reason| self.fail(reason))?;
        entries.collect::<Result<_, _>>().map_err(|reason| self.fail(reason))
    }

    /// Deletes a result; false when there is none of that id.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete(&mut self, id: &str) -> Result<bool, Error> {
        let deleted = self.connection.execute("DELETE FROM result WHERE id = ?1", [id]);
        Ok(deleted.map_err(|reason| self.fail(reason))? > 0)
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Error> {
        self.connection.prepare_cached(sql).map_err(|reason| self.fail(reason))
    }

    fn fail(&self, reason: rusqlite::Error) -> Error {
        Error::of(&self.file, reason)
    }
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

/// Inserts a document and the rows of its trials, unless it is there.
fn insert(connection: &Connection, document: &Document) -> rusqlite::Result<Added> {
    let r = document.result();
    let cell = serde_json::to_string(&r.cell).unwrap_or_default();
    let mut result = connection.prepare_cached(
        "INSERT INTO result (id, study, cell, dut_kind, dut, frame, frame_bytes, date, date_s, goal, lower_pps,
            upper_pps, conditional_pps, limited_by, tool, document)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) ON CONFLICT (id) DO NOTHING",
    )?;
    let inserted = result.execute(params![
        r.id,
        r.study,
        cell,
        r.dut.kind,
        r.dut.label(),
        r.traffic.frames.label(),
        r.traffic.frames.mean_bytes(),
        r.environment.date,
        // a document that was read has a date
        r.environment.unix_seconds().unwrap_or_default(),
        r.goal.name,
        r.summary.lower_pps,
        r.summary.upper_pps,
        r.summary.conditional_pps,
        r.limited_by.name(),
        format!("{} {}", r.tool.name, r.tool.version),
        document.text(),
    ])?;
    if inserted == 0 {
        return Ok(Added::Known);
    }
    // counts are at most 2^53
    let count = |n: u64| n as i64;
    let mut trial = connection
        .prepare_cached("INSERT INTO trial VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)")?;
    for (n, t) in (1i64..).zip(&r.trials) {
        let (load, seconds, machine) = (t.load_pps, t.duration_s, t.machine);
        let [intended, sent, unsent, received, lost] = [t.intended, t.sent, t.unsent, t.received, t.lost].map(count);
        let [duplicate, reordered, corrupt] = [t.duplicate, t.reordered, t.corrupt].map(count);
        let gap = count(t.poll_gap_max_ns);
        trial.execute(params![
            r.id, n, load, seconds, intended, sent, unsent, received, lost, duplicate, reordered, corrupt, gap, machine
        ])?;
    }
    let mut latency =
        connection.prepare_cached("INSERT INTO latency VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
    for (n, l) in (1i64..).zip(&r.latency) {
        let (samples, lost) = (count(l.samples), count(l.lost));
        let (load, share) = (l.load_pps, l.share_of_throughput);
        latency.execute(params![r.id, n, load, share, l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns, samples, lost])?;
    }
    Ok(Added::New)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let cell: String = row.get(2)?;
    Ok(Entry {
        id: row.get(0)?,
        study: row.get(1)?,
        // a list is for finding: a cell that somebody spoilt is shown as empty, `get` tells
        cell: serde_json::from_str(&cell).unwrap_or_default(),
        dut: row.get(3)?,
        frame: row.get(4)?,
        frame_bytes: row.get(5)?,
        date: row.get(6)?,
        goal: row.get(7)?,
        lower_pps: row.get(8)?,
        upper_pps: row.get(9)?,
        conditional_pps: row.get(10)?,
        limited_by: row.get(11)?,
        trials: row.get::<_, i64>(12)?.unsigned_abs(),
    })
}
