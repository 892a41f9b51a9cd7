//! Daemons of FRR in a namespace. The name of the namespace is also the name of their files, the *pathspace* of FRR:
//! `vtysh -N NAME` connects to them.

use super::lock;
use super::messages::{DaemonState, Said, say};
use super::namespace::Namespace;
use crate::template::fill;
use graph::Frr;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, lchown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Folder of the programs, as all packages have it.
const PROGRAMS: &str = "/usr/lib/frr";
/// Folder of the folders of sockets.
const SOCKETS: &str = "/var/run/frr";
/// Daemon that installs the routes of the others.
const ZEBRA: &str = "zebra";
/// Socket of zebra that the other daemons connect to.
const ZEBRA_SOCKET: &str = "zserv.api";
/// Time before a daemon that has ended is started again, at first and at most.
const RESTART_DELAY: Duration = Duration::from_secs(1);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);
/// Time after which a daemon counts as one that runs well.
const RUNS_WELL: Duration = Duration::from_secs(60);
/// Time that `vtysh` gets to read a configuration.
const CONFIGURE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest line of a daemon's output, in bytes.
const LINE_MAX: u64 = 1024;
/// Most output of `vtysh` that is read, in bytes.
const OUTPUT_MAX: u64 = 1 << 16;
/// Most lines of errors of a configuration that are logged.
const ERRORS_MAX: usize = 10;

/// Checks that the daemons are installed.
///
/// # Errors
/// One is missing.
pub(super) fn check(frr: &Frr) -> Result<(), String> {
    let missing = names(frr).into_iter().find(|name| !Path::new(PROGRAMS).join(name).exists());
    let missing = missing.map(|name| format!("{PROGRAMS}/{name} is missing; install FRR: apt-get install frr"));
    missing.map_or(Ok(()), Err)?;
    configuration("", frr).map(drop)
}

/// Returns the names of the daemons, in the order in which they are started.
fn names(frr: &Frr) -> Vec<String> {
    [ZEBRA, "staticd"].iter().map(|name| (*name).to_owned()).chain(frr.daemons.iter().cloned()).collect()
}

/// Returns the configuration of the settings; `None` if the daemons have their own.
///
/// # Errors
/// A file that cannot be read, or a placeholder without a value.
fn configuration(tenant: &str, frr: &Frr) -> Result<Option<String>, String> {
    let Some(path) = &frr.config else { return Ok(None) };
    let template = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let values: Vec<(String, &str)> =
        frr.values.iter().map(|(name, value)| (format!("@{name}@"), value.as_str())).collect();
    let values: Vec<(&str, &str)> =
        values.iter().map(|(name, value)| (name.as_str(), *value)).chain([("@tenant@", tenant)]).collect();
    if let Some(missing) =
        placeholders(&template).into_iter().find(|name| !values.iter().any(|(known, _)| known == name))
    {
        let name = missing.trim_matches('@');
        return Err(format!("{}: {missing} has no value; add values.{name} = \"...\"", path.display()));
    }
    Ok(Some(fill(&template, &values)))
}

/// Returns the words of a text that have the form of a placeholder.
fn placeholders(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (mut found, mut from) = (vec![], 0);
    while let Some(start) = text[from..].find('@').map(|at| from + at) {
        let len = text[start + 1..].find('@').unwrap_or(0);
        let name = &text[start + 1..start + 1 + len];
        from = start + 1;
        if !name.is_empty() && name.chars().all(is_name) {
            found.push(&text[start..start + len + 2]);
            from = start + len + 2;
        }
    }
    found
}

/// Makes a folder for the user of FRR. That user may have put a link in its place, which is not followed.
fn make_folder(folder: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir()) {
        std::fs::remove_file(folder)?;
    }
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let id = |option| {
        let output = Command::new("id").args([option, "frr"]).output()?;
        let id = String::from_utf8_lossy(&output.stdout).trim().parse::<u32>();
        id.map_err(|_| io::Error::new(io::ErrorKind::NotFound, "there is no user frr"))
    };
    lchown(folder, Some(id("-u")?), Some(id("-g")?))
}

