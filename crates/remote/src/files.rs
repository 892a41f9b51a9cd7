//! Files that are copied to a remote host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// Largest number of files.
const MAX_FILES: usize = 64;
/// Largest total size of the files, bytes.
const MAX_BYTES: usize = 64 << 20;

/// Content of files in hexadecimal, by path relative to a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// Reads files below a folder; others are left out.
    ///
    /// # Errors
    /// If a file cannot be read, or the files are too many or too large.
    pub fn read<P: AsRef<Path>>(folder: &Path, paths: impl IntoIterator<Item = P>) -> Result<Files, String> {
        let (mut all, mut bytes) = (Files::default(), 0);
        for path in paths {
            let path = path.as_ref();
            let Some(name) = path.strip_prefix(folder).ok().and_then(Path::to_str).filter(|name| is_below(name)) else {
                continue;
            };
            bytes += path.metadata().map_or(0, |m| m.len() as usize);
            if bytes > MAX_BYTES || all.0.len() == MAX_FILES {
                return Err(format!("files of the chain exceed {MAX_FILES} files or {} MiB", MAX_BYTES >> 20));
            }
            let content = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            all.0.insert(name.to_owned(), hex(&content));
        }
        Ok(all)
    }

    /// Writes the files to a folder.
    ///
    /// # Errors
    /// If one cannot be written, or its path does not lead below the folder.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for (name, text) in &self.0 {
            let bytes = unhex(text).filter(|_| is_below(name));
            let bytes = bytes.ok_or_else(|| io::Error::other(format!("invalid file: {name:?}")))?;
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
            std::fs::write(path, bytes)?;
        }
        Ok(())
    }
}

/// Returns true for a relative path without `..`.
fn is_below(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n & 15)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(*b)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|n| n as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)).unwrap(), all);
        assert!(unhex("0").is_none() && unhex("0g").is_none() && unhex("").is_some());
    }

    #[test]
    fn copies_files_below_a_folder_only() {
        let base = std::env::temp_dir().join(format!("bondstone-files-{}", std::process::id()));
        let (from, to) = (base.join("from"), base.join("to"));
        std::fs::create_dir_all(from.join("rules")).unwrap();
        std::fs::create_dir_all(&to).unwrap();
        std::fs::write(from.join("rules/web"), "drop").unwrap();
        std::fs::write(base.join("secret"), "x").unwrap();
        let named = [from.join("rules/web"), from.join("../secret"), base.join("secret")];
        let mut files = Files::read(&from, named).unwrap();
        assert_eq!(files.0.len(), 1);
        files.write(&to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("rules/web")).unwrap(), "drop");
        for outside in ["../out", "/out", "", "a/../../out"] {
            files.0 = BTreeMap::from([(outside.to_owned(), "00".to_owned())]);
            assert!(files.write(&to).is_err(), "{outside:?}");
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
