//! Network functions: kind, settings, inputs, outputs, and how nodes are built from them.

use crate::node::Node;
use crate::setting_files::{SettingFile, SettingFiles};
use diagnostics::Diagnostic;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A network function: its kind, its settings, and how its nodes are built.
///
/// [`build`](Nf::build) runs on the control thread, once for each core that runs the NF; the node then moves to that
/// core. State in the node needs no lock. Add the NF to a [`Registry`](crate::Registry) to make it available in chain
/// files. The [crate documentation](crate) shows a complete NF.
pub trait Nf: 'static {
    /// Settings in the chain file. Every field has a default, and doc comments become the help text. Derive with
    /// `#[serde(default, deny_unknown_fields)]`.
    type Settings: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;
    /// Name of the kind in a chain file.
    const KIND: &'static str;
    /// Description in a sentence.
    const ABOUT: &'static str;
    /// Spreading requirement of the NF.
    const SPREAD: Spread = Spread::Any;
    /// Properties of [`steering`](Nf::steering), for NFs with [`Spread::Custom`], or of the operator
    /// [`shuffle`](crate::Operator::shuffle), for NFs with which a path with `shuffle = "metadata"` begins.
    const STEERING: Steering = Steering::UNKNOWN;
    /// True if the NF changes addresses, ports or outer headers, by which packets were spread when they were received.
    /// NFs with a spreading requirement behind it then need one core, or a path of their own. False for
    /// [`Spread::Custom`], where [`STEERING`](Nf::STEERING) applies.
    const REWRITES: bool = false;
    /// Names of the inputs. A path enters by the first one unless it names another as `nf:input`.
    const INPUTS: &'static [&'static str] = &["in"];
    /// Names of the outputs. A path continues from the first one.
    const OUTPUTS: &'static [&'static str] = &["out"];
    /// Returns the names of additional interfaces that the settings define. Each is an input and an output, numbered
    /// after [`INPUTS`](Nf::INPUTS) and [`OUTPUTS`](Nf::OUTPUTS). A path may end at an NF with interfaces; it enters by
    /// the interface with the name of its port, and the output with the name of a port leads to that port.
    fn interfaces(_: &Self::Settings) -> Vec<String> {
        vec![]
    }
    /// Returns the representors that the settings of the NF `name` define, which [`interfaces`](Nf::interfaces) includes.
    /// Each needs a port, and a path that begins with it.
    fn representors(_: &Self::Settings, _name: &str) -> Vec<Representor> {
        vec![]
    }
    /// Returns the control planes that run in namespaces of their own with these settings.
    fn control_planes(_: &Self::Settings) -> Vec<ControlPlane> {
        vec![]
    }
    /// Returns the servers to which routing daemons send routes with these settings.
    fn route_servers(_: &Self::Settings) -> Vec<RouteServer> {
        vec![]
    }
    /// Returns the spreading requirement with these settings, if weaker than [`SPREAD`](Nf::SPREAD).
    fn spread(_: &Self::Settings) -> Spread {
        Self::SPREAD
    }
    /// Returns the function that chooses one of `copies` copies for a packet, for NFs with [`Spread::Custom`]. Returns
    /// `None` if the settings are invalid; [`build`](Nf::build) then reports the error.
    ///
    /// ```
    /// # use diagnostics::Diagnostic;
    /// # use graph::{BuildContext, Nf, Node, NoSettings, Operator, Spread, SteerFn, frame};
    /// # use std::sync::Arc;
    /// # struct ByPort;
    /// # impl Nf for ByPort {
    /// #     type Settings = NoSettings;
    /// #     const KIND: &'static str = "by-port";
    /// #     const ABOUT: &'static str = "Keeps state of the inner UDP port.";
    /// #     const SPREAD: Spread = Spread::Custom;
    /// fn steering(_: &NoSettings, copies: usize) -> Option<SteerFn> {
    ///     Some(Arc::new(move |_input, frame| {
    ///         let port = frame.get(34..36).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
    ///         usize::from(port) % copies
    ///     }))
    /// }
    /// #     fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
    /// #         Ok(frame().compose())
    /// #     }
    /// # }
    /// let copy_of = ByPort::steering(&NoSettings {}, 4).unwrap();
    /// assert_eq!((copy_of(0, &[0; 60]), copy_of(0, &[1; 60])), (0, 257 % 4));
    /// ```
    fn steering(_: &Self::Settings, _copies: usize) -> Option<SteerFn> {
        None
    }
    /// State that nodes [take over](Node::take_over) when a reload changes the settings, if they do.
    const TAKES_OVER: Option<TakeOver> = None;
    /// Loads shared libraries that [`build`](Nf::build) uses, because it cannot open them in a sandboxed process. Called
    /// there before files are hidden and privileges dropped, and not elsewhere.
    fn preload() {}
    /// Example settings, in the syntax of a chain file, without the line `kind = ...`.
    const EXAMPLE: &'static str = "";

    /// Builds a node.
    ///
    /// # Errors
    /// An invalid setting; name it with [`Diagnostic::key`].
    fn build(settings: &Self::Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic>;
}

