//! The HTTP server of the metrics.

use super::{Format, encode};
use runtime::Summary;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use wire::Malformed;
use wire::http::Request;

/// Most simultaneous clients. For another one, the oldest is disconnected that has not sent its request.
const MAX_CLIENTS: usize = 8;
/// Longest head of a request in bytes.
const MAX_HEAD_LEN: usize = 8 << 10;
/// Longest time in which a client sends its request, and longest time in which it receives the response.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Shortest time from one snapshot of the counts to the next.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Pause after an error of the listener, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// A server; dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    /// The listener of the thread, to wake it.
    listener: TcpListener,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `GET /metrics` at `address`; `snapshot` returns the counts, or `None` if the run is ending.
    ///
    /// # Errors
    /// The address cannot be listened at.
    pub(crate) fn start<F>(address: SocketAddr, snapshot: F) -> std::io::Result<Server>
    where
        F: Fn() -> Option<Summary> + Send + 'static,
    {
        let listener = TcpListener::bind(address)?;
        let (accepting, address) = (listener.try_clone()?, listener.local_addr()?);
        let end = Arc::new(AtomicBool::new(false));
        let ends = end.clone();
        // the lock limits the rate of snapshots for all clients together
        let snapshot = Arc::new(Mutex::new(snapshot));
        let accept = move || accept(&accepting, &ends, &snapshot);
        let thread = Builder::new().name("metrics".to_owned()).spawn(accept)?;
        Ok(Server { address, listener, end, thread: Some(thread) })
    }

    /// Returns the address, with the port that was chosen for port 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // ignore errors: it is closed already
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // ignore errors: the thread has ended by a panic
            let _ = thread.join();
        }
    }
}

fn accept<F>(listener: &TcpListener, end: &AtomicBool, snapshot: &Arc<Mutex<F>>)
where
    F: Fn() -> Option<Summary> + Send + 'static,
{
    let mut clients: VecDeque<(Arc<TcpStream>, JoinHandle<()>)> = VecDeque::new();
    for stream in listener.incoming() {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let Ok(stream) = stream else {
            sleep(ERROR_PAUSE);
            continue;
        };
        clients.retain(|(_, thread)| !thread.is_finished());
        if clients.len() >= MAX_CLIENTS {
            close(clients.pop_front(), Shutdown::Read);
        }
        let (stream, snapshot) = (Arc::new(stream), snapshot.clone());
        let own = stream.clone();
        let serve = move || {
            // ignore errors: the client is gone or too slow
            let _ = serve(&own, &snapshot);
            // the listening thread has the stream, too
            let _ = own.shutdown(Shutdown::Both);
        };
        // without a thread the client is disconnected
        if let Ok(thread) = Builder::new().name("metrics-client".to_owned()).spawn(serve) {
            clients.push_back((stream, thread));
        }
    }
    clients.into_iter().for_each(|client| close(Some(client), Shutdown::Both));
}

/// Waits for the end of a client, which comes early if it has not sent its request.
fn close(client: Option<(Arc<TcpStream>, JoinHandle<()>)>, how: Shutdown) {
    if let Some((stream, thread)) = client {
        // ignore errors: the client is gone, or its thread has ended by a panic
        let _ = stream.shutdown(how);
        let _ = thread.join();
    }
}

/// Serves one request.
fn serve<F: Fn() -> Option<Summary>>(stream: &TcpStream, snapshot: &Mutex<F>) -> std::io::Result<()> {
    let (status, content_type, body) = match read_request(stream, Instant::now() + MAX_WAIT)? {
        Err(status) => (status, "text/plain", format!("{status}\n")),
        Ok(format) => match metrics(snapshot, format) {
            Some(text) => ("200 OK", format.content_type(), text),
            None => ("503 Service Unavailable", "text/plain", "the run is ending\n".to_owned()),
        },
    };
    tracing::debug!(target: "metrics", status, "request for metrics: {status}");
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    write_all(stream, [head, body].concat().as_bytes(), Instant::now() + MAX_WAIT)
}

/// Returns the counts as text, at most one per interval for all clients.
fn metrics<F: Fn() -> Option<Summary>>(snapshot: &Mutex<F>, format: Format) -> Option<String> {
    let snapshot = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = (*snapshot)()?;
    sleep(MIN_INTERVAL);
    drop(snapshot);
    encode(summary, format).ok()
}

/// Sets the time until the deadline as timeout.
fn set_timeout(
    stream: &TcpStream,
    set: fn(&TcpStream, Option<Duration>) -> std::io::Result<()>,
    deadline: Instant,
) -> std::io::Result<()> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(std::io::ErrorKind::TimedOut.into()),
        left => set(stream, Some(left)),
    }
}

