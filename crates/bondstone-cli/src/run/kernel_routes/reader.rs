//! A reader of the kernel's routes: it requests all of them, and then receives the changes.
//!
//! All are requested again when changes are lost, and when the kernel removes routes without messages: those of an
//! interface that is set down, of an IPv4 address that is removed, or of a next-hop object. Routes that the kernel does not
//! have any more are removed after that; the others stay in use meanwhile.

use super::table::{Effect, KernelTable};
use crate::run::daemon_routes::{self, DaemonRoutes, Interfaces, Netdev, Source, Tables};
use crate::run::taps::Taps;
use dpdk::netdev::{RouteMonitor, RouteNotification};
use fpm::{Message, NextHop, Route};
use nf::live::{KernelRoutesSettings, LiveVrf, Refused};
use runtime::LiveNfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netdevice::index_to_name;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of the main table, `RT_TABLE_MAIN`.
const MAIN: u32 = 254;
/// `RTPROT_KERNEL`: routes that the kernel adds itself, such as networks of interfaces.
const BY_KERNEL: u8 = 2;
/// `RTM_NEWLINK`, `RTM_DELLINK` and `RTM_DELADDR` of linux/rtnetlink.h.
const LINK_OR_ADDRESS: [u16; 3] = [16, 17, 21];
/// Longest time until the end of the run is noticed.
const INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two requests for all routes, at first and while they do not succeed; and in relation to the time
/// that one takes, so that a tenant that always changes something uses a tenth of a CPU for them at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
const PAUSE_RATIO: u32 = 10;
/// Most notifications that are received before all routes may be requested.
const BURST: usize = 1 << 16;

/// A router, or a tenant, whose routes are read.
pub(super) type Router = daemon_routes::Router<KernelRoutesSettings>;

/// Signals to a reader.
#[derive(Default)]
pub(super) struct Signals {
    /// To end.
    pub(super) end: AtomicBool,
    /// To request all routes, as a reload may have changed interfaces.
    pub(super) is_reloaded: AtomicBool,
}

/// Reader of the routes of a router.
pub(super) struct Reader {
    nfs: LiveNfs,
    taps: Taps,
    router: Router,
    signals: Arc<Signals>,
    table: KernelTable,
    routes: DaemonRoutes,
    /// All routes are to be requested.
    is_stale: bool,
    /// Routes were refused as there were too many, which may be installed when others are removed.
    has_left_out: bool,
    /// IPv6 routes have changed since they were requested.
    ipv6_changed: bool,
}

/// Time from which all routes may be requested, and shortest time between two requests.
struct Schedule {
    from: Instant,
    pause: Duration,
}

/// Returns the state before any routes are read.
fn empty(router: &Router) -> (KernelTable, DaemonRoutes) {
    // a prefix may have several, of which one is installed
    let table = KernelTable::new(router.settings.routes_max.saturating_mul(2));
    (table, DaemonRoutes::new(Source::Kernel, router.to_string()))
}

impl Reader {
    pub(super) fn new(nfs: LiveNfs, taps: Taps, router: Router, signals: Arc<Signals>) -> Reader {
        let (table, routes) = empty(&router);
        let [is_stale, has_left_out, ipv6_changed] = [true, false, false];
        Reader { nfs, taps, router, signals, table, routes, is_stale, has_left_out, ipv6_changed }
    }

