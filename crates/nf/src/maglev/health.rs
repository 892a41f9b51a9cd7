//! Health checks of backends.

use super::backends::{BackendPool, BackendState, PoolHandle};
use super::config::Config;
use super::settings::{CheckKind, HealthSettings};
use diagnostics::Diagnostic;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of threads, each of which checks its part of the backends one after the other.
const THREADS_MAX: usize = 16;
/// Bytes of a response that are parsed: its first line.
const STATUS_LINE_MAX: usize = 64;

/// Health check of a backend.
struct Check {
    backend: usize,
    address: SocketAddr,
    health: HealthSettings,
    /// Consecutive results that differ from `healthy`.
    streak: u32,
    healthy: bool,
    state: BackendState,
    due: Instant,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheckResult {
    Success,
    /// Success, but the backend accepts no new connections.
    Drain,
    Failure,
}

/// Returns the backends of a configuration, as [`PoolHandle::new`] does, and starts the threads that check them.
pub(super) fn start(config: Arc<Config>, before: Option<&BackendPool>) -> Result<PoolHandle, Diagnostic> {
    // threads that have been started stop with the handle, also if others cannot be started
    let pool = PoolHandle::new(config, before)?;
    start_threads(&pool.0)?;
    Ok(pool)
}

fn start_threads(pool: &Arc<BackendPool>) -> Result<(), Diagnostic> {
    let config = &pool.config;
    let now = Instant::now();
    let checks = config.backends.iter().enumerate().filter_map(|(backend, b)| {
        let health = config.services[b.service].health.clone();
        let state = pool.health(backend);
        (health.kind != CheckKind::None).then_some(Check {
            backend,
            address: b.check_address,
            health,
            streak: 0,
            healthy: state != BackendState::Down,
            state,
            due: now,
        })
    });
    let mut parts: Vec<Vec<Check>> = (0..THREADS_MAX).map(|_| vec![]).collect();
    checks.enumerate().for_each(|(n, check)| parts[n % THREADS_MAX].push(check));
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let pool = Arc::clone(pool);
        let thread = std::thread::Builder::new().name("health".to_owned());
        thread.spawn(move || run(&pool, part)).map_err(|e| {
            Diagnostic::new(format!("cannot start a thread for health checks: {e}"))
                .remedy("allow more threads, or write health.kind = \"none\"")
        })?;
    }
    Ok(())
}

fn run(pool: &BackendPool, mut checks: Vec<Check>) {
    loop {
        let Some(next) = checks.iter_mut().min_by_key(|check| check.due) else { return };
        if !pool.wait(next.due.saturating_duration_since(Instant::now())) {
            return;
        }
        next.adopt(pool.health(next.backend));
        let result = check(next.address, &next.health).unwrap_or(CheckResult::Failure);
        if let Some(state) = next.update(result) {
            pool.set(next.backend, state);
        }
        next.due = Instant::now() + Duration::from_millis(next.health.interval.into());
    }
}

impl Check {
    /// Continues from the state of the backend, which is another one if it was taken over since the last check.
    fn adopt(&mut self, state: BackendState) {
        if state != self.state {
            (self.state, self.healthy, self.streak) = (state, state != BackendState::Down, 0);
        }
    }

    /// Applies a result and returns the new state of the backend if it has changed.
    fn update(&mut self, result: CheckResult) -> Option<BackendState> {
        let success = result != CheckResult::Failure;
        self.streak = if success == self.healthy { 0 } else { self.streak + 1 };
        let threshold = if success { self.health.rise } else { self.health.fall };
        if self.streak >= threshold {
            (self.healthy, self.streak) = (success, 0);
        }
        let state = match (self.healthy, result) {
            (false, _) => BackendState::Down,
            // failures below the threshold change nothing
            (true, CheckResult::Failure) => self.state,
            (true, CheckResult::Drain) => BackendState::Draining,
            (true, CheckResult::Success) => BackendState::Up,
        };
        let changed = state != self.state;
        self.state = state;
        changed.then_some(state)
    }
}

