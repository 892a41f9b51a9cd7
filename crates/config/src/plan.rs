//! The plan of a checked chain file.

use crate::device::Device;
use crate::file::{Clock, OnPanic, Shuffle, Traffic};
use crate::sandbox::{Idle, Isolation, Sandbox, Side};
use crate::source::Source;
use diagnostics::Diagnostic;
use graph::{
    Blueprint, BuildContext, ControlPlane, Factory, Hop, HopPlan, NfKind, Node, NodePlan, Rate, Representor, Segment,
    Spread, SteerFn, Target,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;

/// A parsed and checked chain file.
#[derive(Clone)]
pub struct ChainFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Text of the file.
    pub text: String,
    /// Number of copies of the parts that contain `${copy}`.
    pub copies: Option<u32>,
    /// Host whose part of the file this is, if the file describes several.
    pub host: Option<String>,
    /// Clock of the NFs.
    pub clock: Clock,
    /// Length in bytes, without FCS, of the longest frame that packets hold.
    pub max_frame: usize,
    /// Behaviour of the workers while no packets arrive.
    pub idle: Idle,
    /// Ports, sorted by name.
    pub ports: Vec<Port>,
    /// NFs: first those with a table, in its order, then those that paths name by their kind.
    pub nfs: Vec<NfConfig>,
    /// Chains, in the order of the file.
    pub chains: Vec<Chain>,
    /// Warnings about settings that are valid but probably unintended.
    pub warnings: Vec<Diagnostic>,
    /// Traffic that a benchmark sends.
    pub traffic: Traffic,
    /// Outputs with which chains begin. The target of the `n`th is [`Target::Port`] with the number of ports plus `n`.
    pub links: Vec<Link>,
    /// Sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Compiled segments of the registry.
    pub segments: Vec<Segment>,
    /// Hops of all chains.
    pub(crate) hops: Vec<HopPlan>,
    /// Targets of the outputs of each NF; the first is unused.
    pub(crate) edges: Vec<Vec<Target>>,
    /// Edges as the file names them.
    pub(crate) edge_names: Vec<Edge>,
}

/// An edge from an output `NF.OUTPUT` to an NF, `NF:INPUT` or a port.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edge {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Edge {
    /// Returns the name of the NF whose output it is.
    pub(crate) fn nf(&self) -> &str {
        self.from.split('.').next().unwrap_or_default()
    }
}

/// A port of the file.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Device.
    pub device: Device,
    /// Descriptors of each queue.
    pub descriptors: u16,
    /// Number of times that a capture is read; 0: until the run is stopped.
    pub repeat: u64,
    /// True if packets of a capture are received at the times at which they were captured.
    pub timed: bool,
    /// True if the tap exists before the run; otherwise it is created, and must not exist.
    pub existing: bool,
    /// Network namespace into which the tap is moved, as `ip netns` names it.
    pub namespace: Option<String>,
    /// Interface of an NF that a control plane uses through the port.
    pub representor: Option<Representor>,
    /// True if a chain begins with the port.
    pub received_from: bool,
    /// True if packets leave by the port.
    pub sent_to: bool,
    /// Side of the sandbox boundary, if the port is an end of a crossing.
    pub crossing_side: Option<Side>,
    /// Sandbox to which the device is passed through.
    pub sandbox: Option<String>,
    /// Span of the device in the file.
    pub(crate) device_span: Range<usize>,
}

impl Port {
    /// Descriptors of a queue by default.
    pub(crate) const DESCRIPTORS: u16 = 1024;
    /// Ports of a file.
    pub(crate) const MAX: usize = 1024;
    /// Ports of a file that DPDK opens (`RTE_MAX_ETHPORTS`).
    pub(crate) const MAX_OF_DPDK: usize = 32;

    /// Returns the name of the tap, if the device is one.
    #[must_use]
    pub fn tap(&self) -> Option<&str> {
        self.device.scheme_and_target().filter(|(scheme, _)| *scheme == "tap").map(|(_, name)| name)
    }

    /// Returns the name of the tap of a representor, which is created without DPDK.
    #[must_use]
    pub fn representor_tap(&self) -> Option<&str> {
        self.tap().filter(|_| self.representor.is_some())
    }

    /// Returns true if DPDK opens the device.
    pub(crate) fn is_of_dpdk(&self) -> bool {
        matches!(self.device, Device::Dpdk { .. }) && self.representor_tap().is_none()
    }

    /// Returns a port with a device that needs nothing.
    pub(crate) fn blank(name: &str) -> Port {
        Port {
            name: name.to_owned(),
            device: Device::blank(name),
            descriptors: Port::DESCRIPTORS,
            repeat: 1,
            timed: false,
            existing: false,
            namespace: None,
            representor: None,
            received_from: false,
            sent_to: false,
            crossing_side: None,
            sandbox: None,
            device_span: 0..0,
        }
    }
}

/// Spans in the file of an NF's name (key `""`) and settings.
pub(crate) type SettingSpans = Vec<(String, Range<usize>)>;

