//! Huge pages and locked memory.

use super::text::{list, read};
use super::{Check, State};

/// Free pages of 2 MiB from which a chain file runs on them.
const ENOUGH: u64 = 64;

/// Pages of one size on one node, or on the whole machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages {
    total: u64,
    free: u64,
}

pub(super) fn look() -> Vec<Check> {
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
    let adds = if large {
        "not needed; helps tables of many gigabytes"
    } else {
        "faster packets and large tables: one entry of the TLB covers a thousand packets"
    };
    let Some(all) = all else {
        let state = if large { State::Ok } else { State::Missing };
        return Check::new(check, state, "this kernel or CPU has none, or /sys is not there", adds)
            .remedy("a kernel with CONFIG_HUGETLBFS");
    };
    let mut found = format!("{} free of {}", all.free, all.total);
    if nodes.len() > 1 {
        let each: Vec<_> = nodes.iter().map(|(n, p)| format!("{n}: {} of {}", p.free, p.total)).collect();
        found += &format!(" ({})", each.join(", "));
    }
    let state = if large || all.free >= ENOUGH { State::Ok } else { State::Better };
    let wanted = all.total - all.free.min(all.total) + 512;
    let remedy = match nodes {
        [] | [_] => format!("echo {wanted} | sudo tee /proc/sys/vm/nr_hugepages"),
        _ => format!("echo 512 | sudo tee /sys/devices/system/node/node*/hugepages/{folder}/nr_hugepages"),
    };
    Check::new(check, state, found, adds).remedy(remedy)
}

fn lock_limit(limits: &str) -> Check {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"));
    let soft = line.and_then(|l| l.split_whitespace().next());
    let (state, found) = match soft.map(|s| (s, s.parse::<u64>())) {
        None => (State::Ok, "not told".to_owned()),
        Some((text, Err(_))) => (State::Ok, text.to_owned()),
        Some((_, Ok(bytes))) if bytes >= 1 << 30 => (State::Ok, format!("{} MiB", bytes >> 20)),
        Some((_, Ok(bytes))) => (State::Better, format!("{} MiB", bytes >> 20)),
    };
    Check::new(
        "memory that may be locked",
        state,
        found,
        "DMA of NICs by vfio, and AF_XDP on older kernels, as a plain user",
    )
    .remedy("ulimit -l unlimited, or for a service: LimitMEMLOCK=infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(total: u64, free: u64) -> Pages {
        Pages { total, free }
    }

    #[test]
    fn pages_free_taken_and_on_nodes() {
        let look = |all, nodes: &[_]| pages("2M", "hugepages-2048kB", all, nodes);
        assert_eq!(look(Some(of(512, 512)), &[]).state, State::Ok);
        let taken = look(Some(of(512, 3)), &[]);
        assert_eq!((taken.state, taken.found.as_str()), (State::Better, "3 free of 512"));
        assert!(taken.remedy.unwrap().contains("echo 1021 "));
        assert_eq!(look(None, &[]).state, State::Missing);
        let nodes = [("node0".to_owned(), of(4, 4)), ("node1".to_owned(), of(0, 0))];
        let two = look(Some(of(4, 4)), &nodes);
        assert_eq!(two.found, "4 free of 4 (node0: 4 of 4, node1: 0 of 0)");
        assert!(two.remedy.unwrap().contains("node*"));
        assert_eq!(pages("1G", "", Some(of(0, 0)), &[]).state, State::Ok);
        assert_eq!(pages("1G", "", None, &[]).state, State::Ok);
        // the two files are read one after the other
        assert!(look(Some(of(1, 2)), &[]).remedy.unwrap().contains("echo 512 "));
    }

    #[test]
    fn limits() {
        let line = |v: &str| lock_limit(&format!("Limit  Soft\nMax locked memory         {v}       {v}   bytes\n"));
        assert_eq!((line("8388608").state, line("8388608").found.as_str()), (State::Better, "8 MiB"));
        assert_eq!((line("unlimited").state, line("unlimited").found.as_str()), (State::Ok, "unlimited"));
        assert_eq!(line("68719476736").state, State::Ok);
        assert_eq!(lock_limit("").found, "not told");
    }
}