fn write_all(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        set_timeout(stream, TcpStream::set_write_timeout, deadline)?;
        let n = stream.write(bytes)?;
        bytes = bytes.get(n..).unwrap_or_default();
    }
    Ok(())
}

/// Reads a request and returns the format of the response, or the status of its refusal.
fn read_request(mut stream: &TcpStream, deadline: Instant) -> std::io::Result<Result<Format, &'static str>> {
    let mut head = [0; MAX_HEAD_LEN];
    let mut len = 0;
    loop {
        match Request::new(&head[..len]) {
            Ok(request) => return Ok(format(&request)),
            Err(Malformed::Short) if len < MAX_HEAD_LEN => {}
            Err(Malformed::Short | Malformed::Range) => return Ok(Err("431 Request Header Fields Too Large")),
            Err(_) => return Ok(Err("400 Bad Request")),
        }
        set_timeout(stream, TcpStream::set_read_timeout, deadline)?;
        match stream.read(&mut head[len..])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => len += n,
        }
    }
}

/// Returns the format of the response to a request, or the status of its refusal.
fn format(request: &Request<'_>) -> Result<Format, &'static str> {
    let path = request.target().split(|byte| *byte == b'?').next().unwrap_or_default();
    let accepts = request.field("accept").unwrap_or_default();
    let is_open_metrics = accepts.windows(OPEN_METRICS.len()).any(|part| part == OPEN_METRICS);
    match (path, request.method()) {
        (b"/metrics", "GET") if is_open_metrics => Ok(Format::OpenMetrics),
        (b"/metrics", "GET") => Ok(Format::Prometheus),
        (b"/metrics", _) => Err("405 Method Not Allowed"),
        _ => Err("404 Not Found"),
    }
}

/// Media type of OpenMetrics.
const OPEN_METRICS: &[u8] = b"application/openmetrics-text";

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server whose run ends if `end` is true.
    fn server(end: bool) -> Server {
        let snapshot = move || (!end).then(|| Summary { file: "edge.toml".into(), ..Summary::default() });
        Server::start(([127, 0, 0, 1], 0).into(), snapshot).unwrap()
    }

    /// Sends bytes and returns all that is received.
    fn answer(server: &Server, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(4 * MAX_WAIT)).unwrap();
        // the server may close the connection before it has read everything
        let _ = stream.write_all(bytes);
        let mut received = vec![];
        let _ = stream.read_to_end(&mut received);
        String::from_utf8(received).unwrap()
    }

    #[test]
    fn the_format_is_negotiated() {
        let server = server(false);
        let plain = answer(&server, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(plain.starts_with("HTTP/1.1 200 OK\r\n") && plain.contains("version=0.0.4"), "{plain}");
        assert!(plain.contains("bondstone_received_packets_total 0\n") && !plain.contains("# EOF"), "{plain}");
        let open =
            answer(&server, b"GET /metrics?x=1 HTTP/1.0\nAccept: application/openmetrics-text;version=1.0.0\n\n");
        assert!(open.contains("Content-Type: application/openmetrics-text;") && open.ends_with("# EOF\n"), "{open}");
        let (head, body) = open.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    }

    #[test]
    fn other_requests_are_refused() {
        let running = server(false);
        let status = |bytes: &[u8]| answer(&running, bytes).lines().next().unwrap_or_default().to_owned();
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status(b"\x16\x03\x01\0"), "HTTP/1.1 400 Bad Request");
        // of exactly the size that is read, so that the end of the connection loses no response
        let long = [&b"GET /metrics HTTP/1.1\r\nA: "[..], &vec![b'x'; MAX_HEAD_LEN]].concat();
        assert_eq!(status(&long[..MAX_HEAD_LEN]), "HTTP/1.1 431 Request Header Fields Too Large");
        let ending = answer(&server(true), b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(ending.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{ending}");
    }

    #[test]
    fn clients_that_send_no_request_give_way() {
        let server = server(false);
        let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        silent.iter().for_each(|mut stream| stream.write_all(b"GET /met").unwrap());
        let start = Instant::now();
        assert!(answer(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
        assert!(start.elapsed() < MAX_WAIT, "{:?}", start.elapsed());
        // the end does not wait for the others
        drop(server);
        assert!(start.elapsed() < MAX_WAIT, "{:?}", start.elapsed());
    }

    #[test]
    fn snapshots_are_limited_for_all_clients_together() {
        let server = server(false);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| assert!(answer(&server, b"GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK")));
            }
        });
        assert!(start.elapsed() >= 20 * MIN_INTERVAL);
    }
}
