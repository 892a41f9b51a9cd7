//! Starts the processes behind walls, listens to them, and starts them again.

use crate::cgroup::{Groups, Limits};
use crate::order::{CLOSE, LONGEST, REPORT, STOP, Word};
use nix::sys::signal::Signal;
use runtime::{Name, NfSummary, PortSummary, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often processes are looked after.
const OFTEN: Duration = Duration::from_millis(5);
/// How long to wait before a process is started again: at first, and at the most. After a while of good conduct it begins anew.
const FIRST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(5);
const GOOD: Duration = Duration::from_secs(10);
/// How long a process may take to end when asked to.
const GRACE: Duration = Duration::from_secs(6);
/// How long a process that forwards may say nothing, which it does every 50 ms, and how often it is looked after meanwhile.
const SILENCE: Duration = Duration::from_secs(3);
const LOOKS: u32 = 100;
/// What follows the end of a process that is not the first.
const AGAIN: &str = "; it is started again after ";
/// Faults of a wall that are told at the most.
const FAULTS: usize = 100;
/// How long a process may take to begin: building an NF of many routes takes a while.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The largest count that is believed, and the longest name, in characters.
const MOST_COUNTED: u64 = 1 << 48;
const LONGEST_NAME: usize = 64;
/// Characters that are kept of what a process has printed last.
const KEPT: usize = 2000;

/// What is known of a wall's process, and of those before it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) starts: u64,
    pub(crate) ready: bool,
    /// When it was started, and how long it took the last time until it was ready.
    begun: Option<Instant>,
    pub(crate) took: Duration,
    /// Whether it has said its last word.
    last: bool,
    /// What it has done.
    pub(crate) now: Option<Summary>,
    /// What those before it have done.
    pub(crate) created: u64,
    pub(crate) dropped: u64,
    pub(crate) drops: BTreeMap<Name, u64>,
    pub(crate) nfs: BTreeMap<String, NfSummary>,
    /// At ports that are behind the wall.
    ports: BTreeMap<String, PortSummary>,
    /// Times that one ended which was not told to.
    pub(crate) deaths: u64,
    pub(crate) faults: Vec<String>,
    /// Why it does not begin.
    why: Option<String>,
    /// What it has printed last.
    printed: String,
    to: Option<UnixStream>,
    /// Whether it has said anything since it was last looked after.
    heard: bool,
    /// Whether its switch is going, of which QEMU has much to say.
    pub(crate) going: bool,
    own_ports: OwnPorts,
    /// Whether it has been asked and has not answered yet.
    asked: bool,
}

/// How far a process is that has to take nothing more by its own ports.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum OwnPorts {
    #[default]
    Open,
    /// It has been told to.
    Closing,
    /// It has said that it does.
    Closed,
    /// It has said as well what came before that.
    Counted,
}