    /// Reads until it is to end, or the kernel refuses notifications.
    pub(super) fn run(mut self, mut monitor: RouteMonitor) {
        let mut schedule = Schedule { from: Instant::now(), pause: PAUSE };
        while !self.ends() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.as_nanos() as _ };
            // ignore errors: what is ready is found out by trying
            let _ = poll(&mut [PollFd::new(&monitor, PollFlags::IN)], Some(&timeout));
            self.is_stale |= self.signals.is_reloaded.swap(false, Ordering::AcqRel);
            let Some(live) = self.router.live(&self.nfs) else { continue };
            if let Err(e) = self.receive(&mut monitor, &live) {
                self.warn(&format!("changes of the kernel's routes cannot be received: {e}"));
                return;
            }
            if self.is_stale && Instant::now() >= schedule.from {
                self.read_all(&mut monitor, &live, &mut schedule);
            }
        }
    }

    fn ends(&self) -> bool {
        self.signals.end.load(Ordering::Relaxed)
    }

    fn warn(&self, problem: &str) {
        let cause = format!("{problem} {}", self.router);
        tracing::warn!(target: "kernel", cause = cause.as_str(), "{}: {problem}", self.router);
    }

    /// Executes the notifications that have arrived. Returns false if there may be more.
    fn receive(&mut self, monitor: &mut RouteMonitor, live: &LiveVrf) -> io::Result<bool> {
        let tables = Tables { routers: vec![(MAIN, live.clone())] };
        for n in 0..BURST {
            if self.ends() {
                return Ok(false);
            }
            let messages = match monitor.receive()? {
                RouteNotification::Messages(messages) => messages.to_owned(),
                RouteNotification::None => {
                    // a removal after which nothing has arrived for a while
                    if n == 0 {
                        self.routes.flush(&tables);
                    }
                    return Ok(true);
                }
                RouteNotification::Lost => {
                    self.warn("changes of the kernel's routes were lost; all are read again");
                    self.is_stale = true;
                    continue;
                }
            };
            self.execute(&messages, monitor, &tables);
        }
        Ok(false)
    }

    /// Requests all routes, and removes those that the kernel does not have.
    fn read_all(&mut self, monitor: &mut RouteMonitor, live: &LiveVrf, schedule: &mut Schedule) {
        let start = Instant::now();
        let tables = Tables { routers: vec![(MAIN, live.clone())] };
        self.routes.flush(&tables);
        (self.table, self.routes) = empty(&self.router);
        (self.is_stale, self.has_left_out) = (false, false);
        live.mark_stale();
        let result = self.request(monitor, &tables).and_then(|()| self.receive(monitor, live));
        if self.ends() {
            return;
        }
        let is_complete = match result {
            // of an IPv6 table that changes meanwhile, the kernel may leave out routes
            Ok(is_drained) => is_drained && !self.ipv6_changed && !self.is_stale,
            Err(e) => {
                self.warn(&format!("the kernel's routes cannot be read: {e}; it is tried again"));
                false
            }
        };
        let removed = if is_complete { live.remove_stale() } else { 0 };
        // those that were removed had the room of others
        self.is_stale |= !is_complete || removed > 0 && self.has_left_out;
        let (installed, took) = (live.installed_routes(), start.elapsed());
        tracing::info!(
            target: "kernel",
            cause = "read",
            "{}: {installed} routes of the kernel are used, {removed} were removed; read in {took:.1?}", self.router
        );
        schedule.pause = if is_complete { PAUSE } else { (schedule.pause * 2).min(PAUSE_MAX) };
        schedule.from = Instant::now() + schedule.pause.max(took * PAUSE_RATIO);
    }

    /// Requests all routes and installs them.
    fn request(&mut self, monitor: &RouteMonitor, tables: &Tables) -> io::Result<()> {
        let next_hops = monitor.next_hops(&mut |message| self.execute(message, monitor, tables));
        // ignore other errors: kernels before 5.3 have no next-hop objects, and others refuse routes, too
        self.is_stale |= next_hops.is_err_and(|e| e.kind() == io::ErrorKind::Interrupted);
        monitor.routes(true, &mut |message| self.execute(message, monitor, tables))?;
        monitor.routes(false, &mut |message| self.execute(message, monitor, tables))?;
        // those that follow are notifications
        self.ipv6_changed = false;
        Ok(())
    }

    /// Executes messages.
    fn execute(&mut self, messages: &[u8], monitor: &RouteMonitor, tables: &Tables) {
        let (taps, signals) = (self.taps.clone(), self.signals.clone());
        let netdev = |index| match index_to_name(monitor, index) {
            Ok(name) => Netdev::Named(taps.port_of(name)),
            Err(_) => Netdev::Missing,
        };
        let mut interfaces = Interfaces::new(&netdev);
        let mut changed = BTreeSet::new();
        for message in fpm::messages(messages) {
            if self.ends() {
                return;
            }
            match message {
                Ok(Message::Route(route)) => self.execute_route(&route, tables, &mut interfaces),
                Ok(Message::NextHop(next_hop)) => {
                    // its routes are removed without messages
                    self.is_stale |= matches!(next_hop, NextHop::Remove { .. });
                    changed.insert(self.routes.next_hop(next_hop));
                }
                Ok(Message::Other { kind }) => self.is_stale |= LINK_OR_ADDRESS.contains(&kind),
                Err(e) => self.routes.malformed(&e),
            }
        }
        self.routes.change_objects(&changed, tables, &mut interfaces, &mut vec![], &signals.end);
    }

    fn execute_route(&mut self, route: &Route<'_>, tables: &Tables, interfaces: &mut Interfaces<'_>) {
        self.ipv6_changed |= route.table == MAIN && route.prefix.addr().is_ipv6();
        if route.table != MAIN || route.protocol == BY_KERNEL || route.is_conditional {
            return;
        }
        let (Ok(live), prefix) = (tables.router(MAIN), route.prefix) else { return };
        if !live.is_allowed(prefix) {
            if !route.removes {
                self.routes.refused(prefix, &Refused::NotAllowed.to_string());
            }
            return;
        }
        match self.table.apply(route) {
            Effect::Used => {}
            Effect::Nothing => return,
            Effect::Unclear => {
                self.is_stale = true;
                return;
            }
            Effect::Full => {
                self.has_left_out = true;
                self.routes.refused(prefix, "the kernel has more than twice `routes_max` routes");
                return;
            }
        }
        let target = self.table.used(prefix);
        self.is_stale |= target.is_none() && self.has_left_out;
        let is_installed = self.routes.route((MAIN, prefix), target, tables, interfaces, &mut vec![], &|_, _| ());
        self.has_left_out |= !is_installed && live.installed_routes() >= self.router.settings.routes_max;
    }
}
