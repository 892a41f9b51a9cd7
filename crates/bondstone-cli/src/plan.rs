//! `bondstone plan`.

use crate::exit::Exit;
use crate::table::Table;
use clap::ValueEnum;
use config::{ChainFile, Start};
use diagnostics::Diagnostics;
use graph::{Registry, Spread};
use runtime::{Placement, Strategy, Topology};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Says on which CPUs a chain file would run, and why.
///
/// Nothing is opened and nothing runs.
#[derive(clap::Args)]
#[command(after_help = "\
Chains that name CPUs (cores = [1, 2]) run there. For the others CPUs are chosen, by default near their devices and each on a
core of its own while there are some; the first CPU is left to control where there are more.

Examples:
  bondstone plan edge.toml
  bondstone plan edge.toml --place worst
  bondstone run edge.toml --place random --seed 7")]
pub(crate) struct Plan {
    /// The chain file.
    chain: PathBuf,
    #[command(flatten)]
    placing: Placing,
    /// Prints the plan as JSON.
    #[arg(long)]
    json: bool,
}

/// How CPUs are chosen.
#[derive(Clone, clap::Args)]
pub(crate) struct Placing {
    /// How CPUs are chosen for chains that name none.
    #[arg(long, value_enum, default_value_t = Way::Local)]
    place: Way,
    /// Of random places: the same number, the same places.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// Near the chain's devices, each on a core of its own.
    Local,
    /// Anywhere.
    Random,
    /// Far from the chain's devices, on cores that others have.
    Worst,
}

impl Placing {
    pub(crate) fn strategy(&self) -> Strategy {
        match self.place {
            Way::Local => Strategy::Local,
            Way::Random => Strategy::Random(self.seed),
            Way::Worst => Strategy::Worst,
        }
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Printed<'a> {
    file: String,
    /// NUMA nodes with their CPUs, and CPUs that share a core.
    nodes: &'a BTreeMap<usize, Vec<usize>>,
    cores: &'a [Vec<usize>],
    chains: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    chain: &'a str,
    cpus: &'a [usize],
    nodes: Vec<Option<usize>>,
    why: &'a str,
    /// How packets come to these CPUs.
    packets: String,
}

impl Plan {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let whole = ChainFile::read(&self.chain, registry).map_err(Diagnostics)?;
        let (topology, allowed) = (Topology::read(), runtime::allowed_cpus());
        let absent = whole.absent_cpus(&allowed);
        if !absent.is_empty() {
            return Err(Diagnostics(absent).into());
        }
        let (walls, (own, behind)) = (whole.walls.clone(), sandbox::places(&whole, &allowed));
        let file = match &walls[..] {
            [] => whole,
            _ => whole.switch(Path::new("/run"), &own, &BTreeMap::new(), registry).map_err(Diagnostics)?,
        };
        let placed = runtime::place(&file, &topology, &allowed, self.placing.strategy(), Path::new("/sys"));
        let row = |(n, p): (usize, &'_ Placement)| (n, p.clone());
        let placed: Vec<(usize, Placement)> = placed.iter().enumerate().map(row).collect();
        let rows = placed.iter().map(|(n, p)| Row {
            chain: &file.chains[*n].name,
            cpus: &p.cpus,
            nodes: p.cpus.iter().map(|cpu| topology.node_of(*cpu)).collect(),
            why: if own.is_empty() { &p.why } else { "left by the walls" },
            packets: packets(&file, *n, &p.cpus),
        });
        let names: Vec<String> = walls.iter().map(|wall| format!("wall {}", wall.name)).collect();
        let of_walls = walls.iter().zip(&names).zip(&behind).map(|((wall, name), cpus)| Row {
            chain: name,
            cpus,
            nodes: cpus.iter().map(|cpu| topology.node_of(*cpu)).collect(),
            why: if wall.cores.is_empty() { "free of chains, where one is" } else { "as the file says" },
            packets: wall
                .ports()
                .chain(wall.own.iter().map(String::as_str))
                .map(|port| format!("by {port}"))
                .collect::<Vec<_>>()
                .join(", "),
        });
        let rows: Vec<Row<'_>> = rows.chain(of_walls).collect();
        if self.json {
            let file = file.file.display().to_string();
            let printed = Printed { file, nodes: &topology.nodes, cores: &topology.cores, chains: rows };
            println!("{}", serde_json::to_string_pretty(&printed)?);
            return Ok(Exit::Done);
        }
        let list = |all: &[usize]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut table = Table::new(&["chain", "CPU", "NUMA node", "why", "packets"]);
        for row in rows {
            let mut nodes: Vec<usize> = row.nodes.iter().flatten().copied().collect();
            nodes.dedup();
            let Row { chain, cpus, why, packets, .. } = row;
            table.row([chain.to_owned(), list(cpus), list(&nodes), why.to_owned(), packets]);
        }
        println!("{table}");
        let shared = topology.cores.iter().filter(|core| core.len() > 1).count();
        println!(
            "{} of {} CPUs may be used, on {} NUMA node{}; {} share a core with another",
            allowed.len(),
            topology.cores.iter().map(Vec::len).sum::<usize>(),
            topology.nodes.len(),
            if topology.nodes.len() == 1 { "" } else { "s" },
            if shared == 0 { "none".to_owned() } else { format!("{} cores' CPUs", shared) }
        );
        Ok(Exit::Done)
    }
}

/// How packets come to the CPUs of a chain.
fn packets(file: &ChainFile, n: usize, cpus: &[usize]) -> String {
    let chain = &file.chains[n];
    match (chain.from, cpus) {
        (Start::Port(port), [_]) => format!("polls {}", file.ports[port].name),
        (Start::Port(port), [first, ..]) => {
            let name = &file.ports[port].name;
            match file.spread(port) {
                Spread::Hosts => format!("{first} polls {name} and hands each pair of hosts to its CPU by a ring"),
                Spread::Custom => format!("{first} polls {name} and hands packets to CPUs by rings, as the NF says"),
                Spread::Symmetric => format!("{first} polls {name} and hands each flow to its CPU by a ring"),
                _ => {
                    format!("queues of {name} where it has as many, else {first} polls it and hands flows on by rings")
                }
            }
        }
        (Start::Link(link), _) => format!("rings from {}", file.links[link].name),
        (Start::Port(_), []) => String::new(),
    }
}
