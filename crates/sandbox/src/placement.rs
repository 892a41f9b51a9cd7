//! CPUs of chains and sandboxes.

use config::{ChainFile, Idle, Sandbox};
use std::collections::BTreeSet;

/// Returns the CPUs for chains without `cores`, if no chain has any, and those of each sandbox: CPUs that the file does
/// not name, while there are some.
#[must_use]
pub fn choose_cpus(file: &ChainFile, allowed: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let of_sandboxes: BTreeSet<usize> =
        file.sandboxes.iter().flat_map(|sandbox| sandbox.cores.iter().copied()).collect();
    let mut of_chains: BTreeSet<usize> = file.host_chains().flat_map(|chain| chain.cores.iter().copied()).collect();
    let mut chosen = vec![];
    if of_chains.is_empty() && file.host_chains().next().is_some() {
        let free = allowed.iter().rev().find(|cpu| !of_sandboxes.contains(cpu));
        chosen.extend(free.or(allowed.last()));
        of_chains.extend(&chosen);
    }
    let free: Vec<usize> =
        allowed.iter().copied().filter(|cpu| !of_chains.contains(cpu) && !of_sandboxes.contains(cpu)).collect();
    let mut next = if free.is_empty() { allowed } else { &free[..] }.iter().copied().cycle();
    let cpus_of = |sandbox: &Sandbox| {
        if sandbox.cores.is_empty() { next.next().into_iter().collect() } else { sandbox.cores.clone() }
    };
    (chosen, file.sandboxes.iter().map(cpus_of).collect())
}

/// Returns the CPUs that chains name and those chosen for the others.
fn chain_cpus<'a>(file: &'a ChainFile, chosen: &'a [usize]) -> BTreeSet<usize> {
    file.host_chains().flat_map(|chain| &chain.cores).chain(chosen).copied().collect()
}

/// Returns true if a chain shares a CPU with a sandbox.
pub(crate) fn shares_cpus(file: &ChainFile, chosen: &[usize], sandboxes: &[Vec<usize>]) -> bool {
    let of_chains = chain_cpus(file, chosen);
    sandboxes.iter().flatten().any(|cpu| of_chains.contains(cpu))
}

/// Returns for each sandbox if it sleeps while idle: if it shares a CPU, or because the file needs more CPUs than the
/// `free` ones. Two threads that poll on one CPU would only take turns.
pub(crate) fn sleep_when_idle(file: &ChainFile, chosen: &[usize], sandboxes: &[Vec<usize>], free: usize) -> Vec<bool> {
    let of_chains = chain_cpus(file, chosen);
    let all: BTreeSet<usize> = sandboxes.iter().flatten().chain(&of_chains).copied().collect();
    let is_shared = |n: usize, cpu: &usize| {
        of_chains.contains(cpu) || sandboxes.iter().enumerate().any(|(other, cpus)| other != n && cpus.contains(cpu))
    };
    // the CPUs of these chains are chosen at the start
    let is_undecided = chosen.is_empty() && file.host_chains().any(|chain| chain.cores.is_empty());
    let shares = |n: usize| is_undecided || all.len() > free || sandboxes[n].iter().any(|cpu| is_shared(n, cpu));
    let sleeps = |(n, sandbox): (usize, &Sandbox)| sandbox.idle.map_or_else(|| shares(n), |idle| idle == Idle::Sleep);
    file.sandboxes.iter().enumerate().map(sleeps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn sandboxes_that_share_a_cpu_sleep() {
        let file = |chains: [&str; 2], idle: &str| {
            let cores =
                chains.map(|cores| if cores.is_empty() { String::new() } else { format!("cores = [{cores}]\n") });
            let text = format!(
                "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null\"\nport.c.device = \"null\"\n\
                 [nf.x]\nkind = \"count\"\nisolation = \"process\"\n[nf.y]\nkind = \"count\"\nisolation = \"process\"\n\
                 [sandbox.x]\n{idle}[[chain]]\npath = [\"a\", \"x\", \"y\", \"c\"]\n{}[[chain]]\npath = [\"b\", \"c\"]\n{}",
                cores[0], cores[1]
            );
            ChainFile::parse(&text, Path::new("test.toml"), &nf::registry()).unwrap()
        };
        let all = |chains, idle: &str, cpus: usize, others: usize| {
            let allowed: Vec<usize> = (0..cpus).collect();
            let file = file(chains, idle);
            let (chosen, sandboxes) = choose_cpus(&file, &allowed);
            sleep_when_idle(&file, &chosen, &sandboxes, cpus - others)
        };
        let shares = |chains, idle: &str, cpus: usize| {
            let file = file(chains, idle);
            let (chosen, sandboxes) = choose_cpus(&file, &(0..cpus).collect::<Vec<_>>());
            shares_cpus(&file, &chosen, &sandboxes)
        };
        let none = ["", ""];
        assert_eq!([1, 2, 3].map(|cpus| shares(none, "", cpus)), [true, false, false]);
        assert!(shares(["0", "0"], "cores = [0]\n", 8) && !shares(["0", "0"], "", 8));
        // CPUs, CPUs for others, sandboxes that sleep
        for (cpus, others, expected) in
            [(1, 0, [true; 2]), (2, 0, [true; 2]), (3, 0, [false; 2]), (3, 1, [true; 2]), (4, 1, [false; 2])]
        {
            assert_eq!(all(none, "", cpus, others), expected, "{cpus} CPUs, {others} for others");
        }
        assert_eq!(all(none, "idle = \"poll\"\n", 1, 0), [false, true]);
        assert_eq!(all(none, "idle = \"sleep\"\n", 8, 0), [true, false]);
        assert_eq!(all(none, "cores = [3]\n", 4, 0), [false; 2]);
        // a chain of the file may run on any CPU
        assert_eq!(all(["0", ""], "", 8, 0), [true; 2]);
        assert_eq!(all(["0", "0"], "cores = [0]\n", 8, 0), [true, false]);
    }
}
