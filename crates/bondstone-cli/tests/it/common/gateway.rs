//! An example that stands between two namespaces.

use super::namespace::Namespace;
use super::{Running, Scratch, Summary};
use std::path::{Path, PathBuf};

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
