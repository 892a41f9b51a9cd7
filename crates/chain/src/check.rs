//! Reading a chain file and finding everything that is wrong with it.

use crate::Device;
use crate::file::{self, File};
use crate::locate::{Source, nearest};
use crate::plan::{Chain, ChainFile, NfUse, Port};
use graph::{Blueprint, Diagnostic, Hop, HopPlan, NodePlan, Registry, Spread, Target};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Visits to NFs that a file may have in all its paths and edges.
const MOST_HOPS: usize = 4096;
/// Ports that a file may have (DPDK's `RTE_MAX_ETHPORTS`).
const MOST_PORTS: usize = 32;

type Faults = Vec<Diagnostic>;

pub(crate) fn check(text: &str, path: &Path, registry: &Registry) -> Result<ChainFile, Faults> {
    let source = Source { text, file: path };
    let mut table = DeTable::parse(text).map_err(|e| vec![source.toml(&e)])?;
    let nfs = file::take_nfs(table.get_mut());
    let file = File::deserialize(table.into_deserializer()).map_err(|e| vec![source.toml(&e)])?;

    let mut checker = Checker { source, registry, faults: vec![], warnings: vec![] };
    checker.version(&file);
    let ports = checker.ports(&file);
    let nfs = checker.nfs(nfs, &file, &ports);
    let built =
        Builder { checker, ports, nfs, hops: vec![], edges: vec![], standing: BTreeMap::new(), used: BTreeSet::new() }
            .build(&file);
    built.map(|built| ChainFile { file: path.to_owned(), ..built })
}

struct Checker<'a> {
    source: Source<'a>,
    registry: &'a Registry,
    faults: Faults,
    warnings: Faults,
}

