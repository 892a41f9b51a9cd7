//! Versions of the tables, the same for SQLite and PostgreSQL.

use super::backend::{Backend, Value};
use super::rows;
use crate::Error;
use report::Document;

/// `BNDS`: the application id of SQLite files, and the key of the advisory lock for changing tables in PostgreSQL.
pub(crate) const APPLICATION_ID: i64 = 0x424e_4453;

/// The statements that upgrade to a version and downgrade from it.
struct Step {
    up: &'static str,
    down: &'static str,
    /// True if the columns of `up` are filled from the documents.
    fill: bool,
}

/// Never change a published version. Written for SQLite; [`dialect`] translates for PostgreSQL.
const STEPS: [Step; 3] = [
    Step {
        up: "
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
        document        TEXT NOT NULL       -- canonical JSON
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
",
        down: "
    DROP VIEW result_latency;
    DROP VIEW result_trial;
    DROP TABLE latency;
    DROP TABLE trial;
    DROP TABLE result;
",
        fill: false,
    },
    Step {
        up: "
    ALTER TABLE result ADD COLUMN method TEXT NOT NULL DEFAULT 'throughput';
    ALTER TABLE result ADD COLUMN dut_version TEXT;
    CREATE TABLE parameter (                -- parameters of the cell
        result          TEXT NOT NULL REFERENCES result (id) ON DELETE CASCADE,
        name            TEXT NOT NULL,
        value           TEXT NOT NULL,
        PRIMARY KEY (result, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX parameter_value ON parameter (name, value);
    CREATE TABLE quantity (
        result          TEXT NOT NULL REFERENCES result (id) ON DELETE CASCADE,
        number          INTEGER NOT NULL,
        name            TEXT NOT NULL,
        unit            TEXT NOT NULL,
        value           REAL NOT NULL,
        n               INTEGER,            -- number of values that were averaged
        min             REAL,
        max             REAL,
        sigma           REAL,
        PRIMARY KEY (result, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX quantity_name ON quantity (name);
    CREATE TABLE tag (                      -- documents never change
        result          TEXT NOT NULL REFERENCES result (id) ON DELETE CASCADE,
        tag             TEXT NOT NULL,
        PRIMARY KEY (result, tag)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX tag_tag ON tag (tag);
    CREATE VIEW result_quantity AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, q.* FROM quantity q JOIN result r ON r.id = q.result;
",
        down: "
    DROP VIEW result_quantity;
    DROP TABLE tag;
    DROP TABLE quantity;
    DROP TABLE parameter;
    ALTER TABLE result DROP COLUMN dut_version;
    ALTER TABLE result DROP COLUMN method;
",
        fill: true,
    },
    // the names of documents of version 2
    Step {
        up: "
    DROP VIEW result_quantity;
    DROP VIEW result_trial;
    ALTER TABLE trial RENAME COLUMN machine TO host_interference;
    ALTER TABLE quantity RENAME COLUMN sigma TO stddev;
    CREATE VIEW result_trial AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, t.* FROM trial t JOIN result r ON r.id = t.result;
    CREATE VIEW result_quantity AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, q.* FROM quantity q JOIN result r ON r.id = q.result;
    UPDATE result SET limited_by = 'host_interference' WHERE limited_by = 'machine';
    UPDATE result SET limited_by = 'line_rate' WHERE limited_by = 'wire';
    UPDATE result SET limited_by = 'max_load' WHERE limited_by = 'load';
",
        down: "
    DROP VIEW result_quantity;
    DROP VIEW result_trial;
    ALTER TABLE trial RENAME COLUMN host_interference TO machine;
    ALTER TABLE quantity RENAME COLUMN stddev TO sigma;
    CREATE VIEW result_trial AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, t.* FROM trial t JOIN result r ON r.id = t.result;
    CREATE VIEW result_quantity AS
        SELECT r.study, r.cell, r.dut, r.frame, r.date, q.* FROM quantity q JOIN result r ON r.id = q.result;
    UPDATE result SET limited_by = 'machine' WHERE limited_by = 'host_interference';
    UPDATE result SET limited_by = 'wire' WHERE limited_by = 'line_rate';
    UPDATE result SET limited_by = 'load' WHERE limited_by = 'max_load';
",
        fill: false,
    },
];

/// The version that this program writes.
pub(crate) const CURRENT: i64 = STEPS.len() as i64;

/// Upgrades or downgrades the tables to version `to`. If several programs open the database at once, one of them does
/// it.
pub(crate) fn migrate(db: &Backend, to: i64) -> Result<(), Error> {
    if version(db)? == to {
        return Ok(());
    }
    db.transaction(|| {
        if let Backend::Server(_) = db {
            // PostgreSQL has no BEGIN IMMEDIATE
            db.query("SELECT pg_advisory_xact_lock(?1)::text", &[Value::Int(APPLICATION_ID)])?;
        }
        // read again under the lock
        let current = read_version(db)?;
        for (_, step) in (1..).zip(&STEPS).filter(|(n, _)| (current + 1..=to).contains(n)) {
            db.batch(&dialect(db, step.up))?;
            if step.fill {
                fill(db)?;
            }
        }
        for (_, step) in (1..=CURRENT).rev().zip(STEPS.iter().rev()).filter(|(n, _)| (to + 1..=current).contains(n)) {
            db.batch(&dialect(db, step.down))?;
        }
        match db {
            // an empty file belongs to no application
            Backend::File(_) => {
                db.batch(&format!("PRAGMA user_version = {to}"))?;
                db.batch(&format!("PRAGMA application_id = {}", if to == 0 { 0 } else { APPLICATION_ID }))
            }
            Backend::Server(_) if to == 0 => db.batch("DROP TABLE bondstone_version"),
            Backend::Server(_) => {
                db.batch("CREATE TABLE IF NOT EXISTS bondstone_version (version BIGINT NOT NULL)")?;
                db.batch("DELETE FROM bondstone_version")?;
                db.execute("INSERT INTO bondstone_version VALUES (?1)", &[Value::Int(to)]).map(drop)
            }
        }
    })
}

/// Translates a step into the dialect of the database.
fn dialect(db: &Backend, sql: &str) -> String {
    match db {
        Backend::File(_) => sql.to_owned(),
        Backend::Server(_) => {
            let types = sql.replace(" REAL", " DOUBLE PRECISION").replace(" INTEGER", " BIGINT");
            types.replace(" STRICT, WITHOUT ROWID", "").replace(" STRICT", "")
        }
    }
}

/// Returns the version of the tables, 0 for an empty database, read in one transaction.
pub(crate) fn version(db: &Backend) -> Result<i64, Error> {
    match db {
        Backend::File(_) => {
            db.batch("BEGIN DEFERRED")?;
            let found = read_version(db);
            let ended = db.batch("COMMIT");
            found.and_then(|found| ended.map(|()| found))
        }
        Backend::Server(_) => read_version(db),
    }
}

fn read_version(db: &Backend) -> Result<i64, Error> {
    let number = |sql: &str| db.query(sql, &[])?.first().map_or(Ok(0), |row| row.int(0));
    let file = match db {
        Backend::File(f) => f.file().to_owned(),
        Backend::Server(s) => s.location().into(),
    };
    let (ours, empty, found) = match db {
        Backend::File(_) => {
            let found = number("PRAGMA user_version")?;
            let application_id = number("PRAGMA application_id")?;
            let tables = number("SELECT count(*) FROM sqlite_schema")?;
            (application_id == APPLICATION_ID, (application_id, tables, found) == (0, 0, 0), found)
        }
        Backend::Server(_) => {
            // one statement, so that it sees all tables that another program creates, or none
            let named = db.query(
                "SELECT count(*) FILTER (WHERE c.relname = 'bondstone_version'), count(*)
                FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = current_schema() AND c.relname IN ('bondstone_version', 'result', 'trial', 'latency',
                    'parameter', 'quantity', 'tag', 'result_trial', 'result_latency', 'result_quantity')",
                &[],
            )?;
            let count = |column| named.first().map_or(Ok(0), |row| row.int(column));
            match count(0)? {
                0 => (false, count(1)? == 0, 0),
                _ => (true, false, number("SELECT max(version) FROM bondstone_version")?),
            }
        }
    };
    match (ours, empty) {
        (true, _) if found > CURRENT => Err(Error::Newer { file, found, supported: CURRENT }),
        (true, _) if found >= 1 => Ok(found),
        (false, true) => Ok(0),
        _ => Err(Error::Foreign { file }),
    }
}

/// Fills the columns of version 2 from the documents; rows of invalid documents are left unchanged.
fn fill(db: &Backend) -> Result<(), Error> {
    for mut row in db.query("SELECT id FROM result", &[])? {
        let id = row.text(0)?;
        let mut found = db.query("SELECT document FROM result WHERE id = ?1", &[Value::text(&*id)])?;
        let Some(row) = found.first_mut() else { continue };
        let Ok(document) = Document::read(&row.text(0)?) else { continue };
        let r = document.result();
        let version = Value::from(r.dut.version.as_deref());
        let values = [Value::text(&*r.method.name), version, Value::text(&*id)];
        db.execute("UPDATE result SET method = ?1, dut_version = ?2 WHERE id = ?3", &values)?;
        rows::insert_parts(db, &id, r)?;
    }
    Ok(())
}
