//! Checks of huge pages and locked memory.

use super::sysfs::{list, read};
use super::{Check, State};

/// Minimum number of free 2 MiB pages for running a chain file on huge pages.
const MIN_FREE_PAGES: u64 = 64;

/// Pages of one size on one NUMA node, or of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages {
    total: u64,
    free: u64,
}

pub(super) fn checks() -> Vec<Check> {
    let sizes = [("2M", "hugepages-2048kB"), ("1G", "hugepages-1048576kB")];
    let mut checks: Vec<Check> = sizes.iter().map(|(name, folder)| of_size(name, folder)).collect();
    checks.push(lock_limit(&read("/proc/self/limits").unwrap_or_default()));
    checks
}

fn of_size(name: &str, folder: &str) -> Check {
    let count = |base: String| {
        let number = |file: &str| read(format!("{base}/{folder}/{file}"))?.parse().ok();
        Some(Pages { total: number("nr_hugepages")?, free: number("free_hugepages")? })
    };
    let nodes: Vec<(String, Pages)> = list("/sys/devices/system/node")
        .into_iter()
        .filter(|n| n.starts_with("node"))
        .filter_map(|n| Some((n.clone(), count(format!("/sys/devices/system/node/{n}/hugepages"))?)))
        .collect();
    pages(name, folder, count("/sys/kernel/mm/hugepages".to_owned()), &nodes)
}

fn pages(name: &str, folder: &str, all: Option<Pages>, nodes: &[(String, Pages)]) -> Check {
    let check = format!("huge pages of {name}");
    let large = name == "1G";
    let provides = if large {
        "optional; faster with tables of many gigabytes"
    } else {
        "faster access to packets and large tables: fewer TLB misses"
    };
    let Some(all) = all else {
        return Check::new(check, State::Missing, "not supported by kernel or CPU, or /sys is not mounted", provides)
            .remedy("a kernel with CONFIG_HUGETLBFS");
    };
    let mut found = format!("{} free of {}", all.free, all.total);
    if nodes.len() > 1 {
        let each: Vec<_> = nodes.iter().map(|(n, p)| format!("{n}: {} of {}", p.free, p.total)).collect();
        found += &format!(" ({})", each.join(", "));
    }
    let state = match () {
        () if large && all.total == 0 => State::Missing,
        () if large || all.free >= MIN_FREE_PAGES => State::Ok,
        () => State::Degraded,
    };
    if all.total == 0 {
        found = "none reserved".to_owned();
    }
    let target = all.total - all.free.min(all.total) + 512;
    let remedy = match nodes {
        _ if large => format!("echo 4 | sudo tee /sys/kernel/mm/hugepages/{folder}/nr_hugepages"),
        [] | [_] => format!("echo {target} | sudo tee /proc/sys/vm/nr_hugepages"),
        _ => format!("echo 512 | sudo tee /sys/devices/system/node/node*/hugepages/{folder}/nr_hugepages"),
    };
    Check::new(check, state, found, provides).remedy(remedy)
}

fn lock_limit(limits: &str) -> Check {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"));
    let soft = line.and_then(|l| l.split_whitespace().next());
    let (state, found) = match soft.map(|s| (s, s.parse::<u64>())) {
        None => (State::Ok, "not reported".to_owned()),
        Some((text, Err(_))) => (State::Ok, text.to_owned()),
        Some((_, Ok(bytes))) if bytes >= 1 << 30 => (State::Ok, format!("{} MiB", bytes >> 20)),
        Some((_, Ok(bytes))) => (State::Degraded, format!("{} MiB", bytes >> 20)),
    };
    Check::new(
        "locked memory limit",
        state,
        found,
        "DMA of NICs with vfio, and AF_XDP on older kernels, for unprivileged users",
    )
    .remedy("ulimit -l unlimited; in a systemd service: LimitMEMLOCK=infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(total: u64, free: u64) -> Pages {
        Pages { total, free }
    }

    #[test]
    fn evaluates_pages() {
        let check = |all, nodes: &[_]| pages("2M", "hugepages-2048kB", all, nodes);
        assert_eq!(check(Some(of(512, 512)), &[]).state, State::Ok);
        let used = check(Some(of(512, 3)), &[]);
        assert_eq!((used.state, used.found.as_str()), (State::Degraded, "3 free of 512"));
        assert!(used.remedy.unwrap().contains("echo 1021 "));
        assert_eq!(check(None, &[]).state, State::Missing);
        let nodes = [("node0".to_owned(), of(4, 4)), ("node1".to_owned(), of(0, 0))];
        let two = check(Some(of(4, 4)), &nodes);
        assert_eq!(two.found, "4 free of 4 (node0: 4 of 4, node1: 0 of 0)");
        assert!(two.remedy.unwrap().contains("node*"));
        let none = pages("1G", "", Some(of(0, 0)), &[]);
        assert_eq!((none.state, none.found.as_str()), (State::Missing, "none reserved"));
        assert_eq!(pages("1G", "", Some(of(4, 0)), &[]).state, State::Ok);
        assert_eq!(pages("1G", "", None, &[]).state, State::Missing);
        // the two files are not read atomically
        assert!(check(Some(of(1, 2)), &[]).remedy.unwrap().contains("echo 512 "));
    }

    #[test]
    fn evaluates_limits() {
        let line = |v: &str| lock_limit(&format!("Limit  Soft\nMax locked memory         {v}       {v}   bytes\n"));
        assert_eq!((line("8388608").state, line("8388608").found.as_str()), (State::Degraded, "8 MiB"));
        assert_eq!((line("unlimited").state, line("unlimited").found.as_str()), (State::Ok, "unlimited"));
        assert_eq!(line("68719476736").state, State::Ok);
        assert_eq!(lock_limit("").found, "not reported");
    }
}