/// State that a new node of an NF takes over from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeOver {
    /// The state, such as `connections`.
    pub state: &'static str,
    /// Settings that the state depends on: if one of them changes, the new node starts without it.
    pub unless: &'static [&'static str],
    /// Version of the form in which nodes [save](Node::save) it, if they do. Nodes restore only their own version: change
    /// it with the records.
    pub format: Option<u16>,
}

/// The port through which a control plane, such as a routing daemon, uses an interface of an NF. If the port is a tap,
/// its kernel interface is configured like the interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Representor {
    /// Name of the port.
    pub name: String,
    /// Name of the interface.
    pub interface: String,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Longest IP packet in bytes.
    pub mtu: u16,
    /// Addresses of the interface with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Network namespace for a tap with the name of the interface, which is the port if the file has none.
    pub namespace: Option<String>,
}

/// The control plane of a tenant of an NF, in a network namespace that has taps for the tenant's interfaces.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlPlane {
    /// Name of the tenant.
    pub tenant: String,
    /// Name of the namespace, which is created if it does not exist.
    pub namespace: String,
    /// Daemons of FRR that run in it.
    pub frr: Option<Frr>,
}

/// A server to which a routing daemon sends the routes of an NF, or of one of its tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteServer {
    /// Name of the tenant.
    pub tenant: Option<String>,
    /// Network namespace in which it listens; `None` for that of the process.
    pub namespace: Option<String>,
    /// Address and port at which it listens.
    pub listen: SocketAddr,
    /// Number of the routing table.
    pub table: u32,
}

/// Daemons of FRR.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frr {
    /// Names of the daemons besides `zebra` and `staticd`, such as `bgpd`.
    pub daemons: Vec<String>,
    /// File with the configuration of all of them, as `vtysh` writes it, in which `@NAME@` stands for a value.
    pub config: Option<PathBuf>,
    /// Values by name.
    pub values: BTreeMap<String, String>,
    /// Address at which zebra finds the FPM server.
    pub fpm: SocketAddr,
}

/// The settings of an [`Nf`] without settings.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// The spreading requirement of an NF: which packets one of its copies must receive together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// None: any copy may receive any packet.
    Any,
    /// All packets of a flow in one direction go to one copy.
    Flow,
    /// All packets of a flow in both directions go to one copy.
    Symmetric,
    /// All packets between two hosts go to one copy, including fragments, which have no ports, and ICMP errors about
    /// them.
    Hosts,
    /// The NF chooses the copy for each packet ([`Nf::steering`]), because it rewrites the fields that a hash would
    /// use. The other NFs on its paths are spread likewise, and may require no more than [`Nf::STEERING`] keeps.
    Custom,
}

impl Spread {
    /// Returns the requirement in words, such as `all packets of a flow on one core`.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Spread::Any => "any packet on any core",
            Spread::Flow => "all packets of a flow in one direction on one core",
            Spread::Symmetric => "both directions of a flow on one core",
            Spread::Hosts => "all packets between two hosts on one core",
            Spread::Custom => "packets on the core that it chooses itself",
        }
    }
}

/// Properties of a function that chooses a copy for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Steering {
    /// The key of a packet, such as `the /24 network of the source`: packets with the same key go to one copy.
    pub key: &'static str,
    /// The strictest requirement, except [`Spread::Custom`], that this meets for other NFs, in front of this one and
    /// behind it: packets that such an NF must receive together have one key. Over two directions this includes
    /// packets that arrive by other inputs.
    pub keeps: Spread,
}

