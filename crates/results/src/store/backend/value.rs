//! Values and rows of both databases.

use crate::Error;
use bytes::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use rusqlite::types::{ToSqlOutput, ValueRef};
use std::error::Error as StdError;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Text(String),
    Int(i64),
    Real(f64),
    Bool(bool),
}

/// The values of a row.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) Vec<Value>);

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Converts a count; counts in documents are below 2^53.
    pub(crate) fn count(n: u64) -> Value {
        Value::Int(n as i64)
    }

    pub(super) fn from_sqlite(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
        Ok(match row.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(n) => Value::Int(n),
            ValueRef::Real(x) => Value::Real(x),
            ValueRef::Text(bytes) => Value::Text(std::str::from_utf8(bytes)?.to_owned()),
            ValueRef::Blob(_) => {
                let blob = rusqlite::types::Type::Blob;
                return Err(rusqlite::Error::InvalidColumnType(column, format!("column {column}"), blob));
            }
        })
    }

    pub(super) fn from_postgres(row: &postgres::Row, column: usize) -> Result<Value, postgres::Error> {
        let column_type = row.columns()[column].type_();
        let value = match *column_type {
            Type::BOOL => row.try_get::<_, Option<bool>>(column)?.map(Value::Bool),
            Type::INT4 => row.try_get::<_, Option<i32>>(column)?.map(|n| Value::Int(n.into())),
            Type::INT8 => row.try_get::<_, Option<i64>>(column)?.map(Value::Int),
            Type::FLOAT8 => row.try_get::<_, Option<f64>>(column)?.map(Value::Real),
            _ => row.try_get::<_, Option<String>>(column)?.map(Value::Text),
        };
        Ok(value.unwrap_or(Value::Null))
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, T::into)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Real(x)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Int(n) => ToSqlOutput::Borrowed(ValueRef::Integer(*n)),
            Value::Real(x) => ToSqlOutput::Borrowed(ValueRef::Real(*x)),
            Value::Bool(b) => ToSqlOutput::Borrowed(ValueRef::Integer((*b).into())),
        })
    }
}

impl ToSql for Value {
    fn to_sql(&self, column_type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            // PostgreSQL rejects NUL in text; documents contain none, names may
            Value::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql_checked(column_type, out),
            Value::Text(text) => text.to_sql_checked(column_type, out),
            Value::Int(n) if *column_type == Type::INT4 => i32::try_from(*n)?.to_sql_checked(column_type, out),
            Value::Int(n) => n.to_sql_checked(column_type, out),
            Value::Real(x) => x.to_sql_checked(column_type, out),
            Value::Bool(b) => b.to_sql_checked(column_type, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Values of a row, by column. A value of an unexpected type is an error: the database is damaged.
impl Row {
    pub(crate) fn text(&mut self, column: usize) -> Result<String, Error> {
        self.maybe_text(column)?.ok_or_else(|| wrong_type(column, &Value::Null, "a text"))
    }

    pub(crate) fn maybe_text(&mut self, column: usize) -> Result<Option<String>, Error> {
        match self.0.get_mut(column).map(|v| std::mem::replace(v, Value::Null)) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            other => Err(wrong_type(column, &other.unwrap_or(Value::Null), "a text")),
        }
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64, Error> {
        match self.0.get(column) {
            Some(Value::Int(n)) => Ok(*n),
            other => Err(wrong_type(column, other.unwrap_or(&Value::Null), "an integer")),
        }
    }

    pub(crate) fn real(&self, column: usize) -> Result<f64, Error> {
        self.maybe_real(column)?.ok_or_else(|| wrong_type(column, &Value::Null, "a number"))
    }

    pub(crate) fn maybe_real(&self, column: usize) -> Result<Option<f64>, Error> {
        match self.0.get(column) {
            Some(Value::Real(x)) => Ok(Some(*x)),
            Some(Value::Int(n)) => Ok(Some(*n as f64)),
            Some(Value::Null) => Ok(None),
            other => Err(wrong_type(column, other.unwrap_or(&Value::Null), "a number")),
        }
    }
}

fn wrong_type(column: usize, found: &Value, expected: &str) -> Error {
    let mut found = format!("{found:?}");
    if let Some((end, _)) = found.char_indices().nth(80) {
        found.truncate(end);
    }
    Error::Column { column, found, expected: expected.to_owned() }
}
