//! Description of the host in results.

use packet::clock;
use report::Environment;
use std::collections::BTreeMap;
use std::fs::read_to_string;

/// Describes the host for a measurement on these CPUs with packets in `memory`.
pub fn environment(cpus: &[usize], memory: &str) -> Environment {
    let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let first_line = |path: &str| read_to_string(path).unwrap_or_default().trim().to_owned();
    let virtual_machine = field("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor"));
    Environment {
        date: report::now(),
        cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        tsc_hz: clock::hz(),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        hugepages: first_line("/proc/sys/vm/nr_hugepages").parse().unwrap_or(0),
        memory: memory.to_owned(),
        isolated_cpus: parse_cpu_list(&first_line("/sys/devices/system/cpu/isolated")),
        cpus_used: cpus.iter().map(|c| *c as u32).collect(),
        steal_share: None,
        dpdk_version: Some(dpdk::version()),
        hypervisor: virtual_machine.then(|| {
            let vendor = first_line("/sys/class/dmi/id/sys_vendor");
            if vendor.is_empty() { "unknown hypervisor".to_owned() } else { vendor }
        }),
        extra: extra_facts(&field, cpus),
    }
}

/// Returns further facts that affect rates: microcode, governor, mitigations, kernel command line, NUMA, clock, build.
fn extra_facts(field: &dyn Fn(&str) -> Option<String>, cpus: &[usize]) -> BTreeMap<String, String> {
    let file = |path: &str| {
        let text = read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let cpu = cpus.first().copied().unwrap_or(0);
    let of_cpu = |name: &str| file(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"));
    let nodes = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = nodes
        .filter(|e| e.file_name().to_string_lossy().strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()));
    let open: Vec<String> = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| read_to_string(e.path()).is_ok_and(|text| text.starts_with("Vulnerable")))
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    let facts = [
        ("microcode", field("microcode")),
        ("MHz at the start", field("cpu MHz")),
        ("governor", of_cpu("scaling_governor")),
        ("frequency driver", of_cpu("scaling_driver")),
        ("turbo off", file("/sys/devices/system/cpu/intel_pstate/no_turbo")),
        ("idle driver", file("/sys/devices/system/cpu/cpuidle/current_driver")),
        ("SMT", file("/sys/devices/system/cpu/smt/control")),
        ("NUMA nodes", Some(nodes.count().to_string())),
        ("clock source", file("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("no ticks on CPUs", file("/sys/devices/system/cpu/nohz_full").filter(|t| t != "(null)")),
        ("kernel command line", file("/proc/cmdline").map(|line| relevant_parameters(&line))),
        ("vulnerable to", Some(open.join(", ")).filter(|t| !t.is_empty())),
        ("built for", Some(std::env::consts::ARCH.to_owned())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the parameters of a kernel command line that affect rates, without those that identify the host or its
/// disks.
fn relevant_parameters(line: &str) -> String {
    const RELEVANT: [&str; 14] = [
        "isolcpus",
        "nohz_full",
        "rcu_nocbs",
        "mitigations",
        "hugepages",
        "hugepagesz",
        "default_hugepagesz",
        "intel_iommu",
        "amd_iommu",
        "iommu",
        "idle",
        "processor.max_cstate",
        "intel_idle.max_cstate",
        "tsc",
    ];
    let found =
        line.split_ascii_whitespace().filter(|word| RELEVANT.contains(&word.split('=').next().unwrap_or_default()));
    let found = found.collect::<Vec<_>>().join(" ");
    if found.is_empty() { "nothing about CPUs, huge pages, mitigations or IOMMU".to_owned() } else { found }
}

/// Parses a CPU list such as `1,4-6`.
fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut all = vec![];
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            all.extend((from..=to).take(4096));
        }
    }
    all
}

/// Stolen time and total time of some CPUs since boot, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steal {
    stolen: u64,
    all: u64,
}

impl Steal {
    /// Reads the current times.
    pub fn now(cpus: &[usize]) -> Steal {
        let stat = read_to_string("/proc/stat").unwrap_or_default();
        let mut sum = Steal::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next().and_then(|w| w.strip_prefix("cpu")?.parse::<usize>().ok());
            if !cpu.is_some_and(|cpu| cpus.contains(&cpu)) {
                continue;
            }
            let ticks: Vec<u64> = words.filter_map(|w| w.parse().ok()).collect();
            sum.stolen += ticks.get(7).copied().unwrap_or(0);
            sum.all += ticks.iter().take(8).sum::<u64>();
        }
        sum
    }

    /// Returns the share of the time since `before` that was stolen.
    pub fn share_since(self, before: Steal) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all != 0)?;
        Some(self.stolen.saturating_sub(before.stolen) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_relevant_parameters() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1234 isolcpus=1-3 ip=10.0.0.1 mitigations=off quiet";
        assert_eq!(relevant_parameters(line), "isolcpus=1-3 mitigations=off");
        assert!(relevant_parameters("quiet").starts_with("nothing"));
    }

    #[test]
    fn parses_cpu_lists() {
        assert_eq!(parse_cpu_list("1,4-6"), [1, 4, 5, 6]);
        assert!(parse_cpu_list("").is_empty());
        assert_eq!(parse_cpu_list("x-3,7"), [7]);
    }
}
