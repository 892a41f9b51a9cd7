//! Distribution of packets over cores: combines the requirements of all NFs that packets of common origin reach.

use super::paths::Builder;
use crate::file::{File, Shuffle};
use crate::plan::{Chain, NfConfig, Spreading, Start};
use crate::sandbox::Sandbox;
use graph::{Hop, Spread, Steering, Target};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

/// Packets of a chain that are spread over its cores at one place: where they are received from a port or link, or
/// where they return from a sandbox.
#[derive(Default)]
struct Source {
    chain: usize,
    /// True for the start of the chain.
    is_start: bool,
    /// NFs with a spreading requirement that the packets reach, and by which inputs.
    nfs: BTreeMap<usize, BTreeSet<u8>>,
    /// NFs with a spreading requirement behind another that rewrites the fields by which packets are spread.
    rewritten: BTreeMap<usize, usize>,
}

/// A combination of requirements that no distribution meets.
struct Conflict {
    chain: usize,
    /// The NF whose requirement is not met.
    nf: usize,
    problem: String,
    remedy: String,
}

impl Builder<'_> {
    /// Combines the requirements of the NFs of all chains; reports those that cannot be met.
    pub(super) fn spread(&mut self, file: &File, chains: &mut [Chain], sandboxes: &[Sandbox]) {
        if self.checker.incomplete {
            return;
        }
        let names: BTreeSet<&str> = sandboxes.iter().flat_map(|s| &s.nfs).map(String::as_str).collect();
        let sandboxed: BTreeSet<usize> =
            (0..self.nfs.len()).filter(|&nf| names.contains(&*self.nfs[nf].name)).collect();
        let sources: Vec<Source> = (0..chains.len()).flat_map(|n| self.sources(n, &chains[n], &sandboxed)).collect();
        let mut conflicts = self.split_state(chains, &sources, sandboxes);
        for group in groups(sources.iter().filter(|source| chains[source.chain].cores.len() > 1)) {
            match self.combine(chains, &group) {
                Ok(combined) => {
                    for source in group.iter().filter(|source| source.is_start) {
                        let of_nf = |nf| source.nfs.get(&nf).and_then(BTreeSet::first).map(|input| (nf, *input));
                        let steered_by = combined.and_then(of_nf);
                        let (requirement, is_shared) = (self.strictest(&group), group.len() > 1);
                        chains[source.chain].spreading = Spreading { requirement, steered_by, is_shared };
                    }
                }
                Err(conflict) => conflicts.push(conflict),
            }
        }
        for Conflict { chain, nf, problem, remedy } in conflicts {
            let span = file.chain.get(chain).map_or(0..0, Spanned::span);
            let name = self.nfs[nf].name.clone();
            self.checker.error(span, &name, problem, remedy);
        }
    }

    /// Follows the packets of a chain by its path and by edges, up to links to other chains. NFs in sandboxes are
    /// spread there.
    fn sources(&self, number: usize, chain: &Chain, sandboxed: &BTreeSet<usize>) -> Vec<Source> {
        let mut all = vec![Source { chain: number, is_start: true, ..Source::default() }];
        // source of the packets, or none in a sandbox; the last NF that rewrote them
        let mut next: Vec<(Target, Option<usize>, Option<usize>)> = vec![(chain.entry, Some(0), None)];
        let (mut visited, mut returned) = (BTreeSet::new(), BTreeMap::new());
        while let Some((target, source, rewritten)) = next.pop() {
            let Target::Hop(Hop(hop)) = target else { continue };
            let plan = &self.hops[usize::from(hop)];
            let nf = usize::from(plan.node);
            let source = match source {
                _ if sandboxed.contains(&nf) => None,
                Some(source) => Some(source),
                None => Some(*returned.entry(hop).or_insert_with(|| {
                    all.push(Source { chain: number, ..Source::default() });
                    all.len() - 1
                })),
            };
            if !visited.insert((hop, source, rewritten.is_some())) {
                continue;
            }
            let mut behind = rewritten.filter(|_| source.is_some());
            if let Some(source) = source {
                if self.requirement(nf) != Spread::Any {
                    all[source].nfs.entry(nf).or_default().insert(plan.input);
                    if let Some(by) = behind.filter(|by| *by != nf) {
                        all[source].rewritten.insert(nf, by);
                    }
                }
                if self.nfs[nf].kind.rewrites {
                    behind = Some(nf);
                }
            }
            let targets = std::iter::once(plan.next).chain(self.edges[nf].iter().skip(1).copied());
            next.extend(targets.map(|target| (target, source, behind)));
        }
        all
    }

    fn requirement(&self, nf: usize) -> Spread {
        self.nfs[nf].factory.spread()
    }

    fn strictest(&self, sources: &[&Source]) -> Spread {
        sources.iter().flat_map(|source| source.nfs.keys()).map(|nf| self.requirement(*nf)).max().unwrap_or(Spread::Any)
    }

    /// Finds NFs with a requirement whose packets are processed by copies of different chains.
    fn split_state(&self, chains: &[Chain], sources: &[Source], sandboxes: &[Sandbox]) -> Vec<Conflict> {
        let mut conflicts = vec![];
        for nf in (0..self.nfs.len()).filter(|nf| self.requirement(*nf) != Spread::Any) {
            let needs = self.requirement(nf).description();
            let mut of_nf = sources.iter().filter(|source| source.nfs.contains_key(&nf)).map(|source| source.chain);
            if let Some(first) = of_nf.next()
                && let Some(chain) = of_nf.find(|other| chains[*other].cores != chains[first].cores)
            {
                conflicts.push(Conflict {
                    chain,
                    nf,
                    problem: format!(
                        "needs {needs}, but is in chains {:?} and {:?} on different cores",
                        chains[first].name, chains[chain].name
                    ),
                    remedy: "give these chains the same cores".to_owned(),
                });
            }
            for sandbox in sandboxes.iter().filter(|sandbox| sandbox.nfs.contains(&self.nfs[nf].name)) {
                let wide = sandbox.crossings.iter().find(|crossing| crossing.ports.len() > 1);
                let Some((chain, _)) = wide.and_then(|crossing| crossing.kind.inbound()) else { continue };
                if sandbox.cores.len() > 1 {
                    let problem =
                        format!("needs {needs}, but the queues of sandbox {:?} are on different cores", sandbox.name);
                    let remedy = format!("write one core in [sandbox.{}]", sandbox.name);
                    conflicts.push(Conflict { chain, nf, problem, remedy });
                }
            }
        }
        conflicts
    }

    /// Returns the NF whose steering function meets the requirements of all sources, or none if a hash does.
    fn combine(&self, chains: &[Chain], sources: &[&Source]) -> Result<Option<usize>, Conflict> {
        let name = |nf: usize| &self.nfs[nf].name;
        let needs = |nf: usize| self.requirement(nf).description();
        if let Some((source, nf, by)) = sources.iter().find_map(|source| {
            let (nf, by) = source.rewritten.first_key_value()?;
            Some((source, *nf, *by))
        }) {
            let problem = format!(
                "needs {}, but {:?} in front of it rewrites the addresses or ports by which packets are spread",
                needs(nf),
                name(by)
            );
            return Err(Conflict { chain: source.chain, nf, problem, remedy: self.split_remedy(by) });
        }
        let all = || sources.iter().flat_map(|source| source.nfs.keys().map(move |nf| (source.chain, *nf)));
        let mut custom = all().filter(|(_, nf)| self.requirement(*nf) == Spread::Custom);
        let Some((first_chain, steering)) = custom.next() else {
            return self.by_metadata(chains, sources).map(|()| None);
        };
        if let Some((chain, nf)) = custom.find(|(_, nf)| *nf != steering) {
            let problem = format!(
                "chooses the core by {}, but {:?} chooses it by {}, and one core is chosen for both",
                self.nfs[nf].kind.steering.key,
                name(steering),
                self.nfs[steering].kind.steering.key
            );
            return Err(Conflict { chain, nf, problem, remedy: self.split_remedy(steering) });
        }
        let Steering { key, keeps } = self.nfs[steering].kind.steering;
        for source in sources {
            let chain = source.chain;
            let shared = || all().find(|(other, nf)| *other != chain && source.nfs.contains_key(nf));
            let Some(inputs) = source.nfs.get(&steering) else {
                let (_, nf) = shared().or(all().next()).unwrap_or((chain, steering));
                let problem = format!(
                    "needs {}, but of its chains {:?} is steered by {:?} (by {key}), which is not in {:?}",
                    needs(nf),
                    chains[first_chain].name,
                    name(steering),
                    chains[chain].name
                );
                return Err(Conflict { chain, nf, problem, remedy: self.split_remedy(steering) });
            };
            if inputs.len() > 1 || self.is_by_metadata(chains, source) {
                let problem = if inputs.len() > 1 {
                    format!(
                        "chooses the core by {key}, and packets of {:?} reach several of its inputs",
                        chains[chain].name
                    )
                } else {
                    format!("chooses the core by {key}, but this chain has shuffle = \"metadata\"")
                };
                let remedy = "give the chain one core, or remove shuffle".to_owned();
                return Err(Conflict { chain, nf: steering, problem, remedy });
            }
        }
        let unmet =
            all().find(|(_, nf)| *nf != steering && !self.nfs[steering].kind.steering.meets(self.requirement(*nf)));
        match unmet {
            Some((chain, nf)) => Err(Conflict {
                chain,
                nf,
                problem: format!(
                    "needs {}, but {:?} steers the packets by {key}, which guarantees {}",
                    needs(nf),
                    name(steering),
                    keeps.description()
                ),
                remedy: self.split_remedy(steering),
            }),
            None => Ok(Some(steering)),
        }
    }

    /// Checks requirements on packets for which an NF in front of the chain selects the core.
    fn by_metadata(&self, chains: &[Chain], sources: &[&Source]) -> Result<(), Conflict> {
        let Some(source) = sources.iter().find(|source| self.is_by_metadata(chains, source)) else { return Ok(()) };
        let chain = source.chain;
        let Some(by) = self.link_nf(&chains[chain]) else { return Ok(()) };
        let Steering { key, keeps } = by.kind.steering;
        let is_met = |nf: usize| by.kind.steering.meets(self.requirement(nf)) && sources.len() == 1;
        match source.nfs.keys().find(|nf| !is_met(**nf)) {
            Some(&nf) => Err(Conflict {
                chain,
                nf,
                problem: format!(
                    "needs {}, but {:?} selects the core by {key} (shuffle = \"metadata\"), which guarantees {}{}",
                    self.requirement(nf).description(),
                    by.name,
                    keeps.description(),
                    if sources.len() > 1 { " for this chain only" } else { "" }
                ),
                remedy: "remove shuffle, or give the chain one core".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn is_by_metadata(&self, chains: &[Chain], source: &Source) -> bool {
        let chain = &chains[source.chain];
        source.is_start && matches!(chain.from, Start::Link(_)) && chain.shuffle == Shuffle::Metadata
    }

    /// Returns the NF whose output a chain begins with.
    fn link_nf(&self, chain: &Chain) -> Option<&NfConfig> {
        let Start::Link(link) = chain.from else { return None };
        let name = self.links.get(link)?.name.split('.').next()?;
        self.nfs.iter().find(|nf| nf.name == name)
    }

    /// Returns the remedy for NFs that need different distributions, one of which is `nf`.
    fn split_remedy(&self, nf: usize) -> String {
        let NfConfig { name, outputs, .. } = &self.nfs[nf];
        let one = "give the chain one core".to_owned();
        match outputs.first() {
            Some(output) => format!(
                "{one}, or end the path with {name:?} and begin another with \"{name}.{output}\", which is spread anew"
            ),
            None => one,
        }
    }
}

/// Returns the sources in groups that have NFs with a requirement in common, directly or by others of the group.
fn groups<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<Vec<&'a Source>> {
    let mut groups: Vec<Vec<&Source>> = vec![];
    for source in sources {
        let is_related = |group: &&mut Vec<&Source>| {
            group.iter().any(|other| other.nfs.keys().any(|nf| source.nfs.contains_key(nf)))
        };
        let mut joined = vec![source];
        for group in groups.iter_mut().filter(is_related) {
            joined.append(group);
        }
        groups.retain(|group| !group.is_empty());
        joined.sort_by_key(|source| (source.chain, !source.is_start));
        groups.push(joined);
    }
    groups
}
