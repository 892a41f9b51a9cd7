//! Namespaces, an empty root file system, and dropped privileges.

use super::passthrough;
use crate::error::Context;
use crate::launch::LaunchSpec;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, chdir, getegid, geteuid, pivot_root, setgroups, sethostname, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::{File, create_dir_all, remove_dir};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Maximum number of open files of a sandboxed process.
const MAX_FILES: u64 = 1024;

/// Creates namespaces for this process; its PID namespace is for its children only.
///
/// # Errors
/// A system call that failed.
pub(crate) fn unshare_namespaces() -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    if geteuid().is_root() {
        return unshare(flags).context("unshare: namespaces");
    }
    let (user, group) = (geteuid(), getegid());
    flags |= CloneFlags::CLONE_NEWUSER;
    unshare(flags)
        .context("unshare: namespaces (allow them by sysctl kernel.unprivileged_userns_clone=1, or run as root)")?;
    map_user(user, group)?;
    // an executed program retains the ambient capabilities only
    let all = CapabilitySet::all();
    let sets = CapabilitySets { effective: all, permitted: all, inheritable: all };
    rustix::thread::set_capabilities(None, sets).context("capabilities for mounts")?;
    for capability in all.iter() {
        // errors: this kernel has no such capability
        let _ = rustix::thread::configure_capability_in_ambient_set(capability, true);
    }
    Ok(())
}

/// Changes user and groups.
fn set_user(user: u32, group: Option<u32>) -> Result<(), String> {
    let groups: Vec<Gid> = group.into_iter().map(Gid::from_raw).collect();
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    setgroups(&groups).context("setgroups")?;
    setresgid(group, group, group).context("setresgid")?;
    setresuid(user, user, user).context("setresuid")
}

/// Removes all capabilities from the bounding set and sets `no_new_privs`.
fn forbid_new_privileges() -> Result<(), String> {
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // errors: this kernel has no more capabilities
        if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    rustix::thread::set_no_new_privs(true).context("no_new_privs")
}

/// Clears all capabilities.
fn clear_capabilities() -> Result<(), String> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).context("capset")
}

/// Maps the user and group to themselves in the new user namespace.
fn map_user(user: Uid, group: Gid) -> Result<(), String> {
    let put = |file: &str, text: String| std::fs::write(file, text).context(file);
    put("/proc/self/setgroups", "deny".to_owned())?;
    put("/proc/self/uid_map", format!("{user} {user} 1"))?;
    put("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Changes to an empty root file system that contains only the sockets, a few devices, and the parts of `/sys` and
/// `/proc` that DPDK reads; for a VM, also QEMU's files. No other file in it can be executed.
///
/// # Errors
/// A system call that failed.
pub(crate) fn enter_root(spec: &LaunchSpec) -> Result<(), String> {
    const NONE: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).context("private mounts")?;
    let sockets = spec.folder.join(&spec.sandbox);
    let root = spec.folder.join(format!("{}.root", spec.sandbox));
    create_dir_all(&root).context("folder of the root")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), &root, Some("tmpfs"), flags, Some("mode=755,size=1m")).context("mounting the root")?;
    let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let bind_with = |from: &Path, flags: Option<MsFlags>| -> Result<(), String> {
        let to = within(from);
        if from.is_dir() {
            create_dir_all(&to).context(to.display().to_string())?;
        } else {
            create_dir_all(to.parent().unwrap_or(&root)).context(to.display().to_string())?;
            File::create(&to).context(to.display().to_string())?;
        }
        let what = format!("bind mount of {}", from.display());
        mount(Some(from), &to, NONE, MsFlags::MS_BIND, NONE).context(what.clone())?;
        let Some(flags) = flags else { return Ok(()) };
        let remount = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(NONE, &to, NONE, remount, NONE).context(what)
    };
    let bind = |from: &Path, writable: bool| bind_with(from, (!writable).then_some(flags));
    for device in ["null", "zero", "random", "urandom"] {
        bind(&Path::new("/dev").join(device), true)?;
    }
    for folder in ["/sys/devices/system", "/sys/kernel/mm/hugepages"] {
        if Path::new(folder).is_dir() {
            bind(Path::new(folder), false)?;
        }
    }
    for file in &spec.program_files {
        let is_device = file.starts_with("/dev");
        bind_with(file, (!is_device).then_some(flags - MsFlags::MS_NOEXEC))?;
    }
    // DPDK searches it for kernel drivers and must find none
    create_dir_all(within(Path::new("/sys/module"))).context("/sys/module")?;
    for device in passthrough::device_folders(&spec.devices)? {
        bind(&device, false)?;
    }
    passthrough::expose_in_root(&spec.devices, &root, spec.user)?;
    if spec.sockets.is_empty() {
        // connecting needs no write permission
        bind(&sockets, false)?;
    } else {
        let user = if geteuid().is_root() { spec.user } else { geteuid().as_raw() };
        let (at, options) = (within(&sockets), format!("mode=700,size=4k,uid={user}"));
        create_dir_all(&at).context(at.display().to_string())?;
        mount(Some("tmpfs"), &at, Some("tmpfs"), flags, Some(options.as_str())).context("mounting the sockets")?;
        spec.sockets.iter().try_for_each(|socket| bind(socket, true))?;
    }
    // only its own process, the first of its namespace, and the size of huge pages
    let [all, proc] = ["/.proc", "/proc"].map(|path| within(Path::new(path)));
    create_dir_all(&all).context("/.proc")?;
    create_dir_all(proc.join("1")).context("/proc")?;
    mount(Some("proc"), &all, Some("proc"), flags, Some("subset=pid")).context("mounting /proc")?;
    mount(Some(&all.join("1")), &proc.join("1"), NONE, MsFlags::MS_BIND, NONE).context("bind mount of /proc/1")?;
    umount2(&all, MntFlags::MNT_DETACH).context("/.proc")?;
    remove_dir(&all).context("/.proc")?;
    symlink("1", proc.join("self")).context("/proc/self")?;
    symlink("self/mounts", proc.join("mounts")).context("/proc/mounts")?;
    bind(Path::new("/proc/meminfo"), false)?;
    chdir(&root).context("root")?;
    pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("unmounting the old root")?;
    chdir("/").context("root")?;
    mount(NONE, "/", NONE, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | flags, NONE).context("read-only root")?;
    sethostname(&spec.sandbox).context("sethostname")
}

/// Drops all privileges and limits the number of open files; as root, also changes to another user with one further
/// group in a new user namespace.
///
/// # Errors
/// A system call that failed.
pub(crate) fn drop_privileges(spec: &LaunchSpec) -> Result<(), String> {
    for (resource, limit) in [(Resource::Nofile, MAX_FILES), (Resource::Core, 0)] {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(resource, limit).context("resource limits")?;
    }
    if geteuid().is_root() {
        set_user(spec.user, spec.group)?;
        // writing the user mapping requires a dumpable process
        nix::sys::prctl::set_dumpable(true).context("dumpable")?;
        unshare(CloneFlags::CLONE_NEWUSER).context("unshare: user namespace")?;
        map_user(Uid::from_raw(spec.user), Gid::from_raw(spec.user))?;
    }
    forbid_new_privileges()?;
    clear_capabilities()
}
