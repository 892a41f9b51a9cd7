//! Which CPU runs which chain, and why.

use crate::sriov;
use crate::topology::{Topology, node_of_device};
use config::{Chain, ChainFile, Start};
use graph::Spread;
use std::path::Path;

/// How CPUs are chosen for chains that name none: the three ways that NFV over NUMA nodes has been measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Near the chain's devices, on a core of its own while there are some.
    #[default]
    Local,
    /// Anywhere, the same for the same number.
    Random(u64),
    /// As far from the chain's devices as can be, and on cores that other chains have already.
    Worst,
}

/// A chain on its CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPUs, a copy of the chain on each.
    pub cpus: Vec<usize>,
    /// Why these.
    pub why: String,
}

/// Where each chain of a file goes, in the file's order, on a machine where only CPUs of `allowed` may be used. `sys` is where
/// devices are asked for their node.
#[must_use]
pub fn place(
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
    // CPUs that the file names are taken, wherever it names them
    let mut load: Vec<(usize, u32)> = allowed.iter().map(|&cpu| (cpu, 0)).collect();
    let named = file.chains.iter().flat_map(|c| &c.cores);
    named.for_each(|cpu| load.iter_mut().filter(|(c, _)| c == cpu).for_each(|(_, n)| *n += 1));
    for (number, chain) in file.chains.iter().enumerate() {
        if !chain.cores.is_empty() {
            placed.push(Placement { cpus: chain.cores.clone(), why: "named in the file".into() });
            continue;
        }
        // both ways of a connection have to come to one copy of what knows connections
        if let Some((with, nf)) = (0..number).find_map(|n| Some((n, shared(file, n, number)?))) {
            let (cpus, name) = (placed[with].cpus.clone(), &file.chains[with].name);
            cpus.iter().for_each(|cpu| load.iter_mut().filter(|(c, _)| c == cpu).for_each(|(_, n)| *n += 1));
            placed
                .push(Placement { cpus, why: format!("with chain {name}, of which {nf} has to see the packets too") });
            continue;
        }
        // so that control has one
        let kept = allowed.first().copied().filter(|_| allowed.len() > 1);
        let free = || allowed.iter().copied().filter(|cpu| Some(*cpu) != kept);
        let wanted = near(file, chain, topology, &placed, sys);
        let count = |cpu: usize| load.iter().find(|(c, _)| *c == cpu).map_or(0, |(_, n)| *n);
        let siblings =
            |cpu: usize| load.iter().filter(|(c, _)| topology.is_sibling(*c, cpu)).map(|(_, n)| *n).sum::<u32>();
        let far = |cpu: usize| match (&wanted, topology.node_of(cpu)) {
            (Some((node, _)), Some(of)) => topology.distance(of, *node),
            _ => 0,
        };
        let cpu = match strategy {
            Strategy::Local => free().min_by_key(|&cpu| (far(cpu), count(cpu), siblings(cpu), cpu)),
            Strategy::Worst => free().max_by_key(|&cpu| (far(cpu), count(cpu), siblings(cpu), usize::MAX - cpu)),
            Strategy::Random(_) => {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let all: Vec<usize> = free().collect();
                all.get((random >> 16) as usize % all.len().max(1)).copied()
            }
        };
        // a process runs somewhere
        let cpu = cpu.unwrap_or_default();
        let (others, beside) = (count(cpu), siblings(cpu) != 0);
        load.iter_mut().filter(|(c, _)| *c == cpu).for_each(|(_, n)| *n += 1);
        let mut why = match strategy {
            Strategy::Local => String::new(),
            Strategy::Random(seed) => format!("at random ({seed}); "),
            Strategy::Worst => "the worst there is; ".to_owned(),
        };
        why += &match (&wanted, topology.node_of(cpu)) {
            _ if topology.nodes.len() < 2 => "this machine has one NUMA node".to_owned(),
            (Some((node, what)), Some(of)) if of == *node => format!("on node {of}, where {what} is"),
            (Some((node, what)), Some(of)) => format!("on node {of}, while {what} is on node {node}"),
            (None, _) => "nothing that it uses is known to be near a node".to_owned(),
            (_, None) => "its node is not known".to_owned(),
        };
        why += &match others {
            0 if beside => ", beside another chain on the same core".to_owned(),
            0 => ", alone on it".to_owned(),
            n => format!(", with {n} other{}", if n == 1 { "" } else { "s" }),
        };
        placed.push(Placement { cpus: vec![cpu], why });
    }
    placed
}

