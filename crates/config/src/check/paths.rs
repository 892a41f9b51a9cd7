//! Paths and edges.

use super::{Checker, Faults};
use crate::Device;
use crate::file::{self, File, OnPanic};
use crate::locate::nearest;
use crate::plan::{Chain, ChainFile, Class, Link, NfUse, Port, Start};
use diagnostics::Diagnostic;
use graph::{Blueprint, Hop, HopPlan, NodePlan, Spread, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Visits to NFs that a file may have in all its paths and edges.
const MOST_HOPS: usize = 4096;

/// Ways that one packet and its copies may take through a chain.
const MOST_WAYS: u64 = 1024;

/// Turns paths and edges into hops.
pub(super) struct Builder<'a> {
    pub(super) checker: Checker<'a>,
    pub(super) ports: Vec<Port>,
    pub(super) nfs: Vec<NfUse>,
    hops: Vec<HopPlan>,
    /// For each NF, where its outputs lead.
    edges: Vec<Vec<Target>>,
    /// NF and input: the hops that stand in paths.
    standing: BTreeMap<(u16, u8), Vec<u16>>,
    /// NFs with which paths end, and their hops.
    ends: Vec<(u16, u16)>,
    used: BTreeSet<String>,
    chain_names: BTreeSet<String>,
    /// Outputs with which chains begin: all that the file names, and those that are there.
    begins: BTreeSet<String>,
    links: Vec<Link>,
    /// NF and output of each link, and where it stands.
    sources: Vec<(u16, u8, Range<usize>)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(checker: Checker<'a>, ports: Vec<Port>, nfs: Vec<NfUse>) -> Self {
        Builder {
            checker,
            ports,
            edges: nfs.iter().map(|nf| vec![Target::Nowhere; nf.outputs.len().max(1)]).collect(),
            nfs,
            hops: vec![],
            standing: BTreeMap::new(),
            ends: vec![],
            used: BTreeSet::new(),
            chain_names: BTreeSet::new(),
            begins: BTreeSet::new(),
            links: vec![],
            sources: vec![],
        }
    }

    pub(super) fn build(mut self, file: &File) -> Result<ChainFile, Faults> {
        let firsts = file.chain.iter().filter_map(|c| c.get_ref().path.get_ref().first());
        self.begins = firsts.map(|first| first.get_ref().clone()).filter(|first| first.contains('.')).collect();
        let chains: Vec<Chain> = file.chain.iter().enumerate().filter_map(|(n, c)| self.chain(n, c)).collect();
        self.edges(file);
        self.spread(file, &chains);
        self.traffic(file);
        self.unused(file);
        self.files(file);
        let walls = self.walls(file);
        let Builder { mut checker, ports, nfs, hops, edges, links, .. } = self;
        if checker.faults.is_empty() {
            // a link leads to where its chain begins
            let through = |target: &Target| match *target {
                Target::Port(p) if usize::from(p) >= ports.len() => {
                    links.get(usize::from(p) - ports.len()).map_or(*target, |link| chains[link.chain].entry)
                }
                other => other,
            };
            let nodes = nfs.iter().zip(&edges);
            let nodes = nodes
                .map(|(nf, e)| NodePlan { name: nf.name.clone(), edges: e.iter().map(through).collect() })
                .collect();
            let hops = hops.iter().map(|hop| HopPlan { next: through(&hop.next), ..*hop }).collect();
            let blueprint = Blueprint { nodes, hops };
            if let Some(round) = blueprint.find_loop() {
                let names: Vec<_> = round.iter().map(|&n| nfs[n as usize].name.as_str()).collect();
                let edge = file.edge.first().map(|e| e.from.span());
                let link = || links.first().and_then(|link| file.chain.get(link.chain)).map(Spanned::span);
                let span = edge.or_else(link).unwrap_or(0..0);
                let remedy = "lead one of these outputs to a port; a ring port breaks a loop on purpose";
                checker.fault(span, &names.join(" -> "), "packets could go round here for ever", remedy);
            } else if let Some((n, chain)) =
                chains.iter().enumerate().find(|(_, c)| blueprint.ways(c.entry) > MOST_WAYS)
            {
                let problem =
                    format!("one packet could leave this chain more than {MOST_WAYS} times, copied again and again");
                let span = file.chain.get(n).map_or(0..0, Spanned::span);
                checker.fault(span, &chain.name, problem, "join the outputs of fewer tees to further tees");
            }
        }
        let Checker { mut faults, warnings, .. } = checker;
        if faults.is_empty() {
            let traffic = file.traffic.as_ref().map(|t| t.get_ref().clone()).unwrap_or_default();
            let (file, text) = Default::default();
            return Ok(ChainFile { file, text, ports, nfs, chains, warnings, traffic, links, walls, hops, edges });
        }
        faults.sort_by_key(|d| (d.line, d.column));
        Err(faults)
    }

    fn port(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|p| p.name == name)
    }

    fn unknown(&mut self, element: &Spanned<String>, what: &str) {
        if self.checker.enough() {
            return;
        }
        // an NF or port whose own table is faulty has been reported already
        if !self.checker.faults.is_empty()
            && self.declared(element.get_ref().split([':', '.']).next().unwrap_or_default())
        {
            return;
        }
        let names: Vec<_> =
            self.ports.iter().map(|p| p.name.as_str()).chain(self.nfs.iter().map(|n| n.name.as_str())).collect();
        let kinds: Vec<_> = self.checker.registry.iter().map(|k| k.name).collect();
        let wrong = element.get_ref().clone();
        let named = wrong.split([':', '.']).next().unwrap_or_default();
        let remedy = match nearest(named, names.iter().copied().chain(kinds.iter().copied())) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("declare it as [port.{named}] or [nf.{named}], or use one of {}", names.join(", ")),
        };
        self.checker.fault(element.span(), &wrong, format!("is not {what}"), remedy);
    }

    fn declared(&self, name: &str) -> bool {
        let text = self.checker.source.text;
        text.contains(&format!("[nf.{name}]")) || text.contains(&format!("[port.{name}]"))
    }

    /// `nf` or `nf:input`, in a path from the port `from`.
    fn input(&mut self, element: &Spanned<String>, from: Option<&str>) -> Option<(u16, u8)> {
        let (name, input) =
            element.get_ref().split_once(':').map_or((element.get_ref().as_str(), None), |(n, i)| (n, Some(i)));
        let Some(nf) = self.nfs.iter().position(|nf| nf.name == name) else {
            self.unknown(element, "an NF");
            return None;
        };
        self.used.insert(name.to_owned());
        let nf_use = &self.nfs[nf];
        let wanted = match input {
            Some(input) => input,
            None if nf_use.has_interfaces() => from.unwrap_or_default(),
            None => return Some((nf as u16, 0)),
        };
        if let Some(at) = nf_use.inputs.iter().position(|i| *i == wanted) {
            return Some((nf as u16, at as u8));
        }
        let known = nf_use.inputs.join(", ");
        let problem = match input {
            Some(input) => format!("{} has no input {input:?}", nf_use.kind.name),
            None => format!("{} has no interface that is called like the path's port", nf_use.kind.name),
        };
        let remedy = format!("write {name}:INPUT; its inputs are {known}");
        self.checker.fault(element.span(), element.get_ref(), problem, remedy);
        None
    }

    fn hop(&mut self, span: Range<usize>, plan: HopPlan) -> Target {
        if self.hops.len() == MOST_HOPS {
            self.checker.fault(
                span,
                "path",
                format!("there are more than {MOST_HOPS} visits to NFs"),
                "split the file",
            );
        }
        if self.hops.len() >= MOST_HOPS {
            return Target::Nowhere;
        }
        self.hops.push(plan);
        Target::Hop(Hop(self.hops.len() as u16 - 1))
    }

    fn chain(&mut self, n: usize, chain: &Spanned<file::Chain>) -> Option<Chain> {
        let file::Chain { name, path, cores, on_panic, shuffle, .. } = chain.get_ref();
        let open = *on_panic == OnPanic::Open;
        let span = path.span();
        let [first, middle @ .., last] = path.get_ref().as_slice() else {
            self.checker.fault(
                span,
                "path",
                "a path needs a port to begin with and somewhere to end",
                "write path = [\"in\", \"NF\", \"out\"]",
            );
            return None;
        };
        let port = self.port(first.get_ref());
        let mut from = port.map(Start::Port);
        match port {
            None if first.get_ref().contains('.') => from = self.link(n, first),
            None if self.nfs.iter().any(|nf| nf.name == *first.get_ref()) => {
                let first_port = self.ports.first().map_or("in", |p| &p.name).to_owned();
                let nf = first.get_ref();
                self.checker.fault(
                    first.span(),
                    nf,
                    "a path begins with a port, and this is an NF",
                    format!(
                        "begin it with a port such as {first_port:?}, or with an output of the NF such as \"{nf}.out\""
                    ),
                );
            }
            None => self.unknown(first, "a port"),
            Some(p) if self.ports[p].received_from => {
                self.checker.fault(
                    first.span(),
                    first.get_ref(),
                    "another path begins with this port already: its packets cannot go both ways",
                    "join the paths and part them by an NF with two outputs, or copy by a tee",
                );
            }
            Some(p) => self.ports[p].received_from = true,
        }
        if let Some(p) = port {
            self.used.insert(self.ports[p].name.clone());
        }
        if let (Some(Start::Port(_)), Some(shuffle)) = (from, shuffle) {
            let problem = "this chain begins with a port, which spreads its packets as its NFs ask";
            self.checker.fault(
                shuffle.span(),
                "shuffle",
                problem,
                "remove it, or begin the path with an output NF.OUTPUT",
            );
        }
        let mut next = match self.port(last.get_ref()) {
            Some(p) => {
                self.ports[p].sent_to = true;
                self.used.insert(last.get_ref().clone());
                Target::Port(p as u16)
            }
            None => {
                let (nf, input) = self.input(last, Some(first.get_ref()))?;
                let nf_use = &self.nfs[nf as usize];
                let goes_on =
                    nf_use.outputs.first().is_some_and(|out| self.begins.contains(&format!("{}.{out}", nf_use.name)));
                if !nf_use.outputs.is_empty() && !nf_use.has_interfaces() && !goes_on {
                    let (kind, remedy) = (
                        nf_use.kind.name,
                        "end it with a port, with an NF that has no output, such as drop, or begin another path with its output",
                    );
                    self.checker.fault(
                        last.span(),
                        last.get_ref(),
                        format!("the path ends here, but {kind} lets packets through"),
                        remedy,
                    );
                }
                let hop = self.hop(last.span(), HopPlan { node: nf, input, next: Target::Nowhere, open });
                if let Target::Hop(Hop(h)) = hop {
                    self.ends.push((nf, h));
                }
                hop
            }
        };
        for element in middle.iter().rev() {
            if self.port(element.get_ref()).is_some() {
                self.checker.fault(
                    element.span(),
                    element.get_ref(),
                    "is a port in the middle of a path",
                    "end the path here and begin another with this port",
                );
                continue;
            }
            let Some((nf, input)) = self.input(element, Some(first.get_ref())) else { continue };
            if self.nfs[nf as usize].outputs.is_empty() {
                let kind = self.nfs[nf as usize].kind.name;
                self.checker.fault(
                    element.span(),
                    element.get_ref(),
                    format!("nothing comes out of {kind}, so the path ends here"),
                    "end the path with it",
                );
            }
            next = self.hop(element.span(), HopPlan { node: nf, input, next, open });
            if let Target::Hop(Hop(h)) = next {
                self.standing.entry((nf, input)).or_default().push(h);
            }
        }
        let mut seen = BTreeSet::new();
        for core in cores {
            if *core.get_ref() >= 4096 || !seen.insert(*core.get_ref()) {
                let problem = if *core.get_ref() >= 4096 { "is not a CPU" } else { "stands here twice" };
                self.checker.fault(core.span(), &core.get_ref().to_string(), problem, "list each CPU once");
            }
        }
        if let Some(name) = name {
            self.checker.name(name.span(), name.get_ref());
            if !self.chain_names.insert(name.get_ref().clone()) {
                self.checker.fault(
                    name.span(),
                    name.get_ref(),
                    "another chain has this name",
                    "give it another, or none",
                );
            }
        }
        let absent = self.checker.absent(cores);
        Some(Chain {
            name: name.as_ref().map_or_else(|| format!("chain{}", n + 1), |n| n.get_ref().clone()),
            from: from?,
            shuffle: shuffle.as_ref().map(|s| *s.get_ref()).unwrap_or_default(),
            class: self.class(chain.get_ref()),
            entry: next,
            path: path.get_ref().iter().map(|p| p.get_ref().clone()).collect(),
            cores: seen.into_iter().collect(),
            absent,
        })
    }

    fn class(&mut self, chain: &file::Chain) -> Class {
        let mut class = Class { priority: chain.priority, ..Class::PLAIN };
        if let Some(share) = &chain.share {
            class.share = *share.get_ref();
            if !(1..=1000).contains(&class.share) {
                let value = class.share.to_string();
                self.checker.fault(share.span(), &value, "is no share", "write 1 to 1000");
            }
        }
        if let Some(rate) = &chain.rate {
            class.rate = rate.get_ref().parse().ok();
            if class.rate.is_none() {
                let remedy = "write packets or bits in a second, such as \"500 kpps\", \"1.5 Mpps\" or \"2 Gbit\"";
                self.checker.fault(rate.span(), rate.get_ref(), "is no rate", remedy);
            }
        }
        class
    }

    /// The output `NF.OUTPUT` with which chain `n` begins.
    fn link(&mut self, n: usize, first: &Spanned<String>) -> Option<Start> {
        let (name, output) = first.get_ref().split_once('.')?;
        let Some(nf) = self.nfs.iter().position(|nf| nf.name == name) else {
            self.unknown(first, "an NF's output");
            return None;
        };
        let nf_use = &self.nfs[nf];
        let Some(at) = nf_use.outputs.iter().position(|o| *o == output) else {
            let (known, kind) = (nf_use.outputs.join(", "), nf_use.kind.name);
            let problem = format!("{kind} has no output {output:?}");
            self.checker.fault(first.span(), first.get_ref(), problem, format!("its outputs are: {known}"));
            return None;
        };
        self.links.push(Link { name: first.get_ref().clone(), chain: n });
        self.sources.push((nf as u16, at as u8, first.span()));
        Some(Start::Link(self.links.len() - 1))
    }

    fn edges(&mut self, file: &File) {
        // where the first output leads of NFs that no path holds
        let mut onward: BTreeMap<u16, Target> = BTreeMap::new();
        let mut entered: Vec<(&Spanned<String>, u16, u16)> = vec![];
        let mut set = BTreeSet::new();
        for (n, (nf, at, span)) in core::mem::take(&mut self.sources).into_iter().enumerate() {
            let (nf, at, name) = (usize::from(nf), usize::from(at), self.links[n].name.clone());
            let ends_here = |&(end, _): &(u16, u16)| usize::from(end) == nf;
            if !set.insert((nf, at)) {
                self.checker.fault(span, &name, "another path begins with this output already", "a tee copies packets");
            } else if at == 0 && self.standing.keys().any(|(n, _)| usize::from(*n) == nf) {
                let remedy = "end that path with the NF, or give this one an NF of its own";
                self.checker.fault(span, &name, "this output goes on along a path", remedy);
            } else if at == 0 && !self.ends.iter().any(ends_here) {
                self.checker.fault(span, &name, "no path ends with this NF", "end one with it");
            } else {
                let target = Target::Port((self.ports.len() + n) as u16);
                if at == 0 {
                    onward.insert(nf as u16, target);
                }
                self.edges[nf][at] = target;
            }
        }
        for edge in &file.edge {
            let (name, output) = edge.from.get_ref().split_once('.').unwrap_or((edge.from.get_ref(), "out"));
            let Some(nf) = self.nfs.iter().position(|nf| nf.name == name) else {
                self.unknown(&edge.from, "an NF's output");
                continue;
            };
            let nf_use = &self.nfs[nf];
            let Some(at) = nf_use.outputs.iter().position(|o| *o == output) else {
                let (known, kind) = (nf_use.outputs.join(", "), nf_use.kind.name);
                self.checker.fault(
                    edge.from.span(),
                    edge.from.get_ref(),
                    format!("{kind} has no output {output:?}"),
                    format!("its outputs are: {known}"),
                );
                continue;
            };
            if !set.insert((nf, at)) {
                self.checker.fault(
                    edge.from.span(),
                    edge.from.get_ref(),
                    "an edge leads from this output already",
                    "remove one; a tee copies packets",
                );
                continue;
            }
            // what comes by an edge goes on by one, though the NF may stand in a path by another input
            if at == 0 && self.standing.keys().any(|(n, _)| *n as usize == nf) && !self.entered_apart(file, nf) {
                self.checker.fault(
                    edge.from.span(),
                    edge.from.get_ref(),
                    "this output goes on along the path",
                    "remove the edge, or the NF from the path",
                );
                continue;
            }
            let target = if let Some(p) = self.port(edge.to.get_ref()) {
                self.ports[p].sent_to = true;
                self.used.insert(edge.to.get_ref().clone());
                Target::Port(p as u16)
            } else {
                let Some((to, input)) = self.input(&edge.to, None) else { continue };
                match self.standing.get(&(to, input)).map(Vec::as_slice) {
                    Some([hop]) => Target::Hop(Hop(*hop)),
                    Some([_, _, ..]) => {
                        let problem = "this NF stands in several paths: which one would packets go on along?";
                        self.checker.fault(
                            edge.to.span(),
                            edge.to.get_ref(),
                            problem,
                            "give the edge an NF of its own",
                        );
                        continue;
                    }
                    _ => {
                        let hop =
                            self.hop(edge.to.span(), HopPlan { node: to, input, next: Target::Nowhere, open: false });
                        if let Target::Hop(Hop(h)) = hop {
                            entered.push((&edge.to, to, h));
                        }
                        hop
                    }
                }
            };
            if at == 0 {
                onward.insert(nf as u16, target);
            }
            self.edges[nf][at] = target;
        }
        // the first output of an NF with interfaces may lead nowhere
        for &(nf, hop) in &self.ends {
            self.hops[hop as usize].next = onward.get(&nf).copied().unwrap_or(Target::Nowhere);
        }
        for (element, nf, hop) in entered {
            match onward.get(&nf) {
                Some(target) => self.hops[hop as usize].next = *target,
                None if self.nfs[nf as usize].outputs.is_empty() => {}
                None => {
                    let (name, first) = (&self.nfs[nf as usize].name, &self.nfs[nf as usize].outputs[0]);
                    let remedy = format!("add [[edge]] with from = \"{name}.{first}\"");
                    self.checker.fault(
                        element.span(),
                        element.get_ref(),
                        "packets that come here have nowhere to go on to",
                        remedy,
                    );
                }
            }
        }
        for nf in 0..self.nfs.len() {
            for at in 1..self.nfs[nf].outputs.len() {
                let output = self.nfs[nf].outputs[at].clone();
                if self.edges[nf][at] != Target::Nowhere {
                    continue;
                }
                if let Some(p) = self.port(&output) {
                    self.ports[p].sent_to = true;
                    self.used.insert(output);
                    self.edges[nf][at] = Target::Port(p as u16);
                } else if self.used.contains(&self.nfs[nf].name) {
                    let name = format!("{}.{output}", self.nfs[nf].name);
                    let d = Diagnostic::new("this output leads nowhere: its packets are dropped as no_edge")
                        .value(&name)
                        .remedy(format!("add [[edge]] with from = {name:?}"));
                    let span = self.nfs[nf].places.first().map_or(0..0, |(_, s)| s.clone());
                    let d = self.checker.source.at(span, d);
                    self.checker.warnings.push(d);
                }
            }
        }
    }

    /// Whether an edge leads to an NF by an input by which no path does.
    fn entered_apart(&self, file: &File, nf: usize) -> bool {
        let NfUse { name, inputs, .. } = &self.nfs[nf];
        file.edge.iter().any(|edge| {
            let (to, input) =
                edge.to.get_ref().split_once(':').map_or((edge.to.get_ref().as_str(), None), |(n, i)| (n, Some(i)));
            let input = input.map_or(Some(0), |input| inputs.iter().position(|i| i == input));
            to == name && input.is_some_and(|input| !self.standing.contains_key(&(nf as u16, input as u8)))
        })
    }

    /// NFs that packets of a chain come to, by its path and by edges, up to links to other chains.
    fn reached(&self, chain: &Chain) -> BTreeSet<usize> {
        let (mut seen, mut next) = (vec![false; self.hops.len()], vec![chain.entry]);
        let mut all = BTreeSet::new();
        while let Some(target) = next.pop() {
            let Target::Hop(Hop(hop)) = target else { continue };
            if !std::mem::replace(&mut seen[usize::from(hop)], true) {
                let plan = &self.hops[usize::from(hop)];
                all.insert(usize::from(plan.node));
                next.push(plan.next);
                next.extend(self.edges[usize::from(plan.node)].iter().skip(1));
            }
        }
        all
    }

    /// An NF that keeps state per flow must see all of a flow: not in chains on different cores.
    fn spread(&mut self, file: &File, chains: &[Chain]) {
        let reached: Vec<_> = chains.iter().map(|chain| self.reached(chain)).collect();
        for (number, nf) in self.nfs.iter().enumerate().filter(|(_, nf)| nf.factory.spread() != Spread::Any) {
            let mut cores = chains.iter().zip(&reached).filter(|(_, nfs)| nfs.contains(&number)).map(|(c, _)| &c.cores);
            if let Some(first) = cores.next()
                && cores.any(|c| c != first)
            {
                let span = file.chain.first().map_or(0..0, Spanned::span);
                let d = Diagnostic::new("keeps state per flow, but stands in chains on different cores")
                    .value(&nf.name)
                    .remedy("give these chains the same cores");
                let d = self.checker.source.at(span, d);
                self.checker.faults.push(d);
            }
        }
        for (n, (chain, nfs)) in chains.iter().zip(&reached).enumerate().filter(|(_, (c, _))| c.cores.len() > 1) {
            let own: Vec<_> =
                nfs.iter().map(|&nf| &self.nfs[nf]).filter(|nf| nf.factory.spread() == Spread::Custom).collect();
            let (value, problem, remedy) = match (&own[..], chain.from) {
                ([_, second, ..], _) => (
                    &second.name,
                    "is the second NF of this chain that has to spread packets over cores itself",
                    "give each a chain of one core",
                ),
                ([only], Start::Link(_)) => (
                    &only.name,
                    "spreads packets over cores itself, but this chain gets them from another",
                    "begin the chain with a port, or give it one core",
                ),
                _ => continue,
            };
            let span = file.chain.get(n).map_or(0..0, Spanned::span);
            let d = self.checker.source.at(span, Diagnostic::new(problem).value(value).remedy(remedy));
            self.checker.faults.push(d);
        }
    }

    /// A benchmark sends into a port from which a chain receives.
    fn traffic(&mut self, file: &File) {
        let Some(traffic) = &file.traffic else { return };
        let Some(into) = &traffic.get_ref().into else { return };
        if !self.port(into).is_some_and(|p| self.ports[p].received_from) {
            let names: Vec<_> = self.ports.iter().filter(|p| p.received_from).map(|p| p.name.as_str()).collect();
            let remedy = format!("name one of: {}", names.join(", "));
            self.checker.fault(traffic.span(), into, "is no port with which a path begins", remedy);
        }
    }

    fn unused(&mut self, file: &File) {
        for name in file.port.keys() {
            if self.port(name.get_ref()).is_some() && !self.used.contains(name.get_ref()) {
                self.checker.fault(
                    name.span(),
                    name.get_ref(),
                    "no path and no edge uses this port",
                    "put it in a path, or remove it",
                );
            }
        }
        for nf in &self.nfs {
            if !self.used.contains(&nf.name) {
                let span = nf.places.first().map_or(0..0, |(_, s)| s.clone());
                let problem = "no path and no edge leads to this NF";
                self.checker.fault(span, &nf.name, problem, "put it in a path, or remove it");
            }
        }
    }

    /// Captures that are read have to be there, and cannot be written as well.
    fn files(&mut self, file: &File) {
        let folder = self.checker.source.file.parent().unwrap_or(Path::new("")).to_owned();
        for port in self.ports.clone() {
            let Device::Pcap(name) = &port.device else { continue };
            let Some((_, written)) = file.port.iter().find(|(n, _)| *n.get_ref() == port.name) else { continue };
            let span = written.device.span();
            let path = folder.join(name);
            if port.received_from && port.sent_to {
                let remedy =
                    format!("declare a second port for what is written, such as device = \"pcap:{}\"", "out.pcap");
                self.checker.fault(
                    span,
                    written.device.get_ref(),
                    "this capture would be read and written at once",
                    remedy,
                );
            } else if port.received_from && !path.is_file() {
                let seen = path.display().to_string();
                self.checker.fault(
                    span,
                    written.device.get_ref(),
                    format!("there is no file {seen:?}"),
                    "name a capture; relative paths count from the chain file's folder",
                );
            } else if port.sent_to && path.parent().is_some_and(|p| p != Path::new("") && !p.is_dir()) {
                let seen = path.parent().unwrap_or(Path::new("")).display().to_string();
                self.checker.fault(
                    span,
                    written.device.get_ref(),
                    format!("there is no folder {seen:?} to write to"),
                    "make it first",
                );
            }
            if port.sent_to
                && let Some(set) =
                    written.repeat.as_ref().map(Spanned::span).or(written.timed.as_ref().map(Spanned::span))
            {
                self.checker.fault(set, &port.name, "repeat and timed are for captures that are read", "remove it");
            }
        }
    }
}
