//! Control groups: how much memory a wall's process may have, how many threads, and which CPUs (versions 1 and 2).

use std::fs::{create_dir, read_to_string, write};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads of a wall's process at the most.
const THREADS: u32 = 64;

/// The groups of one process: one in version 2, one for each controller in version 1.
pub(crate) struct Groups {
    paths: Vec<PathBuf>,
    /// Processes in them that have been ended for want of memory.
    ended: AtomicU64,
}

/// What a group limits.
pub(crate) struct Limits {
    pub(crate) memory_mib: u64,
    pub(crate) cpus: String,
}

/// What a group has to weigh for the scheduler to get as much as one process outside that is as nice as this one.
pub(crate) fn shares() -> u64 {
    // errors: as nice as everybody
    weight(rustix::process::getpriority_process(None).unwrap_or(0))
}

fn weight(niceness: i32) -> u64 {
    (1024.0 / 1.25f64.powi(niceness)).round() as u64
}

impl Groups {
    fn at(paths: Vec<PathBuf>) -> Groups {
        Groups { paths, ended: AtomicU64::new(0) }
    }

    /// Where the groups of that name will be: below those of this process, or, for whoever finds only that with version 1, below
    /// none.
    pub(crate) fn plan(name: &str, alone: bool) -> Groups {
        let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let root = Path::new("/sys/fs/cgroup");
        let of = |controller: &str| {
            let mut lines =
                own.lines().filter_map(|line| line.split_once(':')).filter_map(|(_, line)| line.split_once(':'));
            lines
                .find(|(names, _)| names.split(',').any(|n| n == controller))
                .map(|(_, path)| path.trim_matches('/').to_owned())
        };
        if root.join("cgroup.controllers").exists() {
            return Groups::at(of("").map(|path| root.join(path).join(name)).into_iter().collect());
        }
        let all = ["memory", "pids", "cpuset"].into_iter();
        let below = |controller| of(controller).map(|path| if alone { String::new() } else { path });
        let there = all.filter_map(|controller| Some(root.join(controller).join(below(controller)?).join(name)));
        Groups::at(there.filter(|path| path.parent().is_some_and(Path::is_dir)).collect())
    }

    /// No groups at all.
    pub(crate) fn none() -> Groups {
        Groups::at(vec![])
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Where they are, and where whoever runs a container makes more of them by the same name, under other controllers.
    pub(crate) fn everywhere(&self) -> Vec<PathBuf> {
        let Some(within) = self.within() else { return vec![] };
        let controllers = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let others = controllers.filter_map(|entry| Some(entry.path().join(within.strip_prefix("/").ok()?)));
        self.paths.iter().cloned().chain(others).collect()
    }

    /// Where they are within the tree of their controllers: the same in each, as they were planned alone.
    pub(crate) fn within(&self) -> Option<PathBuf> {
        let path = self.paths.first()?.strip_prefix("/sys/fs/cgroup").ok()?;
        // with version 1 the first folder is the controller's
        let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Some(Path::new("/").join(path.components().skip(usize::from(!two)).collect::<PathBuf>()))
    }

    /// Makes them.
    ///
    /// # Errors
    /// This user may not, or the kernel has no such controllers.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        if self.paths.is_empty() {
            return Err(io::Error::other("no control groups are mounted"));
        }
        let bytes = (limits.memory_mib << 20).to_string();
        for path in &self.paths {
            let parent = path.parent().unwrap_or(path);
            let two = parent.join("cgroup.controllers").exists();
            if two {
                // refused below a group that has processes of its own: then the files are not there
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
                write(path.join("pids.max"), THREADS.to_string())?;
            }
        }
        Ok(())
    }

    /// Has the scheduler give those in them as much as this process gets, also where whoever runs a container makes a group for
    /// that: it would get next to nothing beside a switch that the kernel prefers.
    pub(crate) fn weigh(&self) {
        let Some(within) = self.within() else { return };
        let root = Path::new("/sys/fs/cgroup");
        // errors: they weigh what everybody does
        if root.join("cgroup.controllers").exists() {
            for path in &self.paths {
                let _ = write(path.parent().unwrap_or(path).join("cgroup.subtree_control"), "+cpu");
                // as containers' shares are told to version 2
                let weight = 1 + shares().saturating_sub(2) * 9999 / 262_142;
                let _ = write(path.join("cpu.weight"), weight.to_string());
            }
        } else {
            let path = root.join("cpu").join(within.strip_prefix("/").unwrap_or(&within));
            let _ = create_dir(&path);
            let _ = write(path.join("cpu.shares"), shares().to_string());
        }
    }

    /// Whether a process in them has been ended for want of memory since this was last asked.
    pub(crate) fn ran_out(&self) -> bool {
        let ended = |path: &PathBuf| {
            let files = ["memory.events", "memory.oom_control"].map(|file| read_to_string(path.join(file)));
            let text = files.into_iter().flatten().collect::<String>();
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse::<u64>().ok())
        };
        let now = self.paths.iter().filter_map(ended).sum();
        self.ended.swap(now, Ordering::Relaxed) < now
    }

    /// Puts a process into them.
    pub(crate) fn take(&self, process: u32) -> io::Result<()> {
        self.paths.iter().try_for_each(|path| write(path.join("cgroup.procs"), process.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::weight;

    #[test]
    fn a_group_weighs_what_a_process_does() {
        // the kernel's own table, but for how it rounds
        for (niceness, own) in [(-20, 88_761u64), (-10, 9548), (0, 1024), (5, 335), (19, 15)] {
            assert!(weight(niceness).abs_diff(own) <= own / 50, "{niceness}: {}", weight(niceness));
        }
    }
}
