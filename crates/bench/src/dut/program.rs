//! Programs that do not outlive this one.

use super::container::Container;
use super::{DutError, Site};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a program may take to do what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end when asked to.
const GRACE: Duration = Duration::from_secs(3);
/// Of what a program says, as much is read.
const MOST_SAID: u64 = 1 << 20;
/// Of what a program said, as much is shown when it fails.
const LAST_WORDS: u64 = 2000;

/// A program that runs until it is stopped, dropped, or this program is gone.
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    // goes after the program
    container: Option<Container>,
}

/// A command line.
#[derive(Clone, Debug)]
pub(crate) struct Line(Vec<String>);

impl Line {
    pub(crate) fn new(program: impl Into<String>) -> Line {
        Line(vec![program.into()])
    }

    pub(crate) fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Line {
        self.0.extend(args.into_iter().map(Into::into));
        self
    }

    /// The same command in front of which others stand.
    pub(crate) fn behind<S: Into<String>>(self, before: impl IntoIterator<Item = S>) -> Line {
        Line(before.into_iter().map(Into::into).chain(self.0).collect())
    }

    /// On these CPUs only.
    pub(crate) fn on_cpus(self, site: &Site) -> Line {
        if site.cpus().is_empty() { self } else { self.behind(["taskset", "-c", &site.cpu_list()]) }
    }

    /// In the namespaces of a process.
    pub(crate) fn within(self, pid: u32) -> Line {
        self.behind(["nsenter", "-t", &pid.to_string(), "-n", "-m"])
    }

    /// The kernel ends it with the thread that started it.
    fn bound(self) -> Line {
        self.behind(["setpriv", "--pdeathsig", "KILL", "--"])
    }

    /// Its words, one by one.
    pub(crate) fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether it runs to its end without a fault, in the time of a short command.
    pub(crate) fn succeeds(&self) -> bool {
        self.succeeds_within(PATIENCE)
    }

    /// Whether it runs to its end within this time, and without a fault; what takes longer is ended.
    pub(crate) fn succeeds_within(&self, time: Duration) -> bool {
        let quiet = || Stdio::null();
        let child = in_a_group(self).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
        let Ok(mut child) = child else { return false };
        let end = Instant::now() + time;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                _ => {
                    end_group(&child, Signal::KILL);
                    let _ = child.wait();
                    return false;
                }
            }
        }
    }

    /// What it prints until its end, which has to come within this time and without a fault; it is ended when `stop` is set.
    ///
    /// # Errors
    /// What is wrong, with what it said last.
    pub(crate) fn ends_within(self, time: Duration, stop: &AtomicBool) -> Result<String, String> {
        let line = self.bound();
        let child = in_a_group(&line).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot be run: {e}"))?;
        let (out, wrong) = (Said::of(child.stdout.take()), Said::of(child.stderr.take()));
        let end = Instant::now() + time;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < end && !stop.load(Ordering::Relaxed) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => break None,
            }
        };
        // also what it has left behind, which may hold the pipes
        end_group(&child, Signal::KILL);
        let _ = child.wait();
        let (out, wrong) = (out.text(), wrong.text());
        match status {
            Some(status) if status.success() => Ok(out),
            Some(status) => Err(format!("failed ({status}): {}", wrong.trim())),
            None => Err(format!("did not end within {} s", time.as_secs())),
        }
    }

    /// As a shell would take it.
    pub(crate) fn words(&self) -> String {
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

    /// Runs it to its end; what it printed.
    ///
    /// # Errors
    /// When it is not there or fails.
    pub(crate) fn output(self, site: &mut Site) -> Result<String, DutError> {
        site.note(self.words());
        self.quietly(site)
    }

    /// As [`Line::output`], but keeps no note of it.
    ///
    /// # Errors
    /// As [`Line::output`].
    pub(crate) fn quietly(self, site: &Site) -> Result<String, DutError> {
        let words = self.words();
        let done = self.command().stdin(Stdio::null()).output().map_err(|e| absent(site, &self.0[0], &e))?;
        let Output { status, stdout, stderr } = done;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr).trim().to_owned();
            return Err(site.wrong(format!("`{words}` failed ({status}): {said}"), "look at what it says"));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// A command that leads a group of processes.
pub(crate) fn in_a_group(line: &Line) -> Command {
    let mut command = line.command();
    command.process_group(0);
    command
}

/// What a program says to a pipe, read by a thread so that the program need not wait for room.
struct Said(std::sync::mpsc::Receiver<String>);

impl Said {
    fn of(from: Option<impl Read + Send + 'static>) -> Said {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let Some(mut from) = from else { return };
            let mut text = vec![];
            let _ = from.by_ref().take(MOST_SAID).read_to_end(&mut text);
            // what is more is read and forgotten
            let _ = std::io::copy(&mut from, &mut std::io::sink());
            // errors: nobody waits for it any more
            let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
        });
        Said(receiver)
    }

    /// All of it, once the pipe is closed; nothing where somebody keeps it open.
    fn text(self) -> String {
        self.0.recv_timeout(GRACE).unwrap_or_default()
    }
}

