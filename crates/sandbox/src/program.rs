//! The program that runs behind walls, as it is put into images.

use crate::lacks;
use runtime::Error;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, and the libraries without which it does not start.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Program {
    /// This program; rather the one beside it that is called the same with `-host` behind, if there is one: that has the same
    /// NFs, and nothing that is not needed to run them.
    ///
    /// # Errors
    /// It cannot be found or started.
    pub fn own() -> Result<Program, Error> {
        let own = own()?;
        let mut name = own.file_name().unwrap_or_default().to_owned();
        name.push("-host");
        let beside = own.with_file_name(name);
        Program::at(if beside.is_file() { &beside } else { &own })
    }

    /// This program itself, which has drivers for devices of a machine.
    ///
    /// # Errors
    /// As of [`Program::own`].
    pub(crate) fn with_drivers() -> Result<Program, Error> {
        Program::at(&own()?)
    }

    fn at(path: &Path) -> Result<Program, Error> {
        // the loader lists what it would load; a program without one is started, and says its version
        let mut command = Command::new(path);
        let listed = command.arg("--version").env("LD_TRACE_LOADED_OBJECTS", "1").output();
        let listed = listed.map_err(|e| lacks(format!("{}: {e}", path.display()), "make it a program that runs"))?;
        let text = String::from_utf8_lossy(&listed.stdout);
        let word = |line: &str| {
            let path = line.split_once(" => ").map_or(line, |(_, path)| path).split_whitespace().next()?;
            path.starts_with('/').then(|| path.into())
        };
        Ok(Program { path: path.to_owned(), libraries: text.lines().filter_map(word).collect() })
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its libraries, which are found where they are here.
    pub(crate) fn libraries(&self) -> &[PathBuf] {
        &self.libraries
    }

    /// It, at that place of an image, and its libraries.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn files(&self, at: &str) -> std::io::Result<Files> {
        let mut files = read(&self.libraries, 0o755)?;
        files.push((at.into(), 0o755, self.bytes()?));
        Ok(files)
    }

    /// Its bytes, without what only debuggers read.
    fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let lean = tempfile::NamedTempFile::new()?;
        let stripped = Command::new("strip").arg("-o").arg(lean.path()).arg(&self.path).output();
        match stripped {
            Ok(done) if done.status.success() => std::fs::read(lean.path()),
            // larger, and as good
            _ => std::fs::read(&self.path),
        }
    }
}

fn own() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|e| lacks(format!("this program's own file: {e}"), "start it by its path"))
}

/// Files of an image: where each is, its mode, and what is in it.
pub(crate) type Files = Vec<(PathBuf, u32, Vec<u8>)>;

/// Files that are at the same place in an image as here.
///
/// # Errors
/// One cannot be read.
pub(crate) fn read(paths: &[PathBuf], mode: u32) -> std::io::Result<Files> {
    paths.iter().map(|path| Ok((path.clone(), mode, std::fs::read(path)?))).collect()
}

/// Folders in which files are, each after the one that it is in.
pub(crate) fn folders<'a>(files: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let above = files.into_iter().flat_map(|file| file.ancestors().skip(1));
    above.filter(|folder| folder.parent().is_some() && !folder.as_os_str().is_empty()).map(Path::to_owned).collect()
}
