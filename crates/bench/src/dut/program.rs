//! Programs that do not outlive this one.

use super::{DutError, Site};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to do what is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to end when asked to.
const GRACE: Duration = Duration::from_secs(3);
/// Of what a program said, as much is shown when it fails.
const LAST_WORDS: u64 = 2000;

/// A program that runs until it is stopped, dropped, or this program is gone.
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

/// A command line.
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

    /// Its words.
    pub(crate) fn words_of(self) -> Vec<String> {
        self.0
    }

    /// Whether it runs to its end without a fault, in the time of a short command.
    pub(crate) fn succeeds(&self) -> bool {
        self.succeeds_within(PATIENCE)
    }

    /// Whether it runs to its end within this time, and without a fault; what takes longer is ended.
    pub(crate) fn succeeds_within(&self, time: Duration) -> bool {
        let quiet = || Stdio::null();
        let child = self.command().process_group(0).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
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
        let words = self.words();
        site.note(&words);
        let done = self.command().stdin(Stdio::null()).output().map_err(|e| absent(site, &self.0[0], &e))?;
        let Output { status, stdout, stderr } = done;
        if !status.success() {
            let said = String::from_utf8_lossy(&stderr).trim().to_owned();
            return Err(site.wrong(format!("`{words}` failed ({status}): {said}"), "look at what it says"));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

/// Sends a signal to a program that leads a group, and to all of that.
fn end_group(child: &Child, signal: Signal) {
    // errors: it has ended already
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, signal);
    }
}

fn absent(site: &Site, program: &str, e: &std::io::Error) -> DutError {
    let cure = match Path::new(program).file_name().and_then(|n| n.to_str()).unwrap_or_default() {
        "dpdk-testpmd" => "install it: apt-get install dpdk-dev",
        "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" | "ovs-ofctl" | "ovs-vswitchd-dpdk" => {
            "install it: apt-get install openvswitch-switch-dpdk"
        }
        "ip" | "bridge" => "install it: apt-get install iproute2",
        "nft" => "install it: apt-get install nftables",
        _ => "install it, or name where it is",
    };
    site.wrong(format!("{program} cannot be run: {e}"), cure)
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
        // the kernel ends it with the thread that started it
        let line = line.behind(["setpriv", "--pdeathsig", "KILL", "--"]);
        let child = line.command().process_group(0).stdin(Stdio::piped()).stdout(out).stderr(also).spawn();
        let child = child.map_err(|e| absent(site, &program, &e))?;
        Ok(Program { name: name.to_owned(), child, log })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
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
                cure: "look at what it says".to_owned(),
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
