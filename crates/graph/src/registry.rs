//! The kinds of NF that chain files can name.

use crate::nf::{BuildContext, ControlPlane, Nf, Representor, RouteServer, Spread, SteerFn, Steering, TakeOver};
use crate::node::Node;
use crate::panics;
use crate::segment::Segment;
use diagnostics::Diagnostic;
use serde::Deserialize as _;
use serde::de::IntoDeserializer;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeTable;

/// Parsed settings of an NF, from which nodes are built.
pub trait Factory: Send + Sync {
    /// Returns the names of the interfaces that the settings define ([`Nf::interfaces`]).
    fn interfaces(&self) -> Vec<String>;

    /// Returns the representors that the settings of the NF `name` define ([`Nf::representors`]).
    fn representors(&self, name: &str) -> Vec<Representor>;

    /// Returns the control planes of the tenants ([`Nf::control_planes`]).
    fn control_planes(&self) -> Vec<ControlPlane>;

    /// Returns the servers for routes ([`Nf::route_servers`]).
    fn route_servers(&self) -> Vec<RouteServer>;

    /// Returns the spreading requirement ([`Nf::spread`]).
    fn spread(&self) -> Spread;

    /// Returns the function that chooses the copy for a packet ([`Nf::steering`]).
    fn steering(&self, copies: usize) -> Option<SteerFn>;

    /// Builds a node.
    ///
    /// # Errors
    /// An invalid setting, or a panic of [`Nf::build`].
    fn build(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic>;
}

/// A kind of NF: an [`Nf`] type without its type parameter.
#[derive(Clone)]
pub struct NfKind {
    /// Name, as in `kind = "..."`.
    pub name: &'static str,
    /// Description in a sentence.
    pub about: &'static str,
    /// Example settings.
    pub example: &'static str,
    /// Names of the inputs.
    pub inputs: &'static [&'static str],
    /// Names of the outputs.
    pub outputs: &'static [&'static str],
    /// Spreading requirement.
    pub spread: Spread,
    /// Properties of its function that chooses a copy for each packet.
    pub steering: Steering,
    /// State that nodes take over when a reload changes the settings ([`Nf::TAKES_OVER`]).
    pub takes_over: Option<TakeOver>,
    /// True if it changes the fields by which packets are spread ([`Nf::REWRITES`]).
    pub rewrites: bool,
    /// Loads its shared libraries ([`Nf::preload`]).
    pub preload: fn(),
    schema: fn() -> serde_json::Value,
    parse: ParseSettings,
    deserialize: DeserializeSettings,
}

/// Parses settings and returns the factory for them.
type ParseSettings = fn(Spanned<DeTable<'_>>) -> Result<Box<dyn Factory>, toml::de::Error>;
type DeserializeSettings = fn(serde_json::Value) -> Result<Box<dyn Factory>, serde_json::Error>;

impl NfKind {
    fn of<N: Nf>() -> Self {
        NfKind {
            name: N::KIND,
            about: N::ABOUT,
            example: N::EXAMPLE,
            inputs: N::INPUTS,
            outputs: N::OUTPUTS,
            spread: N::SPREAD,
            steering: N::STEERING,
            takes_over: N::TAKES_OVER,
            rewrites: N::REWRITES,
            preload: N::preload,
            schema: || schemars::schema_for!(N::Settings).into(),
            parse: |table| Ok(Box::new(TypedFactory::<N>(N::Settings::deserialize(table.into_deserializer())?))),
            deserialize: |settings| Ok(Box::new(TypedFactory::<N>(N::Settings::deserialize(settings)?))),
        }
    }

    /// Returns the JSON Schema of the settings.
    pub fn schema(&self) -> serde_json::Value {
        (self.schema)()
    }

    /// Parses settings.
    ///
    /// # Errors
    /// An unknown setting or a value of the wrong type, with its location.
    pub fn parse(&self, settings: Spanned<DeTable<'_>>) -> Result<Box<dyn Factory>, toml::de::Error> {
        (self.parse)(settings)
    }

    /// Deserializes settings that were parsed by another process.
    ///
    /// # Errors
    /// An unknown setting or a value of the wrong type.
    pub fn deserialize(&self, settings: serde_json::Value) -> Result<Box<dyn Factory>, serde_json::Error> {
        (self.deserialize)(settings)
    }
}

struct TypedFactory<N: Nf>(N::Settings);

impl<N: Nf> Factory for TypedFactory<N> {
    fn interfaces(&self) -> Vec<String> {
        N::interfaces(&self.0)
    }

    fn representors(&self, name: &str) -> Vec<Representor> {
        N::representors(&self.0, name)
    }

    fn control_planes(&self) -> Vec<ControlPlane> {
        N::control_planes(&self.0)
    }

    fn route_servers(&self) -> Vec<RouteServer> {
        N::route_servers(&self.0)
    }

    fn spread(&self) -> Spread {
        N::spread(&self.0)
    }

    fn steering(&self, copies: usize) -> Option<SteerFn> {
        N::steering(&self.0, copies)
    }

    fn build(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic> {
        panics::catch(|| self.build_checked(cx)).unwrap_or_else(|message| {
            let error = Diagnostic::new(format!("panicked during build: {message}")).value(N::KIND);
            Err(error.remedy("report this bug to the author of the NF"))
        })
    }
}

impl<N: Nf> TypedFactory<N> {
    /// Builds a node and checks that its outputs agree with [`Nf::OUTPUTS`].
    fn build_checked(&self, cx: &BuildContext) -> Result<Box<dyn Node>, Diagnostic> {
        let node = N::build(&self.0, cx)?;
        if !N::OUTPUTS.starts_with(node.outputs()) {
            let (declared, actual) = (N::OUTPUTS, node.outputs());
            return Err(Diagnostic::new(format!("Node::outputs is {actual:?}, but Nf::OUTPUTS is {declared:?}"))
                .value(N::KIND)
                .remedy("list the outputs in the order in which the operators use them"));
        }
        Ok(Box::new(node))
    }
}

/// The kinds of NF that a program supports.
///
/// `bondstone::main` and `nf::registry()` return those of Bondstone; add NFs with [`with`](Registry::with):
/// ```
/// use graph::{BuildContext, Nf, NoSettings, Node, Operator, Registry, frame};
///
/// struct Pass;
/// impl Nf for Pass {
///     type Settings = NoSettings;
///     const KIND: &'static str = "pass";
///     const ABOUT: &'static str = "Forwards every packet unchanged.";
///     fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, diagnostics::Diagnostic> {
///         Ok(frame().compose())
///     }
/// }
///
/// let registry = Registry::new().with::<Pass>();
/// assert_eq!(registry.get("pass").unwrap().about, "Forwards every packet unchanged.");
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    kinds: BTreeMap<&'static str, NfKind>,
    segments: Vec<Segment>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind and replaces an earlier one of the same name.
    pub fn with<N: Nf>(mut self) -> Self {
        self.kinds.insert(N::KIND, NfKind::of::<N>());
        self
    }

    /// Adds a compiled segment, for chain files with such a segment on a path.
    pub fn with_segment(mut self, segment: Segment) -> Self {
        self.segments.push(segment);
        self
    }

    /// Returns the compiled segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the kind of this name.
    pub fn get(&self, name: &str) -> Option<&NfKind> {
        self.kinds.get(name)
    }

    /// Returns all kinds, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &NfKind> {
        self.kinds.values()
    }
}
