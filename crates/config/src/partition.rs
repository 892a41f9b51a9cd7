//! Splits a checked chain file at its sandboxes: one partition for the host side and one for each sandbox.

mod leaving;

use crate::check::check_partition;
use crate::device::Device;
use crate::file::{self, OnPanic, Shuffle, Traffic};
use crate::plan::{ChainFile, Edge, NfSettings, Port, ServiceClass, Start};
use crate::sandbox::{Crossing, Isolation, Sandbox, Side, Transport};
use diagnostics::Diagnostic;
use graph::{NfKind, Registry, Representor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Name of the socket that all shared-memory rings of a sandbox use; no port can have it.
const RINGS: &str = ".rings";
/// Kind of the NF that distributes packets over the interfaces and queues of a sandbox.
const SPREAD: &str = "spread";

/// The part of a chain file that one side runs: the host process or the processes in one sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    side: Side,
    ports: Vec<PortSpec>,
    nfs: Vec<NfSettings>,
    chains: Vec<ChainSpec>,
    edges: Vec<Edge>,
    /// Length in bytes, without FCS, of the longest frame.
    max_frame: usize,
    /// Traffic of benchmarks, which only the host side generates.
    #[serde(skip)]
    traffic: Traffic,
    /// Text of the chain file, blank except for the NFs of the partition; errors in their settings are located in it.
    source: String,
}

/// A port of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortSpec {
    name: String,
    device: Device,
    descriptors: u16,
    repeat: u64,
    timed: bool,
    existing: bool,
    namespace: Option<String>,
    representor: Option<Representor>,
    /// True if the port is an end of a sandbox crossing.
    crosses: bool,
}

/// A chain of a partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainSpec {
    name: String,
    path: Vec<String>,
    cores: Vec<usize>,
    on_panic: OnPanic,
    shuffle: Option<Shuffle>,
    class: ServiceClass,
}

impl ChainSpec {
    /// Returns a chain with default options.
    fn plain(name: String, path: Vec<String>, cores: &[usize]) -> ChainSpec {
        let (on_panic, shuffle, class) = (OnPanic::default(), None, ServiceClass::DEFAULT);
        ChainSpec { name, path, cores: cores.to_vec(), on_panic, shuffle, class }
    }
}

impl PortSpec {
    /// Returns a port that the chain file declares, with the PCI address of its virtual function if it has one by now.
    fn declared(port: &Port, addresses: &BTreeMap<String, String>) -> PortSpec {
        let device = &port.device;
        PortSpec {
            name: port.name.clone(),
            device: addresses.get(&port.name).map_or_else(|| device.clone(), |at| device.with_pci_address(at)),
            descriptors: port.descriptors,
            repeat: port.repeat,
            timed: port.timed,
            existing: port.existing,
            namespace: port.namespace.clone(),
            representor: port.representor.clone(),
            crosses: false,
        }
    }

    /// Returns an end of a sandbox crossing.
    fn crossing(name: &str, device: Device) -> PortSpec {
        PortSpec {
            name: name.to_owned(),
            device,
            descriptors: Port::DESCRIPTORS,
            repeat: 1,
            timed: false,
            existing: false,
            namespace: None,
            representor: None,
            crosses: true,
        }
    }
}

/// Returns the socket of a port that crosses a sandbox boundary.
fn socket(folder: &Path, sandbox: &Sandbox, port: &str) -> PathBuf {
    sandbox.folder(folder).join(&sandbox.name).join(format!("{port}.sock"))
}

/// Returns the device arguments for a number of queues in each direction.
fn queue_arguments(queues: usize, more: &str) -> String {
    if queues > 1 { format!("queues={queues}{more}") } else { String::new() }
}

/// Returns the ports of all crossings of a sandbox, on one side.
fn crossing_ports(sandbox: &Sandbox, folder: &Path, side: Side, max_frame: usize) -> Result<Vec<PortSpec>, Diagnostic> {
    if sandbox.transport == Transport::Rings {
        let (socket, queues) = (socket(folder, sandbox, RINGS), sandbox.ports().count());
        let ring = |(queue, port)| PortSpec::crossing(port, Device::Rings { socket: socket.clone(), queue, queues });
        return Ok(sandbox.ports().enumerate().map(ring).collect());
    }
    let addresses: BTreeMap<&str, String> = sandbox.guest_addresses().collect();
    let mut ports = vec![];
    for interface in sandbox.interfaces() {
        let Some((first, further)) = interface.split_first() else { continue };
        let device = match (side, sandbox.isolation, addresses.get(&**first)) {
            (Side::Sandboxed, Isolation::Vm, Some(address)) => Device::with_address(address),
            _ => socket_device(sandbox, folder, first, interface.len(), side, max_frame)?,
        };
        ports.push(PortSpec::crossing(first, device));
        ports.extend(
            (1..)
                .zip(further)
                .map(|(queue, port)| PortSpec::crossing(port, Device::Queue { port: first.clone(), queue })),
        );
    }
    Ok(ports)
}

