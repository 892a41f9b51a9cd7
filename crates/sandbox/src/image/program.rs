//! The program that runs in sandboxes and images.

use crate::error::environment_error;
use runtime::Error;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and its shared libraries.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Program {
    /// Returns the program beside this one whose name has the suffix `-host`, a smaller one with the same NFs; or this
    /// program.
    ///
    /// # Errors
    /// The program cannot be found or started.
    pub fn find() -> Result<Program, Error> {
        let own = current_program()?;
        let mut name = own.file_name().unwrap_or_default().to_owned();
        name.push("-host");
        let small = own.with_file_name(name);
        Program::at(if small.is_file() { &small } else { &own })
    }

    /// Returns this program, which contains drivers for PCI devices.
    ///
    /// # Errors
    /// Those of [`Program::find`].
    pub(crate) fn with_drivers() -> Result<Program, Error> {
        Program::at(&current_program()?)
    }

    /// Returns a program and the libraries that the dynamic loader lists for it.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn at(path: &Path) -> Result<Program, Error> {
        // the dynamic loader lists the libraries; a static program prints its version instead
        let mut command = Command::new(path);
        let listed = command.arg("--version").env("LD_TRACE_LOADED_OBJECTS", "1").output();
        let listed = listed.map_err(|e| environment_error(format!("{}: {e}", path.display()), "make it executable"))?;
        let text = String::from_utf8_lossy(&listed.stdout);
        let library = |line: &str| {
            let path = line.split_once(" => ").map_or(line, |(_, path)| path).split_whitespace().next()?;
            path.starts_with('/').then(|| path.into())
        };
        Ok(Program { path: path.to_owned(), libraries: text.lines().filter_map(library).collect() })
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its libraries, whose paths are the same in a sandbox.
    pub(crate) fn libraries(&self) -> &[PathBuf] {
        &self.libraries
    }

    /// Returns the program, with its path in an image, and its libraries.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn files(&self, at: &str) -> std::io::Result<ImageFiles> {
        let mut files = read_files(&self.libraries, 0o755)?;
        files.push((at.into(), 0o755, self.bytes()?));
        Ok(files)
    }

    /// Returns its content without debug information, if `strip` is available.
    fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let output = tempfile::NamedTempFile::new()?;
        let stripped = Command::new("strip").arg("-o").arg(output.path()).arg(&self.path).output();
        match stripped {
            Ok(done) if done.status.success() => std::fs::read(output.path()),
            // larger
            _ => std::fs::read(&self.path),
        }
    }
}

fn current_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|e| environment_error(format!("path of this program: {e}"), "start it by its path"))
}

/// Files of an image: path, mode and content.
pub(crate) type ImageFiles = Vec<(PathBuf, u32, Vec<u8>)>;

/// Reads files whose paths in an image are the same as here.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn read_files(paths: &[PathBuf], mode: u32) -> std::io::Result<ImageFiles> {
    paths.iter().map(|path| Ok((path.clone(), mode, std::fs::read(path)?))).collect()
}

/// Returns all parent folders of files, each after its parent.
pub(crate) fn parent_folders<'a>(files: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let above = files.into_iter().flat_map(|file| file.ancestors().skip(1));
    above.filter(|folder| folder.parent().is_some() && !folder.as_os_str().is_empty()).map(Path::to_owned).collect()
}
