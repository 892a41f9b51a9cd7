//! Linux kernels of virtual machines.

use crate::error::environment_error;
use crate::private_folder;
use runtime::Error;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A distribution kernel with the modules for user-space network drivers.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Path of the kernel.
    pub image: PathBuf,
    /// Paths of `uio` and `uio_pci_generic`.
    pub(crate) modules: Vec<PathBuf>,
    /// Version.
    pub version: String,
    /// SHA-256 of each file that was downloaded.
    digests: BTreeMap<PathBuf, String>,
}

/// File of the digests of a downloaded kernel, in the format of `sha256sum`.
const DIGESTS: &str = "SHA256SUMS";

impl Kernel {
    /// Returns the kernel that [`Kernel::fetch`] has downloaded, or a kernel of this machine.
    ///
    /// # Errors
    /// No kernel has the modules, or another user may have changed the downloaded one.
    pub fn find() -> Result<Kernel, Error> {
        let folder = cache_folder();
        let downloaded = if folder.symlink_metadata().is_ok() { Kernel::find_downloaded(&folder)? } else { None };
        downloaded.or_else(|| Kernel::find_below(Path::new("/"))).ok_or_else(|| {
            environment_error(
                "no kernel for VMs with the modules uio and uio_pci_generic",
                "run bondstone image vm --fetch",
            )
        })
    }

    fn find_below(root: &Path) -> Option<Kernel> {
        let all = std::fs::read_dir(root.join("boot")).ok()?.flatten();
        let mut images: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
        images.sort();
        images.into_iter().rev().find_map(|image| {
            let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            let folder = root.join("lib/modules").join(&version).join("kernel/drivers/uio");
            let modules = ["uio.ko", "uio_pci_generic.ko"].map(|name| folder.join(name)).to_vec();
            let digests = BTreeMap::new();
            modules.iter().all(|path| path.is_file()).then_some(Kernel { image, modules, version, digests })
        })
    }

    /// Returns the kernel in a folder that only this user can change, with its digests.
    fn find_downloaded(folder: &Path) -> Result<Option<Kernel>, Error> {
        private_folder::check(folder).map_err(|e| unsafe_folder(&e))?;
        let Some(mut kernel) = Kernel::find_below(folder) else { return Ok(None) };
        let lines = std::fs::read_to_string(folder.join(DIGESTS)).unwrap_or_default();
        let entry = |line: &str| line.split_once("  ").map(|(digest, path)| (folder.join(path), digest.to_owned()));
        kernel.digests = lines.lines().filter_map(entry).collect();
        let is_complete = kernel.files().all(|path| kernel.digests.contains_key(path));
        Ok(is_complete.then_some(kernel))
    }

    /// Returns the paths of the kernel and its modules.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.image).chain(&self.modules)
    }

    /// Writes the digests of its files to a folder that contains them.
    fn write_digests(&self, folder: &Path) -> io::Result<()> {
        let line = |path: &PathBuf| {
            let name = path.strip_prefix(folder).unwrap_or(path);
            Ok(format!("{}  {}\n", sha256(&std::fs::read(path)?), name.display()))
        };
        std::fs::write(folder.join(DIGESTS), self.files().map(line).collect::<io::Result<String>>()?)
    }

    /// Reads the kernel or a module.
    ///
    /// # Errors
    /// It cannot be read, or differs from the file that was downloaded.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = std::fs::read(path)?;
        match self.digests.get(path) {
            Some(expected) if *expected != sha256(&content) => {
                Err(io::Error::other(format!("{}: differs from the downloaded file", path.display())))
            }
            _ => Ok(content),
        }
    }

    /// Downloads a kernel package of Debian without installing it, unless it was downloaded before.
    ///
    /// # Errors
    /// The package or a tool does not exist.
    pub fn fetch() -> Result<Kernel, Error> {
        const META: &str = "linux-image-cloud-amd64";
        let remedy = "install a kernel with the modules uio and uio_pci_generic below /boot and /lib/modules";
        let to = cache_folder();
        private_folder::create(&to).map_err(|e| unsafe_folder(&e))?;
        if let Some(there) = Kernel::find_downloaded(&to)? {
            return Ok(there);
        }
        let error = |what: &str, e: &dyn fmt::Display| environment_error(format!("{what}: {e}"), remedy);
        let written = |kernel: Kernel| {
            kernel.write_digests(&to).map_err(|e| error(&to.display().to_string(), &e))?;
            Kernel::find_downloaded(&to)
        };
        // downloaded by a version that wrote no digests
        if let Some(there) = Kernel::find_below(&to)
            && let Some(there) = written(there)?
        {
            return Ok(there);
        }
        let run = |program: &str, args: &[&str]| {
            let done = Command::new(program).args(args).current_dir(&to).output().map_err(|e| error(program, &e))?;
            let output = String::from_utf8_lossy(&done.stdout).into_owned();
            match done.status.success() {
                true => Ok(output),
                false => Err(error(program, &String::from_utf8_lossy(&done.stderr).trim())),
            }
        };
        let output = run("apt-cache", &["depends", META])?;
        let mut named = output.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let package = named.rfind(|name| name.starts_with("linux-image-"));
        let package = package.ok_or_else(|| error(META, &"no such package"))?;
        run("apt-get", &["-q", "download", package])?;
        let archive = std::fs::read_dir(&to).into_iter().flatten().flatten().map(|entry| entry.path());
        let archive = archive.filter(|path| path.extension().is_some_and(|e| e == "deb")).last();
        let archive = archive.ok_or_else(|| error(package, &"no package was downloaded"))?;
        let at = archive.display().to_string();
        run("dpkg-deb", &["-x", &at, "."])?;
        // errors: the archive stays
        let _ = std::fs::remove_file(archive);
        let lacking = || error(package, &"it lacks the modules uio and uio_pci_generic");
        written(Kernel::find_below(&to).ok_or_else(lacking)?)?.ok_or_else(lacking)
    }
}

/// Returns the SHA-256 of some bytes as hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unsafe_folder(e: &io::Error) -> Error {
    environment_error(
        format!("folder of downloaded kernels: {e}"),
        "set XDG_CACHE_HOME to a folder that only this user can change",
    )
}

/// Returns the folder of downloaded kernels.
pub(crate) fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let shared = || match rustix::process::geteuid().as_raw() {
        0 => "/var/cache".into(),
        user => std::env::temp_dir().join(format!("bondstone-user-{user}")),
    };
    folder.unwrap_or_else(shared).join("bondstone/kernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_kernel_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("lib/modules/6.1/kernel/drivers/uio");
        for at in [&folder.path().join("boot"), &modules] {
            std::fs::create_dir_all(at).unwrap();
        }
        let image = folder.path().join("boot/vmlinuz-6.1");
        for at in [&image, &modules.join("uio.ko"), &modules.join("uio_pci_generic.ko")] {
            std::fs::write(at, at.display().to_string()).unwrap();
        }
        let find = || Kernel::find_downloaded(folder.path()).unwrap();
        assert!(find().is_none(), "without digests");
        Kernel::find_below(folder.path()).unwrap().write_digests(folder.path()).unwrap();
        let kernel = find().unwrap();
        for at in kernel.files() {
            assert_eq!(kernel.read(at).unwrap(), at.display().to_string().into_bytes());
            std::fs::write(at, "another").unwrap();
            assert!(kernel.read(at).unwrap_err().to_string().contains("differs from the downloaded file"));
        }
    }
}
