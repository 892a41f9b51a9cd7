//! Guests of QEMU whose first process is a shell script.

use std::fs::{copy, create_dir_all, read_dir, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Longest run of a guest, seconds.
const LIMIT_S: &str = "300";

const BUSYBOX: &str = "/bin/busybox";

/// The files of a guest: this program as `/bondstone`, and BusyBox.
pub(crate) struct GuestFiles(PathBuf);

impl GuestFiles {
    /// Creates them in a folder; `init` is the script of the first process.
    pub(crate) fn new(root: PathBuf, init: &str) -> GuestFiles {
        let files = GuestFiles(root);
        ["bin", "proc", "sys", "dev", "modules"].iter().for_each(|dir| create_dir_all(files.path(dir)).unwrap());
        files.put(Path::new(BUSYBOX), "bin/busybox");
        files.put_program(Path::new(env!("CARGO_BIN_EXE_bondstone")), "bondstone");
        // debug information is most of the binary, which is loaded into memory
        succeeds(Command::new("strip").arg(files.path("bondstone")));
        write(files.path("init"), init).unwrap();
        set_permissions(files.path("init"), std::fs::Permissions::from_mode(0o755)).unwrap();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name.trim_start_matches('/'))
    }

    fn put(&self, from: &Path, to: &str) {
        let to = self.path(to);
        create_dir_all(to.parent().unwrap()).unwrap();
        copy(from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
    }

    /// Adds a program with its libraries.
    pub(crate) fn put_program(&self, from: &Path, to: &str) {
        self.put(from, to);
        libraries(from).iter().for_each(|library| self.put(Path::new(library), library));
    }

    /// Adds kernel modules of a folder to `/modules`, and the list of their names as `/modules/LIST`.
    pub(crate) fn put_modules(&self, list: &str, folder: &Path, modules: &[&str]) {
        let names: Vec<&str> =
            modules.iter().map(|module| Path::new(module).file_name().unwrap().to_str().unwrap()).collect();
        modules
            .iter()
            .zip(&names)
            .for_each(|(module, name)| self.put(&folder.join(module), &format!("modules/{name}")));
        write(self.path("modules").join(list), names.join("\n")).unwrap();
    }

    /// Writes them as an initramfs.
    pub(crate) fn pack(&self, archive: &Path) {
        let pack = format!("find . | cpio --quiet -o -H newc >{}", archive.display());
        assert!(succeeds(Command::new("sh").args(["-c", &pack]).current_dir(&self.0)));
    }
}

/// Returns the folder of files that Bondstone downloads for guests.
pub(crate) fn cache() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("bondstone")
}

/// Returns a kernel image below a folder and the folder of its modules, if it has these.
pub(crate) fn kernel(root: &Path, modules: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let mut images = read_dir(root.join("boot")).ok()?.flatten().map(|entry| entry.path());
    let image = images.find(|path| path.to_string_lossy().contains("vmlinuz-"))?;
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    let folder = root.join("lib/modules").join(version).join("kernel");
    modules.iter().all(|module| folder.join(module).is_file()).then_some((image, folder))
}

/// Returns true if initramfs archives can be made.
pub(crate) fn has_tools() -> bool {
    succeeds(Command::new("cpio").arg("--version")) && Path::new(BUSYBOX).exists()
}

/// Runs a guest until it ends, within a limit, and returns what its serial console printed.
pub(crate) fn run(qemu: &Command) -> String {
    let mut limited = Command::new("timeout");
    limited.arg(LIMIT_S).arg(qemu.get_program()).args(qemu.get_args()).stdin(Stdio::null());
    let output = limited.output().unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    eprintln!("{output}");
    output
}

/// Returns the shared libraries of a program.
fn libraries(program: &Path) -> Vec<String> {
    let listed = Command::new(program).arg("--version").env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
    let word = |line: &str| {
        let path = line.split_once(" => ").map_or(line, |(_, path)| path).split_whitespace().next()?.to_owned();
        path.starts_with('/').then_some(path)
    };
    String::from_utf8(listed.stdout).unwrap().lines().filter_map(word).collect()
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}
