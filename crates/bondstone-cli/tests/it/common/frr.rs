//! FRR in a namespace.

use super::namespace::{Namespace, done};
use super::{LIMIT, Running, Scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The folder of FRR's daemons.
const DAEMONS: &str = "/usr/lib/frr";

/// Returns true if FRR is installed; prints a note otherwise.
pub(crate) fn installed() -> bool {
    let installed = Path::new(DAEMONS).join("zebra").exists();
    if !installed {
        eprintln!("skipped: FRR is not installed");
    }
    installed
}

/// Returns the version of FRR: 8 and 4 of 8.4.4.
pub(crate) fn version() -> (u32, u32) {
    let said = done(Command::new(Path::new(DAEMONS).join("zebra")).arg("--version"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let numbers = said.split_whitespace().filter_map(|word| {
        let mut parts = word.split('.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next()??))
    });
    numbers.into_iter().next().unwrap_or_else(|| panic!("no version in {said:?}"))
}

/// The daemons of a router, which end when this is dropped.
pub(crate) struct Frr<'a> {
    namespace: &'a Namespace,
    folder: PathBuf,
    _daemons: Vec<Running>,
}

impl<'a> Frr<'a> {
    /// Starts zebra, and daemons with these configurations.
    pub(crate) fn start(scratch: &Scratch, namespace: &'a Namespace, daemons: &[(&str, &str)]) -> Frr<'a> {
        Frr::start_zebra(scratch, namespace, ("", &[]), daemons)
    }

    /// As [`Frr::start`], with a configuration and arguments of zebra.
    pub(crate) fn start_zebra(
        scratch: &Scratch,
        namespace: &'a Namespace,
        (zebra, arguments): (&str, &[&str]),
        daemons: &[(&str, &str)],
    ) -> Frr<'a> {
        let folder = scratch.path(&namespace.0);
        // of daemons that were killed
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        done(Command::new("chown").arg("frr:frr").arg(&folder));
        let in_folder = |name: &str| folder.join(name).into_os_string().into_string().unwrap();
        let start = |(daemon, configuration): &(&str, &str)| {
            let file = in_folder(&format!("{daemon}.conf"));
            std::fs::write(&file, configuration).unwrap();
            let mut command = namespace.command(&format!("{DAEMONS}/{daemon}"));
            command.args(["-u", "frr", "-g", "frr", "-f", &file, "-i", &in_folder(&format!("{daemon}.pid"))]);
            command.args(["-z", &in_folder("zserv.api"), "--vty_socket"]).arg(&folder);
            if *daemon == "zebra" {
                command.args(arguments);
            }
            if *daemon == "bfdd" {
                command.args(["--bfdctl", &in_folder("bfdd.sock")]);
            }
            let running = Running::start(&mut command);
            let deadline = Instant::now() + LIMIT;
            while !folder.join(format!("{daemon}.vty")).exists() {
                assert!(Instant::now() < deadline, "{daemon} does not start");
                std::thread::sleep(Duration::from_millis(20));
            }
            running
        };
        let daemons = std::iter::once(&("zebra", zebra)).chain(daemons).map(start).collect();
        Frr { namespace, folder, _daemons: daemons }
    }

    /// Configures lines.
    #[track_caller]
    pub(crate) fn configure(&self, lines: &[&str]) {
        let mut vtysh = self.namespace.command("vtysh");
        vtysh.arg("--vty_socket").arg(&self.folder).args(["-c", "configure terminal"]);
        let output = done(vtysh.args(lines.iter().flat_map(|line| ["-c", line])));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains('%'), "{lines:?}: {said}");
    }

    /// Returns the output of a command of vtysh, such as `show bgp summary json`.
    pub(crate) fn show(&self, command: &str) -> Value {
        let mut vtysh = self.namespace.command("vtysh");
        let output = vtysh.arg("--vty_socket").arg(&self.folder).args(["-c", command]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until the output of a command satisfies `wanted`.
    #[track_caller]
    pub(crate) fn wait_for(&self, command: &str, wanted: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let shown = self.show(command);
            if wanted(&shown) {
                return;
            }
            assert!(Instant::now() < deadline, "{command}: {shown}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
