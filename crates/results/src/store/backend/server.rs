//! A PostgreSQL database.

use super::value::{Row, Value};
use super::{password_file, tls};
use crate::error::LOCK_TIMEOUT_S;
use crate::{Error, Location};
use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, Config};
use std::cell::RefCell;
use std::time::Duration;

/// A connection to a server.
pub(crate) struct Server {
    client: RefCell<Client>,
    /// Without the password.
    location: String,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.location)
    }
}

impl Server {
    /// Connects. A password missing in the URL is taken from `$PGPASSWORD`, then from the password file.
    pub(crate) fn open(url: &str) -> Result<Server, Error> {
        let location = Location::Server(url.to_owned()).to_string();
        let error = |reason| Error::Url { location: location.clone(), reason };
        let (url, tls) = tls::take_parameters(url).map_err(error)?;
        let connector = tls.connector().map_err(error)?;
        let mut config: Config = url.parse().map_err(|e| error(message(&e)))?;
        tls.apply(&mut config);
        if config.get_password().is_none() {
            let variable = std::env::var_os("PGPASSWORD").filter(|p| !p.is_empty()).map(|p| p.into_encoded_bytes());
            if let Some(password) = variable.or_else(|| password_file::password(&config).map(String::into_bytes)) {
                config.password(password);
            }
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(LOCK_TIMEOUT_S));
        }
        config.application_name("bondstone");
        let mut client = config
            .connect(connector)
            .map_err(|e| Error::Unreachable { location: location.clone(), reason: message(&e) })?;
        let settings =
            format!("SET lock_timeout = '{LOCK_TIMEOUT_S}s'; SET client_min_messages = warning; SET TIME ZONE 'UTC'");
        client.batch_execute(&settings).map_err(|e| classify(&location, &e))?;
        Ok(Server { client: RefCell::new(client), location })
    }

    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    pub(super) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Error> {
        self.client
            .borrow_mut()
            .execute(&with_dollar_parameters(sql), &parameters(values))
            .map_err(|e| classify(&self.location, &e))
    }

    pub(super) fn query(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>, Error> {
        let read = || {
            let rows = self.client.borrow_mut().query(&with_dollar_parameters(sql), &parameters(values))?;
            let row =
                |row: postgres::Row| (0..row.len()).map(|c| Value::from_postgres(&row, c)).collect::<Result<_, _>>();
            rows.into_iter().map(|r| row(r).map(Row)).collect::<Result<Vec<Row>, _>>()
        };
        read().map_err(|e: postgres::Error| classify(&self.location, &e))
    }

    pub(super) fn batch(&self, sql: &str) -> Result<(), Error> {
        self.client.borrow_mut().batch_execute(sql).map_err(|e| classify(&self.location, &e))
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|v| v as &(dyn ToSql + Sync)).collect()
}

/// Translates parameters to PostgreSQL syntax. Our statements contain no other question marks.
fn with_dollar_parameters(sql: &str) -> String {
    sql.replace('?', "$")
}

/// Returns the message of the server in one line.
fn message(e: &postgres::Error) -> String {
    match (e.as_db_error(), std::error::Error::source(e)) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{e}: {source}"),
        (None, None) => e.to_string(),
    }
}

/// Classifies an error by its remedy.
fn classify(location: &str, e: &postgres::Error) -> Error {
    let (location, file) = (location.to_owned(), location.into());
    match e.code() {
        Some(&SqlState::LOCK_NOT_AVAILABLE) => Error::Locked { file, seconds: LOCK_TIMEOUT_S },
        Some(&(SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY)) => Error::Full { file },
        Some(&(SqlState::INSUFFICIENT_PRIVILEGE | SqlState::READ_ONLY_SQL_TRANSACTION)) => {
            Error::Forbidden { location, reason: message(e) }
        }
        _ if e.is_closed() => Error::Unreachable { location, reason: message(e) },
        _ => Error::Server { location, reason: message(e) },
    }
}