/// Checks a backend once.
fn check(address: SocketAddr, health: &HealthSettings) -> std::io::Result<CheckResult> {
    let deadline = Instant::now() + Duration::from_millis(health.timeout.into());
    let remaining = || {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        if remaining.is_zero() { Err(timed_out) } else { Ok(Some(remaining)) }
    };
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(health.timeout.into()))?;
    if health.kind != CheckKind::Http {
        return Ok(CheckResult::Success);
    }
    stream.set_write_timeout(remaining()?)?;
    let path = &health.path;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: bondstone\r\nConnection: close\r\n\r\n")
            .as_bytes(),
    )?;
    let (mut line, mut n) = ([0; STATUS_LINE_MAX], 0);
    while n < line.len() && !line[..n].contains(&b'\n') {
        stream.set_read_timeout(remaining()?)?;
        match stream.read(&mut line[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(parse_status(&line[..n], health.drain_on_404))
}

/// Parses the status line of an HTTP response (RFC 9112 §4).
fn parse_status(line: &[u8], drain_on_404: bool) -> CheckResult {
    let status = line.strip_prefix(b"HTTP/1.").and_then(|after| after.get(1..5));
    match status {
        Some([b' ', b'2' | b'3', b'0'..=b'9', b'0'..=b'9']) => CheckResult::Success,
        Some(b" 404") if drain_on_404 => CheckResult::Drain,
        _ => CheckResult::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn parses_the_status_line() {
        for (line, drain, expected) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], false, CheckResult::Success),
            (b"HTTP/1.0 302 Found\r\n", false, CheckResult::Success),
            (b"HTTP/1.1 404 Not Found\r\n", false, CheckResult::Failure),
            (b"HTTP/1.1 404 Not Found\r\n", true, CheckResult::Drain),
            (b"HTTP/1.1 503 Busy\r\n", true, CheckResult::Failure),
            (b"HTTP/1.1 2x0 OK\r\n", false, CheckResult::Failure),
            (b"HTTP/1.1 20", false, CheckResult::Failure),
            (b"SSH-2.0-OpenSSH", false, CheckResult::Failure),
            (b"", true, CheckResult::Failure),
        ] {
            assert_eq!(parse_status(line, drain), expected, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn states_change_after_consecutive_results() {
        let health = HealthSettings { rise: 2, fall: 3, kind: CheckKind::Http, ..HealthSettings::default() };
        let address = "127.0.0.1:1".parse().unwrap();
        let (state, due) = (BackendState::Up, Instant::now());
        let mut check = Check { backend: 0, address, health, streak: 0, healthy: true, state, due };
        use CheckResult::{Drain, Failure, Success};
        let mut update = |results: &[CheckResult]| results.iter().map(|r| check.update(*r)).collect::<Vec<_>>();
        assert_eq!(update(&[Failure, Failure, Success, Failure, Failure]), [None; 5]);
        assert_eq!(update(&[Failure, Failure]), [Some(BackendState::Down), None]);
        assert_eq!(update(&[Success, Failure, Success, Success]), [None, None, None, Some(BackendState::Up)]);
        let expected = [Some(BackendState::Draining), None, None, Some(BackendState::Up)];
        assert_eq!(update(&[Drain, Failure, Drain, Success]), expected);
        // a state that was taken over
        check.adopt(BackendState::Down);
        let mut update = |results: &[CheckResult]| results.iter().map(|r| check.update(*r)).collect::<Vec<_>>();
        assert_eq!(update(&[Success, Success]), [None, Some(BackendState::Up)]);
    }

    #[test]
    fn requests_the_page_of_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut requests = vec![];
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                let n = stream.read(&mut bytes).unwrap();
                requests.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
                // in several segments
                if n != 0 {
                    stream.write_all(b"HTTP/1.").unwrap();
                    stream.write_all(b"1 204 No Content\r\n\r\n").unwrap();
                }
            }
            requests
        });
        let health =
            |kind| HealthSettings { kind, path: "/alive".to_owned(), timeout: 60_000, ..HealthSettings::default() };
        assert_eq!(check(address, &health(CheckKind::Http)).unwrap(), CheckResult::Success);
        assert_eq!(check(address, &health(CheckKind::Tcp)).unwrap(), CheckResult::Success);
        let requests = server.join().unwrap();
        assert!(requests[0].starts_with("GET /alive HTTP/1.1\r\n") && requests[1].is_empty(), "{requests:?}");
        // the listener is closed
        assert!(check(address, &health(CheckKind::Tcp)).is_err());
    }
}
