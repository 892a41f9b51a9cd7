//! Long-running programs.

use super::command_line::{CommandLine, MAX_OUTPUT_BYTES, signal_group};
use super::container::Container;
use crate::dut::context::{DutContext, DutError};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Time limit of [`Program::wait_until`].
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
const STARTUP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between SIGTERM and SIGKILL, unless another is set.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(3);
const TERMINATE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Output that is shown when a program fails, bytes.
const TAIL_BYTES: u64 = 2000;

/// A child process that is terminated on drop, and killed by the kernel when this process ends.
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    terminate_timeout: Duration,
    // dropped after the process is terminated
    container: Option<Container>,
}

impl Program {
    /// Starts a command; its output is written to a file in the work directory.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(context: &mut DutContext, name: &str, command: CommandLine) -> Result<Program, DutError> {
        let log = context.path(&format!("{name}.log"));
        let stdout = File::create(&log).map_err(|e| context.file_error(&log, &e))?;
        let stderr = stdout.try_clone().map_err(|e| context.file_error(&log, &e))?;
        context.record(command.shell_text());
        let program = command.words()[0].clone();
        let mut command = command.killed_with_parent().in_process_group();
        let child = command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr).spawn();
        let child = child.map_err(|e| context.program_error(&program, &e))?;
        Ok(Program::new(name, child, log))
    }

    fn new(name: &str, child: Child, log: PathBuf) -> Program {
        Program { name: name.to_owned(), child, log, terminate_timeout: TERMINATE_TIMEOUT, container: None }
    }

    /// Sets the time between SIGTERM and SIGKILL.
    pub(crate) fn with_terminate_timeout(mut self, timeout: Duration) -> Program {
        self.terminate_timeout = timeout;
        self
    }

    /// Starts a command and returns its standard input and output; its standard error is written to a file in the work
    /// directory.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start_piped(
        context: &DutContext,
        name: &str,
        command: CommandLine,
    ) -> Result<(Program, ChildStdin, ChildStdout), DutError> {
        let log = context.path(&format!("{name}.log"));
        let stderr = File::create(&log).map_err(|e| context.file_error(&log, &e))?;
        // setpriv would report a missing program only in its exit status
        CommandLine::new(command.words()[0].clone()).args(["-V"]).run_unrecorded(context)?;
        let mut command = command.killed_with_parent().in_process_group();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = child.map_err(|e| context.program_error("setpriv", &e))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(context.error("has no standard input and output", "report a bug in Bondstone"));
        };
        Ok((Program::new(name, child, log), stdin, stdout))
    }

    /// Sets the container that the program runs in.
    pub(crate) fn in_container(mut self, container: Container) -> Program {
        self.container = Some(container);
        self
    }

    /// Returns the container that the program runs in, if any.
    pub(crate) fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// Returns its name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// If the input is closed.
    pub(crate) fn write_stdin(&mut self, text: &str) -> std::io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(text.as_bytes())?;
        input.flush()
    }

    /// Returns the length of its output so far, bytes.
    pub(crate) fn output_len(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |m| m.len())
    }

    /// Returns its output from byte `offset` on, at most [`MAX_OUTPUT_BYTES`].
    pub(crate) fn output_since(&self, offset: u64) -> String {
        let mut text = vec![];
        if let Ok(mut file) = File::open(&self.log) {
            let _ = file.seek(SeekFrom::Start(offset));
            let _ = file.take(MAX_OUTPUT_BYTES).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Returns the end of its output so far.
    pub(crate) fn output_tail(&self) -> String {
        self.output_since(self.output_len().saturating_sub(TAIL_BYTES)).trim().to_owned()
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// If it has ended, with its last output.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(DutError {
                dut: dut.to_owned(),
                problem: format!("{} ended ({status}); its last output:\n{}", self.name, self.output_tail()),
                remedy: "check its output above".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits until `ready` returns true.
    ///
    /// # Errors
    /// If the program ends before, or the time limit is exceeded.
    pub(crate) fn wait_until(
        &mut self,
        context: &DutContext,
        event: &str,
        ready: impl FnMut(&Program) -> bool,
    ) -> Result<(), DutError> {
        self.wait_within(STARTUP_TIMEOUT, context, event, ready)
    }

    /// As [`wait_until`](Self::wait_until), with another limit.
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until).
    pub(crate) fn wait_within(
        &mut self,
        limit: Duration,
        context: &DutContext,
        event: &str,
        mut ready: impl FnMut(&Program) -> bool,
    ) -> Result<(), DutError> {
        let end = Instant::now() + limit;
        while !ready(self) {
            self.check(context.name())?;
            if Instant::now() > end {
                let (limit, tail) = (limit.as_secs(), self.output_tail());
                let problem = format!("timed out after {limit} s waiting for {event}; last output:\n{tail}");
                return Err(context.error(problem, "check its output above"));
            }
            std::thread::sleep(STARTUP_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Terminates it and its process group: SIGTERM, then SIGKILL.
    pub(crate) fn stop(&mut self) {
        drop(self.child.stdin.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            signal_group(&self.child, Signal::TERM);
            let end = Instant::now() + self.terminate_timeout;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(TERMINATE_POLL_INTERVAL);
            }
        }
        // other processes of the group may be left
        signal_group(&self.child, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}
