//! The rows of a document: columns for searching.

use super::backend::{Backend, Value};
use crate::Error;
use report::Document;

/// Outcome of adding a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The document was inserted.
    New,
    /// The document was in the database already.
    Existing,
}

/// Inserts a document and its rows, unless it exists.
pub(crate) fn insert(db: &Backend, document: &Document) -> Result<Added, Error> {
    let r = document.result();
    let cell = serde_json::to_string(&r.cell).unwrap_or_default();
    let values = [
        Value::text(&*r.id),
        Value::text(&*r.study),
        Value::Text(cell),
        Value::text(&*r.dut.kind),
        Value::Text(r.dut.label()),
        Value::Text(r.traffic.frames.label()),
        Value::Real(r.traffic.frames.mean_bytes()),
        Value::text(&*r.environment.date),
        // a verified document has a date
        Value::Int(r.environment.unix_seconds().unwrap_or_default()),
        Value::from(r.goal.name.as_deref()),
        Value::Real(r.summary.lower_pps),
        Value::from(r.summary.upper_pps),
        Value::from(r.summary.conditional_pps),
        Value::text(r.limited_by.name()),
        Value::Text(format!("{} {}", r.tool.name, r.tool.version)),
        Value::text(document.text()),
        Value::text(&*r.method.name),
        Value::from(r.dut.version.as_deref()),
    ];
    let inserted = db.execute(
        "INSERT INTO result (id, study, cell, dut_kind, dut, frame, frame_bytes, date, date_s, goal, lower_pps,
            upper_pps, conditional_pps, limited_by, tool, document, method, dut_version)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
        ON CONFLICT (id) DO NOTHING",
        &values,
    )?;
    if inserted == 0 {
        return Ok(Added::Existing);
    }
    let id = || Value::text(&*r.id);
    let count = Value::count;
    for (n, t) in (1..).zip(&r.trials) {
        let values = [
            id(),
            Value::Int(n),
            Value::Real(t.load_pps),
            Value::Real(t.duration_s),
            count(t.intended),
            count(t.sent),
            count(t.unsent),
            count(t.received),
            count(t.lost),
            count(t.duplicate),
            count(t.reordered),
            count(t.corrupt),
            count(t.poll_gap_max_ns),
            Value::Int(t.host_interference.into()),
        ];
        db.execute("INSERT INTO trial VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)", &values)?;
    }
    for (n, l) in (1..).zip(&r.latency) {
        let values = [
            id(),
            Value::Int(n),
            Value::Real(l.load_pps),
            Value::from(l.share_of_throughput),
            Value::Real(l.p50_ns),
            Value::Real(l.p99_ns),
            Value::Real(l.p999_ns),
            Value::Real(l.max_ns),
            count(l.samples),
            count(l.lost),
        ];
        db.execute("INSERT INTO latency VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)", &values)?;
    }
    insert_parts(db, &r.id, r)?;
    Ok(Added::New)
}

/// Inserts the rows of the tables that version 2 adds.
pub(crate) fn insert_parts(db: &Backend, id: &str, r: &report::Result) -> Result<(), Error> {
    for (name, value) in &r.cell {
        let values = [Value::text(id), Value::text(&**name), Value::text(&**value)];
        db.execute("INSERT INTO parameter VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING", &values)?;
    }
    for (n, q) in (1..).zip(&r.quantities) {
        let spread = q.spread;
        let values = [
            Value::text(id),
            Value::Int(n),
            Value::text(&*q.name),
            Value::text(&*q.unit),
            Value::Real(q.value),
            spread.map_or(Value::Null, |s| Value::count(s.samples)),
            Value::from(spread.map(|s| s.min)),
            Value::from(spread.map(|s| s.max)),
            Value::from(spread.map(|s| s.stddev)),
        ];
        db.execute("INSERT INTO quantity VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", &values)?;
    }
    Ok(())
}
