//! Containers of runc that run a device's programs on the host's files, mounted read-only.

use super::cleanup::start_cleanup;
use super::command_line::CommandLine;
use crate::dut::context::{DutContext, DutError};
use runtime::CleanupProcess;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Namespaces of a container.
const NAMESPACES: [&str; 6] = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
/// Directories of `/` that are not bind-mounted from the host.
const PRIVATE_DIRS: [&str; 5] = ["dev", "proc", "sys", "tmp", "run"];
/// Name of runc's state directory in a work directory.
const STATE_DIR: &str = "runc";
/// Major and minor number of `/dev/net/tun`.
const TUN_DEVICE: (i64, i64) = (10, 200);

/// Options of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerOptions {
    /// Additional files and directories that the program reads; required for those in `/tmp` and `/run`.
    pub(crate) files: Vec<PathBuf>,
    /// True if the program creates network interfaces.
    pub(crate) creates_interfaces: bool,
}

/// A container that is deleted on drop, or when this process ends.
pub(crate) struct Container {
    name: String,
    state: PathBuf,
    _cleanup: CleanupProcess,
}

/// Returns the remark for results of a device in containers.
pub(crate) fn remark(creates_interfaces: bool) -> String {
    let capabilities = if creates_interfaces { "no capability except CAP_NET_ADMIN" } else { "no capabilities" };
    format!(
        "programs run in containers of runc: own namespaces ({}), user root with {capabilities}, a cpuset, the host's \
         files read-only",
        NAMESPACES.join(", ")
    )
}

impl Container {
    /// Creates the container of a program called `name`, and returns the command that runs the program in it.
    ///
    /// # Errors
    /// If this user is not root or runc is not installed.
    pub(crate) fn new(
        context: &mut DutContext,
        name: &str,
        command: &CommandLine,
        options: &ContainerOptions,
    ) -> Result<(Container, CommandLine), DutError> {
        if !rustix::process::geteuid().is_root() {
            return Err(context
                .error("cannot create a container: permission denied", "run it as root, or set env = \"native\""));
        }
        CommandLine::new("runc").args(["--version"]).run(context)?;
        let bundle = context.path(&format!("{name}.bundle"));
        let root = bundle.join("rootfs");
        fs::create_dir_all(&root).map_err(|e| context.file_error(&root, &e))?;
        let config = config(context, &root, command.words(), options).map_err(|e| context.file_error(&root, &e))?;
        let file = bundle.join("config.json");
        fs::write(&file, config.to_string()).map_err(|e| context.file_error(&file, &e))?;
        let state = context.path(STATE_DIR);
        let full_name = format!("{}-{name}", context.path("").file_name().unwrap_or_default().to_string_lossy());
        let words = [&*state.to_string_lossy(), &full_name];
        let cleanup = start_cleanup(context, ":", "runc --root \"$1\" delete --force \"$2\"", &words)?;
        context.record(format!("in a container: {}", command.shell_text()));
        let container = Container { name: full_name, state, _cleanup: cleanup };
        let run = container.runc("run").args(["--bundle".to_owned(), bundle.display().to_string()]);
        let run = run.args([&container.name]);
        Ok((container, run))
    }

    fn runc(&self, command: &str) -> CommandLine {
        CommandLine::new("runc").args(["--root", &self.state.to_string_lossy(), command])
    }

    /// Returns a command that runs another one in the container.
    pub(crate) fn exec(&self, command: &CommandLine) -> CommandLine {
        self.runc("exec").args([&self.name]).args(command.words().iter().cloned())
    }
}

/// Deletes the containers whose state is in a work directory.
pub(super) fn remove_leftovers(work_dir: &Path) {
    let state = work_dir.join(STATE_DIR);
    for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
        let (state, name) = (state.to_string_lossy(), entry.file_name());
        CommandLine::new("runc").args(["--root", &state, "delete", "--force", &name.to_string_lossy()]).succeeds();
    }
}

/// Returns the bundle's configuration (OCI runtime specification 1.0) and creates the symbolic links of `/` in `root`.
fn config(context: &DutContext, root: &Path, words: &[String], options: &ContainerOptions) -> std::io::Result<Value> {
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
        let Some(name) = path.file_name().filter(|n| !PRIVATE_DIRS.iter().any(|private| *n == *private)) else {
            continue;
        };
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
    for file in &options.files {
        let path = file.to_string_lossy();
        mounts.push(mount(&path, "bind", &path, &["bind", "ro", "nosuid", "nodev"]));
    }
    let folder = context.path("").to_string_lossy().trim_end_matches('/').to_owned();
    mounts.push(mount(&folder, "bind", &folder, &["bind", "rw", "nosuid", "nodev"]));
    let pages = "/dev/hugepages";
    if Path::new(pages).is_dir() {
        mounts.push(mount(pages, "bind", pages, &["bind", "rw", "nosuid", "nodev"]));
    }
    let capabilities: &[&str] = if options.creates_interfaces { &["CAP_NET_ADMIN"] } else { &[] };
    let (major, minor) = TUN_DEVICE;
    let tun = json!({ "path": "/dev/net/tun", "type": "c", "major": major, "minor": minor, "fileMode": 0o600 });
    let allowed = json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm" });
    let only_if = |value: Value| if options.creates_interfaces { vec![value] } else { vec![] };
    let mut devices = vec![json!({ "allow": false, "access": "rwm" })];
    devices.extend(only_if(allowed));
    let mut resources = json!({ "devices": devices });
    if !context.cpus().is_empty() {
        resources["cpu"] = json!({ "cpus": context.cpu_list() });
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
