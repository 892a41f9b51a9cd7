//! Reading a chain file and finding everything that is wrong with it.

mod paths;
mod walls;

use crate::Device;
use crate::file::{self, File};
use crate::locate::{Source, nearest};
use crate::plan::{ChainFile, NfUse, Port};
use diagnostics::Diagnostic;
use graph::Registry;
use paths::Builder;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Ports that a file may have (DPDK's `RTE_MAX_ETHPORTS`).
const MOST_PORTS: usize = 32;

/// Faults that are reported of a file. To place one, and to guess what was meant, takes as long as the file is large.
const MOST_FAULTS: usize = 100;

type Faults = Vec<Diagnostic>;

/// Reads a file; one side of its walls may have no chain, if it is not `whole`.
pub(crate) fn check(text: &str, path: &Path, registry: &Registry, whole: bool) -> Result<ChainFile, Faults> {
    let source = Source { text, file: path };
    let mut table = DeTable::parse(text).map_err(|e| vec![source.toml(&e)])?;
    let nfs = file::take_nfs(table.get_mut());
    let mut checker = Checker { source, registry, faults: vec![], warnings: vec![] };
    checker.shapes(table.get_ref());
    if !checker.faults.is_empty() {
        return Err(checker.faults);
    }
    let file = File::deserialize(table.into_deserializer()).map_err(|e| vec![checker.source.toml(&e)])?;

    checker.version(&file);
    let ports = checker.ports(&file);
    let nfs = checker.nfs(nfs, &file, &ports);
    if whole && file.chain.is_empty() && checker.faults.is_empty() {
        let example = "[[chain]] with path = [\"in\", \"NF\", \"out\"]";
        checker.fault(0..0, "chain", "there is no chain: nothing would run", format!("add {example}"));
    }
    let built = Builder::new(checker, ports, nfs).build(&file);
    built.map(|built| ChainFile { file: path.to_owned(), text: text.to_owned(), ..built })
}

struct Checker<'a> {
    source: Source<'a>,
    registry: &'a Registry,
    faults: Faults,
    warnings: Faults,
}

impl Checker<'_> {
    fn fault(&mut self, span: Range<usize>, value: &str, problem: impl Into<String>, remedy: impl Into<String>) {
        if !self.enough() {
            let d = Diagnostic::new(problem).value(value).remedy(remedy);
            self.faults.push(self.source.at(span, d));
        }
    }

    /// A fault for each of these CPUs, should it turn out not to be there.
    fn absent(&self, cores: &[Spanned<usize>]) -> Vec<(usize, Diagnostic)> {
        let problem = "this CPU is not there, or this process may not use it";
        let fault = |core: &Spanned<usize>| {
            let d = Diagnostic::new(problem).value(core.get_ref());
            (*core.get_ref(), self.source.at(core.span(), d))
        };
        cores.iter().map(fault).collect()
    }

    fn enough(&self) -> bool {
        self.faults.len() >= MOST_FAULTS
    }

    /// Whether the file's few top-level keys are the tables that they have to be.
    fn shapes(&mut self, table: &DeTable<'_>) {
        let port = "write [port.NAME] and below it device = \"...\"";
        for (key, list, remedy) in
            [("port", false, port), ("chain", true, "write [[chain]]"), ("edge", true, "write [[edge]]")]
        {
            let Some(value) = table.get(key) else { continue };
            let right = match value.get_ref() {
                DeValue::Array(_) => list,
                DeValue::Table(_) => !list,
                _ => false,
            };
            if !right {
                let wrong = self.source.text.get(value.span()).unwrap_or(key).to_owned();
                self.fault(value.span(), &wrong, format!("{key} is not written so"), remedy);
            }
        }
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

    /// One text for all names of a capture: to write what is being read would destroy it.
    fn same_file(&self, name: &str) -> String {
        let path = self.source.file.parent().unwrap_or(Path::new("")).join(name);
        let plain = || path.components().filter(|c| *c != Component::CurDir).collect();
        format!("pcap:{}", path.canonicalize().unwrap_or_else(|_| plain()).display())
    }

    fn ports(&mut self, file: &File) -> Vec<Port> {
        let mut ports: Vec<Port> = vec![];
        let mut opened: BTreeMap<String, String> = BTreeMap::new();
        let mut in_order: Vec<_> = file.port.keys().collect();
        in_order.sort_by_key(|name| name.span().start);
        if let Some(name) = in_order.get(MOST_PORTS) {
            let problem = format!("is one port too many; {MOST_PORTS} are allowed");
            self.fault(name.span(), name.get_ref(), problem, "split the file");
        }
        for (name, port) in &file.port {
            self.name(name.span(), name.get_ref());
            let (written, span) = (port.device.get_ref(), port.device.span());
            let device = match Device::parse(written, name.get_ref()) {
                Ok(device) => device,
                Err((problem, remedy)) => {
                    self.fault(span, written, problem, remedy);
                    continue;
                }
            };
            let identity = match &device {
                Device::Pcap(file) => self.same_file(file),
                Device::Dpdk { .. } | Device::Queue { .. } | Device::Rings { .. } => device.identity(),
            };
            if let Some(other) = opened.insert(identity, name.get_ref().clone()) {
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
                wall: None,
                behind: port.wall.as_ref().map(|wall| wall.get_ref().clone()),
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
                _ => {
                    let wrong = self.source.text.get(span.clone()).unwrap_or("nf").to_owned();
                    self.fault(span, &wrong, "nf is not a table", "write [nf.NAME] and below it kind = \"...\"");
                }
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
                let places = vec![("".into(), element.span())];
                nfs.push(NfUse::new(name.to_owned(), kind.clone(), factory, places, None));
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
                    let written = self.source.text.get(kind.span()).unwrap_or_default();
                    let wrong = kind.get_ref().as_str().unwrap_or(written).to_owned();
                    let remedy = nearest(&wrong, kinds.iter().copied()).map_or_else(
                        || format!("use one of {}", kinds.join(", ")),
                        |near| format!("did you mean {near:?}?"),
                    );
                    self.fault(kind.span(), &wrong, "there is no such kind of NF", remedy);
                    return None;
                }
            },
        };
        let isolation = table.remove("isolation").and_then(|word| {
            let written = word.get_ref().as_str().unwrap_or_default().to_owned();
            self.isolation(word.span(), &written)
        });
        let mut places = vec![(String::new(), name.span())];
        places.extend(table.iter().map(|(k, v)| (k.get_ref().to_string(), v.span())));
        match kind.read(Spanned::new(span, table)) {
            Ok(factory) => Some(NfUse::new(name.get_ref().to_string(), kind, factory, places, isolation)),
            Err(e) => {
                if !self.enough() {
                    let d = self.source.toml(&e);
                    self.faults.push(d);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_nothing_but_faults_is_refused_soon() {
        let nfs: String = (0..10_000).map(|i| format!("[nf.nf{i}]\nkind = \"tee\"\n")).collect();
        let path: Vec<_> = (0..10_000).map(|i| format!("\"unknown{i}\"")).collect();
        let text = format!("bondstone = 1\n[port.p]\ndevice = \"null\"\n{nfs}[[chain]]\npath = [{}]\n", path.join(","));
        let begun = std::time::Instant::now();
        let faults = check(&text, Path::new("many.toml"), &nf::registry(), true).err().expect("it has faults");
        assert_eq!(faults.len(), MOST_FAULTS);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
