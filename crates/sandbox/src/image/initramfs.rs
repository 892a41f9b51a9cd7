//! The initramfs of a guest (`Documentation/driver-api/early-userspace/buffer-format.rst` of Linux).

use super::program::{ImageFiles, Program, parent_folders};
use crate::kernel::Kernel;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Path of the guest's launch spec.
pub(crate) const LAUNCH_SPEC: &str = "/launch.json";
/// Paths of the kernel modules.
pub(crate) const MODULES: [&str; 2] = ["/uio.ko", "/uio_pci_generic.ko"];

/// Returns the files of a guest that runs a program as its first process.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn guest_files(program: &Program, kernel: &Kernel) -> io::Result<ImageFiles> {
    let mut files = program.files("/init")?;
    for (at, module) in MODULES.iter().zip(&kernel.modules) {
        files.push((PathBuf::from(at), 0o644, kernel.read(module)?));
    }
    Ok(files)
}

/// Writes an archive.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write<W: Write>(mut to: W, files: &ImageFiles) -> io::Result<W> {
    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    let mut inode = 0;
    let mut entry = |path: &Path, mode: u32| {
        inode += 1;
        let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned();
        cpio::NewcBuilder::new(&name).ino(inode).nlink(1).mode(mode)
    };
    let empty = ["/dev", "/proc", "/sys", "/tmp"].map(|folder| Path::new(folder).join("x"));
    let paths = files.iter().map(|(path, ..)| path.as_path());
    for folder in parent_folders(paths.chain(empty.iter().map(PathBuf::as_path))) {
        to = entry(&folder, FOLDER | 0o755).write(to, 0).finish()?;
    }
    for (path, mode, bytes) in files {
        let size =
            u32::try_from(bytes.len()).map_err(|_| io::Error::other(format!("{} is too large", path.display())))?;
        let mut file = entry(path, FILE | mode).write(to, size);
        file.write_all(bytes)?;
        to = file.finish()?;
    }
    cpio::newc::trailer(to)
}
