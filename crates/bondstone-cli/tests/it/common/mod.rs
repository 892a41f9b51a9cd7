//! Shared parts of the integration tests.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test program uses its own part")]

pub(crate) mod flows;
pub(crate) mod fpm_client;
pub(crate) mod fpm_recording;
pub(crate) mod frr;
pub(crate) mod full_table;
pub(crate) mod gateway;
pub(crate) mod guest;
pub(crate) mod instance;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod namespace;
pub(crate) mod page;
pub(crate) mod peer;
mod running;
pub(crate) mod sandboxed_run;
pub(crate) mod ssh;
pub(crate) mod tenants;
pub(crate) mod traffic;

pub use running::{Ended, LIMIT, Running, Summary};

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Workers stay on their CPUs, so runs beside each other only wait for each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of a test's own, removed with all that is in it when the test ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bondstone-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// Where a file in it is.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes a capture of `frames` Ethernet frames of 60 bytes, a microsecond apart, the first byte counting up.
    pub(crate) fn capture(&self, name: impl AsRef<Path>, frames: u32) -> PathBuf {
        let path = self.path(name);
        let mut writer = pcap::Writer::create(&path, pcap::LinkType::ETHERNET).unwrap();
        for n in 0..frames {
            let mut frame = [0; 60];
            frame[0] = n as u8;
            writer.write(u64::from(n) * 1000, 60, &frame).unwrap();
        }
        writer.finish().unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // a test that fails shall tell why, not that its folder is still in use
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of the program `examples/misbehave.rs`.
pub(crate) fn misbehave() -> PathBuf {
    examples().join("misbehave")
}

/// Returns the path of the program `examples/attack.rs`.
pub(crate) fn attack() -> PathBuf {
    examples().join("attack")
}

/// Returns the folder of the programs `bondstone` and `examples/cli_pages.rs`, from which packages are built.
pub(crate) fn built_folder() -> &'static Path {
    examples().parent().expect("the folder of the profile")
}

/// Builds the examples and returns their folder.
fn examples() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_bondstone")).parent().expect("it is in a folder");
        let release = if built.ends_with("release") { &["--release"][..] } else { &[] };
        let mut cargo = Command::new(env!("CARGO"));
        // with the packages of the tests, so that nothing is compiled again
        cargo.args(["build", "--offline", "--workspace"]).args(release);
        cargo.args(["misbehave", "attack", "cli_pages"].map(|name| format!("--example={name}")));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.env("CARGO_TARGET_DIR", built.parent().expect("target folders have one for each profile"));
        let said = Said::from(cargo.output().unwrap());
        assert_eq!(said.status, Some(0), "{}", said.err);
        built.join("examples")
    })
}

/// Runs a measurement and returns the results. On a busy machine a device may get no CPU time in a trial of less than a
/// second: the measurement is then repeated, as all packets of the forwarding check were received before.
pub(crate) fn measured(program: &mut Command) -> Vec<Value> {
    const ATTEMPTS: usize = 5;
    let mut attempts = 0;
    loop {
        let output = Said::from(program.output().unwrap());
        // 1: host interference invalidated every trial
        assert!(matches!(output.status, Some(0 | 1)), "{}\n{}", output.err, output.out);
        let results: Vec<Value> = serde_json::from_str(&output.out).unwrap();
        let received = |trial: &Value| trial["received"].as_u64().unwrap() > 0;
        if results.iter().all(|result| result["trials"].as_array().unwrap().iter().any(received)) {
            return results;
        }
        attempts += 1;
        assert!(attempts < ATTEMPTS, "nothing was received: {}", output.out);
    }
}

/// How the program ended and what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// Exit status; `None` when a signal ended it.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Said {
    /// The documents that it printed, each what its id says.
    #[track_caller]
    pub(crate) fn results(&self) -> Vec<report::Result> {
        let all: Vec<Value> =
            serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.out, self.err));
        let read = |r: &Value| report::Document::read(&r.to_string()).expect("it is what its id says");
        all.iter().map(|r| read(r).into_result()).collect()
    }
}

/// Returns true if no poll gap was long in a trial of at most 100,000 packets per second: its queues, which hold 1024, have not
/// overflowed then, and what is lost was dropped.
pub(crate) fn is_quiet(trial: &report::Trial) -> bool {
    trial.poll_gap_max_ns < 1_000_000
}

/// Returns true if there is CPU 0 for a chain and another one for the generator; prints a note otherwise.
pub(crate) fn has_cpu_0_and_another() -> bool {
    let cpus = runtime::allowed_cpus();
    let enough = cpus.len() > 1 && cpus.contains(&0);
    if !enough {
        eprintln!("skipped: needs CPU 0 and one more");
    }
    enough
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
        Said { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Runs the program to its end.
pub(crate) fn bondstone<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Said {
    Command::new(env!("CARGO_BIN_EXE_bondstone")).args(arguments).output().unwrap().into()
}
