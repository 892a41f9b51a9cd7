//! zebra and staticd in a namespace, and the connection from zebra.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fpm::{FrameReader, Message, NextHop, NextHops, Route, Target, Verdict, answer, messages};
use ipnet::IpNet;
use rustix::process::{Pid, Signal, kill_process};

use crate::namespace::{Namespace, done};

/// Time within which the daemons must react.
const LIMIT: Duration = Duration::from_secs(30);
/// Folder of FRR's daemons; another version can be tested with `FRR_DAEMONS`.
const DAEMONS: &str = "/usr/lib/frr";

/// Returns the path of a daemon, or `None` if it is not installed.
fn daemon(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FRR_DAEMONS").unwrap_or(DAEMONS.into());
    Some(Path::new(&folder).join(name)).filter(|path| path.exists())
}

/// Returns true if the tests can be run; prints why not.
pub(crate) fn possible() -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if daemon("zebra").is_none() || daemon("staticd").is_none() {
        "no zebra on this machine (scripts/setup.sh test installs it)"
    } else {
        return true;
    };
    eprintln!("skipped: {missing}");
    false
}

/// FRR in a namespace. Its processes are ended and its files removed when dropped.
pub(crate) struct Frr {
    pub(crate) namespace: Namespace,
    processes: Vec<Child>,
    folder: PathBuf,
    listener: TcpListener,
}

impl Frr {
    /// Starts zebra, which connects to this process, and staticd.
    pub(crate) fn start(name: &str, settings: &str) -> Self {
        let namespace = Namespace::new(name);
        let folder = std::env::temp_dir().join(format!("bondstone-fpm-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let listener = namespace.listen(fpm::PORT);
        listener.set_nonblocking(true).unwrap();
        let mut frr = Frr { namespace, processes: vec![], folder, listener };
        let config = format!("fpm address 127.0.0.1 port {}\n{settings}\n", fpm::PORT);
        std::fs::write(frr.folder.join("zebra.conf"), config).unwrap();
        std::fs::write(frr.folder.join("vtysh.conf"), "").unwrap();
        done(Command::new("chown").args(["-R", "frr:frr"]).arg(&frr.folder));
        let config = frr.folder.join("zebra.conf").display().to_string();
        frr.run("zebra", &["-f", &config, "-M", "dplane_fpm_nl", "--asic-offload=notify_on_offload"]);
        // newer versions configure staticd through mgmtd
        if daemon("mgmtd").is_some() {
            frr.run("mgmtd", &[]);
        }
        frr.run("staticd", &[]);
        frr
    }

    /// Starts a daemon and waits for its socket.
    fn run(&mut self, name: &str, arguments: &[&str]) {
        let path = daemon(name).unwrap_or_else(|| panic!("{name} is not installed"));
        let file = |name: &str| self.folder.join(name);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace.0]).arg(path);
        command.args(["-u", "frr", "-g", "frr"]).arg("-i").arg(file(&format!("{name}.pid")));
        command.arg("--vty_socket").arg(&self.folder).args(arguments).stdin(Stdio::null());
        if name != "mgmtd" {
            command.arg("-z").arg(file("zserv.api"));
        }
        self.processes.push(command.spawn().unwrap());
        let socket = file(&format!("{name}.vty"));
        until(name, || socket.exists().then_some(()));
    }

    /// Returns a command that runs vtysh.
    fn vtysh(&self) -> Command {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(&self.folder).arg("--config_dir").arg(&self.folder);
        command
    }

    /// Configures lines.
    #[track_caller]
    pub(crate) fn configure<L: AsRef<str> + Debug>(&self, lines: &[L]) {
        let mut command = self.vtysh();
        command.args(["-c", "configure terminal"]);
        for line in lines {
            command.args(["-c", line.as_ref()]);
        }
        let output = done(&mut command);
        assert!(!output.contains('%'), "{lines:?}: {output}");
    }

    /// Returns what zebra shows of a route of the main table.
    pub(crate) fn shown(&self, prefix: &str) -> serde_json::Value {
        let family = if prefix.contains(':') { "ipv6" } else { "ip" };
        let text = done(self.vtysh().args(["-c", &format!("show {family} route {prefix} json")]));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[prefix][0].clone()
    }

