//! Versions of the tables.

use crate::Error;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

/// `BNDS`: tells these files from databases of other programs.
const APPLICATION: i64 = 0x424e_4453;

/// What makes each version of the one before. Versions that were published are never changed.
const STEPS: [&str; 1] = ["
    CREATE TABLE result (
        id              TEXT PRIMARY KEY NOT NULL,
        study           TEXT NOT NULL,
        cell            TEXT NOT NULL,      -- JSON
        dut_kind        TEXT NOT NULL,
        dut             TEXT NOT NULL,
        frame           TEXT NOT NULL,
        frame_bytes     REAL NOT NULL,
        date            TEXT NOT NULL,      -- as in the document
        date_s          INTEGER NOT NULL,   -- seconds since 1970
        goal            TEXT,
        lower_pps       REAL NOT NULL,
        upper_pps       REAL,
        conditional_pps REAL,
        limited_by      TEXT NOT NULL,
        tool            TEXT NOT NULL,
        document        TEXT NOT NULL       -- the whole, canonical JSON
    ) STRICT;
    CREATE INDEX result_date ON result (date_s);
    CREATE INDEX result_study ON result (study, date_s);
    CREATE TABLE trial (
        result          TEXT NOT NULL REFERENCES result (id) ON DELETE CASCADE,
        number          INTEGER NOT NULL,
        load_pps        REAL NOT NULL,
        duration_s      REAL NOT NULL,
        intended        INTEGER NOT NULL,
        sent            INTEGER NOT NULL,
        unsent          INTEGER NOT NULL,
        received        INTEGER NOT NULL,
        lost            INTEGER NOT NULL,
        duplicate       INTEGER NOT NULL,
        reordered       INTEGER NOT NULL,
        corrupt         INTEGER NOT NULL,
        poll_gap_max_ns INTEGER NOT NULL,
        machine         INTEGER NOT NULL,
        PRIMARY KEY (result, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE latency (
        result          TEXT NOT NULL REFERENCES result (id) ON DELETE CASCADE,
        number          INTEGER NOT NULL,
        load_pps        REAL NOT NULL,
        share_of_throughput REAL,
        p50_ns          REAL NOT NULL,
        p99_ns          REAL NOT NULL,
        p999_ns         REAL NOT NULL,
        max_ns          REAL NOT NULL,
        samples         INTEGER NOT NULL,
        lost            INTEGER NOT NULL,
        PRIMARY KEY (result, number)
    ) STRICT, WITHOUT ROWID;
    CREATE VIEW result_trial AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, t.* FROM trial t JOIN result r ON r.id = t.result;
    CREATE VIEW result_latency AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, l.* FROM latency l JOIN result r ON r.id = l.result;
"];

/// The version that this program writes.
pub(crate) const KNOWN: i64 = STEPS.len() as i64;

/// Brings the tables to [`KNOWN`]; one of several programs that open the file at once does it.
pub(crate) fn migrate(connection: &mut Connection, file: &Path) -> Result<(), Error> {
    let fail = |reason| Error::of(file, reason);
    // in a transaction, the parts of a version are those of one moment
    let look = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(fail)?;
    if version(&look, file)? == KNOWN {
        return Ok(());
    }
    drop(look);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    // again, now that nobody else writes
    let found = version(&transaction, file)?;
    for (n, step) in (1..).zip(STEPS).filter(|(n, _)| *n > found) {
        transaction.execute_batch(step).map_err(fail)?;
        transaction.pragma_update(None, "user_version", n).map_err(fail)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(fail)?;
    transaction.commit().map_err(fail)
}

/// The version of the file, 0 for an empty one.
fn version(connection: &Connection, file: &Path) -> Result<i64, Error> {
    let number =
        |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|reason| Error::of(file, reason));
    let found = number("PRAGMA user_version")?;
    let application = number("PRAGMA application_id")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, tables) {
        (APPLICATION, _) if found > KNOWN => Err(Error::Newer { file: file.to_owned(), found, known: KNOWN }),
        (APPLICATION, _) if found >= 1 => Ok(found),
        (0, 0) if found == 0 => Ok(0),
        _ => Err(Error::Foreign { file: file.to_owned() }),
    }
}