/// Returns the bytes of a memif buffer: at least those of a packet buffer.
fn memif_buffer(max_frame: usize) -> usize {
    packet::data_room(max_frame) + 256
}

/// Returns the device of a crossing by a UNIX socket.
fn socket_device(
    sandbox: &Sandbox,
    folder: &Path,
    port: &str,
    queues: usize,
    side: Side,
    max_frame: usize,
) -> Result<Device, Diagnostic> {
    let size = Sandbox::QUEUE_SIZE;
    let (kind, arguments) = match (side, sandbox.transport) {
        (Side::Host, Transport::Vhost) => ("vhost", queue_arguments(queues, "")),
        (Side::Sandboxed, Transport::Vhost) => {
            let queues = queue_arguments(queues, ",cq=1");
            ("virtio-user", format!("queue_size={size}{}{queues}", if queues.is_empty() { "" } else { "," }))
        }
        // the first process to open a memif socket is its server; a restarted client reconnects
        (Side::Host, _) => ("memif", String::new()),
        (Side::Sandboxed, transport) => {
            let zero_copy = if transport == Transport::MemifZeroCopy { ",zero-copy=yes" } else { "" };
            ("memif", format!("role=client,rsize={},bsize={}{zero_copy}", size.ilog2(), memif_buffer(max_frame)))
        }
    };
    let target = socket(folder, sandbox, port).display().to_string();
    let arguments = Some(arguments).filter(|arguments| !arguments.is_empty());
    Device::new(kind, &target, arguments.as_deref(), port)
        .map_err(|(problem, remedy)| Diagnostic::new(problem).value(&sandbox.name).remedy(remedy))
}

impl ChainFile {
    /// Returns the sockets of a sandbox below `folder`: one for each interface, or one for all rings.
    #[must_use]
    pub fn sandbox_sockets(&self, sandbox: &Sandbox, folder: &Path) -> Vec<PathBuf> {
        match sandbox.transport {
            Transport::Rings => vec![socket(folder, sandbox, RINGS)],
            _ => sandbox.interfaces().map(|ports| socket(folder, sandbox, &ports[0])).collect(),
        }
    }

    /// Returns the existing files that the settings of some NFs name, relative to the chain file.
    #[must_use]
    pub fn setting_files(&self, of: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        fn texts(value: &serde_json::Value, to: &mut Vec<String>) {
            match value {
                serde_json::Value::String(text) => to.push(text.clone()),
                serde_json::Value::Array(all) => all.iter().for_each(|value| texts(value, to)),
                serde_json::Value::Object(all) => all.values().for_each(|value| texts(value, to)),
                _ => {}
            }
        }
        let mut values = vec![];
        self.nfs.iter().filter(|nf| of(&nf.name)).for_each(|nf| texts(&nf.settings, &mut values));
        let mut files: Vec<PathBuf> = values.iter().map(|text| self.folder().join(text)).collect();
        files.retain(|path| path.is_file());
        files.sort();
        files.dedup();
        files
    }

    /// Returns the crossings of all sandboxes.
    fn crossings(&self) -> impl Iterator<Item = (&Sandbox, &Crossing)> {
        self.sandboxes.iter().flat_map(|sandbox| sandbox.crossings.iter().map(move |crossing| (sandbox, crossing)))
    }

    /// Plans the host side: chains end where they enter a sandbox and continue in another chain where they leave it.
    ///
    /// Sockets are below `folder`, chains without `cores` run on `cores`, and `addresses` holds the PCI addresses of
    /// the virtual functions that exist.
    ///
    /// # Errors
    /// Errors of the partition.
    pub fn host_side(
        &self,
        folder: &Path,
        cores: &[usize],
        addresses: &BTreeMap<String, String>,
        registry: &Registry,
    ) -> Result<ChainFile, Vec<Diagnostic>> {
        let partition = self.host_partition(folder, cores, addresses).map_err(|d| vec![self.of_file(d)])?;
        self.plan_host_side(&partition, registry)
    }

    fn plan_host_side(&self, partition: &Partition, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        let plan = partition.plan(&self.file, registry)?;
        Ok(ChainFile { clock: self.clock, idle: self.idle, ..plan })
    }

