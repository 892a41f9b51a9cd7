//! `native-bench` as a child process: compares NFs with their C baselines.

use bench::scenario::{NativeBench, Observation, parse_native_bench};
use logger::{eprint, eprintln};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Outcome of a run of `native-bench`.
pub(super) enum NativeOutcome {
    /// Measured ratios.
    Measured(Vec<Observation>),
    /// Measured ratios that should not be used for verdicts, and the reason.
    Unreliable(Vec<Observation>, String),
    /// No result, for this reason.
    Failed(String),
    /// Interrupted by the user.
    Interrupted,
}

/// Largest output and result file that are read, bytes.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// Runs `native-bench` until it ends or `interrupted` returns true.
pub(super) fn run(native: &NativeBench, interrupted: impl Fn() -> bool) -> NativeOutcome {
    let Some(program) = program() else {
        let remedy = "build it with: cargo build --release -p bondstone-native";
        return NativeOutcome::Failed(format!("native-bench is not built; {remedy}"));
    };
    let temp_dir = match TempDir::new() {
        Ok(dir) => dir,
        Err(e) => {
            return NativeOutcome::Failed(format!("cannot create a directory for the output of native-bench: {e}"));
        }
    };
    let file = temp_dir.0.join("native.json");
    let mut command = Command::new(&program);
    command.args(["--only", &native.filter, "--pairs", &native.pairs.to_string(), "--json"]).arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    eprintln!("{} --only {} --pairs {}", program.display(), native.filter, native.pairs);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return NativeOutcome::Failed(format!("cannot start {}: {e}", program.display())),
    };
    let (status, stderr) = match wait(child, interrupted) {
        Ok(Some(output)) => output,
        Ok(None) => return NativeOutcome::Interrupted,
        Err(e) => return NativeOutcome::Failed(format!("native-bench: {e}")),
    };
    if !status.success() {
        let last = stderr.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("no output").trim();
        return NativeOutcome::Failed(format!("native-bench failed ({status}): {last}"));
    }
    let parsed = read_file(&file).and_then(|text| parse_native_bench(&text));
    match (parsed, stderr.lines().find_map(|l| l.strip_prefix("warning: "))) {
        (Ok(rows), None) => NativeOutcome::Measured(rows),
        (Ok(rows), Some(warning)) => NativeOutcome::Unreliable(rows, format!("native-bench warns: {warning}")),
        (Err(e), _) => NativeOutcome::Failed(format!("cannot read the output of native-bench: {e}")),
    }
}

/// Returns the path of native-bench: `$BONDSTONE_NATIVE_BENCH`, or in the directory of this program or in `PATH`.
fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("BONDSTONE_NATIVE_BENCH") {
        return Some(PathBuf::from(named));
    }
    let sibling = std::env::current_exe().ok().map(|exe| exe.with_file_name("native-bench"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("native-bench"));
    sibling.into_iter().chain(in_path).find(|p| p.is_file())
}

/// Waits for the process and returns its status and error output; none if it was interrupted.
fn wait(
    mut child: Child,
    interrupted: impl Fn() -> bool,
) -> std::io::Result<Option<(std::process::ExitStatus, String)>> {
    let out = child.stdout.take().map(|out| std::thread::spawn(move || show_progress(out)));
    let err = child.stderr.take().map(|err| std::thread::spawn(move || read_text(err)));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if interrupted() {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    out.map(|t| t.join());
    let stderr = err.and_then(|t| t.join().ok()).unwrap_or_default();
    // Ctrl-C in a terminal interrupts both processes
    Ok(status.filter(|_| !interrupted()).map(|status| (status, stderr)))
}

/// Shows the last line of output on a terminal.
fn show_progress(out: impl Read) {
    let shown = std::io::stderr().is_terminal();
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if shown {
            let line: String = line.chars().filter(|c| !c.is_control()).take(110).collect();
            eprint!("\r\x1b[K{line}");
        }
    }
    if shown {
        eprint!("\r\x1b[K");
    }
}

/// Reads text, up to the size limit.
fn read_text(mut from: impl Read) -> String {
    let mut bytes = vec![];
    // drain the rest, so that the writer does not block
    let _ = from.by_ref().take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut from, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_file(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(file).map_err(|e| e.to_string())?;
    file.take(MAX_OUTPUT_BYTES).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// A temporary directory that is removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> std::io::Result<TempDir> {
        let name = format!("bondstone-native-{}-{:x}", std::process::id(), packet::clock::cycles());
        let path = std::env::temp_dir().join(name);
        // fails if it exists
        std::fs::create_dir(&path)?;
        Ok(TempDir(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
