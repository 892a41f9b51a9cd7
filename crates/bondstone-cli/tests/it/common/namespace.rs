//! Network namespaces and commands in them.

use super::LIMIT;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Returns true if this user may create namespaces and the tools are installed, `ip` and `ethtool` besides those named; says so where
/// not.
pub(crate) fn possible(tools: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return false;
    }
    let missing = |tool: &&&str| Command::new(tool).arg("-V").output().is_err();
    if let Some(tool) = ["ip", "ethtool"].iter().chain(tools).find(missing) {
        eprintln!("skipped: no {tool} on this machine");
        return false;
    }
    true
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// A network namespace, which is deleted with its interfaces when dropped.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Creates a namespace with `lo` only.
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("bs-{}-{name}", std::process::id());
        done(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Namespace(name);
        namespace.ip("link set lo up");
        namespace
    }

    /// Returns true if pings of an address are answered.
    pub(crate) fn reaches(&self, address: &str) -> bool {
        let mut ping = self.command("ping");
        ping.args(["-c", "3", "-i", "0.1", "-W", "2", address]).output().unwrap().status.success()
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).env("LC_ALL", "C");
        command
    }

    /// Runs `ip` in the namespace with these arguments; returns its output.
    #[track_caller]
    pub(crate) fn ip(&self, words: &str) -> String {
        let output = done(Command::new("ip").args(["-n", &self.0]).args(words.split(' ')));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Adds addresses, such as `10.9.0.1/24`, to an interface, disables its offloads, and brings it up.
    pub(crate) fn configure(&self, interface: &str, addresses: &[&str]) {
        self.plain(interface);
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            self.ip(&format!("addr add {address} dev {interface}{nodad}"));
        }
        self.ip(&format!("link set {interface} up"));
    }

    /// Disables checksum and segmentation offloads.
    pub(crate) fn plain(&self, interface: &str) {
        let off = "tx off rx off tso off gso off gro off".split(' ');
        done(self.command("ethtool").args(["-K", interface]).args(off));
    }

    /// Disables IPv6, so that the kernel sends no packets of its own.
    pub(crate) fn mute(&self) {
        let script = "for i in all default; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; done";
        done(self.command("sh").args(["-c", script]));
    }

    /// Creates a veth pair between two namespaces, without addresses and down.
    pub(crate) fn link(&self, near: &str, there: &Namespace, far: &str) {
        self.ip(&format!("link add {near} type veth peer name {far} netns {}", there.0));
    }

    /// Waits for a TCP socket that listens at this port, over IPv4 and IPv6 or either.
    #[track_caller]
    pub(crate) fn wait_for_listener(&self, port: u16) {
        let deadline = Instant::now() + LIMIT;
        let filter = format!("sport = :{port}");
        while done(self.command("ss").args(["-H", "-l", "-t", "-n", &filter])).stdout.is_empty() {
            assert!(Instant::now() < deadline, "no TCP socket listens at port {port} in {}", self.0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Brings an interface without addresses up.
    pub(crate) fn raise(&self, interface: &str) {
        self.configure(interface, &[]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // errors: a failing test reports its own
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}
