//! The server.

use crate::group::Group;
use crate::line::{Limits, Line};
use crate::protocol::{Hello, MAX_LINE_LEN, Refusal, Request, Response};
use crate::socket::{self, SocketId};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io::{BufReader, ErrorKind, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Most simultaneous clients; others are refused.
pub const MAX_CLIENTS: usize = 16;
/// Shortest time from one request of a client to the next: a client that sends more waits.
const MIN_INTERVAL: Duration = Duration::from_micros(50);
/// Longest time in which a client sends a line, or receives a response.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Limits of a request.
const LIMITS: Limits = Limits { len: MAX_LINE_LEN, time: MAX_WAIT };
/// Interval at which a client that sends nothing is checked for the end of the server.
const IDLE_INTERVAL: Duration = Duration::from_millis(100);

/// Longest text of a refused request that is logged, in characters.
const MAX_LOGGED: usize = 200;

/// Counts of a server.
#[derive(Debug, Default)]
pub struct Counters {
    /// Clients that were connected.
    pub clients: AtomicU64,
    /// Clients that were refused, as there were [`MAX_CLIENTS`] already.
    pub refused_clients: AtomicU64,
    /// Requests that were processed.
    pub requests: AtomicU64,
    /// Requests that were not valid, or too long, and clients that were too slow.
    pub invalid: AtomicU64,
}

impl Counters {
    /// Returns the counts as an object.
    pub fn to_json(&self) -> serde_json::Value {
        let Counters { clients, refused_clients, requests, invalid } = self;
        let [clients, refused_clients, requests, invalid] =
            [clients, refused_clients, requests, invalid].map(|count| count.load(Ordering::Relaxed));
        serde_json::json!({
            "clients": clients, "refused_clients": refused_clients, "requests": requests, "invalid": invalid,
        })
    }
}

/// The result of a request.
pub struct Reply {
    /// The value.
    pub value: serde_json::Value,
    /// The stream that follows it, after which the connection is closed.
    pub stream: Option<Stream>,
}

/// Writes what follows a response to the client, until [`Connection::has_ended`] or an error of the connection.
pub type Stream = Box<dyn FnOnce(&mut Connection<'_>) -> std::io::Result<()> + Send>;

impl From<serde_json::Value> for Reply {
    fn from(value: serde_json::Value) -> Self {
        Reply { value, stream: None }
    }
}

impl Reply {
    /// Returns a result that `stream` follows, after which the connection is closed.
    pub fn stream(
        value: serde_json::Value,
        stream: impl FnOnce(&mut Connection<'_>) -> std::io::Result<()> + Send + 'static,
    ) -> Self {
        Reply { value, stream: Some(Box::new(stream)) }
    }
}

/// The connection to a client to which a stream is written. Writing waits for the client, until this has ended the stream
/// and then receives nothing for 10 s.
pub struct Connection<'a> {
    stream: &'a UnixStream,
    end: &'a AtomicBool,
}

impl Connection<'_> {
    /// Returns true if the client has closed its side, or sends something, or the server ends.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        if self.end.load(Ordering::Relaxed) {
            return true;
        }
        match recv(self.stream, &mut [0_u8; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Err(e) => e != Errno::AGAIN && e != Errno::INTR,
            Ok(_) => true,
        }
    }
}

impl std::io::Write for Connection<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock && !self.has_ended() => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server; dropping it closes the socket and all connections.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    id: SocketId,
    /// The listener of the thread, to wake it.
    listener: UnixListener,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// State that the threads of a server share.
struct Shared<F> {
    hello: Hello,
    handle: F,
    counters: Counters,
    end: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `path`, and has `handle` process requests, several at a time for different clients.
    ///
    /// # Errors
    /// The socket cannot be created, or another process listens there.
    pub fn start<F>(path: &Path, hello: Hello, handle: F) -> std::io::Result<Server>
    where
        F: Fn(Request, &Counters) -> Result<Reply, Refusal> + Send + Sync + 'static,
    {
        Server::start_for_group(path, None, hello, handle)
    }

    /// As [`Server::start`], for users of a group as well.
    ///
    /// # Errors
    /// As for [`Server::start`], or this user is not in the group.
    pub fn start_for_group<F>(path: &Path, group: Option<Group>, hello: Hello, handle: F) -> std::io::Result<Server>
    where
        F: Fn(Request, &Counters) -> Result<Reply, Refusal> + Send + Sync + 'static,
    {
        let (listener, id) = socket::listen(path, group)?;
        let accepting = listener.try_clone()?;
        let end = Arc::new(AtomicBool::new(false));
        let shared = Shared { hello, handle, counters: Counters::default(), end: end.clone() };
        let accept = move || accept(&accepting, &Arc::new(shared));
        match Builder::new().name("control".to_owned()).spawn(accept) {
            Ok(thread) => Ok(Server { path: path.to_owned(), id, listener, end, thread: Some(thread) }),
            Err(e) => {
                socket::close(path, id);
                Err(e)
            }
        }
    }
}

