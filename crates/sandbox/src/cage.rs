//! Namespaces, an empty root, no rights.

use crate::handed;
use crate::order::Order;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, chdir, getegid, geteuid, pivot_root, setgroups, sethostname, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fs::{File, create_dir_all};
use std::path::Path;

/// Says what failed.
pub(crate) trait Of<T> {
    fn of(self, what: impl Into<String>) -> Result<T, String>;
}

impl<T, E: std::fmt::Display> Of<T> for Result<T, E> {
    fn of(self, what: impl Into<String>) -> Result<T, String> {
        self.map_err(|e| format!("{}: {e}", what.into()))
    }
}

/// New namespaces for whom this process starts from now on, and for itself but that of processes.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn leave() -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    if geteuid().is_root() {
        return unshare(flags).of("new namespaces");
    }
    let (user, group) = (geteuid(), getegid());
    flags |= CloneFlags::CLONE_NEWUSER;
    unshare(flags)
        .of("new namespaces (this user may make none: sysctl kernel.unprivileged_userns_clone=1, or run as root)")?;
    map(user, group)?;
    // a program that is started keeps none of the rights in this namespace but these
    let all = CapabilitySet::all();
    let sets = CapabilitySets { effective: all, permitted: all, inheritable: all };
    rustix::thread::set_capabilities(None, sets).of("rights for its mounts")?;
    for right in all.iter() {
        // errors: this kernel has no such right
        let _ = rustix::thread::configure_capability_in_ambient_set(right, true);
    }
    Ok(())
}

/// A user that nobody knows, where this one is root, in one group besides; no rights, and no way to any.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn become_nobody(user: u32, besides: Option<u32>) -> Result<(), String> {
    no_new_rights()?;
    if geteuid().is_root() {
        become_user(user, besides)?;
    }
    no_rights()
}

/// Another user than root.
fn become_user(user: u32, besides: Option<u32>) -> Result<(), String> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    let besides: Vec<Gid> = besides.into_iter().map(Gid::from_raw).collect();
    setgroups(&besides).of("no groups")?;
    setresgid(group, group, group).of("another group")?;
    setresuid(user, user, user).of("another user")
}

/// No way to more capabilities than there are.
fn no_new_rights() -> Result<(), String> {
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // errors: this kernel has no more of them
        if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    rustix::thread::set_no_new_privs(true).of("no way to new rights")
}

/// No capabilities.
fn no_rights() -> Result<(), String> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).of("no capabilities")
}

/// This user is itself in its new namespace of users, and nobody else is anybody.
fn map(user: Uid, group: Gid) -> Result<(), String> {
    let put = |file: &str, text: String| std::fs::write(file, text).of(file);
    put("/proc/self/setgroups", "deny".to_owned())?;
    put("/proc/self/uid_map", format!("{user} {user} 1"))?;
    put("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// An empty root, in which there is only what the process needs: its sockets, the files that it may read, a few devices, and
/// what DPDK asks of the machine.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn enter(order: &Order) -> Result<(), String> {
    const NONE: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).of("mounts of its own")?;
    let sockets = order.folder.join(&order.wall);
    let root = order.folder.join(format!("{}.root", order.wall));
    create_dir_all(&root).of("a folder for its root")?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), &root, Some("tmpfs"), plain, Some("mode=755,size=1m")).of("an empty root")?;
    let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let bind = |from: &Path, writable: bool| -> Result<(), String> {
        let to = within(from);
        if from.is_dir() {
            create_dir_all(&to).of(to.display().to_string())?;
        } else {
            create_dir_all(to.parent().unwrap_or(&root)).of(to.display().to_string())?;
            File::create(&to).of(to.display().to_string())?;
        }
        let what = format!("showing it {}", from.display());
        mount(Some(from), &to, NONE, MsFlags::MS_BIND, NONE).of(what.clone())?;
        if writable {
            return Ok(());
        }
        // in a namespace of users nothing may be taken back that its mount had
        let noexec = statvfs(&to).is_ok_and(|there| there.flags().contains(FsFlags::ST_NOEXEC));
        let kept = if noexec { MsFlags::MS_NOEXEC } else { MsFlags::empty() };
        let again =
            kept | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(NONE, &to, NONE, again, NONE).of(what)
    };
    for device in ["null", "zero", "random", "urandom"] {
        bind(&Path::new("/dev").join(device), true)?;
    }
    for folder in ["/sys/devices/system", "/sys/kernel/mm/hugepages"] {
        if Path::new(folder).is_dir() {
            bind(Path::new(folder), false)?;
        }
    }
    // DPDK looks into it for drivers of the kernel's, of which it is to find none
    create_dir_all(within(Path::new("/sys/module"))).of("/sys/module")?;
    for file in &order.files {
        bind(file, false)?;
    }
    for device in handed::folders(&order.devices)? {
        bind(&device, false)?;
    }
    handed::enter(&order.devices, &root, order.user)?;
    if order.sockets.is_empty() {
        // to link needs no right to write here
        bind(&sockets, false)?;
    } else {
        let user = if geteuid().is_root() { order.user } else { geteuid().as_raw() };
        let (at, own) = (within(&sockets), format!("mode=700,size=4k,uid={user}"));
        create_dir_all(&at).of(at.display().to_string())?;
        mount(Some("tmpfs"), &at, Some("tmpfs"), plain | MsFlags::MS_NOEXEC, Some(own.as_str())).of("its sockets")?;
        order.sockets.iter().try_for_each(|socket| bind(socket, true))?;
    }
    let proc = within(Path::new("/proc"));
    create_dir_all(&proc).of("/proc")?;
    mount(Some("proc"), &proc, Some("proc"), plain | MsFlags::MS_NOEXEC, NONE).of("a /proc of its own")?;
    chdir(&root).of("its root")?;
    pivot_root(".", ".").of("its root in the place of the other")?;
    umount2(".", MntFlags::MNT_DETACH).of("the other root away")?;
    chdir("/").of("its root")?;
    mount(NONE, "/", NONE, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | plain, NONE).of("a root to be read only")?;
    sethostname(&order.wall).of("its name")
}

/// No user that anybody knows, no rights, and no way to any.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn give_up(order: &Order) -> Result<(), String> {
    if geteuid().is_root() {
        become_user(order.user, None)?;
        // only who may be looked at may write of itself whom it is
        nix::sys::prctl::set_dumpable(true).of("being looked at")?;
        unshare(CloneFlags::CLONE_NEWUSER).of("a namespace of users")?;
        map(Uid::from_raw(order.user), Gid::from_raw(order.user))?;
    }
    no_new_rights()?;
    no_rights()
}
