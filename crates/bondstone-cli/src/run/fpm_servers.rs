//! Servers to which routing daemons send the routes of routers: FPM, for each address at which one listens.

mod session;

use super::daemon_routes::{self, Counts, Netdev, Tables};
use super::taps::Taps;
use config::{ChainFile, Port};
use dpdk::netdev;
use graph::Nf as _;
use nf::L3fwd;
use nf::live::{FpmSettings, LiveRoutes, LiveVrf, RouteSource};
use runtime::LiveNfs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netdevice::index_to_name;
use session::Session;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Answers that wait for the routing daemon to read them, in bytes; it is not read from while there are more.
const MAX_ANSWERS: usize = 1 << 20;
/// Longest time until the end of the run is noticed.
const INTERVAL: Duration = Duration::from_millis(100);

/// Where a server listens: namespace and address.
type ListenAddress = (Option<String>, SocketAddr);

/// Settings of a routing daemon and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Daemon {
    fpm: FpmSettings,
    /// True if the routing daemon is behind ports that are no taps, so that the interfaces that it has are of another
    /// kernel.
    is_elsewhere: bool,
}

/// A router, or a tenant, whose routes arrive at a server.
type Router = daemon_routes::Router<Daemon>;

/// State of a server, as it is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerState {
    /// The peer that is connected.
    pub(super) peer: Option<SocketAddr>,
    /// Numbers of all connections.
    pub(super) counts: Counts,
}

/// The states of the servers by the names of router and tenant.
type States = Arc<Mutex<BTreeMap<(String, Option<String>), ServerState>>>;

/// The servers of a run; dropping them closes their connections.
#[derive(Default)]
pub(super) struct FpmServers {
    running: BTreeMap<ListenAddress, Running>,
    /// Problems of those that could not be started.
    failed: BTreeMap<ListenAddress, String>,
    states: States,
}

struct Running {
    routers: Vec<Router>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // ignore errors: the thread has ended by a panic
            let _ = thread.join();
        }
    }
}

impl FpmServers {
    /// Starts and ends servers so that they are those of the routers that run. Connections of others stay. An address that
    /// cannot be used is logged and tried again with the next call.
    pub(super) fn update(&mut self, nfs: &LiveNfs, file: &ChainFile, taps: &Taps) {
        let mut wanted: BTreeMap<ListenAddress, Vec<Router>> = BTreeMap::new();
        for nf in nfs.of_kind(L3fwd::KIND) {
            let Some(live) = nfs.shared::<LiveRoutes>(&nf) else { continue };
            for vrf in live.vrfs() {
                if let Some(RouteSource::Fpm(fpm)) = vrf.source().cloned() {
                    let routers = wanted.entry((fpm.namespace.clone(), fpm.listen)).or_default();
                    let (tenant, is_elsewhere) = (vrf.tenant().map(str::to_owned), is_elsewhere(file, &nf, &vrf));
                    routers.push(Router { nf: nf.clone(), tenant, settings: Daemon { fpm, is_elsewhere } });
                }
            }
        }
        self.failed.retain(|place, _| wanted.contains_key(place));
        self.running.retain(|place, running| wanted.get(place) == Some(&running.routers));
        for (place, routers) in wanted {
            if self.running.contains_key(&place) {
                continue;
            }
            match self.start(&place, (nfs, taps), &routers) {
                Ok(running) => {
                    tracing::info!(target: "fpm", "{} for the routes of {}", described(&place), names(&routers));
                    self.failed.remove(&place);
                    self.running.insert(place, running);
                }
                Err(problem) => {
                    if self.failed.get(&place) != Some(&problem) {
                        tracing::error!(
                            target: "fpm",
                            "{}: {problem}; help: name a namespace of `ip netns list`, and an address and port of it that \
                             are free; it is tried again every second",
                            names(&routers)
                        );
                        self.failed.insert(place, problem);
                    }
                }
            }
        }
    }

    /// Returns the state of the server for the routes of a router or tenant.
    pub(super) fn state(&self, nf: &str, tenant: Option<&str>) -> ServerState {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(&(nf.to_owned(), tenant.map(str::to_owned))).copied().unwrap_or_default()
    }

    fn start(
        &self,
        place: &ListenAddress,
        (nfs, taps): (&LiveNfs, &Taps),
        routers: &[Router],
    ) -> Result<Running, String> {
        let listener = listen(place)?;
        let end = Arc::new(AtomicBool::new(false));
        let (taps, states) = (taps.clone(), self.states.clone());
        let server = Server { nfs: nfs.clone(), taps, states, routers: routers.to_vec(), end: end.clone() };
        let thread = std::thread::Builder::new().name("fpm".to_owned()).spawn(move || server.run(&listener));
        let thread = Some(thread.map_err(|e| format!("no thread: {e}"))?);
        Ok(Running { routers: routers.to_vec(), end, thread })
    }
}

fn names(routers: &[Router]) -> String {
    routers.iter().map(Router::to_string).collect::<Vec<_>>().join(", ")
}

fn described((namespace, address): &ListenAddress) -> String {
    match namespace {
        Some(name) => format!("listening at {address} in namespace {name}"),
        None => format!("listening at {address}"),
    }
}

/// Returns a socket that listens in a namespace, where it then stays.
fn listen((namespace, address): &ListenAddress) -> Result<TcpListener, String> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    netdev::in_namespace(namespace.as_deref(), bind).map_err(|e| format!("cannot listen at {address}: {e}"))
}

