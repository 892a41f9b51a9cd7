//! Cleanup processes: shell scripts that run when this process ends, also if it is killed.

use std::ffi::OsStr;
use std::fs::{File, read_to_string};
use std::io::{Error, Read, Result};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a script is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks of the shell.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Line that the shell prints when the setup is done.
const READY: &str = "ready";
/// Ignores the signals that end this process, and errors of writing to it after its end.
const IGNORE_SIGNALS: &str = "trap '' INT TERM HUP PIPE";
/// Waits for the end of a pipe, whose other end only this process holds.
const WAIT_FOR_PARENT: &str = "cat >/dev/null";

/// A shell that waits until this is dropped or this process has ended, and then runs a script.
pub struct CleanupProcess(Child);

impl CleanupProcess {
    /// Starts a shell for a script with the arguments `$1`, ... Locks on `inherited` are held until the script has
    /// ended.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        script: &str,
        arguments: impl IntoIterator<Item = A>,
        inherited: Option<File>,
    ) -> Result<CleanupProcess> {
        let mut shell = shell(&format!("{IGNORE_SIGNALS}; {WAIT_FOR_PARENT}\n{script}"), arguments);
        // passed as standard output, to which the script does not write
        shell.stdout(inherited.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::piped());
        Ok(CleanupProcess(shell.spawn()?))
    }

    /// Starts a shell that runs `setup` at once, and `script` at the end; returns when the setup is done. The output of
    /// both is written to `log`.
    ///
    /// # Errors
    /// The shell cannot be started, or the setup fails; the script has run then.
    pub fn start_with_setup<A: AsRef<OsStr>>(
        setup: &str,
        script: &str,
        arguments: impl IntoIterator<Item = A>,
        log: &Path,
    ) -> Result<CleanupProcess> {
        let script = format!("{IGNORE_SIGNALS}; {{ {setup}\n}} && echo {READY} && {WAIT_FOR_PARENT}\n{script}");
        let output = File::create(log)?;
        let mut shell = shell(&script, arguments);
        let mut process = CleanupProcess(shell.stderr(output.try_clone()?).stdout(output).spawn()?);
        let deadline = Instant::now() + TIMEOUT;
        let output = || read_to_string(log).unwrap_or_default();
        while !output().lines().any(|line| line == READY) {
            if Instant::now() > deadline || !matches!(process.0.try_wait(), Ok(None)) {
                return Err(Error::other(format!("the setup failed: {}", output().trim())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(process)
    }

    /// Runs the script now, and waits for its end.
    ///
    /// # Errors
    /// The script's error output, or a timeout, after which the script continues.
    pub fn run(mut self) -> std::result::Result<(), String> {
        if !self.wait() {
            return Err(format!("not finished after {} s", TIMEOUT.as_secs()));
        }
        let mut output = String::new();
        let read = self.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut output));
        match (read, output.trim()) {
            (Some(Err(e)), _) => Err(e.to_string()),
            (_, "") => Ok(()),
            (_, output) => Err(output.to_owned()),
        }
    }

    /// Lets the script run; returns true if it ends within the time limit.
    fn wait(&mut self) -> bool {
        drop(self.0.stdin.take());
        let deadline = Instant::now() + TIMEOUT;
        // errors: it has ended
        while matches!(self.0.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Returns a shell that reads a pipe from this process, in a process group of its own, which Ctrl-C does not reach.
fn shell<A: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "cleanup"]).args(arguments).current_dir("/").process_group(0).stdin(Stdio::piped());
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_do_not_end_the_cleanup_process() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut cleanup = CleanupProcess::start("echo it has run >&2", [""], None).unwrap();
        let status = format!("/proc/{}/status", cleanup.0.id());
        // HUP, INT, PIPE, TERM; others may be inherited
        const MASK: u64 = 1 << 0 | 1 << 1 | 1 << 12 | 1 << 14;
        let ignores = |text: &str| {
            let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() & MASK == MASK
        };
        let start = Instant::now();
        while !ignores(&read_to_string(&status).unwrap()) {
            assert!(matches!(cleanup.0.try_wait(), Ok(None)) && start.elapsed() < TIMEOUT);
            std::thread::sleep(Duration::from_millis(1));
        }
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            kill_process(Pid::from_child(&cleanup.0), signal).unwrap();
        }
        assert_eq!(cleanup.run(), Err("it has run".into()));
    }

    #[test]
    fn the_script_runs_at_the_end_and_its_errors_are_returned() {
        let file = std::env::temp_dir().join(format!("bondstone-cleanup-{}", std::process::id()));
        let script = "echo done >\"$1\"; echo \"$2\" >&2";
        let at = file.to_string_lossy();
        let cleanup = CleanupProcess::start(script, [&*at, ""], None).unwrap();
        assert!(!file.exists());
        assert_eq!(cleanup.run(), Ok(()));
        assert_eq!(read_to_string(&file).unwrap(), "done\n");
        assert_eq!(
            CleanupProcess::start(script, [&*at, "no such thing"], None).unwrap().run(),
            Err("no such thing".into())
        );
        std::fs::remove_file(&file).unwrap();
        drop(CleanupProcess::start(script, [&*at], None).unwrap());
        assert!(file.exists());
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_setup_runs_first_and_its_failure_runs_the_script() {
        let file = std::env::temp_dir().join(format!("bondstone-setup-{}", std::process::id()));
        let (at, log) = (file.to_string_lossy(), file.with_extension("log"));
        let (setup, script) = ("echo one >\"$1\"; $2", "echo two >>\"$1\"");
        let cleanup = CleanupProcess::start_with_setup(setup, script, [&*at, "true"], &log).unwrap();
        assert_eq!(read_to_string(&file).unwrap(), "one\n");
        drop(cleanup);
        assert_eq!(read_to_string(&file).unwrap(), "one\ntwo\n");
        let failed = CleanupProcess::start_with_setup(setup, script, [&*at, "false"], &log);
        assert!(failed.is_err_and(|e| e.to_string().starts_with("the setup failed")));
        assert_eq!(read_to_string(&file).unwrap(), "one\ntwo\n");
        [file, log].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
