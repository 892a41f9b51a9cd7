//! A PostgreSQL database.

use super::value::{Row, Value};
use crate::error::PATIENCE_S;
use crate::{Error, Place};
use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Config, NoTls};
use std::cell::RefCell;
use std::time::Duration;

/// A connection to a server.
pub(crate) struct Server {
    client: RefCell<Client>,
    /// Without the password.
    place: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place)
    }
}

impl Server {
    /// Connects. A password that the URL does not have is taken from `$PGPASSWORD`.
    pub(crate) fn open(url: &str) -> Result<Server, Error> {
        let place = Place::Server(url.to_owned()).to_string();
        let mut config: Config =
            url.parse().map_err(|e: postgres::Error| Error::Url { place: place.clone(), reason: told(&e) })?;
        if config.get_password().is_none()
            && let Some(password) = std::env::var_os("PGPASSWORD").filter(|p| !p.is_empty())
        {
            config.password(password.as_encoded_bytes());
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(PATIENCE_S));
        }
        config.application_name("bondstone");
        let mut client =
            config.connect(NoTls).map_err(|e| Error::Unreachable { place: place.clone(), reason: told(&e) })?;
        let settings =
            format!("SET lock_timeout = '{PATIENCE_S}s'; SET client_min_messages = warning; SET TIME ZONE 'UTC'");
        client.batch_execute(&settings).map_err(|e| of(&place, &e))?;
        Ok(Server { client: RefCell::new(client), place })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Error> {
        self.client.borrow_mut().execute(&numbered(sql), &parameters(values)).map_err(|e| of(&self.place, &e))
    }

    pub(super) fn query(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, Error> {
        let read = || {
            let rows = self.client.borrow_mut().query(&numbered(sql), &parameters(values))?;
            let row = |row: postgres::Row| (0..row.len()).map(|c| Value::of_server(&row, c)).collect::<Result<_, _>>();
            rows.into_iter().map(|r| row(r).map(Row)).collect::<Result<Vec<Row>, _>>()
        };
        read().map_err(|e: postgres::Error| of(&self.place, &e))
    }

    pub(super) fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.borrow_mut().batch_execute(sql).map_err(|e| of(&self.place, &e))
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|v| v as &(dyn ToSql + Sync)).collect()
}

/// Parameters as PostgreSQL writes them. No statement of ours has a question mark elsewhere.
fn numbered(sql: &str) -> String {
    sql.replace('?', "$")
}

/// What the server says, in one line.
fn told(e: &postgres::Error) -> String {
    match (e.as_db_error(), std::error::Error::source(e)) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{e}: {source}"),
        (None, None) => e.to_string(),
    }
}

/// What a server reports, by what can be done about it.
fn of(place: &str, e: &postgres::Error) -> Error {
    let (place, file) = (place.to_owned(), place.into());
    match e.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => Error::Locked { file, seconds: PATIENCE_S },
        Some(&(SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY)) => Error::Full { file },
        Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::READ_ONLY_SQL_TRANSACTION)) => {
            Error::Forbidden { place, reason: told(e) }
        }
        _ if e.is_closed() => Error::Unreachable { place, reason: told(e) },
        _ => Error::Server { place, reason: told(e) },
    }
}
