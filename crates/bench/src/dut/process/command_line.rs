//! Command lines of short commands.

use crate::dut::context::{DutContext, DutError};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit of a short command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for reading the output of an ended command.
const PIPE_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest output that is read from a program, bytes.
pub(super) const MAX_OUTPUT_BYTES: u64 = 1 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine(Vec<String>);

impl CommandLine {
    /// Returns the command line of a program without arguments.
    pub(crate) fn new(program: impl Into<String>) -> CommandLine {
        CommandLine(vec![program.into()])
    }

    /// Appends arguments.
    pub(crate) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> CommandLine {
        self.0.extend(args.into_iter().map(Into::into));
        self
    }

    /// Prepends a command that runs this one, such as `taskset`.
    pub(crate) fn prefixed<S: Into<String>>(self, prefix: impl IntoIterator<Item = S>) -> CommandLine {
        CommandLine(prefix.into_iter().map(Into::into).chain(self.0).collect())
    }

    /// Restricts it to the CPUs of the device.
    pub(crate) fn on_cpus(self, context: &DutContext) -> CommandLine {
        if context.cpus().is_empty() { self } else { self.prefixed(["taskset", "-c", &context.cpu_list()]) }
    }

    /// Runs it in the network and mount namespaces of a process.
    pub(crate) fn in_namespaces_of(self, pid: u32) -> CommandLine {
        self.prefixed(["nsenter", "-t", &pid.to_string(), "-n", "-m"])
    }

    /// Has the kernel kill it when the thread that started it ends.
    pub(super) fn killed_with_parent(self) -> CommandLine {
        self.prefixed(["setpriv", "--pdeathsig", "KILL", "--"])
    }

    /// Returns the program and its arguments.
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }

    /// Runs it and returns true if it succeeds within the time limit of a short command.
    pub(crate) fn succeeds(&self) -> bool {
        self.succeeds_within(COMMAND_TIMEOUT)
    }

    /// Runs it and returns true if it succeeds within `limit`; kills it after that.
    pub(crate) fn succeeds_within(&self, limit: Duration) -> bool {
        let null = Stdio::null;
        let child = self.in_process_group().stdin(null()).stdout(null()).stderr(null()).spawn();
        let Ok(mut child) = child else { return false };
        let end = Instant::now() + limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
                _ => {
                    signal_group(&child, Signal::KILL);
                    let _ = child.wait();
                    return false;
                }
            }
        }
    }

    /// Runs it and returns its output; kills it after `limit` or once `stop` is set.
    ///
    /// # Errors
    /// If it cannot be started, fails, or does not end in time.
    pub(crate) fn output_within(self, limit: Duration, stop: &AtomicBool) -> Result<String, String> {
        let mut command = self.killed_with_parent().in_process_group();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot be run: {e}"))?;
        let (stdout, stderr) = (PipeReader::new(child.stdout.take()), PipeReader::new(child.stderr.take()));
        let end = Instant::now() + limit;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < end && !stop.load(Ordering::Relaxed) => std::thread::sleep(POLL_INTERVAL),
                _ => break None,
            }
        };
        // background processes of the command may keep the pipes open
        signal_group(&child, Signal::KILL);
        let _ = child.wait();
        let (stdout, stderr) = (stdout.text(), stderr.text());
        match status {
            Some(status) if status.success() => Ok(stdout),
            Some(status) => Err(format!("failed ({status}): {}", stderr.trim())),
            None => Err(format!("did not end within {} s", limit.as_secs())),
        }
    }

    /// Returns it as a shell would take it.
    pub(crate) fn shell_text(&self) -> String {
        let word = |word: &String| {
            if word.contains([' ', '"', '$', ';', '*']) { format!("'{word}'") } else { word.clone() }
        };
        self.0.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    /// Returns a command that leads a process group.
    pub(crate) fn in_process_group(&self) -> Command {
        let mut command = self.command();
        command.process_group(0);
        command
    }

    /// Runs it, records it in the configuration and returns its output.
    ///
    /// # Errors
    /// If it cannot be started or fails.
    pub(crate) fn run(self, context: &mut DutContext) -> Result<String, DutError> {
        context.record(self.shell_text());
        self.run_unrecorded(context)
    }

    /// Runs it and returns its output.
    ///
    /// # Errors
    /// As [`CommandLine::run`].
    pub(crate) fn run_unrecorded(self, context: &DutContext) -> Result<String, DutError> {
        let text = self.shell_text();
        let output = self.command().stdin(Stdio::null()).output();
        let Output { status, stdout, stderr } = output.map_err(|e| context.program_error(&self.0[0], &e))?;
        if !status.success() {
            let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
            return Err(context.error(format!("`{text}` failed ({status}): {stderr}"), "check its output above"));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// Sends a signal to the process group that a child leads.
pub(super) fn signal_group(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // fails if it has ended
        let _ = kill_process_group(pid, signal);
    }
}

/// A thread that reads a pipe, so that the writer does not block.
struct PipeReader(std::sync::mpsc::Receiver<String>);

impl PipeReader {
    fn new(pipe: Option<impl Read + Send + 'static>) -> PipeReader {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut text = vec![];
            let _ = pipe.by_ref().take(MAX_OUTPUT_BYTES).read_to_end(&mut text);
            // discard the rest
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
            // fails after the receiver timed out
            let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        });
        PipeReader(receiver)
    }

    /// Returns the text once the pipe is closed; empty if another process keeps it open.
    fn text(self) -> String {
        self.0.recv_timeout(PIPE_TIMEOUT).unwrap_or_default()
    }
}