impl Steering {
    /// An unknown key, which meets no requirement of other NFs.
    pub const UNKNOWN: Steering = Steering { key: "a key of its own", keeps: Spread::Any };

    /// Returns true if packets that an NF with this requirement must receive together have one key.
    #[must_use]
    pub fn meets(self, requirement: Spread) -> bool {
        requirement <= self.keeps && self.keeps != Spread::Custom
    }
}

/// A function that chooses the copy of an NF for a packet, from the number of the input and the bytes of the frame. It
/// runs on the core that polls and returns an index below the number of copies; larger ones choose the last copy.
pub type SteerFn = Arc<dyn Fn(u8, &[u8]) -> usize + Send + Sync>;

/// The environment in which [`Nf::build`] builds a node.
#[derive(Clone, Debug, Default)]
pub struct BuildContext {
    /// Name of the NF in the chain file.
    pub name: String,
    /// Directory of the chain file, the base of relative paths in settings.
    pub base_dir: PathBuf,
    /// Index of this copy, from 0, and number of copies.
    pub copy: (usize, usize),
    /// State that the copies share.
    pub shared: SharedState,
    /// The same of the NF that this one replaces and whose state it [takes over](Nf::TAKES_OVER).
    pub before: Option<SharedState>,
    /// Open files that settings name.
    pub files: SettingFiles,
    /// True if the node is built only to validate the settings. Work that takes long or much memory and finds no errors
    /// may be skipped.
    pub check_only: bool,
}

/// The state that copies of an NF share. See [`BuildContext::shared`].
#[derive(Clone, Default)]
pub struct SharedState(Arc<Mutex<SharedValues>>);

/// Shared values by name of the NF and type.
type SharedValues = BTreeMap<(String, TypeId), Arc<dyn Any + Send + Sync>>;

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedState")
    }
}

impl SharedState {
    /// Returns the `T` that the copies of an NF share, if they share one.
    pub fn get<T: Any + Send + Sync>(&self, nf: &str) -> Option<Arc<T>> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(&(nf.to_owned(), TypeId::of::<T>())).and_then(|value| value.clone().downcast().ok())
    }
}

impl BuildContext {
    /// Resolves a path in a setting relative to the directory of the chain file.
    pub fn resolve_path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.base_dir.join(path)
    }

    /// Opens a file that a setting names, relative to the directory of the chain file. In a sandbox this is the only
    /// way to read a file.
    ///
    /// # Errors
    /// The file cannot be opened; in a sandbox, no setting names it.
    pub fn open(&self, path: impl AsRef<Path>) -> std::io::Result<SettingFile> {
        self.files.open(&self.resolve_path(path))
    }

    /// Returns the `T` that the copies of the NF share which this one replaces and whose state it takes over. Its copies
    /// still process packets.
    pub fn before<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.before.as_ref()?.get(&self.name)
    }

    /// Returns the `T` that all copies of this NF share. The first copy creates it with `init`; it outlives nodes that
    /// are rebuilt after a panic.
    ///
    /// ```
    /// use graph::BuildContext;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let first = BuildContext { name: "limit".into(), copy: (0, 2), ..Default::default() };
    /// let second = BuildContext { copy: (1, 2), ..first.clone() };
    /// let tokens = first.shared(|| Ok(AtomicU64::new(100)))?;
    /// tokens.fetch_sub(1, Ordering::Relaxed);
    /// assert_eq!(second.shared(|| Ok(AtomicU64::new(100)))?.load(Ordering::Relaxed), 99);
    /// # Ok::<(), diagnostics::Diagnostic>(())
    /// ```
    ///
    /// # Errors
    /// The error of `init`.
    pub fn shared<T: Any + Send + Sync>(
        &self,
        init: impl FnOnce() -> Result<T, Diagnostic>,
    ) -> Result<Arc<T>, Diagnostic> {
        let key = (self.name.clone(), TypeId::of::<T>());
        let mut values = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(&key).and_then(|value| value.clone().downcast().ok()) {
            return Ok(value);
        }
        let value = Arc::new(init()?);
        values.insert(key, value.clone());
        Ok(value)
    }
}
