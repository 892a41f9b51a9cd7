//! `bondstone plan`.

#[cfg(feature = "measure")]
mod capacity;

use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use clap::ValueEnum;
use config::{Chain, ChainFile, Host, HostLink, Hosts, NfConfig, Shuffle, Spreading, Start};
use diagnostics::Diagnostics;
use graph::{Registry, Spread};
use runtime::{Placement, Strategy, Topology};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Shows on which CPUs a chain file would run, and why; or how many VNFs a server can have.
///
/// For a file that describes several hosts it shows the part of each. Opens no ports and runs nothing.
#[derive(clap::Args)]
#[command(after_help = "\
Chains with cores = [1, 2] run on these CPUs. For others, CPUs are chosen: by default near their devices and on
separate cores while there are enough; the first of several CPUs is reserved for control.

Examples:
  bondstone plan edge.toml
  bondstone plan edge.toml --place worst
  bondstone plan --capacity examples/capacity/server.toml
  bondstone run edge.toml --place random --seed 7")]
pub(crate) struct Plan {
    /// Chain file.
    #[cfg_attr(feature = "measure", arg(required_unless_present = "capacity"))]
    #[cfg_attr(not(feature = "measure"), arg(required = true))]
    chain: Option<PathBuf>,
    /// Description of a server: prints how many VNFs its CPUs and ports can have, an estimate of their throughput from
    /// cycles per packet, and what more CPUs or vNICs would gain.
    #[cfg(feature = "measure")]
    #[arg(long, value_name = "SERVER", conflicts_with = "chain")]
    capacity: Option<PathBuf>,
    #[command(flatten)]
    placing: Placing,
    /// Prints the plan as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of CPU placement.
#[derive(Clone, clap::Args)]
pub(crate) struct Placing {
    /// Placement of chains without cores.
    #[arg(long, value_enum, default_value_t = PlacementStrategy::Local)]
    place: PlacementStrategy,
    /// Seed of random placement.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum PlacementStrategy {
    /// Near the devices of the chain, on separate cores.
    Local,
    /// On random CPUs.
    Random,
    /// Far from the devices of the chain, on shared cores.
    Worst,
}

impl Placing {
    pub(crate) fn strategy(&self) -> Strategy {
        match self.place {
            PlacementStrategy::Local => Strategy::Local,
            PlacementStrategy::Random => Strategy::Random(self.seed),
            PlacementStrategy::Worst => Strategy::Worst,
        }
    }

    /// Returns the options as arguments.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let place = self.place.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        ["--place".to_owned(), place, "--seed".to_owned(), self.seed.to_string()]
    }
}

/// The plan as JSON.
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
    /// Distribution of packets to these CPUs.
    packets: String,
}

