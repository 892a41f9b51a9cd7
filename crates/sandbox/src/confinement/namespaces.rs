//! Namespaces, an empty root file system, and dropped privileges.

use super::passthrough;
use crate::error::Context;
use crate::launch::LaunchSpec;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, chdir, getegid, geteuid, pivot_root, setgroups, sethostname, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::{File, create_dir_all};
use std::path::Path;

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

/// Drops all privileges; as root, also changes to another user with one further group.
///
/// # Errors
/// A system call that failed.
pub(crate) fn drop_privileges(user: u32, group: Option<u32>) -> Result<(), String> {
    forbid_new_privileges()?;
    if geteuid().is_root() {
        set_user(user, group)?;
    }
    clear_capabilities()
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

/// Changes to an empty root file system that contains only the sockets, the files that the process may read, a few
/// devices, and the parts of `/sys` that DPDK reads.
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
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), &root, Some("tmpfs"), flags, Some("mode=755,size=1m")).context("mounting the root")?;
    let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let bind = |from: &Path, writable: bool| -> Result<(), String> {
        let to = within(from);
        if from.is_dir() {
            create_dir_all(&to).context(to.display().to_string())?;
        } else {
            create_dir_all(to.parent().unwrap_or(&root)).context(to.display().to_string())?;
            File::create(&to).context(to.display().to_string())?;
        }
        let what = format!("bind mount of {}", from.display());
        mount(Some(from), &to, NONE, MsFlags::MS_BIND, NONE).context(what.clone())?;
        if writable {
            return Ok(());
        }
        // in a user namespace the flags of the original mount must be retained
        let noexec = statvfs(&to).is_ok_and(|there| there.flags().contains(FsFlags::ST_NOEXEC));
        let retained = if noexec { MsFlags::MS_NOEXEC } else { MsFlags::empty() };
        let remount = retained
            | MsFlags::MS_BIND
            | MsFlags::MS_REMOUNT
            | MsFlags::MS_RDONLY
            | MsFlags::MS_NOSUID
            | MsFlags::MS_NODEV;
        mount(NONE, &to, NONE, remount, NONE).context(what)
    };
    for device in ["null", "zero", "random", "urandom"] {
        bind(&Path::new("/dev").join(device), true)?;
    }
    for folder in ["/sys/devices/system", "/sys/kernel/mm/hugepages"] {
        if Path::new(folder).is_dir() {
            bind(Path::new(folder), false)?;
        }
    }
    // DPDK searches it for kernel drivers and must find none
    create_dir_all(within(Path::new("/sys/module"))).context("/sys/module")?;
    for file in &spec.files {
        bind(file, false)?;
    }
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
        mount(Some("tmpfs"), &at, Some("tmpfs"), flags | MsFlags::MS_NOEXEC, Some(options.as_str()))
            .context("mounting the sockets")?;
        spec.sockets.iter().try_for_each(|socket| bind(socket, true))?;
    }
    let proc = within(Path::new("/proc"));
    create_dir_all(&proc).context("/proc")?;
    mount(Some("proc"), &proc, Some("proc"), flags | MsFlags::MS_NOEXEC, NONE).context("mounting /proc")?;
    chdir(&root).context("root")?;
    pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("unmounting the old root")?;
    chdir("/").context("root")?;
    mount(NONE, "/", NONE, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | flags, NONE).context("read-only root")?;
    sethostname(&spec.sandbox).context("sethostname")
}

/// Drops all privileges of a sandboxed process; as root, also changes to another user in a new user namespace.
///
/// # Errors
/// A system call that failed.
pub(crate) fn drop_process_privileges(spec: &LaunchSpec) -> Result<(), String> {
    if geteuid().is_root() {
        set_user(spec.user, None)?;
        // writing the user mapping requires a dumpable process
        nix::sys::prctl::set_dumpable(true).context("dumpable")?;
        unshare(CloneFlags::CLONE_NEWUSER).context("unshare: user namespace")?;
        map_user(Uid::from_raw(spec.user), Gid::from_raw(spec.user))?;
    }
    forbid_new_privileges()?;
    clear_capabilities()
}