/// The daemons of a control plane.
pub(super) struct Daemons {
    tenant: String,
    /// Folder of the sockets, which belongs to the user of FRR.
    folder: PathBuf,
    /// Folder of the configuration and of the output of `vtysh`.
    private: PathBuf,
    frr: Frr,
    daemons: Vec<Daemon>,
    /// `vtysh`, while it reads the configuration.
    vtysh: Option<(Child, Instant)>,
    is_configured: bool,
    /// Time from which they may be configured.
    configure_from: Instant,
}

struct Daemon {
    name: String,
    /// Number of the namespace, if a supervisor has made it: others may run daemons in one that existed before.
    namespace: Option<u64>,
    command: Command,
    process: Option<Child>,
    started: Instant,
    /// Time to start it, while it does not run.
    due: Instant,
    delay: Duration,
    restarts: u64,
    ended: Option<String>,
}

impl Daemons {
    /// Starts the daemons with the next [`poll`](Daemons::poll).
    pub(super) fn new(tenant: &str, namespace: &Namespace, frr: &Frr) -> Daemons {
        let folder = Path::new(SOCKETS).join(namespace.name());
        let created_namespace = namespace.created();
        let daemon = |name: String| {
            let mut command = namespace.command(&Path::new(PROGRAMS).join(&name));
            command.args(["-N", namespace.name(), "--log", "stdout", "--log-level", "warnings"]);
            if name == ZEBRA {
                command.args(["-M", "dplane_fpm_nl"]);
            }
            // signals of a terminal are for the run
            command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let (delay, now) = (RESTART_DELAY, Instant::now());
            let namespace = created_namespace;
            Daemon { name, namespace, command, process: None, started: now, due: now, delay, restarts: 0, ended: None }
        };
        for folder in [Path::new(SOCKETS), &folder] {
            if let Err(e) = make_folder(folder) {
                warn(tenant, &format!("{} cannot be made for the user frr: {e}", folder.display()));
            }
        }
        let private = Path::new(lock::FOLDER).join(format!("{}.frr", namespace.name()));
        // ignore errors: there is none
        let _ = std::fs::remove_dir_all(&private);
        if let Err(e) = DirBuilder::new().mode(0o700).create(&private) {
            warn(tenant, &format!("{}: {e}", private.display()));
        }
        Daemons {
            tenant: tenant.to_owned(),
            folder,
            private,
            frr: frr.clone(),
            daemons: names(frr).into_iter().map(daemon).collect(),
            vtysh: None,
            is_configured: false,
            configure_from: Instant::now(),
        }
    }

    /// Starts daemons that do not run, and configures them when all do.
    pub(super) fn poll(&mut self) {
        let (mut all_run, mut has_zebra) = (true, false);
        let socket = self.folder.join(ZEBRA_SOCKET);
        for daemon in &mut self.daemons {
            let is_zebra = daemon.name == ZEBRA;
            if daemon.process.is_none() && !is_zebra && !has_zebra {
                // a bgpd without zebra would withdraw its routes from its neighbors
                all_run = false;
                continue;
            }
            let ended = daemon.poll(&self.tenant, &self.folder);
            self.is_configured &= !ended;
            has_zebra |= is_zebra && daemon.process.is_some() && socket.exists();
            all_run &= daemon.process.is_some() && self.folder.join(format!("{}.vty", daemon.name)).exists();
        }
        match &mut self.vtysh {
            Some((vtysh, since)) => match vtysh.try_wait() {
                Ok(None) if since.elapsed() < CONFIGURE_TIMEOUT => {}
                _ => self.configured(),
            },
            None if all_run && !self.is_configured && Instant::now() >= self.configure_from => self.configure(),
            None => {}
        }
    }

    fn configure(&mut self) {
        self.is_configured = true;
        let file = self.private.join("frr.conf");
        let start = || {
            let text = configuration(&self.tenant, &self.frr)?;
            let failed = |e: io::Error| format!("{}: {e}", file.display());
            let fpm = format!("fpm address {} port {}\n", self.frr.fpm.ip(), self.frr.fpm.port());
            let own = self.own_configuration();
            let text = text.or(own).unwrap_or_default();
            std::fs::write(&file, format!("{fpm}{text}")).map_err(failed)?;
            let mut vtysh = Command::new("vtysh");
            vtysh.arg("-N").arg(self.folder.file_name().unwrap_or_default()).arg("-f").arg(&file);
            let output = File::create(self.private.join("vtysh.log")).map_err(|e| e.to_string())?;
            vtysh.stdin(Stdio::null()).stdout(output.try_clone().map_err(|e| e.to_string())?).stderr(output);
            vtysh.process_group(0).spawn().map_err(|e| format!("vtysh: {e}"))
        };
        match start() {
            Ok(child) => self.vtysh = Some((child, Instant::now())),
            Err(problem) => self.not_configured(&problem),
        }
    }

