//! Where results are kept unless something else is said.

use crate::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file of results: `$BONDSTONE_DB`; else `bondstone/results.sqlite` in `$XDG_DATA_HOME`; else in
/// `~/.local/share`. A variable that is empty is as one that is not set, and so is an `XDG_DATA_HOME` that is not an
/// absolute path (XDG Base Directory Specification).
///
/// # Errors
/// When none of these is known.
pub fn default_path() -> Result<PathBuf, Error> {
    find(|name| std::env::var_os(name))
}

fn find(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = set("BONDSTONE_DB") {
        return Ok(file);
    }
    let data = set("XDG_DATA_HOME").filter(|folder| folder.is_absolute());
    let data = data.or_else(|| set("HOME").map(|home| home.join(".local/share")));
    Ok(data.ok_or(Error::NoPlace)?.join(Path::new("bondstone/results.sqlite")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_said_counts() {
        let with = |set: &[(&str, &str)]| {
            find(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
        };
        let all = [("BONDSTONE_DB", "r.db"), ("XDG_DATA_HOME", "/data"), ("HOME", "/home/a")];
        assert_eq!(with(&all).unwrap(), Path::new("r.db"));
        assert_eq!(with(&all[1..]).unwrap(), Path::new("/data/bondstone/results.sqlite"));
        assert_eq!(with(&all[2..]).unwrap(), Path::new("/home/a/.local/share/bondstone/results.sqlite"));
        let odd = [("BONDSTONE_DB", ""), ("XDG_DATA_HOME", "data"), ("HOME", "/home/a")];
        assert_eq!(with(&odd).unwrap(), Path::new("/home/a/.local/share/bondstone/results.sqlite"));
        assert!(matches!(with(&[]), Err(Error::NoPlace)));
    }
}