    fn host_partition(
        &self,
        folder: &Path,
        cores: &[usize],
        addresses: &BTreeMap<String, String>,
    ) -> Result<Partition, Diagnostic> {
        let sandboxed: BTreeSet<&str> = self.sandboxes.iter().flat_map(|s| &s.nfs).map(String::as_str).collect();
        let passthrough: BTreeSet<&str> =
            self.sandboxes.iter().flat_map(|s| &s.passthrough).map(String::as_str).collect();
        let own_ports = self.ports.iter().filter(|port| !passthrough.contains(&*port.name));
        let mut ports: Vec<PortSpec> = own_ports.map(|port| PortSpec::declared(port, addresses)).collect();
        for sandbox in &self.sandboxes {
            ports.extend(crossing_ports(sandbox, folder, Side::Host, self.max_frame)?);
        }
        let mut names: BTreeSet<String> = self.chains.iter().map(|chain| chain.name.clone()).collect();
        let mut chains = vec![];
        for n in 0..self.chains.len() {
            self.host_pieces(n, cores, &mut names, &mut chains);
        }
        for (_, crossing) in self.crossings() {
            if let (Some((_, to)), [port, ..]) = (crossing.kind.outbound(), &*crossing.ports) {
                let own = crossing.kind.inbound().map(|(n, _)| &*self.chains[n].cores).filter(|own| !own.is_empty());
                let name = unused_name(port, 0, &mut names);
                chains.push(ChainSpec::plain(name, vec![port.clone(), to.to_owned()], own.unwrap_or(cores)));
            }
        }
        let is_host = |nf: &str| !sandboxed.contains(nf);
        let spreading = self.crossings().filter(|(_, crossing)| crossing.ports.len() > 1);
        let spreading = spreading.map(|(sandbox, crossing)| {
            let settings = serde_json::json!({ "by": sandbox.spread, "ports": crossing.ports });
            NfSettings { name: crossing.spread_nf.clone(), kind: SPREAD.to_owned(), settings, spans: vec![] }
        });
        let edges = self.edge_names.iter().filter(|edge| is_host(edge.nf()));
        Ok(Partition {
            side: Side::Host,
            ports,
            nfs: self.nfs.iter().filter(|nf| is_host(&nf.name)).map(NfSettings::of).chain(spreading).collect(),
            chains,
            edges: edges.cloned().collect(),
            max_frame: self.max_frame,
            // a benchmark sends to no port that is in a sandbox
            traffic: if passthrough.is_empty() { self.traffic.clone() } else { Traffic::default() },
            source: self.text.clone(),
        })
    }

    /// Adds the parts of a chain on the host side.
    fn host_pieces(&self, n: usize, cores: &[usize], names: &mut BTreeSet<String>, to: &mut Vec<ChainSpec>) {
        let whole = &self.chains[n];
        let cores = if whole.cores.is_empty() { cores } else { &whole.cores };
        let inbound = self.crossings().filter_map(|(_, crossing)| {
            let (_, run) = crossing.kind.inbound().filter(|(of, _)| *of == n)?;
            Some((run, crossing))
        });
        let mut crossings: Vec<_> = inbound.collect();
        crossings.sort_by_key(|(run, _)| run.start);
        let (first, mut at, mut starts) = (&whole.path[0], 1, &whole.path[..1]);
        for (part, crossing) in (1..).zip(crossings.into_iter().map(Some).chain([None])) {
            // a chain may begin in a sandbox
            if let Some((run, crossing)) = crossing.filter(|(run, _)| run.start == 0) {
                (at, starts) = (run.end, &crossing.ports);
                continue;
            }
            let until = crossing.map_or(whole.path.len(), |(run, _)| run.start);
            for start in starts {
                let path: Vec<String> = std::iter::once(start.clone())
                    .chain(whole.path[at.min(until)..until].iter().map(|element| self.with_input(element, first)))
                    .chain(crossing.map(|(_, crossing)| crossing.host_path_end()))
                    .collect();
                // a path may end in a sandbox
                if path.len() == 1 {
                    continue;
                }
                let is_first = part == 1;
                to.push(ChainSpec {
                    name: if is_first { whole.name.clone() } else { unused_name(&whole.name, part, names) },
                    path,
                    cores: cores.to_vec(),
                    on_panic: whole.on_panic,
                    shuffle: (is_first && matches!(whole.from, Start::Link(_))).then_some(whole.shuffle),
                    class: ServiceClass { rate: whole.class.rate.filter(|_| is_first), ..whole.class },
                });
            }
            if let Some((run, crossing)) = crossing {
                (at, starts) = (run.end, &crossing.ports);
            }
        }
    }

