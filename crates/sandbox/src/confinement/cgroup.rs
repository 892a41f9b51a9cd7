//! Control groups (versions 1 and 2): limits of memory, threads and CPUs of a sandboxed process.

use std::fs::{create_dir, read_to_string, write};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of threads of a sandboxed process.
const MAX_THREADS: u32 = 64;

/// The groups of a process: one in version 2, one for each controller in version 1.
pub(crate) struct ControlGroups {
    paths: Vec<PathBuf>,
    /// Number of OOM kills at the last check.
    oom_kills: AtomicU64,
}

/// Limits of a group.
pub(crate) struct Limits {
    pub(crate) memory_mib: u64,
    pub(crate) cpus: String,
}

/// Returns the CPU shares by which a group gets as much time as a process with the nice value of this one.
pub(crate) fn shares() -> u64 {
    // errors: default nice value
    weight(rustix::process::getpriority_process(None).unwrap_or(0))
}

fn weight(niceness: i32) -> u64 {
    (1024.0 / 1.25f64.powi(niceness)).round() as u64
}

impl ControlGroups {
    fn new(paths: Vec<PathBuf>) -> ControlGroups {
        ControlGroups { paths, oom_kills: AtomicU64::new(0) }
    }

    /// Returns the groups of a name, which are not created: below those of this process, or with version 1 and `alone`
    /// at the top, because runc finds only those.
    pub(crate) fn plan(name: &str, alone: bool) -> ControlGroups {
        let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let root = Path::new("/sys/fs/cgroup");
        let group_of = |controller: &str| {
            let mut lines =
                own.lines().filter_map(|line| line.split_once(':')).filter_map(|(_, line)| line.split_once(':'));
            lines
                .find(|(names, _)| names.split(',').any(|n| n == controller))
                .map(|(_, path)| path.trim_matches('/').to_owned())
        };
        if root.join("cgroup.controllers").exists() {
            return ControlGroups::new(group_of("").map(|path| root.join(path).join(name)).into_iter().collect());
        }
        let all = ["memory", "pids", "cpuset"].into_iter();
        let below = |controller| group_of(controller).map(|path| if alone { String::new() } else { path });
        let paths = all.filter_map(|controller| Some(root.join(controller).join(below(controller)?).join(name)));
        ControlGroups::new(paths.filter(|path| path.parent().is_some_and(Path::is_dir)).collect())
    }

    /// Returns no groups.
    pub(crate) fn none() -> ControlGroups {
        ControlGroups::new(vec![])
    }

    /// Returns true if there are no groups.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the paths, and those of the groups that runc creates with the same name under other controllers.
    pub(crate) fn all_paths(&self) -> Vec<PathBuf> {
        let Some(within) = self.relative_path() else { return vec![] };
        let controllers = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let others = controllers.filter_map(|entry| Some(entry.path().join(within.strip_prefix("/").ok()?)));
        self.paths.iter().cloned().chain(others).collect()
    }

    /// Returns the path relative to the mount point of each controller; it is the same for all with `alone`.
    pub(crate) fn relative_path(&self) -> Option<PathBuf> {
        let path = self.paths.first()?.strip_prefix("/sys/fs/cgroup").ok()?;
        // with version 1 the first folder is the controller's
        let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Some(Path::new("/").join(path.components().skip(usize::from(!two)).collect::<PathBuf>()))
    }

    /// Creates the groups.
    ///
    /// # Errors
    /// Missing permission or controllers.
    pub(crate) fn create(&self, limits: &Limits) -> io::Result<()> {
        if self.paths.is_empty() {
            return Err(io::Error::other("no control groups are mounted"));
        }
        let bytes = (limits.memory_mib << 20).to_string();
        for path in &self.paths {
            let parent = path.parent().unwrap_or(path);
            let two = parent.join("cgroup.controllers").exists();
            if two {
                // fails below a group that contains processes; the files below do not exist then
                let _ = write(parent.join("cgroup.subtree_control"), "+memory +pids +cpuset");
            }
            create_dir(path).or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
            if two || path.join("cpuset.mems").exists() {
                if !two {
                    write(path.join("cpuset.mems"), read_to_string(parent.join("cpuset.mems"))?)?;
                }
                write(path.join("cpuset.cpus"), &limits.cpus)?;
            }
            let memory = if two { "memory.max" } else { "memory.limit_in_bytes" };
            if two || path.join(memory).exists() {
                write(path.join(memory), &bytes)?;
            }
            if two || path.join("pids.max").exists() {
                write(path.join("pids.max"), MAX_THREADS.to_string())?;
            }
        }
        Ok(())
    }

    /// Sets the CPU weight of the groups to that of this process; by default a container would get very little CPU time
    /// beside a host process with a lower nice value.
    pub(crate) fn set_weight(&self) {
        let Some(within) = self.relative_path() else { return };
        let root = Path::new("/sys/fs/cgroup");
        // errors: the default weight stays
        if root.join("cgroup.controllers").exists() {
            for path in &self.paths {
                let _ = write(path.parent().unwrap_or(path).join("cgroup.subtree_control"), "+cpu");
                // conversion of shares to weights by the OCI runtimes
                let weight = 1 + shares().saturating_sub(2) * 9999 / 262_142;
                let _ = write(path.join("cpu.weight"), weight.to_string());
            }
        } else {
            let path = root.join("cpu").join(within.strip_prefix("/").unwrap_or(&within));
            let _ = create_dir(&path);
            let _ = write(path.join("cpu.shares"), shares().to_string());
        }
    }

    /// Returns true if the kernel killed a process of the groups for lack of memory since the last call.
    pub(crate) fn had_oom_kill(&self) -> bool {
        let kills = |path: &PathBuf| {
            let files = ["memory.events", "memory.oom_control"].map(|file| read_to_string(path.join(file)));
            let text = files.into_iter().flatten().collect::<String>();
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse::<u64>().ok())
        };
        let now = self.paths.iter().filter_map(kills).sum();
        self.oom_kills.swap(now, Ordering::Relaxed) < now
    }

    /// Adds a process to the groups.
    pub(crate) fn add(&self, process: u32) -> io::Result<()> {
        self.paths.iter().try_for_each(|path| write(path.join("cgroup.procs"), process.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::weight;

    #[test]
    fn weight_equals_that_of_a_process() {
        // sched_prio_to_weight of the kernel, with another rounding
        for (niceness, own) in [(-20, 88_761u64), (-10, 9548), (0, 1024), (5, 335), (19, 15)] {
            assert!(weight(niceness).abs_diff(own) <= own / 50, "{niceness}: {}", weight(niceness));
        }
    }
}
