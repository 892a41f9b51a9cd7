//! Locations of databases: a file, or a server.

use crate::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// A SQLite file or a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database by its URL: `postgres://user@host/database`.
    Server(String),
}

impl Location {
    /// Parses a text: a URL that begins with `postgres://` or `postgresql://` is a server, anything else a file.
    pub fn parse(text: impl AsRef<OsStr>) -> Location {
        let text = text.as_ref();
        match text.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Location::Server(url.to_owned())
            }
            _ => Location::File(PathBuf::from(text)),
        }
    }

    /// Parses an argument of a command line, which all users of the host can read.
    ///
    /// # Errors
    /// If it is a URL with a password.
    pub fn from_argument(text: impl AsRef<OsStr>) -> Result<Location, Error> {
        match Location::parse(text) {
            Location::Server(url) if without_password(&url) != url => {
                Err(Error::PasswordInArgument { location: without_password(&url) })
            }
            location => Ok(location),
        }
    }

    /// Returns `$BONDSTONE_DB`, a file or a URL; else the file `bondstone/results.sqlite` in `$XDG_DATA_HOME`; else in
    /// `~/.local/share`. Empty variables, and a relative `XDG_DATA_HOME`, are ignored (XDG Base Directory
    /// Specification).
    ///
    /// # Errors
    /// If none of these variables is set.
    pub fn from_env() -> Result<Location, Error> {
        resolve(|name| std::env::var_os(name)).map(Location::parse)
    }

    /// Returns the path of a file beside the database; for a server, in the working directory.
    pub fn sibling(&self, name: &str) -> PathBuf {
        match self {
            Location::File(file) => file.with_file_name(name),
            Location::Server(_) => Path::new(name).to_owned(),
        }
    }
}

fn resolve(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set("BONDSTONE_DB") {
        return Ok(file);
    }
    let data = set("XDG_DATA_HOME").filter(|folder| folder.is_absolute());
    let data = data.or_else(|| set("HOME").map(|home| home.join(".local/share")));
    Ok(data.ok_or(Error::NoLocation)?.join(Path::new("bondstone/results.sqlite")))
}

/// Without the password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(file) => file.display().fmt(f),
            Location::Server(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Location {
    fn from(text: &T) -> Location {
        Location::parse(text)
    }
}

fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // a password may contain an unescaped `@`
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
        None => authority.to_owned(),
    };
    let query = query.map_or(String::new(), |query| {
        let shown: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("password=")).collect();
        if shown.is_empty() { String::new() } else { format!("?{}", shown.join("&")) }
    });
    format!("{scheme}://{authority}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_urls_from_files() {
        assert_eq!(Location::parse("a/postgres.db"), Location::File("a/postgres.db".into()));
        assert_eq!(Location::parse("postgres://u@h/d"), Location::Server("postgres://u@h/d".to_owned()));
        assert!(matches!(Location::parse("postgresql:///d?host=/run"), Location::Server(_)));
        assert_eq!(Location::parse("a/b.sqlite").sibling("x.html"), Path::new("a/x.html"));
        assert_eq!(Location::parse("postgres://u@h/d").sibling("x.html"), Path::new("x.html"));
    }

    #[test]
    fn display_omits_passwords() {
        for (url, shown) in [
            ("postgres://u:secret@h:1/d", "postgres://u@h:1/d"),
            ("postgres://u:se@cret@h/d", "postgres://u@h/d"),
            ("postgres://u@h/d?password=secret&host=/run", "postgres://u@h/d?host=/run"),
            ("postgres:///d?password=secret", "postgres:///d"),
        ] {
            let location = Location::parse(url);
            assert_eq!(location.to_string(), shown);
            assert!(!format!("{location:?}").contains("cret"));
        }
    }

    #[test]
    fn rejects_passwords_in_arguments() {
        for url in ["postgres://u:secret@h/d", "postgres:///d?host=/run&password=secret"] {
            let message = Location::from_argument(url).unwrap_err().to_string();
            assert!(message.contains("PGPASSFILE") && !message.contains("secret"), "{message}");
        }
        for valid in ["postgres://u@h:1/d?host=/run", "postgresql:///d", "a:b@c.sqlite"] {
            assert_eq!(Location::from_argument(valid).unwrap(), Location::parse(valid));
        }
    }

    #[test]
    fn first_usable_variable_wins() {
        let with = |set: &[(&str, &str)]| {
            resolve(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
        };
        let all = [("BONDSTONE_DB", "r.db"), ("XDG_DATA_HOME", "/data"), ("HOME", "/home/a")];
        assert_eq!(with(&all).unwrap(), Path::new("r.db"));
        assert_eq!(with(&all[1..]).unwrap(), Path::new("/data/bondstone/results.sqlite"));
        assert_eq!(with(&all[2..]).unwrap(), Path::new("/home/a/.local/share/bondstone/results.sqlite"));
        let unusable = [("BONDSTONE_DB", ""), ("XDG_DATA_HOME", "data"), ("HOME", "/home/a")];
        assert_eq!(with(&unusable).unwrap(), Path::new("/home/a/.local/share/bondstone/results.sqlite"));
        assert!(matches!(with(&[]), Err(Error::NoLocation)));
    }
}
