//! Runs with sandboxes, and what is behind them.

use super::{Ended, Running, Scratch, Summary};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// Returns true if this kind of sandbox is available.
pub(crate) fn possible(kind: &str) -> bool {
    static FETCHED: OnceLock<bool> = OnceLock::new();
    let root = rustix::process::geteuid().is_root();
    let runs = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
    };
    let lacking = match kind {
        "process" if !root && !runs("unshare", &["-Urnmp", "--fork", "true"]) => "this user may make no namespaces",
        "container" if !root => "containers need root",
        "container" if !runs("runc", &["--version"]) => "no runc on this machine",
        "vm" if !runs("qemu-system-x86_64", &["--version"]) => "no QEMU on this machine",
        "vm" if !FETCHED.get_or_init(|| runs(env!("CARGO_BIN_EXE_bondstone"), &["image", "vm", "--fetch"])) => {
            "no kernel for VMs, and none to fetch"
        }
        _ => return true,
    };
    eprintln!("skipped: {kind}: {lacking}");
    false
}

/// The sandboxes that there are.
pub(crate) const KINDS: [&str; 3] = ["process", "container", "vm"];

pub(crate) fn demo() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.pcap").display().to_string()
}

pub(crate) fn run(file: &Path) -> Ended {
    Running::run(file, &[]).end()
}

/// A run with one sandbox, and what is behind it.
pub(crate) struct Stand {
    pub(crate) running: Running,
    pub(crate) id: u32,
    _scratch: Scratch,
    _alone: MutexGuard<'static, ()>,
}

impl Stand {
    /// A flow of packets through an NF in a sandbox of this kind, and another beside it through none.
    pub(crate) fn flow(kind: &str) -> Option<Stand> {
        Stand::flow_with(kind, "")
    }

    /// The same, by this transport.
    pub(crate) fn flow_by(kind: &str, transport: &str) -> Option<Stand> {
        Stand::flow_with(kind, &format!("transport = \"{transport}\""))
    }

    /// The same, with these keys of its sandbox.
    pub(crate) fn flow_with(kind: &str, keys: &str) -> Option<Stand> {
        let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
        Stand::begin(
            kind,
            &format!(
                "bondstone = 1\n{ports}[nf.far]\nkind = \"count\"\nisolation = \"{kind}\"\n[nf.near]\nkind = \"count\"\n\
                 [sandbox.far]\n{keys}\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n[[chain]]\npath = [\"in2\", \"near\", \"out2\"]\n"
            ),
        )
    }

    pub(crate) fn begin(kind: &str, text: &str) -> Option<Stand> {
        Stand::of(kind, text, env!("CARGO_BIN_EXE_bondstone"))
    }

    pub(crate) fn of(kind: &str, text: &str, program: &str) -> Option<Stand> {
        let alone = super::alone();
        if !possible(kind) {
            return None;
        }
        let scratch = Scratch::new();
        let file = scratch.write("chain.toml", text);
        let mut running = Running::start(Command::new(program).arg("run").arg(file).arg("--json"));
        running.started();
        Some(Stand { id: running.id(), running, _scratch: scratch, _alone: alone })
    }

    /// The one process in the sandbox.
    #[track_caller]
    pub(crate) fn host(&self) -> u32 {
        let [host] = behind(self.id)[..] else { panic!("{:?}", behind(self.id)) };
        host
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.host() as i32).unwrap(), signal).unwrap();
    }

    /// Ends the process in the sandbox as nothing else can, and waits for another.
    pub(crate) fn kill(&self) {
        let host = self.host();
        self.signal(Signal::KILL);
        until("another process", || behind(self.id).first().is_some_and(|now| *now != host));
    }

    /// Ends the run, of which nothing may be left.
    #[track_caller]
    pub(crate) fn end(self, status: i32) -> Summary {
        let ended = self.running.interrupt();
        let summary = ended.told(status);
        assert_eq!(left_by(self.id), Vec::<PathBuf>::new());
        summary
    }
}

/// Returns what a process of the program leaves behind, if anything.
pub(crate) fn left_by(id: u32) -> Vec<PathBuf> {
    let name = format!("bondstone-{id}");
    let mut left: Vec<PathBuf> = [PathBuf::from("/run"), std::env::temp_dir()].map(|base| base.join(&name)).into();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                left.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    left.retain(|path| path.exists());
    left.extend(behind(id).into_iter().map(|id| PathBuf::from(format!("/proc/{id}"))));
    left
}

/// Processes in the sandboxes of a process of the program: those in their namespaces, and what runs VMs.
pub(crate) fn behind(id: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |process: u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let is = |process: &u32| {
        let line = of(*process, "cmdline");
        let inner = line.contains("sandbox-process") && line.contains("--inner");
        // of a container only its mounts tell whose it is
        let whose = line.contains(&format!("/bondstone-{id}/"))
            || of(*process, "mountinfo").contains(&format!("/bondstone-{id}/"));
        (inner || line.starts_with("qemu-system") && line.contains("/bondstone-")) && whose
    };
    all.filter(is).collect()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + super::LIMIT;
    while !is() {
        assert!(Instant::now() < end, "waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if a line reports packets sent by port `out`.
pub(crate) fn is_flowing(line: &str) -> bool {
    let sent = line.split("  ").find_map(|part| part.trim().strip_prefix("out rx "));
    sent.and_then(|part| part.split(" tx ").nth(1)).is_some_and(|rate| !rate.starts_with("0 pps"))
}
