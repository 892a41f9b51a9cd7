//! What has to be done at the end, also when this program is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the script may take before it is no longer waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Waits for the end of a pipe, whose other side only this program has. Who asks this program to end does not mean the shell;
/// and nobody may be left to read what it says.
const WAIT: &str = "trap '' INT TERM HUP PIPE; cat >/dev/null\n";

/// A script of a shell's that is run when this is dropped, or when this program is gone, however it ended.
pub struct Guard(Child);

impl Guard {
    /// Waits with a script, whose `$1`, … are `words`. What locks `held` goes with it only when the script has ended.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn start<W: AsRef<OsStr>>(
        script: &str,
        words: impl IntoIterator<Item = W>,
        held: Option<File>,
    ) -> std::io::Result<Guard> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{WAIT}{script}"), "guard"]).args(words).current_dir("/");
        // the terminal's Ctrl-C is not for it
        shell.process_group(0).stdin(Stdio::piped()).stderr(Stdio::piped());
        // a place for a file that nothing is written to
        shell.stdout(held.map_or_else(Stdio::null, Stdio::from));
        Ok(Guard(shell.spawn()?))
    }

    /// Runs the script now, and waits for its end.
    ///
    /// # Errors
    /// What it complained of, or that it takes more than half a minute; it goes on then.
    pub fn end(mut self) -> Result<(), String> {
        if !self.has_ended() {
            return Err(format!("it takes more than {} s", PATIENCE.as_secs()));
        }
        let mut said = String::new();
        let read = self.0.stderr.take().map(|mut from| from.read_to_string(&mut said));
        match (read, said.trim()) {
            (Some(Err(e)), _) => Err(e.to_string()),
            (_, "") => Ok(()),
            (_, said) => Err(said.to_owned()),
        }
    }

    fn has_ended(&mut self) -> bool {
        drop(self.0.stdin.take());
        let end = Instant::now() + PATIENCE;
        // errors: it has ended
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.has_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_all_processes_to_end_does_not_keep_it_from_its_work() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut guard = Guard::start("echo it has run >&2", [""], None).unwrap();
        let status = format!("/proc/{}/status", guard.0.id());
        let ignores = |text: &str| text.lines().any(|line| line.starts_with("SigIgn:") && line.ends_with("5003"));
        let began = Instant::now();
        // INT, TERM, HUP, PIPE
        while !ignores(&std::fs::read_to_string(&status).unwrap()) {
            assert!(matches!(guard.0.try_wait(), Ok(None)) && began.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            kill_process(Pid::from_child(&guard.0), signal).unwrap();
        }
        assert_eq!(guard.end(), Err("it has run".into()));
    }

    #[test]
    fn a_script_runs_at_the_end_and_says_what_went_wrong() {
        let file = std::env::temp_dir().join(format!("bondstone-guard-{}", std::process::id()));
        let script = "echo done >\"$1\"; echo \"$2\" >&2";
        let at = file.to_string_lossy();
        let guard = Guard::start(script, [&*at, ""], None).unwrap();
        assert!(!file.exists());
        assert_eq!(guard.end(), Ok(()));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "done\n");
        assert_eq!(Guard::start(script, [&*at, "no such thing"], None).unwrap().end(), Err("no such thing".into()));
        std::fs::remove_file(&file).unwrap();
        drop(Guard::start(script, [&*at], None).unwrap());
        assert!(file.exists());
        std::fs::remove_file(&file).unwrap();
    }
}