    /// Checks that another program can be the switch between the sandboxes, which requires vhost-user ports.
    ///
    /// # Errors
    /// The first sandbox with another transport, or port that is passed through to a sandbox.
    pub fn check_external_switch(&self) -> Result<(), Diagnostic> {
        if let Some(port) = self.ports.iter().find(|port| port.sandbox.is_some()) {
            let d = Diagnostic::new("is passed through to a sandbox; an external switch needs all ports");
            return Err(self.of_file(d.value(&port.name).remedy(format!("remove sandbox from [port.{}]", port.name))));
        }
        let Some(sandbox) = self.sandboxes.iter().find(|sandbox| sandbox.transport != Transport::Vhost) else {
            return Ok(());
        };
        let problem = format!("has transport = {:?}; an external switch supports vhost only", sandbox.transport.name());
        let remedy = format!("remove transport from [sandbox.{}]", sandbox.name);
        Err(self.of_file(Diagnostic::new(problem).value(&sandbox.name).remedy(remedy)))
    }

    /// Returns the pairs of ports between which packets are forwarded, for a host side that only forwards.
    ///
    /// # Errors
    /// The first NF or option of a chain that an external switch does not support.
    pub fn port_pairs(&self) -> Result<Vec<(&str, &str)>, Diagnostic> {
        // added for the interfaces or queues of a sandbox
        if let Some(nf) = self.nfs.iter().find(|nf| nf.kind.name == SPREAD) {
            let d = Diagnostic::new(
                "spreads packets over several interfaces or queues, which an external switch does not support",
            );
            return Err(self.of_file(d.value(&nf.name).remedy("remove interfaces and queues from [sandbox.NAME]")));
        }
        if let Some(nf) = self.nfs.first() {
            let d = Diagnostic::new("is in no sandbox; an external switch runs no NFs").value(&nf.name);
            return Err(self.of_file(d.remedy("set isolation to \"process\", \"container\" or \"vm\"")));
        }
        if let Some(chain) = self.chains.iter().find(|chain| chain.class != ServiceClass::DEFAULT) {
            let d = Diagnostic::new("has a priority, a share or a rate, which an external switch does not support");
            return Err(self.of_file(d.value(&chain.name).remedy("remove the key")));
        }
        Ok(self.chains.iter().filter_map(|chain| Some((&**chain.path.first()?, &**chain.path.last()?))).collect())
    }

    /// Returns the partition of a sandbox. Sockets are below `folder`; `addresses` holds the PCI addresses of the
    /// virtual functions that exist.
    ///
    /// # Errors
    /// A socket path that is too long.
    pub fn sandbox_side(
        &self,
        sandbox: &Sandbox,
        folder: &Path,
        addresses: &BTreeMap<String, String>,
    ) -> Result<Partition, Diagnostic> {
        let is_guest = sandbox.isolation == Isolation::Vm;
        let in_guest = || sandbox.guest_addresses().map(|(port, address)| (port.to_owned(), address)).collect();
        let addresses = if is_guest { &in_guest() } else { addresses };
        let own = self.ports.iter().filter(|port| sandbox.passthrough.contains(&port.name));
        let mut ports: Vec<PortSpec> = own.map(|port| PortSpec::declared(port, addresses)).collect();
        ports.extend(crossing_ports(sandbox, folder, Side::Sandboxed, self.max_frame).map_err(|d| self.of_file(d))?);
        let cpus = if is_guest { (0..sandbox.cores.len()).collect() } else { sandbox.cores.clone() };
        let mut names: BTreeSet<String> = sandbox.ports().map(str::to_owned).collect();
        let (mut chains, mut edges, mut leaving) = (vec![], vec![], BTreeSet::new());
        for crossing in &sandbox.crossings {
            // a chain that never leaves the sandbox has no port
            for nth in 0..crossing.ports.len().max(1) {
                chains.extend(self.sandboxed_chain(crossing, nth, &cpus, &mut names));
            }
            // an output leads to one port
            if let (Some((from, _)), Some(port)) = (crossing.kind.outbound(), crossing.ports.first()) {
                leaving.insert(from);
                edges.push(Edge { from: from.to_owned(), to: port.clone() });
            }
        }
        let is_own = |nf: &str| sandbox.nfs.iter().any(|own| own == nf);
        let staying = self.edge_names.iter().filter(|edge| is_own(edge.nf()) && !leaving.contains(&*edge.from));
        edges.extend(staying.cloned());
        let nfs: Vec<NfSettings> = self.nfs.iter().filter(|nf| is_own(&nf.name)).map(NfSettings::of).collect();
        Ok(Partition {
            side: Side::Sandboxed,
            ports,
            source: self.source_of(&nfs),
            nfs,
            chains,
            edges,
            max_frame: self.max_frame,
            traffic: Traffic::default(),
        })
    }

