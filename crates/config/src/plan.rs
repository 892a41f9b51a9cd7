//! What a checked file says.

use crate::{Device, Isolation, Shuffle, Side, Traffic, Wall};
use diagnostics::Diagnostic;
use graph::{Blueprint, Factory, Hop, HopPlan, Kind, Lane, NodePlan, Registry, Spread, Target};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A chain file, read and checked.
pub struct ChainFile {
    /// Where it came from.
    pub file: PathBuf,
    /// All of its text.
    pub text: String,
    /// The ports, by name.
    pub ports: Vec<Port>,
    /// The NFs, by name.
    pub nfs: Vec<NfUse>,
    /// The chains, in the file's order.
    pub chains: Vec<Chain>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// What a benchmark sends.
    pub traffic: Traffic,
    /// Outputs with which chains begin. Where packets go by the `n`th of them, [`Target::Port`] says `n` more than there are
    /// ports.
    pub links: Vec<Link>,
    /// Walls that some of the NFs are behind.
    pub walls: Vec<Wall>,
    /// All visits to NFs, of all chains.
    pub(crate) hops: Vec<HopPlan>,
    /// For each NF, where its outputs lead; the first is not used.
    pub(crate) edges: Vec<Vec<Target>>,
}

/// A port of the file.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it is.
    pub device: Device,
    /// Descriptors in each of its queues.
    pub descriptors: u16,
    /// How often a capture is read; 0: until stopped.
    pub repeat: u64,
    /// Whether a capture is read at the pace at which it was taken.
    pub timed: bool,
    /// Whether packets enter by it.
    pub received_from: bool,
    /// Whether packets leave by it.
    pub sent_to: bool,
    /// On which side of a wall it is, if it is a way through one.
    pub wall: Option<Side>,
    /// The wall behind which it is opened, if its device is handed to what is there.
    pub behind: Option<String>,
}

/// An NF of the file.
pub struct NfUse {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its settings, ready to make copies.
    pub factory: Arc<dyn Factory>,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// What its own table says of it.
    pub isolation: Option<Isolation>,
    /// The bytes of the file that hold each setting, to place what building finds.
    pub(crate) places: Vec<(String, std::ops::Range<usize>)>,
}

impl NfUse {
    pub(crate) fn new(
        name: String,
        kind: Kind,
        factory: Box<dyn Factory>,
        places: Vec<(String, std::ops::Range<usize>)>,
        isolation: Option<Isolation>,
    ) -> Self {
        let interfaces = factory.interfaces();
        let and = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).chain(interfaces.iter().cloned()).collect();
        let (inputs, outputs) = (and(kind.inputs), and(kind.outputs));
        NfUse { inputs, outputs, name, kind, factory: factory.into(), places, isolation }
    }

    /// Whether its settings give it interfaces, so that paths may end with it.
    pub(crate) fn has_interfaces(&self) -> bool {
        self.outputs.len() > self.kind.outputs.len()
    }
}

/// An output of an NF with which a chain begins, most likely on other cores.
#[derive(Clone, Debug)]
pub struct Link {
    /// `NF.OUTPUT`.
    pub name: String,
    /// Number of the chain.
    pub chain: usize,
}

/// How a chain is served beside others on one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Chains of a higher one go first, while they have packets.
    pub priority: u8,
    /// Of the cycles that chains of this priority get, for each worker.
    pub share: u32,
    /// At most, on all workers together.
    pub rate: Option<Rate>,
}

impl Class {
    /// What a chain has that says nothing.
    pub const PLAIN: Class = Class { priority: 0, share: 1, rate: None };
}

/// How much may pass in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Packets.
    Packets(f64),
    /// Bits of frames without FCS.
    Bits(f64),
}

impl std::str::FromStr for Rate {
    type Err = ();

    /// `500 kpps`, `1.5Mpps`, `2 Gbit`.
    fn from_str(text: &str) -> Result<Rate, ()> {
        let at = text.find(|c: char| c != '.' && !c.is_ascii_digit()).ok_or(())?;
        let number: f64 = text[..at].parse().map_err(|_| ())?;
        let (factor, unit) = match text[at..].trim() {
            unit @ ("pps" | "bit") => (1.0, unit),
            unit => {
                let factor = match unit.chars().next() {
                    Some('k') => 1e3,
                    Some('M') => 1e6,
                    Some('G') => 1e9,
                    _ => return Err(()),
                };
                (factor, &unit[1..])
            }
        };
        match (unit, number * factor) {
            ("pps", rate) if (1.0..=1e10).contains(&rate) => Ok(Rate::Packets(rate)),
            ("bit", rate) if (1e3..=1e13).contains(&rate) => Ok(Rate::Bits(rate)),
            _ => Err(()),
        }
    }
}

/// Where a chain's packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The port of this number.
    Port(usize),
    /// The link of this number.
    Link(usize),
}

/// A chain of the file.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Where packets come from.
    pub from: Start,
    /// How packets of a link are spread over the cores.
    pub shuffle: Shuffle,
    /// How it is served on a worker that has other chains as well.
    pub class: Class,
    /// Where they go from there.
    pub entry: Target,
    /// The path as written.
    pub path: Vec<String>,
    /// CPUs that run a copy of it; empty: to be chosen.
    pub cores: Vec<usize>,
    /// Each CPU as a fault of the file, for when it turns out not to be there.
    pub(crate) absent: Vec<(usize, Diagnostic)>,
}