impl Plan {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        #[cfg(feature = "measure")]
        if let Some(server) = &self.capacity {
            return capacity::run(server, self.json);
        }
        let chain = self.chain.as_deref().unwrap_or(Path::new(""));
        let text = config::read(chain, "chain file").map_err(|d| Diagnostics(vec![d]))?;
        if let Some(hosts) = Hosts::parse(&text, chain, registry).map_err(Diagnostics)? {
            return self.hosts(chain, &hosts);
        }
        let whole = ChainFile::parse(&text, chain, registry).map_err(Diagnostics)?;
        let (topology, allowed) = (Topology::read(), runtime::allowed_cpus());
        let unavailable = whole.unavailable_cpus(&allowed);
        if !unavailable.is_empty() {
            return Err(Diagnostics(unavailable).into());
        }
        let (sandboxes, (own, sandbox_cpus)) = (whole.sandboxes.clone(), sandbox::choose_cpus(&whole, &allowed));
        let file = match &sandboxes[..] {
            [] => whole,
            _ => whole.host_side(Path::new("/run"), &own, &BTreeMap::new(), registry).map_err(Diagnostics)?,
        };
        let placed = runtime::place_chains(&file, &topology, &allowed, self.placing.strategy(), Path::new("/sys"));
        let row = |(n, p): (usize, &'_ Placement)| (n, p.clone());
        let placed: Vec<(usize, Placement)> = placed.iter().enumerate().map(row).collect();
        let rows = placed.iter().map(|(n, p)| Row {
            chain: &file.chains[*n].name,
            cpus: &p.cpus,
            nodes: p.cpus.iter().map(|cpu| topology.node_of(*cpu)).collect(),
            why: if own.is_empty() || sandboxes.is_empty() { &p.reason } else { "not used by sandboxes" },
            packets: packets(&file, *n, &p.cpus),
        });
        let names: Vec<String> = sandboxes.iter().map(|sandbox| format!("sandbox {}", sandbox.name)).collect();
        let of_sandboxes = sandboxes.iter().zip(&names).zip(&sandbox_cpus).map(|((sandbox, name), cpus)| Row {
            chain: name,
            cpus,
            nodes: cpus.iter().map(|cpu| topology.node_of(*cpu)).collect(),
            why: if sandbox.cores.is_empty() { "not used by chains, if possible" } else { "configured" },
            packets: sandbox
                .ports()
                .chain(sandbox.passthrough.iter().map(String::as_str))
                .map(|port| format!("by {port}"))
                .collect::<Vec<_>>()
                .join(", "),
        });
        let rows: Vec<Row<'_>> = rows.chain(of_sandboxes).collect();
        let mut out = stdout();
        if self.json {
            let file = file.file.display().to_string();
            let printed = Printed { file, nodes: &topology.nodes, cores: &topology.cores, chains: rows };
            writeln!(out, "{}", serde_json::to_string_pretty(&printed)?)?;
            return Ok(Exit::Success);
        }
        let list = |all: &[usize]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut table = Table::new(&["chain", "CPU", "NUMA node", "why", "packets"]);
        for row in rows {
            let mut nodes: Vec<usize> = row.nodes.iter().flatten().copied().collect();
            nodes.dedup();
            let Row { chain, cpus, why, packets, .. } = row;
            table.row([chain.to_owned(), list(cpus), list(&nodes), why.to_owned(), packets]);
        }
        writeln!(out, "{table}")?;
        let shared = topology.cores.iter().filter(|core| core.len() > 1).count();
        writeln!(
            out,
            "{} of {} CPUs may be used, on {} NUMA node{}; {} share a core with another",
            allowed.len(),
            topology.cores.iter().map(Vec::len).sum::<usize>(),
            topology.nodes.len(),
            if topology.nodes.len() == 1 { "" } else { "s" },
            if shared == 0 { "none".to_owned() } else { format!("{} cores' CPUs", shared) }
        )?;
        Ok(Exit::Success)
    }
}

impl Plan {
    /// Prints what each host of a file runs.
    fn hosts(&self, file: &Path, hosts: &Hosts) -> anyhow::Result<Exit> {
        let mut out = stdout();
        if self.json {
            let chain = |chain: &Chain| json!({ "chain": chain.name, "path": chain.path, "cpus": chain.cores });
            let host = |Host { name, remote, part }: &Host| {
                let chains: Vec<_> = part.chains.iter().map(chain).collect();
                json!({ "host": name, "ssh": remote.host, "chains": chains })
            };
            let link = |link: &HostLink| {
                let directions: Vec<_> = link.crossings().map(|(from, to)| json!({ "from": from, "to": to })).collect();
                json!({ "link": link.name, "directions": directions })
            };
            let parts: Vec<_> = hosts.hosts.iter().map(host).collect();
            let links: Vec<_> = hosts.links.iter().map(link).collect();
            writeln!(out, "{:#}", json!({ "file": file.display().to_string(), "hosts": parts, "links": links }))?;
        } else {
            write!(out, "{}", crate::hosts::partition(hosts))?;
            writeln!(out, "CPUs of chains without cores are chosen on their hosts: bondstone plan cannot show them")?;
        }
        Ok(Exit::Success)
    }
}

/// Describes the distribution of packets to the CPUs of a chain.
fn packets(file: &ChainFile, n: usize, cpus: &[usize]) -> String {
    let chain = &file.chains[n];
    let Spreading { requirement, steered_by, is_shared } = chain.spreading;
    let key = match (steered_by, requirement) {
        (Some((nf, _)), _) => {
            let NfConfig { name, kind, .. } = &file.nfs[nf];
            format!("by {} ({name})", kind.steering.key)
        }
        (None, Spread::Hosts) => "by pair of hosts".to_owned(),
        (None, _) => "by flow".to_owned(),
    };
    match (chain.from, cpus) {
        (Start::Port(port), [_]) => format!("polls {}", file.ports[port].name),
        (Start::Port(port), [first, ..]) => {
            let name = &file.ports[port].name;
            let by_device = requirement == Spread::Any || requirement == Spread::Flow && !is_shared;
            if by_device {
                format!(
                    "queues of {name} if it has as many, else {first} polls it and spreads packets {key} through rings"
                )
            } else {
                format!("{first} polls {name} and spreads packets {key} through rings")
            }
        }
        (Start::Link(link), [_, _, ..]) if chain.shuffle == Shuffle::Flow => {
            format!("rings from {}, {key}", file.links[link].name)
        }
        (Start::Link(link), _) => format!("rings from {}", file.links[link].name),
        (Start::Port(_), []) => String::new(),
    }
}
