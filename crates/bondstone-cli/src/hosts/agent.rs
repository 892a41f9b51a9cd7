//! The agent: runs the part of a host for Bondstone on another one. Its client is [`super::connection`].

use super::message::{MAX_RESPONSE_BYTES, Request, Response, Start};
use crate::exit::Exit;
use remote::{CLIENT_TIMEOUT, Hello, MAX_REQUEST_BYTES, read_line, write_message};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::RunFolder;
use std::io::{self, Read as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval at which the run is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between SIGINT and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the part of a chain file that a client requests on standard input until the input is closed, or nothing is
/// received for a minute; then removes what was created for it.
pub(crate) fn agent() -> anyhow::Result<Exit> {
    send(&Response::Hello(Hello::own()))?;
    let (sender, requests) = channel::<Request>();
    std::thread::spawn(move || {
        let mut from = io::stdin().lock();
        let mut next = || serde_json::from_slice(&read_line(&mut from, MAX_REQUEST_BYTES)?).ok();
        while next().is_some_and(|request| sender.send(request).is_ok()) {}
    });
    loop {
        match requests.recv_timeout(CLIENT_TIMEOUT) {
            Ok(Request::KeepAlive) => {}
            Ok(Request::Start(start)) => {
                let response = run(&start, &requests).unwrap_or_else(|e| Response::Failed(format!("{e:#}")));
                // ignore errors: the client is gone
                let _ = send(&response);
                return Ok(Exit::Success);
            }
            Ok(Request::Stop) | Err(_) => return Ok(Exit::Success),
        }
    }
}

fn send(response: &Response) -> io::Result<()> {
    write_message(&mut io::stdout().lock(), response)
}

/// Runs the part of a host in a process of its own until it ends.
fn run(start: &Start, requests: &Receiver<Request>) -> anyhow::Result<Response> {
    let folder = RunFolder::create(0o700)?;
    start.files.write(folder.path())?;
    let name = Path::new(&start.file).file_name().unwrap_or("chain.toml".as_ref());
    let (file, manager) = (folder.path().join(name), folder.path().join(".manager.sock"));
    std::fs::write(&file, &start.text)?;
    // as a service manager does; it reports the start there
    let notified = UnixDatagram::bind(&manager)?;
    notified.set_nonblocking(true)?;
    let mut command = Command::new("setpriv");
    // the kernel interrupts the run if this process is killed
    command.args(["--pdeathsig", "INT", "--"]).arg(std::env::current_exe()?).arg("run").arg(file);
    command.args(["--host", &start.host, "--json", "--log-to", "stderr"]).args(&start.arguments);
    let child = command.env("NOTIFY_SOCKET", manager).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| anyhow::anyhow!("setpriv cannot be run: {e}: install util-linux"))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = vec![];
        // ignore errors: the summary is incomplete
        let _ = output.map(|output| output.take(MAX_RESPONSE_BYTES).read_to_end(&mut text));
        text
    });
    let status = supervise(&mut child, requests, &notified)?;
    // interrupted before it handles signals
    let interrupted = (status.signal() == Some(Signal::INT.as_raw())).then_some(Exit::Interrupted as i32);
    let status = status.code().or(interrupted);
    let summary = reader.join().ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(Response::Ended { status, summary })
}

/// Waits for the end of a run, reports its start, and stops it if the client requests that or is gone.
fn supervise(child: &mut Child, requests: &Receiver<Request>, notified: &UnixDatagram) -> io::Result<ExitStatus> {
    let (mut is_ready, mut heard, mut stopped) = (false, Instant::now(), None::<Instant>);
    loop {
        let status = child.try_wait()?;
        let mut message = [0; 64];
        while let Ok(len) = notified.recv(&mut message) {
            if !is_ready && message[..len].starts_with(b"READY=1") {
                is_ready = true;
                // ignore errors: the end of standard input follows
                let _ = send(&Response::Ready);
            }
        }
        if let Some(status) = status {
            return Ok(status);
        }
        let request = match stopped {
            None => requests.recv_timeout(POLL_INTERVAL),
            Some(_) => {
                std::thread::sleep(POLL_INTERVAL);
                Err(RecvTimeoutError::Timeout)
            }
        };
        match request {
            Ok(Request::KeepAlive | Request::Start(_)) => heard = Instant::now(),
            Err(RecvTimeoutError::Timeout) if heard.elapsed() < CLIENT_TIMEOUT || stopped.is_some() => {}
            Ok(Request::Stop) | Err(_) => {
                stopped = Some(Instant::now());
                // ignore errors: it has ended
                let _ = kill_process(Pid::from_child(child), Signal::INT);
            }
        }
        if stopped.is_some_and(|at| at.elapsed() > STOP_TIMEOUT) {
            child.kill()?;
        }
    }
}