/// An NF of the file.
#[derive(Clone)]
pub struct NfConfig {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: NfKind,
    /// Parsed settings, from which nodes are built.
    pub factory: Arc<dyn Factory>,
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Value of its key `isolation`.
    pub isolation: Option<Isolation>,
    /// Number of the copy, from 1, if the name of its table contains `${copy}`.
    pub copy: Option<u32>,
    /// Value of its key `host`.
    pub(crate) host: Option<Spanned<String>>,
    /// Settings as written.
    pub(crate) settings: serde_json::Value,
    /// Spans of the settings, to locate errors that building finds.
    pub(crate) setting_spans: SettingSpans,
}

impl NfConfig {
    pub(crate) fn new(
        name: String,
        kind: NfKind,
        factory: Box<dyn Factory>,
        settings: serde_json::Value,
        setting_spans: SettingSpans,
        isolation: Option<Isolation>,
    ) -> Self {
        let interfaces = factory.interfaces();
        let and = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).chain(interfaces.iter().cloned()).collect();
        let (inputs, outputs) = (and(kind.inputs), and(kind.outputs));
        NfConfig {
            inputs,
            outputs,
            name,
            kind,
            factory: factory.into(),
            settings,
            setting_spans,
            isolation,
            copy: None,
            host: None,
        }
    }

    /// Returns the settings as JSON, for another process to compare with its own.
    #[must_use]
    pub fn settings_json(&self) -> String {
        self.settings.to_string()
    }

    /// Returns the settings on which the state of the NF depends and that are different in `other`, of
    /// [`settings_json`](NfConfig::settings_json). All are different if it is no JSON.
    #[must_use]
    pub fn state_differs(&self, other: &str) -> Vec<&'static str> {
        let other = serde_json::from_str(other).unwrap_or(serde_json::Value::Null);
        let depends = self.kind.takes_over.map_or(&[][..], |state| state.unless).iter().copied();
        depends.filter(|&key| other.is_null() || self.settings.get(key) != other.get(key)).collect()
    }

    /// Builds the NF only to validate its settings.
    pub(crate) fn build_checked(&self, source: Source<'_>) -> Result<Box<dyn Node>, Diagnostic> {
        let folder = folder(source.file).to_owned();
        let name = self.name.clone();
        let cx = BuildContext { name, base_dir: folder, copy: (0, 1), check_only: true, ..Default::default() };
        self.factory.build(&cx).map_err(|d| self.locate(source, d))
    }

    /// Returns an error from building the NF with its location in the file.
    fn locate(&self, source: Source<'_>, mut d: Diagnostic) -> Diagnostic {
        let span = d.key.and_then(|key| self.setting_spans.iter().find(|(k, _)| k == key));
        d.problem = format!("nf {:?} ({}): {}", self.name, self.kind.name, d.problem);
        match span.or(self.setting_spans.first()) {
            Some((_, span)) => source.locate(span.clone(), d),
            None => Diagnostic { file: Some(source.file.to_owned()), ..d },
        }
    }

    /// Returns the span of a setting, or of the NF's name.
    pub(crate) fn span_of(&self, key: &str) -> Range<usize> {
        let span = self.setting_spans.iter().find(|(k, _)| k == key).or(self.setting_spans.first());
        span.map_or(0..0, |(_, span)| span.clone())
    }

    /// Returns true if the settings define interfaces; paths may end with such an NF.
    pub(crate) fn has_interfaces(&self) -> bool {
        self.outputs.len() > self.kind.outputs.len()
    }
}

/// An NF as it is sent to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NfSettings {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) settings: serde_json::Value,
    pub(crate) spans: SettingSpans,
}

impl NfSettings {
    pub(crate) fn of(nf: &NfConfig) -> NfSettings {
        NfSettings {
            name: nf.name.clone(),
            kind: nf.kind.name.to_owned(),
            settings: nf.settings.clone(),
            spans: nf.setting_spans.clone(),
        }
    }
}

/// An output of an NF with which a chain begins, usually on other cores.
#[derive(Clone, Debug)]
pub struct Link {
    /// `NF.OUTPUT`.
    pub name: String,
    /// Index of the chain.
    pub chain: usize,
}

/// Service that a chain gets beside others on the same worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceClass {
    /// Priority; chains with packets and a higher priority run first.
    pub priority: u8,
    /// Share of the cycles of the chains with the same priority, on each worker.
    pub share: u32,
    /// Maximum rate on all workers together.
    pub rate: Option<Rate>,
}

impl ServiceClass {
    /// Service class of a chain without the keys `priority`, `share` and `rate`.
    pub const DEFAULT: ServiceClass = ServiceClass { priority: 0, share: 1, rate: None };
}

/// Source of a chain's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Index of a port.
    Port(usize),
    /// Index of a link.
    Link(usize),
}

/// The distribution of the packets of a chain over its cores that NFs require: those that the packets reach, and those
/// of other chains that have such NFs in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreading {
    /// The strictest requirement.
    pub requirement: Spread,
    /// Index of the NF whose steering function chooses the core, and the input by which the packets reach it.
    pub steered_by: Option<(usize, u8)>,
    /// True if the requirement includes packets that other ports or links receive, so that all must use one key.
    pub is_shared: bool,
}