    /// Returns the chain in a sandbox that the port `nth` of a crossing enters or leaves.
    fn sandboxed_chain(
        &self,
        crossing: &Crossing,
        nth: usize,
        cpus: &[usize],
        names: &mut BTreeSet<String>,
    ) -> Option<ChainSpec> {
        let port = crossing.ports.get(nth);
        let (n, run) = crossing.kind.inbound()?;
        let whole = &self.chains[n];
        let (enters, leaves) = (run.start > 0, run.end < whole.path.len());
        let nfs = whole.path[run.clone()].iter().map(|element| self.with_input(element, &whole.path[0]));
        let end = |is_there: bool| port.filter(|_| is_there).cloned();
        // each queue has a CPU of its own while there are enough
        let own = (crossing.ports.len() > 1).then(|| cpus.get(nth % cpus.len().max(1)).copied()).flatten();
        let name = port.map_or_else(|| unused_name(&whole.name, 1, names), String::clone);
        let mut chain =
            ChainSpec::plain(name, end(enters).into_iter().chain(nfs).chain(end(leaves)).collect(), own.as_slice());
        chain.on_panic = whole.on_panic;
        // the side that receives from the port of the chain applies priority, share and rate
        if !enters {
            chain.class = whole.class;
        }
        Some(chain)
    }

    /// Returns an element of a path with its input, which is named like the first port of the path if it is not given.
    fn with_input(&self, element: &str, first: &str) -> String {
        let interfaces = self.nfs.iter().any(|nf| nf.name == element && nf.has_interfaces());
        if interfaces { format!("{element}:{first}") } else { element.to_owned() }
    }

    /// Returns the text of the file, blank except for line ends and the settings of these NFs.
    fn source_of(&self, nfs: &[NfSettings]) -> String {
        let spans = || nfs.iter().flat_map(|nf| &nf.spans);
        let visible = |(at, byte): (usize, u8)| {
            let is_own = byte == b'\n' || spans().any(|(_, span)| span.contains(&at));
            if is_own { byte } else { b' ' }
        };
        let bytes: Vec<u8> = self.text.bytes().enumerate().map(visible).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn of_file(&self, d: Diagnostic) -> Diagnostic {
        Diagnostic { file: Some(self.file.clone()), ..d }
    }
}

impl Partition {
    /// Returns the kinds of its NFs that the registry has, once for each NF.
    pub fn kinds<'a>(&'a self, registry: &'a Registry) -> impl Iterator<Item = &'a NfKind> {
        self.nfs.iter().filter_map(|nf| registry.get(&nf.kind))
    }

    /// Plans the partition; `file` is the path of the chain file.
    ///
    /// # Errors
    /// Errors of the partition.
    pub fn plan(&self, file: &Path, registry: &Registry) -> Result<ChainFile, Vec<Diagnostic>> {
        fn at<T>(value: T) -> Spanned<T> {
            Spanned::new(0..0, value)
        }
        let strings = |all: &[String]| all.iter().cloned().map(at).collect();
        let chain = |spec: &ChainSpec| {
            at(file::Chain {
                cores: spec.cores.iter().copied().map(at).collect(),
                on_panic: spec.on_panic,
                shuffle: spec.shuffle.map(at),
                ..file::Chain::new(at(spec.name.clone()), at(strings(&spec.path)))
            })
        };
        let edge = |edge: &Edge| file::Edge { from: at(edge.from.clone()), to: at(edge.to.clone()) };
        let declared = |port: &PortSpec| (at(port.name.clone()), file::Port::new(at(port.device.to_string())));
        let parsed = file::File {
            port: self.ports.iter().map(declared).collect(),
            chain: self.chains.iter().map(chain).collect(),
            edge: self.edges.iter().map(edge).collect(),
            traffic: Some(at(self.traffic.clone())),
            ..file::File::default()
        };
        let port = |spec: &PortSpec| Port {
            name: spec.name.clone(),
            device: spec.device.clone(),
            descriptors: spec.descriptors,
            repeat: spec.repeat,
            timed: spec.timed,
            existing: spec.existing,
            namespace: spec.namespace.clone(),
            representor: spec.representor.clone(),
            received_from: false,
            sent_to: false,
            crossing_side: spec.crosses.then_some(self.side),
            sandbox: None,
            device_span: 0..0,
        };
        let mut ports: Vec<Port> = self.ports.iter().map(port).collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        let mut plan = check_partition(&parsed, ports, &self.nfs, &self.source, file, registry)?;
        for (chain, spec) in plan.chains.iter_mut().zip(&self.chains) {
            chain.class = spec.class;
        }
        plan.max_frame = self.max_frame;
        Ok(plan)
    }
}

/// Returns a name that is not in `taken`, and adds it there: `name`, shortened to the limit of names, and the first unused
/// number from `part`, or 1.
pub fn unused_name(name: &str, part: usize, taken: &mut BTreeSet<String>) -> String {
    let of = |n: usize| {
        let number = format!("-{n}");
        format!("{}{number}", &name[..name.len().min(32 - number.len())])
    };
    let unused = (part.max(1)..).map(of).find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(unused.clone());
    unused
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Target;

    fn port_pairs(chains: &str) -> Result<Vec<(String, String)>, Option<String>> {
        let is_used = |name: &str| chains.contains(&format!("\"{name}\""));
        let ports = ["a", "b", "c"].into_iter().filter(|port| is_used(port));
        let ports: String = ports.map(|port| format!("port.{port}.device = \"null\"\n")).collect();
        let nfs = [("x", "count", "process"), ("y", "tee", "process"), ("near", "count", "inproc")];
        let nf = |(name, kind, isolation)| format!("[nf.{name}]\nkind = \"{kind}\"\nisolation = \"{isolation}\"\n");
        let nfs: String = nfs.into_iter().filter(|(name, ..)| is_used(name)).map(nf).collect();
        let text = format!("bondstone = 1\n{ports}{chains}\n{nfs}");
        let file = ChainFile::parse(&text, Path::new("test.toml"), &nf::registry())
            .unwrap_or_else(|errors| panic!("{errors:?}"));
        let side = file.host_side(Path::new("/run"), &[], &BTreeMap::new(), &nf::registry()).unwrap();
        let pairs = side.port_pairs().map_err(|d| d.value)?;
        Ok(pairs.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect())
    }

    fn strings(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| text.to_string()).collect()
    }

