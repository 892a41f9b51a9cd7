//! Placement: the CPUs on which chains run.

use super::topology::{Topology, node_of_device};
use config::{Chain, ChainFile, Clock, Start};
use graph::Spread;
use std::path::Path;

/// The choice of CPUs for chains for which the file names none, as measured in studies of NFV over NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// On the NUMA node of the chain's devices, on a core of its own while there are any.
    #[default]
    Local,
    /// At random, with this seed.
    Random(u64),
    /// On the node farthest from the chain's devices, and on cores that other chains use.
    Worst,
}

/// The CPUs of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs, each of which runs a copy of the chain.
    pub cpus: Vec<usize>,
    /// The reason for the choice.
    pub reason: String,
}

/// Returns the placement of each chain of a file, on the CPUs of `allowed`. `sys` is the path of sysfs, from which the
/// nodes of devices are read.
#[must_use]
pub fn place_chains(
    file: &ChainFile,
    topology: &Topology,
    allowed: &[usize],
    strategy: Strategy,
    sys: &Path,
) -> Vec<Placement> {
    let mut random = match strategy {
        Strategy::Random(seed) => seed ^ 0x9e37_79b9_7f4a_7c15,
        _ => 1,
    };
    let mut placed: Vec<Placement> = vec![];
    // CPUs that the file names count as used for all chains
    let mut load: Vec<(usize, u32)> = allowed.iter().map(|&cpu| (cpu, 0)).collect();
    let named = file.chains.iter().flat_map(|c| &c.cores);
    named.for_each(|cpu| load.iter_mut().filter(|(c, _)| c == cpu).for_each(|(_, n)| *n += 1));
    for (number, chain) in file.chains.iter().enumerate() {
        if !chain.cores.is_empty() {
            placed.push(Placement { cpus: chain.cores.clone(), reason: "named in the file".into() });
            continue;
        }
        // one worker merges captures by timestamp
        if file.clock == Clock::Capture
            && let Some(cpus) = file
                .chains
                .iter()
                .map(|c| &c.cores)
                .find(|cores| !cores.is_empty())
                .or(placed.first().map(|first| &first.cpus))
        {
            let cpus = cpus.clone();
            placed.push(Placement { cpus, reason: "with the other chains, as captures give the time".into() });
            continue;
        }
        // an NF with per-flow state has to see both directions, so chains that share it share a CPU
        if let Some((with, nf)) = (0..number).find_map(|n| Some((n, shared_flow_nf(file, n, number)?))) {
            let (cpus, name) = (placed[with].cpus.clone(), &file.chains[with].name);
            cpus.iter().for_each(|cpu| load.iter_mut().filter(|(c, _)| c == cpu).for_each(|(_, n)| *n += 1));
            placed.push(Placement {
                cpus,
                reason: format!("with chain {name}, as both run {nf}, which keeps state of flows"),
            });
            continue;
        }
        // the first CPU is reserved for the control plane
        let reserved = allowed.first().copied().filter(|_| allowed.len() > 1);
        let free = || allowed.iter().copied().filter(|cpu| Some(*cpu) != reserved);
        let preferred = preferred_node(file, chain, topology, &placed, sys);
        let count = |cpu: usize| load.iter().find(|(c, _)| *c == cpu).map_or(0, |(_, n)| *n);
        let siblings =
            |cpu: usize| load.iter().filter(|(c, _)| topology.is_sibling(*c, cpu)).map(|(_, n)| *n).sum::<u32>();
        let distance = |cpu: usize| match (&preferred, topology.node_of(cpu)) {
            (Some((node, _)), Some(of)) => topology.distance(of, *node),
            _ => 0,
        };
        let cpu = match strategy {
            Strategy::Local => free().min_by_key(|&cpu| (distance(cpu), count(cpu), siblings(cpu), cpu)),
            Strategy::Worst => free().max_by_key(|&cpu| (distance(cpu), count(cpu), siblings(cpu), usize::MAX - cpu)),
            Strategy::Random(_) => {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let all: Vec<usize> = free().collect();
                all.get((random >> 16) as usize % all.len().max(1)).copied()
            }
        };
        let cpu = cpu.unwrap_or_default();
        let (others, has_sibling) = (count(cpu), siblings(cpu) != 0);
        load.iter_mut().filter(|(c, _)| *c == cpu).for_each(|(_, n)| *n += 1);
        let mut reason = match strategy {
            Strategy::Local => String::new(),
            Strategy::Random(seed) => format!("at random ({seed}); "),
            Strategy::Worst => "worst case; ".to_owned(),
        };
        reason += &match (&preferred, topology.node_of(cpu)) {
            _ if topology.nodes.len() < 2 => "this machine has one NUMA node".to_owned(),
            (Some((node, what)), Some(of)) if of == *node => format!("on node {of}, where {what} is"),
            (Some((node, what)), Some(of)) => format!("on node {of}, while {what} is on node {node}"),
            (None, _) => "none of its devices has a known node".to_owned(),
            (_, None) => "the node of the CPU is not known".to_owned(),
        };
        reason += &match others {
            0 if has_sibling => ", shares a core with another chain".to_owned(),
            0 => ", alone on it".to_owned(),
            n => format!(", with {n} other{}", if n == 1 { "" } else { "s" }),
        };
        placed.push(Placement { cpus: vec![cpu], reason });
    }
    placed
}

