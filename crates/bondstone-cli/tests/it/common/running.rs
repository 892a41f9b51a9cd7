//! The program while it runs, and other programs beside it.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of every wait: more than thirty times what any takes on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(180);

/// A child process, which is killed when this is dropped.
pub struct Running {
    child: Child,
    said: Arc<(Mutex<Vec<String>>, Condvar)>,
    readers: Vec<JoinHandle<String>>,
}

/// Exit status and output of a process.
pub struct Ended {
    /// Exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Running {
    /// Starts `bondstone run FILE --json` and more arguments.
    pub fn run(file: &std::path::Path, more: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
        command.arg("run").arg(file).arg("--json").args(more);
        Running::start(&mut command)
    }

    /// Starts a program.
    pub fn start(command: &mut Command) -> Running {
        // with lines of rates, which are logged only on a terminal by default
        command.env("BONDSTONE_LOG", "info,rates=debug");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (mut out, err) = (child.stdout.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
        let said: Arc<(Mutex<Vec<String>>, Condvar)> = Arc::default();
        let heard = said.clone();
        let readers = vec![
            std::thread::spawn(move || {
                let mut text = vec![];
                out.read_to_end(&mut text).unwrap();
                String::from_utf8_lossy(&text).into_owned()
            }),
            std::thread::spawn(move || {
                for line in err.lines() {
                    heard.0.lock().unwrap().push(line.unwrap());
                    heard.1.notify_all();
                }
                String::new()
            }),
        ];
        Running { child, said, readers }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the memory that the process has, in bytes.
    pub fn resident(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).unwrap_or_default();
        statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
    }

    /// Takes the standard input.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("asked for once")
    }

    /// Waits until a line on standard error satisfies `wanted`, and returns the lines until then.
    pub fn wait_for(&mut self, what: &str, mut wanted: impl FnMut(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        let said = self.said.clone();
        let mut lines = said.0.lock().unwrap();
        let mut looked_at = 0;
        loop {
            while let Some(line) = lines.get(looked_at) {
                looked_at += 1;
                if wanted(line) {
                    return lines[..looked_at].to_vec();
                }
            }
            let ended = self.child.try_wait().unwrap().is_some();
            assert!(!ended && Instant::now() < deadline, "waiting for {what}; it said:\n{}", lines.join("\n"));
            lines = said.1.wait_timeout(lines, Duration::from_millis(50)).unwrap().0;
        }
    }

    /// Waits until its workers run.
    pub fn started(&mut self) {
        self.wait_for("its workers", |line| line.starts_with("note: CPU "));
    }

    /// Waits until packets have moved and then, for two seconds, none.
    pub fn quiet(&mut self) {
        let (mut moved, mut still) = (false, 0);
        self.wait_for("packets to come and end", |line| {
            if line.contains(" pps") {
                let none = !line.split("pps").any(|part| !part.trim().is_empty() && !part.trim_end().ends_with(" 0"));
                moved |= !none;
                still = if none { still + 1 } else { 0 };
            }
            moved && still == 2
        });
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let child = Pid::from_raw(self.id() as i32).expect("a child has a number");
        kill_process(child, signal).unwrap();
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the end.
    pub fn interrupt(self) -> Ended {
        self.signal(Signal::INT);
        self.end()
    }

    /// Sends SIGTERM, as a service manager does, and waits for the end.
    pub fn terminate(self) -> Ended {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let said = self.said.0.lock().unwrap();
            assert!(Instant::now() < deadline, "it does not end; it said:\n{}", said.join("\n"));
            drop(said);
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut out = String::new();
        for reader in self.readers.drain(..) {
            out += &reader.join().unwrap();
        }
        Ended { status: status.code(), out, err: self.said.0.lock().unwrap().join("\n") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = self.said.0.lock().unwrap_or_else(PoisonError::into_inner);
            let last = lines.len().saturating_sub(40);
            let ended = self.child.try_wait().ok().flatten();
            eprintln!("process {}, ended: {ended:?}, wrote at the end:\n{}", self.child.id(), lines[last..].join("\n"));
        }
        // errors: it has ended already
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Asserts the exit status and a balanced summary without errors; returns the summary.
    #[track_caller]
    pub fn summary(&self, status: i32) -> Summary {
        let summary = self.reported(status);
        assert_eq!(summary.0["errors"], Value::Array(vec![]), "{}", self.out);
        summary
    }

    /// Asserts the exit status and a balanced summary; returns the summary.
    #[track_caller]
    pub fn reported(&self, status: i32) -> Summary {
        assert_eq!(self.status, Some(status), "{}\n{}", self.err, self.out);
        let summary = serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.err, self.out));
        let summary = Summary(summary);
        assert_eq!(summary.0["balanced"], true, "{}", self.out);
        let t = |name: &str| summary.number(&format!("/totals/{name}"));
        assert_eq!(t("received") + t("created"), t("sent") + t("held") + t("dropped"), "{}", self.out);
        summary
    }
}

/// A summary, as `--json` prints it.
pub struct Summary(pub Value);

impl Summary {
    /// Returns the number at a JSON pointer, such as `/totals/sent`; 0 if there is none.
    pub fn number(&self, place: &str) -> u64 {
        self.0.pointer(place).map_or(0, |n| n.as_u64().unwrap_or_else(|| panic!("{place}: {n}")))
    }

    /// Returns the entry of a port.
    #[track_caller]
    pub fn port(&self, name: &str) -> Summary {
        self.named("ports", name)
    }

    /// Returns the entry of a link.
    #[track_caller]
    pub fn link(&self, name: &str) -> Summary {
        self.named("links", name)
    }

    /// Returns the entry of an NF.
    #[track_caller]
    pub fn nf(&self, name: &str) -> Summary {
        self.named("nfs", name)
    }

    /// Returns the entry of a sandbox.
    #[track_caller]
    pub fn sandbox(&self, name: &str) -> Summary {
        self.named("sandboxes", name)
    }

    /// Returns the errors of the run.
    pub fn errors(&self) -> Vec<&str> {
        self.0["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    #[track_caller]
    fn named(&self, list: &str, name: &str) -> Summary {
        let entry = self.0[list].as_array().and_then(|all| all.iter().find(|e| e["name"] == name));
        Summary(entry.unwrap_or_else(|| panic!("no {name:?} in {list}: {}", self.0)).clone())
    }

    /// Returns the packets that an entry reports as dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.0["drops"].as_object().map_or(0, |d| d.values().filter_map(Value::as_u64).sum())
    }
}
