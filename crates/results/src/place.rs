//! Where results are kept: a file, or a database on a server.

use crate::Error;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// A SQLite file, or a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database by its URL: `postgres://user@host/database`.
    Server(String),
}

impl Place {
    /// A URL that begins with `postgres://` or `postgresql://` is a server's; all else names a file.
    pub fn of(text: impl AsRef<OsStr>) -> Place {
        let text = text.as_ref();
        match text.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Place::Server(url.to_owned())
            }
            _ => Place::File(PathBuf::from(text)),
        }
    }

    /// `$BONDSTONE_DB`, a file or a URL; else the file `bondstone/results.sqlite` in `$XDG_DATA_HOME`; else in
    /// `~/.local/share`. A variable that is empty is as one that is not set, and so is an `XDG_DATA_HOME` that is not an
    /// absolute path (XDG Base Directory Specification).
    ///
    /// # Errors
    /// When none of these is known.
    pub fn usual() -> Result<Place, Error> {
        crate::path::default_path().map(Place::of)
    }

    /// A path for a file that belongs to results of this place: beside the file; for a server, in the working folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        match self {
            Place::File(file) => file.with_file_name(name),
            Place::Server(_) => Path::new(name).to_owned(),
        }
    }
}

/// Without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(file) => file.display().fmt(f),
            Place::Server(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for Place {
    fn from(text: &T) -> Place {
        Place::of(text)
    }
}

fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // a password may hold an `@` that nobody escaped
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
    fn urls_are_told_from_files() {
        assert_eq!(Place::of("a/postgres.db"), Place::File("a/postgres.db".into()));
        assert_eq!(Place::of("postgres://u@h/d"), Place::Server("postgres://u@h/d".to_owned()));
        assert!(matches!(Place::of("postgresql:///d?host=/run"), Place::Server(_)));
        assert_eq!(Place::of("a/b.sqlite").beside("x.html"), Path::new("a/x.html"));
        assert_eq!(Place::of("postgres://u@h/d").beside("x.html"), Path::new("x.html"));
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h:1/d", "postgres://u@h:1/d"),
            ("postgres://u:se@cret@h/d", "postgres://u@h/d"),
            ("postgres://u@h/d?password=secret&host=/run", "postgres://u@h/d?host=/run"),
            ("postgres:///d?password=secret", "postgres:///d"),
        ] {
            let place = Place::of(url);
            assert_eq!(place.to_string(), shown);
            assert!(!format!("{place:?}").contains("cret"));
        }
    }
}