impl Server {
    /// Removes the file of the socket, so that another process can listen at its path. Connected clients stay.
    pub fn release_path(&self) {
        socket::close(&self.path, self.id);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // also wakes the thread if the file of the socket is gone; ignore errors: it is closed already
        let _ = shutdown(&self.listener, Shutdown::Both);
        socket::close(&self.path, self.id);
        if let Some(thread) = self.thread.take() {
            // ignore errors: the thread has ended by a panic
            let _ = thread.join();
        }
    }
}

fn accept<F>(listener: &UnixListener, shared: &Arc<Shared<F>>)
where
    F: Fn(Request, &Counters) -> Result<Reply, Refusal> + Send + Sync + 'static,
{
    let mut clients: Vec<JoinHandle<()>> = vec![];
    for stream in listener.incoming() {
        if shared.end.load(Ordering::Relaxed) {
            break;
        }
        // the client is gone, or the process has too many open files
        let Ok(stream) = stream else {
            sleep(IDLE_INTERVAL);
            continue;
        };
        clients.retain(|client| !client.is_finished());
        if clients.len() >= MAX_CLIENTS {
            shared.counters.refused_clients.fetch_add(1, Ordering::Relaxed);
            let refusal = Refusal::new(format!("{MAX_CLIENTS} clients are connected already"));
            tracing::warn!(target: "control", "client refused: {refusal}");
            // ignore errors: the client is gone
            let _ = stream.set_nonblocking(true);
            let _ = send(&stream, &Response::Error(refusal));
            continue;
        }
        let own = shared.clone();
        let serve = move || {
            // ignore errors: the client is gone
            let _ = serve(&stream, &own);
        };
        match Builder::new().name("control-client".to_owned()).spawn(serve) {
            Ok(client) => {
                shared.counters.clients.fetch_add(1, Ordering::Relaxed);
                clients.push(client);
            }
            Err(_) => drop(shared.counters.refused_clients.fetch_add(1, Ordering::Relaxed)),
        }
    }
    for client in clients {
        // ignore errors: the thread has ended by a panic
        let _ = client.join();
    }
}

