//! The connection to the agent on a remote host.

use super::message::{Request, Response};
use crate::dut::context::{DutContext, DutError};
use crate::dut::process::{CommandLine, Program};
use ::remote::{
    CONNECT_TIMEOUT, Hello, KEEP_ALIVE_INTERVAL, MAX_REQUEST_BYTES, RemoteHost, SAME_VERSION, read_line, write_message,
};
use std::io::BufReader;
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(120);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the stop condition of a disturbance is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A connection to the agent. Dropping it stops the remote device and waits for that.
pub(crate) struct AgentConnection {
    host: String,
    streams: Mutex<Streams>,
    /// Dropping it ends the thread that sends keep-alive messages.
    _keep_alive: Sender<()>,
}

struct Streams {
    to: Arc<Mutex<Option<ChildStdin>>>,
    from: Receiver<Vec<u8>>,
}

/// Locks a mutex; a poisoned one is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AgentConnection {
    /// Logs in by ssh and starts the agent.
    ///
    /// # Errors
    /// If ssh fails, or the version of the agent differs.
    pub(crate) fn open(context: &mut DutContext, remote: &RemoteHost) -> Result<(Program, AgentConnection), DutError> {
        let host = &remote.host;
        let command = CommandLine::new("ssh").args(remote.ssh_arguments("dut-agent"));
        let (ssh, to, from) = Program::start_piped(context, "ssh", command)?;
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || read_lines(from, &sender));
        let to = Arc::new(Mutex::new(Some(to)));
        let (keep_alive, closed) = mpsc::channel();
        let keep_alive_to = to.clone();
        std::thread::spawn(move || {
            while closed.recv_timeout(KEEP_ALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // a failure is reported by the next request
                let _ = write(&keep_alive_to, &Request::KeepAlive);
            }
        });
        let streams = Mutex::new(Streams { to, from: receiver });
        let connection = AgentConnection { host: host.clone(), streams, _keep_alive: keep_alive };
        let first = lock(&connection.streams).from.recv_timeout(CONNECT_TIMEOUT);
        // the error output of ssh may arrive after the end of its standard output
        std::thread::sleep(Duration::from_millis(if first.is_err() { 100 } else { 0 }));
        let tail = ssh.output_tail();
        let hello = first.ok().and_then(|first| serde_json::from_slice::<Hello>(&first).ok());
        let Some(hello) = hello else {
            let problem = format!("cannot run Bondstone on {host}: {tail}");
            return Err(context.error(problem, remote.start_remedy()));
        };
        hello.check(host).map_err(|problem| context.error(problem, SAME_VERSION))?;
        Ok((ssh, connection))
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// If the request fails or the connection is lost.
    pub(crate) fn request(&self, dut: &str, request: &Request) -> Result<Response, DutError> {
        let limit = if matches!(request, Request::Start(_)) { START_TIMEOUT } else { RESPONSE_TIMEOUT };
        self.request_until(dut, request, limit, || false)
    }

    /// As [`AgentConnection::request`]; sends [`Request::StopDisturbance`] once `stop` returns true.
    ///
    /// # Errors
    /// As [`AgentConnection::request`].
    pub(crate) fn request_until(
        &self,
        dut: &str,
        request: &Request,
        limit: Duration,
        stop: impl Fn() -> bool,
    ) -> Result<Response, DutError> {
        let error =
            |problem: String, remedy: &str| DutError { dut: dut.to_owned(), problem, remedy: remedy.to_owned() };
        let lost = || error(format!("lost the connection to {}", self.host), "check that host and the network");
        let streams = lock(&self.streams);
        write(&streams.to, request).map_err(|_| lost())?;
        let mut end = Instant::now() + limit;
        let mut stopped = false;
        loop {
            if !stopped && stop() {
                stopped = true;
                end = Instant::now() + RESPONSE_TIMEOUT;
                write(&streams.to, &Request::StopDisturbance).map_err(|_| lost())?;
            }
            match streams.from.recv_timeout(POLL_INTERVAL) {
                Ok(line) => {
                    return match serde_json::from_slice(&line) {
                        Ok(Response::Failed { problem, remedy }) => {
                            Err(error(format!("on {}: {problem}", self.host), &remedy))
                        }
                        Ok(response) => Ok(response),
                        Err(e) => Err(error(format!("invalid response from {}: {e}", self.host), SAME_VERSION)),
                    };
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(_) => return Err(lost()),
            }
        }
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        let streams = lock(&self.streams);
        drop(lock(&streams.to).take());
        let end = Instant::now() + STOP_TIMEOUT;
        while streams.from.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
    }
}

fn write(to: &Mutex<Option<ChildStdin>>, request: &Request) -> std::io::Result<()> {
    write_message(lock(to).as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?, request)
}

/// Forwards every line until the stream ends.
fn read_lines(from: ChildStdout, to: &Sender<Vec<u8>>) {
    let mut from = BufReader::new(from);
    while read_line(&mut from, MAX_REQUEST_BYTES).is_some_and(|line| to.send(line).is_ok()) {}
}
