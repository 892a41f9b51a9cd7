//! Parses and checks a chain file.

mod checker;
mod clock;
mod control_planes;
mod hosts;
mod paths;
mod representors;
mod sandboxes;
mod spreading;

use crate::copies::Copies;
use crate::device::Device;
use crate::file::{self, File};
use crate::hosts::{Host, Hosts, Layout};
use crate::plan::{ChainFile, NfConfig, NfSettings, Port};
use crate::reader::Reader;
use crate::renamed::new_name;
use crate::source::{MAX_ERRORS, Source, nearest, read};
use checker::{Checker, Errors, Part};
use diagnostics::Diagnostic;
use graph::Registry;
use paths::Builder;
use remote::RemoteHost;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

impl ChainFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All errors of the file (at most 100), each with its location, the value and a remedy.
    pub fn read(file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        let text = read(file, "chain file").map_err(|d| vec![d])?;
        Self::parse(&text, file, registry)
    }

    /// Parses and checks the text of a file; relative paths in it refer to the folder of `file`.
    ///
    /// # Errors
    /// As [`ChainFile::read`].
    pub fn parse(text: &str, file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        Self::parse_for(text, file, None, registry)
    }

    /// As [`ChainFile::parse`]; of a file that describes several hosts, with the name of this one, returns its part.
    ///
    /// # Errors
    /// As [`ChainFile::read`].
    pub fn parse_for(
        text: &str,
        file: &Path,
        host: Option<&str>,
        registry: &Registry,
    ) -> Result<ChainFile, Vec<Diagnostic>> {
        parse_part(text, file, host.map(|host| (host, Part::Here)), registry).map(|(part, _)| part)
    }
}

/// Parses and checks a file, or the part of one of its hosts; also returns all hosts.
fn parse_part(
    text: &str,
    file: &Path,
    part: Option<(&str, Part)>,
    registry: &Registry,
) -> Result<(ChainFile, Layout), Vec<Diagnostic>> {
    let source = Source { text, file };
    let (table, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return Err(source.syntax_errors(&syntax));
    }
    let mut table = table.into_inner();
    let mut checker = Checker::new(source, registry);
    let copies = Copies::expand(&mut table, &mut Reader { source, errors: &mut checker.errors });
    let Some(copies) = copies else { return Err(checker.errors) };
    let nfs = file::take_nfs(&mut table);
    let (mut parsed, invalid) = File::read(table, &mut Reader { source, errors: &mut checker.errors });
    checker.incomplete = invalid.paths;
    checker.faulty = invalid.ports.clone();
    checker.part = part.map(|(_, part)| part);
    if !invalid.version {
        checker.check_version(&parsed);
    }
    let mut nfs = checker.nfs(nfs, &parsed);
    nfs.iter_mut().for_each(|nf| nf.copy = copies.nfs.get(&nf.name).copied());
    let layout = checker.select_host(part.map(|(host, _)| host), &mut parsed, &mut nfs);
    let mut ports = checker.ports(&parsed, invalid.ports);
    representors::add_ports(&nfs, &mut ports, &mut parsed);
    checker.control_planes(&nfs, &ports);
    if parsed.chain.is_empty() && !checker.incomplete {
        let example = "[[chain]] with path = [\"in\", \"NF\", \"out\"]";
        checker.error(0..0, "chain", "the file has no chain", format!("add {example}"));
    }
    let built = Builder::new(checker, ports, nfs).build(&parsed);
    let host = part.map(|(host, _)| host.to_owned());
    let whole = |built| ChainFile { file: file.to_owned(), text: text.to_owned(), host, copies: copies.count, ..built };
    built.map(|built| (whole(built), layout))
}