/// Returns true if interfaces have representors, and none of them is a tap.
fn is_elsewhere(file: &ChainFile, nf: &str, vrf: &LiveVrf) -> bool {
    let own: Vec<String> = vrf.interfaces().map(|(name, _)| name).collect();
    let nf = file.nfs.iter().find(|config| config.name == nf);
    let representors = nf.map_or(vec![], |nf| nf.factory.representors(&nf.name));
    let ports: Vec<&Port> = representors
        .iter()
        .filter(|representor| own.contains(&representor.interface))
        .filter_map(|representor| file.ports.iter().find(|port| port.name == representor.name))
        .collect();
    !ports.is_empty() && ports.iter().all(|port| port.representor_tap().is_none())
}

struct Server {
    nfs: LiveNfs,
    taps: Taps,
    states: States,
    routers: Vec<Router>,
    end: Arc<AtomicBool>,
}

/// A connection of zebra.
struct Connection {
    stream: TcpStream,
    /// Of each router, which others before and after reloads have the same routes.
    lineages: Vec<u64>,
    session: Session,
    /// Answers that have not been sent.
    answers: Vec<u8>,
}

impl Server {
    /// Serves one connection at a time: a later one replaces it, as zebra has been restarted then.
    fn run(&self, listener: &TcpListener) {
        let mut connection: Option<Connection> = None;
        // when the routes of each router became stale: those of before, if there are any
        let mut stale_since: Vec<Option<Instant>> = vec![Some(Instant::now()); self.routers.len()];
        // such as those that were read from the kernel before
        self.tables().routers.iter().for_each(|(_, router)| router.mark_stale());
        while !self.end.load(Ordering::Relaxed) {
            self.wait(listener, connection.as_ref());
            if let Ok((stream, peer)) = listener.accept() {
                if let Some(mut before) = connection.take() {
                    self.disconnected(&mut before, "another one replaces it");
                    stale_since.fill(Some(Instant::now()));
                }
                if stream.set_nonblocking(true).is_ok() {
                    tracing::info!(target: "fpm", "{peer} connected, routes of {}", names(&self.routers));
                    self.report(|state| state.peer = Some(peer));
                    let lineages = self.tables().lineages();
                    let session = Session::new(names(&self.routers));
                    connection = Some(Connection { stream, lineages, session, answers: vec![] });
                }
            }
            if let Some(open) = &mut connection
                && let Err(reason) = open.exchange(self)
            {
                self.disconnected(open, &reason);
                connection = None;
                stale_since.fill(Some(Instant::now()));
            }
            for (router, since) in self.routers.iter().zip(&mut stale_since) {
                let time = Duration::from_secs(router.settings.fpm.stale_time.into());
                if since.take_if(|since| since.elapsed() >= time).is_some() {
                    self.remove_stale(router);
                }
            }
        }
        if let Some(mut open) = connection {
            self.disconnected(&mut open, "the server ends");
        }
    }

    fn wait(&self, listener: &TcpListener, connection: Option<&Connection>) {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        if let Some(Connection { stream, answers, .. }) = connection {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, answers.len() < MAX_ANSWERS);
            events.set(PollFlags::OUT, !answers.is_empty());
            fds.push(PollFd::new(stream, events));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: INTERVAL.as_nanos() as _ };
        // ignore errors: what is ready is found out by trying
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Returns the routers, which a reload replaces.
    fn tables(&self) -> Tables {
        let router = |router: &Router| Some((router.settings.fpm.table, router.live(&self.nfs)?));
        Tables { routers: self.routers.iter().filter_map(router).collect() }
    }

    /// Changes the state of the server that is reported.
    fn report(&self, change: impl Fn(&mut ServerState)) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for Router { nf, tenant, .. } in &self.routers {
            change(states.entry((nf.clone(), tenant.clone())).or_default());
        }
    }

    fn disconnected(&self, connection: &mut Connection, reason: &str) {
        self.report(|state| state.peer = None);
        let Counts { changed, refused, malformed } = connection.session.counts();
        tracing::warn!(
            target: "fpm",
            "connection for {} ended, {reason}; {changed} routes changed, {refused} refused, {malformed} messages malformed",
            names(&self.routers)
        );
        let tables = self.tables();
        connection.session.flush(&tables);
        tables.routers.iter().for_each(|(_, router)| router.mark_stale());
    }

    /// Removes routes that have not been sent again.
    fn remove_stale(&self, router: &Router) {
        let removed = router.live(&self.nfs).map_or(0, |live| live.remove_stale());
        if removed > 0 {
            tracing::warn!(target: "fpm", nf = router.nf, "{removed} routes of {router} removed: not sent again");
        }
    }
}

impl Connection {
    /// Reads and executes what has arrived, and sends answers, without waiting.
    ///
    /// # Errors
    /// The connection is to be closed, for this reason.
    fn exchange(&mut self, server: &Server) -> Result<(), String> {
        let Connection { stream, lineages, session, answers } = self;
        let tables = server.tables();
        if tables.lineages() != *lineages {
            return Err("a reload has changed interfaces, so all routes are to be sent again".to_owned());
        }
        if answers.len() < MAX_ANSWERS {
            match (&*stream).read(session.room()) {
                Ok(0) => return Err("the peer has closed it".to_owned()),
                Ok(n) => {
                    let socket = &*stream;
                    let netdev = |index| match index_to_name(socket, index) {
                        _ if server.routers.iter().all(|router| router.settings.is_elsewhere) => Netdev::Elsewhere,
                        Ok(name) => Netdev::Named(server.taps.port_of(name)),
                        Err(_) => Netdev::Missing,
                    };
                    let before = session.counts();
                    let received = session.received(n, &tables, &netdev, answers, &server.end);
                    let new = session.counts() - before;
                    server.report(|state| state.counts += new);
                    received.map_err(|e| e.to_string())?;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => session.flush(&tables),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        let mut sent = 0;
        while sent < answers.len() {
            match (&*stream).write(&answers[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        answers.drain(..sent);
        Ok(())
    }
}
