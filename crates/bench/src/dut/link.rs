//! The line to this program on another machine.

use super::message::{Answer, Hello, LONGEST, Order};
use super::program::{Line, Program};
use super::{DutError, Elsewhere, Site};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long it may take to be there, to start a device, to answer a question, and to stop.
const CONNECT: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(30);
/// How often it is told that this program lives; [`super::agent`] waits for several of these.
pub(super) const ALIVE: Duration = Duration::from_secs(10);
/// How often an act is asked whether it shall end.
const NAP: Duration = Duration::from_millis(5);
/// Names a configuration for ssh in the place of the user's.
const CONFIGURATION: &str = "BONDSTONE_SSH_CONFIG";

/// A line to another machine. When it is dropped, the device there is stopped, and that is waited for.
pub(crate) struct Link {
    host: String,
    talk: Mutex<Talk>,
    /// Dropped, it ends the messages that this program lives.
    _alive: Sender<()>,
}

struct Talk {
    to: Arc<Mutex<Option<ChildStdin>>>,
    from: Receiver<String>,
}

/// Nothing panics with one of these locks; if it did, what they hold would be whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Logs in and starts this program there.
    ///
    /// # Errors
    /// What ssh says; another version of this program.
    pub(crate) fn open(site: &mut Site, elsewhere: &Elsewhere) -> Result<(Program, Link), DutError> {
        let Elsewhere { host, program } = elsewhere;
        let mut line = Line::new("ssh").args(["-T", "-x", "-a", "-o", "BatchMode=yes"]);
        // a cable that is pulled ends the measurement as well
        line = line.args(["-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6"]);
        if let Ok(file) = std::env::var(CONFIGURATION) {
            line = line.args(["-F".to_owned(), file]);
        }
        let line = line.args(["--", host, &format!("{program} dut-agent")]);
        let (program, to, from) = Program::converse(site, "ssh", line)?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || read(from, &sender));
        let to = Arc::new(Mutex::new(Some(to)));
        let (alive, over) = mpsc::channel();
        let also = to.clone();
        std::thread::spawn(move || {
            while over.recv_timeout(ALIVE) == Err(RecvTimeoutError::Timeout) {
                // errors: the next question finds out
                let _ = write(&also, &Order::Alive);
            }
        });
        let link = Link { host: host.clone(), talk: Mutex::new(Talk { to, from: receiver }), _alive: alive };
        let first = locked(&link.talk).from.recv_timeout(CONNECT);
        // what ssh says may be there a little later than its end
        std::thread::sleep(Duration::from_millis(if first.is_err() { 100 } else { 0 }));
        let said = program.said();
        let hello = first.ok().and_then(|first| serde_json::from_str::<Hello>(&first).ok());
        let Some(hello) = hello else {
            let remedy = format!(
                "see that `ssh -o BatchMode=yes {host} {} --version` works without a question, or name the program \
                 there: program = \"...\"",
                elsewhere.program
            );
            return Err(site.wrong(format!("{host} does not run this program: {said}"), remedy));
        };
        let own = env!("CARGO_PKG_VERSION");
        if hello.bondstone != own {
            let problem = format!("Bondstone is {own} here and {} on {host}", hello.bondstone);
            return Err(site.wrong(problem, "install the same version on both"));
        }
        Ok((program, link))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the other side says is wrong; a line that is cut.
    pub(crate) fn ask(&self, dut: &str, order: &Order) -> Result<Answer, DutError> {
        let patience = if matches!(order, Order::Start(_)) { START } else { ANSWER };
        self.ask_until(dut, order, patience, || false)
    }

    /// As [`Link::ask`]; tells it to make an end once `stop` says so.
    ///
    /// # Errors
    /// As [`Link::ask`].
    pub(crate) fn ask_until(
        &self,
        dut: &str,
        order: &Order,
        patience: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Answer, DutError> {
        let wrong = |problem: String, remedy: &str| DutError { dut: dut.to_owned(), problem, remedy: remedy.to_owned() };
        let cut = || wrong(format!("the line to {} is cut", self.host), "look at that machine and at the network");
        let talk = locked(&self.talk);
        write(&talk.to, order).map_err(|_| cut())?;
        let mut end = Instant::now() + patience;
        let mut halted = false;
        loop {
            if !halted && stop() {
                halted = true;
                end = Instant::now() + ANSWER;
                write(&talk.to, &Order::Halt).map_err(|_| cut())?;
            }
            match talk.from.recv_timeout(NAP) {
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(Answer::Wrong { problem, remedy }) => {
                            Err(wrong(format!("on {}: {problem}", self.host), &remedy))
                        }
                        Ok(answer) => Ok(answer),
                        Err(e) => Err(wrong(
                            format!("{} said what cannot be understood: {e}", self.host),
                            "install the same version on both",
                        )),
                    };
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => return Err(cut()),
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let talk = locked(&self.talk);
        drop(locked(&talk.to).take());
        let end = Instant::now() + STOP;
        while talk.from.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

fn write(to: &Mutex<Option<ChildStdin>>, order: &Order) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    let mut to = locked(to);
    let to = to.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
    to.write_all(&line)?;
    to.flush()
}

/// Hands on every line, until there are no more.
fn read(from: ChildStdout, to: &Sender<String>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = String::new();
        match from.by_ref().take(LONGEST).read_line(&mut line) {
            Ok(1..) if to.send(line).is_ok() => {}
            _ => return,
        }
    }
}
