//! The sources of Bondstone that a generated crate depends on.

use anyhow::Context;
use diagnostics::Diagnostic;
use std::fs;
use std::path::{Path, PathBuf};

/// Location of the sources of Bondstone.
pub(crate) enum Source {
    /// The root folder.
    Folder(PathBuf),
    /// The URL of a git repository.
    Git(String),
}

impl Source {
    /// Returns the given sources, or those that this program was built from.
    ///
    /// # Errors
    /// They do not exist, or are no folder or URL.
    pub(crate) fn find(given: Option<&str>) -> Result<Source, Diagnostic> {
        let has_sources = |root: &Path| {
            root.join("crates/bondstone-cli/Cargo.toml").is_file() && root.join("crates/nf-testkit").is_dir()
        };
        let Some(given) = given else {
            let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            return match built.canonicalize() {
                Ok(root) if has_sources(&root) => Ok(Source::Folder(root)),
                _ => Err(Diagnostic::new("the sources of Bondstone that this program was built from do not exist")
                    .value(built.display())
                    .remedy("specify them: --bondstone FOLDER, or --bondstone URL of a git repository")),
            };
        };
        if given.contains("://") {
            return match given.contains(['"', '\\']) || given.chars().any(char::is_control) {
                true => Err(Diagnostic::new("invalid URL").value(given).remedy("remove quotes and control characters")),
                false => Ok(Source::Git(given.to_owned())),
            };
        }
        match Path::new(given).canonicalize() {
            Ok(root) if has_sources(&root) => Ok(Source::Folder(root)),
            _ => {
                let error = Diagnostic::new("contains no sources of Bondstone").value(given);
                // scp-like syntax of git: git@host:path
                Err(error.remedy(match given.split_once(':') {
                    Some((host, path)) => format!("use a URL with a scheme: ssh://{host}/{path}"),
                    None => "specify the folder that contains crates/bondstone-cli, or the URL of a git repository"
                        .to_owned(),
                }))
            }
        }
    }

    /// Returns the dependency on one of its crates in a manifest.
    pub(crate) fn dependency(&self, name: &str) -> String {
        match self {
            Source::Folder(root) => format!("path = {:?}", root.join("crates").join(name).display().to_string()),
            Source::Git(url) => format!("git = {url:?}"),
        }
    }

    /// Copies the versions of third-party crates that Bondstone is tested with into the folder of a crate that depends
    /// on it; Cargo removes unused ones.
    pub(crate) fn copy_lock_file(&self, dir: &Path) -> anyhow::Result<()> {
        if let Source::Folder(root) = self {
            let lock = root.join("Cargo.lock");
            if lock.is_file() {
                fs::copy(&lock, dir.join("Cargo.lock")).with_context(|| format!("cannot copy {}", lock.display()))?;
            }
        }
        Ok(())
    }
}