/// Sends a signal to a program that leads a group, and to all of that.
fn end_group(child: &Child, signal: Signal) {
    // errors: it has ended already
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, signal);
    }
}

/// The error of a program that is not there.
pub(crate) fn absent(site: &Site, program: &str, why: &dyn std::fmt::Display) -> DutError {
    let remedy = match Path::new(program).file_name().and_then(|n| n.to_str()).unwrap_or_default() {
        "dpdk-testpmd" => "install it: apt-get install dpdk-dev",
        "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" | "ovs-ofctl" | "ovs-vswitchd-dpdk" => {
            "install it: apt-get install openvswitch-switch-dpdk"
        }
        "ip" | "bridge" => "install it: apt-get install iproute2",
        "nft" => "install it: apt-get install nftables",
        "vpp" | "vppctl" => "install VPP, whose packages are at fd.io",
        "runc" => "install it: apt-get install runc; or say env = \"native\"",
        "ssh" => "install it: apt-get install openssh-client",
        _ => "install it, or name where it is",
    };
    site.wrong(format!("{program} cannot be run: {why}"), remedy)
}

impl Program {
    /// Starts a command; what it says goes to a file of the site.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn start(site: &mut Site, name: &str, line: Line) -> Result<Program, DutError> {
        let log = site.path(&format!("{name}.log"));
        let out = File::create(&log).map_err(|e| site.file_error(&log, &e))?;
        let also = out.try_clone().map_err(|e| site.file_error(&log, &e))?;
        site.note(line.words());
        let program = line.0[0].clone();
        let line = line.bound();
        let child = in_a_group(&line).stdin(Stdio::piped()).stdout(out).stderr(also).spawn();
        let child = child.map_err(|e| absent(site, &program, &e))?;
        Ok(Program { name: name.to_owned(), child, log, container: None })
    }

    /// Starts a command that is talked with by its standard input and output; what it says on standard error goes to a file of
    /// the site.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn converse(
        site: &Site,
        name: &str,
        line: Line,
    ) -> Result<(Program, ChildStdin, ChildStdout), DutError> {
        let log = site.path(&format!("{name}.log"));
        let out = File::create(&log).map_err(|e| site.file_error(&log, &e))?;
        // the shell would be missed later, and be no reason
        Line::new(line.0[0].clone()).args(["-V"]).quietly(site)?;
        let mut command = in_a_group(&line.bound());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(out).spawn();
        let mut child = child.map_err(|e| absent(site, "setpriv", &e))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(site.wrong("has no standard input and output", "a bug in Bondstone"));
        };
        Ok((Program { name: name.to_owned(), child, log, container: None }, to, from))
    }

    /// The same, where it runs in this container.
    pub(crate) fn in_container(mut self, container: Container) -> Program {
        self.container = Some(container);
        self
    }

    /// What it runs in, if that is a container.
    pub(crate) fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it words on its standard input.
    ///
    /// # Errors
    /// When it takes none any more.
    pub(crate) fn tell(&mut self, words: &str) -> std::io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(words.as_bytes())?;
        input.flush()
    }

    /// Bytes that it said so far.
    pub(crate) fn length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |m| m.len())
    }

    /// What it said behind its first so many bytes, as far as that is not too much.
    pub(crate) fn said_since(&self, byte: u64) -> String {
        let mut text = vec![];
        if let Ok(mut file) = File::open(&self.log) {
            let _ = file.seek(SeekFrom::Start(byte));
            let _ = file.take(MOST_SAID).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        let mut text = vec![];
        if let Ok(mut file) = File::open(&self.log) {
            let length = file.metadata().map_or(0, |m| m.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)));
            let _ = file.take(LAST_WORDS).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).trim().to_owned()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// How it ended, with what it said last.
    pub(crate) fn check(&mut self, dut: &str) -> Result<(), DutError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(DutError {
                dut: dut.to_owned(),
                problem: format!("{} ended ({status}); it said:\n{}", self.name, self.said()),
                remedy: "look at what it says".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// When the program ends before, or takes too long.
    pub(crate) fn wait(
        &mut self,
        site: &Site,
        what: &str,
        mut ready: impl FnMut(&Program) -> bool,
    ) -> Result<(), DutError> {
        let end = Instant::now() + PATIENCE;
        while !ready(self) {
            self.check(site.name())?;
            if Instant::now() > end {
                let said = self.said();
                let problem = format!("{what} did not come about within {} s; it said:\n{said}", PATIENCE.as_secs());
                return Err(site.wrong(problem, "look at what it says"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends it: asks first.
    pub(crate) fn stop(&mut self) {
        drop(self.child.stdin.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            end_group(&self.child, Signal::TERM);
            let end = Instant::now() + GRACE;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // also those of its group that it has not waited for
        end_group(&self.child, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}
