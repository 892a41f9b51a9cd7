//! Collects the errors of a chain file.

use crate::plan::{NfConfig, NfSettings, SettingSpans};
use crate::source::{MAX_ERRORS, Source};
use diagnostics::Diagnostic;
use graph::Registry;
use std::collections::BTreeSet;
use std::ops::Range;
use toml::Spanned;

pub(crate) type Errors = Vec<Diagnostic>;

/// A chain file that is being checked.
pub(super) struct Checker<'a> {
    pub(super) source: Source<'a>,
    pub(super) registry: &'a Registry,
    pub(super) errors: Errors,
    pub(super) warnings: Errors,
    /// Names of ports and NFs with errors in their tables.
    pub(super) faulty: BTreeSet<String>,
    /// True after an error of a path or an edge: others may then seem to lack a start or an end.
    pub(super) incomplete: bool,
    /// Place of the host whose part is checked, if the file describes several hosts.
    pub(super) part: Option<Part>,
}

/// The place of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// This machine.
    Here,
    /// Another machine, whose files are not checked.
    Elsewhere,
}

impl<'a> Checker<'a> {
    pub(super) fn new(source: Source<'a>, registry: &'a Registry) -> Self {
        Checker {
            source,
            registry,
            errors: vec![],
            warnings: vec![],
            faulty: BTreeSet::new(),
            incomplete: false,
            part: None,
        }
    }

    /// Records an error.
    pub(super) fn error(
        &mut self,
        span: Range<usize>,
        value: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if !self.is_full() {
            let d = Diagnostic::new(problem).value(value).remedy(remedy);
            self.errors.push(self.source.locate(span, d));
        }
    }

    /// Returns true if no more errors are recorded.
    pub(super) fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    /// Returns an error for each of these CPUs, for CPUs that do not exist.
    pub(super) fn cpu_errors(&self, cores: &[Spanned<usize>]) -> Vec<(usize, Diagnostic)> {
        let problem = "this CPU does not exist or this process may not use it";
        let error = |core: &Spanned<usize>| {
            let d = Diagnostic::new(problem).value(core.get_ref());
            (*core.get_ref(), self.source.locate(core.span(), d))
        };
        cores.iter().map(error).collect()
    }

    /// Checks a name of a port, an NF or a chain.
    pub(super) fn check_name(&mut self, span: Range<usize>, name: &str) {
        if name.is_empty()
            || name.len() > 32
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        {
            self.error(span, name, "is not a name", "use up to 32 letters, digits, - and _");
        }
    }

    /// Returns an NF from settings that were parsed before.
    pub(super) fn nf_of_settings(&mut self, nf: &NfSettings) -> Option<NfConfig> {
        let NfSettings { name, kind, settings, spans } = nf;
        let span = spans.first().map_or(0..0, |(_, span)| span.clone());
        let remedy = "run the same version of Bondstone in the sandbox";
        let Some(kind) = self.registry.get(kind) else {
            self.error(span, kind, "unknown kind of NF", remedy);
            return None;
        };
        match kind.deserialize(settings.clone()) {
            Ok(factory) => {
                let spans: SettingSpans = spans.clone();
                Some(NfConfig::new(name.clone(), kind.clone(), factory, settings.clone(), spans, None))
            }
            Err(e) => {
                self.error(span, name, e.to_string(), remedy);
                None
            }
        }
    }
}