impl Checker<'_> {
    fn fault(&mut self, span: Range<usize>, value: &str, problem: impl Into<String>, cure: impl Into<String>) {
        let d = Diagnostic::new(problem).value(value).cure(cure);
        self.faults.push(self.source.at(span, d));
    }

    fn version(&mut self, file: &File) {
        match &file.bondstone {
            None => self.fault(
                0..0,
                "bondstone",
                "the file does not say which format it has",
                "begin it with: bondstone = 1",
            ),
            Some(v) if *v.get_ref() != 1 => {
                self.fault(v.span(), &v.get_ref().to_string(), "this format is not known", "write bondstone = 1");
            }
            Some(_) => {}
        }
    }

    fn name(&mut self, span: Range<usize>, name: &str) {
        if name.is_empty()
            || name.len() > 32
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        {
            self.fault(span, name, "is not a name", "use up to 32 letters, digits, - and _");
        }
    }

    fn ports(&mut self, file: &File) -> Vec<Port> {
        let mut ports: Vec<Port> = vec![];
        let mut opened: BTreeMap<String, String> = BTreeMap::new();
        for (n, (name, port)) in file.port.iter().enumerate() {
            self.name(name.span(), name.get_ref());
            if n == MOST_PORTS {
                self.fault(
                    name.span(),
                    name.get_ref(),
                    format!("is one port too many; {MOST_PORTS} are allowed"),
                    "split the file",
                );
                break;
            }
            let (written, span) = (port.device.get_ref(), port.device.span());
            let device = match Device::parse(written, name.get_ref()) {
                Ok(device) => device,
                Err((problem, cure)) => {
                    self.fault(span, written, problem, cure);
                    continue;
                }
            };
            if let Some(other) = opened.insert(device.identity(), name.get_ref().clone()) {
                self.fault(
                    span.clone(),
                    written,
                    format!("port {other:?} already has this device"),
                    format!("use {other:?} in the paths, or name another device"),
                );
            }
            let is_pcap = matches!(device, Device::Pcap(_));
            for (key, span) in
                [("repeat", port.repeat.as_ref().map(Spanned::span)), ("timed", port.timed.as_ref().map(Spanned::span))]
            {
                if let (Some(span), false) = (span, is_pcap) {
                    self.fault(span, key, format!("{key} is for captures, and {written:?} is none"), "remove it");
                }
            }
            if let Some(d) = &port.descriptors
                && *d.get_ref() < 32
            {
                self.fault(
                    d.span(),
                    &d.get_ref().to_string(),
                    "is too few descriptors for a burst",
                    "write 32 or more, or leave it out",
                );
            }
            ports.push(Port {
                name: name.get_ref().clone(),
                device,
                descriptors: port.descriptors.as_ref().map_or(1024, |d| *d.get_ref()),
                repeat: port.repeat.as_ref().map_or(1, |r| *r.get_ref()),
                timed: port.timed.as_ref().is_some_and(|t| *t.get_ref()),
                received_from: false,
                sent_to: false,
            });
        }
        ports
    }

    /// The declared NFs, and those that paths and edges name by their kind alone.
    fn nfs(&mut self, tables: Option<Spanned<DeValue<'_>>>, file: &File, ports: &[Port]) -> Vec<NfUse> {
        let mut nfs = vec![];
        if let Some(tables) = tables {
            let span = tables.span();
            match tables.into_inner() {
                DeValue::Table(tables) => {
                    for (name, value) in tables {
                        self.name(name.span(), name.get_ref());
                        if ports.iter().any(|p| p.name == *name.get_ref()) {
                            self.fault(
                                name.span(),
                                name.get_ref(),
                                "is the name of a port as well",
                                "rename one of them",
                            );
                        }
                        nfs.extend(self.nf(&name, value));
                    }
                }
                other => self.fault(
                    span,
                    other.type_str(),
                    "nf is not a table",
                    "write [nf.NAME] and below it kind = \"...\"",
                ),
            }
        }
        let named = file
            .chain
            .iter()
            .flat_map(|c| c.get_ref().path.get_ref())
            .chain(file.edge.iter().flat_map(|e| [&e.from, &e.to]));
        for element in named {
            let name = element.get_ref().split([':', '.']).next().unwrap_or_default();
            let known = nfs.iter().any(|nf: &NfUse| nf.name == name) || file.port.keys().any(|p| p.get_ref() == name);
            if !known
                && let Some(kind) = self.registry.get(name)
                && let Ok(factory) = kind.read(Spanned::new(0..0, DeTable::new()))
            {
                nfs.push(NfUse {
                    name: name.to_owned(),
                    kind: kind.clone(),
                    factory,
                    places: vec![("".into(), element.span())],
                });
            }
        }
        nfs
    }

    fn nf(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, value: Spanned<DeValue<'_>>) -> Option<NfUse> {
        let span = value.span();
        let DeValue::Table(mut table) = value.into_inner() else {
            self.fault(
                span,
                name.get_ref(),
                "an NF is a table",
                format!("write [nf.{}] and below it kind = \"...\"", name.get_ref()),
            );
            return None;
        };
        let kinds: Vec<_> = self.registry.iter().map(|k| k.name).collect();
        let kind = match table.remove("kind") {
            None => {
                self.fault(
                    name.span(),
                    name.get_ref(),
                    "does not say what kind of NF it is",
                    format!("add kind = one of {}", kinds.join(", ")),
                );
                return None;
            }
            Some(kind) => match kind.get_ref().as_str().and_then(|k| self.registry.get(k)) {
                Some(kind) => kind.clone(),
                None => {
                    let wrong = kind.get_ref().as_str().unwrap_or("(not a string)").to_owned();
                    let cure = nearest(&wrong, kinds.iter().copied()).map_or_else(
                        || format!("use one of {}", kinds.join(", ")),
                        |near| format!("did you mean {near:?}?"),
                    );
                    self.fault(kind.span(), &wrong, "there is no such kind of NF", cure);
                    return None;
                }
            },
        };
        let mut places = vec![(String::new(), name.span())];
        places.extend(table.iter().map(|(k, v)| (k.get_ref().to_string(), v.span())));
        match kind.read(Spanned::new(span, table)) {
            Ok(factory) => Some(NfUse { name: name.get_ref().to_string(), kind, factory, places }),
            Err(e) => {
                let d = self.source.toml(&e);
                self.faults.push(d);
                None
            }
        }
    }
}

/// Turns paths and edges into hops.
struct Builder<'a> {
    checker: Checker<'a>,
    ports: Vec<Port>,
    nfs: Vec<NfUse>,
    hops: Vec<HopPlan>,
    /// For each NF, where its outputs lead.
    edges: Vec<Vec<Target>>,
    /// NF and input: the hops that stand in paths.
    standing: BTreeMap<(u16, u8), Vec<u16>>,
    used: BTreeSet<String>,
}

