//! Files that settings name.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The files that settings name and that are open before the first NF is built, by absolute path. NFs in a sandbox may
/// not open files, so the sandbox opens these for them; elsewhere there are none.
#[derive(Clone, Debug, Default)]
pub struct SettingFiles {
    open: Arc<BTreeMap<PathBuf, Arc<File>>>,
    /// Files that were read, with the version read last.
    read: Arc<Mutex<BTreeMap<PathBuf, FileVersion>>>,
}

/// The version of a file: its device, inode and size, and the times of its last change in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion([u64; 3], [i64; 4]);

impl FileVersion {
    /// Returns the present version of a file; `None` if it does not exist or is not accessible.
    #[must_use]
    pub fn of(path: &Path) -> Option<FileVersion> {
        fs::metadata(path).ok().map(|metadata| FileVersion::new(&metadata))
    }

    fn new(metadata: &Metadata) -> FileVersion {
        let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        FileVersion([metadata.dev(), metadata.ino(), metadata.size()], times)
    }
}

impl SettingFiles {
    /// Opens files, whose paths must be absolute. Those that cannot be opened are errors of the NFs that read them.
    #[must_use]
    pub fn open_all(paths: &[PathBuf]) -> SettingFiles {
        let open = |path: &PathBuf| Some((path.clone(), Arc::new(File::open(path).ok()?)));
        SettingFiles { open: Arc::new(paths.iter().filter_map(open).collect()), read: Arc::default() }
    }

    /// Returns a reader from the start of a file: of an open one, or of one that is opened now.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(&self, path: &Path) -> io::Result<SettingFile> {
        if let Some(file) = self.open.get(path) {
            return Ok(SettingFile(Source::Shared(file.clone(), 0)));
        }
        let file = File::open(path)?;
        let version = FileVersion::new(&file.metadata()?);
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), version);
        Ok(SettingFile(Source::Own(file)))
    }

    /// Returns the same files with a record of its own of those that are read.
    #[must_use]
    pub fn with_own_record(&self) -> SettingFiles {
        SettingFiles { open: self.open.clone(), read: Arc::default() }
    }

    /// Returns the files that were read, with the version read last.
    #[must_use]
    pub fn read(&self) -> BTreeMap<PathBuf, FileVersion> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if one of the files that were read has changed since it was read last.
    #[must_use]
    pub fn have_changed(&self) -> bool {
        self.read().iter().any(|(path, before)| FileVersion::of(path) != Some(*before))
    }
}

/// A reader of a file that a setting names; see [`BuildContext::open`](crate::BuildContext::open).
#[derive(Debug)]
pub struct SettingFile(Source);

#[derive(Debug)]
enum Source {
    Own(File),
    /// A file with other readers, and the offset of this one.
    Shared(Arc<File>, u64),
}

impl Read for SettingFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::Own(file) => file.read(buffer),
            Source::Shared(file, at) => {
                let n = file.read_at(buffer, *at)?;
                *at += n as u64;
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BuildContext;

    #[test]
    fn a_file_that_is_read_is_watched_for_changes() {
        let path = std::env::temp_dir().join(format!("bondstone-changed-setting-file-{}", std::process::id()));
        fs::write(&path, "rules").unwrap();
        let all = SettingFiles::default();
        let (of_one, of_other) = (all.with_own_record(), all.with_own_record());
        of_one.open(&path).unwrap();
        assert!(!of_one.have_changed());
        fs::write(&path, "other rules").unwrap();
        assert!(of_one.have_changed() && !of_other.have_changed());
        of_other.open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(of_other.have_changed());
    }

    #[test]
    fn an_open_file_is_read_again_from_its_start_without_its_path() {
        let path = std::env::temp_dir().join(format!("bondstone-setting-file-{}", std::process::id()));
        fs::write(&path, "rules").unwrap();
        let folder = path.parent().unwrap().to_owned();
        let cx = BuildContext { files: SettingFiles::open_all(std::slice::from_ref(&path)), ..Default::default() };
        let cx = BuildContext { base_dir: folder, ..cx };
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let (mut both, mut text) = ([0; 2], String::new());
            let mut first = cx.open(path.file_name().unwrap()).unwrap();
            first.read_exact(&mut both).unwrap();
            cx.open(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!((&both, text.as_str()), (b"ru", "rules"));
        }
        assert_eq!(BuildContext::default().open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(SettingFiles::open_all(std::slice::from_ref(&path)).open.is_empty());
    }
}
