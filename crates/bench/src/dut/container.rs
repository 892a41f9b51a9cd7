//! A program of the device's in a container: runc, with the files of this system, which it cannot write.

use super::guard::Guard;
use super::program::Line;
use super::{DutError, Site};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Namespaces of its own.
const NAMESPACES: [&str; 6] = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
/// Folders of `/` that are not this system's in a container, but new and empty.
const OWN: [&str; 5] = ["dev", "proc", "sys", "tmp", "run"];
/// Where runc keeps what it knows of the containers of a site.
const STATE: &str = "runc";
/// The device of tun and tap interfaces.
const TUN: (i64, i64) = (10, 200);

/// What a program needs beside what every one has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Files and folders that it reads; those in `/tmp` and `/run` are not there otherwise.
    pub(crate) files: Vec<PathBuf>,
    /// Whether it makes interfaces in its namespace.
    pub(crate) interfaces: bool,
}

/// A container, of which nothing is left when this is dropped or this program is gone.
pub(crate) struct Container {
    name: String,
    state: PathBuf,
    _guard: Guard,
}

/// What a reader of a result has to know.
pub(crate) fn remark(interfaces: bool) -> String {
    let rights = if interfaces { "no capabilities but to make interfaces in it" } else { "no capabilities" };
    format!(
        "its programs run in containers of runc: namespaces of their own ({}), the user root with {rights}, a cpuset, \
         this system's files read-only",
        NAMESPACES.join(", ")
    )
}

impl Container {
    /// Prepares one for a program called `name`; the command that runs the program in it.
    ///
    /// # Errors
    /// When this user may not, or runc is not there.
    pub(crate) fn new(site: &mut Site, name: &str, line: &Line, needs: &Needs) -> Result<(Container, Line), DutError> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                site.wrong("needs a container, and this user may make none", "run it as root, or say env = \"native\"")
            );
        }
        Line::new("runc").args(["--version"]).output(site)?;
        let bundle = site.path(&format!("{name}.bundle"));
        let root = bundle.join("rootfs");
        fs::create_dir_all(&root).map_err(|e| site.file_error(&root, &e))?;
        let config = config(site, &root, line.parts(), needs).map_err(|e| site.file_error(&root, &e))?;
        let file = bundle.join("config.json");
        fs::write(&file, config.to_string()).map_err(|e| site.file_error(&file, &e))?;
        let state = site.path(STATE);
        let whole = format!("{}-{name}", site.path("").file_name().unwrap_or_default().to_string_lossy());
        let words = [&*state.to_string_lossy(), &whole];
        let guard = Guard::start(site, ":", "runc --root \"$1\" delete --force \"$2\"", &words)?;
        site.note(format!("in a container: {}", line.words()));
        let container = Container { name: whole, state, _guard: guard };
        let run = container.runc("run").args(["--bundle".to_owned(), bundle.display().to_string()]);
        let run = run.args([&container.name]);
        Ok((container, run))
    }

    fn runc(&self, command: &str) -> Line {
        Line::new("runc").args(["--root", &self.state.to_string_lossy(), command])
    }

    /// The command that runs another in it.
    pub(crate) fn exec(&self, line: &Line) -> Line {
        self.runc("exec").args([&self.name]).args(line.parts().iter().cloned())
    }
}

/// Removes the containers of a site whose program is gone.
pub(crate) fn remove_leftovers(folder: &Path) {
    let state = folder.join(STATE);
    for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
        let (state, name) = (state.to_string_lossy(), entry.file_name());
        Line::new("runc").args(["--root", &state, "delete", "--force", &name.to_string_lossy()]).succeeds();
    }
}

/// The bundle's configuration (OCI runtime specification 1.0); links of `/` are made in `root`.
fn config(site: &Site, root: &Path, words: &[String], needs: &Needs) -> std::io::Result<Value> {
    let mount = |to: &str, kind: &str, from: &str, options: &[&str]| json!({ "destination": to, "type": kind, "source": from, "options": options });
    let mut mounts = vec![
        mount("/proc", "proc", "proc", &["nosuid", "nodev", "noexec"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755", "size=64k"]),
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "nodev", "noexec", "mode=1777"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "nodev", "noexec", "ro"]),
    ];
    let mut all: Vec<_> = fs::read_dir("/")?.flatten().map(|e| e.path()).collect();
    all.sort();
    for path in all {
        let Some(name) = path.file_name().filter(|n| !OWN.iter().any(|own| *n == *own)) else { continue };
        if let Ok(target) = fs::read_link(&path) {
            symlink(target, root.join(name))?;
        } else if path.is_dir() {
            let path = path.to_string_lossy();
            mounts.push(mount(&path, "bind", &path, &["rbind", "rro", "nosuid", "nodev"]));
        }
    }
    for folder in ["/tmp", "/run"] {
        mounts.push(mount(folder, "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777"]));
    }
    for file in &needs.files {
        let path = file.to_string_lossy();
        mounts.push(mount(&path, "bind", &path, &["bind", "ro", "nosuid", "nodev"]));
    }
    let folder = site.path("").to_string_lossy().trim_end_matches('/').to_owned();
    mounts.push(mount(&folder, "bind", &folder, &["bind", "rw", "nosuid", "nodev"]));
    let pages = "/dev/hugepages";
    if Path::new(pages).is_dir() {
        mounts.push(mount(pages, "bind", pages, &["bind", "rw", "nosuid", "nodev"]));
    }
    let capabilities: &[&str] = if needs.interfaces { &["CAP_NET_ADMIN"] } else { &[] };
    let (major, minor) = TUN;
    let tun = json!({ "path": "/dev/net/tun", "type": "c", "major": major, "minor": minor, "fileMode": 0o600 });
    let allowed = json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm" });
    let only_if = |value: Value| if needs.interfaces { vec![value] } else { vec![] };
    let mut devices = vec![json!({ "allow": false, "access": "rwm" })];
    devices.extend(only_if(allowed));
    let mut resources = json!({ "devices": devices });
    if !site.cpus().is_empty() {
        resources["cpu"] = json!({ "cpus": site.cpu_list() });
    }
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": words,
            "env": [format!("PATH={}", std::env::var("PATH").unwrap_or_default())],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": { "bounding": capabilities, "effective": capabilities, "permitted": capabilities },
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "dut",
        "mounts": mounts,
        "linux": {
            "namespaces": NAMESPACES.map(|kind| json!({ "type": kind })),
            "resources": resources,
            "devices": only_if(tun),
        },
    }))
}
