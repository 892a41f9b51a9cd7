//! Containers: OCI bundles that runc runs.

use crate::confinement::cgroup;
use crate::error::environment_error;
use crate::image::program::Program;
use crate::launch::{LaunchSpec, PROCESS_COMMAND};
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// Path of the program in a container.
pub(crate) const PROGRAM: &str = "/bondstone";
/// Path of the launch spec in a container.
const LAUNCH_SPEC: &str = "/launch.json";

/// Added to the user ID of a container for the user that runc is until it starts the program. At most 32 sandboxes have
/// IDs of their own among the 64 of a run.
const SETUP_USER_OFFSET: u32 = 32;
/// Files that show the state of the host.
const MASKED: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
];

/// Returns a runc command with its state in a folder.
pub(crate) fn runc_command(state: &Path, arguments: &[&str]) -> Vec<String> {
    let state = state.display().to_string();
    ["runc", "--root", &state].into_iter().chain(arguments.iter().copied()).map(str::to_owned).collect()
}

/// Returns the version of runc.
///
/// # Errors
/// runc is not installed.
pub(crate) fn version() -> Result<String, runtime::Error> {
    let output = std::process::Command::new("runc").arg("--version").output();
    let output = output.map_err(|e| environment_error(format!("runc: {e}"), "install it: apt-get install runc"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().nth(2).unwrap_or("?").to_owned())
}

/// Writes the OCI bundle of a container to a folder; its root contains only mounts.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn write_bundle(
    folder: &Path,
    spec: &LaunchSpec,
    spec_file: &Path,
    program: &Program,
    groups: &Path,
) -> io::Result<()> {
    let root = folder.join("rootfs");
    std::fs::create_dir_all(&root)?;
    // runc creates mount points in it as the root of the user namespace, which is no user of the host
    let setup_user = spec.user + SETUP_USER_OFFSET;
    chown(&root, Some(setup_user), Some(setup_user))?;
    let mappings = json!([
        { "containerID": 0, "hostID": setup_user, "size": 1 },
        { "containerID": spec.user, "hostID": spec.user, "size": 1 },
    ]);
    let bind = |at: &Path, from: &Path, write: bool| {
        let options = ["bind", "nosuid", "nodev", if write { "rw" } else { "ro" }];
        json!({ "destination": at, "source": from, "type": "bind", "options": options })
    };
    let file_system = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "source": kind, "type": kind, "options": options });
    let mut mounts = vec![
        file_system("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        file_system("/dev", "tmpfs", &["nosuid", "noexec", "mode=755", "size=64k"]),
        file_system("/sys", "tmpfs", &["nosuid", "noexec", "nodev", "mode=755", "size=64k"]),
        // DPDK searches it for kernel drivers and must find none
        file_system("/sys/module", "tmpfs", &["ro", "mode=755", "size=4k"]),
        bind(Path::new(PROGRAM), program.path(), false),
        bind(Path::new(LAUNCH_SPEC), spec_file, false),
    ];
    let sockets = spec.folder.join(&spec.sandbox);
    let machine = ["/sys/devices/system", "/sys/kernel/mm/hugepages"].map(PathBuf::from);
    let machine = machine.into_iter().filter(|folder| folder.is_dir());
    let socket_folder = spec.sockets.is_empty().then_some(sockets.clone());
    let read = program.libraries().iter().chain(&spec.files).cloned().chain(machine).chain(socket_folder);
    mounts.extend(read.map(|path| bind(&path, &path, false)));
    if !spec.sockets.is_empty() {
        let user = format!("uid={}", spec.user);
        let at = sockets.display().to_string();
        mounts.push(file_system(&at, "tmpfs", &["nosuid", "noexec", "nodev", "mode=700", "size=4k", &user]));
        mounts.extend(spec.sockets.iter().map(|socket| bind(socket, socket, true)));
    }
    let namespaces = ["user", "pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    // the groups have their limits already
    let linux = json!({
        "namespaces": namespaces,
        "uidMappings": mappings,
        "gidMappings": mappings,
        "cgroupsPath": groups,
        "resources": { "cpu": { "shares": cgroup::shares() } },
        "maskedPaths": MASKED,
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    let none: Value = json!([]);
    let capabilities =
        ["bounding", "effective", "inheritable", "permitted", "ambient"].map(|set| (set.to_owned(), none.clone()));
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": spec.user, "gid": spec.user },
            "args": [PROGRAM, PROCESS_COMMAND, LAUNCH_SPEC, "--inner"],
            "env": [],
            "cwd": "/",
            "capabilities": Value::Object(capabilities.into_iter().collect()),
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": spec.sandbox,
        "mounts": mounts,
        "linux": linux,
    });
    std::fs::write(folder.join("config.json"), format!("{config:#}\n"))
}