    /// Returns a file with a bridge `r` in a sandbox, its host side, and its sandboxed side.
    fn both_sides(written: &str, ports_of_r: &str) -> [ChainFile; 3] {
        let (path, registry, is_used) =
            (Path::new("test.toml"), nf::registry(), |name: &str| written.contains(&format!("\"{name}\"")));
        let ports = ["a", "b", "c"].into_iter().filter(|port| is_used(port));
        let ports: String = ports.map(|port| format!("port.{port}.device = \"null\"\n")).collect();
        let near = if is_used("near") { "[nf.near]\nkind = \"count\"\n" } else { "" };
        let text = format!(
            "bondstone = 1\n{ports}{written}\n{near}\
             [nf.r]\nkind = \"bridge\"\nports = [{ports_of_r}]\nisolation = \"process\"\n"
        );
        let file = ChainFile::parse(&text, path, &registry).unwrap_or_else(|errors| panic!("{text}{errors:?}"));
        let side = file.host_side(Path::new("/run"), &[], &BTreeMap::new(), &registry).unwrap();
        let partition = file.sandbox_side(&file.sandboxes[0], Path::new("/run"), &BTreeMap::new()).unwrap();
        let received: Partition = serde_json::from_str(&serde_json::to_string(&partition).unwrap()).unwrap();
        let host = received.plan(path, &registry);
        let host = host.unwrap_or_else(|errors| panic!("{text}{errors:?}"));
        [file, side, host]
    }

