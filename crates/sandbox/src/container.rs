//! Containers, as the OCI describes them, run by runc (or by what else takes a bundle).

use crate::HOST;
use crate::cgroup;
use crate::order::Order;
use crate::program::Program;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Where the program is in a container, and what it is told.
pub(crate) const PROGRAM: &str = "/bondstone";
const ORDER: &str = "/order.json";

/// What runs containers. Those of one process have their state in a folder of that process's own.
pub(crate) fn runc(state: &Path, arguments: &[&str]) -> Vec<String> {
    let state = state.display().to_string();
    ["runc", "--root", &state].into_iter().chain(arguments.iter().copied()).map(str::to_owned).collect()
}

/// The version of runc.
///
/// # Errors
/// It is not there.
pub(crate) fn version() -> Result<String, runtime::Error> {
    let said = std::process::Command::new("runc").arg("--version").output();
    let said = said.map_err(|e| crate::lacks(format!("runc: {e}"), "install it: apt-get install runc"))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(text.split_whitespace().nth(2).unwrap_or("?").to_owned())
}

/// Writes what a container is made of below a folder; its root is empty but for what is shown in it.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn bundle(at: &Path, order: &Order, told: &Path, program: &Program, groups: &Path) -> io::Result<()> {
    std::fs::create_dir_all(at.join("rootfs"))?;
    let shown = |at: &Path, from: &Path, write: bool| {
        let options = ["bind", "nosuid", "nodev", if write { "rw" } else { "ro" }];
        json!({ "destination": at, "source": from, "type": "bind", "options": options })
    };
    let own = |at: &str, kind: &str, options: &[&str]| json!({ "destination": at, "source": kind, "type": kind, "options": options });
    let mut mounts = vec![
        own("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        own("/dev", "tmpfs", &["nosuid", "noexec", "mode=755", "size=64k"]),
        own("/sys", "tmpfs", &["nosuid", "noexec", "nodev", "mode=755", "size=64k"]),
        // DPDK looks into it for drivers of the kernel's, of which it is to find none
        own("/sys/module", "tmpfs", &["ro", "mode=755", "size=4k"]),
        shown(Path::new(PROGRAM), program.path(), false),
        shown(Path::new(ORDER), told, false),
    ];
    let sockets = order.folder.join(&order.wall);
    let machine = ["/sys/devices/system", "/sys/kernel/mm/hugepages"].map(PathBuf::from);
    let machine = machine.into_iter().filter(|folder| folder.is_dir());
    let folder = order.sockets.is_empty().then_some(sockets.clone());
    let read = program.libraries().iter().chain(&order.files).cloned().chain(machine).chain(folder);
    mounts.extend(read.map(|path| shown(&path, &path, false)));
    if !order.sockets.is_empty() {
        let user = format!("uid={}", order.user);
        let at = sockets.display().to_string();
        mounts.push(own(&at, "tmpfs", &["nosuid", "noexec", "nodev", "mode=700", "size=4k", &user]));
        mounts.extend(order.sockets.iter().map(|socket| shown(socket, socket, true)));
    }
    let namespaces = ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    // limits are in the groups already, which this names
    let linux = json!({
        "namespaces": namespaces,
        "cgroupsPath": groups,
        "resources": { "cpu": { "shares": cgroup::shares() } },
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    let none: Value = json!([]);
    let capabilities =
        ["bounding", "effective", "inheritable", "permitted", "ambient"].map(|set| (set.to_owned(), none.clone()));
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": order.user, "gid": order.user },
            "args": [PROGRAM, HOST, ORDER, "--inner"],
            "env": [],
            "cwd": "/",
            "capabilities": Value::Object(capabilities.into_iter().collect()),
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": order.wall,
        "mounts": mounts,
        "linux": linux,
    });
    std::fs::write(at.join("config.json"), format!("{config:#}\n"))
}
