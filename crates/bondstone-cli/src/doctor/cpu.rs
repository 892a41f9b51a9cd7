//! CPU checks.

use super::sysfs::{field, list, numbers, ranges, read};
use super::{Check, State};

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn checks() -> Vec<Check> {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let allowed = runtime::allowed_cpus();
    let isolated = |file: &str| numbers(&read(format!("{CPUS}/{file}")).unwrap_or_default());
    let first = allowed.first().copied().unwrap_or(0);
    let governor = read(format!("{CPUS}/cpu{first}/cpufreq/scaling_governor"));
    let dmi = |name: &str| read(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
    let mut checks = vec![
        model(&info),
        vectors(&info),
        counter(&info),
        hypervisor(&info, &dmi("sys_vendor"), &dmi("product_name")),
        cpus(&allowed, &isolated("isolated"), &isolated("nohz_full")),
    ];
    checks.extend(governor.map(|g| frequency(&g)));
    checks.push(nodes(&list("/sys/devices/system/node")));
    checks
}

fn model(info: &str) -> Check {
    let name = field(info, "model name").or(field(info, "Model")).or(field(info, "CPU part"));
    let found = name.map_or_else(|| format!("{}, model not reported", std::env::consts::ARCH), str::to_owned);
    Check::new("CPU", State::Ok, found, "the CPU that measurements are valid for")
}

fn has(info: &str, flag: &str) -> bool {
    field(info, "flags").or(field(info, "Features")).unwrap_or_default().split_whitespace().any(|f| f == flag)
}

fn vectors(info: &str) -> Check {
    let found: Vec<&str> = [("avx2", "AVX2"), ("avx512f", "AVX-512"), ("asimd", "NEON")]
        .iter()
        .filter(|(flag, _)| has(info, flag))
        .map(|(_, name)| *name)
        .collect();
    let provides = "vectorised NIC drivers and table lookups";
    match found[..] {
        [] => Check::new("vector extensions", State::Degraded, "none beyond the baseline", provides)
            .remedy("a newer CPU; in a VM, pass the host's CPU through (QEMU: -cpu host)"),
        _ => Check::new("vector extensions", State::Ok, found.join(", "), provides),
    }
}

fn counter(info: &str) -> Check {
    let provides = "cycle counts and pacing independent of frequency changes and idle states";
    // guaranteed by other architectures
    let invariant = !cfg!(target_arch = "x86_64") || (has(info, "constant_tsc") && has(info, "nonstop_tsc"));
    let (state, found) = if invariant { (State::Ok, "invariant") } else { (State::Degraded, "not invariant") };
    Check::new("time-stamp counter", state, found, provides)
        .remedy("keep the CPU at one frequency; in a VM, pass invtsc through (QEMU: -cpu host,+invtsc)")
}

fn hypervisor(info: &str, vendor: &str, product: &str) -> Check {
    let provides = "without a hypervisor, CPUs are not preempted and latency is that of the NF";
    if !has(info, "hypervisor") {
        return Check::new("hypervisor", State::Ok, "none", provides);
    }
    let name = format!("{vendor} {product}");
    let found =
        if name.trim().is_empty() { "virtual machine".to_owned() } else { format!("virtual machine: {}", name.trim()) };
    Check::new("hypervisor", State::Degraded, found, provides)
        .remedy("for measurements, use a physical host, or a VM with pinned vCPUs")
}

fn cpus(allowed: &[usize], isolated: &[usize], tickless: &[usize]) -> Check {
    let usable = |cpus: &[usize]| cpus.iter().filter(|c| allowed.contains(c)).count();
    let found = format!(
        "{} allowed ({}), {} isolated, {} tickless",
        allowed.len(),
        ranges(allowed),
        usable(isolated),
        usable(tickless)
    );
    let provides = "workers without interruption by other processes and kernel ticks";
    if usable(isolated) != 0 && usable(tickless) != 0 {
        return Check::new("CPUs", State::Ok, found, provides);
    }
    // the first CPU remains for the kernel and the control thread
    let remedy = match allowed.get(1..).filter(|rest| !rest.is_empty()).map(ranges) {
        Some(l) => format!("kernel command line: isolcpus=managed_irq,domain,{l} nohz_full={l} rcu_nocbs={l}"),
        None => "a second CPU: one for the control thread, the others for workers".to_owned(),
    };
    Check::new("CPUs", State::Degraded, found, provides).remedy(remedy)
}

fn frequency(governor: &str) -> Check {
    let state = if governor == "performance" { State::Ok } else { State::Degraded };
    Check::new("frequency governor", state, governor, "constant speed under any load")
        .remedy(format!("echo performance | sudo tee {CPUS}/cpu*/cpufreq/scaling_governor"))
}

fn nodes(names: &[String]) -> Check {
    let nodes: Vec<usize> = names.iter().filter_map(|n| n.strip_prefix("node")?.parse().ok()).collect();
    let found = match nodes.len() {
        0 | 1 => "1".to_owned(),
        n => format!("{n} ({}); chains across nodes are slower", ranges(&nodes)),
    };
    Check::new("NUMA nodes", State::Ok, found, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const XEON: &str = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu constant_tsc nonstop_tsc hypervisor avx2 avx512f\n";

    #[test]
    fn reads_cpu_properties() {
        assert_eq!(model(XEON).found, "Intel(R) Xeon(R)");
        assert!(model("").found.contains("not reported"));
        assert_eq!(vectors(XEON).found, "AVX2, AVX-512");
        assert_eq!(vectors("flags : avx2x").state, State::Degraded);
        assert_eq!(counter(XEON).state, State::Ok);
        assert_eq!(counter("").state == State::Degraded, cfg!(target_arch = "x86_64"));
        assert_eq!(hypervisor("", "", "").state, State::Ok);
        assert_eq!(hypervisor(XEON, "", "").found, "virtual machine");
        assert_eq!(hypervisor(XEON, "QEMU", "Q35").found, "virtual machine: QEMU Q35");
    }

    #[test]
    fn isolation_remedy_is_a_kernel_command_line() {
        let none = cpus(&[0, 1, 2, 3], &[], &[]);
        assert!(none.remedy.unwrap().ends_with("isolcpus=managed_irq,domain,1-3 nohz_full=1-3 rcu_nocbs=1-3"));
        assert_eq!(cpus(&[0, 1], &[1], &[1]).state, State::Ok);
        assert_eq!(cpus(&[0, 1], &[7], &[7]).state, State::Degraded);
        assert!(cpus(&[0], &[], &[]).remedy.unwrap().contains("second CPU"));
        assert_eq!(cpus(&[], &[], &[]).state, State::Degraded);
    }

    #[test]
    fn governors_and_nodes() {
        assert_eq!(frequency("performance").remedy, None);
        assert!(frequency("powersave").remedy.is_some());
        let names = ["node0", "node1", "online", "nodes"].map(str::to_owned);
        assert!(nodes(&names).found.starts_with("2 (0-1)"));
        assert_eq!(nodes(&[]).found, "1");
    }
}