/// The part of a file that one worker runs.
#[derive(Clone, Debug, Default)]
pub struct WorkerPlan {
    /// Its graph; port numbers are those of [`ChainFile::ports`].
    pub blueprint: Blueprint,
    /// For each node of the graph, the number of its NF.
    pub nfs: Vec<usize>,
    /// For each chain asked for, in order, where its packets enter.
    pub entries: Vec<Target>,
}

impl ChainFile {
    /// What the chains that begin with a port come to.
    fn behind(&self, port: usize) -> WorkerPlan {
        let from = Start::Port(port);
        let chains = self.chains.iter().enumerate().filter(|(_, c)| c.from == from).map(|(n, _)| n);
        self.worker(&chains.collect::<Vec<_>>())
    }

    /// The strictest spreading that an NF behind a port asks for.
    pub fn spread(&self, port: usize) -> Spread {
        let nfs = self.behind(port).nfs;
        nfs.iter().map(|&nf| self.nfs[nf].factory.spread()).max().unwrap_or(Spread::Any)
    }

    /// How the first NF behind a port that spreads packets itself does so over `copies` copies, and its input at which they
    /// arrive.
    pub fn lane(&self, port: usize, copies: usize) -> Option<(Lane, u8)> {
        let WorkerPlan { blueprint, nfs, entries } = self.behind(port);
        let mut seen = vec![false; blueprint.hops.len()];
        let mut next: std::collections::VecDeque<Target> = entries.into();
        while let Some(target) = next.pop_front() {
            let Target::Hop(Hop(hop)) = target else { continue };
            if std::mem::replace(&mut seen[usize::from(hop)], true) {
                continue;
            }
            let HopPlan { node, input, next: first, .. } = blueprint.hops[usize::from(hop)];
            let nf = &self.nfs[nfs[usize::from(node)]];
            if nf.factory.spread() == Spread::Custom {
                return nf.factory.lane(copies).map(|lane| (lane, input));
            }
            next.extend([first].iter().chain(blueprint.nodes[usize::from(node)].edges.iter().skip(1)));
        }
        None
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Every fault found, each with its place, the value and a remedy.
    pub fn read(file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        let text = crate::read(file, "chain file").map_err(|d| vec![d])?;
        crate::check::check(&text, file, registry, true)
    }

    /// Reads and checks the text of a file; relative paths in it count from the folder of `file`.
    ///
    /// # Errors
    /// As [`ChainFile::read`].
    pub fn parse(text: &str, file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        crate::check::check(text, file, registry, true)
    }

    /// Chains that have a part on this side of the walls.
    pub fn chains_here(&self) -> impl Iterator<Item = &Chain> {
        let crossings = || self.walls.iter().flat_map(|wall| &wall.crossings);
        let is_behind = move |n: usize| {
            crossings().any(|of| of.ports.is_empty() && of.way.inwards().is_some_and(|(own, _)| own == n))
        };
        self.chains.iter().enumerate().filter(move |(n, _)| !is_behind(*n)).map(|(_, chain)| chain)
    }

    /// The folder from which relative paths in the file count.
    pub fn folder(&self) -> &Path {
        match self.file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    /// The part of the graph that the chains of these numbers can reach.
    pub fn worker(&self, chains: &[usize]) -> WorkerPlan {
        let mut plan = WorkerPlan::default();
        let mut hop_of = vec![None::<u16>; self.hops.len()];
        let mut node_of = vec![None::<u16>; self.nfs.len()];
        let mut todo: Vec<u16> = vec![];
        let mut number = |t: Target, todo: &mut Vec<u16>| match t {
            Target::Hop(Hop(h)) => Target::Hop(Hop(*hop_of[h as usize].get_or_insert_with(|| {
                todo.push(h);
                todo.len() as u16 - 1
            }))),
            other => other,
        };
        plan.entries = chains.iter().map(|&c| number(self.chains[c].entry, &mut todo)).collect();
        let mut at = 0;
        while at < todo.len() {
            let hop = self.hops[todo[at] as usize];
            let node = match node_of[hop.node as usize] {
                Some(node) => node,
                None => {
                    let edges = self.edges[hop.node as usize].iter().map(|&t| number(t, &mut todo)).collect();
                    let nf = hop.node as usize;
                    plan.nfs.push(nf);
                    plan.blueprint.nodes.push(NodePlan { name: self.nfs[nf].name.clone(), edges });
                    *node_of[nf].insert(plan.nfs.len() as u16 - 1)
                }
            };
            let next = number(hop.next, &mut todo);
            plan.blueprint.hops.push(HopPlan { node, next, ..hop });
            at += 1;
        }
        plan
    }

    /// A fault for every CPU that the file names and `allowed` lacks.
    pub fn absent_cpus(&self, allowed: &[usize]) -> Vec<Diagnostic> {
        let all = self.chains.iter().flat_map(|c| &c.absent).chain(self.walls.iter().flat_map(|w| &w.absent));
        let absent = all.filter(|(cpu, _)| !allowed.contains(cpu));
        let list = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        absent.map(|(_, d)| d.clone().remedy(format!("use some of: {list}"))).collect()
    }

    /// Puts a fault that building an NF found in its place in the file.
    pub fn place(&self, nf: usize, mut d: Diagnostic) -> Diagnostic {
        let nf = &self.nfs[nf];
        let place = d.key.and_then(|key| nf.places.iter().find(|(k, _)| k == key)).or(nf.places.first());
        d.problem = format!("nf {:?} ({}): {}", nf.name, nf.kind.name, d.problem);
        match place {
            Some((_, span)) => crate::Source { text: &self.text, file: &self.file }.at(span.clone(), d),
            None => Diagnostic { file: Some(self.file.clone()), ..d },
        }
    }
}
