//! Files that settings name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files that settings name and that are open before the first NF is built, by absolute path. NFs in a sandbox may
/// not open files, so the sandbox opens these for them; elsewhere there are none.
#[derive(Clone, Debug, Default)]
pub struct SettingFiles(Arc<BTreeMap<PathBuf, Arc<File>>>);

impl SettingFiles {
    /// Opens files, whose paths must be absolute. Those that cannot be opened are errors of the NFs that read them.
    #[must_use]
    pub fn open_all(paths: &[PathBuf]) -> SettingFiles {
        let open = |path: &PathBuf| Some((path.clone(), Arc::new(File::open(path).ok()?)));
        SettingFiles(Arc::new(paths.iter().filter_map(open).collect()))
    }

    /// Returns a reader from the start of a file: of an open one, or of one that is opened now.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(&self, path: &Path) -> io::Result<SettingFile> {
        match self.0.get(path) {
            Some(file) => Ok(SettingFile(Source::Shared(file.clone(), 0))),
            None => Ok(SettingFile(Source::Own(File::open(path)?))),
        }
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
    fn an_open_file_is_read_again_from_its_start_without_its_path() {
        let path = std::env::temp_dir().join(format!("bondstone-setting-file-{}", std::process::id()));
        std::fs::write(&path, "rules").unwrap();
        let folder = path.parent().unwrap().to_owned();
        let cx = BuildContext { files: SettingFiles::open_all(std::slice::from_ref(&path)), ..Default::default() };
        let cx = BuildContext { base_dir: folder, ..cx };
        std::fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let (mut both, mut text) = ([0; 2], String::new());
            let mut first = cx.open(path.file_name().unwrap()).unwrap();
            first.read_exact(&mut both).unwrap();
            cx.open(&path).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!((&both, text.as_str()), (b"ru", "rules"));
        }
        assert_eq!(BuildContext::default().open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(SettingFiles::open_all(std::slice::from_ref(&path)).0.is_empty());
    }
}