    /// Returns the configuration that FRR has for the pathspace.
    fn own_configuration(&self) -> Option<String> {
        let file = Path::new("/etc/frr").join(self.folder.file_name()?).join("frr.conf");
        std::fs::read_to_string(file).ok()
    }

    /// Logs a problem of the configuration, which is tried again after a while.
    fn not_configured(&mut self, problem: &str) {
        warn(&self.tenant, &format!("FRR is not configured: {problem}"));
        self.is_configured = false;
        self.configure_from = Instant::now() + RESTART_DELAY_MAX;
    }

    /// Logs the errors of the configuration.
    fn configured(&mut self) {
        let Some((mut vtysh, _)) = self.vtysh.take() else { return };
        // ignore errors: it has ended
        let _ = vtysh.kill();
        let ended = vtysh.wait();
        let mut said = String::new();
        let output = File::open(self.private.join("vtysh.log"));
        // ignore errors: it says nothing then
        let _ = output.and_then(|output| output.take(OUTPUT_MAX).read_to_string(&mut said));
        // vtysh has settings of its own, in a file that need not exist
        let errors = said.lines().filter(|line| line.contains('%') && !line.contains("vtysh.conf"));
        let errors: Vec<&str> = errors.take(ERRORS_MAX).collect();
        match ended {
            _ if !errors.is_empty() => {
                warn(&self.tenant, &format!("errors of the configuration of FRR: {}", errors.join("; ")));
            }
            Ok(status) if status.success() => say(&Said::Info {
                cause: format!("{} configured", self.tenant),
                text: format!("tenant {}: FRR runs and is configured", self.tenant),
            }),
            Ok(status) => {
                let last = said.lines().last().unwrap_or_default();
                self.not_configured(&format!("vtysh {}: {last}", describe(status)));
            }
            Err(e) => self.not_configured(&format!("vtysh: {e}")),
        }
    }

    pub(super) fn states(&self) -> impl Iterator<Item = DaemonState> {
        self.daemons.iter().map(|daemon| DaemonState {
            tenant: self.tenant.clone(),
            daemon: daemon.name.clone(),
            pid: daemon.process.as_ref().map(Child::id),
            seconds: daemon.started.elapsed().as_secs(),
            restarts: daemon.restarts,
            ended: daemon.ended.clone(),
        })
    }

    /// Asks the daemons to end, zebra last, so that the others can withdraw their routes.
    pub(super) fn end(&mut self) {
        for daemon in self.daemons.iter().rev() {
            if let Some(process) = &daemon.process {
                send(process.id(), Signal::TERM);
            }
        }
    }