impl State {
    /// Before the first process; `own` are ports behind the wall, and what the user calls their devices.
    pub(crate) fn of<'a>(own: impl Iterator<Item = (&'a str, &'a str)>) -> State {
        let port = |(name, device): (&str, &str)| {
            let port = PortSummary { name: name.to_owned(), device: device.to_owned(), ..Default::default() };
            (name.to_owned(), port)
        };
        State { ports: own.map(port).collect(), ..Default::default() }
    }

    /// Books what a process has done that is no more.
    fn bury(&mut self) {
        let Some(done) = self.now.take() else { return };
        let [created, dropped, _] = sums(&done);
        self.created = self.created.saturating_add(created);
        self.dropped = self.dropped.saturating_add(dropped);
        let is_own = |port: &&PortSummary| self.ports.contains_key(&port.name);
        add_behind(&mut self.drops, done.ports.iter().filter(|port| !is_own(port)));
        add_ports(&mut self.ports, &done.ports);
        self.ports.values_mut().for_each(|port| few(&mut port.drops));
        // what they held went with them, and is missed at the wall
        add_nfs(&mut self.nfs, done.nfs.into_iter().map(|nf| NfSummary { held: 0, table: None, ..nf }));
        few(&mut self.drops);
        self.faults.extend(done.faults);
        self.faults.truncate(FAULTS);
    }

    /// What was done at ports that are behind the wall.
    pub(crate) fn own(&self) -> BTreeMap<String, PortSummary> {
        let mut own = self.ports.clone();
        add_ports(&mut own, self.now.iter().flat_map(|now| &now.ports));
        own
    }

    fn tell(&mut self, line: &str) {
        if let Some(to) = &mut self.to {
            // errors: it is about to be missed
            let _ = to.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// How a wall's process is started and ended.
pub(crate) struct Start {
    /// The program, and its arguments.
    pub(crate) argv: Vec<String>,
    /// Whether it speaks on standard output, and not where it listens.
    pub(crate) speaks: bool,
    /// Limits of its control groups, if what it starts removes those at its end, and joins them by itself.
    pub(crate) limits: Option<Limits>,
    /// What ends that which it has started, where the kernel does not do so.
    pub(crate) end: Vec<String>,
}

/// A command of a program and its arguments.
pub(crate) fn command(argv: &[String]) -> Command {
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.iter().skip(1));
    command
}

impl Start {
    fn end(&self) {
        if !self.end.is_empty() {
            // errors: there is nothing left
            let _ = command(&self.end).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// A wall's process, as it is to be started.
pub(crate) struct Kept {
    pub(crate) wall: String,
    /// The NFs behind it.
    pub(crate) nfs: Vec<String>,
    /// The ways through it, as ports.
    pub(crate) ways: Vec<String>,
    /// Ports that are opened behind it.
    pub(crate) own: Vec<String>,
    pub(crate) start: Start,
    pub(crate) groups: Groups,
    /// Whom it becomes, where it is started as root.
    pub(crate) user: Option<u32>,
    pub(crate) state: Mutex<State>,
}

impl Kept {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a process says of itself, as far as it can be: of its NFs and ports, in numbers that can be added, in words that can
    /// be printed, and no more of anything than there is room for.
    fn believed(&self, mut said: Summary) -> Summary {
        keep_once(&mut said.nfs, &self.nfs, |nf| &nf.name);
        for nf in &mut said.nfs {
            nf.kind = shown(&nf.kind).into();
            let numbers = [&mut nf.packets, &mut nf.created, &mut nf.held, &mut nf.restarts, &mut nf.memory];
            let of_cycles = [&mut nf.cycles.cycles, &mut nf.cycles.packets, &mut nf.cycles.batches];
            numbers.into_iter().chain(of_cycles).for_each(|n| *n = (*n).min(MOST_COUNTED));
            nf.drops = cleaned(&nf.drops, |name| name.into());
            nf.counters = cleaned(&nf.counters, |name| name);
            if let Some(table) = &mut nf.table {
                table.rows.iter_mut().flatten().for_each(|cell| *cell = shown(cell));
                table.columns.iter_mut().for_each(|title| *title = shown(title).into());
            }
        }
        let ports: Vec<String> = self.ways.iter().chain(&self.own).cloned().collect();
        keep_once(&mut said.ports, &ports, |port| &port.name);
        for port in &mut said.ports {
            port.drops = cleaned(&port.drops, |name| name.into());
            let numbers = [&mut port.received, &mut port.received_bytes, &mut port.sent, &mut port.sent_bytes];
            let more = [&mut port.held, &mut port.missed, &mut port.copied, &mut port.send_errors];
            numbers.into_iter().chain(more).for_each(|n| *n = (*n).min(MOST_COUNTED));
            let of_cycles =
                [&mut port.receive, &mut port.send].map(|of| [&mut of.cycles, &mut of.packets, &mut of.batches]);
            of_cycles.into_iter().flatten().for_each(|n| *n = (*n).min(MOST_COUNTED));
        }
        said.faults.truncate(FAULTS);
        said.faults.iter_mut().for_each(|fault| *fault = format!("wall {:?}: {}", self.wall, shown(fault)));
        said
    }

    /// Has it take nothing more by its own ports, if it has some.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        if state.ready && !self.own.is_empty() && state.own_ports == OwnPorts::Open {
            state.own_ports = OwnPorts::Closing;
            state.tell(CLOSE);
        }
    }

    /// Whether nothing more comes in by its own ports, and all that came is known.
    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state();
        self.own.is_empty() || !state.ready || state.own_ports == OwnPorts::Counted
    }

    /// Asks it to say what it has done, unless it has been asked already.
    pub(crate) fn ask(&self) {
        let mut state = self.state();
        if state.ready && !std::mem::replace(&mut state.asked, true) {
            state.tell(REPORT);
        }
    }
}

/// The thread that looks after all of them. The kernel ends them with this thread, so nobody else starts any.
pub(crate) struct Keeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(all: Vec<Arc<Kept>>) -> std::io::Result<Keeper> {
        let stop = Arc::<AtomicBool>::default();
        let told = stop.clone();
        let thread = std::thread::Builder::new().name("walls".into()).spawn(move || keep(&all, &told))?;
        Ok(Keeper { stop, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A process under way.
struct Running {
    child: Child,
    since: Instant,
    /// Since when it has said nothing, and how often it has been looked after since.
    silent: (Instant, u32),
    listening: JoinHandle<()>,
}

/// One place for a process.
struct Place {
    kept: Arc<Kept>,
    running: Option<Running>,
    due: Instant,
    wait: Duration,
}

fn keep(all: &[Arc<Kept>], stop: &AtomicBool) {
    let now = Instant::now();
    let place = |kept: &Arc<Kept>| Place { kept: kept.clone(), running: None, due: now, wait: FIRST };
    let mut places: Vec<Place> = all.iter().map(place).collect();
    while !stop.load(Ordering::Relaxed) {
        places.iter_mut().for_each(Place::look);
        std::thread::sleep(OFTEN);
    }
    let mut patience = vec![];
    for place in &places {
        let mut state = place.kept.state();
        state.tell(STOP);
        // who has not begun may not even listen
        patience.push(if state.ready { GRACE } else { Duration::ZERO });
    }
    let now = Instant::now();
    for (place, patience) in places.iter_mut().zip(patience) {
        let Some(mut running) = place.running.take() else { continue };
        // after its last word there is nothing to wait for
        let mut goes = || matches!(running.child.try_wait(), Ok(Some(_))) || place.kept.state().last;
        while !goes() && now.elapsed() < patience {
            std::thread::sleep(OFTEN);
        }
        let ended = goes() || patience.is_zero();
        running.end(&place.kept);
        if !ended {
            let fault = format!("wall {:?}: its process did not end when asked to, and was ended", place.kept.wall);
            place.kept.state().faults.push(fault);
        }
    }
}

impl Running {
    /// Whether it has begun and says nothing any more. A machine that stood still blames nobody.
    fn is_silent(&mut self, kept: &Kept) -> bool {
        let mut state = kept.state();
        if std::mem::take(&mut state.heard) {
            self.silent = (Instant::now(), 0);
        }
        self.silent.1 += 1;
        // who is said not to begin is not waited for
        let patience = if state.ready { SILENCE } else { PATIENCE };
        state.why.is_some() || self.silent.0.elapsed() > patience && self.silent.1 > LOOKS
    }

    /// Ends it if it has not ended, and hears what it has said.
    fn end(mut self, kept: &Kept) {
        // errors: it has ended
        let _ = self.child.kill();
        let _ = self.child.wait();
        kept.start.end();
        // the kernel ends what is in its namespaces with it; what it has said is heard to the end
        let end = Instant::now() + GRACE;
        while !self.listening.is_finished() && Instant::now() < end {
            std::thread::sleep(OFTEN);
        }
        // errors: it is closed
        let _ = kept.state().to.take().map(|to| to.shutdown(std::net::Shutdown::Both));
    }
}

impl Place {
    fn look(&mut self) {
        match &mut self.running {
            None if Instant::now() >= self.due => match self.begin() {
                Ok(running) => self.running = Some(running),
                Err(e) => self.failed(format!("its process does not start: {e}")),
            },
            None => {}
            Some(running) => {
                let what = match running.child.try_wait() {
                    Ok(Some(status)) => told(status),
                    _ if running.is_silent(&self.kept) => "its process said nothing any more".to_owned(),
                    _ => {
                        if running.since.elapsed() > GOOD {
                            self.wait = FIRST;
                        }
                        return;
                    }
                };
                if let Some(running) = self.running.take() {
                    running.end(&self.kept);
                }
                self.failed(what);
            }
        }
    }

    /// Books the end of a process, and says when the next one begins.
    fn failed(&mut self, what: String) {
        self.due = Instant::now() + self.wait;
        let mut state = self.kept.state();
        (state.ready, state.to) = (false, None);
        state.deaths += 1;
        state.bury();
        let mut why = state.why.take().unwrap_or(what);
        if self.kept.groups.ran_out() {
            why += ", as it had more memory than it may";
        }
        let printed = std::mem::take(&mut state.printed);
        let said =
            if printed.is_empty() || why.contains(&printed) { String::new() } else { format!("; it said: {printed}") };
        // a process that ends again and again says much the same
        if state.faults.len() < FAULTS {
            let fault = format!("wall {:?}: {why}{said}{AGAIN}{:?}", self.kept.wall, self.wait);
            state.faults.push(fault);
        }
        self.wait = (self.wait * 2).min(MOST);
    }

    fn begin(&self) -> std::io::Result<Running> {
        let (ours, its) = UnixStream::pair()?;
        // who does not read is not waited for
        ours.set_write_timeout(Some(OFTEN))?;
        let start = &self.kept.start;
        let mut command = command(&start.argv);
        let out = if start.speaks { OwnedFd::from(its.try_clone()?).into() } else { Stdio::null() };
        // the terminal's Ctrl-C is not for it
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.process_group(0).stdin(OwnedFd::from(its)).stdout(out).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let printed = child.stderr.take();
        drop(command);
        let grouped = match &start.limits {
            Some(limits) if !self.kept.groups.is_empty() => {
                self.kept.groups.make(limits).map(|()| self.kept.groups.weigh())
            }
            Some(_) => Ok(()),
            None => self.kept.groups.take(child.id()),
        };
        let words = ours.try_clone()?;
        {
            let mut state = self.kept.state();
            state.starts += 1;
            state.begun = Some(Instant::now());
            (state.last, state.own_ports) = (false, OwnPorts::Open);
            state.to = Some(ours);
            match grouped {
                // one byte
                Ok(()) => state.tell(""),
                Err(e) => state.why = Some(format!("its process gets no control group: {e}")),
            }
            if state.why.is_some() {
                state.to = None;
            }
        }
        let (kept, reader) = (self.kept.clone(), self.kept.clone());
        let thread = || std::thread::Builder::new().name("wall".into());
        let listening = thread().spawn(move || listen(&kept, words))?;
        thread().spawn(move || printed.into_iter().for_each(|pipe| read(&reader, pipe)))?;
        let now = Instant::now();
        Ok(Running { child, since: now, silent: (now, 0), listening })
    }
}

/// Counts that can be believed, under names that can be printed.
fn cleaned<K: AsRef<str> + Ord + Clone>(counts: &BTreeMap<K, u64>, name: impl Fn(String) -> K) -> BTreeMap<K, u64> {
    let clean =
        |(key, n): (&K, &u64)| (name(shown(key.as_ref()).chars().take(LONGEST_NAME).collect()), (*n).min(MOST_COUNTED));
    let mut clean = counts.iter().map(clean).collect();
    few(&mut clean);
    clean
}

/// Keeps those of known names, the first of each.
fn keep_once<T>(all: &mut Vec<T>, known: &[String], name: impl Fn(&T) -> &String) {
    let mut known: BTreeSet<&String> = known.iter().collect();
    all.retain(|one| known.remove(name(one)));
}

/// No more names than there is room for.
fn few<K: Ord, V>(of: &mut BTreeMap<K, V>) {
    const MANY: usize = 256;
    while of.len() > MANY {
        of.pop_last();
    }
}

/// How a process ended, in words; what starts another tells its signal by its status.
fn told(status: ExitStatus) -> String {
    let signal = status.signal().or(status.code().and_then(|code| code.checked_sub(128)).filter(|signal| *signal > 0));
    match signal.and_then(|signal| Signal::try_from(signal).ok()) {
        Some(Signal::SIGSYS) => "it asked the system for something that NFs may not".to_owned(),
        Some(signal) => format!("its process was ended by signal {}", signal as i32),
        None => format!("its process ended ({status})"),
    }
}

/// Shows what a process prints, a line at a time, until it closes the pipe; of a line no more than is kept.
fn read(kept: &Kept, from: impl Read) {
    let mut from = BufReader::new(from);
    let mut line = vec![];
    loop {
        line.clear();
        match from.by_ref().take(KEPT as u64).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let line = String::from_utf8_lossy(&line);
        let line = shown(line.trim_end());
        // an end that was asked for is no news, by QEMU or by the guest's kernel
        let of_the_end = line.starts_with("qemu-system") || line.ends_with("reboot: Power down");
        if of_the_end && kept.state().going {
            continue;
        }
        eprintln!("wall {}: {line}", kept.wall);
        // what is indented belongs to what is said before, and a kernel is the last to say something
        if !line.starts_with([' ', '[']) && !line.is_empty() {
            kept.state().printed = line;
        }
    }
}

/// What somebody else says, as a terminal may have it.
fn shown(text: &str) -> String {
    text.replace("\n  ", "; ").chars().take(KEPT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Takes down what a process says of itself, until it says no more.
fn listen(kept: &Kept, from: UnixStream) {
    let mut from = BufReader::new(from);
    let mut line = String::new();
    loop {
        line.clear();
        match from.by_ref().take(LONGEST).read_line(&mut line) {
            Ok(1..) => {}
            _ => return,
        }
        let word = serde_json::from_str(&line);
        let mut state = kept.state();
        (state.heard, state.asked) = (true, false);
        match word {
            Ok(Word::Ready) => {
                state.ready = true;
                state.took = state.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            }
            Ok(Word::Report(summary)) => {
                state.now = Some(kept.believed(*summary));
                if state.own_ports == OwnPorts::Closed {
                    state.own_ports = OwnPorts::Counted;
                }
            }
            Ok(Word::Closed) if state.own_ports == OwnPorts::Closing => state.own_ports = OwnPorts::Closed,
            // said without being told to
            Ok(Word::Closed) => {}
            Ok(Word::Last(summary)) => {
                state.now = Some(kept.believed(*summary));
                state.last = true;
            }
            Ok(Word::Fault(why)) => state.why = Some(shown(&why)),
            Err(e) => {
                state.why =
                    Some(format!("its process says what nobody understands ({e}), and is not listened to any more"));
                return;
            }
        }
    }
}

/// Packets that a process has made, dropped, and holds, by what it says of its NFs and ports.
pub(crate) fn sums(said: &Summary) -> [u64; 3] {
    let add = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let drops = said.nfs.iter().map(|nf| &nf.drops).chain(said.ports.iter().map(|port| &port.drops));
    [
        add(&mut said.nfs.iter().map(|nf| nf.created)),
        add(&mut drops.flat_map(|drops| drops.values().copied())),
        add(&mut said.nfs.iter().map(|nf| nf.held)),
    ]
}

/// Adds what was dropped at ports behind a wall, for the reasons that are told before it.
pub(crate) fn add_behind<'a>(to: &mut BTreeMap<Name, u64>, ports: impl IntoIterator<Item = &'a PortSummary>) {
    for (reason, n) in ports.into_iter().flat_map(|port| &port.drops) {
        let reason = if reason == "tx_full" { "return_full".into() } else { reason.clone() };
        *to.entry(reason).or_default() += n;
    }
}

/// Adds what was done at those of some ports that are known.
fn add_ports<'a>(to: &mut BTreeMap<String, PortSummary>, ports: impl IntoIterator<Item = &'a PortSummary>) {
    for port in ports {
        if let Some(known) = to.get_mut(&port.name) {
            known.join(port);
        }
    }
}

/// Adds what NFs have done to what those of their names have done before.
pub(crate) fn add_nfs(to: &mut BTreeMap<String, NfSummary>, nfs: impl IntoIterator<Item = NfSummary>) {
    for nf in nfs {
        match to.get_mut(&nf.name) {
            Some(earlier) => {
                earlier.join(&nf);
                (earlier.held, earlier.table) = (nf.held, nf.table);
            }
            None => drop(to.insert(nf.name.clone(), nf)),
        }
    }
}

/// Why a process has not begun, if it never will.
pub(crate) fn refusal(kept: &Kept) -> Option<String> {
    let state = kept.state();
    let first = state.faults.first().filter(|_| state.deaths > 0)?;
    Some(first.split(AGAIN).next().unwrap_or(first).to_owned())
}
