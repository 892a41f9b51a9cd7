//! An example that stands between two namespaces.

use super::namespace::Namespace;
use super::{Running, Scratch, Summary};
use std::path::{Path, PathBuf};

/// Addresses of the hosts of the home gateway.
pub(crate) const HOME: &str = "192.168.1.10/24";
pub(crate) const REMOTE: [&str; 2] = ["203.0.113.1/24", "198.51.100.7/32"];

/// An example's file, with its chains on CPU 0.
pub(crate) fn example(scratch: &Scratch, name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    scratch.write(name, text.replace("[[chain]]\n", "[[chain]]\ncores = [0]\n"))
}

/// Runs a chain file in a namespace.
pub(crate) fn start(namespace: &Namespace, file: &Path) -> Running {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut running = Running::start(command.arg("run").arg(file).arg("--json"));
    running.started();
    running
}

/// Runs a chain file in a namespace, with its control socket in `dir`.
pub(crate) fn start_with_socket(namespace: &Namespace, file: &Path, dir: &Path) -> Running {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_bondstone"));
    let mut running = Running::start(command.env("BONDSTONE_RUNTIME_DIR", dir).arg("run").arg(file).arg("--json"));
    running.started();
    running
}

/// Moves a tap into a namespace and gives it addresses.
pub(crate) fn plug(between: &Namespace, tap: &str, host: &Namespace, addresses: &[&str]) {
    between.ip(&format!("link set {tap} netns {}", host.0));
    host.configure(tap, addresses);
}

/// Moves the taps of the home gateway to two hosts.
pub(crate) fn plug_hosts(gateway: &Namespace, home: &Namespace, remote: &Namespace) {
    plug(gateway, "lan0", home, &[HOME]);
    plug(gateway, "wan0", remote, &REMOTE);
    home.ip("route add default via 192.168.1.1");
}

/// A download by TCP through the home gateway.
pub(crate) struct Download {
    server: Running,
    client: Running,
}

impl Download {
    /// Downloads from the remote host for some seconds.
    pub(crate) fn start(home: &Namespace, remote: &Namespace, seconds: u32) -> Download {
        let server = Running::start(remote.command("iperf3").args(["-s", "-1"]));
        remote.wait_for_listener(5201);
        let mut words = home.command("iperf3");
        let client = Running::start(words.args(["-c", "198.51.100.7", "-t", &seconds.to_string(), "-R", "-J"]));
        Download { server, client }
    }

    /// Waits for the end; no second was without data.
    #[track_caller]
    pub(crate) fn end(self) {
        let ended = self.client.end();
        assert_eq!(ended.status, Some(0), "{}{}", ended.out, ended.err);
        let transfer = Summary(serde_json::from_str(&ended.out).unwrap());
        assert!(transfer.number("/end/sum_received/bytes") > 1_000_000, "{}", ended.out);
        let seconds = transfer.0["intervals"].as_array().unwrap();
        assert!(seconds.iter().all(|second| second["sum"]["bytes"].as_u64().unwrap() > 0), "{}", ended.out);
        assert_eq!(self.server.end().status, Some(0));
    }
}

/// Everything that was received or made was sent, held or dropped by a reason.
#[track_caller]
pub(crate) fn accounted(did: &Summary) {
    let total = |name: &str| did.number(&format!("/totals/{name}"));
    assert_eq!(total("received") + total("created"), total("sent") + total("held") + total("dropped"), "{}", did.0);
}

/// A name server that says where `www.example` is.
pub(crate) fn dns(at: &Namespace, address: &str) -> Running {
    let mut server = at.command("dnsmasq");
    server.args(["-k", "-R", "-h", "-C", "/dev/null", "-i", "wan0", "-u", "root", "--pid-file="]);
    Running::start(server.arg(format!("--host-record=www.example,{address}")))
}