    /// Returns true if this version of zebra reads answers.
    pub(crate) fn reads_answers(&self) -> bool {
        let text = done(self.vtysh().args(["-c", "show version"]));
        let version = text.split_whitespace().nth(1).unwrap_or_else(|| panic!("no version in {text:?}"));
        let mut parts = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let version: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        version >= (8, 5) && version != (10, 3)
    }

    /// Waits for the connection from zebra.
    pub(crate) fn accept(&self) -> Connection {
        let stream = until("the connection from zebra", || match self.listener.accept() {
            Ok((stream, _)) => Some(stream),
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            Err(e) => panic!("accept: {e}"),
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (reader, next_hops, routes) = (FrameReader::new(), NextHops::new(10_000), BTreeMap::new());
        Connection { stream, reader, next_hops, routes, answers: BTreeMap::new() }
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
            let deadline = Instant::now() + LIMIT;
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a value.
#[track_caller]
pub(crate) fn until<T>(name: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < deadline, "{name}: nothing after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Protocol and target of routes, by table and prefix.
pub(crate) type Routes = BTreeMap<(u32, IpNet), (u8, Target)>;

/// A connection, and what zebra has sent over it.
pub(crate) struct Connection {
    stream: TcpStream,
    reader: FrameReader,
    pub(crate) next_hops: NextHops,
    /// As received.
    routes: Routes,
    /// The answer to each route, for each verdict.
    answers: BTreeMap<(u32, IpNet), [Vec<u8>; 2]>,
}

impl Connection {
    /// Receives until the routes, with next-hop objects resolved, are these.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &Routes) {
        let deadline = Instant::now() + LIMIT;
        while self.resolved() != *expected && Instant::now() < deadline {
            self.receive();
        }
        assert_eq!(self.resolved(), *expected);
    }

    /// Receives until there are routes of the networks of `near`, and returns these.
    pub(crate) fn connected(&mut self) -> Routes {
        until("connected routes", || {
            self.receive();
            Some(self.resolved()).filter(|routes| routes.len() >= 2)
        })
    }

    /// Returns the routes, with next-hop objects resolved; but for those of addresses of interfaces, which newer versions
    /// send, and those of link-local addresses.
    fn resolved(&self) -> Routes {
        let address = |prefix: &IpNet| prefix.prefix_len() == prefix.max_prefix_len();
        let link_local = |prefix: &IpNet| matches!(prefix, IpNet::V6(v6) if v6.addr().is_unicast_link_local());
        let resolve = |target: &Target| match target {
            Target::Object(id) => self.next_hops.resolve(*id).unwrap_or(Target::Object(*id)),
            target => target.clone(),
        };
        self.routes
            .iter()
            .filter(|((_, prefix), _)| !address(prefix) && !link_local(prefix))
            .map(|(key, (protocol, target))| (*key, (*protocol, resolve(target))))
            .collect()
    }

    /// Receives what arrives within 100 ms.
    fn receive(&mut self) {
        let n = match self.stream.read(self.reader.room()) {
            Ok(0) => panic!("zebra has closed the connection"),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(e) => panic!("read: {e}"),
        };
        self.reader.filled(n);
        while let Some(payload) = self.reader.next_frame().unwrap() {
            for message in messages(payload) {
                match message.unwrap() {
                    Message::Route(Route { removes: true, table, prefix, .. }) => {
                        self.routes.remove(&(table, prefix));
                        self.answers.remove(&(table, prefix));
                    }
                    Message::Route(route) => {
                        let key = (route.table, route.prefix);
                        let answers = [Verdict::Offloaded, Verdict::Failed].map(|verdict| {
                            let mut bytes = vec![];
                            answer(&route, verdict, &mut bytes);
                            bytes
                        });
                        self.answers.insert(key, answers);
                        self.routes.insert(key, (route.protocol, route.target));
                    }
                    Message::NextHop(NextHop::Add { id, value }) => self.next_hops.insert(id, value).unwrap(),
                    Message::NextHop(NextHop::Remove { id }) => drop(self.next_hops.remove(id)),
                    Message::Other { .. } => (),
                }
            }
        }
    }

    /// Answers all routes; failed ones if `failed`.
    pub(crate) fn answer(&mut self, failed: bool) {
        let bytes: Vec<u8> = self.answers.values().flat_map(|answers| answers[usize::from(failed)].clone()).collect();
        self.stream.write_all(&bytes).unwrap();
    }
}