impl Hosts {
    /// Parses and checks a file for each of its hosts; `None` if it describes none.
    ///
    /// # Errors
    /// All errors of the file, as those of [`ChainFile::read`].
    pub fn parse(text: &str, file: &Path, registry: &Registry) -> Result<Option<Hosts>, Vec<Diagnostic>> {
        let (table, syntax) = DeTable::parse_recoverable(text);
        let (mut table, mut errors) = (table.into_inner(), vec![]);
        if !syntax.is_empty() || !table.contains_key("host") {
            return Ok(None);
        }
        if Copies::expand(&mut table, &mut Reader { source: Source { text, file }, errors: &mut errors }).is_none() {
            return Err(errors);
        }
        let names = table.get("host").and_then(|hosts| hosts.get_ref().as_table());
        let names = names.into_iter().flat_map(|hosts| hosts.keys());
        let (mut layout, mut parts) = (Layout::default(), vec![]);
        for name in names {
            let name = &**name.get_ref();
            match parse_part(text, file, Some((name, Part::Elsewhere)), registry) {
                Ok((part, all)) => {
                    layout = all;
                    parts.push((name.to_owned(), part));
                }
                Err(of_part) => errors.extend(of_part),
            }
        }
        if !errors.is_empty() {
            diagnostics::remove_duplicates(&mut errors);
            errors.sort_by_key(|d| (d.line, d.column));
            errors.truncate(MAX_ERRORS);
            return Err(errors);
        }
        let of = |(name, remote): (String, RemoteHost)| {
            let part = parts.iter().position(|(of, _)| *of == name).map(|at| parts.swap_remove(at).1)?;
            Some(Host { name, remote, part })
        };
        let hosts: Vec<Host> = layout.hosts.into_iter().filter_map(of).collect();
        Ok((!hosts.is_empty()).then_some(Hosts { hosts, links: layout.links }))
    }
}

/// Checks a partition of a chain file; `text` is the part of the file in which errors are located.
pub(crate) fn check_partition(
    parsed: &File,
    ports: Vec<Port>,
    nfs: &[NfSettings],
    text: &str,
    file: &Path,
    registry: &Registry,
) -> Result<ChainFile, Errors> {
    let mut checker = Checker::new(Source { text, file }, registry);
    let nfs = nfs.iter().filter_map(|nf| checker.nf_of_settings(nf)).collect();
    let built = Builder::new(checker, ports, nfs).build(parsed);
    built.map(|built| ChainFile { file: file.to_owned(), text: text.to_owned(), ..built })
}

