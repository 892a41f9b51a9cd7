//! Runs with sandboxes, their processes, and what they leave.

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
        "process" if !root && !runs("unshare", &["-Urnmp", "--fork", "true"]) => "this user may not create namespaces",
        "container" if !root => "containers need root",
        "container" if !runs("runc", &["--version"]) => "no runc on this machine",
        "vm" if !runs("qemu-system-x86_64", &["--version"]) => "no QEMU on this machine",
        "vm" if !FETCHED.get_or_init(|| runs(env!("CARGO_BIN_EXE_bondstone"), &["image", "vm", "--fetch"])) => {
            "no kernel for VMs, and it cannot be downloaded"
        }
        _ => return true,
    };
    eprintln!("skipped: {kind}: {lacking}");
    false
}

/// All kinds of sandbox.
pub(crate) const KINDS: [&str; 3] = ["process", "container", "vm"];

pub(crate) fn demo() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo.pcap").display().to_string()
}

pub(crate) fn run(file: &Path) -> Ended {
    Running::run(file, &[]).end()
}

/// A run with one sandbox.
pub(crate) struct SandboxedRun {
    pub(crate) running: Running,
    pub(crate) id: u32,
    _scratch: Scratch,
    _alone: MutexGuard<'static, ()>,
}

impl SandboxedRun {
    /// Starts a chain through an NF in a sandbox of this kind, and another chain without sandbox.
    pub(crate) fn flow(kind: &str) -> Option<SandboxedRun> {
        SandboxedRun::flow_with(kind, "")
    }

    /// As [`flow`](Self::flow), with this transport.
    pub(crate) fn flow_by(kind: &str, transport: &str) -> Option<SandboxedRun> {
        SandboxedRun::flow_with(kind, &format!("transport = \"{transport}\""))
    }

    /// As [`flow`](Self::flow), with these keys of its sandbox.
    pub(crate) fn flow_with(kind: &str, keys: &str) -> Option<SandboxedRun> {
        let ports: String = ["in", "out", "in2", "out2"].map(|p| format!("port.{p}.device = \"null\"\n")).concat();
        SandboxedRun::begin(
            kind,
            &format!(
                "bondstone = 1\n{ports}[nf.far]\nkind = \"count\"\nisolation = \"{kind}\"\n[nf.near]\nkind = \"count\"\n\
                 [sandbox.far]\n{keys}\n[[chain]]\npath = [\"in\", \"far\", \"out\"]\n[[chain]]\npath = [\"in2\", \"near\", \"out2\"]\n"
            ),
        )
    }

    pub(crate) fn begin(kind: &str, text: &str) -> Option<SandboxedRun> {
        SandboxedRun::of(kind, text, env!("CARGO_BIN_EXE_bondstone"))
    }

    pub(crate) fn of(kind: &str, text: &str, program: &str) -> Option<SandboxedRun> {
        let alone = super::alone();
        if !possible(kind) {
            return None;
        }
        let scratch = Scratch::new();
        let file = scratch.write("chain.toml", text);
        let mut running = Running::start(Command::new(program).arg("run").arg(file).arg("--json"));
        running.started();
        Some(SandboxedRun { id: running.id(), running, _scratch: scratch, _alone: alone })
    }

    /// Returns the only process in the sandbox.
    #[track_caller]
    pub(crate) fn host(&self) -> u32 {
        let [host] = sandbox_processes(self.id)[..] else { panic!("{:?}", sandbox_processes(self.id)) };
        host
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.host() as i32).unwrap(), signal).unwrap();
    }

    /// Kills the process in the sandbox, and waits for another.
    pub(crate) fn kill(&self) {
        let host = self.host();
        self.signal(Signal::KILL);
        until("another process", || sandbox_processes(self.id).first().is_some_and(|now| *now != host));
    }

    /// Waits until the process in the sandbox, which has ended by itself, has been started again, and until more than
    /// this number of rates are printed.
    pub(crate) fn wait_for_restart(&mut self, case: &str, rates: usize) {
        let (mut more_rates, mut starts) = (rates + 1, 2);
        self.running.wait_for(&format!("{case}: another start"), |line| {
            more_rates = more_rates.saturating_sub(usize::from(line.contains("pps")));
            // the next process was ready, or has ended, too
            let was_started = line.contains("\": restarted in ") || line.contains("; restart after ");
            starts -= i32::from(was_started);
            more_rates == 0 && starts <= 0
        });
    }

    /// Stops the run, which must leave nothing; returns the summary.
    #[track_caller]
    pub(crate) fn end(self, status: i32) -> Summary {
        let ended = self.running.interrupt();
        let summary = ended.reported(status);
        assert_eq!(leftovers_of(self.id), Vec::<PathBuf>::new());
        summary
    }
}

/// Returns folders, control groups and processes that a process of the program has left.
pub(crate) fn leftovers_of(id: u32) -> Vec<PathBuf> {
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
    left.extend(sandbox_processes(id).into_iter().map(|id| PathBuf::from(format!("/proc/{id}"))));
    left
}

/// Returns the processes in the sandboxes of a process of the program: those in their namespaces, and QEMU.
pub(crate) fn sandbox_processes(id: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |process: u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let is = |process: &u32| {
        let line = of(*process, "cmdline");
        let inner = line.contains("sandbox-process") && line.contains("--inner");
        // a process in a container is recognised by its mounts only
        let of_run = line.contains(&format!("/bondstone-{id}/"))
            || of(*process, "mountinfo").contains(&format!("/bondstone-{id}/"));
        (inner || line.starts_with("qemu-system") && line.contains("/bondstone-")) && of_run
    };
    all.filter(is).collect()
}

/// Waits until a condition holds; `what` describes it.
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
