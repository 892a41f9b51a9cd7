//! Tenants of a router that runs.

use super::instance::{command, program};
use super::namespace::Namespace;
use super::{LIMIT, Running};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A tenant with a host and a neighbor.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    /// Namespace of the control plane.
    pub(crate) control: String,
    pub(crate) host: Namespace,
    pub(crate) peer: Namespace,
}

impl Site {
    pub(crate) fn new(name: &'static str) -> Site {
        let control = format!("bs-{}-{name}", std::process::id());
        Site { name, control, host: Namespace::new(&format!("{name}-h")), peer: Namespace::new(&format!("{name}-p")) }
    }
}

/// Returns the state of a tenant.
pub(crate) fn tenant(sockets: &Path, name: &str) -> Value {
    let said = command(sockets, &["tenant", "show", name, "--json"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    serde_json::from_str::<Value>(&said.out).unwrap()["tenants"][0].take()
}

/// Waits until the state of a tenant satisfies `wanted`.
#[track_caller]
pub(crate) fn until(sockets: &Path, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + LIMIT;
    loop {
        // it does not answer while daemons start
        let said = command(sockets, &["tenant", "show", name, "--json"]);
        let state = serde_json::from_str::<Value>(&said.out).map_or(Value::Null, |all| all["tenants"][0].clone());
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < deadline, "{state:#}: {}", said.err);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns a condition: so many routes, and a routing daemon that is connected.
pub(crate) fn has_routes(n: u64) -> impl Fn(&Value) -> bool {
    move |tenant| tenant["installed_routes"] == n && tenant["peer"].is_string()
}

/// Returns the number of the process of a daemon.
pub(crate) fn process(tenant: &Value, daemon: &str) -> u64 {
    let all = tenant["daemons"].as_array().unwrap();
    let found = all.iter().find(|state| state["name"] == daemon).unwrap();
    found["pid"].as_u64().unwrap_or_else(|| panic!("{tenant:#}"))
}

/// Returns true if a process exists.
pub(crate) fn runs(pid: u64) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns the number of the process that runs the control plane of a namespace.
pub(crate) fn supervisor(namespace: &str) -> String {
    let lock = std::fs::read_to_string(format!("/run/bondstone-tenants/{namespace}.lock")).unwrap();
    lock.split(' ').next().unwrap().to_owned()
}

/// Starts a run. Namespaces that it makes are visible here, which they would not be with `ip netns exec`.
pub(crate) fn start(own: &Namespace, file: &Path, sockets: &Path) -> Running {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", own.0)).arg("--").arg(program(sockets).get_program());
    let mut running = Running::start(command.env("BONDSTONE_RUNTIME_DIR", sockets).arg("run").arg(file).arg("--json"));
    running.started();
    running
}