impl Builder<'_> {
    fn build(mut self, file: &File) -> Result<ChainFile, Faults> {
        self.edges = self.nfs.iter().map(|nf| vec![Target::Nowhere; nf.kind.outputs.len().max(1)]).collect();
        if file.chain.is_empty() && self.checker.faults.is_empty() {
            let example = "[[chain]] with path = [\"in\", \"NF\", \"out\"]";
            self.checker.fault(0..0, "chain", "there is no chain: nothing would run", format!("add {example}"));
        }
        let chains: Vec<Chain> = file.chain.iter().enumerate().filter_map(|(n, c)| self.chain(n, c)).collect();
        self.edges(file);
        self.spread(file, &chains);
        self.unused(file);
        self.files(file);
        let Builder { mut checker, ports, nfs, hops, edges, .. } = self;
        if checker.faults.is_empty() {
            let nodes =
                nfs.iter().zip(&edges).map(|(nf, e)| NodePlan { name: nf.name.clone(), edges: e.clone() }).collect();
            if let Some(round) = (Blueprint { nodes, hops: hops.clone() }).find_loop() {
                let names: Vec<_> = round.iter().map(|&n| nfs[n as usize].name.as_str()).collect();
                let span = file.edge.first().map_or(0..0, |e| e.from.span());
                let cure = "lead one of these outputs to a port; a ring port breaks a loop on purpose";
                checker.fault(span, &names.join(" -> "), "packets could go round here for ever", cure);
            }
        }
        let Checker { mut faults, warnings, .. } = checker;
        if faults.is_empty() {
            return Ok(ChainFile { file: Default::default(), ports, nfs, chains, warnings, hops, edges });
        }
        faults.sort_by_key(|d| (d.line, d.column));
        Err(faults)
    }

    fn port(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|p| p.name == name)
    }

    fn unknown(&mut self, element: &Spanned<String>, what: &str) {
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
        let cure = match nearest(&wrong, names.iter().copied().chain(kinds.iter().copied())) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("declare it as [port.{wrong}] or [nf.{wrong}], or use one of {}", names.join(", ")),
        };
        self.checker.fault(element.span(), &wrong, format!("is not {what}"), cure);
    }

    fn declared(&self, name: &str) -> bool {
        let text = self.checker.source.text;
        text.contains(&format!("[nf.{name}]")) || text.contains(&format!("[port.{name}]"))
    }

    /// `nf` or `nf:input`.
    fn input(&mut self, element: &Spanned<String>) -> Option<(u16, u8)> {
        let (name, input) =
            element.get_ref().split_once(':').map_or((element.get_ref().as_str(), None), |(n, i)| (n, Some(i)));
        let Some(nf) = self.nfs.iter().position(|nf| nf.name == name) else {
            self.unknown(element, "an NF");
            return None;
        };
        self.used.insert(name.to_owned());
        let kind = &self.nfs[nf].kind;
        let Some(input) = input else { return Some((nf as u16, 0)) };
        match kind.inputs.iter().position(|i| *i == input) {
            Some(at) => Some((nf as u16, at as u8)),
            None => {
                let (known, kind) = (kind.inputs.join(", "), kind.name);
                self.checker.fault(
                    element.span(),
                    element.get_ref(),
                    format!("{kind} has no input {input:?}"),
                    format!("its inputs are {known}"),
                );
                None
            }
        }
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
        let file::Chain { name, path, cores } = chain.get_ref();
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
        match port {
            None if self.nfs.iter().any(|nf| nf.name == *first.get_ref()) => {
                let first_port = self.ports.first().map_or("in", |p| &p.name).to_owned();
                self.checker.fault(
                    first.span(),
                    first.get_ref(),
                    "a path begins with a port, and this is an NF",
                    format!("begin it with a port such as {first_port:?}"),
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
        let mut next = match self.port(last.get_ref()) {
            Some(p) => {
                self.ports[p].sent_to = true;
                self.used.insert(last.get_ref().clone());
                Target::Port(p as u16)
            }
            None => {
                let (nf, input) = self.input(last)?;
                let kind = &self.nfs[nf as usize].kind;
                if !kind.outputs.is_empty() {
                    let (kind, cure) =
                        (kind.name, "end it with a port, or with an NF that has no output, such as drop");
                    self.checker.fault(
                        last.span(),
                        last.get_ref(),
                        format!("the path ends here, but {kind} lets packets through"),
                        cure,
                    );
                }
                self.hop(last.span(), HopPlan { node: nf, input, next: Target::Nowhere })
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
            let Some((nf, input)) = self.input(element) else { continue };
            if self.nfs[nf as usize].kind.outputs.is_empty() {
                let kind = self.nfs[nf as usize].kind.name;
                self.checker.fault(
                    element.span(),
                    element.get_ref(),
                    format!("nothing comes out of {kind}, so the path ends here"),
                    "end the path with it",
                );
            }
            next = self.hop(element.span(), HopPlan { node: nf, input, next });
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
        Some(Chain {
            name: name.as_ref().map_or_else(|| format!("chain{}", n + 1), |n| n.get_ref().clone()),
            port: port?,
            entry: next,
            path: path.get_ref().iter().map(|p| p.get_ref().clone()).collect(),
            cores: seen.into_iter().collect(),
        })
    }

    fn edges(&mut self, file: &File) {
        // where the first output leads of NFs that no path holds
        let mut onward: BTreeMap<u16, Target> = BTreeMap::new();
        let mut entered: Vec<(&Spanned<String>, u16, u16)> = vec![];
        let mut set = BTreeSet::new();
        for edge in &file.edge {
            let (name, output) = edge.from.get_ref().split_once('.').unwrap_or((edge.from.get_ref(), "out"));
            let Some(nf) = self.nfs.iter().position(|nf| nf.name == name) else {
                self.unknown(&edge.from, "an NF's output");
                continue;
            };
            let kind = &self.nfs[nf].kind;
            let Some(at) = kind.outputs.iter().position(|o| *o == output) else {
                let (known, kind) = (kind.outputs.join(", "), kind.name);
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
            if at == 0 && self.standing.keys().any(|(n, _)| *n as usize == nf) {
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
                let Some((to, input)) = self.input(&edge.to) else { continue };
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
                        let hop = self.hop(edge.to.span(), HopPlan { node: to, input, next: Target::Nowhere });
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
        for (element, nf, hop) in entered {
            match onward.get(&nf) {
                Some(target) => self.hops[hop as usize].next = *target,
                None if self.nfs[nf as usize].kind.outputs.is_empty() => {}
                None => {
                    let (name, first) = (&self.nfs[nf as usize].name, self.nfs[nf as usize].kind.outputs[0]);
                    let cure = format!("add [[edge]] with from = \"{name}.{first}\"");
                    self.checker.fault(
                        element.span(),
                        element.get_ref(),
                        "packets that come here have nowhere to go on to",
                        cure,
                    );
                }
            }
        }
        for nf in 0..self.nfs.len() {
            for at in 1..self.nfs[nf].kind.outputs.len() {
                let output = self.nfs[nf].kind.outputs[at];
                if self.edges[nf][at] != Target::Nowhere {
                    continue;
                }
                if let Some(p) = self.port(output) {
                    self.ports[p].sent_to = true;
                    self.used.insert(output.to_owned());
                    self.edges[nf][at] = Target::Port(p as u16);
                } else if self.used.contains(&self.nfs[nf].name) {
                    let name = format!("{}.{output}", self.nfs[nf].name);
                    let d = Diagnostic::new("this output leads nowhere: its packets are dropped as no_edge")
                        .value(&name)
                        .cure(format!("add [[edge]] with from = {name:?}"));
                    let span = self.nfs[nf].places.first().map_or(0..0, |(_, s)| s.clone());
                    let d = self.checker.source.at(span, d);
                    self.checker.warnings.push(d);
                }
            }
        }
    }

    /// An NF that keeps state per flow must see all of a flow: not in chains on different cores.
    fn spread(&mut self, file: &File, chains: &[Chain]) {
        for nf in self.nfs.iter().filter(|nf| nf.kind.spread != Spread::Any) {
            let holds = |c: &&Chain| c.path.iter().any(|p| p.split(':').next() == Some(&nf.name));
            let mut cores = chains.iter().filter(holds).map(|c| &c.cores);
            if let Some(first) = cores.next()
                && cores.any(|c| c != first)
            {
                let span = file.chain.first().map_or(0..0, Spanned::span);
                let d = Diagnostic::new("keeps state per flow, but stands in chains on different cores")
                    .value(&nf.name)
                    .cure("give these chains the same cores");
                let d = self.checker.source.at(span, d);
                self.checker.faults.push(d);
            }
        }
    }

    fn unused(&mut self, file: &File) {
        for (name, _) in &file.port {
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
                let d = Diagnostic::new("no path and no edge leads to this NF")
                    .value(&nf.name)
                    .cure("put it in a path, or remove it");
                let d = self.checker.source.at(span, d);
                self.checker.faults.push(d);
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
                let cure =
                    format!("declare a second port for what is written, such as device = \"pcap:{}\"", "out.pcap");
                self.checker.fault(
                    span,
                    written.device.get_ref(),
                    "this capture would be read and written at once",
                    cure,
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
