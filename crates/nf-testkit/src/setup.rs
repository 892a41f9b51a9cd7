//! How an NF comes onto the bench.

use crate::Bench;
use crate::bench::BUFFERS;
use diagnostics::Diagnostic;
use graph::{BuildContext, Kind, Nf, Registry};
use std::path::PathBuf;
use toml::de::DeTable;

/// An NF and what it is built with.
///
/// ```
/// # struct Quiet;
/// # impl graph::Nf for Quiet {
/// #     type Settings = Settings;
/// #     const KIND: &'static str = "quiet";
/// #     const ABOUT: &'static str = "Lets everything pass.";
/// #     fn build(_: &Settings, _: &graph::BuildContext) -> Result<impl graph::Node + 'static, diagnostics::Diagnostic> {
/// #         Ok(graph::Operator::compose(graph::frame()))
/// #     }
/// # }
/// # #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// # #[serde(default, deny_unknown_fields)]
/// # struct Settings { file: Option<String> }
/// use testkit::Setup;
///
/// // settings with a path count from the chain file's folder
/// let bench = Setup::of::<Quiet>("file = \"rules.txt\"").folder("tests").buffers(64).build()?;
/// // the copies that three cores run, which share what they have in common
/// let copies = Setup::of::<Quiet>("").copies(3)?;
/// # assert_eq!(copies.len(), 3);
/// # Ok::<(), diagnostics::Diagnostic>(())
/// ```
#[derive(Clone)]
#[must_use = "call `build`"]
pub struct Setup {
    kind: Kind,
    settings: String,
    cx: BuildContext,
    buffers: usize,
    paths: usize,
}

impl Setup {
    /// An NF with settings as they stand in a chain file below `kind`.
    pub fn of<N: Nf>(settings: &str) -> Self {
        let known = Registry::new().with::<N>();
        Self::of_kind(known.get(N::KIND).expect("it was just registered"), settings)
    }

    /// An NF by its entry in a registry.
    pub fn of_kind(kind: &Kind, settings: &str) -> Self {
        let cx = BuildContext { name: kind.name.to_owned(), copy: (0, 1), ..Default::default() };
        Setup { kind: kind.clone(), settings: settings.to_owned(), cx, buffers: BUFFERS, paths: 1 }
    }

    /// Sets the folder from which paths in settings count; the working directory otherwise, which in tests is that of
    /// the crate.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cx.folder = folder.into();
        self
    }

    /// Sets how many packets there can be at a time, those that come and those that the NF makes or holds; 4096
    /// otherwise.
    pub fn buffers(self, buffers: usize) -> Self {
        Setup { buffers, ..self }
    }

    /// Sets in how many paths the NF stands, as one that sees both directions does; 1 otherwise. Path `n` enters by input
    /// number `n` of the bench, and for an NF with several inputs the next path begins behind them. Its first output is
    /// output number `n`; the others follow.
    pub fn paths(self, paths: usize) -> Self {
        Setup { paths: paths.max(1), ..self }
    }

    /// Builds the NF.
    ///
    /// # Errors
    /// A setting that is none, or makes no sense.
    pub fn build(self) -> Result<Bench, Diagnostic> {
        let table = DeTable::parse(&self.settings).map_err(|e| Diagnostic::new(e.to_string()))?;
        let factory = self.kind.read(table).map_err(|e| Diagnostic::new(e.to_string()))?;
        let interfaces = factory.interfaces();
        let node = factory.build(&self.cx)?;
        let outputs = self.kind.outputs.iter().map(|&o| o.to_owned()).chain(interfaces.iter().cloned()).collect();
        let inputs = self.kind.inputs.len() + interfaces.len();
        Ok(Bench::new(self.kind.name, node, (inputs, self.paths), outputs, self.buffers))
    }

    /// Builds the copies that so many cores run.
    ///
    /// # Errors
    /// A setting that is none, or makes no sense.
    pub fn copies(self, cores: usize) -> Result<Vec<Bench>, Diagnostic> {
        let copy = |n| {
            let cx = BuildContext { copy: (n, cores), ..self.cx.clone() };
            Setup { cx, ..self.clone() }.build()
        };
        (0..cores).map(copy).collect()
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("kind", &self.kind.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}