/// Returns the name of an NF of both chains that keeps per-flow state.
fn shared_flow_nf(file: &ChainFile, one: usize, other: usize) -> Option<&str> {
    let others = file.worker(&[other]).nfs;
    let both = file.worker(&[one]).nfs.into_iter().filter(|nf| others.contains(nf)).map(|nf| &file.nfs[nf]);
    both.filter(|nf| nf.factory.spread() != Spread::Any).map(|nf| nf.name.as_str()).next()
}

/// Returns the node that a chain should run on, and its reason: the device or chain that its packets come from, or
/// else the device by which they leave.
fn preferred_node(
    file: &ChainFile,
    chain: &Chain,
    topology: &Topology,
    placed: &[Placement],
    sys: &Path,
) -> Option<(usize, String)> {
    let device = |port: usize| {
        let port = file.ports.get(port)?;
        let nic = match (port.device.virtual_function(), port.device.scheme_and_target()) {
            (Some(function), _) => &function.physical,
            (None, Some(("af_packet" | "af_xdp", interface))) => interface,
            _ => port.device.pci_address()?,
        };
        Some((node_of_device(sys, nic)?, format!("port {}", port.name)))
    };
    let first = match chain.from {
        Start::Port(port) => device(port),
        Start::Link(link) => {
            let nf = file.links.get(link)?.name.split('.').next()?;
            let ends = |c: &Chain| c.path.iter().skip(1).any(|e| e.split(':').next() == Some(nf));
            let before = file.chains.iter().position(ends)?;
            let cpu = placed.get(before)?.cpus.first()?;
            Some((topology.node_of(*cpu)?, format!("chain {}", file.chains[before].name)))
        }
    };
    first.or_else(|| {
        let last = chain.path.last()?;
        device(file.ports.iter().position(|p| p.name == *last)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    /// Creates a machine with two nodes, CPUs 0, 1, 4, 5 and 2, 3, 6, 7; CPUs n and n + 4 share a core.
    fn machine(sys: &Path) -> Topology {
        let put = |path: &str, text: &str| {
            let path = sys.join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        };
        put("devices/system/cpu/online", "0-7");
        put("devices/system/node/online", "0-1");
        for (node, cpus, distance) in [(0, "0-1,4-5", "10 21"), (1, "2-3,6-7", "21 10")] {
            put(&format!("devices/system/node/node{node}/cpulist"), cpus);
            put(&format!("devices/system/node/node{node}/distance"), distance);
        }
        for cpu in 0..8 {
            let path = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            put(&path, &format!("{},{}", cpu % 4, cpu % 4 + 4));
        }
        put("bus/pci/devices/0000:01:00.0/numa_node", "1");
        Topology::at(sys)
    }

    fn cpus(placed: &[Placement]) -> Vec<usize> {
        placed.iter().map(|p| p.cpus[0]).collect()
    }

    #[test]
    fn strategies_choose_near_far_and_random_cpus() {
        let sys = std::env::temp_dir().join(format!("bondstone-place-{}", std::process::id()));
        let topology = machine(&sys);
        let chains = "bondstone = 1\n[port.nic]\ndevice = \"0000:01:00.0\"\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n\
                      [nf.one]\nkind = \"ttl\"\n[nf.two]\nkind = \"ttl\"\n\
                      [[chain]]\npath = [\"nic\", \"one\"]\n[[chain]]\npath = [\"one.out\", \"two\", \"a\"]\n\
                      [[chain]]\npath = [\"a\", \"ttl\", \"nic\"]\n[[chain]]\npath = [\"b\", \"ttl\", \"b\"]\ncores = [2]\n";
        let file = ChainFile::parse(chains, Path::new("p.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
        let all: Vec<usize> = (0..8).collect();
        let local = place_chains(&file, &topology, &all, Strategy::Local, &sys);
        // free cores first; 2 is named, so the next two share a core with another chain
        assert_eq!(cpus(&local), [3, 6, 7, 2], "{local:#?}");
        assert!(
            local[0].reason.contains("on node 1, where port nic is")
                && local[1].reason.contains("where chain chain1 is")
        );
        assert_eq!(local[3].reason, "named in the file");
        // a virtual function is on the node of its NIC
        let function = chains.replace("0000:01:00.0", "sriov:01:00.0");
        let function =
            ChainFile::parse(&function, Path::new("p.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(place_chains(&function, &topology, &all, Strategy::Local, &sys), local);
        let worst = place_chains(&file, &topology, &all, Strategy::Worst, &sys);
        let far = |at: usize, from: usize| topology.node_of(worst[at].cpus[0]) != Some(from);
        assert!(far(0, 1) && far(1, topology.node_of(worst[0].cpus[0]).unwrap()) && far(2, 1), "{worst:#?}");
        let random = |seed| cpus(&place_chains(&file, &topology, &all, Strategy::Random(seed), &sys));
        assert_eq!(random(7), random(7));
        assert!((0..20).any(|seed| random(seed) != random(7)));
        assert!((0..20).all(|seed| random(seed)[..3].iter().all(|cpu| (1..8).contains(cpu))));
        // a single CPU, and a machine of unknown topology
        assert_eq!(cpus(&place_chains(&file, &topology, &[4], Strategy::Local, &sys))[..3], [4, 4, 4]);
        let nothing = Topology::default();
        assert_eq!(place_chains(&file, &nothing, &[0, 1], Strategy::Local, &sys)[0].cpus, [1]);
        assert!(place_chains(&file, &nothing, &[], Strategy::Worst, &sys).iter().all(|p| p.cpus.len() == 1));
        std::fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn chains_that_share_an_nf_with_flow_state_share_a_cpu() {
        let sys = std::env::temp_dir().join(format!("bondstone-share-{}", std::process::id()));
        let topology = machine(&sys);
        let all: Vec<usize> = (0..8).collect();
        for example in ["home-gateway.toml", "carrier-nat.toml"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
            let file = ChainFile::read(&file, &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
            for strategy in [Strategy::Local, Strategy::Worst, Strategy::Random(7)] {
                let placed = place_chains(&file, &topology, &all, strategy, &sys);
                assert_eq!(placed[0].cpus, placed[1].cpus, "{example}: {placed:#?}");
                assert!(placed[1].reason.contains("keeps state of flows"), "{placed:#?}");
            }
        }
        std::fs::remove_dir_all(&sys).unwrap();
    }
}
