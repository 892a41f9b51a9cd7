//! `native-bench` as a child process: NFs beside their twins in C.

use bench::scenario::{self, Native, Rows};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What came of it.
pub(super) enum Ran {
    Rows(Rows),
    /// Rows that should not be judged by, and why.
    Doubtful(Rows, String),
    /// None: why.
    Nothing(String),
    Interrupted,
}

/// Bytes of its output and of its file at the most.
const LONGEST: u64 = 4 << 20;

/// Runs it; `interrupted` is asked now and then.
pub(super) fn run(native: &Native, interrupted: impl Fn() -> bool) -> Ran {
    let Some(program) = program() else {
        let remedy = "build it with: cargo build --release -p bondstone-native";
        return Ran::Nothing(format!("native-bench is not built; {remedy}"));
    };
    let folder = match Folder::new() {
        Ok(folder) => folder,
        Err(e) => return Ran::Nothing(format!("no folder for what native-bench writes: {e}")),
    };
    let file = folder.0.join("native.json");
    let mut command = Command::new(&program);
    command.args(["--only", &native.only, "--pairs", &native.pairs.to_string(), "--json"]).arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    eprintln!("{} --only {} --pairs {}", program.display(), native.only, native.pairs);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return Ran::Nothing(format!("{} does not start: {e}", program.display())),
    };
    let (ended, said) = match wait(child, interrupted) {
        Ok(Some(ended)) => ended,
        Ok(None) => return Ran::Interrupted,
        Err(e) => return Ran::Nothing(format!("native-bench: {e}")),
    };
    if !ended.success() {
        let last = said.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("without a word").trim();
        return Ran::Nothing(format!("native-bench failed ({ended}): {last}"));
    }
    let read = read(&file).and_then(|text| scenario::rows(&text));
    match (read, said.lines().find_map(|l| l.strip_prefix("warning: "))) {
        (Ok(rows), None) => Ran::Rows(rows),
        (Ok(rows), Some(warning)) => Ran::Doubtful(rows, format!("native-bench warns: {warning}")),
        (Err(e), _) => Ran::Nothing(format!("what native-bench wrote cannot be read: {e}")),
    }
}

/// `$BONDSTONE_NATIVE_BENCH`, or the program beside this one or in the path.
fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("BONDSTONE_NATIVE_BENCH") {
        return Some(PathBuf::from(named));
    }
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("native-bench"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("native-bench"));
    beside.into_iter().chain(in_path).find(|p| p.is_file())
}

/// How it ended and what it said on standard error; nothing if it was interrupted.
fn wait(
    mut child: Child,
    interrupted: impl Fn() -> bool,
) -> std::io::Result<Option<(std::process::ExitStatus, String)>> {
    let out = child.stdout.take().map(|out| std::thread::spawn(move || progress(out)));
    let err = child.stderr.take().map(|err| std::thread::spawn(move || text(err)));
    let ended = loop {
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
    let said = err.and_then(|t| t.join().ok()).unwrap_or_default();
    // Ctrl-C in a terminal reaches both
    Ok(ended.filter(|_| !interrupted()).map(|status| (status, said)))
}

/// Shows each line in the place of the last on a terminal, and nowhere else.
fn progress(out: impl Read) {
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

fn text(mut from: impl Read) -> String {
    let mut bytes = vec![];
    // what comes after the limit is read too, so that nobody waits for us
    let _ = from.by_ref().take(LONGEST).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut from, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(file).map_err(|e| e.to_string())?;
    file.take(LONGEST).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// A new folder that goes with all that is in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let name = format!("bondstone-native-{}-{:x}", std::process::id(), packet::clock::cycles());
        let path = std::env::temp_dir().join(name);
        // fails if somebody else has made it
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
