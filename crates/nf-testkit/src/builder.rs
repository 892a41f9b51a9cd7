//! Creating harnesses.

use crate::harness::{BUFFERS, Harness};
use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, NfKind, Registry};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use toml::de::DeTable;

/// A builder for a [`Harness`].
///
/// ```
/// # struct Pass;
/// # impl graph::Nf for Pass {
/// #     type Settings = Settings;
/// #     const KIND: &'static str = "pass";
/// #     const ABOUT: &'static str = "Forwards every packet unchanged.";
/// #     fn build(
/// #         _: &Settings,
/// #         _: &graph::BuildContext,
/// #     ) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
/// #         Ok(graph::Operator::compose(graph::frame()))
/// #     }
/// # }
/// # #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// # #[serde(default, deny_unknown_fields)]
/// # struct Settings { file: Option<String> }
/// use testkit::HarnessBuilder;
///
/// // paths in settings are relative to a directory
/// let harness = HarnessBuilder::new::<Pass>("file = \"rules.txt\"").base_dir("tests").buffers(64).build()?;
/// // the copies of three cores, with the state that they share
/// let copies = HarnessBuilder::new::<Pass>("").build_copies(3)?;
/// # assert_eq!(copies.len(), 3);
/// # Ok::<(), diagnostics::Diagnostic>(())
/// ```
#[derive(Clone)]
#[must_use = "call `build`"]
pub struct HarnessBuilder {
    kind: NfKind,
    settings: String,
    cx: BuildContext,
    buffers: usize,
    paths: usize,
}

impl HarnessBuilder {
    /// Creates a builder for an NF with settings in the syntax of a chain file.
    pub fn new<N: Nf>(settings: &str) -> Self {
        let known = Registry::new().with::<N>();
        Self::from_kind(known.get(N::KIND).expect("it was just registered"), settings)
    }

    /// Creates a builder for a kind of a registry.
    pub fn from_kind(kind: &NfKind, settings: &str) -> Self {
        let cx = BuildContext { name: kind.name.to_owned(), copy: (0, 1), ..Default::default() };
        HarnessBuilder { kind: kind.clone(), settings: settings.to_owned(), cx, buffers: BUFFERS, paths: 1 }
    }

    /// Sets the directory that paths in settings are relative to. The default is the working directory, in tests that
    /// of the crate.
    pub fn base_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cx.base_dir = dir.into();
        self
    }

    /// Sets the number of buffers, for frames that are fed and for packets that the NF creates or holds. The default is
    /// 4096.
    pub fn buffers(self, buffers: usize) -> Self {
        HarnessBuilder { buffers, ..self }
    }

    /// Sets the number of paths through the NF, for NFs that see both directions. The default is 1. Path `n` enters by
    /// input number `n` of the harness (for NFs with several inputs, the inputs of the next path follow), and its first
    /// output is output number `n`. The other outputs follow.
    pub fn paths(self, paths: usize) -> Self {
        HarnessBuilder { paths: paths.max(1), ..self }
    }

    /// Builds the NF.
    ///
    /// # Errors
    /// An unknown or invalid setting.
    pub fn build(self) -> Result<Harness, Diagnostic> {
        let table = DeTable::parse(&self.settings).map_err(|e| Diagnostic::new(e.to_string()))?;
        let factory = self.kind.parse(table).map_err(|e| Diagnostic::new(e.to_string()))?;
        let interfaces = factory.interfaces();
        let node = factory.build(&self.cx)?;
        let outputs = self.kind.outputs.iter().map(|&o| o.to_owned()).chain(interfaces.iter().cloned()).collect();
        let inputs = self.kind.inputs.len() + interfaces.len();
        Ok(Harness::assemble(self.kind.name, node, (inputs, self.paths), outputs, self.buffers))
    }

    /// Builds the NF and replaces the node of a harness by it, which takes over the state
    /// ([`Harness::reload`]). `before` is the builder of the harness.
    ///
    /// # Errors
    /// An unknown or invalid setting.
    #[track_caller]
    pub fn reload(mut self, before: &HarnessBuilder, harness: &mut Harness) -> Result<(), Diagnostic> {
        self.cx.before = Some(before.cx.shared.clone());
        let table = DeTable::parse(&self.settings).map_err(|e| Diagnostic::new(e.to_string()))?;
        let factory = self.kind.parse(table).map_err(|e| Diagnostic::new(e.to_string()))?;
        harness.replace_node(factory.build(&self.cx)?);
        Ok(())
    }

    /// Returns the `T` that the copies built so far by clones of this builder share
    /// ([`BuildContext::shared`](graph::BuildContext::shared)).
    pub fn shared<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.cx.shared.get(self.kind.name)
    }

    /// Builds the copies that `cores` cores run.
    ///
    /// # Errors
    /// An unknown or invalid setting.
    pub fn build_copies(self, cores: usize) -> Result<Vec<Harness>, Diagnostic> {
        let copy = |n| {
            let cx = BuildContext { copy: (n, cores), ..self.cx.clone() };
            HarnessBuilder { cx, ..self.clone() }.build()
        };
        (0..cores).map(copy).collect()
    }
}

impl std::fmt::Debug for HarnessBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HarnessBuilder")
            .field("kind", &self.kind.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Harness {
    /// Creates a harness for an NF with settings in the syntax of a chain file.
    ///
    /// # Panics
    /// If a setting is unknown or invalid.
    #[track_caller]
    pub fn new<N: Nf>(settings: &str) -> Self {
        Self::try_new::<N>(settings).unwrap_or_else(|error| panic!("{}: {error}", N::KIND))
    }

    /// Creates a harness like [`new`](Harness::new), and returns errors, for tests of invalid settings.
    ///
    /// # Errors
    /// An unknown or invalid setting.
    pub fn try_new<N: Nf>(settings: &str) -> Result<Self, Diagnostic> {
        HarnessBuilder::new::<N>(settings).build()
    }
}
