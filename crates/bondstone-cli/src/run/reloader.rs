//! Reloading the chain file of a run.

use crate::control_planes::ControlPlanes;
use crate::notify::ServiceManager;
use config::ChainFile;
use control::Refusal;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{FileVersion, Registry};
use runtime::Reloaded;
use sandbox::SandboxedEngine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval at which files are checked. A change is read once a file has stayed the same for as long: an editor may
/// write it in parts.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which the service manager is notified while NFs are built.
const ALIVE_INTERVAL: Duration = Duration::from_millis(100);

/// Reloads the chain file on request, and when it changes.
pub(super) struct Reloader<'a> {
    registry: &'a Registry,
    file: PathBuf,
    /// Host whose part of the file runs.
    host: Option<String>,
    /// Text of the file that runs.
    text: String,
    watch: Option<Watch>,
    has_reloaded: bool,
    planes: ControlPlanes,
}

/// Versions of the chain file and of those that its settings name.
type Versions = BTreeMap<PathBuf, Option<FileVersion>>;

struct Watch {
    due: Instant,
    loaded: Versions,
    last: Versions,
}

/// Returns the versions of which the chains are; `version` is that of the chain file.
fn loaded(file: &Path, version: Option<FileVersion>, chains: &SandboxedEngine) -> Versions {
    let of_settings = chains.setting_files().into_iter().map(|(path, version)| (path, Some(version)));
    of_settings.chain([(file.to_owned(), version)]).collect()
}

