//! What a network function is, and the register of those that can be named in a file.

use crate::caught::caught;
use crate::{StatsTable, Counter, Context};
use diagnostics::Diagnostic;
use packet::Batch;
use schemars::JsonSchema;
use serde::Deserialize as _;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use toml::Spanned;
use toml::de::DeTable;

/// A network function: its name, its settings, and how it is built.
///
/// It is built on the control thread, once for each core that runs it, and then moves there: state in it belongs to that
/// core and needs no lock.
pub trait Nf: 'static {
    /// What can be set; every field has a default, doc comments become help. Derive with
    /// `#[serde(default, deny_unknown_fields)]`.
    type Settings: DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;
    /// Name of the kind in a chain file.
    const KIND: &'static str;
    /// What it does, in a sentence.
    const ABOUT: &'static str;
    /// How flows have to be spread over its copies.
    const SPREAD: Spread = Spread::Any;
    /// Names of the inputs; a path enters by the first unless it says `nf:input`.
    const INPUTS: &'static [&'static str] = &["in"];
    /// Names of the outputs; the first is where the path goes on.
    const OUTPUTS: &'static [&'static str] = &["out"];
    /// Names of further inputs and outputs that the settings ask for, each one of both, behind those of
    /// [`INPUTS`](Nf::INPUTS) and [`OUTPUTS`](Nf::OUTPUTS). A path may end with an NF that has some, and enters by the one
    /// that is called like the path's port; an output called like a port leads to that port.
    fn interfaces(_: &Self::Settings) -> Vec<String> {
        vec![]
    }
    /// How flows have to be spread with these settings, where they need less than [`SPREAD`](Nf::SPREAD).
    fn spread(_: &Self::Settings) -> Spread {
        Self::SPREAD
    }
    /// With [`Spread::Custom`], which of several copies is to have a packet; `None` if the settings make no sense, which
    /// [`build`](Nf::build) says.
    fn lane(_: &Self::Settings, _copies: usize) -> Option<Lane> {
        None
    }
    /// Settings that show it at work, as they stand in a chain file below `kind`.
    const EXAMPLE: &'static str = "";

    /// Builds one copy.
    ///
    /// # Errors
    /// A setting that makes no sense; name it by [`Diagnostic::key`].
    fn build(settings: &Self::Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic>;
}

/// The settings of an [`Nf`] that has none.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

/// One copy of a network function, on one core.
pub trait Node: Send {
    /// Reasons for which it drops packets; their places are the numbers given to [`Context::drop`].
    fn drops(&self) -> &[&'static str] {
        &[]
    }

    /// Outputs that it uses, in the order of [`Nf::OUTPUTS`].
    fn outputs(&self) -> &[&'static str] {
        &["out"]
    }

    /// Counts of its own, with their names, which are shown beside packets and drops.
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        vec![]
    }

    /// Processes a batch that came by `input`. What is left in the batch goes on by the first output, or as
    /// [`Context::leave_by`] says; what is neither left, emitted, held nor dropped through `cx` is counted as `vanished`.
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch);

    /// How often it wants to be woken, to the millisecond; never, if `None`.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Does what is due by now ([`Context::now`]), between batches.
    fn on_timer(&mut self, _: &mut Context<'_>) {}

    /// A table that it shows, if it has one.
    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        None
    }

    /// Brings its counts and its table up to date, before the worker ends.
    fn finish(&mut self) {}
}

/// One of two nodes, decided when it is built.
pub enum Either<A, B> {
    /// The one.
    A(A),
    /// The other.
    B(B),
}

impl<A: Node, B: Node> Node for Either<A, B> {
    fn drops(&self) -> &[&'static str] {
        match self {
            Either::A(a) => a.drops(),
            Either::B(b) => b.drops(),
        }
    }

    fn outputs(&self) -> &[&'static str] {
        match self {
            Either::A(a) => a.outputs(),
            Either::B(b) => b.outputs(),
        }
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        match self {
            Either::A(a) => a.counters(),
            Either::B(b) => b.counters(),
        }
    }

    #[inline]
    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        match self {
            Either::A(a) => a.process(cx, input, batch),
            Either::B(b) => b.process(cx, input, batch),
        }
    }

    fn interval(&self) -> Option<Duration> {
        match self {
            Either::A(a) => a.interval(),
            Either::B(b) => b.interval(),
        }
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        match self {
            Either::A(a) => a.on_timer(cx),
            Either::B(b) => b.on_timer(cx),
        }
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        match self {
            Either::A(a) => a.stats_table(),
            Either::B(b) => b.stats_table(),
        }
    }

    fn finish(&mut self) {
        match self {
            Either::A(a) => a.finish(),
            Either::B(b) => b.finish(),
        }
    }
}

/// How packets may be spread over the copies of an NF on several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spread {
    /// Any copy may see any packet.
    Any,
    /// All packets of a flow, in one direction, go to one copy.
    Flow,
    /// Both directions of a flow go to one copy.
    Symmetric,
    /// All packets between two hosts go to one copy: fragments, which have no ports, and ICMP errors about them as well.
    Hosts,
    /// The NF says which copy is to have a packet ([`Nf::lane`]): it rewrites what others would go by. What stands in the
    /// same paths goes along.
    Custom,
}

