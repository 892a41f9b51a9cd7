//! Builds hops from paths and edges.

use super::checker::{Checker, Errors, Part};
use crate::device::Device;
use crate::file::{self, File, OnPanic};
use crate::plan::{Chain, ChainFile, Edge, Link, NfConfig, Port, ServiceClass, Spreading, Start};
use crate::source::{MAX_ERRORS, nearest};
use diagnostics::Diagnostic;
use graph::{Blueprint, Hop, HopPlan, InvalidRate, NodePlan, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Maximum number of hops of all paths and edges.
const MAX_HOPS: usize = 4096;

/// Maximum number of paths of a packet and its copies through a chain.
const MAX_PATHS: u64 = 1024;

/// Builds hops from paths and edges.
pub(super) struct Builder<'a> {
    pub(super) checker: Checker<'a>,
    pub(super) ports: Vec<Port>,
    pub(super) nfs: Vec<NfConfig>,
    /// Indices of ports and NFs by name.
    port_index: BTreeMap<String, usize>,
    nf_index: BTreeMap<String, usize>,
    pub(super) hops: Vec<HopPlan>,
    /// Targets of the outputs of each NF.
    pub(super) edges: Vec<Vec<Target>>,
    /// Hops in the middle of paths, by NF and input.
    path_hops: BTreeMap<(u16, u8), Vec<u16>>,
    /// Last NFs of paths, and their hops.
    ends: Vec<(u16, u16)>,
    used: BTreeSet<String>,
    chain_names: BTreeSet<String>,
    /// Outputs with which paths begin, as the file names them.
    first_outputs: BTreeSet<String>,
    pub(super) links: Vec<Link>,
    /// NF, output and span of each link.
    link_sources: Vec<(u16, u8, Range<usize>)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(checker: Checker<'a>, ports: Vec<Port>, nfs: Vec<NfConfig>) -> Self {
        let index =
            |names: &mut dyn Iterator<Item = &String>| names.cloned().enumerate().map(|(n, name)| (name, n)).collect();
        Builder {
            port_index: index(&mut ports.iter().map(|port| &port.name)),
            nf_index: index(&mut nfs.iter().map(|nf| &nf.name)),
            checker,
            ports,
            edges: nfs.iter().map(|nf| vec![Target::Unconnected; nf.outputs.len().max(1)]).collect(),
            nfs,
            hops: vec![],
            path_hops: BTreeMap::new(),
            ends: vec![],
            used: BTreeSet::new(),
            chain_names: BTreeSet::new(),
            first_outputs: BTreeSet::new(),
            links: vec![],
            link_sources: vec![],
        }
    }

    pub(super) fn build(mut self, file: &File) -> Result<ChainFile, Errors> {
        let firsts = file.chain.iter().filter_map(|c| c.get_ref().path.get_ref().first());
        self.first_outputs = firsts.map(|first| first.get_ref().clone()).filter(|first| first.contains('.')).collect();
        let mut chains: Vec<Chain> = file.chain.iter().enumerate().filter_map(|(n, c)| self.chain(n, c)).collect();
        self.edges(file);
        self.representors();
        self.ports_of_dpdk(file);
        self.traffic(file);
        self.unused(file);
        self.files(file);
        let sandboxes = self.sandboxes(file);
        self.spread(file, &mut chains, &sandboxes);
        let clock = self.clock(file, &chains, &sandboxes);
        let Builder { mut checker, ports, nfs, hops, edges, links, .. } = self;
        if checker.errors.is_empty() {
            // a link leads to the entry of its chain
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
                let remedy = "lead one of these outputs to a port; a ring port may close a loop";
                checker.error(span, &names.join(" -> "), "packets could loop here forever", remedy);
            } else if let Some((n, chain)) =
                chains.iter().enumerate().find(|(_, c)| blueprint.count_paths(c.entry) > MAX_PATHS)
            {
                let problem = format!("one packet could leave this chain as more than {MAX_PATHS} copies");
                let span = file.chain.get(n).map_or(0..0, Spanned::span);
                checker.error(span, &chain.name, problem, "connect fewer tees in sequence");
            }
        }
        let (max_frame, idle) = (checker.max_frame(file), file.idle.unwrap_or_default());
        let Checker { mut errors, warnings, source, faulty, registry, .. } = checker;
        if !errors.is_empty() {
            // the file will not run, which would build these NFs and report their errors
            let sound = nfs.iter().filter(|nf| !faulty.contains(&nf.name));
            errors.extend(sound.filter_map(|nf| nf.build_checked(source).err()).take(MAX_ERRORS));
            errors.truncate(MAX_ERRORS);
        }
        if errors.is_empty() {
            let traffic = file.traffic.as_ref().map(|t| t.get_ref().clone()).unwrap_or_default();
            let edge = |edge: &file::Edge| Edge { from: edge.from.get_ref().clone(), to: edge.to.get_ref().clone() };
            let edge_names = file.edge.iter().map(edge).collect();
            let (file, text, host) = Default::default();
            return Ok(ChainFile {
                file,
                text,
                host,
                clock,
                copies: None,
                max_frame,
                idle,
                ports,
                nfs,
                chains,
                warnings,
                traffic,
                links,
                sandboxes,
                segments: registry.segments().to_vec(),
                hops,
                edges,
                edge_names,
            });
        }
        errors.sort_by_key(|d| (d.line, d.column));
        Err(errors)
    }

    fn port(&self, name: &str) -> Option<usize> {
        self.port_index.get(name).copied()
    }

    fn nf(&self, name: &str) -> Option<usize> {
        self.nf_index.get(name).copied()
    }

    fn unknown(&mut self, element: &Spanned<String>, what: &str) {
        if self.checker.is_full() {
            return;
        }
        self.checker.incomplete = true;
        // an error in the table of the NF or port was reported before
        if self.is_faulty(element.get_ref()) {
            return;
        }
        let names: Vec<_> =
            self.ports.iter().map(|p| p.name.as_str()).chain(self.nfs.iter().map(|n| n.name.as_str())).collect();
        let kinds: Vec<_> = self.checker.registry.iter().map(|k| k.name).collect();
        let wrong = element.get_ref().clone();
        let named = wrong.split([':', '.']).next().unwrap_or_default();
        let remedy = match nearest(named, names.iter().copied().chain(kinds.iter().copied())) {
            Some(near) => format!("did you mean {near:?}?"),
            None if names.is_empty() => format!("declare it as [port.{named}] or [nf.{named}]"),
            None => format!("declare it as [port.{named}] or [nf.{named}], or use one of {}", names.join(", ")),
        };
        self.checker.error(element.span(), &wrong, format!("is not {what}"), remedy);
    }

    /// Returns true if the table of the NF or port that is named has an error.
    fn is_faulty(&self, element: &str) -> bool {
        self.checker.faulty.contains(element.split([':', '.']).next().unwrap_or_default())
    }

    /// Records an error of a path or an edge, except one of an NF with errors in its table: its settings may define the
    /// inputs and outputs.
    fn path_error(&mut self, element: &Spanned<String>, problem: String, remedy: String) {
        self.checker.incomplete = true;
        if !self.is_faulty(element.get_ref()) {
            self.checker.error(element.span(), element.get_ref(), problem, remedy);
        }
    }

    /// Returns the NF and input of `nf` or `nf:input`, in a path from the port `from`.
    fn input(&mut self, element: &Spanned<String>, from: Option<&str>) -> Option<(u16, u8)> {
        let (name, input) =
            element.get_ref().split_once(':').map_or((element.get_ref().as_str(), None), |(n, i)| (n, Some(i)));
        let Some(nf) = self.nf(name) else {
            self.unknown(element, "an NF");
            return None;
        };
        self.used.insert(name.to_owned());
        let nf_config = &self.nfs[nf];
        let wanted = match input {
            Some(input) => input,
            None if nf_config.has_interfaces() => from.unwrap_or_default(),
            None => return Some((nf as u16, 0)),
        };
        if let Some(at) = nf_config.inputs.iter().position(|i| *i == wanted) {
            return Some((nf as u16, at as u8));
        }
        let known = nf_config.inputs.join(", ");
        let problem = match input {
            Some(input) => format!("{} has no input {input:?}", nf_config.kind.name),
            None => format!("{} has no interface with the name of the path's port", nf_config.kind.name),
        };
        let remedy = format!("write {name}:INPUT; its inputs are {known}");
        self.path_error(element, problem, remedy);
        None
    }

    fn hop(&mut self, span: Range<usize>, plan: HopPlan) -> Target {
        if self.hops.len() >= MAX_HOPS {
            self.checker.incomplete = true;
        }
        if self.hops.len() == MAX_HOPS {
            self.checker.error(
                span,
                "path",
                format!("the paths and edges have more than {MAX_HOPS} hops"),
                "split the file",
            );
        }
        if self.hops.len() >= MAX_HOPS {
            return Target::Unconnected;
        }
        self.hops.push(plan);
        Target::Hop(Hop(self.hops.len() as u16 - 1))
    }

    fn chain(&mut self, n: usize, chain: &Spanned<file::Chain>) -> Option<Chain> {
        let file::Chain { name, path, cores, on_panic, shuffle, .. } = chain.get_ref();
        let open = *on_panic == OnPanic::Open;
        let span = path.span();
        let [first, middle @ .., last] = path.get_ref().as_slice() else {
            let cut = self.checker.incomplete && path.get_ref().len() == 1;
            self.checker.incomplete = true;
            // an invalid element was left out
            if cut {
                return None;
            }
            self.checker.error(
                span,
                "path",
                "a path needs a first port and an end",
                "write path = [\"in\", \"NF\", \"out\"]",
            );
            return None;
        };
        let port = self.port(first.get_ref());
        let mut from = port.map(Start::Port);
        match port {
            None if first.get_ref().contains('.') => from = self.link(n, first),
            None if self.nf(first.get_ref()).is_some() => {
                let first_port = self.ports.first().map_or("in", |p| &p.name).to_owned();
                let nf = first.get_ref();
                self.checker.incomplete = true;
                self.checker.error(
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
                self.checker.error(
                    first.span(),
                    first.get_ref(),
                    "another path begins with this port",
                    "join the paths and split them by an NF with two outputs, or copy packets with a tee",
                );
            }
            Some(p) => self.ports[p].received_from = true,
        }
        if let Some(p) = port {
            self.used.insert(self.ports[p].name.clone());
        }
        if let (Some(Start::Port(_)), Some(shuffle)) = (from, shuffle) {
            let problem = "shuffle is for chains that begin with an output";
            self.checker.error(shuffle.span(), "shuffle", problem, "remove it, or begin the path with NF.OUTPUT");
        }
        let mut next = match self.port(last.get_ref()) {
            Some(p) => {
                self.ports[p].sent_to = true;
                self.used.insert(last.get_ref().clone());
                Target::Port(p as u16)
            }
            None => 'end: {
                let Some((nf, input)) = self.input(last, Some(first.get_ref())) else {
                    from = None;
                    break 'end Target::Unconnected;
                };
                let nf_config = &self.nfs[nf as usize];
                let continues = nf_config
                    .outputs
                    .first()
                    .is_some_and(|out| self.first_outputs.contains(&format!("{}.{out}", nf_config.name)));
                let complete = !self.checker.incomplete && !self.is_faulty(last.get_ref());
                if !nf_config.outputs.is_empty() && !nf_config.has_interfaces() && !continues && complete {
                    let (kind, remedy) = (
                        nf_config.kind.name,
                        "end it with a port or an NF without outputs, or begin another path with its output",
                    );
                    self.checker.error(
                        last.span(),
                        last.get_ref(),
                        format!("the path ends here, but {kind} forwards packets"),
                        remedy,
                    );
                }
                let hop =
                    self.hop(last.span(), HopPlan { node: nf, input, next: Target::Unconnected, fail_open: open });
                if let Target::Hop(Hop(h)) = hop {
                    self.ends.push((nf, h));
                }
                hop
            }
        };
        for element in middle.iter().rev() {
            if self.port(element.get_ref()).is_some() {
                self.checker.error(
                    element.span(),
                    element.get_ref(),
                    "is a port in the middle of a path",
                    "end the path here and begin another with this port",
                );
                continue;
            }
            let Some((nf, input)) = self.input(element, Some(first.get_ref())) else { continue };
            if self.nfs[nf as usize].outputs.is_empty() && !self.is_faulty(element.get_ref()) {
                let kind = self.nfs[nf as usize].kind.name;
                self.checker.error(
                    element.span(),
                    element.get_ref(),
                    format!("{kind} has no output, so the path ends here"),
                    "end the path with it",
                );
            }
            next = self.hop(element.span(), HopPlan { node: nf, input, next, fail_open: open });
            if let Target::Hop(Hop(h)) = next {
                self.path_hops.entry((nf, input)).or_default().push(h);
            }
        }
        let mut cpus = BTreeSet::new();
        for core in cores {
            if *core.get_ref() >= 4096 || !cpus.insert(*core.get_ref()) {
                let problem = if *core.get_ref() >= 4096 { "is not a CPU" } else { "duplicate CPU" };
                self.checker.error(core.span(), &core.get_ref().to_string(), problem, "list each CPU once");
            }
        }
        if let Some(name) = name {
            self.checker.check_name(name.span(), name.get_ref());
            if !self.chain_names.insert(name.get_ref().clone()) {
                self.checker.error(
                    name.span(),
                    name.get_ref(),
                    "another chain has this name",
                    "choose another name, or none",
                );
            }
        }
        let cpu_errors = self.checker.cpu_errors(cores);
        Some(Chain {
            name: name.as_ref().map_or_else(|| format!("chain{}", n + 1), |n| n.get_ref().clone()),
            from: from?,
            shuffle: shuffle.as_ref().map(|s| *s.get_ref()).unwrap_or_default(),
            class: self.class(chain.get_ref()),
            spreading: Spreading::default(),
            entry: next,
            path: path.get_ref().iter().map(|p| p.get_ref().clone()).collect(),
            cores: cpus.into_iter().collect(),
            on_panic: *on_panic,
            cpu_errors,
        })
    }

    fn class(&mut self, chain: &file::Chain) -> ServiceClass {
        let mut class = ServiceClass { priority: chain.priority, ..ServiceClass::DEFAULT };
        if let Some(share) = &chain.share {
            class.share = *share.get_ref();
            if !(1..=1000).contains(&class.share) {
                let value = class.share.to_string();
                self.checker.error(share.span(), &value, "is not a share", "write 1 to 1000");
            }
        }
        if let Some(rate) = &chain.rate {
            class.rate = rate.get_ref().parse().ok();
            if class.rate.is_none() {
                self.checker.error(rate.span(), rate.get_ref(), "is not a rate", InvalidRate::REMEDY);
            }
        }
        class
    }

    /// The output `NF.OUTPUT` with which chain `n` first_outputs.
    fn link(&mut self, n: usize, first: &Spanned<String>) -> Option<Start> {
        let (name, output) = first.get_ref().split_once('.')?;
        let Some(nf) = self.nf(name) else {
            self.unknown(first, "an NF's output");
            return None;
        };
        let nf_config = &self.nfs[nf];
        let Some(at) = nf_config.outputs.iter().position(|o| *o == output) else {
            let (known, kind) = (nf_config.outputs.join(", "), nf_config.kind.name);
            let problem = format!("{kind} has no output {output:?}");
            self.path_error(first, problem, format!("its outputs are: {known}"));
            return None;
        };
        self.links.push(Link { name: first.get_ref().clone(), chain: n });
        self.link_sources.push((nf as u16, at as u8, first.span()));
        Some(Start::Link(self.links.len() - 1))
    }

    fn edges(&mut self, file: &File) {
        // targets of the first outputs of NFs in no path
        let mut onward: BTreeMap<u16, Target> = BTreeMap::new();
        let mut entered: Vec<(&Spanned<String>, u16, u16)> = vec![];
        let mut set = BTreeSet::new();
        for (n, (nf, at, span)) in core::mem::take(&mut self.link_sources).into_iter().enumerate() {
            let (nf, at, name) = (usize::from(nf), usize::from(at), self.links[n].name.clone());
            let ends_here = |&(end, _): &(u16, u16)| usize::from(end) == nf;
            if !set.insert((nf, at)) {
                self.checker.error(span, &name, "another path begins with this output", "a tee copies packets");
            } else if at == 0 && self.path_hops.keys().any(|(n, _)| usize::from(*n) == nf) {
                let remedy = "end that path with the NF, or use another NF here";
                self.checker.error(span, &name, "this output continues along a path", remedy);
            } else if at == 0 && !self.ends.iter().any(ends_here) {
                if !self.checker.incomplete {
                    self.checker.error(span, &name, "no path ends with this NF", "end one with it");
                }
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
            let Some(nf) = self.nf(name) else {
                self.unknown(&edge.from, "an NF's output");
                continue;
            };
            let nf_config = &self.nfs[nf];
            let Some(at) = nf_config.outputs.iter().position(|o| *o == output) else {
                let (known, kind) = (nf_config.outputs.join(", "), nf_config.kind.name);
                let problem = format!("{kind} has no output {output:?}");
                self.path_error(&edge.from, problem, format!("its outputs are: {known}"));
                continue;
            };
            if !set.insert((nf, at)) {
                self.checker.error(
                    edge.from.span(),
                    edge.from.get_ref(),
                    "another edge begins with this output",
                    "remove one; a tee copies packets",
                );
                continue;
            }
            // packets that enter by an edge leave by one, even if a path enters the NF by another input
            if at == 0 && self.path_hops.keys().any(|(n, _)| *n as usize == nf) && !self.entered_apart(file, nf) {
                self.checker.error(
                    edge.from.span(),
                    edge.from.get_ref(),
                    "this output continues along the path",
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
                match self.path_hops.get(&(to, input)).map(Vec::as_slice) {
                    Some([hop]) => Target::Hop(Hop(*hop)),
                    Some([_, _, ..]) => {
                        let problem = "this NF is in several paths, so the edge is ambiguous";
                        self.checker.error(edge.to.span(), edge.to.get_ref(), problem, "lead the edge to another NF");
                        continue;
                    }
                    _ => {
                        let hop = self.hop(
                            edge.to.span(),
                            HopPlan { node: to, input, next: Target::Unconnected, fail_open: false },
                        );
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
        // the first output of an NF with interfaces may be unconnected
        for &(nf, hop) in &self.ends {
            self.hops[hop as usize].next = onward.get(&nf).copied().unwrap_or(Target::Unconnected);
        }
        for (element, nf, hop) in entered {
            match onward.get(&nf) {
                Some(target) => self.hops[hop as usize].next = *target,
                None if self.nfs[nf as usize].outputs.is_empty() || self.checker.incomplete => {}
                None => {
                    let (name, first) = (&self.nfs[nf as usize].name, &self.nfs[nf as usize].outputs[0]);
                    let remedy = format!("add [[edge]] with from = \"{name}.{first}\"");
                    self.checker.error(
                        element.span(),
                        element.get_ref(),
                        "packets that enter here have no target",
                        remedy,
                    );
                }
            }
        }
        for nf in 0..self.nfs.len() {
            for at in 1..self.nfs[nf].outputs.len() {
                let output = self.nfs[nf].outputs[at].clone();
                if self.edges[nf][at] != Target::Unconnected {
                    continue;
                }
                if let Some(p) = self.port(&output) {
                    self.ports[p].sent_to = true;
                    self.used.insert(output);
                    self.edges[nf][at] = Target::Port(p as u16);
                } else if self.used.contains(&self.nfs[nf].name) {
                    let name = format!("{}.{output}", self.nfs[nf].name);
                    let d = Diagnostic::new("this output is unconnected: its packets are dropped as no_edge")
                        .value(&name)
                        .remedy(format!("add [[edge]] with from = {name:?}"));
                    let span = self.nfs[nf].setting_spans.first().map_or(0..0, |(_, s)| s.clone());
                    let d = self.checker.source.locate(span, d);
                    self.checker.warnings.push(d);
                }
            }
        }
    }

    /// Returns true if an edge enters an NF by an input that no path uses.
    fn entered_apart(&self, file: &File, nf: usize) -> bool {
        let NfConfig { name, inputs, .. } = &self.nfs[nf];
        file.edge.iter().any(|edge| {
            let (to, input) =
                edge.to.get_ref().split_once(':').map_or((edge.to.get_ref().as_str(), None), |(n, i)| (n, Some(i)));
            let input = input.map_or(Some(0), |input| inputs.iter().position(|i| i == input));
            to == name && input.is_some_and(|input| !self.path_hops.contains_key(&(nf as u16, input as u8)))
        })
    }

    /// Checks that a benchmark sends to a port from which a chain receives.
    fn traffic(&mut self, file: &File) {
        let Some(traffic) = &file.traffic else { return };
        let Some(into) = &traffic.get_ref().into else { return };
        if !self.port(into).is_some_and(|p| self.ports[p].received_from) && !self.checker.incomplete {
            let names: Vec<_> = self.ports.iter().filter(|p| p.received_from).map(|p| p.name.as_str()).collect();
            let remedy = format!("name one of: {}", names.join(", "));
            self.checker.error(traffic.span(), into, "is not a port with which a path begins", remedy);
        }
    }

    fn unused(&mut self, file: &File) {
        if self.checker.incomplete {
            return;
        }
        for name in file.port.keys() {
            if self.port(name.get_ref()).is_some() && !self.used.contains(name.get_ref()) {
                self.checker.error(
                    name.span(),
                    name.get_ref(),
                    "no path and no edge uses this port",
                    "put it in a path, or remove it",
                );
            }
        }
        for nf in &self.nfs {
            if !self.used.contains(&nf.name) {
                let span = nf.setting_spans.first().map_or(0..0, |(_, s)| s.clone());
                let problem = "no path and no edge leads to this NF";
                self.checker.error(span, &nf.name, problem, "put it in a path, or remove it");
            }
        }
    }

    /// Checks that captures that are read exist, and that none is read and written.
    fn files(&mut self, file: &File) {
        let folder = self.checker.source.file.parent().unwrap_or(Path::new("")).to_owned();
        for port in self.ports.clone() {
            let Device::Pcap(name) = &port.device else { continue };
            let Some((_, written)) = file.port.iter().find(|(n, _)| *n.get_ref() == port.name) else { continue };
            let span = written.device.span();
            let path = folder.join(name);
            if port.received_from && port.sent_to {
                let remedy = "declare a second port for the output, such as device = \"pcap:out.pcap\"";
                self.checker.error(span, written.device.get_ref(), "this capture would be read and written", remedy);
            } else if self.checker.part.is_some() && !Path::new(name).is_absolute() {
                let problem = "this capture is a file of the host, and its path is relative";
                self.checker.error(span, written.device.get_ref(), problem, "write an absolute path");
            } else if self.checker.part == Some(Part::Elsewhere) {
            } else if port.received_from && !path.is_file() {
                let shown = path.display().to_string();
                self.checker.error(
                    span,
                    written.device.get_ref(),
                    format!("the file {shown:?} does not exist"),
                    "name a capture; relative paths refer to the folder of the chain file",
                );
            } else if port.sent_to && path.parent().is_some_and(|p| p != Path::new("") && !p.is_dir()) {
                let shown = path.parent().unwrap_or(Path::new("")).display().to_string();
                self.checker.error(
                    span,
                    written.device.get_ref(),
                    format!("the folder {shown:?} does not exist"),
                    "create it",
                );
            }
            if port.sent_to
                && let Some(set) =
                    written.repeat.as_ref().map(Spanned::span).or(written.timed.as_ref().map(Spanned::span))
            {
                self.checker.error(set, &port.name, "repeat and timed are for captures that are read", "remove it");
            }
        }
    }
}