impl Default for Spreading {
    fn default() -> Spreading {
        Spreading { requirement: Spread::Any, steered_by: None, is_shared: false }
    }
}

/// A chain of the file.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Name.
    pub name: String,
    /// Source of its packets.
    pub from: Start,
    /// Distribution of the packets of a link over the cores.
    pub shuffle: Shuffle,
    /// Distribution of the packets over the cores that its NFs require.
    pub spreading: Spreading,
    /// Service beside other chains on the same worker.
    pub class: ServiceClass,
    /// Target of the received packets.
    pub entry: Target,
    /// Path as written.
    pub path: Vec<String>,
    /// CPUs that run a copy of it; empty: chosen at the start.
    pub cores: Vec<usize>,
    /// Treatment of packets whose NF has panicked.
    pub(crate) on_panic: OnPanic,
    /// Error for each CPU, for CPUs that do not exist.
    pub(crate) cpu_errors: Vec<(usize, Diagnostic)>,
}

/// The part of a file that one worker runs.
#[derive(Clone, Debug, Default)]
pub struct WorkerPlan {
    /// Graph; ports are indices of [`ChainFile::ports`].
    pub blueprint: Blueprint,
    /// Index of the NF of each node.
    pub nfs: Vec<usize>,
    /// Target of the received packets of each requested chain, in order.
    pub entries: Vec<Target>,
}

impl ChainFile {
    /// Returns the number of hops of all chains. A packet visits each at most once, as paths have no loops.
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// Returns the distribution of the packets that are received from a port.
    pub fn spreading(&self, port: usize) -> Spreading {
        let chain = self.chains.iter().find(|chain| chain.from == Start::Port(port));
        chain.map(|chain| chain.spreading).unwrap_or_default()
    }

    /// Returns the steering function over `copies` copies of the NF that chooses the core, if one does, and the input
    /// by which the packets reach it.
    pub fn steering(&self, spreading: Spreading, copies: usize) -> Option<(SteerFn, u8)> {
        let (nf, input) = spreading.steered_by?;
        Some((self.nfs[nf].factory.steering(copies)?, input))
    }

    /// Returns the chains that have a part on the host side.
    pub fn host_chains(&self) -> impl Iterator<Item = &Chain> {
        let crossings = || self.sandboxes.iter().flat_map(|sandbox| &sandbox.crossings);
        let is_sandboxed = move |n: usize| {
            crossings().any(|of| of.ports.is_empty() && of.kind.inbound().is_some_and(|(own, _)| own == n))
        };
        self.chains.iter().enumerate().filter(move |(n, _)| !is_sandboxed(*n)).map(|(_, chain)| chain)
    }

    /// Returns the control planes of the tenants of all NFs.
    pub fn control_planes(&self) -> Vec<ControlPlane> {
        let mut planes: Vec<ControlPlane> = self.nfs.iter().flat_map(|nf| nf.factory.control_planes()).collect();
        for config in planes.iter_mut().filter_map(|plane| plane.frr.as_mut()?.config.as_mut()) {
            *config = self.folder().join(&*config);
        }
        planes
    }

    /// Returns the folder that relative paths in the file refer to.
    pub fn folder(&self) -> &Path {
        folder(&self.file)
    }

    /// Returns the part of the graph that the chains with these indices reach.
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

    /// Returns an error for each CPU that the file names and `allowed` does not contain.
    pub fn unavailable_cpus(&self, allowed: &[usize]) -> Vec<Diagnostic> {
        let all =
            self.chains.iter().flat_map(|c| &c.cpu_errors).chain(self.sandboxes.iter().flat_map(|w| &w.cpu_errors));
        let unavailable = all.filter(|(cpu, _)| !allowed.contains(cpu));
        let list = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        unavailable.map(|(_, d)| d.clone().remedy(format!("use CPUs of: {list}"))).collect()
    }

    /// Returns an error of the device of a port with its location in the file.
    pub fn locate_device(&self, port: usize, d: Diagnostic) -> Diagnostic {
        let port = &self.ports[port];
        let d = Diagnostic { value: d.value.or_else(|| Some(port.device.to_string())), ..d };
        Source { text: &self.text, file: &self.file }.locate(port.device_span.clone(), d)
    }

    /// Builds every NF with the settings of the file, and returns the errors.
    pub fn build_errors(&self) -> Vec<Diagnostic> {
        (0..self.nfs.len()).filter_map(|nf| self.build_checked(nf).err()).collect()
    }

    /// Builds an NF only to validate its settings ([`BuildContext::check_only`]).
    ///
    /// # Errors
    /// An invalid setting.
    pub fn build_checked(&self, nf: usize) -> Result<Box<dyn Node>, Diagnostic> {
        self.nfs[nf].build_checked(Source { text: &self.text, file: &self.file })
    }

    /// Returns an error from building an NF with its location in the file.
    pub fn locate(&self, nf: usize, d: Diagnostic) -> Diagnostic {
        self.nfs[nf].locate(Source { text: &self.text, file: &self.file }, d)
    }
}

/// Returns the folder that relative paths in a file refer to.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}