    /// A passthrough device is opened in the sandbox; only chains with a part on the host side cross the boundary.
    #[test]
    fn passthrough_ports_are_opened_in_the_sandbox() {
        let (path, registry) = (Path::new("test.toml"), nf::registry());
        let read = |passthrough: &[&str], written: &str| {
            let port = |(name, n): (&str, usize)| {
                let sandbox = if passthrough.contains(&name) { "sandbox = \"x\"\n" } else { "" };
                format!("[port.{name}]\ndevice = \"0000:01:00.{n}\"\n{sandbox}")
            };
            let is_used = |name: &str| written.contains(&format!("\"{name}\""));
            let ports = [("a", 0), ("b", 1), ("c", 2)].into_iter().filter(|(name, _)| is_used(name));
            let ports: String = ports.map(port).collect();
            let nfs =
                [("near", "count", "inproc"), ("x", "tee", "process")].into_iter().filter(|(name, ..)| is_used(name));
            let nf = |(name, kind, isolation)| format!("[nf.{name}]\nkind = \"{kind}\"\nisolation = \"{isolation}\"\n");
            let text = format!("bondstone = 1\n{ports}{}{written}", nfs.map(nf).collect::<String>());
            (ChainFile::parse(&text, path, &registry), text)
        };
        let functions: BTreeMap<String, String> = [("a".to_owned(), "0000:01:10.0".to_owned())].into_iter().collect();
        for (passthrough, written, near, far) in [
            (&["a", "b"][..], "[[chain]]\npath = [\"a\", \"x\", \"b\"]", &[][..], &["a x b"][..]),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]", &["x-1 b"], &["a x x-1"]),
            (&["b"], "[[chain]]\npath = [\"a\", \"near\", \"x\", \"b\"]", &["a near x-1"], &["x-1 x b"]),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"near\", \"b\"]", &["x-1 near b"], &["a x x-1"]),
            // outputs to a passthrough port stay in the sandbox
            (
                &["b", "c"],
                "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[[edge]]\nfrom = \"x.copy\"\nto = \"c\"",
                &["a x-1"],
                &["x-1 x b"],
            ),
            (
                &["a", "b"],
                "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[[edge]]\nfrom = \"x.copy\"\nto = \"c\"",
                &["x-1 c"],
                &["a x b"],
            ),
        ] {
            let (file, text) = read(passthrough, written);
            let file = file.unwrap_or_else(|errors| panic!("{text}{errors:?}"));
            let side = file.host_side(Path::new("/run"), &[], &functions, &registry).unwrap();
            let host = file
                .sandbox_side(&file.sandboxes[0], Path::new("/run"), &functions)
                .unwrap()
                .plan(path, &registry)
                .unwrap();
            let paths = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.join(" ")).collect::<Vec<_>>();
            assert_eq!((paths(&side), paths(&host)), (strings(near), strings(far)), "{text}");
            for port in &file.ports {
                let is_passthrough = passthrough.contains(&&*port.name);
                let [here, there] = [&side, &host]
                    .map(|side| side.ports.iter().find(|own| own.name == port.name).map(|own| &own.device));
                assert_eq!((here.is_some(), there.is_some()), (!is_passthrough, is_passthrough), "{text}{}", port.name);
                let address = functions.get(&port.name).map(String::as_str).or(port.device.pci_address());
                assert_eq!(here.or(there).and_then(Device::pci_address), address, "{text}{}", port.name);
            }
        }
        // PCI addresses in a guest: crossings first
        let (file, _) = read(&["b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]");
        let mut sandbox = file.unwrap().sandboxes.remove(0);
        sandbox.isolation = Isolation::Vm;
        assert_eq!(
            sandbox.guest_addresses().collect::<Vec<_>>(),
            [("x-1", Sandbox::pci_address(0)), ("b", Sandbox::pci_address(1))]
        );
        for keys in
            ["queues = 0", "queues = 4000000000", "queues = 2\ntransport = \"memif-zero-copy\"", "interfaces = 0"]
        {
            let text = format!("[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[sandbox.x]\n{keys}");
            assert_eq!(read(&[], &text).0.err().map(|errors| errors.len()), Some(1), "{keys}");
        }
        for (passthrough, written, value) in [
            (&["a"][..], "[[chain]]\npath = [\"a\", \"near\", \"x\", \"b\"]", "a"),
            (&["b"], "[[chain]]\npath = [\"a\", \"x\", \"near\", \"b\"]", "b"),
            (&["b"], "[[chain]]\npath = [\"a\", \"near\", \"b\"]", "x"),
            (&["a"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[sandbox.x]\ntransport = \"rings\"", "x"),
            (&["a", "b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[sandbox.x]\ninterfaces = 2", "2"),
            (&["a", "b"], "[[chain]]\npath = [\"a\", \"x\", \"b\"]\n[sandbox.x]\nqueues = 3", "3"),
        ] {
            let (file, text) = read(passthrough, written);
            let errors = file.err().unwrap_or_else(|| panic!("{text}"));
            assert!(errors.iter().any(|error| error.value.as_deref() == Some(value)), "{text}{errors:?}");
        }
    }

    #[test]
    fn port_pairs_connect_crossings() {
        let is = |chains: &str, expected: &[(&str, &str)]| {
            let expected = expected.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect::<Vec<_>>();
            assert_eq!(port_pairs(chains), Ok(expected), "{chains}");
        };
        // one chain; both directions; an output that only leaves
        is("chain = [{ path = [\"a\", \"x\", \"y\", \"b\"] }]", &[("a", "x-1"), ("x-1", "y-1"), ("y-1", "b")]);
        is(
            "chain = [{ path = [\"a\", \"x\", \"b\"] }, { path = [\"b\", \"x\", \"a\"] }]",
            &[("a", "x-1"), ("x-1", "b"), ("b", "x-2"), ("x-2", "a")],
        );
        is(
            "chain = [{ path = [\"a\", \"y\", \"b\"] }]\nedge = [{ from = \"y.copy\", to = \"c\" }]",
            &[("a", "y-1"), ("y-1", "b"), ("y-2", "c")],
        );
        let bridge = both_sides("chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]", "\"a\", \"b\"");
        assert_eq!(bridge[1].port_pairs().unwrap(), [("a", "r-1"), ("b", "r-2"), ("r-1", "a"), ("r-2", "b")]);
        let path = "chain = [{ path = [\"a\", \"near\", \"x\", \"b\"] }]";
        assert_eq!(port_pairs(path), Err(Some("near".to_owned())));
        let rate = "chain = [{ name = \"slow\", path = [\"a\", \"x\", \"b\"], rate = \"1 kpps\" }]";
        assert_eq!(port_pairs(rate), Err(Some("slow".to_owned())));
    }

    /// Interfaces of an NF retain their names; one crossing serves both directions of an interface.
    #[test]
    fn an_interface_has_one_crossing() {
        // file; paths of the host side; paths of the sandbox; targets of the outputs "control", "a" and "b" in the
        // sandbox
        for (written, near, far, outputs) in [
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]",
                &["a r-1", "b r-2", "r-1 a", "r-2 b"][..],
                &["r-1 r:a", "r-2 r:b"][..],
                ["", "r-1", "r-2"],
            ),
            // an interface with another name than the port, after an NF
            (
                "chain = [{ path = [\"c\", \"near\", \"r:a\"] }, { path = [\"b\", \"r\"] }]\n\
                 edge = [{ from = \"r.a\", to = \"c\" }, { from = \"r.control\", to = \"c\" }]",
                &["c near r-1", "b r-2", "r-1 c", "r-2 b", "r-3 c"],
                &["r-1 r:a", "r-2 r:b"],
                ["r-3", "r-1", "r-2"],
            ),
            // the path continues, also for packets that return by the same crossing
            (
                "chain = [{ path = [\"a\", \"r\", \"c\"] }, { path = [\"b\", \"r\"] }]",
                &["a r-1", "r-1 c", "b r-2", "r-2 b", "r-3 a"],
                &["r-1 r:a r-1", "r-2 r:b"],
                ["", "r-3", "r-2"],
            ),
            // two paths to one interface
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"c\", \"r:a\"] }]",
                &["a r-1", "c r-2", "r-1 a"],
                &["r-1 r:a", "r-2 r:a"],
                ["", "r-1", ""],
            ),
            (
                "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]\nsandbox.r.interfaces = 2",
                &["a r-3:in", "b r-6:in", "r-1 a", "r-4 b"],
                &["r-1 r:a", "r-2 r:a", "r-4 r:b", "r-5 r:b"],
                ["", "r-1", "r-4"],
            ),
        ] {
            let [file, side, host] = both_sides(written, "\"a\", \"b\"");
            let paths = |file: &ChainFile| file.chains.iter().map(|chain| chain.path.join(" ")).collect::<Vec<_>>();
            assert_eq!((paths(&side), paths(&host)), (strings(near), strings(far)), "{written}");
            let to = |target: &Target| match target {
                Target::Port(port) => host.ports[usize::from(*port)].name.clone(),
                _ => String::new(),
            };
            assert_eq!(host.edges[0].iter().map(to).collect::<Vec<_>>(), outputs, "{written}");
            assert_eq!(host.nfs[0].inputs, file.nfs.iter().find(|nf| nf.name == "r").unwrap().inputs);
        }
        // queues of one device
        let queues = "chain = [{ path = [\"a\", \"r\"] }, { path = [\"b\", \"r\"] }]\nsandbox.r.queues = 2";
        let [file, side, host] = both_sides(queues, "\"a\", \"b\"");
        let folder = Path::new("/run");
        let sockets = ["/run/r/r-1.sock", "/run/r/r-4.sock"].map(PathBuf::from);
        assert_eq!(file.sandbox_sockets(&file.sandboxes[0], folder), sockets);
        let addresses = [("r-1", Sandbox::pci_address(0)), ("r-4", Sandbox::pci_address(1))];
        assert_eq!(file.sandboxes[0].guest_addresses().collect::<Vec<_>>(), addresses);
        for (part, of_first) in [(side, "queues=2"), (host, "queues=2,cq=1")] {
            let devices = |port: &Port| (port.name.clone(), port.device.clone());
            let devices: BTreeMap<String, Device> = part.ports.iter().map(devices).collect();
            for (first, second) in [("r-1", "r-2"), ("r-4", "r-5")] {
                assert!(devices[first].to_string().ends_with(of_first), "{:?}", devices[first]);
                assert_eq!(devices[second], Device::Queue { port: first.to_owned(), queue: 1 });
            }
        }
        // no crossing port has the name of an interface, whose output would lead to it
        let [file, ..] = both_sides("chain = [{ path = [\"a\", \"r\"] }]", "\"a\", \"r-1\"");
        assert_eq!(file.sandboxes[0].ports().collect::<Vec<_>>(), ["r-2"]);
    }
}