/// An NF in both chains that keeps what it knows of flows for itself.
fn shared(file: &ChainFile, one: usize, other: usize) -> Option<&str> {
    let others = file.worker(&[other]).nfs;
    let both = file.worker(&[one]).nfs.into_iter().filter(|nf| others.contains(nf)).map(|nf| &file.nfs[nf]);
    both.filter(|nf| nf.factory.spread() != Spread::Any).map(|nf| nf.name.as_str()).next()
}

/// The node that a chain should be near, and what is there: the device that its packets come from, or the chain that they
/// come from, or else the device that they leave by.
fn near(
    file: &ChainFile,
    chain: &Chain,
    topology: &Topology,
    placed: &[Placement],
    sys: &Path,
) -> Option<(usize, String)> {
    let device = |port: usize| {
        let port = file.ports.get(port)?;
        let address = match port.device.virtual_function() {
            Some(function) => sriov::address(sys, &function.of)?,
            None => port.device.pci()?.to_owned(),
        };
        Some((node_of_device(sys, &address)?, format!("port {}", port.name)))
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

    /// Two nodes; CPUs 0, 1, 4, 5 and 2, 3, 6, 7, of which 0 and 4, 1 and 5 and so on share a core.
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
    fn near_far_and_anywhere() {
        let sys = std::env::temp_dir().join(format!("bondstone-place-{}", std::process::id()));
        let topology = machine(&sys);
        let chains = "bondstone = 1\n[port.nic]\ndevice = \"0000:01:00.0\"\n[port.a]\ndevice = \"null\"\n[port.b]\ndevice = \"null\"\n\
                      [nf.one]\nkind = \"ttl\"\n[nf.two]\nkind = \"ttl\"\n\
                      [[chain]]\npath = [\"nic\", \"one\"]\n[[chain]]\npath = [\"one.out\", \"two\", \"a\"]\n\
                      [[chain]]\npath = [\"a\", \"ttl\", \"nic\"]\n[[chain]]\npath = [\"b\", \"ttl\", \"b\"]\ncores = [2]\n";
        let file = ChainFile::parse(chains, Path::new("p.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
        let all: Vec<usize> = (0..8).collect();
        let local = place(&file, &topology, &all, Strategy::Local, &sys);
        // a core of its own first; 2 is named, so then two that share a core with another chain
        assert_eq!(cpus(&local), [3, 6, 7, 2], "{local:#?}");
        assert!(
            local[0].why.contains("on node 1, where port nic is") && local[1].why.contains("where chain chain1 is")
        );
        assert_eq!(local[3].why, "named in the file");
        // a virtual function is where its NIC is
        let function = chains.replace("0000:01:00.0", "sriov:01:00.0");
        let function =
            ChainFile::parse(&function, Path::new("p.toml"), &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(place(&function, &topology, &all, Strategy::Local, &sys), local);
        let worst = place(&file, &topology, &all, Strategy::Worst, &sys);
        let far = |at: usize, from: usize| topology.node_of(worst[at].cpus[0]) != Some(from);
        assert!(far(0, 1) && far(1, topology.node_of(worst[0].cpus[0]).unwrap()) && far(2, 1), "{worst:#?}");
        let random = |seed| cpus(&place(&file, &topology, &all, Strategy::Random(seed), &sys));
        assert_eq!(random(7), random(7));
        assert!((0..20).any(|seed| random(seed) != random(7)));
        assert!((0..20).all(|seed| random(seed)[..3].iter().all(|cpu| (1..8).contains(cpu))));
        // one CPU takes everything, and a machine of which nothing is known as well
        assert_eq!(cpus(&place(&file, &topology, &[4], Strategy::Local, &sys))[..3], [4, 4, 4]);
        let nothing = Topology::default();
        assert_eq!(place(&file, &nothing, &[0, 1], Strategy::Local, &sys)[0].cpus, [1]);
        assert!(place(&file, &nothing, &[], Strategy::Worst, &sys).iter().all(|p| p.cpus.len() == 1));
        std::fs::remove_dir_all(&sys).unwrap();
    }

    #[test]
    fn chains_that_share_what_knows_flows_stay_together() {
        let sys = std::env::temp_dir().join(format!("bondstone-share-{}", std::process::id()));
        let topology = machine(&sys);
        let all: Vec<usize> = (0..8).collect();
        for example in ["home-gateway.toml", "carrier-nat.toml"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example);
            let file = ChainFile::read(&file, &nf::registry()).unwrap_or_else(|e| panic!("{e:?}"));
            for strategy in [Strategy::Local, Strategy::Worst, Strategy::Random(7)] {
                let placed = place(&file, &topology, &all, strategy, &sys);
                assert_eq!(placed[0].cpus, placed[1].cpus, "{example}: {placed:#?}");
                assert!(placed[1].why.contains("has to see the packets too"), "{placed:#?}");
            }
        }
        std::fs::remove_dir_all(&sys).unwrap();
    }
}