    /// Waits until they have ended; those that have not at `deadline` are killed.
    pub(super) fn wait(mut self, deadline: Instant) {
        for process in self.daemons.iter_mut().filter_map(|daemon| daemon.process.as_mut()) {
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            // ignore errors: it has ended
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some((mut vtysh, _)) = self.vtysh.take() {
            let _ = vtysh.kill();
            let _ = vtysh.wait();
        }
        // daemons of a killed supervisor that have not been replaced yet
        for daemon in &self.daemons {
            let orphans = daemon.namespace.map(|namespace| orphans(&daemon.name, namespace));
            orphans.into_iter().flatten().for_each(|pid| send(pid, Signal::KILL));
        }
        for folder in [&self.folder, &self.private] {
            // ignore errors: it is gone
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Daemon {
    /// Starts it if it does not run and is due; returns true if it has ended.
    fn poll(&mut self, tenant: &str, folder: &Path) -> bool {
        if let Some(process) = &mut self.process {
            let Ok(Some(status)) = process.try_wait() else { return false };
            self.process = None;
            if self.started.elapsed() >= RUNS_WELL {
                self.delay = RESTART_DELAY;
            }
            let ended = describe(status);
            warn(tenant, &format!("{} {ended}; it is started again in {} s", self.name, self.delay.as_secs()));
            self.ended = Some(ended);
            self.back_off();
            self.restarts += 1;
            return true;
        }
        if Instant::now() < self.due {
            return false;
        }
        let orphans = self.namespace.map(|namespace| orphans(&self.name, namespace)).unwrap_or_default();
        if !orphans.is_empty() {
            // without a message to its neighbors, which keep its routes until the next one is there
            orphans.into_iter().for_each(|pid| send(pid, Signal::KILL));
            self.due = Instant::now() + Duration::from_millis(200);
            return false;
        }
        // those of the process before it; ignore errors: there is none
        let _ = std::fs::remove_file(folder.join(format!("{}.vty", self.name)));
        if self.name == ZEBRA {
            let _ = std::fs::remove_file(folder.join(ZEBRA_SOCKET));
        }
        self.started = Instant::now();
        match self.command.spawn() {
            Ok(mut process) => {
                let outputs: [Option<Box<dyn Read + Send>>; 2] = [
                    process.stdout.take().map(|output| Box::new(output) as _),
                    process.stderr.take().map(|output| Box::new(output) as _),
                ];
                outputs.into_iter().flatten().for_each(|output| log(tenant, &self.name, output));
                self.process = Some(process);
            }
            Err(e) => {
                warn(tenant, &format!("{} cannot be started: {e}", self.name));
                self.back_off();
            }
        }
        false
    }

    /// Lets the next start wait, and the one after it longer.
    fn back_off(&mut self) {
        self.due = Instant::now() + self.delay;
        self.delay = (self.delay * 2).min(RESTART_DELAY_MAX);
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("has ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "has ended".to_owned(),
    }
}

/// Returns the processes of a daemon in this namespace that a killed supervisor has left. The file with the number of a
/// process may have been removed, or not have been written yet.
fn orphans(name: &str, namespace: u64) -> Vec<u32> {
    let program = format!("{PROGRAMS}/{name}");
    let is_it = |process: &Path| {
        std::fs::read_link(process.join("exe")).is_ok_and(|exe| exe.to_string_lossy().starts_with(&program))
            && std::fs::metadata(process.join("ns/net")).is_ok_and(|found| found.ino() == namespace)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|pid| is_it(&Path::new("/proc").join(pid.to_string()))).collect()
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // ignore errors: it has ended
        let _ = kill_process(pid, signal);
    }
}

/// Logs the output of a daemon, line by line.
fn log(tenant: &str, daemon: &str, output: Box<dyn Read + Send>) {
    let (tenant, name) = (tenant.to_owned(), daemon.to_owned());
    let read = move || {
        let mut output = BufReader::new(output);
        let mut line = vec![];
        while output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty() {
                say(&Said::Warning {
                    cause: format!("{tenant} {name}"),
                    text: format!("tenant {tenant}: {name}: {text}"),
                });
            }
            line.clear();
        }
    };
    // ignore errors: without a thread its output is lost
    let _ = std::thread::Builder::new().name("output".to_owned()).spawn(read);
}

fn warn(tenant: &str, problem: &str) {
    say(&Said::Warning { cause: format!("{tenant} {problem}"), text: format!("tenant {tenant}: {problem}") });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn placeholders_have_values() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("frr.conf");
        std::fs::write(&config, "router bgp @as@\n bgp router-id 10.0.0.@n@\nhostname @tenant@-@n@ a@b c@d.e@\n")
            .unwrap();
        let values = |pairs: &[(&str, &str)]| {
            let values: BTreeMap<String, String> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Frr { daemons: vec![], config: Some(config.clone()), values, fpm: "127.0.0.1:2620".parse().unwrap() }
        };
        let text = configuration("blue", &values(&[("as", "65001"), ("n", "7")])).unwrap().unwrap();
        assert_eq!(text, "router bgp 65001\n bgp router-id 10.0.0.7\nhostname blue-7 a@b c@d.e@\n");
        let missing = configuration("blue", &values(&[("as", "65001")])).unwrap_err();
        assert!(missing.contains("@n@ has no value; add values.n"), "{missing}");
    }
}