impl<'a> Reloader<'a> {
    /// Creates the reloader of chains that run a file, which had this version when it was read.
    pub(super) fn new(
        (running, version): (&ChainFile, Option<FileVersion>),
        registry: &'a Registry,
        watch: bool,
        chains: &SandboxedEngine,
        planes: ControlPlanes,
    ) -> Reloader<'a> {
        let file = &running.file;
        let loaded = || loaded(file, version, chains);
        let watch = watch.then(|| Watch { due: Instant::now(), loaded: loaded(), last: loaded() });
        let host = running.host.clone();
        Reloader { registry, file: file.clone(), host, text: running.text.clone(), watch, has_reloaded: false, planes }
    }

    /// Runs the control planes of the file that runs.
    pub(super) fn run_control_planes(&mut self, chains: &SandboxedEngine) {
        if let Err(problem) = self.planes.run(chains.engine().file().control_planes()) {
            tracing::error!(target: "tenant", "{problem}");
        }
    }

    /// Starts the supervisor of the control planes again if it was ended.
    pub(super) fn check_control_planes(&mut self, chains: &SandboxedEngine) {
        let planes = chains.engine().file().control_planes();
        if planes.is_empty() || self.planes.is_alive() {
            return;
        }
        tracing::warn!(target: "tenant", "the process for control planes has ended; it is started again");
        match self.planes.prepare(&planes) {
            Ok(()) => self.run_control_planes(chains),
            Err(problem) => tracing::error!(target: "tenant", "{problem}; it is tried again every second"),
        }
    }

    /// Returns the control planes of the file that runs.
    pub(super) fn control_planes(&mut self) -> &mut ControlPlanes {
        &mut self.planes
    }

    /// Returns the control planes at the end of the run.
    pub(super) fn take_control_planes(&mut self) -> ControlPlanes {
        std::mem::take(&mut self.planes)
    }

    /// Returns the chain file, and the text that runs.
    pub(super) fn running(&self) -> (&Path, &str) {
        (&self.file, &self.text)
    }

    /// Reloads the chain file, or another one, which is the one from then on. Tells the manager meanwhile that the run is
    /// not hung.
    pub(super) fn reload(
        &mut self,
        file: Option<PathBuf>,
        chains: &mut SandboxedEngine,
        manager: &mut ServiceManager,
    ) -> Result<serde_json::Value, Refusal> {
        let path = file.unwrap_or_else(|| self.file.clone());
        let version = FileVersion::of(&path);
        let (host, registry) = (self.host.as_deref(), self.registry);
        let read = config::read(&path, "chain file").map_err(|d| vec![d]);
        let read = read.and_then(|text| ChainFile::parse_for(&text, &path, host, registry));
        let read = read.map_err(|errors| runtime::Error::Input(Diagnostics(errors)));
        let reloaded = read.and_then(|new| {
            for warning in new.warnings.iter().map(ToString::to_string) {
                tracing::warn!(target: "reload", cause = warning, "{warning}");
            }
            let text = new.text.clone();
            while_alive(manager, || self.planes.prepare(&new.control_planes())).map_err(|problem| {
                let remedy = "run as root; the chains go on as before".to_owned();
                runtime::Error::Environment { problem, remedy }
            })?;
            Ok((while_alive(manager, || chains.reload(&new, registry))?, text))
        });
        self.run_control_planes(chains);
        match reloaded {
            Ok((reloaded, text)) => {
                let Reloaded { build_ms, exchange_ms, pause_us, .. } = reloaded;
                let changes: String = reloaded.changes.to_string().lines().map(|line| format!("\n  {line}")).collect();
                tracing::info!(
                    target: "reload",
                    file = %path.display(),
                    build_ms,
                    exchange_ms,
                    pause_us,
                    "reloaded {}: {}{changes}",
                    path.display(),
                    describe_times(&reloaded)
                );
                for note in &reloaded.notes {
                    tracing::info!(target: "reload", "{note}");
                }
                self.has_reloaded = true;
                (self.file, self.text) = (path, text);
                if let Some(watch) = &mut self.watch {
                    watch.loaded = loaded(&self.file, version, chains);
                }
                serde_json::to_value(reloaded).map_err(|e| Refusal::new(e.to_string()))
            }
            Err(e) => {
                tracing::error!(target: "reload", file = %path.display(), "{e}\nnote: nothing has changed");
                Err(match e {
                    runtime::Error::Input(Diagnostics(all)) => refusal(all),
                    e => Refusal::new(e.to_string()),
                })
            }
        }
    }

    /// Returns true if the chain file was reloaded since the last call.
    pub(super) fn take_reloaded(&mut self) -> bool {
        std::mem::take(&mut self.has_reloaded)
    }

    /// Reloads the chain file if it, or a file that a setting names, has changed.
    pub(super) fn watch(&mut self, chains: &mut SandboxedEngine, manager: &mut ServiceManager) {
        let Some(watch) = self.watch.as_mut().filter(|watch| Instant::now() >= watch.due) else { return };
        watch.due = Instant::now() + WATCH_INTERVAL;
        let now: Versions = watch.loaded.keys().map(|path| (path.clone(), FileVersion::of(path))).collect();
        // a missing file is being replaced
        let is_stable = now == watch.last && now.values().all(Option::is_some);
        watch.last.clone_from(&now);
        if is_stable && now != watch.loaded {
            watch.loaded = now;
            // ignore errors: they have been printed
            let _ = self.reload(None, chains, manager);
        }
    }
}

/// Calls `f`, and tells the manager until it returns that the run is not hung: NFs may take minutes to build.
fn while_alive<T: Send>(manager: &mut ServiceManager, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let call = scope.spawn(move || {
            let _end = end;
            f()
        });
        while ended.recv_timeout(ALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            manager.alive();
        }
        call.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Describes how long a reload took.
pub(crate) fn describe_times(reloaded: &Reloaded) -> String {
    let Reloaded { build_ms, exchange_ms, pause_us, .. } = reloaded;
    format!(
        "built in {build_ms:.1} ms, in effect after another {exchange_ms:.1} ms; workers paused for {pause_us:.0} us"
    )
}

/// Returns one refusal for all errors of a file, with the places.
fn refusal(all: Vec<Diagnostic>) -> Refusal {
    Refusal::new(Diagnostics(all).to_string())
}