/// Which of several copies is to have a frame that is on its way to an input of this number.
pub type Lane = Arc<dyn Fn(u8, &[u8]) -> usize + Send + Sync>;

/// What an NF may know when it is built.
#[derive(Clone, Debug, Default)]
pub struct BuildContext {
    /// Name of the NF in its file.
    pub name: String,
    /// Folder of the file, from which relative paths in settings count.
    pub folder: PathBuf,
    /// Which copy this is, from 0, and how many there are.
    pub copy: (usize, usize),
    /// What the copies have in common.
    pub common: Common,
    /// Whether it is built only to find faults of its settings: what takes long, or much memory, and finds none may be left.
    pub checks: bool,
}

/// What the copies of one NF have in common, whatever it is: the first to ask for it makes it.
#[derive(Clone, Default)]
pub struct Common(Arc<Mutex<Known>>);

/// By name of the NF and type.
type Known = BTreeMap<(String, TypeId), Arc<dyn Any + Send + Sync>>;

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Common")
    }
}

impl BuildContext {
    /// A path in a setting, seen from the file's folder.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder.join(path)
    }

    /// The `T` that all copies of this NF share; the first copy makes it.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn common<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T, Diagnostic>,
    ) -> Result<Arc<T>, Diagnostic> {
        let key = (self.name.clone(), TypeId::of::<T>());
        let mut known = self.common.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.get(&key).and_then(|there| there.clone().downcast().ok()) {
            return Ok(there);
        }
        let made = Arc::new(make()?);
        known.insert(key, made.clone());
        Ok(made)
    }
}

/// Settings that have been read and now make copies of an NF.
pub trait Factory: Send + Sync {
    /// Names of the further inputs and outputs that the settings ask for ([`Nf::interfaces`]).
    fn interfaces(&self) -> Vec<String>;

    /// How flows have to be spread over copies ([`Nf::spread`]).
    fn spread(&self) -> Spread;

    /// Which of several copies is to have a packet ([`Nf::lane`]).
    fn lane(&self, copies: usize) -> Option<Lane>;

    /// Makes one copy.
    ///
    /// # Errors
    /// A setting that makes no sense, or a panic.
    fn build(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic>;
}

/// A kind of NF that can be named in a file.
#[derive(Clone)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Settings that show it at work.
    pub example: &'static str,
    /// Names of its inputs.
    pub inputs: &'static [&'static str],
    /// Names of its outputs.
    pub outputs: &'static [&'static str],
    /// How its copies want packets spread.
    pub spread: Spread,
    schema: fn() -> serde_json::Value,
    read: Read,
}

/// Reads settings and makes a factory of them.
type Read = fn(Spanned<DeTable<'_>>) -> Result<Box<dyn Factory>, toml::de::Error>;

impl Kind {
    fn of<N: Nf>() -> Self {
        Kind {
            name: N::KIND,
            about: N::ABOUT,
            example: N::EXAMPLE,
            inputs: N::INPUTS,
            outputs: N::OUTPUTS,
            spread: N::SPREAD,
            schema: || schemars::schema_for!(N::Settings).into(),
            read: |table| Ok(Box::new(Settings::<N>(N::Settings::deserialize(table.into_deserializer())?))),
        }
    }

    /// The JSON Schema of its settings.
    pub fn schema(&self) -> serde_json::Value {
        (self.schema)()
    }

    /// Reads settings.
    ///
    /// # Errors
    /// What is not a setting of this kind, with its place.
    pub fn read(&self, settings: Spanned<DeTable<'_>>) -> Result<Box<dyn Factory>, toml::de::Error> {
        (self.read)(settings)
    }
}

struct Settings<N: Nf>(N::Settings);

impl<N: Nf> Factory for Settings<N> {
    fn interfaces(&self) -> Vec<String> {
        N::interfaces(&self.0)
    }

    fn spread(&self) -> Spread {
        N::spread(&self.0)
    }

    fn lane(&self, copies: usize) -> Option<Lane> {
        N::lane(&self.0, copies)
    }

    fn build(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic> {
        caught(|| self.make(cx)).unwrap_or_else(|message| {
            let fault = Diagnostic::new(format!("panicked while it was built: {message}")).value(N::KIND);
            Err(fault.remedy("this is a fault of the NF, which its author can mend"))
        })
    }
}

impl<N: Nf> Settings<N> {
    fn make(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic> {
        let node = N::build(&self.0, cx)?;
        if !N::OUTPUTS.starts_with(node.outputs()) {
            let (says, has) = (N::OUTPUTS, node.outputs());
            return Err(Diagnostic::new(format!("its outputs are {has:?}, but Nf::OUTPUTS says {says:?}"))
                .value(N::KIND)
                .remedy("name the outputs in the order in which the operators use them"));
        }
        Ok(Box::new(node))
    }
}

/// The kinds of NF that a program knows.
#[derive(Clone, Default)]
pub struct Registry {
    kinds: BTreeMap<&'static str, Kind>,
}

impl Registry {
    /// Knows no kind yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind; a later one of the same name takes the place of an earlier.
    pub fn with<N: Nf>(mut self) -> Self {
        self.kinds.insert(N::KIND, Kind::of::<N>());
        self
    }

    /// The kind of this name.
    pub fn get(&self, name: &str) -> Option<&Kind> {
        self.kinds.get(name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.values()
    }
}
