//! Locks of network namespaces: each is held by the process that runs a control plane in it, and ends with that process.

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Folder of files that only root reads and writes.
pub(super) const FOLDER: &str = "/run/bondstone-tenants";
/// Interval at which a lock of another process is tried again.
const INTERVAL: Duration = Duration::from_millis(50);
/// Longest content of a lock file, in bytes.
const CONTENT_MAX: u64 = 64;

/// A lock file with the holder's process number and the number of the namespace that a supervisor has created, 0 for
/// none. It is removed when this is dropped, and the kernel unlocks it when the process ends otherwise.
pub(super) struct Lock {
    folder: OwnedFd,
    name: String,
    file: File,
}

/// Opens the folder, or creates it.
///
/// # Errors
/// It cannot be opened, or others than this user can write to it.
pub(super) fn open_folder() -> io::Result<OwnedFd> {
    open_folder_at(FOLDER)
}

fn open_folder_at(path: &str) -> io::Result<OwnedFd> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty())?;
    let found = fstat(&folder)?;
    let is_private = found.st_uid == geteuid().as_raw() && found.st_mode & 0o022 == 0;
    is_private.then_some(folder).ok_or_else(|| io::Error::other("other users can write to it; remove it"))
}

impl Lock {
    /// Takes the lock of a namespace. Another process may hold it until `deadline`: the supervisor of a run that was
    /// killed ends its daemons first.
    ///
    /// # Errors
    /// Another process holds it, or the file cannot be used.
    pub(super) fn take(namespace: &str, deadline: Instant) -> Result<Lock, String> {
        let folder = open_folder().map_err(|e| format!("{FOLDER}: {e}"))?;
        Self::take_in(folder, namespace, deadline)
    }

    fn take_in(folder: OwnedFd, namespace: &str, deadline: Instant) -> Result<Lock, String> {
        let name = format!("{namespace}.lock");
        let failed = |e: io::Error| format!("{FOLDER}/{name}: {e}");
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
            let found = fstat(&file).map_err(|e| failed(e.into()))?;
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                return Err(failed(io::Error::other("not a regular file; remove it")));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // the holder before may have removed the file after it was opened here
                Ok(())
                    if statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|now| now.st_ino == found.st_ino) =>
                {
                    return Ok(Lock { folder, name, file: File::from(file) });
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let pid = read(&mut File::from(file)).map_or(String::new(), |(pid, _)| format!(" (process {pid})"));
                    return Err(format!("network namespace {namespace} is that of another run{pid}; name another one"));
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
    }

    /// Returns the number of the namespace that the holder before had created, if it was killed.
    pub(super) fn created_before(&mut self) -> Option<u64> {
        read(&mut self.file).map(|(_, namespace)| namespace).filter(|namespace| *namespace != 0)
    }

    /// Records the number of the namespace that this process has created, or takes over.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn record(&mut self, created: Option<u64>) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{} {}", std::process::id(), created.unwrap_or(0))
    }
}

/// Returns the process number and the number of the namespace.
fn read(file: &mut File) -> Option<(u32, u64)> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(CONTENT_MAX).read_to_string(&mut text).ok()?;
    let (pid, namespace) = text.trim().split_once(' ')?;
    Some((pid.parse().ok()?, namespace.parse().ok()?))
}

impl Drop for Lock {
    fn drop(&mut self) {
        // ignore errors: it is gone; while it is locked, no other process has taken it
        let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &tempfile::TempDir) -> Result<Lock, String> {
        let folder = open_folder_at(folder.path().to_str().unwrap()).unwrap();
        Lock::take_in(folder, "blue", Instant::now())
    }

    #[test]
    fn one_process_at_a_time_holds_a_lock() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = take(&folder).unwrap();
        assert_eq!(first.created_before(), None);
        first.record(Some(4711)).unwrap();
        let refused = take(&folder).err().unwrap();
        assert!(
            refused.contains(&format!("blue is that of another run (process {})", std::process::id())),
            "{refused}"
        );
        // as if it was killed: the file stays, and is locked no more
        let Lock { file, .. } = &first;
        flock(file, FlockOperation::Unlock).unwrap();
        std::mem::forget(first);
        let mut second = take(&folder).unwrap();
        assert_eq!(second.created_before(), Some(4711));
        second.record(None).unwrap();
        assert_eq!(second.created_before(), None);
        drop(second);
        assert!(!folder.path().join("blue.lock").exists());
        assert_eq!(take(&folder).unwrap().created_before(), None);
    }

    #[test]
    fn links_and_folders_of_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "content").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("blue.lock")).unwrap();
        assert!(take(&folder).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "content");
        std::fs::remove_file(folder.path().join("blue.lock")).unwrap();
        std::fs::create_dir(folder.path().join("blue.lock")).unwrap();
        assert!(take(&folder).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(open_folder_at(link.to_str().unwrap()).is_err());
        rustix::fs::chmod(folder.path(), Mode::from_raw_mode(0o777)).unwrap();
        assert!(open_folder_at(folder.path().to_str().unwrap()).unwrap_err().to_string().contains("other users"));
    }
}