fn send(mut stream: &UnixStream, line: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Returns the name of a request.
fn name(line: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Named {
        request: String,
    }
    // it is a request
    serde_json::from_slice(line).map_or_else(|_| String::new(), |Named { request }| request)
}

/// Serves one client until it or the server ends.
fn serve<F>(stream: &UnixStream, shared: &Shared<F>) -> std::io::Result<()>
where
    F: Fn(Request, &Counters) -> Result<Reply, Refusal>,
{
    stream.set_read_timeout(Some(IDLE_INTERVAL))?;
    stream.set_write_timeout(Some(MAX_WAIT))?;
    send(stream, &shared.hello)?;
    let (mut reader, mut line) = (BufReader::new(stream), vec![]);
    loop {
        line.clear();
        let refusal = match LIMITS.read(&mut reader, &mut line, || shared.end.load(Ordering::Relaxed))? {
            Line::End => return Ok(()),
            Line::Whole => None,
            Line::TooLong => Some(format!("a request is longer than {MAX_LINE_LEN} bytes")),
            Line::TooSlow => Some(format!("a request was not complete after {} s", MAX_WAIT.as_secs())),
        };
        if let Some(problem) = refusal {
            shared.counters.invalid.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(target: "control", "client disconnected: {problem}");
            return send(stream, &Response::Error(Refusal::new(problem)));
        }
        let start = Instant::now();
        let response = match serde_json::from_slice(&line) {
            Ok(request) => {
                shared.counters.requests.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(target: "control", request = name(&line).as_str(), "request {}", name(&line));
                match (shared.handle)(request, &shared.counters) {
                    Ok(Reply { value, stream: None }) => Response::Ok(value),
                    Ok(Reply { value, stream: Some(write) }) => {
                        send(stream, &Response::Ok(value))?;
                        return write(&mut Connection { stream, end: &shared.end });
                    }
                    Err(refusal) => Response::Error(refusal),
                }
            }
            Err(e) => {
                shared.counters.invalid.fetch_add(1, Ordering::Relaxed);
                let refusal = Refusal::new(format!("is not a request: {e}"));
                // it contains text of the client
                let logged: String = refusal.problem.chars().take(MAX_LOGGED).collect();
                tracing::warn!(target: "control", "request refused: {logged}");
                Response::Error(refusal)
            }
        };
        send(stream, &response)?;
        sleep(MIN_INTERVAL.saturating_sub(start.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use proptest::prelude::*;
    use std::io::{BufRead as _, Read as _};

    struct Running {
        server: Option<Server>,
        path: PathBuf,
        _dir: tempfile::TempDir,
    }

    /// A server that counts, and refuses to stop.
    fn server() -> Running {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("edge.sock");
        let handle = |request, counters: &Counters| match request {
            Request::Stats {} => Ok(counters.to_json().into()),
            Request::Trace { .. } => Ok(Reply::stream(serde_json::Value::Null, |client| {
                client.write_all(b"first\nsecond\n")?;
                while !client.has_ended() {
                    sleep(MIN_INTERVAL);
                }
                client.write_all(b"last\n")
            })),
            _ => Err(Refusal::new("not now")),
        };
        let server = Server::start(&path, Hello::new("edge.toml".into()), handle).unwrap();
        Running { server: Some(server), path, _dir: dir }
    }

    fn count(client: &mut Client, name: &str) -> u64 {
        client.call::<serde_json::Value>(&Request::Stats {}).unwrap()[name].as_u64().unwrap()
    }

    /// Sends bytes as a client that is not ours, and returns all that it receives after the greeting.
    fn answers(path: &Path, bytes: &[u8]) -> Vec<serde_json::Value> {
        let mut stream = UnixStream::connect(path).unwrap();
        // the server may close the connection before it has read everything
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        String::from_utf8(text).unwrap().lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn invalid_requests_are_refused_and_counted() {
        let running = server();
        let mut client = Client::connect(&running.path).unwrap();
        let answer = answers(&running.path, b"hello\n{\"request\":\"stats\"}\n[]\n");
        let kinds: Vec<_> = answer.iter().map(|a| a.as_object().unwrap().keys().next().unwrap().clone()).collect();
        assert_eq!(kinds, ["error", "ok", "error"]);
        assert_eq!((count(&mut client, "invalid"), count(&mut client, "requests")), (2, 3));
        // too long: refused once, and the connection ends
        let long = answers(&running.path, &vec![b'x'; 3 * MAX_LINE_LEN]);
        assert!(long.len() <= 1 && long.iter().all(|a| a["error"]["problem"].as_str().unwrap().contains("1048576")));
        assert_eq!(count(&mut client, "invalid"), 3);
        // a line that is not ended is no request
        assert_eq!(answers(&running.path, b"{\"request\":\"stats\"}"), Vec::<serde_json::Value>::new());
    }

    #[test]
    fn clients_beyond_the_limit_are_refused() {
        let running = server();
        let mut clients: Vec<_> = (0..MAX_CLIENTS).map(|_| Client::connect(&running.path).unwrap()).collect();
        let refused = Client::connect(&running.path).unwrap_err();
        assert_eq!(refused.to_string(), "16 clients are connected already");
        assert_eq!(count(&mut clients[0], "refused_clients"), 1);
        drop(clients.split_off(1));
        let start = Instant::now();
        while Client::connect(&running.path).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "a place becomes free");
        }
    }

    #[test]
    fn a_flooding_client_waits() {
        let running = server();
        let mut client = Client::connect(&running.path).unwrap();
        let start = Instant::now();
        for _ in 0..50 {
            count(&mut client, "requests");
        }
        assert!(start.elapsed() >= 49 * MIN_INTERVAL);
    }

    #[test]
    fn a_slow_client_is_refused_and_counted() {
        let running = server();
        let mut slow = UnixStream::connect(&running.path).unwrap();
        slow.write_all(b"{").unwrap();
        let mut text = String::new();
        slow.read_to_string(&mut text).unwrap();
        assert!(text.contains("a request was not complete after 10 s"), "{text}");
        assert_eq!(count(&mut Client::connect(&running.path).unwrap(), "invalid"), 1);
    }

    #[test]
    fn the_end_closes_connections_and_removes_the_socket() {
        use std::os::unix::fs::PermissionsExt as _;
        let mut running = server();
        let mut client = Client::connect(&running.path).unwrap();
        assert_eq!(running.path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(client.call::<()>(&Request::Stop { drain: None }).unwrap_err().to_string(), "not now");
        let second = Server::start(&running.path, Hello::new(String::new()), |_, _| Ok(serde_json::Value::Null.into()))
            .unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        drop(running.server.take());
        assert!(client.call::<serde_json::Value>(&Request::Stats {}).is_err() && !running.path.exists());
    }

    #[test]
    fn a_stream_lasts_until_the_client_ends_it() {
        let running = server();
        let client = Client::connect(&running.path).unwrap();
        let request = Request::Trace { filter: None, packets: 1 };
        let (_, mut stream) = client.stream::<serde_json::Value>(&request).unwrap();
        let mut line = String::new();
        for expected in ["first\n", "second\n"] {
            line.clear();
            stream.read_line(&mut line).unwrap();
            assert_eq!(line, expected);
        }
        stream.ender().unwrap().end();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "last\n");
    }

    #[test]
    fn a_server_ends_although_its_socket_is_gone() {
        let mut running = server();
        std::fs::remove_file(&running.path).unwrap();
        drop(running.server.take());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_bytes_are_answered_line_by_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let running = server();
            let lines = bytes.iter().filter(|&&b| b == b'\n').count();
            prop_assert_eq!(answers(&running.path, &bytes).len(), lines);
            prop_assert!(Client::connect(&running.path).is_ok());
        }
    }
}