impl Checker<'_> {
    fn check_version(&mut self, file: &File) {
        match &file.bondstone {
            None => self.error(
                0..0,
                "bondstone",
                "the file does not state its format version",
                "begin the file with: bondstone = 1",
            ),
            Some(v) if *v.get_ref() != 1 => {
                self.error(v.span(), &v.get_ref().to_string(), "unknown format version", "write bondstone = 1");
            }
            Some(_) => {}
        }
    }

    /// Returns the length of the longest frame.
    fn max_frame(&mut self, file: &File) -> usize {
        let Some(written) = &file.max_frame else { return packet::MAX_FRAME };
        let range = packet::MAX_FRAME..=packet::MAX_JUMBO_FRAME;
        if let Some(bytes) = usize::try_from(*written.get_ref()).ok().filter(|bytes| range.contains(bytes)) {
            return bytes;
        }
        let remedy = format!("write {} to {} bytes, without FCS", range.start(), range.end());
        self.error(written.span(), &written.get_ref().to_string(), "not a length of the longest frame", remedy);
        packet::MAX_FRAME
    }

    /// Returns an identity that is the same for all names of a capture: writing a file that is read would destroy it.
    fn capture_identity(&self, name: &str) -> String {
        let path = self.source.file.parent().unwrap_or(Path::new("")).join(name);
        let plain = || path.components().filter(|c| *c != Component::CurDir).collect();
        format!("pcap:{}", path.canonicalize().unwrap_or_else(|_| plain()).display())
    }

    /// Returns the ports; `faulty` holds the names of those that could not be read.
    fn ports(&mut self, file: &File, mut faulty: BTreeSet<String>) -> Vec<Port> {
        let mut ports: Vec<Port> = vec![];
        let mut opened: BTreeMap<String, String> = BTreeMap::new();
        let mut in_order: Vec<_> = file.port.keys().collect();
        in_order.sort_by_key(|name| name.span().start);
        if let Some(name) = in_order.get(Port::MAX) {
            let problem = format!("the file has more than {} ports", Port::MAX);
            self.error(name.span(), name.get_ref(), problem, "split the file");
        }
        for (name, port) in &file.port {
            self.check_name(name.span(), name.get_ref());
            let (written, span) = (port.device.get_ref(), port.device.span());
            let device = match Device::parse(written, name.get_ref()) {
                Ok(device) => device,
                Err((problem, remedy)) => {
                    self.error(span, written, problem, remedy);
                    faulty.insert(name.get_ref().clone());
                    continue;
                }
            };
            let identity = match &device {
                Device::Pcap(file) => self.capture_identity(file),
                Device::Dpdk { .. } | Device::Queue { .. } | Device::Rings { .. } => device.identity(),
            };
            if let Some(other) = opened.insert(identity, name.get_ref().clone()) {
                self.error(
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
                    self.error(span, key, format!("{key} is for captures, which {written:?} is not"), "remove it");
                }
            }
            for (key, span) in [
                ("existing", port.existing.as_ref().map(Spanned::span)),
                ("namespace", port.namespace.as_ref().map(Spanned::span)),
            ] {
                if let (Some(span), false) = (span, written.starts_with("tap:")) {
                    self.error(span, key, format!("{key} is for taps, which {written:?} is not"), "remove it");
                }
            }
            if let (Some(namespace), Some(_)) = (&port.namespace, &port.existing) {
                let remedy = "remove one: an existing tap stays in its namespace";
                self.error(namespace.span(), "namespace", "tap exists before the run", remedy);
            }
            if let Some(namespace) = &port.namespace
                && (namespace.get_ref().is_empty() || namespace.get_ref().contains('/'))
            {
                let remedy = "write a name that ip netns shows";
                self.error(namespace.span(), namespace.get_ref(), "not a name of a network namespace", remedy);
            }
            if let Some(d) = &port.descriptors
                && *d.get_ref() < 32
            {
                self.error(
                    d.span(),
                    &d.get_ref().to_string(),
                    "is fewer descriptors than a burst has packets",
                    "write 32 or more, or remove the key",
                );
            }
            ports.push(Port {
                name: name.get_ref().clone(),
                device,
                descriptors: port.descriptors.as_ref().map_or(Port::DESCRIPTORS, |d| *d.get_ref()),
                repeat: port.repeat.as_ref().map_or(1, |r| *r.get_ref()),
                timed: port.timed.as_ref().is_some_and(|t| *t.get_ref()),
                existing: port.existing.as_ref().is_some_and(|e| *e.get_ref()),
                namespace: port.namespace.as_ref().map(|namespace| namespace.get_ref().clone()),
                representor: None,
                received_from: false,
                sent_to: false,
                crossing_side: None,
                sandbox: port.sandbox.as_ref().map(|sandbox| sandbox.get_ref().clone()),
                device_span: span,
            });
        }
        // paths with these ports are checked as well
        let named = |ports: &[Port], name: &String| ports.iter().any(|port| port.name == *name);
        let without: Vec<_> = faulty.iter().filter(|name| !named(&ports, name)).map(|n| Port::blank(n)).collect();
        ports.extend(without);
        self.faulty.extend(faulty);
        ports
    }

    /// Returns the NFs with tables, and those that paths and edges name by their kind.
    fn nfs(&mut self, tables: Option<Spanned<DeValue<'_>>>, file: &File) -> Vec<NfConfig> {
        let mut nfs = vec![];
        if let Some(tables) = tables {
            let span = tables.span();
            match tables.into_inner() {
                DeValue::Table(tables) => {
                    for (name, value) in tables {
                        self.check_name(name.span(), name.get_ref());
                        if file.port.keys().any(|port| port.get_ref() == name.get_ref()) {
                            self.error(name.span(), name.get_ref(), "is also the name of a port", "rename one of them");
                        }
                        let before = self.errors.len();
                        nfs.extend(self.nf(&name, value, !file.host.is_empty()));
                        if self.errors.len() != before {
                            self.faulty.insert(name.get_ref().to_string());
                        }
                    }
                }
                _ => {
                    let wrong = self.source.text.get(span.clone()).unwrap_or("nf").to_owned();
                    self.error(span, &wrong, "nf is not a table", "write [nf.NAME] and below it kind = \"...\"");
                }
            }
        }
        let named = file
            .chain
            .iter()
            .flat_map(|c| c.get_ref().path.get_ref())
            .chain(file.edge.iter().flat_map(|e| [&e.from, &e.to]));
        let ports = file.port.keys().map(Spanned::get_ref).chain(&self.faulty).cloned();
        let mut known: BTreeSet<String> = nfs.iter().map(|nf: &NfConfig| nf.name.clone()).chain(ports).collect();
        for element in named {
            let name = element.get_ref().split([':', '.']).next().unwrap_or_default();
            if !known.contains(name)
                && let Some(kind) = self.registry.get(name)
                && let Ok(factory) = kind.parse(Spanned::new(0..0, DeTable::new()))
            {
                let (settings, spans) = (serde_json::json!({}), vec![(String::new(), element.span())]);
                nfs.push(NfConfig::new(name.to_owned(), kind.clone(), factory, settings, spans, None));
                known.insert(name.to_owned());
            }
        }
        nfs
    }

    /// Returns an NF; `has_hosts` is true if the key `host` names one of the file's.
    fn nf(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: Spanned<DeValue<'_>>,
        has_hosts: bool,
    ) -> Option<NfConfig> {
        let span = value.span();
        let DeValue::Table(mut table) = value.into_inner() else {
            self.error(
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
                self.error(
                    name.span(),
                    name.get_ref(),
                    "has no kind",
                    format!("add kind = one of {}", kinds.join(", ")),
                );
                return None;
            }
            Some(kind) => match kind.get_ref().as_str().and_then(|k| self.registry.get(k)) {
                Some(kind) => kind.clone(),
                None => {
                    let written = self.source.text.get(kind.span()).unwrap_or_default();
                    let wrong = kind.get_ref().as_str().unwrap_or(written).to_owned();
                    let near =
                        new_name(&wrong, kinds.iter().copied()).or_else(|| nearest(&wrong, kinds.iter().copied()));
                    let remedy = near.map_or_else(
                        || format!("use one of {}", kinds.join(", ")),
                        |near| format!("did you mean {near:?}?"),
                    );
                    self.error(kind.span(), &wrong, "unknown kind of NF", remedy);
                    return None;
                }
            },
        };
        let isolation = table.remove("isolation").and_then(|value| {
            let written = value.get_ref().as_str().unwrap_or_default().to_owned();
            self.isolation(value.span(), &written)
        });
        let host = has_hosts.then(|| table.remove("host")).flatten().map(|value| {
            let text = self.source.text.get(value.span()).unwrap_or_default();
            Spanned::new(value.span(), value.get_ref().as_str().unwrap_or(text).to_owned())
        });
        let mut spans = vec![(String::new(), name.span())];
        spans.extend(table.iter().map(|(k, v)| (k.get_ref().to_string(), v.span())));
        let parse = |value: Spanned<DeValue<'_>>| {
            let settings = serde_json::Value::deserialize(value.clone().into_deserializer())?;
            let span = value.span();
            let DeValue::Table(table) = value.into_inner() else { return Ok((None, settings)) };
            Ok((Some(kind.parse(Spanned::new(span, table))?), settings))
        };
        let mut reader = Reader { source: self.source, errors: &mut self.errors };
        let (factory, settings) = reader.value_with(Spanned::new(span, DeValue::Table(table)), parse)?;
        Some(NfConfig {
            host,
            ..NfConfig::new(name.get_ref().to_string(), kind.clone(), factory?, settings, spans, isolation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Clock;

    #[test]
    fn takes_time_in_proportion_to_the_file() {
        use rustix::time::{ClockId, clock_gettime};
        // CPU time of this thread in nanoseconds, so that other programs do not matter
        let now = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
        };
        let time = |size: usize| {
            let nfs: String = (0..size).map(|i| format!("[nf.nf{i}]\nkind = \"tee\"\n")).collect();
            let path: Vec<_> = (0..8 * size).map(|i| format!("\"unknown{i}\"")).collect();
            let path = path.join(",");
            let text = format!("bondstone = 1\n[port.p]\ndevice = \"null\"\n{nfs}[[chain]]\npath = [{path}]\n");
            let start = now();
            let errors = ChainFile::parse(&text, Path::new("many.toml"), &nf::registry()).err().expect("errors");
            assert_eq!(errors.len(), MAX_ERRORS);
            now() - start
        };
        // the fastest of three, as caches are shared; work that grows with the square takes 64 times as long
        let [small, large] = [1_000, 8_000].map(|size| (0..3).map(|_| time(size)).fold(f64::INFINITY, f64::min));
        assert!(large < 24.0 * small, "{large} ns, {small} ns for an eighth");
    }

    #[test]
    fn rejects_inputs_and_chains_without_the_time_of_captures() {
        // any existing file will do, as captures are not opened
        let in_ = "[port.in]\ndevice = \"pcap:Cargo.toml\"";
        let parse = |input: &str, chain: &str, more: &str| {
            let text = format!(
                "bondstone = 1\nclock = \"capture\"\n{input}\n[port.out]\ndevice = \"null\"\n\
                 [[chain]]\npath = [\"in\", \"count\", \"out\"]\n{chain}\n{more}"
            );
            ChainFile::parse(&text, Path::new("clock.toml"), &nf::registry())
        };
        let other = "[port.b]\ndevice = \"pcap:src/check.rs\"\n[[chain]]\npath = [\"b\", \"out\"]\n";
        let file = parse(in_, "cores = [1]", other).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(file.clock, Clock::Capture);
        let link = "[[chain]]\npath = [\"b\", \"tee\"]\n[[chain]]\npath = [\"tee.out\", \"out\"]\n";
        let link = format!("[port.b]\ndevice = \"pcap:src/check.rs\"\n{link}");
        for (input, chain, more, value, problem) in [
            ("[port.in]\ndevice = \"tap:lan\"", "", "", "tap:lan", "received from this device"),
            (&*format!("{in_}\ntimed = true"), "", "", "timed", "real time"),
            (in_, "cores = [1, 2]", "", "2", "one CPU"),
            (in_, "cores = [1]", &format!("{other}cores = [2]"), "2", "one CPU"),
            (in_, "rate = \"1 kpps\"", "", "chain1", "real time"),
            (in_, "priority = 1", "", "chain1", "real time"),
            (in_, "isolation = \"process\"", "", "clock", "its own clock"),
            (in_, "", &link, "tee.out", "rings"),
        ] {
            let errors = parse(input, chain, more).err().unwrap_or_else(|| panic!("{input} {chain} {more}"));
            let error = errors.iter().find(|error| error.value.as_deref() == Some(value));
            assert!(error.is_some_and(|error| error.problem.contains(problem)), "{value}: {errors:?}");
        }
        let text = "bondstone = 1\nclock = \"water\"\n";
        let errors = ChainFile::parse(text, Path::new("clock.toml"), &nf::registry()).err().expect("errors");
        let error = errors.iter().find(|error| error.line == Some(2)).unwrap_or_else(|| panic!("{errors:?}"));
        assert!(format!("{error:?}").contains("water"), "{errors:?}");
    }

    #[test]
    fn names_the_new_word_for_a_renamed_key() {
        let text = "bondstone = 1\n[port.p]\ndevice = \"null\"\n[wall.x]\ncores = [1]\n";
        let errors = ChainFile::parse(text, Path::new("old.toml"), &nf::registry()).err().expect("errors");
        let remedy = errors.iter().find(|error| error.line == Some(4)).and_then(|error| error.remedy.as_deref());
        assert_eq!(remedy, Some("it was renamed: write `sandbox`"));
    }
}
