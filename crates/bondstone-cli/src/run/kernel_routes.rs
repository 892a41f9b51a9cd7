//! Routes of routers that are read from the kernel: one reader for each router or tenant.

mod reader;
mod table;

use super::taps::Taps;
use dpdk::netdev::RouteMonitor;
use graph::Nf as _;
use nf::L3fwd;
use nf::live::{LiveRoutes, RouteSource};
use reader::{Reader, Router, Signals};
use runtime::LiveNfs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Names of a router and of its tenant.
type Name = (String, Option<String>);

/// The readers of a run; dropping them ends them.
#[derive(Default)]
pub(super) struct KernelRoutes {
    running: BTreeMap<Name, Running>,
    /// Problems of those that could not be started.
    failed: BTreeMap<Name, String>,
}

struct Running {
    router: Router,
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signals.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // ignore errors: the thread has ended by a panic
            let _ = thread.join();
        }
    }
}

impl Running {
    /// Returns false after an error.
    fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl KernelRoutes {
    /// Starts and ends readers so that they are those of the routers that run. One that cannot be started is logged and
    /// tried again with the next call.
    pub(super) fn update(&mut self, nfs: &LiveNfs, taps: &Taps) {
        let mut wanted: BTreeMap<Name, Router> = BTreeMap::new();
        for nf in nfs.of_kind(L3fwd::KIND) {
            let Some(live) = nfs.shared::<LiveRoutes>(&nf) else { continue };
            for vrf in live.vrfs() {
                if let Some(RouteSource::Kernel(settings)) = vrf.source().cloned() {
                    let tenant = vrf.tenant().map(str::to_owned);
                    wanted.insert((nf.clone(), tenant.clone()), Router { nf: nf.clone(), tenant, settings });
                }
            }
        }
        self.failed.retain(|name, _| wanted.contains_key(name));
        self.running.retain(|name, running| running.runs() && wanted.get(name) == Some(&running.router));
        for (name, router) in wanted {
            if self.running.contains_key(&name) {
                continue;
            }
            match start(nfs, taps, &router) {
                Ok(running) => {
                    let namespace = router.settings.namespace.as_deref();
                    let of = namespace.map_or("of the process".to_owned(), |name| name.to_owned());
                    tracing::info!(target: "kernel", "{router} has the routes of the kernel, network namespace {of}");
                    self.failed.remove(&name);
                    self.running.insert(name, running);
                }
                Err(problem) => {
                    if self.failed.get(&name) != Some(&problem) {
                        tracing::error!(
                            target: "kernel",
                            "{router}: routes of the kernel cannot be read: {problem}; help: name a namespace of \
                             `ip netns list`; it is tried again every second"
                        );
                        self.failed.insert(name, problem);
                    }
                }
            }
        }
    }

    /// Has all routes read again after a reload.
    pub(super) fn reloaded(&self) {
        self.running.values().for_each(|running| running.signals.is_reloaded.store(true, Ordering::Release));
    }
}

fn start(nfs: &LiveNfs, taps: &Taps, router: &Router) -> Result<Running, String> {
    let monitor = RouteMonitor::open(router.settings.namespace.as_deref()).map_err(|e| e.to_string())?;
    let signals = Arc::new(Signals::default());
    let reader = Reader::new(nfs.clone(), taps.clone(), router.clone(), signals.clone());
    let thread = std::thread::Builder::new().name("kernel-routes".to_owned()).spawn(move || reader.run(monitor));
    Ok(Running { router: router.clone(), signals, thread: Some(thread.map_err(|e| format!("no thread: {e}"))?) })
}
