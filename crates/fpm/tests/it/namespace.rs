//! Network namespaces.

use std::net::TcpListener;
use std::process::{Command, Output};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs a command that must succeed; returns its output.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stdout = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{command:?}: {stdout}{}", String::from_utf8_lossy(&stderr));
    stdout
}

/// A network namespace, which is deleted with its interfaces when dropped.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// Creates a namespace with `lo`, and `near` with the addresses 192.0.2.9/24 and 2001:db8::9/64.
    pub(crate) fn new(name: &str) -> Self {
        let namespace = Namespace(format!("bs-{}-{name}", std::process::id()));
        done(Command::new("ip").args(["netns", "add", &namespace.0]));
        for words in [
            "link set lo up",
            "link add near type veth peer name far",
            "link set far up",
            "link set near up",
            "addr add 192.0.2.9/24 dev near",
            "addr add 2001:db8::9/64 dev near nodad",
        ] {
            namespace.ip(words);
        }
        namespace
    }

    /// Runs `ip` in the namespace with these arguments; returns its output.
    #[track_caller]
    pub(crate) fn ip(&self, words: &str) -> String {
        done(Command::new("ip").args(["-n", &self.0]).args(words.split(' ')))
    }

    /// Returns the number of an interface.
    pub(crate) fn interface(&self, name: &str) -> u32 {
        let line = self.ip(&format!("-o link show {name}"));
        line.split(':').next().unwrap().parse().unwrap()
    }

    /// Returns a socket of the namespace that listens at a port of 127.0.0.1.
    pub(crate) fn listen(&self, port: u16) -> TcpListener {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        // the socket remains in the namespace when the thread has ended
        let bind = move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
            TcpListener::bind(("127.0.0.1", port)).unwrap()
        };
        std::thread::spawn(bind).join().unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // errors: a failing test reports its own
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}
